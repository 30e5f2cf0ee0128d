"""AttnScale and FeatScale: *Anti-Oversmoothing in Deep Vision Transformers via the Fourier Domain Analysis* (Wang et
al., ICLR 2022)."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.core import uniform_attention, uniform_maps
from ..attention.forms import fused
from ..attention.inputs import Attention, FastForm
from ..attention.site import Site
from .checks import check_flag
from .context_broadcast import token_mean
from .learned import LearnedVectors
from .plug import LayerPlan, Plug


class AttentionScale(Plug):
    """AttnScale: enlarges what attention maps have beside their mean, by head::

        A' = J + (1 + w_h) (A - J)          J uniform attention

    w starts with 0, which changes nothing. J is over the keys that a query may see: neither padding of a batch whose
    sizes are known nor pairs that shifted windows keep apart.

    Args:
        counts_masked: Whether J counts the keys that a query may not see, too: 1/N for all N keys of a window, as in
            the authors' Swin.

    Raises:
        ValueError: If ``counts_masked`` is neither True nor False.
    """

    name = 'attention_scale'
    short_name = 'attn-scale'
    identity_start = True
    watched = {'attention_scale': 'w'}

    def __init__(self, counts_masked: bool = False, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.counts_masked = check_flag('counts_masked', counts_masked)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'map': ScaledMaps(plan.num_heads, self.counts_masked)}


class ScaledMaps(LearnedVectors):
    """``attention_scale`` of shape ``(H,)``."""

    attention_scale: nn.Parameter

    def __init__(self, heads: int, counts_masked: bool):
        super().__init__(heads, attention_scale=0)
        self.counts_masked = counts_masked

    def forward(self, maps: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        scale_H11 = self.attention_scale.to(maps.dtype)[:, None, None]
        uniform = 1 / maps.shape[-1] if self.counts_masked else uniform_maps(site, maps).to(maps.dtype)
        return maps + scale_H11 * (maps - uniform), carry

    def fast_form(self, inputs: Attention, site: Site) -> FastForm:
        """Of the outputs in place of the maps."""
        return partial(self._of_outputs, site)

    def _of_outputs(self, site: Site, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        out = fused(inputs)
        scale_H11, v = self.attention_scale.to(out.dtype)[:, None, None], inputs.v
        seen = None if self.counts_masked else uniform_attention(inputs.by_window(v), site).flatten(0, 1)
        uniform = v.mean(-2, keepdim=True) if seen is None else seen
        return torch.addcmul(-scale_H11 * uniform, out, 1 + scale_H11), carry


class FeatureScale(Plug):
    """FeatScale: weighs the mean of the tokens of the attention branch and the rest apart, by channel::

        x' = x + l1 mean(x) + l2 (x - mean(x))

    Both start with 0, which changes nothing. Context Broadcasting at ``msa`` is l1 = 0 and l2 = -1/2. The mean is over
    the tokens of the whole image, without padding where image sizes are known.
    """

    name = 'feature_scale'
    short_name = 'feat-scale'
    identity_start = True
    watched = {'of_mean': 'l1', 'of_rest': 'l2'}

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'msa': ScaledFeatures(plan.width_at('msa'), of_mean=0, of_rest=0)}


class ScaledFeatures(LearnedVectors):
    """``of_mean`` and ``of_rest`` of shape ``(D,)``."""

    of_mean: nn.Parameter
    of_rest: nn.Parameter

    def forward(self, x_BND: Tensor, site: Site) -> Tensor:
        mean_B1D = token_mean(x_BND, site.valid)
        # As (1 + l2) x + (l1 - l2) mean: one pass over the tokens.
        shift_B1D = (self.of_mean - self.of_rest) * mean_B1D
        return torch.addcmul(shift_B1D, x_BND, 1 + self.of_rest).to(x_BND.dtype)
