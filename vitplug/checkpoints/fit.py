"""Whether the tensors of a checkpoint fit a model: what is free, and what is refused."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitplug.plugs.plug_set import is_plug

from .files import WRONG_SHAPES, check_finite, some_of
from .formats import is_derived
from .formats.vit import ROTARY_PLUG
from .settings import BACKBONE, check_settings

# Allowed types of weights; torch would silently cast any other type.
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# What a backbone need not use of a file: norms and class blocks after the last block of a stage, of which a model has
# those that its outputs need, and what pre-training leaves beside the network.
_FREE = re.compile(
    r'(?:norm\d*|ln[12]|downstream_norms|post_network)\.|(?:mask_token|decoder_\w+|local_cls_norm)(?:\.|$)'
)
# Norms of the outputs of stages, of which a classifier has the last alone, or one without a number.
_STAGE_NORM = re.compile(r'(?:norm|downstream_norms\.)(\d+)\.')


@dataclass(frozen=True)
class Coverage:
    """Loaded, missing and unused tensors of a checkpoint, by the names of the backbone or of the model around it."""

    source: str  # file, format and place in the file
    loaded: list[str]  # of the backbone
    resized: list[str]  # those of them that have another shape in the checkpoint
    plugs: list[str]  # of plugs that the checkpoint lacks
    missing: list[str]  # others that it lacks, or has with another number of classes
    unused: list[str]  # of the checkpoint

    def __str__(self) -> str:
        return (
            f'{self.source}: loaded {len(self.loaded)} tensors of the backbone, {len(self.resized)} of them resized; '
            f'{len(self.plugs)} new ones of plugs; missing {_count(self.missing)}; unused {_count(self.unused)}'
        )


def _count(keys: Collection[str]) -> str:
    return f'{len(keys)} ({some_of(keys, 3)})' if keys else '0'


def check_fit(coverage: Coverage, backbone: nn.Module, reset: Collection[str], rotary: str) -> None:
    """Refuses a checkpoint of another network than the backbone's, by the coverage of the backbone alone.

    Free are plugs, heads, what only pre-training has, the norms after the blocks that the model's outputs do not need,
    those of a pyramid's stages that a classifier has no output of, and what ``reset`` names. ``rotary`` is the setting
    of the rotary positions of the file's network; '' for none or unknown.

    Raises:
        ValueError: If a tensor of the backbone is missing or unused, or positions are rotated otherwise.
    """
    missing = [key for key in coverage.missing if not is_named(key, reset)]
    if _is_of_classifier(coverage, backbone):
        missing = [key for key in missing if not _STAGE_NORM.match(key)]
    unused = [key for key in coverage.unused if not _FREE.match(key) and key not in getattr(backbone, 'leaves_out', ())]
    problems = []
    if missing:
        problems.append(f'it lacks {len(missing)} tensors that the backbone needs: {some_of(missing)}')
    if unused:
        problems.append(f'the backbone has no place for {len(unused)} tensors of it: {some_of(unused)}')
    if rotary and rotary not in _rotations(backbone):
        other = ', or take the file of timm if it is of DeiT III, whose authors have the same keys'
        advice = f'set {rotary}{other if rotary == ROTARY_PLUG else ""}'
        problems.append(f'its positions are rotated, which no tensor needs to show: {advice}')
    if problems:
        raise ValueError(
            f'{coverage.source} is of another network: {"; ".join(problems)}. docs/checkpoints.md has the arguments of '
            f'its network; to start from the rest all the same, list parts of such names: reset=[...]'
        )


def _is_of_classifier(coverage: Coverage, backbone: nn.Module) -> bool:
    """Whether a file has the whole norm of the last stage alone, under its number or without one."""
    names = [*coverage.loaded, *coverage.unused]
    stages = {match[1] for key in names if (match := _STAGE_NORM.match(key))}
    last = str(len(getattr(backbone, 'sections', list)()) - 1)
    lacks_part = any(key.startswith(f'norm{last}.') for key in coverage.missing)
    return (stages == {last} and not lacks_part) or (not stages and 'norm.weight' in names)


def _rotations(backbone: nn.Module) -> list[str]:
    """The settings of a backbone's rotary positions, as formats have them; plugs rotate as Heo et al. in two modes."""
    parts = [part for block in getattr(backbone, 'plugged_blocks', list)() for part in block.plugs.values()]
    modes = [part.plug.mode for part in parts if part.plug.name == 'rotary_position']
    own = f'rotary={getattr(getattr(backbone, "rotary", None), "mode", None)!r}'
    return [own, ROTARY_PLUG] if {*modes} & {'axial', 'mixed'} else [own]


def is_named(key: str, names: Collection[str]) -> bool:
    """True if a tensor has one of these names, or parts of names such as ``'layers.11'``, in its own."""
    return any(f'.{name}.' in f'.{key}.' for name in names)


# --- a whole model's weights ---


def check_state(
    model: nn.Module, state: Mapping[str, Tensor], settings: Mapping, path: str | os.PathLike, exact: bool = False
) -> None:
    """Checks the weights of a training, by the model's keys, before anything is loaded.

    Hosts resize tensors of another shape; ``exact`` refuses them, as an optimizer's state is not resized. ``settings``
    is the config of their training, see :func:`~vitplug.checkpoints.settings.read_settings`.

    Raises:
        ValueError: If a number is not finite, or a tensor of another type or, if ``exact``, of another shape than the
            model's, or if the settings show another network, see :func:`~vitplug.checkpoints.settings.check_settings`.
    """
    own = model.state_dict()
    # Masks and the like hold infinity in every model.
    finite = {name for name, value in own.items() if value.isfinite().all()}
    check_finite({name: value for name, value in state.items() if name in finite}, path)
    for name, value in state.items():
        if name in own and own[name].is_floating_point() and value.dtype not in FLOATS:
            raise ValueError(
                f'{path}: {name} is stored as {value.dtype}: get a file with the original, unconverted weights'
            )
    check_settings(model, state, settings, path)
    if changed := [name for name in own if exact and name in state and own[name].shape != state[name].shape]:
        raise misfit(path, changed, len(own))


def load_state(model: nn.Module, state: Mapping[str, Tensor], path: str | os.PathLike) -> None:
    """Loads all weights of a model.

    Raises:
        ValueError: If a tensor of the model is missing or does not fit, or one of a backbone or plug has no place.
    """
    try:
        missing, unexpected = model.load_state_dict(state, strict=False)
    except WRONG_SHAPES as error:
        raise ValueError(f'{path} does not fit the model of the config: {error}') from error
    if lacking := [name for name in missing if not is_derived(name) and not name.endswith('num_batches_tracked')]:
        raise misfit(path, lacking, len(model.state_dict()))
    unused = [name for name in unexpected if (name.startswith(BACKBONE) or is_plug(name)) and not is_derived(name)]
    # mmseg's ViT has a class token without with_cls_token, too, and does not use it.
    backbone = getattr(model, 'backbone', model)
    if 'cls_token' in getattr(backbone, 'leaves_out', ()) and backbone.cls_token is None:
        unused = [name for name in unused if name != f'{BACKBONE}cls_token']
    if unused:
        raise ValueError(
            f'{path} does not fit the model of the config: it has {len(unused)} weights for which the backbone has no '
            f'place, e.g. {some_of(unused, 3)}: use the config of this checkpoint with all its plugs'
        )


def misfit(path: str | os.PathLike, lacking: Collection[str], count: int) -> ValueError:
    """The error for tensors of a model, of ``count``, that a checkpoint lacks or has in another shape."""
    return ValueError(
        f'{path} does not fit the model of the config: {len(lacking)} of its {count} parameters and buffers are not in '
        f'it, or in another shape, e.g. {some_of(lacking, 3)}: use a checkpoint of this config'
    )
