"""Which tensors of a checkpoint a model takes, and which ones either lacks: what is free, and what is refused."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from vitplug.plugs.plug_set import is_plug

from .files import some_of
from .settings import ABSENT, find_default

BACKBONE = 'backbone.'
#: The rotary positions of Heo et al., whose frequencies no tensor shows.
AXIAL = 'axial or mixed'
# Norms and class blocks after the last block of a stage: which of them a model has depends on its outputs.
_AFTER_BLOCKS = re.compile(r'(?:norm\d*|ln[12]|downstream_norms|post_network)\.')
_STAGE_NORM = re.compile(r'(?:norm|downstream_norms\.)(\d+)\.')
# What pre-training leaves in a file beside the network.
_OF_PRETRAINING = re.compile(r'(?:mask_token|decoder_\w+|local_cls_norm)(?:\.|$)')
_BLOCK = re.compile(r'((?:stages\.\d+\.|transformers\.\d+\.)?(?:layers|blocks|encoder))\.(\d+)\.')
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
    (r'prefix_norm\..*', 'untied_norms=True', 'untied_norms=False'),
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
    own, theirs = _count_blocks(loaded + missing), _count_blocks(loaded + unused)
    advised = [
        *_advise(_in_both(unused, own, theirs), backbone, 1),
        *_advise(_in_both(missing, own, theirs), backbone, 2),
    ]
    arguments = [argument.format(num_storage_tokens) for argument in advised]
    if turned:
        arguments.append(f'rotary={rotary!r}' if rotary != AXIAL else "plugs=[dict(type='RotaryPosition')]")
    arguments += [
        f'an arch with {theirs[place]} blocks in {place}, not {own[place]}'
        for place in own
        if place in theirs and own[place] != theirs[place]
    ]
    advice = f'set {"; ".join(dict.fromkeys(arguments))}' if arguments else 'use a checkpoint of the same architecture'
    restart = ''
    if missing or unused:
        name = _part((missing or unused)[0])
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
    named = set()
    for row in _ARGUMENTS:
        argument = row[column].partition('=')[0]
        is_known = argument == 'type' or find_default(type(backbone), argument) is not ABSENT
        if is_known and argument not in named and any(re.fullmatch(row[0], key) for key in keys):
            named.add(argument)
            yield row[column]
    if column == 1 and any(is_plug(key) and '.rel_pos_mlp.' not in key for key in keys):
        yield 'the plugs of the checkpoint'


def _in_both(keys: Collection[str], own: Mapping[str, int], theirs: Mapping[str, int]) -> list[str]:
    """The tensors outside of blocks that only one of two networks has, whose numbers of blocks are given."""
    inside = {key: match for key in keys if (match := _BLOCK.match(key))}
    return [
        key
        for key in keys
        if key not in inside or int(inside[key][2]) < min(counts.get(inside[key][1], 0) for counts in (own, theirs))
    ]


def _count_blocks(keys: Iterable[str]) -> dict[str, int]:
    """The number of blocks by the list that they are in."""
    numbers_in: dict[str, set[str]] = {}
    for match in filter(None, map(_BLOCK.match, keys)):
        numbers_in.setdefault(match[1], set()).add(match[2])
    return {place: len(numbers) for place, numbers in numbers_in.items()}


def _tensors(keys: Collection[str]) -> str:
    return '1 tensor' if len(keys) == 1 else f'{len(keys)} tensors'


def _part(key: str) -> str:
    """A name for ``reset``: the block, or the module or parameter, of a tensor."""
    match = _BLOCK.match(key)
    return match[0].rstrip('.') if match else key.removesuffix('.weight').removesuffix('.bias')


def _count(keys: Collection[str]) -> str:
    return f'{len(keys)} ({some_of(keys, 3)})' if keys else '0'


# --- what no key shows ---

# The settings by which a backbone's is changed.
_SET = dict(num_heads='arch', activation='act_cfg', eps='eps in norm_cfg')


def describe_unseen(backbone: nn.Module) -> dict[str, object]:
    """Settings that change a network's outputs and not its tensors: heads, activation, epsilon of norms, rotations."""
    arch = getattr(backbone, 'arch_settings', {})
    norms = sorted({module.eps for module in backbone.modules() if isinstance(module, nn.LayerNorm)})
    activations = sorted({type(m).__name__ for m in backbone.modules() if type(m).__name__.endswith(('GELU', 'ReLU'))})
    rotary = getattr(getattr(backbone, 'rotary', None), 'mode', None)
    described = dict(num_heads=arch.get('num_heads'), activation=activations, eps=norms, rotary=rotary)
    return {key: value for key, value in described.items() if value}


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
        num_heads=_get(arch, 'num_heads'),
        activation=[activation.rpartition('.')[2]] if activation else None,
        eps=[_get(cfg, 'norm_cfg', 'eps')] if _get(cfg, 'norm_cfg', 'eps') else None,
    )
    for name, own in describe_unseen(backbone).items():
        if not theirs.get(name):
            continue
        same = plain(own) == plain(theirs[name]) if name == 'num_heads' else set(theirs[name]) <= set(own)
        if not same:
            raise ValueError(
                f'{path} was trained with {name}={plain(theirs[name])}, which its tensors do not show, and the '
                f'backbone has {plain(own)}: set {_SET[name]} as in the config of that training'
            )


def _get(cfg: object, *keys: str) -> object:
    """A setting in nested dicts, None where there is none."""
    for key in keys:
        cfg = cfg.get(key) if isinstance(cfg, Mapping) else None
    return cfg


def plain(value: object) -> str:
    """A value, or the values of a list, for a message."""
    return ' and '.join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)
