"""Broad Attention (BViT).

*BViT: Broad Attention based Vision Transformer*, its equations of broad connection, parameter-free
attention and pooling. One more attention, after the last block, over q, k and v of all blocks::

    Q, K, V = concatenation of q_l, k_l, v_l over the blocks l, head by head
    O       = softmax(c Q K^T) V                    Q K^T = sum_l q_l k_l^T
    x       = x + gamma * pool(O)                   channels averaged down to the width of x

There is nothing to learn: no projection, no bias, no dropout. On columnar hosts all tokens take part, the
class token too. On hierarchical hosts the last block of every stage takes part, max-pooled over space to the grids
of the last one, q to that of its queries, k and v to that of its keys. Prefix tokens take no part there. The paper
has no code for it, and this rule is ours.

If the backbone knows the sizes of padded images (:mod:`vitplug.hosting.padding`), padding tokens are no keys and take
no part in the max-pooling.
"""

from collections.abc import Mapping, Sequence
from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitplug.compat import is_exporting

from ..attention.carry import Carry, carrying
from ..attention.core import attend_bare
from ..attention.grids import pooling_matrix
from ..attention.intermediates import LayerRecord
from ..attention.layouts import Layout
from ..attention.site import Site
from .checks import check_choice, check_flag, check_number
from .plug import LayerPlan, Plug


class BroadAttention(Plug):
    """Adds the attention over all blocks to the last block's output, before the final norm.

    Args:
        gamma: Factor of the broad feature, a constant. 0 reproduces the host; the official code has 0.4.
        use_qk: Whether q and k of all blocks are taken, or of the last block only (``BViT_w.V``).
        use_v: Whether v of all blocks is taken, or of the last block only (``BViT_w/o.V``).
        scale: Factor ``c`` of the dot products: ``'embed'`` is ``D ** -0.5`` (the paper's), ``'head'`` is
            ``d ** -0.5`` (the official code's), both of the last block, and ``'concat'`` is that of the
            concatenated q of one head.
        pool_layout: Order of the concatenated channels that the pooling averages in neighbourhoods.
            ``'head_layer_dim'`` (the official code's) averages neighbouring channels of mostly one block;
            ``'head_dim_layer'`` averages over the blocks, each brought to one width where they differ.
        layers: Blocks that take part, see :class:`Plug`; ``'all'`` and ``'upper'`` are those that offer q, k and v
            (LVT's first stage does not). On hierarchical hosts it is the last of these in every stage, and there
            must be one in the last stage.

    Raises:
        ValueError: If an argument is none of these.
    """

    name = 'broad'
    intermediates = {'broad_probs': 'the probabilities over all blocks, recorded at the last one, (B, 1, H, N, N)'}

    def __init__(
        self,
        gamma: float = 1.0,
        use_qk: bool = True,
        use_v: bool = True,
        scale: str = 'embed',
        pool_layout: str = 'head_layer_dim',
        layers: str | Sequence[int] = 'all',
    ):
        super().__init__(layers)
        self.gamma = check_number('gamma', gamma)
        self.identity_start = not gamma
        self.use_qk = check_flag('use_qk', use_qk)
        self.use_v = check_flag('use_v', use_v)
        self.scale = check_choice('scale', scale, ('embed', 'head', 'concat'))
        self.pool_layout = check_choice('pool_layout', pool_layout, ('head_layer_dim', 'head_dim_layer'))

    def build_layers(self, plans: Sequence[LayerPlan]) -> Sequence[Mapping[str, nn.Module]]:
        taken = {plan.index: names for plan, names in self._taken(plans)}
        return [{'tap': Tap(self.name, taken[p.index], p.num_stages > 1)} if p.index in taken else {} for p in plans]

    def build_network(self, plans: Sequence[LayerPlan]) -> Mapping[str, nn.Module]:
        if not plans:
            return {}
        taken = self._taken(plans)
        last = plans[-1]
        # The last block's heads, merged until every block's channels and the output's can be dealt out to them.
        num_heads = gcd(last.num_heads, last.embed_dims, *(_width(plan) for plan, _ in taken))
        concat_dims = sum(_width(plan) for plan, names in taken if 'q' in names) // num_heads
        dims = {'embed': last.embed_dims, 'head': last.shape.head_dims, 'concat': concat_dims}[self.scale]
        return {'finish': BroadFeature(self.name, self.gamma, dims**-0.5, num_heads, self.pool_layout)}

    def _taken(self, plans: Sequence[LayerPlan]) -> list[tuple[LayerPlan, tuple[str, ...]]]:
        """The blocks that take part and which of q, k and v they give."""
        if isinstance(self.layers, str):
            # The plug set refuses a host none of whose blocks offers them.
            plans = [plan for plan in plans if 'tap' in plan.sockets] or plans
        if plans and plans[-1].stage < plans[-1].num_stages - 1:
            raise ValueError(
                f'BroadAttention: layers={self.layers!r} has no block of the last stage, whose heads and width the '
                'broad attention takes; add its last block'
            )
        if plans and plans[-1].num_stages > 1:
            plans = list({plan.stage: plan for plan in plans}.values())
        taken = [(plan, self._names(is_last=plan is plans[-1])) for plan in plans]
        taken = [(plan, names) for plan, names in taken if names]
        for plan, _ in taken:
            _check_heads(plan)
        return taken

    def _names(self, is_last: bool) -> tuple[str, ...]:
        """Which of q, k and v are wanted of a block."""
        wanted = {'q': self.use_qk, 'k': self.use_qk, 'v': self.use_v}
        return tuple(name for name, of_all in wanted.items() if of_all or is_last)


def _width(plan: LayerPlan) -> int:
    """Channels of q, of k and of v."""
    return plan.shape.map_heads * plan.shape.head_dims


def _check_heads(plan: LayerPlan) -> None:
    shape = plan.shape
    if not shape.map_heads or shape.map_heads != shape.value_heads:
        raise ValueError(
            f'BroadAttention: block {plan.index} has {shape.map_heads} heads with q and k and {shape.value_heads} '
            'with v, and broad attention needs as many; leave the block out by layers=[...], or remove the plug '
            'that changes its heads'
        )


class Tap(nn.Module):
    """Hands q, k and v of one block on, as tokens ``(B, N, C)`` or, where space matters, maps ``(B, h, w, C)``.

    Args:
        key: Key in the carry.
        names: Which of ``'q'``, ``'k'`` and ``'v'`` are wanted.
        as_map: Whether tokens of global attention become a map, too, without their prefix.
    """

    def __init__(self, key: str, names: Sequence[str], as_map: bool):
        super().__init__()
        self.key, self.names, self.as_map = key, tuple(names), as_map

    def forward(self, q_BWHNd: Tensor, k_BWHNd: Tensor, v_BWHNd: Tensor, site: Site, carry: Carry) -> Carry:
        """The carry with the wanted ones, each with its valid tokens and its grid, after those of earlier blocks."""
        tensors = {'q': q_BWHNd, 'k': k_BWHNd, 'v': v_BWHNd}
        kept, in_graph = dict(carry.get(self.key, {})), is_exporting()
        for name in self.names:
            layout, valid_BWN = (site.layout, site.valid_queries) if name == 'q' else (site.key_layout, site.valid_keys)
            valid = None if valid_BWN is None else self._unwindow(valid_BWN.unsqueeze(-1), layout)
            t_BWHNd = tensors[name]
            # A graph of any batch has no view of all heads, for whether there is one depends on the batch.
            heads = torch.cat(t_BWHNd.unbind(2), dim=-1) if in_graph else t_BWHNd.transpose(2, 3).flatten(3)
            merged = self._unwindow(heads, layout)
            kept[name] = (*kept.get(name, ()), (merged, valid, layout.hw))
        return carrying(carry, self.key, kept)

    def _unwindow(self, t_BWNC: Tensor, layout: Layout) -> Tensor:
        t_BNC = layout.from_windows(t_BWNC)
        as_map = layout.is_windowed or self.as_map
        return t_BNC[:, layout.num_prefix :].unflatten(1, layout.hw) if as_map else t_BNC


class BroadFeature(nn.Module):
    """``x + gamma * pool(softmax(c Q K^T) V)`` of the tapped q, k and v.

    Pooling averages channels and attention averages tokens, so V is pooled first; the output's heads
    are the averages of whole heads, for both have their width in the same number of equal parts, ``num_heads``.
    """

    def __init__(self, key: str, gamma: float, scale: float, num_heads: int, pool_layout: str):
        super().__init__()
        self.key, self.gamma, self.scale = key, gamma, scale
        self.num_heads, self.pool_layout = num_heads, pool_layout

    def forward(self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None) -> Tensor:
        """Tokens ``(B, N, D)`` with the broad feature; prefix tokens that no map has stay as they are."""
        tapped = carry[self.key]
        # All blocks are compared on the grids of the last one.
        taps = {name: [self._split_heads(t, valid, ts[-1][2]) for t, valid, _ in ts] for name, ts in tapped.items()}
        valid = tapped['k'][-1][1]
        if valid is not None:
            valid = valid.flatten(1)
            # All keys of an image without any valid one: a softmax over none is no number.
            valid = valid | ~valid.any(dim=-1, keepdim=True)
        q, k = (torch.cat(taps[name], dim=-1) for name in ('q', 'k'))
        out_BHNd, probs = attend_bare(
            q,
            k,
            self._pool(taps['v'], x_BND.shape[-1] // self.num_heads),
            scale=self.scale,
            valid_BN=valid,
            wants_probs=record is not None and 'broad_probs' in record.names,
        )
        if record is not None:
            record.add(broad_probs=probs)
        feature_BND = out_BHNd.transpose(1, 2).flatten(2).to(x_BND.dtype)
        prefix = x_BND.shape[1] - feature_BND.shape[1]
        return x_BND + self.gamma * (F.pad(feature_BND, (0, 0, prefix, 0)) if prefix else feature_BND)

    def _split_heads(self, t: Tensor, valid: Tensor | None, hw: tuple[int, int]) -> Tensor:
        """Tokens or a map of one block to ``(B, H, N, C / H)``, maps on the grid ``hw``."""
        if t.ndim == 4:
            t = _max_pool(t, valid, hw).flatten(1, 2)
        return t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _pool(self, taps: list[Tensor], dims: int) -> Tensor:
        """Values of all blocks to ``dims`` channels a head."""
        if self.pool_layout == 'head_layer_dim':
            return _average_channels(torch.cat(taps, dim=-1), dims)
        return torch.stack([_average_channels(v, dims) for v in taps]).mean(0)


def _max_pool(t_BhwC: Tensor, valid_Bhw1: Tensor | None, hw: tuple[int, int]) -> Tensor:
    """``(B, h, w, C)`` to another ``(h, w)``: the largest valid entry that each place overlaps, channel by channel.

    A finer grid than that of the map gets entries more than once. Places without valid entries get 0; they are
    padding and no keys.
    """
    if t_BhwC.shape[1:3] == hw:
        return t_BhwC
    if valid_Bhw1 is not None:
        t_BhwC = t_BhwC.masked_fill(~valid_Bhw1, -torch.inf)
    image, sizes = t_BhwC.permute(0, 3, 1, 2), list(zip(t_BhwC.shape[1:3], hw, strict=True))
    # Sizes that a compiled graph leaves open are not compared: it would fix them.
    is_open = {type(side) for pair in sizes for side in pair} != {int}
    if is_open or any(side % bins for side, bins in sizes):
        pooled = image
        for dim, (side, bins) in zip((2, 3), sizes, strict=True):
            pooled = _pool_along(pooled, dim, side, bins)
    else:
        pooled = F.max_pool2d(image, [side // bins for side, bins in sizes])
    pooled = pooled.permute(0, 2, 3, 1)
    return pooled if valid_Bhw1 is None else pooled.masked_fill(pooled == -torch.inf, 0.0)


def _pool_along(image: Tensor, dim: int, side: int, bins: int) -> Tensor:
    """``adaptive_max_pool`` of one axis by indices: ONNX has none, and torch compiles it for fixed sizes only.

    Bin ``i`` has the entries from ``floor(i * side / bins)`` to before ``ceil((i + 1) * side / bins)``. All bins get
    as many entries as the largest one can have; the last entry is repeated where a bin has fewer.
    """
    bin_, entry = (torch.arange(n, device=image.device) for n in (bins, (side + bins - 1) // bins + 1))
    last = ((bin_ + 1) * side + bins - 1) // bins - 1
    entries = torch.minimum((bin_ * side // bins)[:, None] + entry, last[:, None])
    return image.index_select(dim, entries.flatten()).unflatten(dim, entries.shape).amax(dim + 1)


def _average_channels(t_BHNC: Tensor, dims: int) -> Tensor:
    """``adaptive_avg_pool1d`` of the last axis to ``dims`` channels."""
    channels = t_BHNC.shape[-1]
    if channels == dims:
        return t_BHNC
    if channels % dims == 0:
        return t_BHNC.unflatten(-1, (dims, -1)).mean(-1)
    if not torch.are_deterministic_algorithms_enabled():  # torch's pooling has no such backward on a GPU
        return F.adaptive_avg_pool1d(t_BHNC.flatten(1, 2), dims).unflatten(1, t_BHNC.shape[1:3])
    return t_BHNC @ pooling_matrix(channels, dims, t_BHNC).T
