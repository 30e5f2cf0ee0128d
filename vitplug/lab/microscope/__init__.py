"""One HTML page of what a model attends to in a few images, by block and head, beside a baseline."""
