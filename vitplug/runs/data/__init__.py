"""The stream of data: which samples come in which order, and what happens to broken ones."""
