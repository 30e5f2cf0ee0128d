"""Blocks and stages of a model that vitplug does not own: their classes get a forward with sockets.

As torch's ``fully_shard`` does, a module keeps its parts and gets another class, a child of its own. So names, hooks
and ``isinstance`` stay as they are, and giving the class back undoes it.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitplug.attention import Carry, LayerRecord, Site, attend
from vitplug.attention.grids import ceil_div
from vitplug.hosting import feed_forward
from vitplug.plugs import BLOCK_SOCKETS, BlockShape
from vitplug.plugs.sockets import BRANCHES, STREAM_SOCKETS

from .maps import (
    AttentionMap,
    BlockMap,
    Branch,
    Extras,
    MlpMap,
    StageMap,
    chain,
    check_own,
    find,
    map_of,
    mask_of_pairs,
    required,
)
from .walk import Step


class Plugged:
    """Base of the classes that :func:`give_class` makes; their modules can be copied and pickled."""

    maps: tuple[Any, ...]

    def __reduce_ex__(self, protocol: int) -> tuple:
        kind, base = type(self).__bases__
        return _new, (kind, base, self.maps), self.__dict__


class PluggedBlock(Plugged):
    """A block with sockets around its own layers."""

    maps: tuple[BlockMap, AttentionMap | None, MlpMap]

    @property
    def sockets(self) -> tuple[str, ...]:
        """The sockets that the block offers."""
        return BLOCK_SOCKETS if self.maps[1] is not None else (*BRANCHES['MLP'], *STREAM_SOCKETS)

    @property
    def shape(self) -> BlockShape:
        """Heads and widths."""
        block, attention, mlp = self.maps
        hidden_dims = find(find(self, block.mlp), mlp.last).in_features
        if attention is None:
            return BlockShape(head_dims=0, map_heads=0, value_heads=0, out_heads=0, hidden_dims=hidden_dims)
        branch = find(self, block.attention)
        return BlockShape.stock(find(branch, attention.proj).in_features, find(branch, attention.heads), hidden_dims)

    @property
    def embed_dims(self) -> int:
        """Width of the tokens that leave the block."""
        return find(find(self, self.maps[0].mlp), self.maps[2].last).out_features

    @property
    def widths(self) -> Mapping[str, int]:
        """Width of the tokens by socket, where the block changes it."""
        widths = self.maps[0].widths
        return {} if widths is None else widths(self)

    @property
    def reuses_queries(self) -> bool:
        """Whether its queries are part of the output."""
        return self.maps[1] is not None and self.maps[1].change_out is not None

    @property
    def strides(self) -> tuple[int, int]:
        """Rows, and columns, from one query and from one key to the next."""
        strides = self.maps[0].strides
        return (1, 1) if strides is None else strides(self)

    def forward(
        self, x: Tensor, *args: Any, step: Step | None = None, hw: tuple[int, int] | None = None, **extras: Any
    ) -> Tensor:
        """Tokens ``(B, N, D)`` or ``(B, h, w, D)``, in and out.

        Raises:
            RuntimeError: If the block is called alone.
        """
        if step is None:
            raise RuntimeError(_alone(self))
        named = dict(zip(self.maps[0].arguments, args, strict=False))
        return step.walk.host.pass_block(step, self, x, hw, {**named, **extras})

    def run(
        self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None, extras: Extras
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        block, attention, mlp_map = self.maps
        if attention is None:
            x_BND = block.mixing(self, x_BND)
        else:
            normed = block.msa.before(self, x_BND)
            branch, carry = self._attention(normed, site, carry, record, extras)
            x_BND = self._add(block.msa, 'msa', x_BND, normed, branch, site, record)
        mlp, normed = find(self, block.mlp), block.ffn.before(self, x_BND)
        halves = partial(mlp_map.hidden, mlp), partial(mlp_map.out, mlp)
        branch = feed_forward(*halves, normed, self.plugs, site)
        return self._add(block.ffn, 'mlp', x_BND, normed, branch, site, record), carry

    def _add(self, around: Branch, name: str, x_BND, normed, branch, site: Site, record: LayerRecord | None) -> Tensor:
        """The tokens and a branch."""
        beside = x_BND if around.beside is None else around.beside(self, x_BND, normed, site)
        return around.sum(self, beside + self.plugs.residual(name, around.after(self, branch), site, record))

    def _attention(self, x_BND: Tensor, site: Site, carry: Carry, record, extras: Extras) -> tuple[Tensor, Carry]:
        names, module, plugs = self.maps[1], find(self, self.maps[0].attention), self.plugs
        q, k, v = (t.transpose(2, 3) for t in _project(names, module, site.layout.to_windows(x_BND)))
        q, k = chain(f'{names.q_norm}?')(module, q), chain(f'{names.k_norm}?')(module, k)
        if names.change_qkv is not None:
            q, k, v = names.change_qkv(module, (q, k, v), site, extras)
            q, k = q.to(v.dtype), k.to(v.dtype)  # turns and scales of float32 promote them under autocast
        out, carry = attend(
            q,
            k,
            v,
            scale=find(module, names.scale) if isinstance(names.scale, str) else names.scale,
            site=site.in_windows(x_BND.device),
            plugs=plugs,
            carry=carry,
            biases=() if names.biases is None else names.biases(self, q, site, extras),
            dropout_p=_rate(find(module, names.dropout)) if self.training and names.dropout else 0.0,
            record=record,
        )
        out = _without_blind(out, v, extras)
        out = out if names.change_out is None else names.change_out(module, out, q)
        heads = site.layout.from_windows(out.transpose(2, 3).flatten(3))
        of_queries = x_BND if site.entering is None else None
        heads = plugs.change_heads(heads, of_queries, site, carry, v.shape[-1], record)
        heads, gate = names.before_proj(module, heads), find(module, names.gate)
        heads = heads if gate is None else heads * gate(x_BND).sigmoid()
        tokens = names.after_proj(module, find(module, names.proj)(heads))
        return plugs.tokens('msa', tokens, site), carry


class PluggedStage(Plugged):
    """A stage: what the library does around its blocks, and the blocks."""

    maps: tuple[StageMap]

    def forward(self, x: Any, *args: Any, step: Step | None = None, **extras: Any) -> Any:
        """What the library's stage takes and gives.

        Raises:
            RuntimeError: If the stage is called alone.
        """
        if step is None:
            raise RuntimeError(_alone(self))
        return self.maps[0].forward(self, partial(self._run, step), x, *args, **extras)

    def _run(self, step: Step, x: Tensor, hw: tuple[int, int] | None = None) -> tuple[Tensor, tuple[int, int] | None]:
        """All blocks: tokens ``(B, N, D)`` with their rows and columns, or ``(B, h, w, D)``, in and out."""
        names, walk, first = self.maps[0], step.walk, step.walk.host.first_block(step.index)
        saves = getattr(self, 'grad_checkpointing', False) and torch.is_grad_enabled()
        for index, block in enumerate(find(self, names.blocks), first):
            enters = index == first and step.index > 0
            inner = Step(walk, block, index, partial(names.prefix, self) if enters else None)
            x = checkpoint(inner, x, hw=hw, use_reentrant=False) if saves else inner(x, hw=hw)
            hw = hw and tuple(ceil_div(side, block.strides[0]) for side in hw)
        return x, hw


def _alone(part: nn.Module) -> str:
    return (
        f'a {type(part).__name__} with plugs was called alone: plugs hand tensors from block to block, so iterate over '
        'the list of blocks, or call the model; vitplug.unplug gives the plain model back'
    )


def describe_block(block: nn.Module) -> tuple[BlockMap, AttentionMap | None, MlpMap]:
    """The maps of a block and of its two branches.

    Raises:
        ValueError: If one is missing, or the block lacks what they name.
    """
    block_map = map_of(block, BlockMap)
    if block_map is None:
        raise ValueError(f'plug_in: no map of names for blocks of class {type(block).__name__}; {_HINT}')
    _refuse(block, block_map)
    check_own(block, BlockMap, hooks_run=True)
    attention = None if block_map.attention is None else _map_of_part(block, block_map.attention, AttentionMap)
    mlp = _map_of_part(block, block_map.mlp, MlpMap)
    lacking = chain(*mlp.out.names, mlp.last).missing(find(block, block_map.mlp))
    if attention is not None:
        _refuse(find(block, block_map.attention), attention)
        lacking += chain(*required(attention)).missing(find(block, block_map.attention))
    for around in (block_map.msa, block_map.ffn):
        lacking += [name for part in (around.before, around.after, around.sum) for name in part.missing(block)]
    if lacking:
        raise ValueError(f'plug_in: {type(block).__name__} lacks {sorted(set(lacking))}, which its map names')
    return block_map, attention, mlp


def _map_of_part(block: nn.Module, name: str, kind: type) -> Any:
    part = find(block, name)
    part_map = None if part is None else map_of(part, kind)
    if part_map is not None and name:  # a block that holds the layers itself is checked as a block
        check_own(part, kind)
    if part_map is None:
        raise ValueError(
            f'plug_in: no map of names for {name or "the layers"} of {type(block).__name__}, a '
            f'{type(part).__name__}; {_HINT}'
        )
    return part_map


_HINT = 'vitplug.adapters.register takes one'


def _refuse(module: nn.Module, module_map: BlockMap | AttentionMap) -> None:
    lacks = None if module_map.lacks is None else module_map.lacks(module)
    if lacks:
        raise ValueError(f'plug_in: {type(module).__name__} takes no plugs: {lacks}')


@cache
def plugged_class(kind: type, base: type, maps: tuple) -> type:
    """The child of a module's class with the forward of ``kind``; it has the name of its parent."""
    return type(base.__name__, (kind, base), {'maps': maps, '__module__': base.__module__})


def give_class(module: nn.Module, kind: type, *maps: Any) -> None:
    """Gives a module the forward of ``kind``."""
    module.__class__ = plugged_class(kind, type(module), maps)


def take_class(module: nn.Module) -> None:
    """Undoes :func:`give_class`."""
    module.__class__ = type(module).__bases__[1]


def _new(kind: type, base: type, maps: tuple) -> nn.Module:
    made = plugged_class(kind, base, maps)
    return made.__new__(made)


def _project(names: AttentionMap, module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of tokens ``(..., D)``, each ``(..., heads, d)``."""
    if names.project is not None:
        parts = names.project(module, x).chunk(3, dim=-1)
    elif len(names.projections) == 1:
        parts = find(module, names.projections[0])(x).chunk(3, dim=-1)
    else:
        parts = [find(module, name)(x) for name in names.projections]
    return tuple(part.unflatten(-1, (find(module, names.heads), -1)) for part in parts)


def _without_blind(out: Tensor, v: Tensor, extras: Extras) -> Tensor:
    """The output of the heads ``(B, 1, H, N, d)``, where the mask of a query hides all keys as SDPA gives it.

    0 where all are hidden by False or -inf, and the mean of the values where by the lowest finite number.
    """
    mask = mask_of_pairs(extras)
    if mask is None or mask.ndim != 4:
        return out
    highest_B1N1 = mask.amax(-1, keepdim=True)
    hides = highest_B1N1 <= torch.finfo(mask.dtype).min if mask.is_floating_point() else ~highest_B1N1.bool()
    blind = hides.unsqueeze(2)
    if not mask.is_floating_point():
        return out.masked_fill(blind, 0)
    return torch.where(blind, (v.mean(-2, keepdim=True)).where(highest_B1N1.unsqueeze(2).isfinite(), 0), out)


def _rate(dropout: nn.Dropout | float) -> float:
    return dropout.p if isinstance(dropout, nn.Module) else dropout
