"""Names of classes and files that a config, a template or a script would act on."""

import shlex

import numpy as np
from PIL import Image

from .trials import REGISTRY, Accept, Scene, Trial, one

NAMES = (
    '{{$HOME}}',
    '{{_base_.model}}',
    '{{fileDirname}}',
    "'] + __import__('os').system('touch ..' + chr(47) + 'harm') #",
    "a', __import__('os').system('touch ..' + chr(47) + 'harm'), '",
    "a\nimport os; os.system('touch ..' + chr(47) + 'harm')",
    '\x1b[31mred',
    '"""',
    'a\\',
    '$(touch harm)',
    '#',
)
LINE = 'new_experiment.py --task classification --data own --base classify.py --out {out} --epochs 1'


def names_of_classes(scene: Scene) -> Trial:
    """A class folder with an odd name; the config is then read and trained."""
    folder, name = scene.make(), scene.draw.choice(NAMES)
    for split in ('train', 'val'):
        for kind in (name, 'tulip'):
            (folder / 'own' / split / kind).mkdir(parents=True)
            pixels = np.random.default_rng(0).integers(0, 255, (16, 24, 3), np.uint8)
            Image.fromarray(pixels).save(folder / 'own' / split / kind / '0.png')
    lines = [LINE.format(out='my.py'), 'check_dataset.py my.py', 'train.py my.py --work-dir work']
    return Trial(
        [step for line in lines for step in one(line)], f'a class called {name!r}', (name, 'my.py'), Accept.ANY
    )


def names_of_configs(scene: Scene) -> Trial:
    folder, name = scene.make(), f'{scene.draw.choice(NAMES)}.py'
    (folder / 'own').mkdir()
    for split in ('train', 'val'):
        (folder / 'own' / split).symlink_to(folder / 'data' / split)
    lines = [LINE.format(out=shlex.quote(name)), f'print_config.py {shlex.quote(name)}']
    return Trial(
        [step for line in lines for step in one(line)], f'a config called {name!r}', (name, '--out'), Accept.ANY
    )


for _attack in (names_of_classes, names_of_configs):
    REGISTRY.add('names', _attack)
