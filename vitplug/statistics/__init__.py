"""Intervals and decisions: over the `images` of a model and the `seeds` of a training."""
