"""The analytic prior: memory, step time and power of a training step, predicted without a GPU."""
