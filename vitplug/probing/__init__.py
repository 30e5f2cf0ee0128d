"""Probes of frozen backbones: what simple classifiers read from their features."""
