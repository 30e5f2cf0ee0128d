"""Definitions of the measures: functions on tensors, without command, file or config."""
"""Definitions of the measures: pure functions on tensors, each with its source."""
