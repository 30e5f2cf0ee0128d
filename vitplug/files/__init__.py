"""Files and folders: written whole, checked before they are read, found by name in installed packages."""
