"""Samplers compared on measured tables, without a GPU."""
