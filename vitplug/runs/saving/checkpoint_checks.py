"""Checks that a checkpoint belongs to the model and training: mmengine loads what fits and leaves out the rest."""

import math
import re
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mmengine.config import Config
from mmengine.dist import get_world_size, is_main_process
from mmengine.logging import MMLogger
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.registry import MODELS
from mmengine.runner import Runner, find_latest_checkpoint
from mmengine.runner.base_loop import BaseLoop
from torch import Tensor, nn

from vitplug.checkpoints.files import WRONG_SHAPES, check_finite, check_numbers, some_of
from vitplug.checkpoints.formats import is_derived
from vitplug.checkpoints.pretrained import check_grid, find_mismatches
from vitplug.checkpoints.settings import compare, list_changes, parse_settings, read_settings
from vitplug.config.parts import averaging_hooks
from vitplug.errors.stops import CheckpointNotRead
from vitplug.plugs.plug_set import is_plug
from vitplug.registry import PLUGS

from .data_note import NOTE, compare_data, note_data

# More than any training makes, and still a number that all parts of mmengine can count with.
MOST_ITERATIONS = 10**12
# Entries that a training needs to go on, beside the weights.
NEEDED_TO_RESUME = ('meta', 'optimizer', 'message_hub')
# Record of the iterations without a step of the optimizer, up to the checkpoint.
IN_A_ROW = 'non_finite_in_a_row'
# Record of who has drawn the current pass over the data: processes, batch size, iteration of their first batch.
SHARES = 'shares'
SHOWN = 3

# Parts of a config that shape a training, and a test.
TRAINED_WITH = (
    'model',
    'data_preprocessor',
    'optim_wrapper',
    'train_dataloader',
    'train_cfg',
    'param_scheduler',
    'averaging',
)
TESTED_WITH = ('model', 'data_preprocessor')
# Settings without influence on any number.
NO_MATTER = re.compile(
    r'(^|\.)(init_cfg|pretrained|with_cp|_scope_|num_workers|persistent_workers|pin_memory|prefetch_factor|timeout|'
    r'multiprocessing_context)(\.|$)'
)
# Settings that often differ with good reason, and are only listed: in a training, how long it takes and where its data
# lies; in a test, what matters in trainings alone or is a test's own.
LISTED_ON_RESUME = re.compile(
    r'^param_scheduler|\.(max_epochs|max_iters|val_interval|val_begin|test_cfg|data_root|data_prefix|ann_file|'
    r'img_path|seg_map_path|backend_args|\w*checkpoint)(\.|$)'
)
LISTED_IN_TEST = re.compile(
    r'^data_preprocessor\.(\w*size\w*|\w*pad_\w*|num_classes|to_onehot|test_cfg|batch_augments)(\.|$)|'
    r'\.(test_cfg|train_cfg|img_size|loss\w*|\w*drop\w*|batch_augments|augments|auxiliary_head|frozen|frozen_stages|'
    r'norm_eval|teacher\w*)(\.|$)'
)


def check_checkpoint(runner: Runner, checkpoint: Mapping, allow_changes: bool = False) -> None:
    """Checks a checkpoint that a runner is about to load, and loads its weights into the runner's model.

    A training that goes on, and a test, need all weights of the model, and a checkpoint that was trained with the
    settings of the config as far as they change results; a training that goes on needs the same data as well. A
    training that starts from a checkpoint needs any weights.

    Args:
        runner: The runner.
        checkpoint: The content of its checkpoint.
        allow_changes: Whether settings and data may differ; they are then listed.

    Raises:
        CheckpointNotRead: names the file, what is wrong and what to do.
    """
    path = runner._load_from or find_latest_checkpoint(runner.work_dir)
    model = bare_model(runner.model)
    starts = isinstance(runner._train_loop, BaseLoop) and not runner._resume
    if runner._resume:
        _check_resumable(path, checkpoint)
    settings = _settings_of(checkpoint)
    given, averages = (model_weights(path, checkpoint, key) for key in ('state_dict', 'ema_state_dict'))
    _check_numbers(path, model, settings, given, averages)
    if starts:
        _check_any_fits(path, model, given)
        return
    compared = (TRAINED_WITH, LISTED_ON_RESUME) if runner._resume else (TESTED_WITH, LISTED_IN_TEST)
    if runner._resume:
        _take_batch_size(settings, checkpoint, runner.cfg)
    _check_settings(path, settings, runner.cfg, compared, allow_changes, runner.logger)
    if runner._resume:
        _check_data(path, checkpoint['meta'], runner, allow_changes)
        for weights in (given, averages):
            _check_shapes(path, model, weights)
    _load_all(path, model, given, allow_changes)


def load_for_inference(path: str, model: nn.Module, checkpoint: Mapping, cfg: Config, allow_changes: bool) -> None:
    """Loads a checkpoint into a model, checked as that of a test; see :func:`check_checkpoint`.

    Args:
        path: The checkpoint, for the error.
        model: The model of the config.
        checkpoint: The content of the file.
        cfg: The config.
        allow_changes: Whether settings may differ; they are then logged.

    Raises:
        CheckpointNotRead: names the file, what is wrong and what to do.
    """
    settings, given = _settings_of(checkpoint), model_weights(path, checkpoint)
    _check_numbers(path, model, settings, given)
    logger = MMLogger.get_current_instance()
    _check_settings(path, settings, cfg, (TESTED_WITH, LISTED_IN_TEST), allow_changes, logger)
    _load_all(path, model, given, allow_changes)


def bare_model(model: nn.Module) -> nn.Module:
    """The model inside of what distributes it, or merges its predictions in a test."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model


# --- what a training needs ---


def _check_resumable(path: str, checkpoint: Mapping) -> None:
    missing = [key for key in NEEDED_TO_RESUME if not isinstance(checkpoint.get(key), Mapping)]
    if not missing:
        missing = [f'meta.{key}' for key in ('epoch', 'iter') if not isinstance(checkpoint['meta'].get(key), int)]
    if missing:
        raise CheckpointNotRead(
            f'{path} has no {", ".join(missing)}, so no training can go on from it: to start a new one with its '
            'weights, leave out --resume and set load_from'
        )
    position = {key: checkpoint['meta'][key] for key in ('epoch', 'iter')}
    if min(position.values()) < 0 or max(position.values()) > MOST_ITERATIONS:
        raise CheckpointNotRead(
            f'{path} says that epoch {position["epoch"]} and iteration {position["iter"]} are done: expected 0 to '
            f'{MOST_ITERATIONS:,}; go on from another checkpoint'
        )
    if _has_lost_its_state(checkpoint):
        raise CheckpointNotRead(
            f"{path} has an empty optimizer.state after {position['iter']} iterations, so the optimizer's averages are "
            'lost: go on from another checkpoint'
        )
    broken = [name for name, value in _leaves(checkpoint['optimizer'], 'optimizer') if _is_broken(value)]
    if broken:
        raise CheckpointNotRead(
            f'{path} has numbers that are not finite (NaN or infinite) in {some_of(broken, SHOWN)}: '
            'go on from an earlier checkpoint'
        )


def _has_lost_its_state(checkpoint: Mapping) -> bool:
    """Whether an optimizer with averages has none, although it has made steps."""
    optimizer, info = checkpoint['optimizer'], checkpoint['message_hub'].get('runtime_info')
    groups = optimizer.get('param_groups')
    if optimizer.get('state') != {} or not isinstance(groups, list) or not isinstance(info, Mapping):
        return False
    skipped = info.get(IN_A_ROW, 0)
    has_stepped = checkpoint['meta']['iter'] > (skipped if isinstance(skipped, int) else 0)
    keeps_averages = any(isinstance(one, Mapping) and (one.get('betas') or one.get('momentum')) for one in groups)
    return has_stepped and keeps_averages and not checkpoint.get('gradients')


def _leaves(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping | list | tuple):
        for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from _leaves(value, f'{name}.{key}')
    else:
        yield name, node


def _is_broken(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.isfinite().all()
    return isinstance(value, float) and math.isnan(value)


def _check_data(path: str, meta: Mapping, runner: Runner, allow_changes: bool) -> None:
    """Refuses other training data than those of a checkpoint, as far as it notes them: the order would be another."""
    if NOTE not in meta or not is_main_process():
        return
    changes = list(compare_data(meta[NOTE], note_data(runner.cfg, runner.logger), runner.cfg))
    said = f'{path} was trained with other data: {"; ".join(changes)}'
    if changes and not allow_changes:
        raise CheckpointNotRead(
            f'{said}: the order of samples would be another one; bring back the data of the training, or pass '
            '--allow-changes if this is meant'
        )
    if changes:
        runner.logger.warning(f'{said}: the order of samples is another one')


# --- weights ---


def _check_numbers(path: str, model: nn.Module, settings: Mapping, *given: Mapping[str, Tensor]) -> None:
    """Checks that weights are finite floating point numbers and, the first, made for this grid of tokens."""
    try:
        for weights in given:
            check_finite(_finite_by_design(weights, model), path)
            check_numbers(weights, model.state_dict(), path)
        check_grid(model, given[0], settings, path)
    except ValueError as error:
        raise CheckpointNotRead(str(error)) from error


def _load_all(path: str, model: nn.Module, given: Mapping[str, Tensor], allow_changes: bool) -> None:
    """Loads all weights, and refuses ones that the backbone has no place for."""
    unexpected = load_weights(path, model, given)
    if unexpected and not allow_changes:
        raise CheckpointNotRead(
            f'{path} does not fit the model of the config: it has {len(unexpected)} weights for which the backbone has '
            f'no place, e.g. {some_of(unexpected, SHOWN)}: use the config of this checkpoint with all its plugs, or '
            'pass --allow-changes if this is meant'
        )


def model_weights(path: str, checkpoint: Mapping, key: str = 'state_dict') -> OrderedDict[str, Tensor]:
    """The tensors under a key of mmengine's checkpoint, without the prefix of a model's wrapper.

    Raises:
        CheckpointNotRead: if something else lies there.
    """
    given = checkpoint.get(key, checkpoint if key == 'state_dict' else {})
    if not isinstance(given, Mapping):
        raise CheckpointNotRead(f'{path}: its {key} is a {type(given).__name__}: expected tensors by name')
    tensors = {str(name): value for name, value in given.items() if isinstance(value, Tensor)}
    weights = OrderedDict((name.removeprefix('module.'), value) for name, value in tensors.items())
    # torch keeps the versions of modules in an attribute.
    weights._metadata = getattr(given, '_metadata', OrderedDict())
    return weights


def _finite_by_design(given: Mapping, model: nn.Module) -> dict[str, Tensor]:
    """The model's own weights, without masks and the like, which hold infinity in every model."""
    state = model.state_dict()
    return {name: value for name, value in given.items() if name in state and state[name].isfinite().all()}


def _check_any_fits(path: str, model: nn.Module, given: Mapping) -> None:
    wanted = {name: parameter.shape for name, parameter in model.named_parameters()}
    lacking = [name for name, shape in wanted.items() if name not in given or given[name].shape != shape]
    if len(lacking) == len(wanted):
        raise _misfit(path, lacking, len(wanted))


def _check_shapes(path: str, model: nn.Module, given: Mapping) -> None:
    """Checks that nothing would be resized: the optimizer's state would not be."""
    state = model.state_dict()
    changed = [name for name in state if name in given and given[name].shape != state[name].shape]
    if changed:
        raise _misfit(path, changed, len(state))


def load_weights(path: str, model: nn.Module, given: Mapping[str, Tensor]) -> list[str]:
    """Loads all weights of a model.

    Args:
        path: The checkpoint, for the error.
        model: The model.
        given: Weights from :func:`model_weights`.

    Returns:
        Weights of the checkpoint's backbone that the model does not have.

    Raises:
        CheckpointNotRead: if one of the model's is missing or has another shape.
    """
    try:
        missing, unexpected = model.load_state_dict(given, strict=False)
    except WRONG_SHAPES as error:
        mismatches = [name for name, *_ in find_mismatches(error)]
        if not mismatches:
            raise CheckpointNotRead(f'{path} does not fit the model of the config: {error}') from error
        missing, unexpected = [*mismatches, *(name for name in model.state_dict() if name not in given)], []
    lacking = [name for name in missing if not is_derived(name) and not name.endswith('num_batches_tracked')]
    if lacking:
        raise _misfit(path, lacking, len(model.state_dict()))
    return [name for name in unexpected if (name.startswith('backbone.') or is_plug(name)) and not is_derived(name)]


def _misfit(path: str, lacking: Collection[str], count: int) -> CheckpointNotRead:
    return CheckpointNotRead(
        f'{path} does not fit the model of the config: {len(lacking)} of its {count} parameters and buffers are not in '
        f'it, or in another shape, e.g. {some_of(lacking, SHOWN)}: use a checkpoint of this config'
    )


# --- settings ---


def _settings_of(checkpoint: Mapping) -> dict[str, Any]:
    """The settings with which a checkpoint was trained, as far as it says."""
    meta = checkpoint.get('meta')
    return read_settings(meta) if isinstance(meta, Mapping) else {}


def _check_settings(
    path: str,
    settings: Mapping,
    cfg: Config,
    compared: tuple[Collection[str], re.Pattern],
    allow_changes: bool,
    logger: MMLogger,
) -> None:
    """Compares the settings that matter, logs the differences, and refuses differences that change results.

    Args:
        path: The checkpoint, for the error.
        settings: The settings of its training.
        cfg: The present ones.
        compared: The parts that are compared, and the settings in them that are only listed.
        allow_changes: Whether all are only listed.
        logger: Takes the list.

    Raises:
        CheckpointNotRead: if a difference changes results.
    """
    current = parse_settings(cfg.pretty_text)
    if current and isinstance(current.get('model'), dict):
        # A test that merges predictions has the model that was trained inside of its own.
        current['model'] = current['model'].get('module', current['model'])
    if not settings or not current:
        logger.warning(
            f'{path} holds no config that could be compared with this one: use the config with which it was trained; '
            'what leaves no trace in weights, such as the number of heads, is not checked'
        )
        return
    sections, listed = compared
    before, after = (_choose(cfg, sections) for cfg in (settings, current))
    changes = [change for change in compare(before, after, _find_class) if not NO_MATTER.search(change[0])]
    serious = [change for change in changes if not listed.search(change[0])]
    if serious and not allow_changes:
        raise CheckpointNotRead(
            f'{path} was trained with other settings than the config has: {list_changes(serious)}: use its config, or '
            'pass --allow-changes if this is meant'
        )
    if changes:
        logger.warning(f'{path} was trained with other settings than the config has: {list_changes(changes)}')


def _take_batch_size(settings: dict, checkpoint: Mapping, cfg: Config) -> None:
    """Takes over the batch size of a process where all processes together have as many samples as before."""
    before, now = (one.get('train_dataloader') for one in (settings, cfg))
    sizes = [one.get('batch_size') if isinstance(one, Mapping) else None for one in (before, now)]
    info = checkpoint['message_hub'].get('runtime_info')
    match info.get(SHARES) if isinstance(info, Mapping) else None:
        case [*_, [int(processes), _, _]] if all(isinstance(size, int) for size in sizes):
            if processes * sizes[0] == get_world_size() * sizes[1]:
                before['batch_size'] = sizes[1]


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
