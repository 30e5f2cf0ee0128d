"""What changes between an interruption and `--resume`: data, normalisation of images, states of hooks.

What changes results is refused by name, and what does not, changes none: data in another place, a mended image.
"""

import json
import random
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from PIL import Image

from .faults import IN_WORK_DIR, KILLED, RESUME, REWRITTEN, TRAIN
from .processes import at_write, kill_self
from .sandbox import TRAINED, first_checkpoint
from .trials import REGISTRY, Accept, Command, Scene, Trial, one

# Where the images of a config's training lie, and what names them in a message.
FOLDERS = {'segment': 'ade', 'detect': 'coco', **dict.fromkeys(('classify', 'plugs', 'windows'), 'data/train')}
PLACES = ('img_path', 'seg_map_path', 'ann_file', 'images and annotations do not match')


def resuming(function):
    return REGISTRY.add('resuming', function)


# --- data ---


def _image_more(folder: Path, draw: random.Random) -> str:
    """An image, and a label map beside it, where there are some."""
    source = draw.choice(sorted(folder.rglob('0.png')))
    name = draw.choice(['00', '5', 'z', 'Ü'])
    for path in sorted(folder.rglob('0.png')) if folder.name == 'ade' else [source]:
        shutil.copy(path, path.with_stem(name))
    return f'{name}.png more'


def _image_less(folder: Path, draw: random.Random) -> str:
    name = draw.choice(['0.png', '2.png']) if folder.name == 'ade' else '0.png'
    for path in sorted(folder.rglob(name))[: 2 if folder.name == 'ade' else 1]:
        path.unlink()
    return f'{name} less'


def _image_renamed(folder: Path, draw: random.Random) -> str:
    name = draw.choice(['7', '00'])
    for path in sorted(folder.rglob('0.png'))[: 2 if folder.name == 'ade' else 1]:
        path.rename(path.with_stem(name))
    return f'0.png is {name}.png'


def _changed_annotations(folder: Path, draw: random.Random) -> str:
    path = folder / 'train.json'
    content = json.loads(path.read_text())
    kind = draw.choice(['less', 'more', 'moved', 'order of images'])
    if kind == 'less':
        content['annotations'].pop(draw.randrange(6))
    elif kind == 'more':
        content['annotations'].append(dict(content['annotations'][0], id=99))
    elif kind == 'moved':
        content['annotations'][0]['bbox'][0] += 1
    else:
        content['images'].reverse()
    path.write_text(json.dumps(content))
    return f'annotations: {kind}'


def _change_data(scene: Scene, config: str) -> str:
    folder = scene.folder / FOLDERS[config]
    changes = (_changed_annotations,) if config == 'detect' else (_image_more, _image_less, _image_renamed)
    return scene.draw.choice(changes)(folder, scene.draw)


@resuming
def other_data(scene: Scene) -> Trial:
    config = scene.draw.choice(TRAINED)
    base = f'half {config}'
    scene.make(base)
    damage = f'{config}: {_change_data(scene, config)}'
    return Trial(one(RESUME.format(config=config)), damage, PLACES, Accept.REFUSED, base, may_change=REWRITTEN)


@resuming
def other_data_that_is_allowed(scene: Scene) -> Trial:
    config = scene.draw.choice(TRAINED)
    base, line = f'half {config}', RESUME.format(config=config)
    scene.make(base)
    damage = f'{config}: {_change_data(scene, config)}, allowed'
    return Trial(one(f'{line} --allow-changes'), damage, PLACES, Accept.TOLD, base, (line,), IN_WORK_DIR, harmless=True)


def _same_elsewhere(folder: Path, draw: random.Random) -> str:
    folder.rename(folder.with_name('elsewhere'))
    folder.symlink_to('elsewhere')
    return 'the folder is a link'


def _compressed_otherwise(folder: Path, draw: random.Random) -> str:
    for path in folder.rglob('*.png'):
        Image.open(path).copy().save(path, compress_level=0)
    return 'the same pixels in larger files'


def _beside_images(folder: Path, draw: random.Random) -> str:
    name = draw.choice(['notes.txt', '.hidden.png', 'Thumbs.db', 'README'])
    images = sorted(folder.rglob('0.png'))
    (draw.choice(images).parent / name).write_text('no image')
    return f'{name} beside the images'


def _image_of_no_list(folder: Path, draw: random.Random) -> str:
    """COCO files list the images that count."""
    shutil.copy(folder / 'train/0.png', folder / 'train/unlisted.png')
    return 'an image that no list has'


@resuming
def same_data(scene: Scene) -> Trial:
    """Data that give the same training."""
    config = scene.draw.choice(TRAINED)
    base, line = f'half {config}', RESUME.format(config=config)
    folder = scene.make(base) / FOLDERS[config]
    changes = [_same_elsewhere, _compressed_otherwise, _beside_images]
    change = scene.draw.choice([*changes, _image_of_no_list] if config == 'detect' else changes)
    damage = f'{config}: {change(folder, scene.draw)}'
    return Trial(one(line), damage, (), Accept.SAME, base, may_change=IN_WORK_DIR, harmless=True)


# --- normalisation ---

OTHERS = {
    'classify': ('mean=[1.,2.,3.]', 'std=[1.,1.,1.]', 'to_rgb=True'),
    'segment': ('mean=[1.,2.,3.]', 'std=[1.,1.,1.]', 'bgr_to_rgb=True'),
    'detect': ('mean=[1.,2.,3.]', 'std=[1.,1.,1.]', 'bgr_to_rgb=True'),
}


@resuming
def another_normalisation(scene: Scene) -> Trial:
    """In the model, or beside it as in mmpretrain's own configs; on resume, and in a test."""
    config = scene.draw.choice(['outer', 'outer', *OTHERS])
    option = scene.draw.choice(OTHERS.get(config, OTHERS['classify']))
    place = f'{"" if config == "outer" else "model."}data_preprocessor'
    last = 'train.py {0}.py --work-dir work --resume' if scene.draw.random() < 0.5 else 'test.py {0}.py work/{1}.pth'
    scene.make()
    first = Command(f'{TRAIN.format(config=config)}')
    name = 'iter_1' if config in ('segment', 'detect') else 'epoch_1'
    line = f'{last.format(config, name)} --cfg-options {place}.{option}'
    if 'test.py' in line:
        line = line.replace(' --cfg', ' --work-dir tested --cfg')
    names = (f'data_preprocessor.{option.partition("=")[0]}',)
    return Trial([[first], [Command(line)]], f'{config}: {place}.{option}', names, Accept.REFUSED)


# --- states of hooks ---


@resuming
def interrupted_early_stopping(scene: Scene) -> Trial:
    """A training that early stopping ends, killed or signalled at a write, ends as one that was not."""
    line = TRAIN.format(config='early')
    moment = scene.draw.randint(1, scene.sandboxes.sound('plain', line).run.writes)
    number = scene.draw.choice([signal.SIGKILL, signal.SIGTERM])
    scene.make()
    ends = KILLED if number == signal.SIGKILL else frozenset()
    first = Command(line, at_write(moment, kill_self(number)), ends=ends, asked=None if ends else number)
    steps = [[first], [Command(RESUME.format(config='early'))]]
    return Trial(steps, f'{number.name} at write {moment}', ('work', '.pth'), Accept.SAME, clean=(line,))


VALUES = (None, 7, -1, 'text', [], {}, {'img_path': 3}, float('nan'), '\x1b[31m' * 1000, 2**70)


def _in_checkpoint(change: Callable[[dict], object]) -> None:
    path = first_checkpoint(Path('work'))
    content = torch.load(path, weights_only=False)
    change(content)
    torch.save(content, path)
    Path('work/last_checkpoint').write_text(str(path))


@resuming
def damaged_state_of_a_hook(scene: Scene) -> Trial:
    value = scene.draw.choice(VALUES)
    key = scene.draw.choice(['best_score', 'wait_count', 'stopped', 'settings', None])

    def change(content: dict) -> None:
        states = content['hook_states']
        if key is None:
            states['EarlyStoppingHook'] = value
        else:
            states['EarlyStoppingHook'][key] = value

    scene.make()
    steps = [
        [Command(TRAIN.format(config='early'))],
        [Command(RESUME.format(config='early'), partial(_in_checkpoint, change))],
    ]
    # A score or a count that it might well have is believed.
    return Trial(steps, f'{key} = {value!r:.40}', ('EarlyStoppingHook',), Accept.ANY)


@resuming
def damaged_note_of_the_data(scene: Scene) -> Trial:
    config = scene.draw.choice(TRAINED)
    value = scene.draw.choice(VALUES)
    depth = scene.draw.randrange(4)

    def change(content: dict) -> None:
        node, key = content['meta'], 'training_data'
        for _ in range(depth):
            if isinstance(node[key], dict) and node[key]:
                node, key = node[key], next(iter(node[key]))
        node[key] = value

    steps = [
        [Command(TRAIN.format(config=config))],
        [Command(RESUME.format(config=config), partial(_in_checkpoint, change))],
    ]
    scene.make()
    return Trial(steps, f'{config}: note at depth {depth} = {value!r:.40}', (*PLACES, 'work'), Accept.ANY)
