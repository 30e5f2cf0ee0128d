"""Configs of mmengine: found, read and checked as a whole."""
