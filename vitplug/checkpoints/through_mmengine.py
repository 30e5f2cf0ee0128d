"""Files of timm, the authors of papers and the other libraries, through mmengine's own settings.

A stock config names its file as ``init_cfg=dict(type='Pretrained', checkpoint=FILE)``, ``load_from=FILE`` or, in old
ones, ``model.pretrained=FILE``. mmengine loads what has the same name and lists the rest: a host with the file of
another code base would train from random weights. Its two functions that load are wrapped here once, when a host is
imported, so that hosts read these files as with ``vitplug.Pretrained``. Models without a host are left alone.
"""

from collections.abc import Mapping
from functools import wraps

from mmengine.model import PretrainedInit, is_model_wrapper
from mmengine.model.weight_init import update_init_info
from mmengine.runner import Runner, checkpoint, runner
from torch import nn

from vitplug.hosting import PluggedModel

from .fit import BACKBONE
from .pretrained import load_content, load_pretrained


class Misfit(ValueError):
    """A checkpoint of another network than the model's."""


def read_files_of_others() -> None:
    """Makes mmengine's ``Pretrained``, ``load_from`` and ``load_checkpoint`` read every known format into hosts."""
    initialise, load, load_checkpoint = (
        PretrainedInit.__call__,
        checkpoint._load_checkpoint_to_model,
        Runner.load_checkpoint,
    )

    @wraps(initialise)
    def initialise_host(self: PretrainedInit, module: nn.Module) -> None:
        if not has_host(module):
            return initialise(self, module)
        load_pretrained(module, self.checkpoint, self.prefix)
        if hasattr(module, '_params_init_info'):
            update_init_info(module, self._get_init_info())

    @wraps(load)
    def load_into_host(model: nn.Module, content: Mapping, *args, **settings):
        inner = model.module if is_model_wrapper(model) else model
        if not has_host(inner) or not is_of_others(inner, content):
            return load(model, content, *args, **settings)
        try:
            load_content(inner, content, 'the checkpoint')
        except ValueError as error:
            raise Misfit(str(error)) from error
        return content

    @wraps(load_checkpoint)
    def load_named(self: Runner, filename: str, *args, **settings):
        try:
            return load_checkpoint(self, filename, *args, **settings)
        except Misfit as error:
            raise Misfit(str(error).replace('the checkpoint', str(filename), 1)) from error

    PretrainedInit.__call__ = initialise_host
    checkpoint._load_checkpoint_to_model = runner._load_checkpoint_to_model = load_into_host
    Runner.load_checkpoint = load_named


def has_host(module: nn.Module) -> bool:
    """Whether a module is one of the hosts, or a model with one as its backbone."""
    return isinstance(getattr(module, 'backbone', module), PluggedModel)


def is_of_others(model: nn.Module, content: Mapping) -> bool:
    """Whether a checkpoint lacks tensors of the model, but is not one of the same model with further plugs.

    The files that a training writes have every tensor; mmengine loads these by itself.

    Args:
        model: A host, or a model with one.
        content: The content of the file.
    """
    state = content.get('state_dict', content)
    given = {str(key).removeprefix('module.'): value for key, value in state.items()}
    wanted = model.state_dict()
    place = BACKBONE if hasattr(model, 'backbone') else ''
    known = sum(key in wanted for key in given if key.startswith(place))
    strange = any(key not in wanted for key in given if key.startswith(place))
    here = place if known and strange else ''
    compared = {key: value for key, value in wanted.items() if key.startswith(here)}
    return any(key not in given or value.shape != given[key].shape for key, value in compared.items())
