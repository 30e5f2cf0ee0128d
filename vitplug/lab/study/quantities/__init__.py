"""Definitions of the measures: pure functions on tensors, each with its source."""
