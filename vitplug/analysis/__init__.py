"""Costs, differences of configs, tables and pictures of models."""
