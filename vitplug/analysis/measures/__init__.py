"""Measures of what a model does: pure functions on tensors, each with its source."""
