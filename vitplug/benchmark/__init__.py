"""Measures the cost of plugs against the plain model and other implementations, by interleaved timing.

The attention part needs only torch and runs on a CPU or a GPU.
"""
