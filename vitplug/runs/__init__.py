"""Everything behind `tools/`: command lines, checks before a run, CPU process groups, the demo."""
