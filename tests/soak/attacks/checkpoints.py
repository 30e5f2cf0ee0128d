"""Damaged and hostile checkpoints, read by every tool that reads one."""

import builtins
import copy
import gzip
import io
import json
import math
import os
import pickle
import random
import runpy
import socket
import struct
import subprocess
import tarfile
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from bad_inputs import fetched_code
from mmengine.config import Config

from .sandbox import CLASSIFIERS, TRAINED
from .trials import REGISTRY, Accept, Scene, Trial, become, draw_content, flip_bits, one

SAME, TOLD, REFUSED, ANY = Accept.SAME, Accept.TOLD, Accept.REFUSED, Accept.ANY

# What is done with a checkpoint, by what may come of it: `uses` need the whole of it, `starts` what fits, `copies`
# write it anew.
USES = {
    'test': 'test.py {config}.py {file} --work-dir tested --out pred.pkl',
    'resume': 'train.py {config}.py --resume {file} --work-dir work',
}
INIT = 'train.py {config}.py --work-dir work --cfg-options model.backbone.init_cfg.checkpoint={file} '
STARTS = {
    'load_from': 'train.py {config}.py --work-dir work --cfg-options load_from={file}',
    'init_cfg': f'{INIT} model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.prefix=backbone.',
    'init_cfg of vitplug': f'{INIT} model.backbone.init_cfg.type=vitplug.Pretrained',
}
COPIES = {
    'convert': 'convert.py {file} new.pth',
    'convert to timm': 'convert.py {file} new.safetensors --to timm',
    'publish': 'publish_model.py {file} new.pth',
}
TIMM = ('classify',)  # the models that timm has too


@dataclass(frozen=True)
class Change:
    """What was done to a checkpoint and what follows.

    Attributes:
        accept: Which results are legitimate where the whole checkpoint is used, with status 0.
        what: The damage.
        starts: The same where a training starts from it; as `accept` if None.
        copies: The same where it is converted or published; as `accept` if None.
        names: What a message may name instead of the file.
    """

    accept: Accept
    what: str
    starts: Accept | None = None
    copies: Accept | None = None
    names: tuple[str, ...] = ()


Damage = Callable[[Path, random.Random], Change]


def _readers(config: str, resumable: bool) -> dict[str, str]:
    copies = COPIES if config in TIMM else {key: line for key, line in COPIES.items() if 'timm' not in key}
    readers = {**USES, **STARTS, **copies}
    return readers if resumable else {key: line for key, line in readers.items() if key != 'resume'}


def _attack(damage: Damage, scene: Scene, configs=TRAINED, only=None) -> Trial:
    config = scene.draw.choice(configs)
    base = f'checkpoint {config}'
    folder = scene.make(base)
    readers = {key: line for key, line in _readers(config, True).items() if only is None or key in only}
    if config not in CLASSIFIERS:  # the converters are for backbones and classifiers
        readers = {key: line for key, line in readers.items() if 'convert' not in key}
    reader = scene.draw.choice(list(readers))
    change = damage(folder / 'bad.pth', scene.draw)
    return _trial(change, reader, readers[reader].format(config=config, file='bad.pth'), base, 'bad.pth')


def _trial(change: Change, reader: str, line: str, base: str, file: str) -> Trial:
    accept = change.accept
    if reader in STARTS:
        accept = change.starts or accept
    elif reader in COPIES:
        accept = change.copies or accept
    return Trial(one(line), f'{change.what}; {reader}', (file, *change.names), accept, base)


def checkpoint(damage: Damage) -> Damage:
    """Registers damage to any checkpoint and any use of it."""
    return REGISTRY.add('checkpoint', damage, lambda scene: _attack(damage, scene))


def classifier(damage: Damage) -> Damage:
    """Registers damage to a classifier's checkpoint."""
    return REGISTRY.add('checkpoint', damage, lambda scene: _attack(damage, scene, CLASSIFIERS))


def resumed(damage: Damage) -> Damage:
    """Registers damage to the state of a training, which only resuming looks at."""
    return REGISTRY.add('resume', damage, lambda scene: _attack(damage, scene, only=('resume',)))


# --- bytes. The checksums of the zip format tell of every change to what it holds ---


@checkpoint
def truncated(path: Path, draw: random.Random) -> Change:
    data = path.read_bytes()
    size = draw.choice([0, 1, 4, draw.randrange(len(data)), len(data) - draw.randint(1, 30)])
    path.write_bytes(data[:size])
    return Change(SAME, f'cut to {size} of {len(data)} bytes')


@checkpoint
def flipped_bits(path: Path, draw: random.Random) -> Change:
    data, places = flip_bits(path.read_bytes(), draw, [1, 1, 3, 20])
    path.write_bytes(data)
    return Change(SAME, f'bits {places[:5]} of {8 * len(data)} flipped')


@checkpoint
def flipped_bits_in_the_pickle(path: Path, draw: random.Random) -> Change:
    program, places = flip_bits(_program(path), draw, [1, 2, 8])
    _with_program(path, program)
    # With a checksum that fits, a changed number or name is as good as any other.
    return Change(ANY, f'bits {places[:5]} of the pickle flipped, its checksum made anew')


@checkpoint
def flipped_bits_in_the_weights(path: Path, draw: random.Random) -> Change:
    """A bit of one tensor, with the old checksum, at which torch does not look."""
    count = len(_load(path)['state_dict'])
    with zipfile.ZipFile(path) as file:
        # Tensors are numbered as they come: the weights are the first.
        data = [entry for entry in file.infolist() if '/data/' in entry.filename and entry.file_size]
        entry = draw.choice([entry for entry in data if int(entry.filename.rpartition('/')[2]) < count])
    data = bytearray(path.read_bytes())
    name, extra = struct.unpack('<HH', data[entry.header_offset + 26 : entry.header_offset + 30])
    begin = entry.header_offset + 30 + name + extra
    place = begin + draw.randrange(entry.file_size)
    data[place] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return Change(SAME, f'a bit of {entry.filename} flipped')


@checkpoint
def zeros(path: Path, draw: random.Random) -> Change:
    """As a file system leaves a block that it lost."""
    data = bytearray(path.read_bytes())
    begin, size = draw.randrange(len(data)), draw.choice([1, 512, 4096])
    end = min(len(data), begin + size)
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    return Change(SAME, f'zeros from byte {begin} to {end}')


@checkpoint
def more_bytes(path: Path, draw: random.Random) -> Change:
    data, more = path.read_bytes(), draw.randbytes(draw.choice([1, 100, 5000]))
    path.write_bytes(draw.choice([data + more, more + data, data + data]))
    return Change(SAME, f'{len(more)} bytes before or behind it, or itself again')


@checkpoint
def another_file(path: Path, draw: random.Random) -> Change:
    kinds = {
        'a web page': b'<!DOCTYPE html><html><head><title>Sign in</title></head></html>',
        'text': b'hello\n' * 100,
        'JSON': b'{"state_dict": {}}',
        'an image': b'\x89PNG\r\n\x1a\n' + bytes(100),
        'random bytes': draw.randbytes(1000),
        'an empty zip file': b'PK\x05\x06' + bytes(18),
        'a pickle of None': pickle.dumps(None),
        'a numpy file': _saved_by(lambda file: np.save(file, np.zeros(3))),
        'a pointer of git lfs': b'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n',
    }
    return Change(REFUSED, draw_content(kinds, path, draw))


@checkpoint
def another_kind_of_file(path: Path, draw: random.Random) -> Change:
    kind = draw.choice(['FIFO', 'folder', 'link to itself', 'link to nothing', '/dev/zero', '/dev/null', 'socket'])
    if kind == 'socket':
        path.unlink()
        before = Path.cwd()
        os.chdir(path.parent)  # a socket's name is a short one
        socket.socket(socket.AF_UNIX).bind(path.name)
        os.chdir(before)
    else:
        become(path, kind)
    return Change(REFUSED, kind)


def _saved_by(write: Callable) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def _program(path: Path) -> bytes:
    with zipfile.ZipFile(path) as file:
        return file.read(next(name for name in file.namelist() if name.endswith('data.pkl')))


def _with_program(path: Path, program: bytes, kind: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path) as source:
        parts = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(path, 'w', kind) as target:
        for name, content in parts.items():
            target.writestr(name, program if name.endswith('data.pkl') else content)


# --- tensors ---


def _load(path: Path) -> dict:
    return torch.load(path, weights_only=False)


def _some_key(content: Mapping, draw: random.Random, floating: bool = True) -> str:
    keys = [k for k, v in content['state_dict'].items() if (v.is_floating_point() or not floating) and v.numel() > 1]
    return draw.choice(keys)


def _changed_tensor(path: Path, draw: random.Random, change: Callable, floating: bool = True) -> str:
    """Changes one tensor and returns its key."""
    content = _load(path)
    key = _some_key(content, draw, floating)
    content['state_dict'][key] = change(content['state_dict'][key])
    torch.save(content, path)
    return key


@checkpoint
def not_finite(path: Path, draw: random.Random) -> Change:
    number = draw.choice([math.nan, math.inf, -math.inf])

    def change(tensor):
        tensor.view(-1)[draw.randrange(tensor.numel())] = number
        return tensor

    key = _changed_tensor(path, draw, change)
    # A copy that is true to its source is not wrong, and a backbone is started without the head.
    return Change(REFUSED, f'{number} in {key}', starts=TOLD, copies=ANY, names=_names(key))


FORMS = {
    'complex': lambda t: torch.complex(t, torch.ones_like(t)),
    'sparse': lambda t: t.to_sparse(),
    'sparse csr': lambda t: t.reshape(len(t), -1).to_sparse_csr(),
    'on the meta device': lambda t: t.to('meta'),
    'quantized': lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.quint8),
    'integers': lambda t: t.long(),
    'booleans': lambda t: t > 0,
    'bytes': lambda t: t.to(torch.uint8),
    'float8': lambda t: t.to(torch.float8_e4m3fn),
}


COPIED = ('integers', 'booleans', 'bytes', 'float8')  # which a copy can be true to


@checkpoint
def tensor_of_another_form(path: Path, draw: random.Random) -> Change:
    form = draw.choice(list(FORMS))
    key = _changed_tensor(path, draw, FORMS[form])
    copies = ANY if form in COPIED else REFUSED
    return Change(REFUSED, f'{key}: {form}', starts=TOLD, copies=copies, names=_names(key))


@checkpoint
def tensor_that_says_the_same(path: Path, draw: random.Random) -> Change:
    """Other ways to store the same numbers, all legitimate."""
    forms = {
        'float64': lambda t: t.double(),
        'a parameter': lambda t: torch.nn.Parameter(t),
        'not contiguous': lambda t: t.unsqueeze(-1).expand(*t.shape, 2).contiguous()[..., 0],
        'with a gradient': lambda t: t.requires_grad_(),
        'part of a larger one': lambda t: torch.cat([t.view(-1), torch.zeros(1000)])[: t.numel()].view(t.shape),
    }
    form = draw.choice(list(forms))
    key = _changed_tensor(path, draw, forms[form])
    return Change(SAME, f'{key}: {form}', names=_names(key))


@checkpoint
def half_precision(path: Path, draw: random.Random) -> Change:
    """Rounded weights, as many files are published."""
    content = _load(path)
    kind = draw.choice([torch.float16, torch.bfloat16])
    state = content['state_dict']
    content['state_dict'] = {k: v.to(kind) if v.is_floating_point() else v for k, v in state.items()}
    torch.save(content, path)
    return Change(ANY, f'all weights as {kind}')


def _names(key: str) -> tuple[str, ...]:
    """A tensor's name in the model, and in its backbone alone."""
    return key, key.removeprefix('backbone.')


SHAPES = {
    'one row less': lambda t: t[:-1],
    'one row more': lambda t: torch.cat([t, t[:1]]),
    'another dimension': lambda t: t[None],
    'flat': lambda t: t.reshape(-1) if t.dim() > 1 else t[:, None],
    'turned': lambda t: t.transpose(0, -1).contiguous() if t.dim() > 1 and t.shape[0] != t.shape[-1] else t[:, None],
    'folded': lambda t: t.reshape(-1, 2) if t.numel() % 2 == 0 else t[None],
    'empty': lambda t: t[:0],
    'one number': lambda t: t.flatten()[0],
    'doubled': lambda t: torch.cat([t, t]),
}


@checkpoint
def another_shape(path: Path, draw: random.Random) -> Change:
    """One tensor; tables of positions and biases, buffers and plugs' weights are drawn like any other."""
    form = draw.choice(list(SHAPES))
    key = _changed_tensor(path, draw, SHAPES[form])
    # A training may start from what fits; tables of positions and biases are resized then, which is logged.
    starts = ANY if key.endswith(('pos_embed', '_table')) else TOLD
    return Change(REFUSED, f'{key}: {form}', starts=starts, copies=ANY, names=_names(key))


@checkpoint
def table_of_another_shape(path: Path, draw: random.Random) -> Change:
    """A position or bias table, which may be resized for a start but never for a test."""
    content = _load(path)
    tables = [key for key in content['state_dict'] if key.endswith(('pos_embed', '_table'))]
    if not tables:
        return another_shape(path, draw)
    key, form = draw.choice(tables), draw.choice(list(SHAPES))
    content['state_dict'][key] = SHAPES[form](content['state_dict'][key])
    torch.save(content, path)
    return Change(REFUSED, f'{key}: {form}', starts=ANY, copies=ANY, names=_names(key))


@checkpoint
def no_tensor(path: Path, draw: random.Random) -> Change:
    value = draw.choice([None, 'text', [1.0, 2.0], {}, 3, {'a': torch.zeros(2)}, np.zeros(3)])
    key = _changed_tensor(path, draw, lambda _: value)
    return Change(REFUSED, f'{key} = {value!r}', starts=TOLD, copies=ANY, names=_names(key))


# --- keys ---


def _renamed(path: Path, rename: Callable[[str], str | None]) -> None:
    content = _load(path)
    renamed = {rename(key): value for key, value in content['state_dict'].items()}
    content['state_dict'] = {key: value for key, value in renamed.items() if key is not None}
    torch.save(content, path)


@checkpoint
def key_removed(path: Path, draw: random.Random) -> Change:
    key = _some_key(_load(path), draw)
    _renamed(path, lambda name: None if name == key else name)
    return Change(REFUSED, f'{key} removed', starts=ANY, copies=ANY, names=_names(key))


@checkpoint
def key_renamed(path: Path, draw: random.Random) -> Change:
    key = _some_key(_load(path), draw)
    new = draw.choice([key.upper(), f'{key} ', key.replace('.', '_', 1), f'x.{key}', key[:-1], f'{key}.weight'])
    _renamed(path, lambda name: new if name == key else name)
    return Change(REFUSED, f'{key} renamed to {new}', starts=ANY, copies=ANY, names=(key, new))


@checkpoint
def keys_with_a_prefix(path: Path, draw: random.Random) -> Change:
    prefix = draw.choice(['module.', 'model.', '_orig_mod.', 'backbone.', 'module.module.', 'ema.'])
    _renamed(path, lambda name: prefix + name)
    return Change(SAME, f'{prefix} before all keys', starts=ANY, copies=ANY, names=(prefix,))


@checkpoint
def key_added(path: Path, draw: random.Random) -> Change:
    content = _load(path)
    plug = 'backbone.layers.0.attn.plugs.ContextBroadcast.scale'
    new = draw.choice(['extra', 'backbone.extra', 'head.fc.extra', 'backbone.layers.7.ln1.weight', plug])
    content['state_dict'][new] = torch.zeros(8)
    torch.save(content, path)
    return Change(SAME, f'{new} added', starts=TOLD, copies=ANY, names=(new,))


@checkpoint
def odd_key(path: Path, draw: random.Random) -> Change:
    content = _load(path)
    new = draw.choice([3, None, ('a', 'b'), '', '.', 'backbone.layers.99999999999.ln1.weight', 'backbone..ln1.weight',
                       'x' * 100_000, '\x1b[31mred\x1b[0m\x07', 'a\nerror: all is well', '\u202egnp', 'a\0b',
                       'backbone.layers.-1.ln1.weight', 'backbone.blocks.99999999999.norm1.weight'])  # fmt: skip
    content['state_dict'][new] = torch.zeros(8)
    torch.save(content, path)
    return Change(SAME, f'key {str(new)[:50]!r}', starts=ANY, copies=ANY)


# --- other models' checkpoints ---


@classifier
def of_another_model(path: Path, draw: random.Random) -> Change:
    """Of the config with other plugs, another host or another task."""
    mine = path.read_bytes()
    others = [file for file in sorted(path.parent.glob('good_*.pth')) if file.read_bytes() != mine]
    other = draw.choice(others)
    path.write_bytes(other.read_bytes())
    # A training may start from a model with or without plugs.
    return Change(REFUSED, f'that of {other.stem}', starts=ANY, copies=ANY)


def used_with_another_config(scene: Scene) -> Trial:
    """A config with settings that change the model or its training and no shape of a tensor."""
    config = scene.draw.choice(CLASSIFIERS)
    base = f'checkpoint {config}'
    scene.make(base)
    options = ['model.data_preprocessor.mean=[0.0,0.0,0.0]', *OTHER_SETTINGS['swin' if config == 'windows' else 'vit']]
    option = scene.draw.choice(options)
    line = USES[scene.draw.choice(list(USES))].format(config=config, file='bad.pth')
    names = ('bad.pth', option.partition('=')[0].rpartition('.')[2])
    return Trial(one(f'{line} --cfg-options {option}'), option, names, TOLD, base, clean=(line,))


OTHER_SETTINGS = {
    'vit': ['model.backbone.arch.num_heads=4', 'model.backbone.layer_cfgs.act_cfg.type=ReLU'],
    'swin': ['model.backbone.arch.num_heads=[1,1]', 'model.backbone.window_size=4'],
}
REGISTRY.add('checkpoint', used_with_another_config)


# --- pickles ---


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Callable, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def _hostile_calls(harm: Path) -> dict[str, object]:
    code = f'__import__("os").mkdir({str(harm)!r})'
    return {
        'os.mkdir': Call(os.mkdir, str(harm)),
        'os.system': Call(os.system, f'mkdir {harm}'),
        'builtins.exec': Call(builtins.exec, code),
        'builtins.eval': Call(builtins.eval, code),
        'subprocess.Popen': Call(subprocess.Popen, ['mkdir', str(harm)]),
        'runpy.run_path': Call(runpy.run_path, 'evil.py'),
        'pathlib.Path.mkdir': Call(Path.mkdir, harm),
        'numpy.load': Call(np.load, 'evil.npy', None, True),
        'torch.load': Call(torch.load, 'evil.pth'),
        'torch.hub': Call(torch.hub.load, '.', 'evil'),
        'mmengine config': Call(Config.fromstring, f'import os\nos.mkdir({str(harm)!r})', '.py'),
    }


@checkpoint
def hostile_pickle(path: Path, draw: random.Random) -> Change:
    harm = path.parent.parent / 'harm'
    calls = _hostile_calls(harm)
    kind = draw.choice(list(calls))
    (path.parent / 'evil.py').write_text(f'import os\nos.mkdir({str(harm)!r})\n')
    for name in ('evil.npy', 'evil.pth'):
        (path.parent / name).write_bytes(pickle.dumps(calls['os.mkdir']))
    content = _load(path)
    place = draw.choice(['meta', 'state_dict', 'top', 'optimizer', 'message_hub'])
    (content if place == 'top' else content[place])['extra'] = calls[kind]
    form = draw.choice(['zip', 'legacy', 'bare pickle', 'protocol 4'])
    if form == 'zip':
        torch.save(content, path)
    elif form == 'legacy':
        torch.save(content, path, _use_new_zipfile_serialization=False)
    elif form == 'protocol 4':
        torch.save(content, path, pickle_protocol=4)
    else:
        path.write_bytes(pickle.dumps(dict(state_dict={}, extra=calls[kind])))
    return Change(REFUSED, f'{kind} in {place}, {form}')


@checkpoint
def hostile_tar(path: Path, draw: random.Random) -> Change:
    """The format of torch before 0.1.10, of which some releases read the pickles in full."""
    harm = path.parent.parent / 'harm'
    call = _hostile_calls(harm)['os.mkdir']
    place = draw.choice(['storages', 'tensors', 'pickle', 'none'])
    with tarfile.open(path, 'w') as file:
        for name in ('storages', 'tensors', 'pickle'):
            hostile = pickle.dumps(call, protocol=2) if place == name else b''
            harmless = pickle.dumps({} if name == 'pickle' else 0, protocol=2)
            entry = tarfile.TarInfo(name)
            entry.size = len(hostile + harmless)
            file.addfile(entry, io.BytesIO(hostile + harmless))
    return Change(REFUSED, f'tar with code in {place}')


@checkpoint
def listed_names_that_call(path: Path, draw: random.Random) -> Change:
    """`getattr` and functions that torch or mmengine list as safe, put together."""
    fetched_code(path.parent)
    return Change(REFUSED, 'exec fetched with getattr')


class Forged:
    """A dtype with flags that say that bytes are pointers."""

    def __init__(self, state: tuple, code: str = 'f8'):
        self.state, self.code = state, code

    def __reduce__(self):
        return np.dtype, (self.code, False, True), self.state


class Array:
    """An array as numpy pickles it, with any dtype, shape and bytes."""

    def __init__(self, dtype, shape, data, fortran=False):
        self.dtype, self.shape, self.data, self.fortran = dtype, shape, data, fortran

    def __reduce__(self):
        rebuild = np.array([0.0]).__reduce__()[0]
        state = (1, self.shape, self.dtype, self.fortran, self.data)
        return rebuild, (np.ndarray, (0,), b'b'), state


class Number:
    """A numpy scalar with any dtype and bytes."""

    def __init__(self, dtype, data):
        self.dtype, self.data = dtype, data

    def __reduce__(self):
        return np.float64(0).__reduce__()[0], (self.dtype, self.data)


@checkpoint
def forged_numpy(path: Path, draw: random.Random) -> Change:
    flags = draw.choice([0x3F, 0x1, 0x10, 0x7F, -1])
    plain = np.dtype('f8')
    forged = Forged((3, draw.choice('|<>'), None, None, None, draw.choice([-1, 0, 8, 2**31]), -1, flags))
    objects = Forged((3, '|', None, None, None, -1, -1, 63), 'O8')
    fields = Forged((3, '|', None, ('a',), {'a': (plain, 10**9)}, 8, 1, 16), 'V8')
    sub = Forged((3, '|', (plain, (10**6,)), None, None, 8, 1, 0), 'V8')
    kinds = {
        'a number of a forged dtype': lambda: Number(forged, draw.randbytes(8)),
        'a number that is a pointer': lambda: Number(objects, draw.randbytes(8)),
        'an array of a forged dtype': lambda: Array(forged, (4,), draw.randbytes(32)),
        'an array of pointers': lambda: Array(objects, (4,), draw.randbytes(32)),
        'an array of objects': lambda: Array(np.dtype('O'), (2,), [1, 2]),
        'an array with fields far away': lambda: Array(fields, (2,), draw.randbytes(16)),
        'a dtype within a dtype': lambda: Array(sub, (2,), draw.randbytes(16)),
        'an array with few bytes': lambda: Array(plain, (10**6,), draw.randbytes(8)),
        'an array of 8 TB': lambda: Array(plain, (10**12,), b''),
        'an array of negative size': lambda: Array(plain, (-4, -2), draw.randbytes(64)),
        'a number with few bytes': lambda: Number(plain, b'abc'),
        'an array of 60 dimensions': lambda: Array(plain, (1,) * 60 + (4,), draw.randbytes(32)),
    }
    kind = draw.choice(list(kinds))
    content = _load(path)
    place = draw.choice(['meta', 'state_dict', 'top', 'message_hub', 'optimizer'])
    (content if place == 'top' else content[place])['extra'] = kinds[kind]()
    torch.save(content, path)
    return Change(SAME, f'{kind} in {place}', starts=TOLD, copies=ANY, names=('extra',))


@checkpoint
def endless(path: Path, draw: random.Random) -> Change:
    """Small files that take much time or memory where nobody counts."""
    content = _load(path)
    place = draw.choice(['meta', 'state_dict', 'top', 'message_hub'])
    target = content if place == 'top' else content[place]
    kind = draw.choice(['itself', 'list of itself', 'deep', 'doubling', 'expanded', 'long number', 'state in state'])
    if kind == 'itself':
        target['extra'] = target
    elif kind == 'list of itself':
        target['extra'] = []
        target['extra'].append(target['extra'])
    elif kind == 'deep':
        return _deep(path, draw.choice([5000, 200_000]))
    elif kind == 'doubling':
        node = [0]
        for _ in range(40):
            node = [node, node]
        target['extra'] = node
    elif kind == 'expanded':
        target['extra'] = torch.zeros(1).expand(draw.choice([10**7, 10**12, 2**62]))
    elif kind == 'long number':
        target['extra'] = 1 << 10**6
    else:
        content['state_dict']['state_dict'] = content['state_dict']
    torch.save(content, path)
    return Change(SAME, f'{kind} in {place}', starts=TOLD, copies=ANY, names=('extra', 'state_dict'))


def _deep(path: Path, depth: int) -> Change:
    program = b'\x80\x02}X\x05\x00\x00\x00extra' + b']' * depth + b'a' * (depth - 1) + b's.'
    _with_program(path, program)
    return Change(REFUSED, f'{depth} lists in each other')


@checkpoint
def pickle_program(path: Path, draw: random.Random) -> Change:
    """Opcodes in any order: memo bombs, marks without end, strings that say they are long."""
    programs = {
        'random opcodes': draw.randbytes(300) + b'.',
        'a string of 4 GB': b'\x80\x02X\xff\xff\xff\xffabc.',
        'bytes of 2^63': b'\x80\x04\x8e' + struct.pack('<Q', 2**63) + b'.',
        'a frame of 2^62': b'\x80\x04\x95' + struct.pack('<Q', 2**62) + b'}.',
        'memo at 2^31': b'\x80\x02}r\xff\xff\xff\x7f.',
        'nothing': b'',
        'a stop': b'.',
        'marks': b'(' * 10**6 + b'.',
        'a persistent id': b'\x80\x02X\x03\x00\x00\x00abcQ.',
        'storage of 2^60': _storage_claim(2**60),
    }
    kind = draw.choice(list(programs))
    _with_program(path, programs[kind])
    return Change(REFUSED, kind)


def _storage_claim(count: int) -> bytes:
    """A tensor over a storage with more numbers than the file has."""

    def text(value: str) -> bytes:
        return b'X' + struct.pack('<I', len(value)) + value.encode()

    size = b'\x8a\x08' + struct.pack('<q', count)
    storage = b'(' + text('storage') + b'ctorch\nFloatStorage\n' + text('0') + text('cpu') + size + b'tQ'
    tensor = b'ctorch._utils\n_rebuild_tensor_v2\n(' + storage + b'K\x00' + size + b'\x85K\x01\x85\x89}tR'
    return b'\x80\x02}' + text('w') + tensor + b's.'


# --- containers ---


@checkpoint
def another_format(path: Path, draw: random.Random) -> Change:
    """The same content in another container."""
    content = _load(path)
    form = draw.choice(['legacy', 'protocol 4', 'OrderedDict', 'weights alone', 'under model', 'packed', 'tar', 'gzip'])
    if form == 'legacy':
        torch.save(content, path, _use_new_zipfile_serialization=False)
    elif form == 'protocol 4':
        torch.save(content, path, pickle_protocol=4)
    elif form == 'OrderedDict':
        torch.save(OrderedDict(content), path)
    elif form == 'weights alone':
        torch.save(content['state_dict'], path)
    elif form == 'under model':
        torch.save(dict(model=content['state_dict']), path)
    elif form == 'packed':
        _with_program(path, _program(path), zipfile.ZIP_DEFLATED)
    elif form == 'tar':
        data = path.read_bytes()
        with tarfile.open(path, 'w') as file:
            entry = tarfile.TarInfo('good.pth')
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    else:
        path.write_bytes(gzip.compress(path.read_bytes()))
    return Change(SAME, form)


@checkpoint
def zip_directory(path: Path, draw: random.Random) -> Change:
    """A zip file whose parts are missing, twice there, packed or larger than they are."""
    with zipfile.ZipFile(path) as source:
        parts = [(name, source.read(name)) for name in source.namelist()]
    kind = draw.choice(['missing', 'twice', 'swapped', 'bomb', 'long name', 'parent'])
    index = draw.randrange(len(parts))
    if kind == 'missing':
        del parts[index]
    elif kind == 'twice':
        name, data = parts[index]
        parts.append((name, draw.randbytes(len(data))))
    elif kind == 'swapped':
        other = draw.randrange(len(parts))
        (a, x), (b, y) = parts[index], parts[other]
        parts[index], parts[other] = (a, y), (b, x)
    elif kind == 'long name':
        parts.append(('x' * 60_000, b''))
    elif kind == 'parent':
        parts.append(('../../precious/notes.txt', b'gone'))
    with warnings.catch_warnings(), zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as target:
        warnings.simplefilter('ignore')
        for name, data in parts:
            target.writestr(name, data)
        if kind == 'bomb':
            target.writestr(parts[0][0].partition('/')[0] + '/data/999', bytes(300 * 2**20), zipfile.ZIP_DEFLATED)
    # Storages that change places are as good as any others.
    return Change(ANY if kind in ('swapped', 'twice') else SAME, f'{kind}: {parts[index][0] if parts else ""}')


# --- safetensors ---


def safetensors(damage: Damage) -> Damage:
    """Registers damage to a safetensors file."""

    def attack(scene: Scene) -> Trial:
        config = scene.draw.choice(CLASSIFIERS)
        base = f'safetensors {config}'
        folder = scene.make(base)
        readers = _readers(config, resumable=False)
        reader = scene.draw.choice(list(readers))
        change = damage(folder / 'bad.safetensors', scene.draw)
        line = readers[reader].format(config=config, file='bad.safetensors')
        return _trial(change, reader, line, base, 'bad.safetensors')

    return REGISTRY.add('safetensors', damage, attack)


def _split(path: Path) -> tuple[dict, bytes]:
    data = path.read_bytes()
    (size,) = struct.unpack('<Q', data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def _join(path: Path, header, body: bytes, size: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack('<Q', len(text) if size is None else size) + text + body)


@safetensors
def header(path: Path, draw: random.Random) -> Change:
    """One entry of the header says something else."""
    entries, body = _split(path)
    key = draw.choice([name for name in entries if name != '__metadata__'])
    entry = entries[key]
    kind = draw.choice(['shape', 'dtype', 'offsets', 'negative', 'huge', 'missing', 'kind', 'swapped', 'overlapping'])
    if kind == 'shape':
        entry['shape'] = [*entry['shape'], 2]
    elif kind == 'dtype':
        entry['dtype'] = draw.choice(['F64', 'I8', 'X9', '', 3])
    elif kind == 'offsets':
        entry['data_offsets'] = [entry['data_offsets'][0] + 1, entry['data_offsets'][1]]
    elif kind == 'negative':
        entry['data_offsets'] = [-8, 0]
    elif kind == 'huge':
        entry['shape'], entry['data_offsets'] = [2**40], [0, 2**42]
    elif kind == 'missing':
        del entry[draw.choice(list(entry))]
    elif kind == 'swapped':
        entry['data_offsets'] = entry['data_offsets'][::-1]
    elif kind == 'overlapping':
        entry['data_offsets'] = [0, entry['data_offsets'][1] - entry['data_offsets'][0]]
    else:
        entries[key] = draw.choice([None, 3, 'text', []])
    _join(path, entries, body)
    return Change(SAME, f'{kind} of {key}')


@safetensors
def header_bytes(path: Path, draw: random.Random) -> Change:
    entries, body = _split(path)
    text = json.dumps(entries).encode()
    kind = draw.choice(['size', 'huge size', 'size 0', 'no JSON', 'a list', 'deep', 'cut', 'twice', 'binary'])
    if kind == 'size':
        _join(path, entries, body, len(text) + draw.choice([-1, 1, 100]))
    elif kind == 'huge size':
        _join(path, entries, body, draw.choice([2**63, 2**64 - 1, 10**9]))
    elif kind == 'size 0':
        _join(path, entries, body, 0)
    elif kind == 'no JSON':
        _join(path, b'{' * 100, body)
    elif kind == 'a list':
        _join(path, b'[]', body)
    elif kind == 'deep':
        _join(path, b'{"a":' + b'[' * 10**5 + b']' * 10**5 + b'}', body)
    elif kind == 'cut':
        path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])
    elif kind == 'twice':
        _join(path, text[:-1] + b',' + text[1:], body)
    else:
        path.write_bytes(draw.randbytes(1000))
    return Change(SAME, kind)


@safetensors
def metadata(path: Path, draw: random.Random) -> Change:
    entries, body = _split(path)
    value = draw.choice([{'meta': 'no JSON'}, {'meta': '[1]'}, {'meta': '3'}, {'meta': '{"epoch": -1}'}, {'a': 'b'},
                         {'meta': '[' * 10**5}, {'meta': '{"cfg": "import os"}'}])  # fmt: skip
    entries['__metadata__'] = value
    _join(path, entries, body)
    return Change(SAME, f'metadata {str(value)[:60]}', names=('meta',))


@safetensors
def values(path: Path, draw: random.Random) -> Change:
    """Numbers that are not finite; a flipped bit among others cannot be known, the format has no checksum."""
    entries, body = _split(path)
    key = draw.choice([name for name, entry in entries.items() if name != '__metadata__' and entry['dtype'] == 'F32'])
    begin = entries[key]['data_offsets'][0]
    number = draw.choice([math.nan, math.inf])
    _join(path, entries, body[:begin] + struct.pack('<f', number) + body[begin + 4 :])
    return Change(REFUSED, f'{number} in {key}', starts=TOLD, copies=ANY, names=_names(key))


# --- the state of a training ---


@resumed
def position(path: Path, draw: random.Random) -> Change:
    content = _load(path)
    key = draw.choice(['epoch', 'iter'])
    value = draw.choice([-1, -(10**9), 1.5, '1', None, True, 10**9, 2**63, math.nan, [1]])
    content['meta'][key] = value
    torch.save(content, path)
    # Behind the end nothing is left to be trained; a checkpoint may be of a longer training.
    return Change(ANY if value == 10**9 or value == 2**63 else REFUSED, f'meta.{key} = {value!r}', names=_names(key))


@resumed
def meta(path: Path, draw: random.Random) -> Change:
    content = _load(path)
    key = draw.choice([*content['meta'], 'config'])
    value = draw.choice([None, 'text', 3, [], {}, -1, 'x' * 10**5, '\x1b[31m', {'a': {'b': 1}}])
    if draw.random() < 0.2:
        content['meta'].pop(key, None)
        value = 'removed'
    else:
        content['meta'][key] = value
    torch.save(content, path)
    # What meta says of epoch, seed and classes decides on what follows; most of it decides on nothing.
    return Change(ANY, f'meta.{key} = {str(value)[:40]!r}', names=(key, 'meta'))


@resumed
def optimizer(path: Path, draw: random.Random) -> Change:
    content = _load(path)
    state = content['optimizer']
    inner = draw.choice(list(state['state']))
    kind = draw.choice(['NaN', 'shape', 'missing', 'kind', 'lr', 'groups', 'no state', 'a string', 'negative step'])
    accept = REFUSED
    if kind == 'NaN':
        state['state'][inner]['exp_avg'].view(-1)[0] = math.nan
    elif kind == 'shape':
        state['state'][inner]['exp_avg'] = torch.zeros(3)
    elif kind == 'missing':
        del state['state'][inner]['exp_avg']
    elif kind == 'kind':
        state['state'][inner] = draw.choice([None, 3, []])
    elif kind == 'lr':
        # A rate is a number that may be any; the config's is compared with it where it says one.
        state['param_groups'][0]['lr'] = draw.choice([math.nan, 'fast', None, -1.0])
    elif kind == 'groups':
        state['param_groups'] = draw.choice([[], [{}], None, state['param_groups'] * 2])
    elif kind == 'no state':
        state['state'] = {}
    elif kind == 'negative step':
        state['state'][inner]['step'] = torch.tensor(-5.0)
    else:
        content['optimizer'] = 'text'
    torch.save(content, path)
    return Change(accept, f'optimizer: {kind}', names=('optimizer',))


@resumed
def records(path: Path, draw: random.Random) -> Change:
    """What mmengine's message hub holds."""
    content = _load(path)
    hub = content['message_hub']
    part = draw.choice(list(hub))
    value = draw.choice([None, 'text', 3, [], {}, {'iter': 'x'}, {'epoch_begin': 7}, {'non_finite_in_a_row': 'x'}])
    hub[part] = value
    torch.save(content, path)
    return Change(ANY, f'message_hub.{part} = {value!r}', names=('message_hub', part))


def named_paths(scene: Scene) -> Trial:
    """Records that name files elsewhere as those of the training, which would be removed."""
    config = 'plugs'
    base = f'checkpoint {config}'
    folder = scene.make(base)
    content = _load(folder / 'bad.pth')
    info = content['message_hub']['runtime_info']
    targets = {
        'folder': '../precious',
        'folder, absolute': str(scene.precious),
        'file': '../precious/epoch_1.pth',
        'data': 'data/train/cat',
        'config': 'plugs.py',
        'home': '~',
        'link': 'link.pth',
        'nothing': '',
        'no text': 3,
    }
    (folder / 'link.pth').symlink_to('../precious/best.pth')
    kind = scene.draw.choice(list(targets))
    key = scene.draw.choice(['best_ckpt', 'best_ckpt', 'last_ckpt', 'keep_ckpt_ids'])
    target = targets[kind]
    info[key] = [f'../{target}', target, 10**9, -1] if key == 'keep_ckpt_ids' else target
    if key == 'best_ckpt':
        info['best_score'] = scene.draw.choice([-1.0, 0.0])
    torch.save(content, folder / 'bad.pth')
    line = USES['resume'].format(config=config, file='bad.pth')
    return Trial(one(line), f'{key} names {kind}', ('bad.pth', key), ANY, base)


REGISTRY.add('resume', named_paths)


@resumed
def config_in_meta(path: Path, draw: random.Random) -> Change:
    """Text of a config in the places from which mmengine has once run it."""
    content = _load(path)
    harm = path.parent.parent / 'harm'
    key = draw.choice(['config', 'cfg'])
    content['meta'][key] = f'import os\nos.mkdir({str(harm)!r})\n'
    torch.save(content, path)
    return Change(SAME, f'code in meta.{key}', names=_names(key))


@resumed
def other_parts(path: Path, draw: random.Random) -> Change:
    """Schedules, averaged weights and gradients of another form."""
    content = _load(path)
    key = draw.choice(['param_schedulers', 'ema_state_dict', 'gradients', 'message_hub', 'optimizer', 'state_dict'])
    value = draw.choice([None, 'text', 3, [1], {'a': 1}, copy.copy(content['state_dict'])])
    content[key] = value
    torch.save(content, path)
    return Change(ANY, f'{key} = {str(value)[:40]!r}', names=_names(key))
