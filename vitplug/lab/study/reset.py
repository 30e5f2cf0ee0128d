"""What position embeddings do: they are drawn again on a copy of a model, all else being left alone.

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields* (arXiv 2305.04722),
Figure 4. Works on vitplug's backbones and on timm's models, by the names of their parameters and modules.
"""

import copy
import re

import torch
from torch import nn

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


def reset_copy(model: nn.Module, kind: str, seed: int = 0) -> tuple[nn.Module, list[str]]:
    """A copy of a model with its position embedding or biases drawn again, and the names of these parameters.

    ``kind`` is of :data:`RESETS`; an unknown one, or one whose parameters the model lacks, raises a ValueError. The
    global stream of random numbers is left as it is.
    """
    if kind not in RESETS:
        raise ValueError(f'reset {kind!r}: expected one of {", ".join(RESETS)}')
    pattern, std = RESETS[kind]
    fresh: dict[str, torch.Tensor] = {}
    # Drawn on the CPU, so that the numbers are the same on every device.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for name, layer in model.named_modules() if std is None else ():
            if isinstance(layer, nn.Linear) and pattern.search(name):
                drawn = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
                fresh |= {f'{name}.{key}': value for key, value in drawn.named_parameters()}
        for name, parameter in model.named_parameters() if std is not None else ():
            if pattern.search(name):
                empty = torch.zeros(parameter.shape)
                fresh[name] = nn.init.trunc_normal_(empty, std=std) if std else empty
        if not fresh:
            raise ValueError(f'reset {kind!r}: {type(model).__name__} has no parameters for it')
        model = copy.deepcopy(model)
        for name, value in fresh.items():
            model.get_parameter(name).copy_(value)
    return model, list(fresh)
