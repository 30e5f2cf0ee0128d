"""ReViT's code: the host's names and one alpha. ReSwin has no alpha, so its weights are those of a Swin."""

from .format import Released
from .mvit import NETWORK as MVIT_NETWORK
from .mvit import POOL, ReleasedMViT
from .vit import NAMES, NETWORK, QKV

_ALPHA = ('alpha', 'backbone.plugs.residual_attention.start.alpha.residual_alpha')

REVIT = Released('ReViT', NETWORK, (QKV, 'alpha'), [_ALPHA, ('head.projection', 'head.fc'), *NAMES])
REMVIT = ReleasedMViT('ReMViT', MVIT_NETWORK, (POOL, 'alpha'), [_ALPHA])
