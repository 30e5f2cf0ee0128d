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

from .arguments import Extras, without_blind
from .maps import AttentionMap, BlockMap, Branch, MlpMap, StageMap, find, map_of_part, pass_parts, warn_of_uncalled
from .walk import Step


class Plugged:
    """Base of the classes that :func:`plugged_class` makes; their modules can be copied and pickled."""

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
        return self.maps[0].widths(self) or {}

    @property
    def reuses_queries(self) -> bool:
        """Whether its queries are part of the output."""
        return self.maps[1] is not None and self.maps[1].change_out is not None

    @property
    def has_cosines(self) -> bool:
        """Whether its scores are cosines times a factor that q has already."""
        return self.maps[1] is not None and self.maps[1].scale == 1.0

    @property
    def strides(self) -> tuple[int, int]:
        """Rows, and columns, from one query and from one key to the next."""
        return self.maps[0].strides(self) or (1, 1)

    def forward(
        self, x: Tensor, *args: Any, step: Step | None = None, hw: tuple[int, int] | None = None, **extras: Any
    ) -> Tensor:
        """Tokens ``(B, N, D)`` or ``(B, h, w, D)``, in and out.

        Raises:
            RuntimeError: If the block is called alone.
            ValueError: If it gets arguments that its map does not name.
        """
        if step is None:
            raise RuntimeError(_alone(self))
        if len(args) > len(self.maps[0].arguments):
            raise ValueError(
                f'{type(self).__name__} gets {len(args)} arguments behind the tokens, and its map names '
                f'{list(self.maps[0].arguments)}: name all in BlockMap(arguments=...)'
            )
        named = dict(zip(self.maps[0].arguments, args, strict=False))
        return step.walk.host.pass_block(step, self, x, hw, {**named, **extras})

    def run(
        self, extras: Extras, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        block, attention, mlp_map = self.maps
        if attention is None:
            x_BND = block.mixing(self, x_BND)
        else:
            normed = pass_parts(self, block.msa.before, x_BND)
            branch, carry = self._attention(normed, site, carry, record, extras)
            x_BND = self._add(block.msa, 'msa', x_BND, normed, branch, site, record)
        mlp, normed = find(self, block.mlp), pass_parts(self, block.ffn.before, x_BND)
        warn_of_uncalled(self, block.mlp, mlp)
        halves = (partial(pass_parts, mlp, parts) for parts in (mlp_map.hidden, mlp_map.out))
        branch = feed_forward(*halves, normed, self.plugs, site)
        return self._add(block.ffn, 'mlp', x_BND, normed, branch, site, record), carry

    def _add(self, around: Branch, name: str, x_BND, normed, branch, site: Site, record: LayerRecord | None) -> Tensor:
        """The tokens and a branch."""
        beside = x_BND if around.beside is None else around.beside(self, x_BND, normed, site)
        added = self.plugs.bind().residual(name, pass_parts(self, around.after, branch), site, record)
        return pass_parts(self, around.sum, beside + added)

    def _attention(self, x_BND: Tensor, site: Site, carry: Carry, record, extras: Extras) -> tuple[Tensor, Carry]:
        names, module, plugs = self.maps[1], find(self, self.maps[0].attention), self.plugs.bind()
        warn_of_uncalled(self, self.maps[0].attention, module)
        q, k, v = (t.transpose(2, 3) for t in _project(names, module, site.layout.to_windows(x_BND)))
        q, k = pass_parts(module, names.q_norm, q), pass_parts(module, names.k_norm, k)
        if names.change_qkv is not None:
            q, k, v = names.change_qkv(module, (q, k, v), site, extras)
            q, k = q.to(v.dtype), k.to(v.dtype)  # turns and scales of float32 promote them under autocast
        drop = find(module, names.dropout) if names.dropout else 0.0
        out, carry = attend(
            q,
            k,
            v,
            scale=find(module, names.scale) if isinstance(names.scale, str) else names.scale,
            site=site.in_windows(x_BND.device),
            plugs=plugs,
            carry=carry,
            biases=() if names.biases is None else names.biases(self, q, site, extras),
            dropout_p=(drop.p if isinstance(drop, nn.Module) else drop) if self.training else 0.0,
            record=record,
        )
        out = without_blind(out, v, extras)
        out = out if names.change_out is None else names.change_out(module, out, q)
        heads = site.layout.from_windows(out.transpose(2, 3).flatten(3))
        of_queries = x_BND if site.entering is None else None
        heads = plugs.change_heads(heads, of_queries, site, carry, v.shape[-1], record)
        heads, gate = pass_parts(module, names.before_proj, heads), find(module, names.gate)
        heads = heads if gate is None else heads * gate(x_BND).sigmoid()
        return plugs.tokens('msa', pass_parts(module, f'{names.proj} {names.after_proj}', heads), site), carry


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
        names, walk = self.maps[0], step.walk
        first = sum(len(section.blocks) for section in walk.host.sections()[: step.index])
        saves = getattr(self, 'grad_checkpointing', False) and torch.is_grad_enabled()
        for index, block in enumerate(find(self, names.blocks), first):
            enters = index == first and step.index > 0
            inner = Step(walk, block, index, partial(pass_parts, self, names.prefix) if enters else None)
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
        ValueError: If one is missing, or a part computes something else than its map says.
    """
    names = map_of_part(block, '', BlockMap)
    attention = None if names.attention is None else map_of_part(block, names.attention, AttentionMap)
    return names, attention, map_of_part(block, names.mlp, MlpMap)


@cache
def plugged_class(kind: type, base: type, maps: tuple) -> type:
    """The child of a module's class with the forward of ``kind``; it has the name of its parent."""
    return type(base.__name__, (kind, base), {'maps': maps, '__module__': base.__module__})


def _new(kind: type, base: type, maps: tuple) -> nn.Module:
    made = plugged_class(kind, base, maps)
    return made.__new__(made)


def _project(names: AttentionMap, module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of tokens ``(..., D)``, each ``(..., heads, d)``."""
    if callable(names.projections):
        made = [names.projections(module, x)]
    else:
        made = [find(module, name)(x) for name in names.projections.split()]
    parts = made if len(made) == 3 else made[0].chunk(3, dim=-1)
    return tuple(part.unflatten(-1, (find(module, names.heads), -1)) for part in parts)
