"""Settings that change a network and that no tensor shows: heads, activation, epsilon, rotations, shape of the grid."""

import os
from collections.abc import Mapping
from math import log

from torch import Tensor, nn

from .position_tables import PREFIXES, find_grid

BACKBONE = 'backbone.'


def describe_unseen(backbone: nn.Module) -> dict[str, list]:
    """Number of heads, activations, epsilons of norms, kind of rotary positions, as far as a backbone has them."""
    kinds = {type(module).__name__ for module in backbone.modules()}
    described = dict(
        num_heads=_as_list(getattr(backbone, 'arch_settings', {}).get('num_heads')),
        activation=sorted(kind for kind in kinds if kind.endswith(('GELU', 'ReLU'))),
        eps=sorted({module.eps for module in backbone.modules() if isinstance(module, nn.LayerNorm)}),
        rotary=_as_list(getattr(getattr(backbone, 'rotary', None), 'mode', None)),
    )
    return {name: values for name, values in described.items() if values}


def check_unseen(settings: Mapping, backbone: nn.Module, path: str | os.PathLike) -> None:
    """Refuses a checkpoint whose config states other heads, another activation or another epsilon.

    Raises:
        ValueError: Names the setting and both values.
    """
    cfg = _get(settings, 'model', 'backbone')
    arch = _get(cfg, 'arch') or cfg
    arch = getattr(backbone, 'arch_zoo', {}).get(arch) if isinstance(arch, str) else arch
    activation = _get(cfg, 'layer_cfgs', 'act_cfg', 'type') or _get(cfg, 'act_cfg', 'type') or ''
    stated = dict(
        num_heads=_as_list(_get(arch, 'num_heads')),
        activation=_as_list(activation.rpartition('.')[2]),
        eps=_as_list(_get(cfg, 'norm_cfg', 'eps')),
    )
    for name, own in describe_unseen(backbone).items():
        values = stated.get(name)
        # A backbone may have further activations and norms.
        if values and not (values == own if name == 'num_heads' else {*values} <= {*own}):
            raise ValueError(
                f'{path} was trained with {name}={listed(values)}, which its tensors do not show, and the backbone has '
                f'{listed(own)}: set it as in the config of that training'
            )


def _get(cfg: object, *keys: str) -> object:
    """A setting in nested dicts, None where there is none."""
    for key in keys:
        cfg = cfg.get(key) if isinstance(cfg, Mapping) else None
    return cfg


def _as_list(value: object) -> list:
    return list(value) if isinstance(value, list | tuple) else [value] if value else []


def listed(values: list) -> str:
    """Values for a message."""
    return ' and '.join(map(str, values))


def check_grid(module: nn.Module, given: Mapping[str, Tensor], settings: Mapping, path: str | os.PathLike) -> None:
    """Refuses a table of positions of another grid with as many entries, such as 2 x 8 instead of 8 x 2 or 4 x 4.

    Loading knows a table by its number of entries alone. The size of images in the config of its training tells the
    grid; without one, a table that may be square is.

    Raises:
        ValueError: Names both grids.
    """
    backbone, prefix = (module.backbone, BACKBONE) if hasattr(module, 'backbone') else (module, '')
    table = given.get(prefix + getattr(backbone, 'POSITIONS', ''))
    if table is None or table.ndim != 3 or getattr(backbone, 'pos_embed', None) is None:
        return
    found = find_grid(table.shape[1], backbone.patch_resolution, (backbone.num_placed_tokens, *PREFIXES))
    if found is None:
        return
    taken, extra = found
    entries = table.shape[1] - extra
    size = _as_list(_get(settings, 'model', 'backbone', 'img_size'))
    if not all(isinstance(side, int) for side in size):  # an expression
        size = []
    ratio = size[0] / size[-1] if size else 1
    grids = [(rows, entries // rows) for rows in range(1, entries + 1) if entries % rows == 0]
    source = min(grids, key=lambda grid: abs(log(grid[0] / grid[1] / ratio)))
    if source != taken and (size or source[0] == source[1]):
        trained = f'was trained on images of {size[0]}x{size[-1]}' if size else 'does not say for which images it is'
        raise ValueError(
            f'{path} {trained}, and its table of positions is of a {source[0]}x{source[1]} grid, not of '
            f"{taken[0]}x{taken[1]}: set img_size to the checkpoint's, or resize the table before loading"
        )
