"""Loads pretrained weights of any known format into a backbone or model."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import log

from mmengine.logging import print_log
from mmengine.model.weight_init import update_init_info
from torch import Tensor, nn

from vitplug.registry import WEIGHT_INITIALIZERS

from .files import WRONG_SHAPES, check_numbers, find_meta, find_weights, local_file, read_checkpoint, some_of
from .formats import is_derived, to_vitplug
from .settings import find_default, read_settings

BACKBONE = 'backbone.'
# mmpretrain's two key prefixes of a classification layer; a model has one of them.
CLASSIFIERS = ('head.fc.', 'head.layers.head.')
POSITION_TABLES = ('pos_embed', 'absolute_pos_embed')


@WEIGHT_INITIALIZERS.register_module()
class Pretrained:
    """Initialises a backbone or a whole model with a checkpoint of timm, mmpretrain, mmdet, mmseg or a paper's authors.

    In configs: ``init_cfg=dict(type='vitplug.Pretrained', checkpoint=PATH)``. Parameters that the checkpoint lacks,
    such as plugs, are initialised as without a checkpoint.

    Args:
        checkpoint: Path or address of the file.
        prefix: Use only the keys that begin with this; by default, the prefix is detected.
        min_coverage: Minimum share of the backbone's tensors that are loaded, without plugs, and minimum share of
            the checkpoint's backbone tensors that are used.
        unsafe_unpickle: If True, the file may run code.
        reset: Do not load tensors with one of these parts in their name, such as ``['rel_pos_mlp']``.

    Raises:
        ValueError: If ``min_coverage`` is not in 0 to 1, and as in :func:`load_pretrained`.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike,
        prefix: str | None = None,
        min_coverage: float = 0.9,
        unsafe_unpickle: bool = False,
        reset: Collection[str] = (),
    ):
        if not 0 <= min_coverage <= 1:
            raise ValueError(f'min_coverage={min_coverage!r}: expected a share from 0 to 1')
        self.settings = dict(prefix=prefix, min_coverage=min_coverage, unsafe_unpickle=unsafe_unpickle, reset=reset)
        self.checkpoint = checkpoint

    def __call__(self, module: nn.Module) -> None:
        _check_last(getattr(module, 'init_cfg', None))
        # mmengine would initialise the children after the module and overwrite the loaded weights.
        for part in module.children():
            if hasattr(part, 'init_weights') and not getattr(part, 'is_init', False):
                part.init_weights()
        load_pretrained(module, self.checkpoint, **self.settings)
        if hasattr(module, '_params_init_info'):
            update_init_info(module, f'vitplug.Pretrained: {self.checkpoint}')


def loads_checkpoint(init_cfg: Mapping | Collection[Mapping] | None) -> bool:
    """True if an ``init_cfg`` loads a checkpoint, with mmengine's initialiser or this one."""
    cfgs = [init_cfg] if isinstance(init_cfg, Mapping) else init_cfg or []
    return any(cfg['type'] in ('Pretrained', 'vitplug.Pretrained', Pretrained) for cfg in cfgs)


def _check_last(init_cfg) -> None:
    if isinstance(init_cfg, list | tuple) and any(loads_checkpoint(cfg) for cfg in init_cfg[:-1]):
        raise ValueError(
            f'init_cfg={init_cfg}: vitplug.Pretrained must come last; later initialisers overwrite the loaded weights'
        )


@dataclass(frozen=True)
class Coverage:
    """Loaded, missing and unused tensors of a checkpoint and a model.

    Args:
        source: File, format and place in the file.
        loaded: Keys of the backbone that were loaded.
        resized: Loaded keys that have another shape in the checkpoint.
        missing: Keys of the backbone that the checkpoint lacks, without plugs.
        plugs: Keys of plugs that the checkpoint lacks.
        heads: Keys outside the backbone that the checkpoint lacks, or has in another shape.
        used: Share of the checkpoint's backbone tensors that were used.
        unused: Keys of the checkpoint that were not used.
    """

    source: str
    loaded: list[str]
    resized: list[str]
    missing: list[str]
    plugs: list[str]
    heads: list[str]
    used: float
    unused: list[str]

    @property
    def share(self) -> float:
        """Share of the backbone's tensors that were loaded."""
        return len(self.loaded) / max(1, len(self.loaded) + len(self.missing))

    def __str__(self) -> str:
        return (
            f'{self.source}: loaded {len(self.loaded)} of {len(self.loaded) + len(self.missing)} backbone tensors, '
            f'{len(self.resized)} of them resized; {len(self.plugs)} new plug tensors; missing {_count(self.missing)} '
            f'of the backbone, {_count(self.heads)} outside it; unused {_count(self.unused)}'
        )

    def check(self, least: float) -> None:
        """Refuses a checkpoint that covers too little of the backbone, or is used too little by it.

        Raises:
            ValueError: If a share is below ``least``; has the shares and example keys.
        """
        if self.share >= least and self.used >= least:
            return
        raise ValueError(
            f'{self.source}: this fits {self.share:.0%} of the backbone, and the backbone uses {self.used:.0%} of the '
            f'checkpoint, but min_coverage={least}; missing: {some_of(self.missing)}; unused: {some_of(self.unused)}. '
            'Use a checkpoint of the same architecture and plugs, or lower min_coverage if this is intended'
        )


def _count(keys: Collection[str]) -> str:
    return f'{len(keys)} ({some_of(keys, 3)})' if keys else '0'


def load_pretrained(
    module: nn.Module,
    checkpoint: str | os.PathLike,
    prefix: str | None = None,
    min_coverage: float = 0.9,
    unsafe_unpickle: bool = False,
    reset: Collection[str] = (),
) -> Coverage:
    """Loads a checkpoint of any known format into a backbone, or into a model with a ``backbone``.

    Position tables and bias tables are resized, and projections are adapted to the number of heads that plugs set. A
    classifier with another number of classes is not loaded. A one-line summary is logged.

    Args:
        module: The backbone or model.
        checkpoint: Path or address of the file.
        prefix: See :class:`Pretrained`, also for the other arguments.
        min_coverage: Minimum coverage.
        unsafe_unpickle: If True, the file may run code.
        reset: Parts of the names of tensors that are not loaded.

    Returns:
        The loaded, missing and unused tensors.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be read or has no known format, if the coverage is below ``min_coverage``, or if
            tensors do not fit.
    """
    path = local_file(checkpoint)
    content = read_checkpoint(path, unsafe_unpickle)
    weights, place = find_weights(content, path)
    wanted = {key: value for key, value in module.state_dict().items() if not is_derived(key)}
    try:
        given, known, _ = to_vitplug(weights, prefix)
        source = f'{path} ({known.name}{place and f", {place}"})'
        given, others = _choose(_without(given, reset), wanted)
        coverage = _cover(source, given, others, wanted)
        coverage.check(min_coverage)
        check_numbers(given, wanted, path)
        check_grid(module, given, read_settings(find_meta(content, path)), path)
        module.load_state_dict(given, strict=False)
    except WRONG_SHAPES as error:
        message = str(error) if str(path) in str(error) else f'{path}: {_shapes(error)}'
        raise ValueError(message) from error
    print_log(str(coverage), logger='current')
    return coverage


def _without(given: dict[str, Tensor], reset: Collection[str]) -> dict[str, Tensor]:
    """Drops the tensors with a part of their name in ``reset``."""
    if isinstance(reset, str):
        raise ValueError(f'reset={reset!r}: expected a list of parts of names, such as [{reset!r}]')
    parts = {key: key.split('.') for key in given}
    unknown = [name for name in reset if not any(name in found for found in parts.values())]
    if unknown:
        raise ValueError(f'reset={list(reset)}: no tensor has {unknown} in its name; remove it')
    return {key: value for key, value in given.items() if not set(reset) & set(parts[key])}


def _choose(given: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors for a model, by its own keys, and the keys that are not used."""
    if not any(key.startswith(BACKBONE) for key in wanted):
        below = {key.removeprefix(BACKBONE): value for key, value in given.items() if key.startswith(BACKBONE)}
        return below, [key for key in given if not key.startswith(BACKBONE)]
    present = next((name for name in CLASSIFIERS if any(key.startswith(name) for key in wanted)), None)
    if present:
        given = {_classifier(key, present): value for key, value in given.items()}
    other_classes = [
        key
        for key, value in given.items()
        if key in wanted and key.partition('.')[0].endswith('head') and value.shape != wanted[key].shape
    ]
    return {key: value for key, value in given.items() if key not in other_classes}, other_classes


def _classifier(key: str, present: str) -> str:
    """The key with the model's prefix of the classification layer, if it belongs to that layer."""
    for name in CLASSIFIERS:
        if key.startswith(name):
            return present + key.removeprefix(name)
    return key


def _cover(source: str, given: Mapping[str, Tensor], others: list[str], wanted: Mapping[str, Tensor]) -> Coverage:
    whole = any(key.startswith(BACKBONE) for key in wanted)
    in_backbone = [key for key in wanted if not whole or key.startswith(BACKBONE)]
    plugs = [key for key in in_backbone if is_plug(key)]
    host = [key for key in in_backbone if not is_plug(key)]
    loaded = [key for key in host if key in given]
    unused = [key for key in given if key not in wanted]
    offered = [key for key in given if not whole or key.startswith(BACKBONE)]
    return Coverage(
        source=source,
        loaded=loaded,
        resized=[key for key in loaded if given[key].shape != wanted[key].shape],
        missing=[key for key in host if key not in given],
        plugs=[key for key in plugs if key not in given],
        heads=[key for key in wanted if key not in given and whole and not key.startswith(BACKBONE)],
        used=sum(key in wanted for key in offered) / max(1, len(offered)),
        unused=unused + others,
    )


def is_plug(key: str) -> bool:
    """True if a tensor belongs to a plug."""
    return 'plugs' in key.split('.')


def check_grid(module: nn.Module, given: Mapping[str, Tensor], settings: Mapping, path: str | os.PathLike) -> None:
    """Checks that a position table with the right number of entries also has the backbone's grid.

    Args:
        module: The backbone, or a model with one.
        given: Weights by the module's keys.
        settings: The config of the checkpoint's training; its image size gives the grid of the table.
        path: The checkpoint, for the error.

    Raises:
        ValueError: If the grid differs, such as 2 x 8 instead of 8 x 2.
    """
    backbone, prefix = (module.backbone, BACKBONE) if hasattr(module, 'backbone') else (module, '')
    grid = getattr(backbone, 'patch_resolution', None)
    side = _image_size(settings, type(backbone))
    for name in POSITION_TABLES if grid and side else ():
        own, table = getattr(backbone, name, None), given.get(prefix + name)
        source = _closest_grid(grid[0] * grid[1], side[0] / side[1])
        if own is not None and getattr(table, 'shape', None) == own.shape and source != tuple(grid):
            raise ValueError(
                f'{path} was trained on images of {side[0]}x{side[1]}, and its {prefix}{name} is the table of a '
                f"{source[0]}x{source[1]} grid, not of {grid[0]}x{grid[1]}: set img_size to the checkpoint's, or "
                'resize the table before loading'
            )


def _image_size(settings: Mapping, backbone: type) -> tuple[int, int] | None:
    """Height and width of the images in a checkpoint's config, or None."""
    model = settings.get('model')
    cfg = model.get('backbone') if isinstance(model, Mapping) else None
    size = cfg.get('img_size', find_default(backbone, 'img_size')) if isinstance(cfg, Mapping) else None
    sides = size if isinstance(size, list | tuple) else (size, size)
    is_size = len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides)
    return tuple(sides) if is_size else None


def _closest_grid(entries: int, ratio: float) -> tuple[int, int]:
    """The grid ``(h, w)`` with this number of entries and ``h / w`` closest to ``ratio``."""
    grids = [(h, entries // h) for h in range(1, entries + 1) if entries % h == 0]
    return min(grids, key=lambda grid: abs(log(grid[0] / grid[1] / ratio)))


def find_mismatches(error: Exception) -> list[tuple[str, str, str]]:
    """The size mismatches in torch's error message: key, shape in the checkpoint and shape in the model."""
    return re.findall(r'size mismatch for (\S+): .*?\[(.*?)\].*?\[(.*?)\]', str(error), re.DOTALL)


def _shapes(error: Exception) -> str:
    """The first size mismatches of torch's message, or the whole message."""
    mismatches = find_mismatches(error)
    if not mismatches:
        return str(error)
    shown = '; '.join(f'{key} has shape ({theirs}), the model needs ({ours})' for key, theirs, ours in mismatches[:3])
    return (
        f'{len(mismatches)} tensors do not fit this model: {shown}. Use a checkpoint of the same architecture '
        '(width, heads, depth, patch size)'
    )
