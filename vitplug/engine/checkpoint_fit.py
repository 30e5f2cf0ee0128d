"""Whether a checkpoint is one of the model at hand: mmengine loads what fits and leaves the rest at random."""

import re
from collections.abc import Mapping

from mmengine.model import is_model_wrapper
from mmengine.runner import Runner, find_latest_checkpoint
from mmengine.runner.base_loop import BaseLoop
from torch import nn

from .stops import CheckpointNotRead

# What a training needs to go on, beside the weights.
NEEDED_TO_RESUME = ('meta', 'optimizer', 'message_hub')
# Tables that models resize when they load them.
RESIZED = re.compile(r'(pos_embed|_table)$')
SHOWN = 3


def check_checkpoint(runner: Runner, checkpoint: Mapping) -> None:
    """Checks a checkpoint before a runner loads it.

    To go on, and to be tested, a model needs all of its weights; to start from others, any.

    Raises:
        CheckpointNotRead: names the file, what it lacks and what to do.
    """
    path = runner._load_from or find_latest_checkpoint(runner.work_dir)
    model = runner.model.module if is_model_wrapper(runner.model) else runner.model
    if runner._resume:
        _check_resumable(path, checkpoint)
    given = checkpoint.get('state_dict', checkpoint)
    if not isinstance(given, Mapping):
        raise CheckpointNotRead(f'{path}: its state_dict is a {type(given).__name__}: expected tensors by name')
    lacking = _lacking(model, {str(key).removeprefix('module.'): value for key, value in given.items()})
    count = sum(1 for _ in model.named_parameters())
    starts = isinstance(runner._train_loop, BaseLoop) and not runner._resume
    if len(lacking) == count if starts else lacking:
        raise CheckpointNotRead(
            f'{path} does not fit the model of the config: {len(lacking)} of its {count} parameters are not in it, or '
            f'in another shape, e.g. {", ".join(lacking[:SHOWN])}: use a checkpoint of this config'
        )


def _check_resumable(path: str, checkpoint: Mapping) -> None:
    missing = [key for key in NEEDED_TO_RESUME if not isinstance(checkpoint.get(key), Mapping)]
    if not missing:
        missing = [f'meta.{key}' for key in ('epoch', 'iter') if not isinstance(checkpoint['meta'].get(key), int)]
    if missing:
        raise CheckpointNotRead(
            f'{path} has no {", ".join(missing)}, so no training can go on from it: to start a new one with its '
            'weights, leave out --resume and set load_from'
        )


def _lacking(model: nn.Module, given: Mapping) -> list[str]:
    """Names of the model's parameters that would stay as they are."""
    wanted = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    return [
        name
        for name, shape in wanted.items()
        if name not in given or (tuple(getattr(given[name], 'shape', ())) != shape and not RESIZED.search(name))
    ]
