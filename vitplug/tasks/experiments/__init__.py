"""Experiments on one's own data: how the data lies."""
