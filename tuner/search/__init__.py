"""Choosing the next configuration."""
