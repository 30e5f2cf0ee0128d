"""The measures: what each takes of an image, and how its numbers come of that. A file for each thing measured."""
