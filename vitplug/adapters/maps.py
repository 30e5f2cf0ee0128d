"""Maps of names: where a model of another library keeps the parts that plugs need.

A map belongs to a class and is found by the class's name, so no library is imported to look for it: one for a model,
its list of blocks, its stages, a block, its attention and its MLP. A library's new family is an entry of each kind that
it changes; most share all but the first.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vitplug.attention import Layout, PairBias, Site
from vitplug.hosting import PixelGrid
from vitplug.hosting.plan import is_untouched

from .arguments import Extras

Map = TypeVar('Map')
#: q, k and v ``(B, W, H, N, d)``.
QKV = tuple[Tensor, Tensor, Tensor]
#: Tokens, and their rows and columns, after the blocks of a stage, see :class:`StageMap`.
Run = Callable[..., tuple[Tensor, tuple[int, int] | None]]


def _nothing(module: nn.Module) -> None:
    """The default of functions of a module."""


def merge(stage: nn.Module, pixels: PixelGrid, step: int = 2) -> PixelGrid:
    """For stages that begin with a merging of ``step x step`` tokens."""
    return pixels.merged(step)


def find(module: nn.Module, name: str) -> Any:
    """The attribute at a dotted name, the module itself for ``''``; one that ends with ``?`` may be missing: None."""
    may_miss, found = name.endswith('?'), module
    for part in name.removesuffix('?').split('.') if name else ():
        found = getattr(found, part, None) if may_miss else getattr(found, part)
    return found


def pass_parts(module: nn.Module, parts: str | Callable[[nn.Module, Tensor], Tensor], x: Tensor) -> Tensor:
    """A tensor after some parts of a module, one after the other: modules are called, parameters multiply.

    Args:
        module: The module.
        parts: Dotted names as in :func:`find`, with spaces between, or a function of the module and the tensor. What
            is missing or None does nothing.
        x: The tensor.
    """
    if callable(parts):
        return parts(module, x)
    for name in parts.split():
        part = find(module, name)
        if part is not None:
            x = part(x) if callable(part) else part * x
    return x


@dataclass(frozen=True)
class Branch:
    """What surrounds a branch: ``x = sum(beside(x) + after(branch(before(x))))``; names as in :func:`pass_parts`.

    Args:
        before: The norm of a pre-norm block.
        after: Dropout, norm of a post-norm branch, LayerScale, stochastic depth.
        sum: The norm after the sum, as in BERT.
        beside: The tokens beside the branch, of the block, the tokens, the normed ones and the site; None leaves them.
    """

    before: str = ''
    after: str = ''
    sum: str = ''
    beside: Callable[[nn.Module, Tensor, Tensor, Site], Tensor] | None = None


@dataclass(frozen=True)
class AttentionMap:
    """Parts of an attention module, by dotted names in it.

    Args:
        projections: One projection to q, k and v side by side, or three: names with spaces between, or a function of
            the attention and the tokens that makes them side by side.
        heads: The number of heads.
        scale: The factor of the dot products, or its name.
        proj: The projection of the heads.
        dropout: The drop rate of the probabilities, or the dropout that has it; None for none.
        q_norm: Norm of the queries, by head.
        k_norm: Norm of the keys, by head.
        before_proj: What happens to the heads before the projection, as :func:`pass_parts` has it.
        gate: A linear layer whose sigmoid gates the heads.
        after_proj: What follows the projection.
        biases: The model's own position biases, of the block, q, the site and the further arguments.
        change_qkv: Rotates, scales or pools q, k and v ``(B, W, H, N, d)``, of the attention, these, the site and the
            further arguments.
        change_out: Changes the output of the heads ``(B, W, H, N, d)``, of the attention, it and q.
        lacks: Why a module takes no plugs; None if it takes them.
    """

    projections: str | Callable[[nn.Module, Tensor], Tensor]
    heads: str
    scale: str | float
    proj: str
    dropout: str | None
    q_norm: str = 'q_norm?'
    k_norm: str = 'k_norm?'
    before_proj: str = ''
    gate: str = 'gate?'
    after_proj: str = ''
    biases: Callable[[nn.Module, Tensor, Site, Extras], tuple[PairBias, ...]] | None = None
    change_qkv: Callable[[nn.Module, QKV, Site, Extras], QKV] | None = None
    change_out: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None
    lacks: Callable[[nn.Module], str | None] = _nothing


@dataclass(frozen=True)
class MlpMap:
    """The halves of an MLP.

    Args:
        hidden: Tokens to hidden tokens, parts as of :func:`pass_parts`.
        out: Hidden tokens to tokens, names of parts.
        last: Name of the last linear layer.
    """

    hidden: str | Callable[[nn.Module, Tensor], Tensor]
    out: str
    last: str


@dataclass(frozen=True)
class BlockMap:
    """Parts of a block, by dotted names in it.

    Args:
        attention: The attention module; None for a block without attention.
        mlp: The MLP; ``''`` if the block holds its layers itself.
        msa: What surrounds the attention branch.
        ffn: What surrounds the MLP branch.
        arguments: Names of the positional arguments after the tokens.
        mixing: What a block without attention does to tokens before its MLP, of the block and the tokens.
        layout: How the block's tokens lie in windows, of the block and rows and columns of tokens; None for global
            attention.
        strides: Rows, and columns, from one query and from one key to the next, in tokens that enter the block.
        widths: Width of the tokens by socket, where a block changes it.
    """

    attention: str | None
    mlp: str
    msa: Branch
    ffn: Branch
    arguments: tuple[str, ...] = ()
    mixing: Callable[[nn.Module, Tensor], Tensor] | None = None
    layout: Callable[[nn.Module, tuple[int, int]], Layout] | None = None
    strides: Callable[[nn.Module], tuple[int, int] | None] = _nothing
    widths: Callable[[nn.Module], Mapping[str, int] | None] = _nothing


@dataclass(frozen=True)
class StageMap:
    """What a stage of a model does around its blocks.

    Args:
        blocks: The list of its blocks.
        forward: The stage, with the library's arguments and result: called with the stage, ``run``, and the arguments.
            ``run(tokens, hw)`` takes tokens ``(B, N, D)`` and their rows and columns through the blocks and gives both;
            tokens ``(B, h, w, D)`` need no ``hw``.
        place: Where the tokens of a stage after the first lie in the image, of the stage and where those of the stage
            before do.
        prefix: What the stage does to tokens before those of the grid, for those that plugs have added.
        reads: Attributes of a stage that the model's loop over stages reads.
    """

    blocks: str
    forward: Callable[..., Any]
    place: Callable[[nn.Module, PixelGrid], PixelGrid] = merge
    prefix: str = ''
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelMap:
    """Where a model has its blocks, and which tokens it has.

    Args:
        blocks: The list of blocks; of stages, where ``stage`` is given.
        prefix: Names of the tokens before those of the grid.
        resolution: Rows and columns of tokens at the configured size.
        patch: The convolution that makes tokens of images; None for text.
        features: The last tokens of a batch of images, as analyses want them: ``(B, N, D)``, or a map
            ``(B, h, w, D)``.
        stage: What its stages do, for models in stages.
        keeps_prefix: Whether plugs may add tokens. They may not where the model has a bias of all pairs or windows.
        lacks: Why a model takes no plugs; None if it takes them.
    """

    blocks: str
    prefix: Callable[[nn.Module], tuple[str, ...]]
    resolution: Callable[[nn.Module], tuple[int, int]]
    patch: str | None
    features: Callable[[nn.Module, Tensor], Tensor]
    stage: StageMap | None = None
    keeps_prefix: bool = True
    lacks: Callable[[nn.Module], str | None] = _nothing


class ListMap:
    """A list of blocks or stages whose forward, if it has one, calls them one after the other."""


_MAPS: dict[type, dict[str, Any]] = {kind: {} for kind in (ModelMap, BlockMap, AttentionMap, MlpMap, ListMap)}


def register(name: str | type, *maps: ModelMap | BlockMap | AttentionMap | MlpMap | ListMap) -> None:
    """Registers maps of a class.

    Args:
        name: The class, or its module and name, such as ``'timm.models.vision_transformer.Block'``.
        maps: Its maps, at most one of each kind; they replace earlier ones.
    """
    for entry in maps:
        _MAPS[type(entry)][name if isinstance(name, str) else _full_name(name)] = entry


def map_of(module: nn.Module, kind: type[Map]) -> tuple[type, Map] | None:
    """The class of a module, or the nearest base, that has a map, and the map; None if there is none."""
    maps = _MAPS[kind]
    return next(((base, maps[name]) for base in type(module).__mro__ if (name := _full_name(base)) in maps), None)


def map_of_part(block: nn.Module, name: str, kind: type[Map]) -> Map:
    """The map of a part of a block or model that takes the place of the part's forward; of a block itself for ``''``.

    Raises:
        ValueError: If there is none, or the part computes something else than its map says.
    """
    part = find(block, name)
    found = map_of(part, kind)
    if found is None:
        what = f'{name} of {type(block).__name__}, a' if name else 'a block,'
        raise ValueError(
            f'plug_in: no map of names for {what} {type(part).__name__}; vitplug.adapters.register takes one'
        )
    known, names = found
    changed = getattr(names, 'lacks', _nothing)(part)
    if 'forward' in part.__dict__:
        changed = 'its forward was replaced'
    elif type(part).forward is not known.forward:
        changed = f'it has another forward than {_full_name(known)}, from which it derives'
    elif name and any(_hooks(part)):  # those of the block run
        changed = 'it has hooks, which would not run'
    if changed:
        raise ValueError(f'plug_in: {type(part).__name__} takes no plugs: {changed}')
    return names


def warn_of_uncalled(block: nn.Module, name: str, part: nn.Module) -> None:
    """Warns of hooks on attention or an MLP, and of a new forward: a block with plugs calls the layers in it alone."""
    if not name or torch.compiler.is_compiling() or is_untouched(part):
        return
    own = 'a forward of its own, which does' if 'forward' in vars(part) else any(_hooks(part)) and 'hooks, which do'
    if own:
        what = f'{own} not run with plugs: set hooks on its layers, or read vitplug.intermediates'
        warnings.warn(f'{name} of {type(block).__name__} has {what}', stacklevel=2)


def _hooks(module: nn.Module) -> Iterator[Callable]:
    """Hooks of a module, but for those of transformers, which act only where it is asked for maps."""
    names = ('_forward_hooks', '_forward_pre_hooks', '_backward_hooks', '_backward_pre_hooks')
    hooks = (hook for name in names for hook in getattr(module, name).values())
    return (hook for hook in hooks if hook.__module__ != 'transformers.utils.output_capturing')


def known_models() -> list[str]:
    """The classes of models that have a map."""
    return sorted(_MAPS[ModelMap])


def no_prefix(model: nn.Module) -> tuple[str, ...]:
    """For models without tokens before the grid's."""
    return ()


def _full_name(kind: type) -> str:
    return f'{kind.__module__}.{kind.__qualname__}'


for _list in (nn.ModuleList, nn.Sequential, 'timm.models.pit.SequentialTuple'):
    register(_list, ListMap())
