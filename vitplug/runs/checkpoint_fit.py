"""Checks that a checkpoint belongs to the model and training: mmengine loads what fits and leaves out the rest."""

import re
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.registry import MODELS
from mmengine.runner import Runner
from mmengine.runner.base_loop import BaseLoop
from torch import Tensor, nn

from vitplug.checkpoints.files import some_of
from vitplug.checkpoints.pretrained import check_state, load_state, misfit
from vitplug.checkpoints.settings import compare, list_changes, read_settings
from vitplug.checkpoints.through_mmengine import has_host
from vitplug.config.parts import averaging_hooks
from vitplug.errors import CheckpointNotRead
from vitplug.registry import HOOKS, PLUGS

from .checks.classes import check_trained

# Entries that a training needs to go on, beside the weights.
NEEDED_TO_RESUME = ('meta', 'optimizer', 'message_hub')
SHOWN = 3

# Parts of a config that shape a training, and a test. Settings such as the number of heads, or a plug without
# parameters, leave no trace in weights.
TESTED_WITH = ('model', 'data_preprocessor')
TRAINED_WITH = (*TESTED_WITH, 'optim_wrapper', 'train_dataloader', 'averaging')
# Settings without influence on a number, and those that often differ with good reason: loaders and places of data, and
# what matters in a training alone or is a test's own.
FREE = re.compile(
    r'(^|\.)(init_cfg|pretrained|with_cp|_scope_|num_workers|persistent_workers|pin_memory|prefetch_factor|timeout|'
    r'batch_size|data_root|data_prefix|ann_file|backend_args|test_cfg|\w*checkpoint)(\.|$)'
)
FREE_IN_TEST = re.compile(
    r'^data_preprocessor\.(\w*size\w*|\w*pad_\w*|num_classes|to_onehot|batch_augments)(\.|$)|'
    r'\.(train_cfg|img_size|loss\w*|\w*drop\w*|batch_augments|augments|auxiliary_head|frozen|frozen_stages|'
    r'norm_eval|teacher\w*)(\.|$)'
)


@HOOKS.register_module()
class CheckpointFitHook(Hook):
    """Refuses a checkpoint of another model or training before anything uses it.

    A training that goes on, and a test, need all weights of the model, and a checkpoint trained with the settings of
    the config as far as they change results. A training that starts from a checkpoint needs any weights.

    Args:
        allow_changes: Whether a checkpoint of other settings is loaded all the same, if its weights fit.

    Raises:
        CheckpointNotRead: Names the file, what is wrong and what to do.
    """

    priority = 'VERY_HIGH'  # before EMAHook loads it

    def __init__(self, allow_changes: bool = False):
        self.allow_changes = allow_changes

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Checks the checkpoint."""
        path, model, resumes = str(runner._load_from), bare_model(runner.model), runner._resume
        if resumes:
            _check_resumable(path, checkpoint)
        given, averages = (model_weights(path, checkpoint, key) for key in ('state_dict', 'ema_state_dict'))
        with _refusals():
            for weights in (given, averages):
                # Nothing may be resized where a training goes on: the optimizer's state would not be.
                check_state(model, weights, _settings_of(checkpoint), path, exact=resumes)
        if isinstance(runner._train_loop, BaseLoop) and not resumes:
            state = model.state_dict()
            lacking = [name for name in state if name not in given or given[name].shape != state[name].shape]
            if not has_host(model) and len(lacking) == len(state):  # hosts refuse files of other networks themselves
                raise CheckpointNotRead(str(misfit(path, lacking, len(state))))
            return
        _check_settings_and_load(path, model, checkpoint, runner.cfg, resumes, self.allow_changes)
        loop = runner._train_loop if resumes else getattr(runner, '_test_loop', None)
        if isinstance(loop, BaseLoop) and not self.allow_changes:
            _check_classes(path, checkpoint, getattr(loop.dataloader.dataset, 'metainfo', None) or {})


def load_for_inference(path: str, model: nn.Module, checkpoint: Mapping, cfg: Config, allow_changes: bool) -> None:
    """Loads a checkpoint into a model, checked as that of a test; see :class:`CheckpointFitHook`.

    Args:
        path: The checkpoint, for the error.
        model: The model of the config.
        checkpoint: The content of the file.
        cfg: The config.
        allow_changes: Whether settings may differ; they are then logged.

    Raises:
        CheckpointNotRead: Names the file, what is wrong and what to do.
    """
    with _refusals():
        check_state(model, model_weights(path, checkpoint), _settings_of(checkpoint), path)
    _check_settings_and_load(path, model, checkpoint, cfg, False, allow_changes)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turns the refusals of weights into the errors of a run."""
    try:
        yield
    except ValueError as error:
        raise CheckpointNotRead(str(error)) from error


def bare_model(model: nn.Module) -> nn.Module:
    """The model inside of what distributes it, or merges its predictions in a test."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model


def _check_resumable(path: str, checkpoint: Mapping) -> None:
    missing = [key for key in NEEDED_TO_RESUME if not isinstance(checkpoint.get(key), Mapping)]
    if not missing:
        missing = [f'meta.{key}' for key in ('epoch', 'iter') if not isinstance(checkpoint['meta'].get(key), int)]
    if missing:
        raise CheckpointNotRead(
            f'{path} has no {", ".join(missing)}, so no training can go on from it: to start a new one with its '
            'weights, leave out --resume and set load_from'
        )


# --- weights ---


def model_weights(path: str, checkpoint: Mapping, key: str = 'state_dict') -> OrderedDict[str, Tensor]:
    """The tensors under a key of mmengine's checkpoint, without the prefix of a model's wrapper.

    Raises:
        CheckpointNotRead: If something else lies there.
    """
    given = checkpoint.get(key, checkpoint if key == 'state_dict' else {})
    if not isinstance(given, Mapping):
        raise CheckpointNotRead(f'{path}: its {key} is a {type(given).__name__}: expected tensors by name')
    tensors = {str(name): value for name, value in given.items() if isinstance(value, Tensor)}
    weights = OrderedDict((name.removeprefix('module.'), value) for name, value in tensors.items())
    # torch keeps the versions of modules in an attribute.
    weights._metadata = getattr(given, '_metadata', OrderedDict())
    return weights


# --- settings ---


def _settings_of(checkpoint: Mapping) -> dict[str, Any]:
    """The settings with which a checkpoint was trained, as far as it says."""
    meta = checkpoint.get('meta')
    return read_settings(meta) if isinstance(meta, Mapping) else {}


def _check_settings_and_load(
    path: str, model: nn.Module, checkpoint: Mapping, cfg: Config, resumes: bool, allow_changes: bool
) -> None:
    """Refuses settings that change results and weights that the backbone has no place for; then loads all weights."""
    logger, settings = MMLogger.get_current_instance(), _settings_of(checkpoint)
    if not settings:
        logger.warning(f'{path} holds no config to compare with this one: use the config with which it was trained')
    changes = _changes(settings, cfg.to_dict(), resumes) if settings else []
    said = f'{path} was trained with other settings than the config has: {list_changes(changes)}'
    if changes and not allow_changes:
        raise CheckpointNotRead(f'{said}: use its config, or pass --allow-changes if this is meant')
    if changes:
        logger.warning(said)
    with _refusals():
        unexpected = load_state(model, model_weights(path, checkpoint), path)
    if unexpected and not allow_changes:
        raise CheckpointNotRead(
            f'{path} does not fit the model of the config: it has {len(unexpected)} weights for which the backbone has '
            f'no place, e.g. {some_of(unexpected, SHOWN)}: use the config of this checkpoint with all its plugs, or '
            'pass --allow-changes if this is meant'
        )


def _check_classes(path: str, checkpoint: Mapping, metainfo: Mapping) -> None:
    """Refuses a checkpoint whose labels mean the classes of the data in another order; other names are logged."""
    dataset_meta = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
    trained, classes = dataset_meta.get('classes'), metainfo.get('classes')
    if trained and classes and (remark := check_trained(path, trained, classes)):
        MMLogger.get_current_instance().warning(remark)


def _changes(before: Mapping, after: dict, resumes: bool) -> list[tuple]:
    """The settings that differ and change results: place, value before and now."""
    if isinstance(after.get('model'), dict):  # a test that merges predictions has the model inside of its own
        after['model'] = after['model'].get('module', after['model'])
    sections = TRAINED_WITH if resumes else TESTED_WITH
    changes = compare(_choose(before, sections), _choose(after, sections), _find_class)
    return [one for one in changes if not FREE.search(one[0]) and (resumes or not FREE_IN_TEST.search(one[0]))]


def _choose(cfg: Mapping, sections: Collection[str]) -> dict[str, Any]:
    """Some parts of a config.

    `averaging` is the hook that averages weights, and `data_preprocessor` what normalises images, wherever they stand:
    mmengine takes the outermost one for a model without its own.
    """
    model = cfg.get('model')
    if isinstance(model, dict):
        preprocessor = model.get('data_preprocessor', cfg.get('data_preprocessor'))
        model = {key: value for key, value in model.items() if key != 'data_preprocessor'}
        cfg = {**cfg, 'model': model, 'data_preprocessor': preprocessor}
    chosen = {**cfg, 'averaging': averaging_hooks(cfg)}
    return {name: value for name, value in chosen.items() if name in sections}


def _find_class(name: str) -> type | None:
    """The class behind a type in the config of the model that has been built."""
    registered = PLUGS.module_dict.get(name) or MODELS.get(name)
    return registered if isinstance(registered, type) else None
