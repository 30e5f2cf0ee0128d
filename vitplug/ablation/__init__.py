"""Ablations: a grid of configs with seeds, run by existing engines, with statistics and a report."""
