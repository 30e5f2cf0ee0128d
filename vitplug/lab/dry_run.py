"""Two steps of a training before it begins: the command behind `tools/misc/dry_run.py`. Nothing is written."""

import argparse
import copy
import re
import resource
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner, load_checkpoint
from torch import Tensor, nn

from vitplug.backbones.init_log import hide_parameter_lists
from vitplug.checkpoints.safe_loading import refuse_pickled_code
from vitplug.config.options import add_options, add_shape, config_parser
from vitplug.config.parts import as_list, model_settings
from vitplug.config.reading import read_config
from vitplug.errors import failing_part, one_line_errors
from vitplug.runs.checks import check_data
from vitplug.tasks import TASKS, check_scope

from .costs import silence_logs
from .image_size import read_image_size

STEPS, SHOWN_GROUPS, WIDTH = 2, 12, 12


def main(argv: Sequence[str] | None = None) -> None:
    """Trains two steps and says what they take. A wrong setting gives a one-line error and exit status 2."""
    args = _parser().parse_args(argv)
    with one_line_errors():
        cfg = read_config(args.config, args.cfg_options)
        for title, line in dry_run(cfg, args.shape, args.batch_size):
            print(f'{title:{WIDTH}}{line}', flush=True)


def dry_run(
    cfg: Config, shape: Sequence[int] | None = None, batch_size: int | None = None
) -> Iterator[tuple[str, str]]:
    """Builds the model of a config, trains it for two steps on one batch and yields titles and lines about it.

    Args:
        cfg: The config; changed in place.
        shape: Height and width of made images; None for those of the config.
        batch_size: Images of the batch; None for the config's.

    Raises:
        ValueError, OSError or ImportError: if settings, data or weights cannot be used.
    """
    missing = [key for key in ('model', 'train_dataloader', 'optim_wrapper') if not cfg.get(key)]
    if missing:
        raise ValueError(f'{cfg.filename}: has no {", ".join(missing)}: name the config of a whole training')
    check_scope(cfg)
    refuse_pickled_code()
    cfg.train_dataloader.batch_size = batch_size or cfg.train_dataloader.get('batch_size') or 1
    init_default_scope(cfg.default_scope)
    yield from (('weights', line) for line in leave_out_missing_weights(cfg))
    hide_parameter_lists(MMLogger.get_current_instance())
    torch.manual_seed(0)
    model = MODELS.build(model_settings(cfg))
    model.init_weights()  # logs which weights it loads
    model.to(get_device()).train()
    with silence_logs():  # a line for each parameter
        try:
            wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
        except (KeyError, TypeError) as error:  # also of an unknown type
            raise ValueError(f'optim_wrapper = {dict(cfg.optim_wrapper)} cannot be built: {error}') from error
    if cfg.get('load_from'):
        load_checkpoint(model, cfg.load_from, map_location='cpu')
    origin, batch = one_batch(cfg, shape)
    yield 'data', origin
    sizes = Counter('x'.join(map(str, image.shape[-2:])) for image in batch['inputs'])
    yield 'batch', ', '.join(f'{count} of {size}' for size, count in sizes.items()) + ' (before augments of batches)'
    seen: set[str] = set()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_hook(lambda gradient, name=name: seen.add(name))
    for step in range(1, STEPS + 1):
        seconds, loss = _timed_step(model, wrapper, batch)
        finite = '' if loss.isfinite() else ': NOT finite'
        yield f'step {step}', f'{seconds:.2f} s, loss {loss.item():.4g}{finite}'
    yield 'memory', _memory()
    yield from told_of_parameters(model, seen)


def leave_out_missing_weights(cfg: Config) -> Iterator[str]:
    """Takes checkpoints that are not on this machine out of a config, and says which; nothing is fetched.

    Args:
        cfg: The config; changed in place.
    """
    parts = {'': cfg, 'model.': cfg.model} | {
        f'model.{name}.': part for name, part in cfg.model.items() if isinstance(part, Mapping)
    }
    for place, part in parts.items():
        # A name `pretrained` beside the model is a helper of the config.
        for key in ('init_cfg', 'pretrained') if place else ('load_from',):
            for start in as_list(part.get(key)):
                path = start.get('checkpoint') if isinstance(start, Mapping) else start
                if path and not Path(path).is_file():
                    part[key] = None
                    yield f'{place}{key}: {path} is NOT on this machine: random weights here'


def one_batch(cfg: Config, shape: Sequence[int] | None = None) -> tuple[str, dict]:
    """Where a batch comes from, and the batch: of the training data where they are, else made.

    Raises:
        ValueError: if the data cannot be used, or the config has no size of images to make.
    """
    reason = 'as --shape says'
    if shape is None:
        try:
            check_data(cfg, ('train',))
        except FileNotFoundError as error:
            reason = str(error)
        else:
            in_process = dict(num_workers=0, persistent_workers=False, prefetch_factor=None)
            loader = Runner.build_dataloader({**cfg.train_dataloader, **in_process}, seed=0)
            return 'the first batch of train_dataloader', next(iter(loader))
    size = read_image_size(cfg, shape)
    images = [torch.randint(0, 256, size.chw, dtype=torch.uint8) for _ in range(cfg.train_dataloader.batch_size)]
    samples = [TASKS[cfg.default_scope].made_sample((size.height, size.width)) for _ in images]
    return f'made ({reason}); size {size}', dict(inputs=images, data_samples=samples)


def _timed_step(model: nn.Module, wrapper, batch: dict) -> tuple[float, Tensor]:
    """Trains a step; seconds and loss. An error ends the command and names the part of the model."""
    begin = time.perf_counter()
    try:
        loss = model.train_step(copy.deepcopy(batch), wrapper)['loss']
    except (ValueError, RuntimeError, TypeError, LookupError, AttributeError, AssertionError) as error:
        raise ValueError(f'{failing_part(error, model)}{type(error).__name__}: {error}') from error
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin, loss.detach().float().cpu()


def _memory() -> str:
    peak = f'{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB of this process at most'
    if not torch.cuda.is_available():
        return peak
    return f'{torch.cuda.max_memory_allocated() / 2**20:.0f} MB of tensors on the GPU at most, {peak}'


def told_of_parameters(model: nn.Module, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Which parameters learn.

    Args:
        model: The model.
        seen: Names of the parameters that had a gradient.
    """
    parameters = dict(model.named_parameters())
    trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
    values = sum(parameters[name].numel() for name in seen)
    yield 'learn', f'{len(seen)} of {len(parameters)} parameters, {values / 1e6:.3f} M values'
    for title, names in (('frozen', parameters.keys() - trained), ('NO gradient', trained - seen)):
        if names:
            yield title, f'{len(names)}: {grouped(names)}'


def grouped(names: Iterable[str]) -> str:
    """Names of parameters, those of all blocks in one: ``backbone.layers.*.ln1.weight (12)``."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(re.sub(r'\b\d+\b', '*', name), []).append(name)
    lines = [members[0] if len(members) == 1 else f'{group} ({len(members)})' for group, members in groups.items()]
    rest = f' and {len(lines) - SHOWN_GROUPS} more' if len(lines) > SHOWN_GROUPS else ''
    return ', '.join(lines[:SHOWN_GROUPS]) + rest


def _parser() -> argparse.ArgumentParser:
    parser = config_parser(
        'dry-run',
        'Train two steps of a config, on the first batch of its data or, where they are not there, on made '
        'data of its batch and image size. Prints memory, time and what does not learn; writes nothing.',
    )
    add_shape(parser, 'that of the data, or of the config')
    parser.add_argument('--batch-size', type=int, metavar='N', help="images of the batch (default: the config's)")
    add_options(parser)
    return parser
