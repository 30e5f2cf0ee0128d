"""Locality self-attention: *Vision Transformer for Small-Size Datasets* (Lee et al., 2021)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.bias import DenseBias
from ..attention.cache import cached
from ..attention.carry import Carry, QKVCarry
from ..attention.layouts import HIDDEN
from ..attention.site import Site
from .checks import check_flag
from .learned import LearnedVectors
from .plug import LayerPlan, Plug


class LocalitySelfAttention(Plug):
    """Learns a temperature for each head and hides every token from itself::

        z_ij = t_h q_i . k_j / sqrt(d)          z_ii = -infinity

    The temperature is relative to the host's: 1 changes nothing. The class token cannot see itself either. To other
    plugs the token is a key like others, of a logit far below: what mixes maps fills the diagonal again, AttnScale and
    softpick's sum count it.

    Args:
        diagonal: Whether a token still sees itself; then only the temperatures are new.

    Raises:
        ValueError: If ``diagonal`` is neither True nor False, or the keys of a block are not its queries.
    """

    name = 'locality_self_attention'
    short_name = 'lsa'
    watched = {'temperature': 't'}

    def __init__(self, diagonal: bool = False, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.diagonal = self.identity_start = check_flag('diagonal', diagonal)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        if not self.diagonal and plan.site.keys is not None:
            raise ValueError(
                f'LocalitySelfAttention: the keys of block {plan.index} are not its queries, so none is the token '
                'itself; choose other layers, or diagonal=True'
            )
        temperature = {'qkv': Temperature(plan.num_heads, temperature=1)}
        return temperature if self.diagonal else {**temperature, 'bias': HiddenSelf()}


class Temperature(LearnedVectors):
    """``temperature`` of shape ``(H,)``."""

    temperature: nn.Parameter

    def forward(self, q_BWHNd: Tensor, k: Tensor, v: Tensor, site: Site, carry: Carry) -> QKVCarry:
        return q_BWHNd * self.temperature.to(q_BWHNd.dtype)[:, None, None], k, v, carry


class HiddenSelf(nn.Module):
    """Far below all other logits for a token and itself, also for one that is alone in its region of a window."""

    #: For their type and device.
    needs_queries = True

    def forward(self, site: Site, q_BWHNd: Tensor) -> DenseBias:
        return DenseBias(_diagonal(site.layout.grid.num_tokens, q_BWHNd.dtype, q_BWHNd.device))


# That of 4096 tokens takes 64 MB: all blocks have one and the same.
@cached(maxsize=4)
def _diagonal(tokens: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """``(1, 1, 1, N, N)``, half of HIDDEN for a token and itself: less than every other token has, but padding."""
    return (HIDDEN / 2 * torch.eye(tokens, dtype=dtype, device=device))[None, None, None]
