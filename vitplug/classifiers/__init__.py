"""Image classifiers that mmpretrain does not have."""

from importlib.util import find_spec

__all__ = []

# Without mmpretrain, the import of the backbones' registry must not fail.
if find_spec('mmpretrain'):
    from .distilled import DistilledClassifier
    from .diversity import DiverseClassifier
    from .token_labels import TokenLabelClassifier, TokenLabelHead

    __all__ += ['DistilledClassifier', 'DiverseClassifier', 'TokenLabelClassifier', 'TokenLabelHead']
