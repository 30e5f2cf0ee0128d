"""What position embeddings do: they are drawn again on a copy of a model, all else being left alone.

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields* (arXiv 2305.04722),
Figure 4: the effective receptive field before and after. Works on vitplug's backbones and on timm's models, by the
names of their parameters and modules.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

EMBEDDING_STD = 0.02
# The GAB paper's authors draw Swin's tables with the default of trunc_normal_; a new Swin has 0.02.
TABLE_STD = 1.0

EMBEDDINGS = re.compile(r'(^|\.)(absolute_)?pos_embed$')
TABLES = re.compile(r'(^|\.)(relative_position_bias_table|rel_pos_table|rel_pos_[hw])$')
# Networks from an offset to its bias: RelPosMlp of vitplug (its module, numbered if there are several) and of timm,
# Swin V2's.
NETWORKS = re.compile(r'(^|\.)(cpb_mlp|rel_pos_mlp(_\d+)?\.bias|rel_pos\.mlp)$')


def _zeros(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor)


def _drawn(std: float) -> Callable[[Tensor], Tensor]:
    return lambda tensor: nn.init.trunc_normal_(torch.empty(tensor.shape), std=std)


def _parameters(pattern: re.Pattern, start: Callable[[Tensor], Tensor]) -> Callable[[nn.Module], Iterator]:
    """The start of all parameters of some names."""

    def starts(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in model.named_parameters():
            if pattern.search(name):
                yield name, start(parameter)

    return starts


def _networks(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The start of all linear layers of the networks, as ``nn.Linear`` draws it."""
    for name, module in model.named_modules():
        if NETWORKS.search(name):
            for inner, layer in module.named_modules():
                if isinstance(layer, nn.Linear):
                    fresh = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
                    yield from ((f'{name}.{inner}.{key}', value) for key, value in fresh.named_parameters())


@dataclass(frozen=True)
class Reset:
    """A kind of re-initialisation.

    Attributes:
        about: What it does, in words.
        kinds: Each gives the names and the new values of some parameters of a model.
    """

    about: str
    kinds: tuple[Callable[[nn.Module], Iterator[tuple[str, Tensor]]], ...]


_tables = _parameters(TABLES, _drawn(TABLE_STD))
_APE = 'absolute position embedding (prefix tokens included)'
#: The kinds, by name.
RESETS: Mapping[str, Reset] = {
    'ape': Reset(f'{_APE} set to zeros', (_parameters(EMBEDDINGS, _zeros),)),
    'ape-random': Reset(
        f'{_APE} drawn again, standard deviation {EMBEDDING_STD}', (_parameters(EMBEDDINGS, _drawn(EMBEDDING_STD)),)
    ),
    'mlp': Reset('networks of relative position biases (RelPosMlp, Swin V2) drawn again as nn.Linear', (_networks,)),
    'table': Reset(
        f'tables of relative positions (Swin, RelPosBias, MViT) drawn again, standard deviation {TABLE_STD:g}',
        (_tables,),
    ),
    'bias': Reset('tables and networks of relative position biases drawn again', (_tables, _networks)),
}


def can_reset(model: nn.Module, kind: str) -> bool:
    """True if a model has parameters of a kind of :data:`RESETS`."""
    with torch.random.fork_rng(devices=[]):
        return any(any(True for _ in starts(model)) for starts in RESETS[kind].kinds)


def reset_copy(model: nn.Module, kind: str, seed: int = 0) -> tuple[nn.Module, list[str]]:
    """A copy of a model with its position embedding or biases re-initialised.

    Args:
        model: A backbone or a whole model; it is not changed.
        kind: Of :data:`RESETS`: ``'ape'``, ``'ape-random'``, ``'mlp'``, ``'table'`` or ``'bias'``.
        seed: Of the random numbers; the global stream is left as it is.

    Returns:
        The copy and the names of the parameters that were reset.

    Raises:
        ValueError: If the kind is unknown, or the model has no such parameters.
    """
    if kind not in RESETS:
        raise ValueError(f'reset {kind!r}: expected one of {", ".join(RESETS)}')
    model = copy.deepcopy(model)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    # Drawn on the CPU, so that the numbers are the same on every device.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        fresh = [start for starts in RESETS[kind].kinds for start in starts(model)]
        for name, value in fresh:
            parameters[name].copy_(value)
    if not fresh:
        possible = [other for other in RESETS if can_reset(model, other)]
        raise ValueError(
            f'reset {kind!r}: {type(model).__name__} has no parameters for it ({RESETS[kind].about}); it has some for: '
            f'{", ".join(possible) or "none of the kinds"}'
        )
    return model, [name for name, _ in fresh]
