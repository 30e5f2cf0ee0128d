"""Loads pretrained weights of any known format into a backbone or model."""

import os
import re
from collections.abc import Collection, Mapping
from math import log

import torch
from mmengine.logging import print_log
from mmengine.model.weight_init import update_init_info
from torch import Tensor, nn

from vitplug.plugs.plug_set import is_plug
from vitplug.registry import WEIGHT_INITIALIZERS

from .files import (
    WRONG_SHAPES,
    check_finite,
    check_numbers,
    find_meta,
    find_weights,
    local_file,
    read_checkpoint,
    some_of,
)
from .fit import BACKBONE, Coverage, check_fit, check_unseen, describe_unseen, is_named, plain
from .formats import is_derived, to_vitplug
from .position_tables import PREFIXES, find_grid, square_grid
from .settings import find_default, read_settings

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
        unsafe_unpickle: If True, the file may run code.
        reset: Parts of the names of tensors that start anew, such as ``['rel_pos_mlp', 'layers.11']``: they are not
            loaded, and the file or the model may lack them.

    Raises:
        ValueError: As in :func:`load_pretrained`.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike,
        prefix: str | None = None,
        unsafe_unpickle: bool = False,
        reset: Collection[str] = (),
    ):
        self.settings = dict(prefix=prefix, unsafe_unpickle=unsafe_unpickle, reset=reset)
        self.checkpoint = checkpoint

    def __call__(self, module: nn.Module) -> None:
        init_cfg = getattr(module, 'init_cfg', None)
        if isinstance(init_cfg, list | tuple) and any(loads_checkpoint(cfg) for cfg in init_cfg[:-1]):
            raise ValueError(
                f'init_cfg={init_cfg}: vitplug.Pretrained must come last; later initialisers overwrite the loaded '
                'weights'
            )
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


def load_pretrained(
    module: nn.Module,
    checkpoint: str | os.PathLike,
    prefix: str | None = None,
    unsafe_unpickle: bool = False,
    reset: Collection[str] = (),
) -> Coverage:
    """Loads a checkpoint of any known format into a backbone, or into a model with a ``backbone``.

    The file and the backbone must be the same network. Position tables and bias tables are resized, and projections are
    adapted to the number of heads that plugs set. Plugs that the file lacks start as ever, and so does a classifier
    with another number of classes. A one-line summary is logged.

    Args:
        module: The backbone or model.
        checkpoint: Path or address of the file.
        prefix: See :class:`Pretrained`, also for the other arguments.
        unsafe_unpickle: If True, the file may run code.
        reset: Parts of the names of tensors that start anew.

    Returns:
        The loaded, missing and unused tensors.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be read or has no known format, if the backbone needs tensors that the file
            lacks or has no place for the file's, if its config states other settings that tensors do not show, or if
            tensors do not fit. Some may have been loaded.
    """
    path = local_file(checkpoint)
    return load_content(module, read_checkpoint(path, unsafe_unpickle), path, prefix, reset)


def load_content(
    module: nn.Module,
    content: Mapping,
    path: str | os.PathLike,
    prefix: str | None = None,
    reset: Collection[str] = (),
) -> Coverage:
    """The same of the content of a checkpoint that has been read from ``path``."""
    weights, weights_key = find_weights(content, path)
    wanted = {key: value for key, value in module.state_dict().items() if not is_derived(key)}
    is_whole = any(key.startswith(BACKBONE) for key in wanted)
    backbone, outer = (module.backbone, BACKBONE) if is_whole else (module, '')
    settings = read_settings(find_meta(content, path))
    try:
        given, known, _ = to_vitplug(weights, prefix)
        given, beside = _choose(given, wanted, is_whole)
        given = _without(given, reset, wanted)
        check_numbers(given, wanted, path)
        check_grid(module, given, settings, path)
        free = [outer + name for name in known.without_bias]
        zeros = [key for key in wanted if key not in given and any(re.fullmatch(name, key) for name in free)]
        given |= {key: torch.zeros_like(wanted[key]) for key in zeros}
        # What remains after the hosts' hooks, which rename and leave out what plugs have made of no use.
        missing, unused = module.load_state_dict(given, strict=False)
    except WRONG_SHAPES as error:
        message = str(error) if str(path) in str(error) else f'{path}: {_shapes(error)}'
        raise ValueError(message) from error
    inside = [key for key in wanted if key.startswith(outer)]
    missing = [key for key in missing if key in wanted and not key.endswith('.num_batches_tracked')]
    loaded = [key for key in inside if key not in missing and key not in zeros]
    coverage = Coverage(
        source=f'{path} ({known.name}{weights_key and f", {weights_key}"})',
        loaded=[key for key in loaded if not is_plug(key)],
        resized=[key for key in loaded if key in given and given[key].shape != wanted[key].shape],
        zeros=zeros,
        missing=[key for key in missing if key in inside and not is_plug(key)],
        plugs=[key for key in missing if key in inside and is_plug(key)],
        heads=[key for key in missing if key not in inside],
        unused=[key for key in unused if not is_derived(key)],
        beside=beside,
        unseen=', '.join(f'{name} {plain(value)}' for name, value in describe_unseen(backbone).items()),
    )
    registers = given.get(f'{outer}storage_tokens')
    check_fit(coverage, backbone, outer, reset, known.rotary, 0 if registers is None else registers.shape[1])
    check_unseen(settings, backbone, path)
    print_log(str(coverage), logger='current')
    return coverage


def check_state(
    model: nn.Module, state: Mapping[str, Tensor], settings: Mapping, path: str | os.PathLike, exact: bool = False
) -> None:
    """Checks the weights of a training, by the model's keys, before anything is loaded.

    Args:
        model: The model.
        state: The weights.
        settings: The config of their training, see :func:`~vitplug.checkpoints.settings.read_settings`.
        path: The checkpoint, for the error.
        exact: Refuse tensors of another shape, which hosts would resize: an optimizer's state is not resized.

    Raises:
        ValueError: If a number is not finite, or a tensor of another type, of another grid of tokens or, if ``exact``,
            of another shape than the model's.
    """
    own = model.state_dict()
    # Masks and the like hold infinity in every model.
    finite = {name for name, value in own.items() if value.isfinite().all()}
    check_finite({name: value for name, value in state.items() if name in finite}, path)
    check_numbers(state, own, path)
    check_grid(model, state, settings, path)
    if changed := [name for name in own if exact and name in state and own[name].shape != state[name].shape]:
        raise misfit(path, changed, len(own))


def load_state(model: nn.Module, state: Mapping[str, Tensor], path: str | os.PathLike) -> list[str]:
    """Loads all weights of a model.

    Returns:
        The weights of a backbone and of plugs in ``state`` that the model has no place for.

    Raises:
        ValueError: If a tensor of the model is missing, or does not fit.
    """
    try:
        missing, unexpected = model.load_state_dict(state, strict=False)
    except WRONG_SHAPES as error:
        raise ValueError(f'{path} does not fit the model of the config: {error}') from error
    lacking = [name for name in missing if not is_derived(name) and not name.endswith('num_batches_tracked')]
    if lacking:
        raise misfit(path, lacking, len(model.state_dict()))
    return [name for name in unexpected if (name.startswith(BACKBONE) or is_plug(name)) and not is_derived(name)]


def misfit(path: str | os.PathLike, lacking: Collection[str], count: int) -> ValueError:
    """The error for tensors of a model, of ``count``, that a checkpoint lacks or has in another shape."""
    return ValueError(
        f'{path} does not fit the model of the config: {len(lacking)} of its {count} parameters and buffers are not in '
        f'it, or in another shape, e.g. {some_of(lacking, 3)}: use a checkpoint of this config'
    )


def _without(given: dict[str, Tensor], reset: Collection[str], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drops the tensors with a part of their name in ``reset``."""
    if isinstance(reset, str):
        raise ValueError(f'reset={reset!r}: expected a list of parts of names, such as [{reset!r}]')
    unknown = [name for name in reset if not any(is_named(key, [name]) for key in (*given, *wanted))]
    if unknown:
        raise ValueError(f'reset={list(reset)}: no tensor has {unknown} in its name; remove it')
    return {key: value for key, value in given.items() if not is_named(key, reset)}


def _choose(
    given: dict[str, Tensor], wanted: Mapping[str, Tensor], is_whole: bool
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors for a model, by its own keys, and the keys that are not used."""
    if not is_whole:
        below = {key.removeprefix(BACKBONE): value for key, value in given.items() if key.startswith(BACKBONE)}
        return below, [key for key in given if not key.startswith(BACKBONE)]
    present = next((name for name in CLASSIFIERS if any(key.startswith(name) for key in wanted)), None)
    for name in CLASSIFIERS if present else ():
        given = {re.sub(f'^{re.escape(name)}', present, key): value for key, value in given.items()}
    other_classes = [
        key
        for key, value in given.items()
        if key in wanted and key.partition('.')[0].endswith('head') and value.shape != wanted[key].shape
    ]
    return {key: value for key, value in given.items() if key not in other_classes}, other_classes


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
    grid = getattr(backbone, 'patch_resolution', None)
    side = _image_size(settings, type(backbone))
    prefixes = (getattr(backbone, 'num_placed_tokens', 0), *PREFIXES)
    for name in POSITION_TABLES if grid else ():
        table = given.get(prefix + name)
        if getattr(backbone, name, None) is None or getattr(table, 'ndim', 0) != 3:  # a map (1, D, h, w) has its grid
            continue
        taken, extra = find_grid(table.shape[1], grid, prefixes) or (None, 0)
        entries = table.shape[1] - extra
        source = _closest_grid(entries, side[0] / side[1]) if side else square_grid(entries)
        if taken and source and source != taken:
            trained = f'was trained on images of {side[0]}x{side[1]}' if side else 'does not say for which images it is'
            raise ValueError(
                f'{path} {trained}, and its {prefix}{name} is the table of a {source[0]}x{source[1]} grid, not of '
                f"{taken[0]}x{taken[1]}: set img_size to the checkpoint's, or resize the table before loading"
            )


def _image_size(settings: Mapping, backbone: type) -> tuple[int, int] | None:
    """Height and width of the images in a checkpoint's config, or None."""
    model = settings.get('model')
    cfg = model.get('backbone') if isinstance(model, Mapping) else None
    size = cfg.get('img_size', find_default(backbone, 'img_size')) if isinstance(cfg, Mapping) else None
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    return sides if len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides) else None


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
