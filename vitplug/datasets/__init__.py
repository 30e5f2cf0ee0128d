"""Data sets that vitplug makes itself, so that its examples run without a download."""
