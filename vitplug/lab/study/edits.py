"""Changes inside a model: edits of heads and tokens for :meth:`~vitplug.hosting.PluggedModel.edited` and their control,
and position embeddings that are drawn again on a copy, all else being left alone.

Shapes of what is edited: heads ``(B, N, H, d)``, attn, mlp and block ``(B, N, D)``; q, k, v and maps
``(B, W, H, N, ...)``. Tokens count from the first prefix token on; inside windows no single tokens can be chosen.
"""

import copy
import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vitplug.attention import Site
from vitplug.hosting import Edit

EMBEDDINGS = re.compile(r'(^|\.)(absolute_)?pos_embed$')
TABLES = re.compile(r'(^|\.)(relative_position_bias_table|rel_pos_table|rel_pos_[hw])$')
# Linear layers from an offset to its bias: of RelPosMlp of vitplug (its module, numbered if there are several) and of
# timm, and of Swin V2.
NETWORKS = re.compile(r'(^|\.)(cpb_mlp|rel_pos_mlp(_\d+)?\.bias|rel_pos\.mlp)\.')
# The GAB paper's authors draw Swin's tables with the default of trunc_normal_; a new Swin has 0.02.
EMBEDDING_STD, TABLE_STD = 0.02, 1.0

#: The parameters that are drawn again, and their standard deviation (0: they become zeros; None: layers as
#: ``nn.Linear`` draws them), by kind: absolute embeddings (prefix tokens included), networks of relative positions
#: (RelPosMlp, Swin V2), or their tables (Swin, RelPosBias, MViT).
RESETS = {
    'ape': (EMBEDDINGS, 0),
    'ape-random': (EMBEDDINGS, EMBEDDING_STD),
    'mlp': (NETWORKS, None),
    'table': (TABLES, TABLE_STD),
}


def zero(heads: Sequence[int] | None = None, tokens: Sequence[int] | None = None) -> Edit:
    """Zero in place of some heads, or of some tokens, by their indices.

    The edit raises a ValueError for an index that is not there.
    """
    what, indices, axis, dims = ('tokens', tokens, 1, (3, 4)) if heads is None else ('heads', heads, 2, (4, 5))

    def edit(tensor: Tensor, site: Site) -> Tensor:
        if tensor.ndim not in dims or not all(0 <= index < tensor.shape[axis] for index in indices):
            raise ValueError(f'{what}={list(indices)}: not in an intermediate {tuple(tensor.shape)}')
        return tensor.index_fill(axis, torch.tensor(indices, device=tensor.device), 0)

    return edit


def random_control(edit: Edit, seed: int = 0) -> Edit:
    """A change as large as that of an edit, in a random direction: of each vector along the last axis."""

    def control(tensor: Tensor, site: Site) -> Tensor:
        change = edit(tensor, site) - tensor
        noise = torch.randn(change.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        noise = noise / noise.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(noise.dtype).tiny)
        return tensor + noise.to(tensor) * change.norm(dim=-1, keepdim=True)

    return control


def reset_copy(model: nn.Module, kind: str, seed: int = 0) -> tuple[nn.Module, list[str]]:
    """A copy of a model with its position embedding or biases drawn again, and the names of these parameters.

    *Gaussian Attention Bias*, Figure 4. They are found by their names, in vitplug's backbones and in timm's models.
    ``kind`` is of :data:`RESETS`; an unknown one, or one whose parameters the model lacks, raises a ValueError. The
    global stream of random numbers is left as it is.
    """
    if kind not in RESETS:
        raise ValueError(f'reset {kind!r}: expected one of {", ".join(RESETS)}')
    (pattern, std), model, names = RESETS[kind], copy.deepcopy(model), []
    # Drawn on the CPU, so that the numbers are the same on every device.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for path, layer in model.named_modules() if std is None else ():
            if isinstance(layer, nn.Linear) and pattern.search(path):
                drawn = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
                layer.load_state_dict(drawn.state_dict())
                names += [f'{path}.{name}' for name, _ in layer.named_parameters()]
        for name, parameter in model.named_parameters() if std is not None else ():
            if pattern.search(name):
                empty = torch.zeros(parameter.shape)
                parameter.copy_(nn.init.trunc_normal_(empty, std=std) if std else empty)
                names.append(name)
    if not names:
        raise ValueError(f'reset {kind!r}: {type(model).__name__} has no parameters for it')
    return model, names
