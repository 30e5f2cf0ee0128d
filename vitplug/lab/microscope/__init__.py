"""One HTML report of what a model sees: its maps on images, measures by depth and head, against a baseline."""
