"""Measuring what a plug costs: side by side, in one process, against the plain model and against others.

The attention part needs torch alone and runs on a CPU or a GPU.
"""
