"""Errors of commands: one line, an exit status, and the same end in all processes."""
