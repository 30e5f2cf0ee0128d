"""Softpick: *Softpick: No Attention Sink, No Massive Activations with Rectified Softmax* (arXiv 2504.20966)."""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.precision import at_least_float32
from ..attention.site import Site
from .plug import LayerPlan, Plug

# Against rows of nothing but zeros, after the shift of the exponents, as the authors have it.
EPS = 1e-8


class SoftpickAttention(Plug):
    """Weighs keys by the rectified softmax, in place of the softmax::

        A_ij = relu(exp(z_ij) - 1) / (sum_k |exp(z_ik) - 1| + eps)

    A query may take less than 1 in all, or nothing; so it needs no sink. All maps are formed: it is no fused form.
    """

    name = 'softpick_attention'
    short_name = 'softpick'

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'normalise': Softpick()}


class Softpick(nn.Module):
    """The rectified softmax of logits; hidden keys have no part in the sum."""

    def forward(self, logits: Tensor, site: Site, carry: Carry) -> Tensor:
        z = logits.to(at_least_float32(logits.dtype))
        shift = z.detach().amax(-1, keepdim=True).clamp(min=0)  # the exponents stay finite
        above_one, mask = (z - shift).exp() - (-shift).exp(), site.softmax_mask()
        if mask is not None:
            mask = F.pad(mask, (0, logits.shape[-1] - mask.shape[-1]))  # keys that belong to no token
            above_one = above_one.masked_fill(mask != 0, 0)
        return above_one.relu() / (above_one.abs().sum(-1, keepdim=True) + EPS)
