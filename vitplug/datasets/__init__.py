"""Data that vitplug makes: scenes of digits, so that its examples run without a download, and image lists."""
