"""Image classifiers that mmpretrain does not have."""

from importlib.util import find_spec

__all__ = []

# Who has mmdet or mmseg alone must still find the backbones in the registry.
if find_spec('mmpretrain'):
    from .distilled import DistilledClassifier
    from .diversity import DiverseClassifier
    from .token_labels import TokenLabelClassifier, TokenLabelHead

    __all__ += ['DistilledClassifier', 'DiverseClassifier', 'TokenLabelClassifier', 'TokenLabelHead']
