"""Checks of several machines before a training: do they meet, do they agree, how fast is an all-reduce."""
