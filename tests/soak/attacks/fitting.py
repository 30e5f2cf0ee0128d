"""Checkpoints of another network than the model's: a start from them is refused, unless it is the same after all."""

import random
import re
from pathlib import Path

import torch

from .sandbox import CLASSIFIERS
from .trials import REGISTRY, Accept, Scene, Trial, one

START = (
    'train.py {config}.py --work-dir work --cfg-options model.backbone.init_cfg.checkpoint=bad.pth '
    'model.backbone.init_cfg.type=vitplug.Pretrained'
)
BLOCK = re.compile(r'(backbone\.(?:layers|stages\.\d+\.blocks)\.)(\d+)\.')
ADDED = ('reg_token', 'pre_norm.weight', 'layers.0.attn.q_norm.weight', 'norm3.extra', 'rel_pos.table', 'extra')
# What a backbone may lack: see `vitplug.checkpoints.fit`.
FREE = re.compile(r'backbone\..*(?:\.?plugs\.|relative_|rel_coords|num_batches_tracked)|backbone\.(?:norm\d|ln\d)')


def _forward_path(state: dict) -> list[str]:
    return [key for key in state if key.startswith('backbone.') and not FREE.match(key)]


def removed_tensor(state: dict, draw: random.Random) -> str:
    key = draw.choice(_forward_path(state))
    del state[key]
    return key


def added_tensor(state: dict, draw: random.Random) -> str:
    key = draw.choice([name for name in ADDED if f'backbone.{name}' not in state])
    # The norms after the blocks are free.
    key = 'extra' if key.startswith('norm3') else key
    state[f'backbone.{key}'] = torch.zeros(8)
    return key


def removed_blocks(state: dict, draw: random.Random) -> str:
    """The last block of a list, or the first of several."""
    match = draw.choice([found for found in map(BLOCK.match, _forward_path(state)) if found])
    for key in [key for key in state if key.startswith(match[0])]:
        del state[key]
    return match[0].removeprefix('backbone.')


def added_block(state: dict, draw: random.Random) -> str:
    """A copy of a block, behind the last of its list."""
    match = draw.choice([found for found in map(BLOCK.match, _forward_path(state)) if found])
    new = f'{match[1]}{1 + max(int(found[2]) for found in map(BLOCK.match, state) if found and found[1] == match[1])}.'
    state |= {new + key.removeprefix(match[0]): value for key, value in state.items() if key.startswith(match[0])}
    return new.removeprefix('backbone.')


def _attack(change, scene: Scene) -> Trial:
    config = scene.draw.choice(CLASSIFIERS)
    base = f'checkpoint {config}'
    path: Path = scene.make(base) / 'bad.pth'
    content = torch.load(path, weights_only=False)
    name = change(content['state_dict'], scene.draw)
    torch.save(content, path)
    names = (name.removeprefix('backbone.'),)
    return Trial(one(START.format(config=config)), f'{change.__name__}: {name}', names, Accept.REFUSED, base)


for _change in (removed_tensor, added_tensor, removed_blocks, added_block):
    REGISTRY.add('fitting', _change, lambda scene, change=_change: _attack(change, scene))
