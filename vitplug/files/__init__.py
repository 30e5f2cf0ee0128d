"""Files and folders: written whole, checked before they are read, and read without running code."""
