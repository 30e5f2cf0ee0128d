"""Checks that a checkpoint belongs to the model and training: mmengine loads what fits and leaves out the rest."""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from mmengine.config import Config
from mmengine.hooks import EMAHook, Hook
from mmengine.logging import MMLogger
from mmengine.runner import Runner
from mmengine.runner.base_loop import BaseLoop
from torch import Tensor, nn

from vitplug.checkpoints.files import find_weights, some_of
from vitplug.checkpoints.fit import check_state, load_state, misfit
from vitplug.checkpoints.formats import take_own_names
from vitplug.checkpoints.settings import check_unstated_grid, differences, read_settings
from vitplug.checkpoints.through_mmengine import bare_model, has_host
from vitplug.config.parts import model_settings
from vitplug.plugs.plug_set import is_plug
from vitplug.registry import HOOKS

from .checks.classes import check_trained

# Settings of a model without influence on any number, and those that only a training uses, or that tests often change.
FREE = re.compile(r'\.(init_cfg|pretrained|with_cp|_scope_|\w*checkpoint)(\.|$)')
OF_TRAINING = re.compile(
    r'\.(test_cfg|train_cfg|img_size|loss\w*|\w*drop\w*|\w*augments|auxiliary_head|frozen|frozen_stages|norm_eval|'
    r'teacher\w*)(\.|$)|'
    r'\.data_preprocessor\.(\w*size\w*|\w*pad_\w*|num_classes|to_onehot)(\.|$)'
)


@HOOKS.register_module()
class CheckpointFitHook(Hook):
    """Refuses a checkpoint of another model or training before anything uses it.

    A training that goes on, and a test, need all weights of the model; settings of the model that differ from those of
    the checkpoint's training are listed. A training that starts from a checkpoint needs any weights.

    Raises:
        ValueError: Names the file, what is wrong and what to do.
    """

    priority = 'VERY_HIGH'  # before EMAHook loads it

    def before_train(self, runner: Runner) -> None:
        """Refuses plugs that checkpoints leave out, and that are frozen, as mmpretrain's LoRAModel does with them."""
        model = bare_model(runner.model)
        kept = model.state_dict()
        if lost := [n for n, p in model.named_parameters() if is_plug(n) and n not in kept and not p.requires_grad]:
            raise ValueError(f'LoRAModel freezes plugs and leaves them out of files: drop it or them: {some_of(lost)}')

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Checks the checkpoint."""
        path, model, resumes = str(runner._load_from), bare_model(runner.model), runner._resume
        trains = isinstance(runner._train_loop, BaseLoop)
        settings, averages = read_settings(checkpoint), any(isinstance(hook, EMAHook) for hook in runner.hooks)
        if trains and not resumes:
            if averages and 'state_dict' not in checkpoint:  # which EMAHook reads
                checkpoint['state_dict'] = find_weights(checkpoint, path)[0]
            given, state = model_weights(checkpoint), model.state_dict()
            check_state(model, given, settings, path)
            check_unstated_grid(model, given, settings, path)
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
            if not averages:
                raise ValueError(
                    f'{path} holds averages of the weights, from which no training goes on: add the EMAHook of its '
                    'config to custom_hooks, or start a new one with load_from'
                )
        load_for_inference(path, model, checkpoint, runner.cfg, resumes)
        if averages and not (resumes and 'ema_state_dict' in checkpoint):
            checkpoint['state_dict'] = model.state_dict()  # by the names that EMAHook's copy has
        loop = runner._train_loop if trains else getattr(runner, '_test_loop', None)
        metainfo = getattr(loop.dataloader.dataset, 'metainfo', {}) if isinstance(loop, BaseLoop) else {}
        trained, classes = (checkpoint.get('meta') or {}).get('dataset_meta') or {}, metainfo.get('classes')
        known = classes and trained.get('classes')
        if known and (remark := check_trained(path, trained['classes'], classes)):
            MMLogger.get_current_instance().warning(remark)


def load_for_inference(path: str, model: nn.Module, checkpoint: Mapping, cfg: Config, resumes: bool = False) -> None:
    """Loads a checkpoint into the model of a config, checked as that of a test; see :class:`CheckpointFitHook`.

    Where a training resumes, nothing may be resized, as the optimizer's state would not be.
    """
    given, settings = model_weights(checkpoint), read_settings(checkpoint)
    if has_host(model):
        take_own_names(given)
    check_state(model, given, settings, path, exact=resumes)
    _list_changes(path, settings, cfg, (FREE,) if resumes else (FREE, OF_TRAINING))
    load_state(model, given, path)


def model_weights(checkpoint: Mapping, key: str = 'state_dict') -> OrderedDict[str, Tensor]:
    """The weights in mmengine's checkpoint, without the prefix of a model's wrapper."""
    given = checkpoint.get(key, checkpoint)
    tensors = {str(name): value for name, value in given.items() if isinstance(value, Tensor)}
    weights = OrderedDict((name.removeprefix('module.'), value) for name, value in tensors.items())
    # torch keeps the versions of modules in an attribute.
    weights._metadata = getattr(given, '_metadata', OrderedDict())
    return weights


def _list_changes(path: str, settings: Mapping, cfg: Config, free: Sequence[re.Pattern]) -> None:
    """Warns of settings that change results and leave no trace in weights, such as plugs without parameters."""
    logger = MMLogger.get_current_instance()
    if 'model' not in settings:
        logger.warning(f'{path} holds no config to compare with this one: use the config with which it was trained')
        return
    models = (dict(model=one['model'].get('module') or model_settings(one)) for one in (settings, cfg.to_dict()))
    found = differences(*models)
    if changes := {name: pair for name, pair in found.items() if not any(one.search(name) for one in free)}:
        listed = some_of(f'{name} was {before!r}, is {now!r}' for name, (before, now) in changes.items())
        logger.warning(f'{path} was trained with other settings of the model than the config has: {listed}')
