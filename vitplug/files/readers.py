"""Files that a config names are data: no reader of them runs code that they may hold."""

import functools
import math
import os
from pathlib import Path

import numpy as np
import yaml
from mmengine.fileio import PickleHandler, YamlHandler, register_handler

UNSAFE = 'can run code when it is read: convert it to JSON; only if you trust its author, pass --unsafe-unpickle'

# The variable that makes torch.load read tensors only, whatever its caller says, and the one that overrides it.
ONLY_TENSORS, NOT_ONLY_TENSORS = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD', 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'

# Values that a YAML file may unfold to; a config with all it inherits has a few thousand.
MOST_VALUES = 100_000

_load_arrays = np.load


class NoPickles(PickleHandler):
    """mmengine's reader of pickles, which reads none. It still writes them, as `tools/test.py --out` does."""

    def load_from_fileobj(self, file, **kwargs):
        """Refuses.

        Raises:
            ValueError: always.
        """
        raise ValueError(f'a file of the config is a pickle, which {UNSAFE}')


class PlainYaml(YamlHandler):
    """mmengine's reader of YAML, with numbers, text, lists and dicts as all it can build."""

    def load_from_fileobj(self, file, **kwargs):
        """Reads YAML.

        Raises:
            yaml.YAMLError: if the file asks for anything else.
        """
        return yaml.load(file, **kwargs | dict(Loader=yaml.SafeLoader))


def check_yaml_growth(path: str | Path) -> None:
    """Checks that a YAML file whose aliases name lists of aliases does not unfold to billions of values.

    Raises:
        ValueError: if it does, or without end; names the file and what is allowed.
        yaml.YAMLError: if it is no YAML, or asks for objects.
    """
    number = _unfolded(yaml.safe_load(Path(path).read_bytes()), {})
    if number > MOST_VALUES:
        raise ValueError(f'{path} unfolds to {number:,} values through its aliases: allowed are {MOST_VALUES:,}')


def _unfolded(value, known: dict[int, float]) -> float:
    """Values in a value, each counted wherever it is named; infinitely many if it is a part of itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = math.inf
        children = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_unfolded(child, known) for child in children)
    return known[id(value)]


@functools.wraps(np.load)
def load_plain_arrays(file, mmap_mode=None, allow_pickle=False, **kwargs):
    """`numpy.load`, never with `allow_pickle`.

    Raises:
        ValueError: if the file holds pickled objects.
    """
    try:
        return _load_arrays(file, mmap_mode, allow_pickle=False, **kwargs)
    except ValueError as error:
        name = getattr(file, 'name', file)
        reason = f'is or holds a pickle, which {UNSAFE}' if 'allow_pickle' in str(error) else f'cannot be read: {error}'
        raise ValueError(f'{name} {reason}') from error


def refuse_code_in_files() -> None:
    """Makes `mmengine.load`, `numpy.load` and `torch.load` run no code in this process and its workers.

    Losses, heads, data sets, transforms and metrics of mmdet, mmseg and mmpretrain read files with these three.
    """
    register_handler(['pkl', 'pickle'])(NoPickles)
    register_handler(['yaml', 'yml'])(PlainYaml)
    np.load = load_plain_arrays
    os.environ[ONLY_TENSORS] = '1'
    os.environ.pop(NOT_ONLY_TENSORS, None)
