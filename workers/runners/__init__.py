"""Ways to carry out a launch; every one answers the contract in :mod:`tuner.trial`."""
