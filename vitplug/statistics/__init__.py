"""Intervals and decisions: over the `images` of a model, the `seeds` of a training, the `grids` of several."""
