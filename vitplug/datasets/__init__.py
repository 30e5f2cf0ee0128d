"""Generated digit scenes (examples run without a download), token labels, and image lists."""
