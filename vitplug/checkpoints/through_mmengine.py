"""Files of timm, the authors of papers and the other libraries, through mmengine's own settings.

A stock config names its file as ``init_cfg=dict(type='Pretrained', checkpoint=FILE)``, ``load_from=FILE`` or, in old
ones, ``model.pretrained=FILE``. mmengine loads what has the same name and lists the rest: a host with the file of
another code base would train from random weights. Its two functions that load are wrapped here once, when a host is
imported, so that hosts read these files as with ``vitplug.Pretrained``. Models without a host are left alone.
"""

from collections.abc import Mapping
from functools import wraps

from mmengine.model import PretrainedInit, is_model_wrapper
from mmengine.runner import checkpoint, runner
from torch import nn

from vitplug.hosting import PluggedModel

from .files import find_meta
from .pretrained import Pretrained, load_content
from .settings import read_settings
from .unseen import check_unseen


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
    def load_into_host(model: nn.Module, content: Mapping, *args, **settings):
        inner = model.module if is_model_wrapper(model) else model
        if has_host(inner) and not has_all_tensors(content, inner):
            load_content(inner, content, 'the checkpoint')
            return content
        if has_host(inner):
            check_unseen(read_settings(find_meta(content)), getattr(inner, 'backbone', inner), 'the checkpoint')
        return load(model, content, *args, **settings)

    PretrainedInit.__call__ = initialise_host
    checkpoint._load_checkpoint_to_model = runner._load_checkpoint_to_model = load_into_host


def has_host(module: nn.Module) -> bool:
    """Whether a module is one of the hosts, or a model with one as its backbone."""
    return isinstance(getattr(module, 'backbone', module), PluggedModel)


def has_all_tensors(content: Mapping, model: nn.Module) -> bool:
    """Whether a checkpoint has every tensor of a model, as the files that its training writes; mmengine loads these."""
    state = content.get('state_dict', content)
    given = {str(key).removeprefix('module.'): value for key, value in state.items()}
    wanted = model.state_dict()
    return all(key in given and value.shape == given[key].shape for key, value in wanted.items())
