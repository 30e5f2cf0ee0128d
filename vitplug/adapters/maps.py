"""Maps of names: where a model of another library keeps the parts that plugs need.

A map belongs to a class. It is found by the class's name, so no library is imported to look for it::

    ModelMap       where the blocks are, which tokens come before the grid, the grid at the configured size
    StageMap       what a stage does around its blocks, for models in stages
    BlockMap       where a block has its two branches, and what comes before, after and between them
    AttentionMap   projections to q, k and v, norms, position bias, rotation, projection of the heads
    MlpMap         the two halves of an MLP

A library's new family is an entry of each kind that it changes; most share all but the first.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain as chained
from typing import Any, TypeVar

from torch import Tensor, nn

from vitplug.attention import Layout, PairBias, Site
from vitplug.hosting import PixelGrid

Map = TypeVar('Map')
#: q, k and v ``(B, W, H, N, d)``.
QKV = tuple[Tensor, Tensor, Tensor]

#: Further arguments of a block, by name: masks, rotations, shared biases.
Extras = Mapping[str, Any]


#: Arguments of blocks and stages that ask for what plugs do not do, and what to do.
_REFUSED = {
    'is_causal': 'causal attention',
    'cache': 'a cache of keys and values',
    'past_key_values': 'a cache of keys and values',
    'encoder_hidden_states': 'cross-attention',
    'always_partition': 'always_partition: shifted windows on a map of one window',
    'output_attentions': "output_attentions: vitplug.intermediates(model, inputs, names=('probs',)) gives the maps",
}


def check_asked(kind: str, extras: Extras) -> None:
    """Checks the further arguments of a block or a stage.

    Args:
        kind: Name of its class.
        extras: The arguments.

    Raises:
        ValueError: If they ask for what plugs do not do.
    """
    asked = [what for name, what in _REFUSED.items() if extras.get(name) not in (None, False)]
    if asked:
        raise ValueError(f'a {kind} with plugs does not do this: {asked[0]}')


def mask_of_pairs(extras: Extras) -> Tensor | None:
    """The mask of a block's arguments: of pairs, ``(B, 1, N, N)``, or as it is given; None for none."""
    of_pairs = extras.get('attn_mask')
    if isinstance(of_pairs, Tensor) and of_pairs.ndim == 2:
        return of_pairs[None, None]
    return extras.get('attention_mask') if of_pairs is None else of_pairs


def find(module: nn.Module, name: str) -> Any:
    """The attribute at a dotted name, the module itself for ``''``; None if there is none."""
    submodule = module
    for part in name.split('.') if name else ():
        submodule = getattr(submodule, part, None)
    return submodule


@dataclass(frozen=True)
class Chain:
    """Parts that act one after the other: modules are called, parameters multiply.

    Args:
        names: Dotted names. One that ends with ``?`` may be missing or None, and then does nothing.
    """

    names: tuple[str, ...] = ()

    def __call__(self, module: nn.Module, x: Tensor) -> Tensor:
        for name in self.names:
            part = find(module, name.removesuffix('?'))
            if part is not None:
                x = part(x) if callable(part) else part * x
        return x

    def missing(self, module: nn.Module) -> list[str]:
        """Names that the module must have and lacks."""
        return [name for name in self.names if not name.endswith('?') and find(module, name) is None]


def chain(*names: str) -> Chain:
    """A :class:`Chain` of names."""
    return Chain(names)


@dataclass(frozen=True)
class Branch:
    """What surrounds a branch: ``x = sum(beside(x) + after(branch(before(x))))``.

    Args:
        before: The norm of a pre-norm block.
        after: Dropout, norm of a post-norm branch, LayerScale, stochastic depth.
        sum: The norm after the sum, as in BERT.
        beside: The tokens beside the branch, of the block, the tokens, the normed ones and the site; None leaves them.
    """

    before: Chain = Chain()
    after: Chain = Chain()
    sum: Chain = Chain()
    beside: Callable[[nn.Module, Tensor, Tensor, Site], Tensor] | None = None


@dataclass(frozen=True)
class AttentionMap:
    """Parts of an attention module, by dotted names in it.

    Args:
        projections: One projection to q, k and v side by side, or three.
        heads: The number of heads.
        scale: The factor of the dot products, or its name.
        proj: The projection of the heads.
        dropout: The drop rate of the probabilities, or the dropout that has it; None for none.
        q_norm: Norm of the queries, by head.
        k_norm: Norm of the keys, by head.
        before_proj: What happens to the heads before the projection.
        gate: A linear layer whose sigmoid gates the heads.
        after_proj: What follows the projection.
        project: Makes q, k and v, side by side, of tokens, where the projections alone do not.
        biases: The model's own position biases, of the block, q, the site and the further arguments.
        change_qkv: Rotates, scales or pools q, k and v ``(B, W, H, N, d)``, of the attention, these, the site and the
            further arguments.
        change_out: Changes the output of the heads ``(B, W, H, N, d)``, of the attention, it and q.
        lacks: Why a module of this class takes no plugs; None if it takes them.
    """

    projections: tuple[str, ...]
    heads: str
    scale: str | float
    proj: str
    dropout: str | None
    q_norm: str = 'q_norm'
    k_norm: str = 'k_norm'
    before_proj: Chain = Chain()
    gate: str = 'gate'
    after_proj: Chain = Chain()
    project: Callable[[nn.Module, Tensor], Tensor] | None = None
    biases: Callable[[nn.Module, Tensor, Site, Extras], tuple[PairBias, ...]] | None = None
    change_qkv: Callable[[nn.Module, QKV, Site, Extras], QKV] | None = None
    change_out: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None
    lacks: Callable[[nn.Module], str | None] | None = None


@dataclass(frozen=True)
class MlpMap:
    """The halves of an MLP.

    Args:
        hidden: Tokens to hidden tokens, called with the module.
        out: Hidden tokens to tokens.
        last: Name of the last linear layer.
    """

    hidden: Callable[[nn.Module, Tensor], Tensor]
    out: Chain
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
        lacks: Why a block of this class takes no plugs; None if it takes them.
    """

    attention: str | None
    mlp: str
    msa: Branch
    ffn: Branch
    arguments: tuple[str, ...] = ()
    mixing: Callable[[nn.Module, Tensor], Tensor] | None = None
    layout: Callable[[nn.Module, tuple[int, int]], Layout] | None = None
    strides: Callable[[nn.Module], tuple[int, int]] | None = None
    widths: Callable[[nn.Module], Mapping[str, int]] | None = None
    lacks: Callable[[nn.Module], str | None] | None = None


def _merged(stage: nn.Module, pixels: PixelGrid) -> PixelGrid:
    return pixels.merged(2)


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
    place: Callable[[nn.Module, PixelGrid], PixelGrid] = _merged
    prefix: Chain = Chain()
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
        lacks: Why a model of this class takes no plugs; None if it takes them.
    """

    blocks: str
    prefix: Callable[[nn.Module], tuple[str, ...]]
    resolution: Callable[[nn.Module], tuple[int, int]]
    patch: str | None
    features: Callable[[nn.Module, Tensor], Tensor]
    stage: StageMap | None = None
    keeps_prefix: bool = True
    lacks: Callable[[nn.Module], str | None] | None = None


_MAPS: dict[type, dict[str, Any]] = {kind: {} for kind in (ModelMap, BlockMap, AttentionMap, MlpMap)}


def register(name: str | type, *maps: ModelMap | BlockMap | AttentionMap | MlpMap) -> None:
    """Registers maps of a class.

    Args:
        name: The class, or its module and name, such as ``'timm.models.vision_transformer.Block'``.
        maps: Its maps, at most one of each kind; they replace earlier ones.
    """
    for entry in maps:
        _MAPS[type(entry)][name if isinstance(name, str) else _full_name(name)] = entry


def map_of(module: nn.Module, kind: type[Map]) -> Map | None:
    """The map of a module's class, or of the nearest base that has one; None if there is none."""
    return next((_MAPS[kind][name] for name in map(_full_name, type(module).__mro__) if name in _MAPS[kind]), None)


def check_own(module: nn.Module, kind: type, hooks_run: bool = False) -> None:
    """Checks that a module computes what the map of its class says, which takes the place of its forward.

    Args:
        module: A module with a map.
        kind: Which of its maps.
        hooks_run: Whether its hooks go on running.

    Raises:
        ValueError: If its class, or the module, has a forward of its own, or it has hooks.
    """
    known = next(base for base in type(module).__mro__ if _full_name(base) in _MAPS[kind])
    name, changed = type(module).__name__, None
    if 'forward' in module.__dict__:
        changed = 'its forward was replaced'
    elif type(module).forward is not known.forward:
        changed = f'it has another forward than {_full_name(known)}, from which it derives'
    elif not hooks_run and any(_hooks(module)):
        changed = 'it has hooks, which would not run'
    if changed:
        raise ValueError(
            f'plug_in: {name} takes no plugs: {changed}. Take it back first, or register a map of its own '
            '(vitplug.adapters.register)'
        )


def _hooks(module: nn.Module) -> Iterator[Callable]:
    """Hooks of a module, but for those of transformers, which act only where it is asked for maps."""
    names = ('_forward_hooks', '_forward_pre_hooks', '_backward_hooks', '_backward_pre_hooks')
    for hook in chained(*(getattr(module, name).values() for name in names)):
        if hook.__module__ != 'transformers.utils.output_capturing':
            yield hook


def known_models() -> list[str]:
    """The classes of models that have a map."""
    return sorted(_MAPS[ModelMap])


def no_prefix(model: nn.Module) -> tuple[str, ...]:
    """For models without tokens before the grid's."""
    return ()


def required(names: AttentionMap) -> tuple[str, ...]:
    """Names that an attention of this map must have; those with ``?`` may be missing."""
    optional = [name for name in (names.scale, names.dropout) if isinstance(name, str)]
    return (
        names.heads,
        *optional,
        names.proj,
        *names.projections,
        *names.before_proj.names,
        *names.after_proj.names,
    )


def _full_name(kind: type) -> str:
    return f'{kind.__module__}.{kind.__qualname__}'
