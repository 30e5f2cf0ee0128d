"""Measures of a trained model over images, with intervals, pictures and a baseline: `analyze.py`."""
