"""The half of Context Broadcasting that is no broadcasting, for the study of this folder."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from vitplug.plugs import LayerPlan, Plug
from vitplug.registry import PLUGS


@PLUGS.register_module()
class Halving(Plug):
    """``y = x / 2`` at the end of the MLP: Context Broadcasting, ``(x + mean) / 2``, without the mean.

    Args:
        layers: Blocks that get it, see :class:`~vitplug.plugs.Plug`.
    """

    name = 'halving'

    def __init__(self, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'mlp_end': Half()}


class Half(nn.Module):
    def forward(self, x_BND: Tensor, site) -> Tensor:
        return x_BND / 2
