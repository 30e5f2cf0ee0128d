"""Odd command lines: outputs that exist, paths of every kind, numbers out of range."""

import os
import shlex
from pathlib import Path

from .trials import REGISTRY, Accept, Scene, Trial, one

SAME, TOLD, REFUSED, ANY = Accept.SAME, Accept.TOLD, Accept.REFUSED, Accept.ANY


def command_line(function):
    return REGISTRY.add('command line', function)


def _places(scene: Scene) -> dict[str, str]:
    """Paths of every kind, made where they need to be."""
    folder = scene.folder
    os.mkfifo(folder / 'fifo')
    (folder / 'loop').symlink_to('loop')
    (folder / 'link').symlink_to('../precious/notes.txt')
    (folder / 'linked_folder').symlink_to('../precious')
    (folder / 'empty').mkdir()
    return {
        'missing': 'nothing',
        'folder': 'data',
        'file': 'good_plugs.pth',
        'config': 'classify.py',
        'precious file': '../precious/notes.txt',
        'precious folder': '../precious',
        'FIFO': 'fifo',
        'loop': 'loop',
        'link': 'link',
        'linked folder': 'linked_folder',
        'empty folder': 'empty',
        '/dev/null': '/dev/null',
        '/dev/zero': '/dev/zero',
        '/dev/full': '/dev/full',
        '/proc': '/proc/self/mem',
        'nothing': '',
        'here': '.',
        'long': 'x' * 300,
        'deep': '/'.join(['d'] * 600),
        'escape': '\x1b[31mred',
        'line': 'a\nb',
        'no text': '\udcff',
        'option': '-x',
        'address': 'http://localhost:1/a.pth',
        'another scheme': 'ftp://localhost/a.pth',
        'home': '~nobody-of-this-name/a',
    }


def _chosen(scene: Scene, *without: str) -> tuple[str, str]:
    """A kind of path in a new folder, and the path."""
    scene.make()
    places = _places(scene)
    place = scene.draw.choice([place for place in places if place not in without])
    return place, places[place]


def _trial(scene: Scene, line: str, place: str, path: str, accept: Accept = ANY, **settings) -> Trial:
    # The head is what a message may show of a long path.
    printable = path.encode('ascii', 'backslashreplace').decode()
    names = tuple({path[:100], Path(path).name[:100], path.split('\n')[0], printable[:100], 'work-dir', '--'} - {''})
    return Trial(one(line), f'{place}: {line[:120]}', names, accept, **settings)


@command_line
def work_dir(scene: Scene) -> Trial:
    place, path = _chosen(scene)
    tool = scene.draw.choice(['train.py classify.py', 'test.py classify.py good_classify.pth'])
    return _trial(scene, f'{tool} --work-dir={shlex.quote(path)}', place, path)


@command_line
def checkpoint_file(scene: Scene) -> Trial:
    place, path = _chosen(scene, 'file', 'option')
    quoted = shlex.quote(path)
    line = scene.draw.choice([
        f'test.py classify.py {quoted}',
        f'train.py classify.py --work-dir work --resume={quoted}',
        f'train.py classify.py --work-dir work --cfg-options load_from={quoted}',
        f'convert.py {quoted} new.pth',
        f'publish_model.py {quoted} new.pth',
    ])  # fmt: skip
    accept = ANY if not path and 'convert' not in line and 'publish' not in line else REFUSED
    return _trial(scene, line, place, path, accept)


@command_line
def config(scene: Scene) -> Trial:
    place, path = _chosen(scene, 'config')
    quoted = shlex.quote(path)
    line = scene.draw.choice([f'train.py {quoted}', f'test.py {quoted} good_classify.pth', f'get_flops.py {quoted}',
                              f'print_config.py {quoted}', f'print_config.py --diff classify.py {quoted}',
                              f'check_dataset.py {quoted}', f'dry_run.py {quoted}'])  # fmt: skip
    return _trial(scene, line, place, path, REFUSED)


@command_line
def output(scene: Scene) -> Trial:
    """Files to be written that are there, or cannot be."""
    place, path = _chosen(scene)
    lines = {
        'test.py classify.py good_classify.pth --work-dir tested --out={}': '.pkl',
        'convert.py good_classify.pth {}': '.pth',
        'publish_model.py good_classify.pth {}': '.pth',
        'check_dataset.py classify.py --report={}': '',
    }
    line = scene.draw.choice(list(lines))
    if scene.draw.random() < 0.5 and path and place not in ('here', 'option'):
        path += lines[line]
        if (
            scene.draw.random() < 0.5
            and len(path) < 100
            and not (path.startswith(('/', 'http', 'ftp')) or (scene.folder / path).is_dir())
        ):
            (scene.folder / path).write_text('precious')
    return _trial(scene, line.format(shlex.quote(path)), place, path)


@command_line
def show_dir(scene: Scene) -> Trial:
    place, path = _chosen(scene, '/proc')
    line = f'test.py classify.py good_classify.pth --work-dir tested --show-dir={shlex.quote(path)}'
    return _trial(scene, line, place, path)


@command_line
def onto_itself(scene: Scene) -> Trial:
    """Where what is read is what is written."""
    scene.make()
    line = scene.draw.choice([
        'convert.py good_classify.pth good_classify.pth',
        'convert.py good_classify.pth ./good_classify.pth',
        'publish_model.py good_classify.pth good_classify.pth',
        'test.py classify.py good_classify.pth --out classify.pkl --work-dir .',
        'train.py classify.py --work-dir .',
        'train.py sub/classify.py --work-dir sub',
        'train.py classify.py --work-dir data/train',
        'check_dataset.py classify.py --report classify.py',
        'train.py classify.py --cfg-options default_hooks.checkpoint.out_dir=.',
        'train.py classify.py --cfg-options default_hooks.checkpoint.out_dir=..',
    ])  # fmt: skip
    (scene.folder / 'sub').mkdir()
    (scene.folder / 'sub/classify.py').write_text((scene.folder / 'classify.py').read_text().replace('tiny', '../tiny'))
    (scene.folder / 'classify.pkl').write_text('precious')
    return Trial(one(line), 'onto itself', ('classify', '--work-dir', 'work_dir', 'out_dir', 'data/train'), ANY)


@command_line
def numbers(scene: Scene) -> Trial:
    scene.make()
    number = scene.draw.choice(['0', '-1', '1', '7', '1000000000', '99999999999999999999', '1.5', 'x', '', 'nan'])
    line = scene.draw.choice([
        'get_flops.py classify.py --shape={}', 'get_flops.py classify.py --shape {} 16',
        'get_flops.py windows.py --shape={}', 'get_flops.py classify.py --batch={}',
        'get_flops.py detect.py --shape={}', 'check_dataset.py classify.py --workers={}',
        'print_config.py --diff classify.py plugs.py --shape={}', 'train.py classify.py --local-rank={}',
        'test.py classify.py good_classify.pth --wait-time={}', 'dry_run.py detect.py --shape={}',
        *(f'new_experiment.py --task classification --data data --base classify.py --out my.py {option}={{}}'
          for option in ('--batch-size', '--lr', '--epochs')),
    ])  # fmt: skip
    # A thread costs nothing until it is asked to work: a thousand million of them are another matter.
    if 'workers' in line and len(number) > 3:
        number = '-5'
    line = line.format(number or "''")
    return Trial(
        one(line), line, (number or 'invalid', '--shape', '--batch', '--workers', '--lr', '--epochs', 'image'), ANY
    )


@command_line
def words(scene: Scene) -> Trial:
    """Options in any order, twice, without values or of other tools."""
    scene.make()
    draw = scene.draw
    tools = {
        'train.py': ['classify.py'],
        'test.py': ['classify.py', 'good_classify.pth'],
        'get_flops.py': ['classify.py'],
        'print_config.py': ['classify.py'],
        'check_dataset.py': ['classify.py'],
        'convert.py': ['good_classify.pth', 'new.pth'],
        'publish_model.py': ['good_classify.pth', 'new.pth'],
    }
    pool = ['--work-dir', '--resume', '--amp', '--auto-scale-lr', '--cfg-options', '--launcher', 'pytorch', 'none',
            '--out', '--show', '--show-dir', '--wait-time', '--shape', '16', '--batch', '--to', 'timm', '--prefix',
            '--no-ema', '--diff', '--splits', 'train', '--workers', '--report', 'a.txt', '-h', '--help', '--', '-x',
            '--unknown', 'auto', '-1']  # fmt: skip
    tool = draw.choice(list(tools))
    arguments = [*tools[tool], *draw.sample(pool, draw.choice([1, 2, 3]))]
    if draw.random() < 0.3:
        draw.shuffle(arguments)
    line = shlex.join([tool, *arguments])
    # argparse's own messages show the usage.
    return Trial(one(line), line, ('error: ',), ANY)
