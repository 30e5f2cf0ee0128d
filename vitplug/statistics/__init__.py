"""Intervals and decisions: `images` over the images of one model, `seeds` over trainings. NumPy and SciPy alone."""
