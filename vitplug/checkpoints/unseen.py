"""Settings that change a network and that no tensor shows: heads, activation, epsilon, rotations, shape of the grid."""

import os
from collections.abc import Mapping
from math import log

from torch import Tensor, nn

from .position_tables import PREFIXES, find_grid
from .settings import defaults

BACKBONE = 'backbone.'
# The arguments that change what a checkpoint's config states.
_SET = dict(num_heads='arch', activation='act_cfg', eps='eps in norm_cfg')


def describe_unseen(backbone: nn.Module) -> dict[str, list]:
    """Number of heads, activations, epsilons of norms, kind of rotary positions, as far as a backbone has them."""
    heads = getattr(backbone, 'arch_settings', {}).get('num_heads')
    kinds = {type(module).__name__ for module in backbone.modules()}
    rotary = getattr(getattr(backbone, 'rotary', None), 'mode', None)
    described = dict(
        num_heads=_as_list(heads),
        activation=sorted(kind for kind in kinds if kind.endswith(('GELU', 'ReLU'))),
        eps=sorted({module.eps for module in backbone.modules() if isinstance(module, nn.LayerNorm)}),
        rotary=_as_list(rotary),
    )
    return {name: values for name, values in described.items() if values}


def check_unseen(settings: Mapping, backbone: nn.Module, path: str | os.PathLike) -> None:
    """Refuses a checkpoint whose config states other heads, another activation or another epsilon.

    Args:
        settings: See :func:`~vitplug.checkpoints.settings.read_settings`.
        backbone: The backbone.
        path: The checkpoint, for the error.

    Raises:
        ValueError: Names the setting and both values.
    """
    cfg = _get(settings, 'model', 'backbone')
    arch = _get(cfg, 'arch') or cfg
    arch = getattr(backbone, 'arch_zoo', {}).get(arch) if isinstance(arch, str) else arch
    activation = _get(cfg, 'layer_cfgs', 'act_cfg', 'type') or _get(cfg, 'act_cfg', 'type')
    theirs = dict(
        num_heads=_as_list(_get(arch, 'num_heads')),
        activation=_as_list(activation and activation.rpartition('.')[2]),
        eps=_as_list(_get(cfg, 'norm_cfg', 'eps')),
    )
    for name, own in describe_unseen(backbone).items():
        stated = theirs.get(name)
        # A backbone may have further activations and norms.
        if stated and not (stated == own if name == 'num_heads' else {*stated} <= {*own}):
            raise ValueError(
                f'{path} was trained with {name}={listed(stated)}, which its tensors do not show, and the backbone has '
                f'{listed(own)}: set {_SET[name]} as in the config of that training'
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
    """Checks that loading takes the entries of a position table for the grid that they have.

    Loading knows a table by its number of entries alone: 576 are a grid of 24 x 24 or of 18 x 32.

    Args:
        module: The backbone, or a model with one.
        given: Weights by the module's keys.
        settings: The config of the checkpoint's training; its image size gives the grid of the table. Without one, a
            table that may be square is.
        path: The checkpoint, for the error.

    Raises:
        ValueError: If the grid differs, such as 2 x 8 instead of 8 x 2.
    """
    backbone, prefix = (module.backbone, BACKBONE) if hasattr(module, 'backbone') else (module, '')
    key = prefix + getattr(backbone, 'POSITIONS', '')
    has_grid = hasattr(backbone, 'patch_resolution') and getattr(backbone, 'pos_embed', None) is not None
    if not has_grid or key not in given or given[key].ndim != 3:  # a map (1, D, h, w) has its grid
        return
    entries = given[key].shape[1]
    taken, extra = find_grid(entries, backbone.patch_resolution, (backbone.num_placed_tokens, *PREFIXES)) or (None, 0)
    size = _image_size(_get(settings, 'model', 'backbone'), type(backbone))
    source = _closest_grid(entries - extra, size[0] / size[1] if size else 1)
    if taken and source != taken and (size or source[0] == source[1]):
        trained = f'was trained on images of {size[0]}x{size[1]}' if size else 'does not say for which images it is'
        raise ValueError(
            f'{path} {trained}, and its {key} is the table of a {source[0]}x{source[1]} grid, not of '
            f"{taken[0]}x{taken[1]}: set img_size to the checkpoint's, or resize the table before loading"
        )


def _image_size(cfg: object, backbone: type) -> tuple[int, int] | None:
    """Height and width of the images in the config of a checkpoint's backbone, or None."""
    size = cfg.get('img_size', defaults(backbone).get('img_size')) if isinstance(cfg, Mapping) else None
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    return sides if len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides) else None


def _closest_grid(entries: int, ratio: float) -> tuple[int, int]:
    """The grid ``(h, w)`` with this number of entries and ``h / w`` closest to ``ratio``."""
    grids = [(h, entries // h) for h in range(1, entries + 1) if entries % h == 0]
    return min(grids, key=lambda grid: abs(log(grid[0] / grid[1] / ratio)))
