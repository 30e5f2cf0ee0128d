"""Labels of label maps."""

IGNORED_LABEL = 255
CLASS_INDICES = f'expected one channel of class indices, where {IGNORED_LABEL} is ignored, not colours'
