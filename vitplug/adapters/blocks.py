"""Blocks and stages of a model that vitplug does not own: their classes get a forward with sockets.

As torch's ``fully_shard`` does, a module keeps its parts and gets another class, a child of its own. So names, hooks
and ``isinstance`` stay as they are, and giving the class back undoes it.
"""

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitplug.attention import Carry, LayerRecord, Site, attend
from vitplug.hosting import feed_forward
from vitplug.plugs import BLOCK_SOCKETS, BlockShape

from .maps import AttentionMap, BlockMap, Branch, Extras, MlpMap, ModelMap, chain, find, map_of, required
from .walk import Step


class Plugged:
    """Base of the classes that :func:`give_class` makes; their modules can be copied and pickled."""

    maps: tuple[Any, ...]

    def __reduce_ex__(self, protocol: int) -> tuple:
        kind, base = type(self).__bases__
        return _new, (kind, base, self.maps), self.__dict__


class PluggedBlock(Plugged):
    """A block with sockets around its own layers."""

    maps: tuple[BlockMap, AttentionMap, MlpMap]
    sockets = BLOCK_SOCKETS

    @property
    def shape(self) -> BlockShape:
        """Heads and widths."""
        block, attention, mlp = self.maps
        found = find(self, block.attention)
        heads, last = find(found, attention.heads), find(find(self, block.mlp), mlp.last)
        return BlockShape.stock(find(found, attention.proj).in_features, heads, last.in_features)

    @property
    def embed_dims(self) -> int:
        """Width of a token."""
        return find(find(self, self.maps[0].attention), self.maps[1].proj).out_features

    def forward(self, x: Tensor, *args: Any, step: Step | None = None, **extras: Any) -> Tensor:
        """Tokens ``(B, N, D)`` or ``(B, h, w, D)``, in and out.

        Raises:
            RuntimeError: If the block is called alone.
        """
        if step is None:
            raise RuntimeError(
                f'a {type(self).__name__} with plugs was called alone: plugs hand tensors from block to block, so '
                'iterate over the list of blocks, or call the model; vitplug.unplug gives the plain model back'
            )
        named = dict(zip(self.maps[0].arguments, args, strict=False))
        return step.walk.host.pass_block(step, self, x, {**named, **extras})

    def run(
        self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None, extras: Extras
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        block, _, mlp_map = self.maps
        branch, carry = self._attention(block.msa.before(self, x_BND), site, carry, record, extras)
        x_BND = self._add(block.msa, 'msa', x_BND, branch, site, record)
        mlp = find(self, block.mlp)
        halves = partial(mlp_map.hidden, mlp), partial(mlp_map.out, mlp)
        branch = feed_forward(*halves, block.ffn.before(self, x_BND), self, self.plugs, site)
        return self._add(block.ffn, 'mlp', x_BND, branch, site, record), carry

    def _add(self, around: Branch, name: str, x_BND, branch, site: Site, record: LayerRecord | None) -> Tensor:
        """The tokens and a branch."""
        return around.sum(self, x_BND + self.plugs.residual(name, around.after(self, branch), site, record))

    def _attention(self, x_BND: Tensor, site: Site, carry: Carry, record, extras: Extras) -> tuple[Tensor, Carry]:
        names, module, plugs = self.maps[1], find(self, self.maps[0].attention), self.plugs
        q, k, v = (t.transpose(2, 3) for t in _project(names, module, site.layout.to_windows(x_BND)))
        q, k = chain(f'{names.q_norm}?')(module, q), chain(f'{names.k_norm}?')(module, k)
        if names.change_qk is not None:
            q, k = names.change_qk(module, q, k, site.layout.num_prefix, extras)
        out, carry = attend(
            q,
            k,
            v,
            scale=find(module, names.scale) if isinstance(names.scale, str) else names.scale,
            site=site.in_windows(x_BND.device),
            plugs=plugs,
            carry=carry,
            biases=() if names.biases is None else names.biases(self, site, extras),
            dropout_p=_rate(find(module, names.dropout)) if self.training else 0.0,
            record=record,
        )
        heads = site.layout.from_windows(out.transpose(2, 3).flatten(3))
        heads = plugs.change_heads(heads, x_BND, site, carry, v.shape[-1], record)
        heads, gate = names.before_proj(module, heads), find(module, names.gate)
        heads = heads if gate is None else heads * gate(x_BND).sigmoid()
        tokens = names.after_proj(module, find(module, names.proj)(heads))
        return plugs.tokens('msa', tokens, site), carry


class PluggedStage(Plugged):
    """A stage: what comes before its blocks, and the blocks."""

    maps: tuple[ModelMap]

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """Tokens ``(B, h, w, D)``, in and out."""
        before, blocks = self.maps[0].stage
        x, walk = before(self, x), step.walk
        first = walk.host.first_block(step.index)
        for index, block in enumerate(find(self, blocks), first):
            inner = Step(walk, block, index)
            saves = getattr(self, 'grad_checkpointing', False) and torch.is_grad_enabled()
            x = checkpoint(inner, x, use_reentrant=False) if saves else inner(x)
        return x


def describe_block(block: nn.Module) -> tuple[BlockMap, AttentionMap, MlpMap]:
    """The maps of a block and of its two branches.

    Raises:
        ValueError: If one is missing, or the block lacks what they name.
    """
    block_map = map_of(block, BlockMap)
    if block_map is None:
        raise ValueError(f'plug_in: no map of names for blocks of class {type(block).__name__}; {_HINT}')
    _refuse(block, block_map)
    maps = [block_map]
    for name, kind in ((block_map.attention, AttentionMap), (block_map.mlp, MlpMap)):
        part = find(block, name)
        found = None if part is None else map_of(part, kind)
        if found is None:
            raise ValueError(
                f'plug_in: no map of names for {name or "the layers"} of {type(block).__name__}, a '
                f'{type(part).__name__}; {_HINT}'
            )
        maps.append(found)
    attention, mlp = find(block, block_map.attention), find(block, block_map.mlp)
    _refuse(attention, maps[1])
    lacking = chain(*required(maps[1])).missing(attention) + chain(*maps[2].out.names, maps[2].last).missing(mlp)
    for around in (block_map.msa, block_map.ffn):
        lacking += [name for part in (around.before, around.after, around.sum) for name in part.missing(block)]
    if lacking:
        raise ValueError(f'plug_in: {type(block).__name__} lacks {sorted(set(lacking))}, which its map names')
    return tuple(maps)


_HINT = 'vitplug.adapters.register takes one'


def _refuse(module: nn.Module, found: BlockMap | AttentionMap) -> None:
    lacks = None if found.lacks is None else found.lacks(module)
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


def _rate(dropout: nn.Dropout | float) -> float:
    return dropout.p if isinstance(dropout, nn.Module) else dropout
