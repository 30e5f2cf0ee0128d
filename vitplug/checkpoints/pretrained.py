"""Loads pretrained weights of any known format into a backbone or model."""

import os
import re
from collections.abc import Collection, Mapping

import torch
from mmengine.logging import print_log
from mmengine.model.weight_init import update_init_info
from torch import Tensor, nn

from vitplug.plugs.plug_set import is_plug
from vitplug.registry import WEIGHT_INITIALIZERS

from .files import WRONG_SHAPES, find_weights, read_checkpoint, some_of
from .fit import Coverage, check_fit, check_state, is_named
from .formats import FORMATS, convert, is_derived
from .settings import BACKBONE, check_unstated_grid, read_settings

# mmpretrain's two key prefixes of a classification layer; a model has one of them.
CLASSIFIERS = ('head.fc.', 'head.layers.head.')


@WEIGHT_INITIALIZERS.register_module()
class Pretrained:
    """Initialises a backbone or a whole model with a checkpoint of timm, mmpretrain, mmdet, mmseg or a paper's authors.

    In configs: ``init_cfg=dict(type='vitplug.Pretrained', checkpoint=PATH)``. Parameters that the checkpoint lacks,
    such as plugs, are initialised as without a checkpoint. Arguments and errors are those of :func:`load_pretrained`.
    """

    def __init__(self, checkpoint: str | os.PathLike, prefix: str | None = None, reset: Collection[str] = ()):
        self.settings = dict(prefix=prefix, reset=reset)
        self.checkpoint = checkpoint

    def __call__(self, module: nn.Module) -> None:
        init_cfg = getattr(module, 'init_cfg', None)
        if isinstance(init_cfg, list | tuple) and any(loads_checkpoint(cfg) for cfg in init_cfg[:-1]):
            raise ValueError(
                f'init_cfg={init_cfg}: vitplug.Pretrained must come last; later ones overwrite the weights'
            )
        # mmengine would initialise the children after the module and overwrite the loaded weights.
        for part in module.children():
            if hasattr(part, 'init_weights') and not getattr(part, 'is_init', False):
                part.init_weights()
        load_pretrained(module, self.checkpoint, **self.settings)
        if hasattr(module, '_params_init_info'):  # mmengine's list in the log file
            update_init_info(module, f'vitplug.Pretrained: {self.checkpoint}')


def loads_checkpoint(init_cfg: Mapping | Collection[Mapping] | None) -> bool:
    """True if an ``init_cfg`` loads a checkpoint, with mmengine's initialiser or this one."""
    cfgs = [init_cfg] if isinstance(init_cfg, Mapping) else init_cfg or []
    return any(cfg['type'] in ('Pretrained', 'vitplug.Pretrained', Pretrained) for cfg in cfgs)


def load_pretrained(
    module: nn.Module, checkpoint: str | os.PathLike, prefix: str | None = None, reset: Collection[str] = ()
) -> Coverage:
    """Loads a checkpoint of any known format into a backbone, or into a model with a ``backbone``.

    The file and the backbone must be the same network. Position tables and bias tables are resized, and projections are
    adapted to the number of heads that plugs set. Plugs that the file lacks start as ever, and so does a classifier
    with another number of classes. A one-line summary is logged.

    Args:
        module: The backbone or model.
        checkpoint: Path or address of the file.
        prefix: Use only the keys that begin with this; by default, the prefix is detected.
        reset: Parts of the names of tensors that start anew, such as ``['rel_pos_mlp', 'layers.11']``: they are not
            loaded, and the file or the model may lack them.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be read or has no known format, if the backbone needs tensors that the file
            lacks or has no place for the file's, if its config states other settings that tensors do not show, or if
            tensors do not fit. Some may have been loaded.
    """
    return load_content(module, read_checkpoint(checkpoint), checkpoint, prefix, reset)


def load_content(
    module: nn.Module, content: Mapping, path: str | os.PathLike, prefix: str | None = None, reset: Collection[str] = ()
) -> Coverage:
    """The same of the content of a checkpoint that has been read from ``path``."""
    weights, place = find_weights(content, path)
    settings = read_settings(content)
    backbone = getattr(module, 'backbone', module)
    own = {key: value for key, value in module.state_dict().items() if not is_derived(key)}
    wanted, outside = _split(own) if backbone is not module else (own, {})
    try:
        state, known, _ = convert(weights, prefix)
        known = next((one for one in FORMATS if one.name == content.get('meta', {}).get('converted_from')), known)
        given, others = _split(_without(state, reset, own))
        reset = [name.removeprefix(BACKBONE) for name in reset]
        if backbone is not module:  # which may rename its parts, as mmdet's detectors do
            module._load_from_state_dict(others, '', {}, False, [], [], [])
        heads, beside = _choose_heads(others, outside)
        check_state(backbone, given, settings, path)
        check_unstated_grid(backbone, given, settings, path)
        bias = re.compile(rf'(?:{known.may_lack_bias})\.bias')
        may_lack = [key for key in wanted if bias.fullmatch(key) and not is_named(key, reset)]
        zeros = [] if any(key in given for key in may_lack) else may_lack
        if zeros:
            print_log(f'{path}: biases that its network does not have are 0: {some_of(zeros, 3)}', logger='current')
        given |= {key: torch.zeros_like(wanted[key]) for key in zeros}
        # What remains after the hosts' hooks, which rename and leave out what plugs have made of no use.
        missing, unused = backbone.load_state_dict(given, strict=False)
        module.load_state_dict(heads, strict=False)
    except WRONG_SHAPES as error:
        raise ValueError(str(error) if str(path) in str(error) else f'{path}: {error}') from error
    missing = [key for key in missing if key in wanted and not key.endswith('.num_batches_tracked')]
    loaded = [key for key in wanted if key not in missing]
    coverage = Coverage(
        source=f'{path} ({known.name}{place and f", {place}"})',
        loaded=[key for key in loaded if not is_plug(key)],
        resized=[key for key in loaded if key in given and given[key].shape != wanted[key].shape],
        plugs=[key for key in missing if is_plug(key)],
        missing=[key for key in missing if not is_plug(key)],
        unused=[key for key in unused if not is_derived(key)],
    )
    check_fit(coverage, backbone, reset, known.rotary)
    coverage.missing.extend(key for key in outside if key not in heads and not key.endswith('.num_batches_tracked'))
    coverage.unused.extend(beside)
    print_log(str(coverage), logger='current')
    return coverage


def _split(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors of the backbone of a model, by its own names, and the others."""
    inside = {key.removeprefix(BACKBONE): value for key, value in state.items() if key.startswith(BACKBONE)}
    return inside, {key: value for key, value in state.items() if not key.startswith(BACKBONE)}


def _choose_heads(others: dict[str, Tensor], own: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors outside of a backbone that a model has, without those of other classes, and the keys of the rest."""
    present = next((name for name in CLASSIFIERS if any(key.startswith(name) for key in own)), None)
    for name in CLASSIFIERS if present else ():
        others = {re.sub(f'^{re.escape(name)}', present, key): value for key, value in others.items()}
    chosen = {key: value for key, value in others.items() if key in own and value.shape == own[key].shape}
    return chosen, [key for key in others if key not in chosen]


def _without(given: Mapping[str, Tensor], reset: Collection[str], own: Collection[str]) -> dict[str, Tensor]:
    """Drops the tensors with a part of their name in ``reset``, a misspelt name in which is refused."""
    if isinstance(reset, str):
        raise ValueError(f'reset={reset!r}: expected a list of parts of names, such as [{reset!r}]')
    if unknown := [name for name in reset if not any(is_named(key, [name]) for key in (*given, *own))]:
        raise ValueError(f'reset={reset!r}: no tensor has {unknown} in its name: expected a list of parts of names')
    return {key: value for key, value in given.items() if not is_named(key, reset)}
