"""Damaged configs: files, and settings given with --cfg-options."""

import json
import os
import pickle
import random
import shlex
from collections.abc import Callable
from pathlib import Path

from mmengine.config import Config

from .checkpoints import Call
from .trials import REGISTRY, Accept, Scene, Trial, one, places_in, value_at

SAME, TOLD, REFUSED, ANY = Accept.SAME, Accept.TOLD, Accept.REFUSED, Accept.ANY

READERS = {
    'train': 'train.py {file} --work-dir work',
    'test': 'test.py {file} good_{config}.pth --work-dir tested --out pred.pkl',
    'flops': 'get_flops.py {file}',
    'print': 'print_config.py {file}',
    'diff': 'print_config.py --diff {config}.py {file}',
    'check': 'check_dataset.py {file}',
}
RUNS = ('train', 'train', 'test', 'flops', 'flops', 'print', 'diff', 'check')
CONFIGS = ('classify', 'plugs', 'windows', 'segment', 'detect')
ODD = [None, True, False, 0, -1, 3, 1.5, -0.5, float('nan'), float('inf'), '', 'text', '3', [], [1], [1, 2, 3], {},
       {'a': 1}, {'type': 'Nothing'}, [None], '\x1b[31mred', '../../precious']  # fmt: skip
HUGE = [10**9, 2**31, 2**63, 10**30, 1e300]
# Where a large number is a wish for a long run, and anything may be one for another process or a window.
LONG = ('max_epochs', 'max_iters', 'num_workers', 'interval', 'val_interval', 'T_max', 'wait_time', 'begin', 'end',
        'val_begin', 'prefetch_factor')  # fmt: skip


def _full(folder: Path, config: str) -> dict:
    """The config with everything it inherits, as JSON has it."""
    return json.loads(json.dumps(Config.fromfile(folder / f'{config}.py').to_dict()))


def _dotted(path: tuple) -> str:
    return '.'.join(map(str, path))


def _names(path: tuple, value, owner) -> tuple[str, ...]:
    """What a message about a setting may name: any part of its path, its value, or the class that gets it."""
    words = [str(key) for key in path if not isinstance(key, int)]
    kind = owner.get('type') if isinstance(owner, dict) else None
    return tuple({*words, repr(value)[:60], str(kind)} - {'', 'None'})


def config_file(damage: Callable[[dict, random.Random], tuple[str, tuple[str, ...], Accept]]):
    """Registers damage to the settings of a config, which is written as JSON or as Python."""

    def attack(scene: Scene) -> Trial:
        config, reader = scene.draw.choice(CONFIGS), scene.draw.choice(RUNS)
        folder = scene.make()
        settings = _full(folder, config)
        what, names, accept = damage(settings, scene.draw)
        name = scene.draw.choice(['bad.json', 'bad.py'])
        if name == 'bad.json':
            (folder / name).write_text(json.dumps(settings))
        else:
            numbers = 'from math import inf, nan\n'
            text = ''.join(f'{key} = {value!r}\n' for key, value in settings.items() if str(key).isidentifier())
            (folder / name).write_text(numbers + text + 'del inf, nan\n')
        accept = accept if reader == 'train' else ANY  # the others build no more than a part of it
        return Trial(one(READERS[reader].format(file=name, config=config)), f'{config}: {what}', (name, *names), accept)

    return REGISTRY.add('config', damage, attack)


@config_file
def any_value(settings: dict, draw: random.Random):
    """One value becomes another one; a valid one is legitimate, however odd."""
    path = draw.choice(list(places_in(settings)))
    owner = value_at(settings, path[:-1])
    values = ODD if path[-1] in LONG else ODD + HUGE
    value = draw.choice([value for value in values if not (path[-1] in LONG and value in (3, '3', True))])
    names = _names(path, value, owner)
    owner[path[-1]] = value
    return f'{_dotted(path)} = {value!r}', names, ANY


@config_file
def large_number(settings: dict, draw: random.Random):
    """Sizes for which no machine has the memory."""
    numbers = [
        path
        for path in places_in(settings)
        if isinstance(value_at(settings, path), int | float) and path[-1] not in LONG
    ]
    path = draw.choice([path for path in numbers if not isinstance(value_at(settings, path), bool)])
    value = draw.choice([*HUGE, 10**7])
    names = _names(path, value, value_at(settings, path[:-1]))
    value_at(settings, path[:-1])[path[-1]] = value
    return f'{_dotted(path)} = {value!r}', (*names, 'memory'), ANY


@config_file
def value_removed(settings: dict, draw: random.Random):
    path = draw.choice(list(places_in(settings)))
    owner = value_at(settings, path[:-1])
    names = _names(path, None, owner)
    del owner[path[-1]]
    return f'{_dotted(path)} removed', names, ANY


@config_file
def unknown_argument(settings: dict, draw: random.Random):
    """An argument that a class has not, in what a training builds."""
    owners = [
        path[:-1] for path in places_in(settings) if path[-1] == 'type' and path[0] in ('model', 'train_dataloader')
    ]
    owner = draw.choice([path for path in owners if 'test_cfg' not in path and 'train_cfg' not in path])
    key = draw.choice(['nothing', 'embed_dim', 'plug', 'lr'])
    names = (key, str(value_at(settings, owner)['type']))
    value_at(settings, owner)[key] = draw.choice([1, None, 'x', {}])
    return f'{_dotted(owner)}.{key} added', names, REFUSED


@config_file
def class_misspelt(settings: dict, draw: random.Random):
    parts = ('model', 'train_dataloader', 'optim_wrapper', 'default_hooks', 'val_evaluator')
    path = draw.choice([path for path in places_in(settings) if path[-1] == 'type' and path[0] in parts])
    owner = value_at(settings, path[:-1])
    kind = owner['type']
    wrong = draw.choice([kind.lower(), kind + 's', kind[1:], kind[::-1], f'vitplug.{kind}x', ' ' + kind])
    owner['type'] = wrong
    # Losses, samplers and the like of a detector are built by name too; a wrapper or loop has a default.
    return f'{_dotted(path)} = {wrong!r}', (wrong.strip(), kind, 'type'), REFUSED


@config_file
def part_removed(settings: dict, draw: random.Random):
    key = draw.choice([key for key in settings if key not in ('work_dir', 'log_level')])
    if draw.random() < 0.5:
        del settings[key]
        return f'{key} removed', (key,), ANY
    settings[key] = value = draw.choice([None, 3, 'text', [], {}, [{}]])
    return f'{key} = {value!r}', (key,), ANY


@config_file
def deep(settings: dict, draw: random.Random):
    """Settings in settings, as often as the formats take them."""
    node: dict | list = {}
    for _ in range(draw.choice([50, 90])):
        node = draw.choice([{'a': node}, [node]])
    key = draw.choice(['model', 'train_dataloader', 'extra', 'default_hooks'])
    if isinstance(settings.get(key), dict):
        settings[key]['deep'] = node
    else:
        settings[key] = node
    return f'{key}.deep', (key, 'deep'), ANY


# --- files ---


def text(scene: Scene) -> Trial:
    """Files that are no config."""
    folder = scene.make()
    harm = f'import os\nos.mkdir({str(scene.harm)!r})\n'
    texts = {
        'empty': ('bad.py', ''),
        'no Python': ('bad.py', 'model = dict(\n'),
        'binary': ('bad.py', scene.draw.randbytes(200).decode('latin1')),
        'an exception': ('bad.py', 'raise SystemExit(0)'),
        'another exception': ('bad.py', '1 / 0'),
        'its own base': ('bad.py', "_base_ = 'bad.py'"),
        'two of each other': ('bad.py', "_base_ = 'worse.py'"),
        'a missing base': ('bad.py', "_base_ = 'nothing.py'"),
        'a base elsewhere': ('bad.py', "_base_ = 'nobody::a/b.py'"),
        'a folder as base': ('bad.py', "_base_ = 'data'"),
        'bases of a number': ('bad.py', '_base_ = 3'),
        'the same keys twice': ('bad.py', "_base_ = ['classify.py', 'segment.py']"),
        'a reserved key': ('bad.py', "_base_ = 'classify.py'\nfilename = 'x'"),
        'a variable of the base': ('bad.py', "_base_ = 'classify.py'\nx = _base_.nothing.y"),
        'an environment variable': ('bad.py', "_base_ = 'classify.py'\nx = '{{$NOTHING_OF_THIS_NAME}}'"),
        'JSON': ('bad.json', '[]'),
        'JSON, cut': ('bad.json', '{"model": {'),
        'JSON, deep': ('bad.json', '{"a":' * 5000 + '1' + '}' * 5000),
        'JSON with code': ('bad.json', json.dumps({'model': {'type': f'__import__("os").mkdir({str(scene.harm)!r})'}})),
        'YAML with code': ('bad.yaml', f'model: !!python/object/apply:os.mkdir ["{scene.harm}"]\n'),
        'YAML, growing': ('bad.yaml', 'a: &a [x]\n' + ''.join(f'{c}: &{c} [*{b},*{b},*{b},*{b},*{b},*{b},*{b},*{b}]\n'
                                                             for b, c in zip('abcdefghi', 'bcdefghij', strict=True))),
        'a suffix that is none': ('bad.txt', harm),
        'no suffix': ('bad', 'model = 3'),
        'a NUL': ('bad.py', 'a = 1\0'),
        'no UTF-8': ('bad.py', 'a = "\xff"'),
        'deep Python': ('bad.py', 'a = ' + '[' * 5000 + ']' * 5000),
    }  # fmt: skip
    kind = scene.draw.choice(list(texts))
    name, content = texts[kind]
    (folder / name).write_bytes(content.encode('latin1'))
    (folder / 'worse.py').write_text("_base_ = 'bad.py'")
    reader = scene.draw.choice(['train', 'test', 'flops', 'print', 'check'])
    line = READERS[reader].format(file=name, config='classify')
    # A variable that nobody set may be one that nobody reads.
    accept = ANY if reader == 'print' or kind == 'an environment variable' else REFUSED
    return Trial(one(line), kind, (name, 'default_scope', 'model'), accept)


REGISTRY.add('config', text)


# --- classes that a config names ---


def named_code(scene: Scene) -> Trial:
    """Functions and classes that run what they are given, named by settings of JSON configs or the command line."""
    folder = scene.make()
    harm = str(scene.harm)
    (folder / 'evil.pkl').write_bytes(_pickle(harm))
    (folder / 'evil.py').write_text(f'import os\nos.mkdir({harm!r})\n')
    code = f'__import__("os").mkdir({harm!r})'
    values = {
        'os.mkdir': {'type': 'os.mkdir', 'path': harm},
        'os.system': {'type': 'os.system', 'command': f'mkdir {harm}'},
        'builtins.exec': {'type': 'builtins.exec', 'source': code},
        'subprocess.Popen': {'type': 'subprocess.Popen', 'args': ['mkdir', harm]},
        'torch.os.system': {'type': 'torch.os.system', 'command': f'mkdir {harm}'},
        'mmengine.mkdir_or_exist': {'type': 'mmengine.utils.path.mkdir_or_exist', 'dir_name': harm},
        'Config.fromstring': {'type': 'mmengine.config.Config.fromstring', 'cfg_str': f'import os\nos.mkdir({harm!r})',
                              'file_format': '.py'},
        'Config.fromfile': {'type': 'mmengine.config.Config.fromfile', 'filename': 'evil.py'},
        'torch.load': {'type': 'torch.load', 'f': 'evil.pkl', 'weights_only': False},
        'torch.hub.load': {'type': 'torch.hub.load', 'repo_or_dir': '.', 'model': 'evil', 'source': 'local'},
        'mmengine.load': {'type': 'mmengine.fileio.load', 'file': 'evil.pkl'},
        'SubprocessHandler': {'type': 'torch.distributed.elastic.multiprocessing.subprocess_handler.SubprocessHandler',
                              'entrypoint': 'mkdir', 'args': [harm], 'env': {}, 'stdout': None, 'stderr': None,
                              'local_rank_id': 0},
        'scope': {'type': 'mkdir', '_scope_': 'os', 'path': harm},
        'Lambda': {'type': 'torchvision/Lambda', 'lambd': code},
    }  # fmt: skip
    kind = scene.draw.choice(list(values))
    places = [('model',), ('model', 'backbone'), ('custom_hooks', 0), ('default_hooks', 'logger'), ('visualizer',),
              ('train_dataloader', 'dataset'), ('train_dataloader', 'dataset', 'pipeline', 0), ('optim_wrapper',),
              ('train_dataloader', 'collate_fn'), ('val_evaluator',), ('train_cfg',), ('log_processor',)]  # fmt: skip
    place = scene.draw.choice(places)
    settings = _full(folder, 'classify')
    settings['custom_hooks'] = [{}]
    value_at(settings, place[:-1])[place[-1]] = values[kind]
    (folder / 'bad.json').write_text(json.dumps(settings))
    line = READERS[scene.draw.choice(['train', 'test', 'flops', 'print', 'check'])]
    names = ('bad.json', values[kind]['type'], 'type', *map(str, place))
    return Trial(one(line.format(file='bad.json', config='classify')), f'{kind} at {_dotted(place)}', names, ANY)


REGISTRY.add('config', named_code)


def named_files(scene: Scene) -> Trial:
    """Files that can hold code, named by settings of any kind."""
    folder = scene.make()
    harm = str(scene.harm)
    for suffix in ('pkl', 'yaml', 'pth', 'pickle'):
        (folder / f'evil.{suffix}').write_bytes(_pickle(harm))
    (folder / 'evil.yaml').write_text(f'!!python/object/apply:os.mkdir ["{harm}"]')
    (folder / 'evil').mkdir()
    (folder / 'evil' / 'hubconf.py').write_text(f'import os\nos.mkdir({harm!r})\n')
    settings = {
        'segment': [
            'model.decode_head.loss_decode.class_weight=evil.pkl',
            'model.decode_head.loss_decode.class_weight=evil.yaml',
            'train_dataloader.dataset.ann_file=evil.pkl',
            'model.pretrained=evil.pth',
        ],
        'classify': [
            'train_dataloader.dataset.ann_file=evil.pkl',
            'train_dataloader.dataset.ann_file=evil.pickle',
            'train_dataloader.dataset.metainfo.classes=evil.pkl',
            'model.pretrained=evil.pth',
            'load_from=evil.pkl',
            'model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=evil.pkl',
            'model.head.loss.type=SeesawLoss',
            'val_evaluator.classwise_topk=evil.pkl',
            'model.data_preprocessor.to_onehot=evil.pkl',
        ],
        'detect': [
            'train_dataloader.dataset.ann_file=evil.pkl',
            'train_dataloader.dataset.proposal_file=evil.pkl',
            'val_evaluator.proposal_nums=evil.pkl',
            'model.roi_head.bbox_head.loss_cls.class_weight=evil.pkl',
            'val_evaluator.outfile_prefix=evil.pkl',
        ],
    }
    config = scene.draw.choice(list(settings))
    option = scene.draw.choice(settings[config])
    line = READERS[scene.draw.choice(['train', 'test', 'flops', 'check'])].format(file=f'{config}.py', config=config)
    return Trial(one(f'{line} --cfg-options {option}'), option, tuple(option.replace('=', '.').split('.')), ANY)


REGISTRY.add('config', named_files)


def _pickle(harm: str) -> bytes:
    return pickle.dumps(Call(os.mkdir, harm))


# --- options ---


def option(damage: Callable[[dict, random.Random], tuple[list[str], tuple[str, ...], Accept]]):
    """Registers what is given with --cfg-options."""

    def attack(scene: Scene) -> Trial:
        config, reader = scene.draw.choice(CONFIGS), scene.draw.choice(RUNS)
        folder = scene.make()
        options, names, accept = damage(_full(folder, config), scene.draw)
        line = READERS[reader].format(file=f'{config}.py', config=config)
        line += f' --cfg-options {shlex.join(options)}'
        accept = accept if reader == 'train' else ANY
        return Trial(one(line), f'{shlex.join(options)[:200]}', (*names, '--cfg-options'), accept)

    return REGISTRY.add('option', damage, attack)


@option
def odd_values(settings: dict, draw: random.Random):
    path = draw.choice([path for path in places_in(settings) if path[-1] not in LONG])
    value = draw.choice(['', '[', '(', '[1,2', '"', "'", '1e999', '-', 'None', 'nan', '__import__("os").mkdir("harm")',
                         '[[[]]]', '[' * 3000, 'x' * 20_000, '\x1b[31m', 'a=b', '(1,2),(3,4)', '{}', '[None]', '1_0',
                         '0x10', '\u0661', '{{$HOME}}'])  # fmt: skip
    names = _names(path, value, value_at(settings, path[:-1]))
    return [f'{_dotted(path)}={value}'], names, ANY


@option
def odd_keys(settings: dict, draw: random.Random):
    path = _dotted(draw.choice(list(places_in(settings))))
    key = draw.choice([f'{path}.', f'.{path}', path.replace('.', '..', 1), f'{path}.0', f'{path}.-1', f'{path}.x.y', '',
                       '.', '0', f'{path} ', path.upper(), '__class__', f'{path}.__class__', '_delete_',
                       f'{path}._delete_', '_base_', 'filename', '_cfg_dict', 'text', 'env_variables',
                       'pretty_text'])  # fmt: skip
    value = draw.choice(['1', 'x', 'True', 'None'])
    return [f'{key}={value}'], tuple(part for part in {key.strip(), *key.split('.')} if part), ANY


@option
def misspelt(settings: dict, draw: random.Random):
    """A letter less or twice in a name."""
    parts = ['train_dataloader.batch_size=1', 'optim_wrapper.optimizer.lr=0.5', 'train_cfg.max_epochs=1',
             'model.backbone.drop_rate=0.5', 'val_dataloader.batch_size=1',
             'default_hooks.logger.interval=3']  # fmt: skip
    chosen = draw.choice(parts)
    key, _, value = chosen.partition('=')
    names = key.split('.')
    number = draw.randrange(len(names))
    name, names[number] = names[number], _slip(names[number], draw)
    return [f'{".".join(names)}={value}'], (names[number], name), REFUSED


def _slip(name: str, draw: random.Random) -> str:
    """A name with a letter less or twice."""
    if len(name) < 3:
        return name + name[-1]
    place = draw.randrange(1, len(name) - 1)
    return draw.choice([name[:place] + name[place + 1 :], name[:place] + name[place] + name[place:]])


# Settings of a child, of which one name is misspelt.
CHILD = {
    'train_dataloader': dict(batch_size=1),
    'model': dict(backbone=dict(plugs='cb')),
    'optim_wrapper': dict(paramwise_cfg=dict(norm_decay_mult=0.0, bias_lr_mult=2.0)),
    'env_cfg': dict(cudnn_benchmark=True, resource_limit=4096),
    'auto_scale_lr': dict(enable=False, base_batch_size=8),
    'default_hooks': dict(checkpoint=dict(interval=1), logger=dict(interval=3)),
    'train_cfg': dict(val_interval=1),
    'load_from': None,
}


def misspelt_in_a_child(scene: Scene) -> Trial:
    """A config that inherits from another, with a letter less or twice in a name on any level."""
    config, folder = scene.draw.choice(CONFIGS), scene.make()
    settings = json.loads(json.dumps(CHILD))
    path = scene.draw.choice(list(places_in(settings)))
    owner = value_at(settings, path[:-1])
    wrong = _slip(path[-1], scene.draw)
    owner[wrong] = owner.pop(path[-1])
    part = path[0] if len(path) > 1 else wrong
    (folder / 'bad.py').write_text(f"_base_ = '{config}.py'\n{part} = {settings[part]!r}\n")
    return Trial(one('train.py bad.py --work-dir work'), f'{config}: {_dotted(path)} as {wrong}', (wrong,), REFUSED)


REGISTRY.add('config', misspelt_in_a_child)


SEVERAL = """\
lr
=1
a=1 a.b=2
model=3 model.backbone.x=1
train_cfg=None
model.backbone=None
work_dir=../precious
work_dir=.
work_dir=data
default_scope=os
default_scope=nothing
launcher=slurm
resume=True
load_from=../precious/best.pth
randomness.seed=x
randomness.seed=-1
runner_type=os.system
runner_type=Nothing
log_level=LOUD
experiment_name=../../x
env_cfg.mp_cfg.mp_start_method=nothing
custom_imports.imports=[nothing]
train_dataloader.num_workers=-1
train_dataloader.batch_size=0
log_processor.window_size=0
default_hooks.checkpoint.interval=0
default_hooks.checkpoint.max_keep_ckpts=-5
default_hooks.checkpoint.out_dir=../precious
default_hooks.checkpoint.filename_tmpl=x
default_hooks.checkpoint.filename_tmpl=../../precious/epoch_{}.pth
default_hooks.checkpoint.save_best=nothing
default_hooks.logger.interval=0
default_hooks.logger.out_suffix=x
default_hooks.logger.out_dir=../precious
optim_wrapper.accumulative_counts=0
optim_wrapper.clip_grad.max_norm=nan
visualizer.save_dir=../precious
val_evaluator.prefix=../x"""


@option
def several(settings: dict, draw: random.Random):
    """Options that contradict each other, come without values, or in wrong forms."""
    options = draw.choice(SEVERAL.split('\n')).split()
    names = tuple({part for option in options for part in option.replace('=', '.').split('.') if part})
    return options, names, ANY
