"""Compares the hosts with the backbones of all stock configs that are Swin or ViT: python docs/tools/stock_sweep.py

For every such backbone in the configs that mmdet, mmseg and mmpretrain install: the host takes its arguments, the names
and shapes of all parameters, at full size; the outputs of two blocks a stage in float64, without plugs and with one
that is set to zero, at image sizes that no patch and no window divides; files of that library; for every config, the
learning rate and weight decay of each parameter under its own ``optim_wrapper``. Writes the table of docs/hosts.md.
Takes about ten minutes.
"""

import argparse
import importlib
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.model import BaseModule
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

import vitplug.registry  # noqa: F401 (finds configs of mmseg)
from vitplug import backbones as hosts
from vitplug.checkpoints import load_pretrained
from vitplug.checkpoints.formats.vit import MMSEG_VIT
from vitplug.checkpoints.pretrained import load_content

PAGE = Path(__file__).parents[1] / 'hosts.md'
BEGIN, END = '<!-- stock configs: docs/tools/stock_sweep.py -->\n', '<!-- end of stock configs -->\n'
LIBRARIES = ('mmdet', 'mmseg', 'mmpretrain')
KINDS = ('SwinTransformer', 'SwinTransformerV2', 'VisionTransformer', 'DistilledVisionTransformer')
# Settings that change no output in evaluation mode.
WITHOUT_EFFECT = ('with_cp', 'drop_path_rate', 'convert_weights')
GAB = [dict(type='GaussianAttentionBias')]
# Neither patches of 4, 14, 16 or 32 nor windows divide it; the larger one has no map smaller than a window.
SMALL, LARGE = (97, 131), (389, 401)


@dataclass
class Row:
    """The configs with one class at one place of the model."""

    configs: set[str] = field(default_factory=set)
    backbones: int = 0
    compared: int = 0
    difference: float = 0.0
    groups: Counter[str] = field(default_factory=Counter)
    loaded: int = 0
    refused: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def backbones(part: object, place: str = 'model') -> Iterator[tuple[str, dict]]:
    """The places of Swin and ViT in a model, and their settings."""
    if isinstance(part, Mapping):
        if str(part.get('type')).rpartition('.')[2] in KINDS:
            yield place, dict(part)
        for key, value in part.items():
            yield from backbones(value, f'{place}.{key}')
    elif isinstance(part, list | tuple):
        for value in part:
            yield from backbones(value, place)


def configs(library: str) -> Iterator[tuple[str, Config]]:
    """The configs of whole models that a library installs, and that mmengine can read."""
    folder = Path(importlib.import_module(library).__file__).parent / '.mim' / 'configs'
    for path in sorted(folder.rglob('*.py')):
        if '_base_' not in path.parts:
            try:
                cfg = Config.fromfile(path)
            except Exception as error:
                print(f'{path.relative_to(folder)} cannot be read: {error!r:.100}', file=sys.stderr)
                continue
            if cfg.get('model') is not None:
                yield str(path.relative_to(folder)), cfg


class Model(BaseModule):
    """A backbone as any model has it, and its depths as mmpretrain's classifiers give them."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone = backbone

    def get_layer_depth(self, name: str) -> tuple[int, int]:
        return self.backbone.get_layer_depth(name, 'backbone.')


def shallow(settings: Mapping) -> dict:
    """The same network with two blocks in each stage."""
    settings = deepcopy(dict(settings))
    arch = settings.get('arch')
    if arch is not None:
        zoo = getattr(hosts, settings['type'].rpartition('.')[2]).arch_zoo
        arch = settings['arch'] = dict(zoo[arch] if isinstance(arch, str) else arch)
    sizes = settings if arch is None else arch
    if 'depths' in sizes:
        sizes['depths'] = [min(depth, 2) for depth in sizes['depths']]
        return settings
    if sizes.get('num_layers', 12) > 2 and isinstance(settings.get('out_indices'), list | tuple):
        settings['out_indices'] = (0, 1)
    if settings.get('frozen_stages', -1) > 2:
        settings['frozen_stages'] = 2
    sizes['num_layers'] = 2
    return settings


def build(settings: Mapping, host: bool, device: str = 'cpu', **more) -> nn.Module:
    """The backbone of some settings: the library's, or the host."""
    settings = {key: value for key, value in settings.items() if key not in ('init_cfg', 'pretrained')}
    if host:
        settings |= dict(type=f'vitplug.{settings["type"].rpartition(".")[2]}', **more)
    # Rates of drop paths are read from a tensor, which has values on a CPU alone.
    with torch.device(device), patch('torch.linspace', partial(torch.linspace, device='cpu')):
        return MODELS.build(deepcopy(settings))


def own_name(name: str) -> str:
    """The host's name of a parameter of the library's."""
    (ours,) = MMSEG_VIT.to_vitplug({name.removeprefix('backbone.'): torch.empty(0)})
    return ours.removeprefix('backbone.')


def compare(settings: Mapping, row: Row) -> None:
    """Names at full size, outputs and files of a shallow network."""
    stock, ours = build(settings, False, 'meta'), build(settings, True, 'meta')
    leaves_out = ours.leaves_out
    # Without a class token, mmseg's ViT still has one, and its position, which no output depends on.
    left = (*leaves_out, *(['pos_embed'] if settings.get('with_cls_token') is False else []))
    named = [
        {own_name(name): p.shape for name, p in model.named_parameters() if name not in left} for model in (stock, ours)
    ]
    if named[0] != named[1]:
        differ = sorted(name for name in named[0] | named[1] if named[0].get(name) != named[1].get(name))
        raise ValueError(f'other parameters: {differ[:3]}')
    small = shallow(settings)
    torch.manual_seed(0)
    stock, ours, plugged = build(small, False), build(small, True), build(small, True, plugs=GAB)
    for parameter in stock.parameters():
        nn.init.normal_(parameter, std=0.2 / max(1, parameter.shape[-1] / 64) ** 0.5)
    for model in (ours, plugged):
        load_content(model, stock.state_dict(), 'the stock weights')
    is_small = 'arch' not in settings or settings.get('pad_small_map') or isinstance(ours, hosts.VisionTransformer)
    images = torch.randn(1, settings.get('in_channels', 3), *(SMALL if is_small else LARGE), dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in plugged.named_parameters():
            if name.endswith('gab_amplitude'):
                parameter.zero_()
        for model in (stock, ours, plugged):
            model.double().train(False)
        expected = flat(stock(images))
        for model in (ours, plugged):
            got = flat(model(images))
            if [t.shape for t in got] != [t.shape for t in expected]:
                raise ValueError('outputs of other shapes')
            for e, g in zip(expected, got, strict=True):
                row.difference = max(row.difference, float((g - e).abs().max() / e.abs().max()))
    load(small, stock, row)


def flat(outputs) -> list[Tensor]:
    """All tensors of outputs."""
    return [outputs] if isinstance(outputs, Tensor) else [tensor for out in outputs for tensor in flat(out)]


def load(settings: Mapping, stock: nn.Module, row: Row) -> None:
    """Counts the library's own files that the host loads."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save(dict(state_dict=stock.float().state_dict()), Path(folder, 'file.pth'))
        host = build(settings, True, plugs=GAB)
        coverage = load_pretrained(host, Path(folder, 'file.pth'))
    row.loaded += all(name.startswith('norm') for name in coverage.missing) and {*coverage.unused} <= {*host.leaves_out}


def groups(settings: Mapping, wrapper: Mapping, host: bool, plugs=()) -> dict[str, tuple]:
    """Learning rate, weight decay and depth of each parameter by its own name, without those of plugs."""
    model = Model(build(settings, host, 'meta', **(dict(plugs=plugs) if host else {})))
    wrapper = deepcopy(dict(wrapper, type='OptimWrapper'))
    for key in ('dtype', 'loss_scale', 'use_fp16', 'clip_grad'):
        wrapper.pop(key, None)
    found = build_optim_wrapper(model, wrapper).optimizer.param_groups
    names = {id(p): own_name(name.removeprefix('backbone.')) for name, p in model.named_parameters()}
    return {
        names[id(p)]: (group['lr'], group.get('weight_decay'), group.get('layer_id'))
        for group in found
        for p in group['params']
        if '.plugs.' not in names[id(p)]
    }


def same_groups(settings: Mapping, wrapper: Mapping) -> bool:
    """Whether the host, also with a plug, has the groups of the library's backbone."""
    stock = groups(settings, wrapper, False)
    left_out = build(settings, True, 'meta').leaves_out
    stock = {name: group for name, group in stock.items() if name not in left_out or name == 'cls_token'}
    for plugs in ((), GAB):
        ours = groups(settings, wrapper, True, plugs)
        if {**ours, **{k: v for k, v in stock.items() if k not in ours and k == 'cls_token'}} != stock:
            return False
    return True


def sweep() -> dict[tuple[str, str, str], Row]:
    """A row for each library, place and class."""
    MMLogger.get_current_instance().setLevel('ERROR')
    rows: dict[tuple[str, str, str], Row] = defaultdict(Row)
    for library in LIBRARIES:
        init_default_scope(library)
        seen: dict[str, str] = {}
        compared: dict[str, bool] = {}
        for path, cfg in configs(library):
            for place, settings in backbones(cfg.model.to_dict()):
                settings.pop('init_cfg', None)
                kind = settings['type'].rpartition('.')[2]
                row = rows[library, place.removeprefix('model.'), kind]
                row.configs.add(path)
                outer = {name: value for name, value in settings.items() if name not in WITHOUT_EFFECT}
                key, wrapper = repr((place, outer)), cfg.get('optim_wrapper')
                if key not in seen:
                    seen[key] = attempt(settings, row)
                if seen[key]:
                    row.refused[seen[key]].add(path)
                elif wrapper is not None:
                    both = repr((outer, wrapper))
                    if both not in compared:
                        compared[both] = same_groups(settings, wrapper.to_dict())
                    row.groups['equal' if compared[both] else 'different'] += 1
                print(library, path, kind, seen[key] or f'{row.difference:.1e}', dict(row.groups), flush=True)
    return rows


def attempt(settings: Mapping, row: Row) -> str:
    """Compares, and says why it could not."""
    row.backbones += 1
    try:
        compare(settings, row)
        row.compared += 1
    except (ValueError, TypeError, RuntimeError) as error:
        return re.sub(r'\S*/file\.pth: ', 'its file: ', str(error).splitlines()[0])
    return ''


def table(rows: Mapping[tuple[str, str, str], Row]) -> str:
    """Markdown."""
    names = ('library', 'place, class', 'configs', 'backbones', 'difference', 'groups', 'files')
    lines = [f'| {" | ".join(names)} |']
    lines.append('|---|---|---:|---:|---:|---:|---:|')
    reasons = []
    for (library, place, kind), row in rows.items():
        refused = set().union(*row.refused.values())
        shown = f'{row.difference:.1e}' if len(refused) < len(row.configs) else 'refused'
        lines.append(
            f'| {library} | `{place}`, {kind} | {len(row.configs)} | {row.backbones} | {shown} | '
            f'{row.groups["equal"]} of {row.groups.total()} | '
            f'{row.loaded} of {row.compared} |'
        )
        reasons += [f'- {library}, {len(paths)} of `{sorted(paths)[0]}`: {why}' for why, paths in row.refused.items()]
    return '\n'.join([*lines, '', *reasons]) + '\n'


def main() -> None:
    """Writes the table."""
    argparse.ArgumentParser(description='Compare every stock Swin and ViT config, and write the table.').parse_args()
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + table(sweep()) + END + after)


if __name__ == '__main__':
    main()
