"""Small changes of heads: QK-norm, head scale and exclusive self-attention."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.carry import Carry, carrying
from ..attention.site import Site
from .plug import LayerPlan, Plug
from .value_residual import as_tokens


class QKNorm(Plug):
    """Normalises q and k of each head by a layer norm, as *Scaling Vision Transformers to 22 Billion Parameters*
    (Dehghani et al., ICML 2023) does against logits that grow without bound.

    It acts before other plugs of q, k and v. It has no start that leaves the host as it is.

    Args:
        layers: Blocks that get it, see :class:`Plug`.
    """

    name = 'qk_norm'
    rank = -1

    def __init__(self, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'qkv': NormedPair(plan.shape.head_dims)}


class NormedPair(nn.Module):
    """``q`` and ``k``: a layer norm over the channels of a head each."""

    def __init__(self, dims: int):
        super().__init__()
        self.q, self.k = nn.LayerNorm(dims), nn.LayerNorm(dims)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, carry: Carry
    ) -> tuple[Tensor, Tensor, Tensor, Carry]:
        return self.q(q).to(q.dtype), self.k(k).to(k.dtype), v, carry


class HeadScale(Plug):
    """Scales the output of each head by a learned factor, as *NormFormer* (Shleifer et al., 2021) does::

        Y_h <- g_h Y_h          g starts with 1, which changes nothing

    Args:
        layers: Blocks that get it, see :class:`Plug`.
    """

    name = 'head_scale'
    watched = {'head_scale': 'g'}

    def __init__(self, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'heads': ScaledHeads(plan.shape.out_heads)}


class ScaledHeads(nn.Module):
    """``head_scale`` of shape ``(H,)``."""

    needs_tokens = False

    def __init__(self, heads: int):
        super().__init__()
        self.head_scale = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starts as the identity."""
        nn.init.ones_(self.head_scale)

    def forward(self, heads_BNHd: Tensor, tokens_BND: Tensor | None, site: Site, carry: Carry) -> Tensor:
        return heads_BNHd * self.head_scale.to(heads_BNHd.dtype)[:, None]


class ExclusiveSelfAttention(Plug):
    """Takes the part along a token's own value out of what it gets from attention (XSA), by head::

        y_i <- y_i - (y_i . v_i) / (v_i . v_i) v_i

    Attention stays fused. It has no start that leaves the host as it is.

    Args:
        layers: Blocks that get it, see :class:`Plug`.

    Raises:
        ValueError: If a block's keys are not its queries, or its heads have other values.
    """

    name = 'exclusive_self_attention'
    #: After plugs that change the values.
    rank = 1
    short_name = 'xsa'

    def __init__(self, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        if plan.site.keys is not None or plan.shape.out_heads != plan.shape.value_heads:
            raise ValueError(
                f'ExclusiveSelfAttention: block {plan.index} has no value of its own for each output: its keys are '
                'pooled, or a plug has changed its heads; choose other layers'
            )
        return {'qkv': OwnValues(self.name), 'heads': WithoutOwn(self.name)}


class OwnValues(nn.Module):
    """Puts the values into the carry as tokens."""

    def __init__(self, key: str):
        super().__init__()
        self.key = key

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, carry: Carry
    ) -> tuple[Tensor, Tensor, Tensor, Carry]:
        return q, k, v, carrying(carry, self.key, as_tokens(v, site))


class WithoutOwn(nn.Module):
    """Takes the part along the values in the carry out."""

    needs_tokens = False

    def __init__(self, key: str):
        super().__init__()
        self.key = key

    def forward(self, heads_BNHd: Tensor, tokens_BND: Tensor | None, site: Site, carry: Carry) -> Tensor:
        own_BNHd = carry[self.key].view_as(heads_BNHd)
        along = (heads_BNHd * own_BNHd).sum(-1, keepdim=True)
        length = own_BNHd.square().sum(-1, keepdim=True).clamp(min=torch.finfo(own_BNHd.dtype).tiny)
        return heads_BNHd - along / length * own_BNHd
