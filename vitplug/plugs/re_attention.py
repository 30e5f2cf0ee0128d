"""Re-attention: *DeepViT: Towards Deeper Vision Transformer* (Zhou et al., ICCV 2021)."""

from collections.abc import Mapping

from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.site import Site, without_hidden
from .plug import LayerPlan, Plug


class ReAttention(Plug):
    """Mixes the maps of the heads and normalises them over images and pairs::

        A <- BatchNorm(W A)          W: H x H, with a bias

    The statistics of a batch cover all images, windows and pairs; pairs that must not see each other are 0 again
    afterwards. All maps are formed: it is no fused form.
    """

    name = 're_attention'

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'map': MixedAndNormed(plan.num_heads)}


class MixedAndNormed(nn.Module):
    """``mix``: a 1 x 1 convolution over the heads; ``norm``: a batch norm."""

    def __init__(self, heads: int):
        super().__init__()
        self.mix, self.norm = nn.Conv2d(heads, heads, 1), nn.BatchNorm2d(heads)

    def forward(self, maps: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        flat = maps.flatten(0, 1).to(self.norm.weight.dtype)
        return without_hidden(self.norm(self.mix(flat)).unflatten(0, maps.shape[:2]), site), carry
