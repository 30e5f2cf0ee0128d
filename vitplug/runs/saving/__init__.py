"""Checkpoints of a training: where they go, and whether one fits."""
