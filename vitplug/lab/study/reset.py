"""What position embeddings do: they are drawn again on a copy of a model, all else being left alone.

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields* (arXiv 2305.04722),
Figure 4. Works on vitplug's backbones and on timm's models, by the names of their parameters and modules.
"""

import copy
import re
from collections.abc import Callable, Iterator

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

#: The names and the new values of some parameters of a model.
Fresh = Callable[[nn.Module], Iterator[tuple[str, Tensor]]]


def _parameters(pattern: re.Pattern, fresh: Callable[[Tensor], Tensor]) -> Fresh:
    return lambda model: ((name, fresh(p)) for name, p in model.named_parameters() if pattern.search(name))


def _drawn(std: float) -> Callable[[Tensor], Tensor]:
    return lambda tensor: nn.init.trunc_normal_(torch.empty(tensor.shape), std=std)


def _networks(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All linear layers of the networks, as ``nn.Linear`` draws them."""
    for name, module in model.named_modules():
        if NETWORKS.search(name):
            for inner, layer in module.named_modules():
                if isinstance(layer, nn.Linear):
                    fresh = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
                    yield from ((f'{name}.{inner}.{key}', value) for key, value in fresh.named_parameters())


_tables = _parameters(TABLES, _drawn(TABLE_STD))
#: What is drawn again, by kind: absolute embeddings as zeros or random (prefix tokens included), networks of relative
#: positions (RelPosMlp, Swin V2), their tables (Swin, RelPosBias, MViT), or both of these.
RESETS: dict[str, tuple[Fresh, ...]] = {
    'ape': (_parameters(EMBEDDINGS, torch.zeros_like),),
    'ape-random': (_parameters(EMBEDDINGS, _drawn(EMBEDDING_STD)),),
    'mlp': (_networks,),
    'table': (_tables,),
    'bias': (_tables, _networks),
}


def reset_copy(model: nn.Module, kind: str, seed: int = 0) -> tuple[nn.Module, list[str]]:
    """A copy of a model with its position embedding or biases drawn again, and the names of these parameters.

    ``kind`` is of :data:`RESETS`. The global stream of random numbers is left as it is.

    Raises:
        ValueError: If the kind is unknown, or the model has no such parameters.
    """
    if kind not in RESETS:
        raise ValueError(f'reset {kind!r}: expected one of {", ".join(RESETS)}')
    # Drawn on the CPU, so that the numbers are the same on every device.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        fresh = [pair for of_kind in RESETS[kind] for pair in of_kind(model)]
        if not fresh:
            possible = [other for other, kinds in RESETS.items() if any(True for some in kinds for _ in some(model))]
            raise ValueError(
                f'reset {kind!r}: {type(model).__name__} has no parameters for it; it has some for: '
                f'{", ".join(possible) or "none of the kinds"}'
            )
    model = copy.deepcopy(model)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, value in fresh:
            parameters[name].copy_(value)
    return model, [name for name, _ in fresh]
