"""Whether the tensors of a checkpoint fit a model: what is free, and what is refused."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitplug.plugs.plug_set import is_plug

from .files import WRONG_SHAPES, check_finite, some_of
from .formats import is_derived
from .settings import defaults
from .unseen import BACKBONE, check_grid

#: The rotary positions of Heo et al., whose frequencies no tensor shows.
AXIAL = 'axial or mixed'
# Allowed types of weights; torch would silently cast any other type.
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Norms and class blocks after the last block of a stage: which of them a model has depends on its outputs.
_AFTER_BLOCKS = re.compile(r'(?:norm\d*|ln[12]|downstream_norms|post_network)\.')
_STAGE_NORM = re.compile(r'(?:norm|downstream_norms\.)(\d+)\.')
# What pre-training leaves in a file beside the network.
_OF_PRETRAINING = re.compile(r'(?:mask_token|decoder_\w+|local_cls_norm)(?:\.|$)')
# A tensor's name, and the argument of a host that makes its network with it, and without it. Of rows with one argument,
# the first counts.
_ARGUMENTS = [
    (r'.*\.gamma[12]\.weight', 'layer_scale_init_value=1e-5', 'layer_scale_init_value=0.0'),
    (r'pre_norm\..*', 'pre_norm=True', 'pre_norm=False'),
    (r'cls_token', 'with_cls_token=True', 'with_cls_token=False'),
    (r'(?:absolute_)?pos_embed', 'use_abs_pos_embed=True', 'use_abs_pos_embed=False'),
    (r'.*\.qkv\.bias', 'qkv_bias=True', 'qkv_bias=False'),
    (r'patch_embed\.projection\.bias', 'patch_cfg=dict(bias=True)', 'patch_cfg=dict(bias=False)'),
    (r'patch_embed\.norm\..*', "patch_cfg=dict(norm_cfg=dict(type='LN'))", 'patch_cfg=dict(norm_cfg=None)'),
    (r'(?:ln1|norm)\..*', 'final_norm=True', 'final_norm=False'),
    (r'ln2\..*', "out_type='avg_featmap'", "out_type='cls_token' or 'featmap'"),
    (r'.*\.plugs\.rel_pos_mlp\..*', "plugs=[dict(type='RelPosMlp')]", 'plugs=[]'),
    (r'storage_tokens', 'num_storage_tokens={}', 'num_storage_tokens=0'),
    (r'.*\.relative\..*', 'use_rel_pos_bias=True', 'use_rel_pos_bias=False'),
    (r'.*\.ffn\.norm\..*', "layer_cfgs=dict(ffn_type='swiglu', ffn_norm=True)", 'layer_cfgs=dict(ffn_norm=False)'),
    (r'.*\.ffn\.w12\..*', "layer_cfgs=dict(ffn_type='swiglu')", "layer_cfgs=dict(ffn_type='origin')"),
    (r'dist_token', "type='vitplug.DistilledVisionTransformer'", "type='vitplug.VisionTransformer'"),
]


@dataclass(frozen=True)
class Coverage:
    """Loaded, missing and unused tensors of a checkpoint and a model, by the model's keys.

    Args:
        source: File, format and place in the file.
        loaded: Keys of the backbone that were loaded.
        resized: Loaded keys that have another shape in the checkpoint.
        zeros: Keys of biases that the checkpoint's network has not, set to 0.
        missing: Keys of the backbone that the checkpoint lacks, without plugs.
        plugs: Keys of plugs that the checkpoint lacks.
        heads: Keys outside the backbone that the checkpoint lacks, or has in another shape.
        unused: Keys of the checkpoint that were not used.
        beside: The same outside of its backbone.
        unseen: Settings of the model that no key shows.
    """

    source: str
    loaded: list[str]
    resized: list[str]
    zeros: list[str]
    missing: list[str]
    plugs: list[str]
    heads: list[str]
    unused: list[str]
    beside: list[str]
    unseen: str

    def __str__(self) -> str:
        zeros = f'; {_count(self.zeros)} set to 0, which that network lacks' if self.zeros else ''
        return (
            f'{self.source}: loaded {len(self.loaded)} of {len(self.loaded) + len(self.missing)} backbone tensors, '
            f'{len(self.resized)} of them resized; {len(self.plugs)} new plug tensors; missing {_count(self.missing)} '
            f'of the backbone, {_count(self.heads)} outside it; unused {_count([*self.unused, *self.beside])}{zeros}'
            f'{self.unseen and f"; no key shows {self.unseen}"}'
        )


def check_fit(
    coverage: Coverage,
    backbone: nn.Module,
    prefix: str,
    reset: Collection[str],
    rotary: str = '',
    num_storage_tokens: int = 0,
) -> None:
    """Refuses a checkpoint of another network than the backbone's.

    Free are plugs, heads, what only pre-training has, the norms after the blocks that the model's outputs do not need,
    those of a pyramid's stages that a classifier has no output of, and what ``reset`` names.

    Args:
        coverage: What was found.
        backbone: The backbone.
        prefix: Prefix of its keys in the coverage.
        reset: Names of tensors that start anew, see :func:`is_named`.
        rotary: The kind of rotary positions of the file's network; '' for none or unknown.
        num_storage_tokens: Registers of the file's network.

    Raises:
        ValueError: If a tensor of the backbone is missing or unused, or positions are rotated otherwise; names the
            arguments that avoid it.
    """
    loaded, missing, unused = (_below(prefix, k) for k in (coverage.loaded, coverage.missing, coverage.unused))
    stages = {match[1] for key in loaded if (match := _STAGE_NORM.match(key))}
    missing = [key for key in missing if not is_named(key, reset) and not _is_further_output(key, stages)]
    unused = [key for key in unused if not _is_free(key) and key not in getattr(backbone, 'leaves_out', ())]
    turned = bool(rotary) and not _rotates(backbone, rotary)
    if not missing and not unused and not turned:
        return
    problems = []
    if missing:
        problems.append(f'it lacks {_tensors(missing)} that the backbone needs: {some_of(missing)}')
    if unused:
        problems.append(f'the backbone has no place for {_tensors(unused)} of it: {some_of(unused)}')
    if turned:
        problems.append(f'its positions are rotated as {rotary!r}, which no tensor needs to show')
    own, theirs = ({_kind(key) for key in (*loaded, *keys)} for keys in (missing, unused))
    arguments = [*_advise(theirs - own, backbone, 1), *_advise(own - theirs, backbone, 2)]
    arguments = [argument.format(num_storage_tokens) for argument in arguments]
    if turned:
        arguments.append(f'rotary={rotary!r}' if rotary != AXIAL else "plugs=[dict(type='RotaryPosition')]")
    advice = f'set {"; ".join(arguments)}' if arguments else 'use a checkpoint of the same architecture'
    restart = ''
    if missing or unused:
        name = (missing or unused)[0].removesuffix('.weight').removesuffix('.bias')
        restart = f' To start from the rest all the same, list parts of these names: reset=[{name!r}, ...]'
    raise ValueError(
        f'{coverage.source} is of another network: {"; ".join(problems)}. For the same network, {advice}.{restart}'
    )


def _rotates(backbone: nn.Module, kind: str) -> bool:
    """True if a backbone has rotary positions of a kind; those of :data:`AXIAL` are a plug's, mixed ones too."""
    if kind != AXIAL:
        return getattr(getattr(backbone, 'rotary', None), 'mode', '') == kind
    parts = [part for block in getattr(backbone, 'plugged_blocks', list)() for part in block.plugs.values()]
    return any(part.plug.name == 'rotary_position' and part.plug.mode in ('axial', 'mixed') for part in parts)


def is_named(key: str, names: Collection[str]) -> bool:
    """True if a tensor has one of these names, or parts of names such as ``'layers.11'``, in its own."""
    return any(f'.{name}.' in f'.{key}.' for name in names)


def _below(prefix: str, keys: Collection[str]) -> list[str]:
    return [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]


def _is_free(key: str) -> bool:
    """True for a tensor of a file that a backbone need not use."""
    return bool(_AFTER_BLOCKS.match(key) or _OF_PRETRAINING.match(key))


def _is_further_output(key: str, stages: Collection[str]) -> bool:
    """True for a norm of an output that a classifier, which has one stage's norm alone, does not have."""
    match = _STAGE_NORM.match(key)
    is_downstream = key.startswith('downstream_norms.')  # a classifier has none of them
    return match is not None and (not stages if is_downstream else len(stages) == 1 and match[1] not in stages)


def _advise(keys: Collection[str], backbone: nn.Module, column: int) -> Iterator[str]:
    """The arguments that give the backbone these tensors (column 1), or take them from it (column 2)."""
    named, known = set(), defaults(type(backbone))
    for row in _ARGUMENTS:
        argument = row[column].partition('=')[0]
        is_known = argument == 'type' or argument in known
        if is_known and argument not in named and any(re.fullmatch(row[0], key) for key in keys):
            named.add(argument)
            yield row[column]
    if column == 1 and any(is_plug(key) and '.rel_pos_mlp.' not in key for key in keys):
        yield 'the plugs of the checkpoint'


def _kind(key: str) -> str:
    """A tensor's name without its numbers: networks of other depths have the same kinds of tensors."""
    return re.sub(r'\.\d+\.', '.{}.', key)


def _tensors(keys: Collection[str]) -> str:
    return '1 tensor' if len(keys) == 1 else f'{len(keys)} tensors'


def _count(keys: Collection[str]) -> str:
    return f'{len(keys)} ({some_of(keys, 3)})' if keys else '0'


# --- a whole model's weights ---


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
    for name, value in state.items():
        if name in own and own[name].is_floating_point() and value.dtype not in FLOATS:
            raise ValueError(
                f'{path}: {name} is stored as {value.dtype}: expected one of {[str(kind) for kind in FLOATS]}; '
                'get a file with the original, unconverted weights'
            )
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
