"""Trainings, tests and predictions: the commands, the checks before them, hooks, the stream of data, saving."""
