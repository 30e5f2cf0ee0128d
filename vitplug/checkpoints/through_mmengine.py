"""How mmengine reads checkpoints: without running code, and files of timm, of authors and of the other libraries.

A stock config names its file as ``init_cfg=dict(type='Pretrained', checkpoint=FILE)``, ``load_from=FILE`` or, in old
ones, ``model.pretrained=FILE``. mmengine loads what has the same name and lists the rest: a host with the file of
another code base would train from random weights. Its functions that read and load are wrapped here once, when a host
is imported, so that hosts read these files as with ``vitplug.Pretrained``. Models without a host are left alone.
"""

import re
from collections.abc import Mapping
from functools import wraps

from mmengine.model import BaseTTAModel, PretrainedInit, is_model_wrapper
from mmengine.runner import checkpoint, runner
from mmengine.runner.checkpoint import CheckpointLoader
from torch import nn

from vitplug.hosting import PluggedModel

from .files import read_checkpoint, some_of
from .fit import check_state
from .pretrained import Pretrained, load_content
from .settings import read_settings


def refuse_pickled_code() -> None:
    """Makes mmengine read files and http(s) addresses (`--resume`, `load_from`) in this process by `load_from_file`.

    mmengine by itself tries without running code, and where that fails runs it with a warning.
    """
    CheckpointLoader.register_scheme(('', 'http://', 'https://'), loader=load_from_file, force=True)


def load_from_file(filename: str, map_location=None) -> dict:
    """Reads a checkpoint onto the CPU without running code that it may hold.

    Raises:
        ValueError or OSError: As :func:`~vitplug.checkpoints.files.read_checkpoint`.
    """
    content = read_checkpoint(filename)
    # mmengine runs this text, a config of years ago, to count the GPUs of the training that is resumed.
    if isinstance(content.get('meta'), dict):
        content['meta'].pop('config', None)
    return content


def read_files_of_others() -> None:
    """Makes mmengine's ``Pretrained``, ``load_from`` and ``load_checkpoint`` read every known format into hosts."""
    initialise, load = PretrainedInit.__call__, checkpoint._load_checkpoint_to_model

    @wraps(initialise)
    def initialise_host(self: PretrainedInit, module: nn.Module) -> None:
        if has_host(module):
            Pretrained(self.checkpoint, self.prefix)(module)
        else:
            initialise(self, module)

    @wraps(load)
    def load_host(model: nn.Module, content: Mapping, strict=False, logger=None, revise_keys=((r'^module\.', ''),)):
        inner = bare_model(model)
        if not has_host(inner):
            return load(model, content, strict, logger, revise_keys)
        path = 'the checkpoint'  # whose name mmengine has printed by then
        state = content.get('state_dict', content)
        for pattern, name in revise_keys:
            state = {re.sub(pattern, name, key): value for key, value in state.items()}
        # mmengine loads files with all tensors, as those that a training writes, and no other ones of a backbone.
        own, of_host = inner.state_dict(), 'backbone.' if hasattr(inner, 'backbone') else ''
        is_whole = all(key in state and value.shape == state[key].shape for key, value in own.items())
        if is_whole and all(key in own for key in state if key.startswith(of_host)):
            check_state(inner, state, read_settings(content), path)
            return load(model, content, strict, logger, revise_keys)
        coverage = load_content(inner, {**content, 'state_dict': state} if 'state_dict' in content else state, path)
        differing = [*coverage.missing, *coverage.plugs, *coverage.unused]
        if strict and differing:
            raise ValueError(f'{path}: strict=True, and these are missing or unused: {some_of(differing)}')
        return content

    PretrainedInit.__call__ = initialise_host
    checkpoint._load_checkpoint_to_model = runner._load_checkpoint_to_model = load_host


def bare_model(model: nn.Module) -> nn.Module:
    """The model inside of what distributes it, or merges its predictions in a test."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model


def has_host(module: nn.Module) -> bool:
    """Whether a module is one of the hosts, or a model with one as its backbone."""
    return isinstance(getattr(module, 'backbone', module), PluggedModel)
