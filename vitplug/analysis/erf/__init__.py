"""Effective receptive fields with fitted Gaussians: the command `tools/analysis_tools/erf.py`."""
