"""Definitions of the measures: functions on tensors, without command, file or config."""
