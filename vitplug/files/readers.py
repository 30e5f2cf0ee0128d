"""Files that a config names are data: no reader of them runs code that they may hold."""

import functools
import os

import numpy as np
import yaml
from mmengine.fileio import PickleHandler, YamlHandler, register_handler

UNSAFE = 'can run code when it is read: convert it to JSON; only if you trust its author, pass --unsafe-unpickle'

# The variable that makes torch.load read tensors only, whatever its caller says, and the one that overrides it.
ONLY_TENSORS, NOT_ONLY_TENSORS = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD', 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'

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
