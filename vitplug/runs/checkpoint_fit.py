"""Checks that a checkpoint belongs to the model and training: mmengine loads what fits and leaves out the rest."""

import re
from collections import OrderedDict
from collections.abc import Mapping
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
from vitplug.checkpoints.fit import check_state, load_state, misfit
from vitplug.checkpoints.settings import compare, list_changes, read_settings
from vitplug.checkpoints.through_mmengine import has_host
from vitplug.config.parts import as_list, model_settings
from vitplug.registry import HOOKS, PLUGS

from .checks.classes import check_trained

# Settings without influence on a number, and those that often differ with good reason: loaders and places of data, and
# what matters in a training alone or is a test's own.
FREE = re.compile(
    r'(^|\.)(init_cfg|pretrained|with_cp|_scope_|num_workers|persistent_workers|pin_memory|prefetch_factor|timeout|'
    r'batch_size|data_root|data_prefix|ann_file|backend_args|test_cfg|\w*checkpoint)(\.|$)'
)
FREE_IN_TEST = re.compile(
    r'\.data_preprocessor\.(\w*size\w*|\w*pad_\w*|num_classes|to_onehot|batch_augments)(\.|$)|'
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
        ValueError: Names the file, what is wrong and what to do.
    """

    priority = 'VERY_HIGH'  # before EMAHook loads it

    def __init__(self, allow_changes: bool = False):
        self.allow_changes = allow_changes

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Checks the checkpoint."""
        path, model, resumes = str(runner._load_from), bare_model(runner.model), runner._resume
        trains = isinstance(runner._train_loop, BaseLoop)
        settings = read_settings(checkpoint.get('meta') or {})
        if trains and not resumes:
            given, state = model_weights(checkpoint), model.state_dict()
            check_state(model, given, settings, path)
            fits = any(name in given and given[name].shape == state[name].shape for name in state)
            if not fits and not has_host(model):  # hosts refuse files of other networks themselves
                raise misfit(path, list(state), len(state))
            return
        missing = [key for key in ('meta', 'optimizer', 'message_hub') if key not in checkpoint]
        if resumes and missing:
            raise ValueError(
                f'{path} has no {", ".join(missing)}, so no training can go on from it: to start a new one with its '
                'weights, leave out --resume and set load_from'
            )
        if resumes and 'ema_state_dict' in checkpoint:  # the weights that are trained, where the others are averages
            check_state(model, model_weights(checkpoint, 'ema_state_dict'), settings, path, exact=True)
        load_for_inference(path, model, checkpoint, runner.cfg, self.allow_changes, resumes)
        loop = runner._train_loop if trains else getattr(runner, '_test_loop', None)
        metainfo = getattr(loop.dataloader.dataset, 'metainfo', {}) if isinstance(loop, BaseLoop) else {}
        trained, classes = (checkpoint.get('meta') or {}).get('dataset_meta') or {}, metainfo.get('classes')
        known = classes and trained.get('classes') and not self.allow_changes
        if known and (remark := check_trained(path, trained['classes'], classes)):
            MMLogger.get_current_instance().warning(remark)


def load_for_inference(
    path: str, model: nn.Module, checkpoint: Mapping, cfg: Config, allow_changes: bool, resumes: bool = False
) -> None:
    """Loads a checkpoint into a model, checked as that of a test; see :class:`CheckpointFitHook`.

    Args:
        path: The checkpoint, for the error.
        model: The model of the config.
        checkpoint: The content of the file.
        cfg: The config.
        allow_changes: Whether settings may differ; they are then logged.
        resumes: Whether the settings of the training count as well.

    Raises:
        ValueError: Names the file, what is wrong and what to do.
    """
    given, settings = model_weights(checkpoint), read_settings(checkpoint.get('meta') or {})
    # Nothing may be resized where a training goes on: the optimizer's state would not be.
    check_state(model, given, settings, path, exact=resumes)
    _check_settings(path, settings, cfg, allow_changes, resumes)
    unexpected = load_state(model, given, path)
    if unexpected and not allow_changes:
        raise ValueError(
            f'{path} does not fit the model of the config: it has {len(unexpected)} weights for which the backbone has '
            f'no place, e.g. {some_of(unexpected, 3)}: use the config of this checkpoint with all its plugs, or '
            'pass --allow-changes if this is meant'
        )


def bare_model(model: nn.Module) -> nn.Module:
    """The model inside of what distributes it, or merges its predictions in a test."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model


def model_weights(checkpoint: Mapping, key: str = 'state_dict') -> OrderedDict[str, Tensor]:
    """The weights in mmengine's checkpoint, without the prefix of a model's wrapper."""
    given = checkpoint.get(key, checkpoint)
    tensors = {str(name): value for name, value in given.items() if isinstance(value, Tensor)}
    weights = OrderedDict((name.removeprefix('module.'), value) for name, value in tensors.items())
    # torch keeps the versions of modules in an attribute.
    weights._metadata = getattr(given, '_metadata', OrderedDict())
    return weights


def _check_settings(path: str, settings: Mapping, cfg: Config, allow_changes: bool, resumes: bool) -> None:
    """Refuses settings that change results and leave no trace in weights, such as the number of heads."""
    logger = MMLogger.get_current_instance()
    if 'model' not in settings:
        logger.warning(f'{path} holds no config to compare with this one: use the config with which it was trained')
        return
    found = compare(_compared(settings, resumes), _compared(cfg.to_dict(), resumes), _find_class)
    changes = [one for one in found if not FREE.search(one[0]) and (resumes or not FREE_IN_TEST.search(one[0]))]
    said = f'{path} was trained with other settings than the config has: {list_changes(changes)}'
    if changes and not allow_changes:
        raise ValueError(f'{said}: use its config, or pass --allow-changes if this is meant')
    if changes:
        logger.warning(said)


def _compared(cfg: Mapping, resumes: bool) -> dict[str, Any]:
    """The parts of a config that shape a test, and a training that goes on: its `averaging` is the hook of averages."""
    model = cfg['model'].get('module') or model_settings(cfg)  # a test that merges predictions has it inside
    if not resumes:
        return dict(model=model)
    hooks = [*(cfg.get('default_hooks') or {}).values(), *as_list(cfg.get('custom_hooks'))]
    averaging = [hook for hook in hooks if isinstance(hook, dict) and str(hook.get('type')).endswith('EMAHook')]
    training = {key: cfg.get(key) for key in ('optim_wrapper', 'train_dataloader')}
    return dict(model=model, averaging=averaging, **training)


def _find_class(name: str) -> type | None:
    """The class behind a type in the config of the model that has been built."""
    registered = PLUGS.module_dict.get(name) or MODELS.get(name)
    return registered if isinstance(registered, type) else None
