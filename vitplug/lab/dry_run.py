"""Two steps of a training before it begins: the command `dry-run`. Nothing is written."""

import copy
import math
import re
import resource
import time
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner, load_checkpoint

from vitplug.backbones.base import hide_parameter_lists
from vitplug.checkpoints.through_mmengine import refuse_pickled_code
from vitplug.config.options import add_options, add_shape, config_parser
from vitplug.config.parts import model_settings
from vitplug.config.reading import read_config
from vitplug.errors import failing_part
from vitplug.runs.checks import check_data
from vitplug.tasks.libraries import TASKS, check_scope

from .costs import quiet
from .image_size import read_image_size

STEPS, SHOWN_GROUPS = 2, 12


def main(argv: Sequence[str] | None = None) -> None:
    """Builds the model of a config, trains it for two steps on one batch and says what they take.

    Raises:
        ValueError, OSError or ImportError: if settings, data or weights cannot be used.
    """
    parser = config_parser(
        'dry-run',
        'Train two steps of a config, on the first batch of its data or, where they are not there, on made '
        'data of its batch and image size. Prints memory, time and what does not learn; writes nothing.',
    )
    add_shape(parser, 'that of the data, or of the config')
    parser.add_argument('--batch-size', type=int, metavar='N', help="images of the batch (default: the config's)")
    add_options(parser)
    args = parser.parse_args(argv)
    cfg = read_config(args.config, args.cfg_options)
    check_scope(cfg)
    refuse_pickled_code()
    cfg.train_dataloader.batch_size = args.batch_size or cfg.train_dataloader.get('batch_size') or 1
    init_default_scope(cfg.default_scope)
    hide_parameter_lists()
    torch.manual_seed(0)
    model = MODELS.build(model_settings(cfg))
    model.init_weights()  # logs which weights it loads
    model.to(get_device()).train()
    try:
        with quiet():  # a line for each parameter
            wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    except (KeyError, TypeError) as error:  # also of an unknown type
        raise ValueError(f'optim_wrapper = {dict(cfg.optim_wrapper)} cannot be built: {error}') from error
    if cfg.get('load_from'):
        load_checkpoint(model, cfg.load_from, map_location='cpu')
    origin, batch = one_batch(cfg, args.shape)
    say('data', origin)
    sizes = Counter('x'.join(map(str, image.shape[-2:])) for image in batch['inputs'])
    say('batch', ', '.join(f'{count} of {size}' for size, count in sizes.items()) + ' (before augments of batches)')
    parameters = dict(model.named_parameters())
    trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
    seen: set[str] = set()
    for name in trained:
        parameters[name].register_hook(lambda gradient, name=name: seen.add(name))
    for step in range(1, STEPS + 1):
        begin = time.perf_counter()
        try:
            loss = model.train_step(copy.deepcopy(batch), wrapper)['loss'].item()
        except (ValueError, RuntimeError, TypeError, LookupError, AttributeError, AssertionError) as error:
            raise ValueError(f'{failing_part(error, model)}{type(error).__name__}: {error}') from error
        is_finite = '' if math.isfinite(loss) else ': NOT finite'
        say(f'step {step}', f'{time.perf_counter() - begin:.2f} s, loss {loss:.4g}{is_finite}')
    memory = f'{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB of this process at most'
    if torch.cuda.is_available():
        memory = f'{torch.cuda.max_memory_allocated() / 2**20:.0f} MB of tensors on the GPU at most, {memory}'
    say('memory', memory)
    values = sum(parameters[name].numel() for name in seen)
    say('learn', f'{len(seen)} of {len(parameters)} parameters, {values / 1e6:.3f} M values')
    for title, names in (('frozen', parameters.keys() - trained), ('NO gradient', trained - seen)):
        if names:
            say(title, f'{len(names)}: {grouped(names)}')


def say(title: str, line: str) -> None:
    print(f'{title:12}{line}', flush=True)


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


def grouped(names: Iterable[str]) -> str:
    """Names of parameters, those of all blocks in one: ``backbone.layers.*.ln1.weight (12)``."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(re.sub(r'\b\d+\b', '*', name), []).append(name)
    lines = [members[0] if len(members) == 1 else f'{group} ({len(members)})' for group, members in groups.items()]
    rest = f' and {len(lines) - SHOWN_GROUPS} more' if len(lines) > SHOWN_GROUPS else ''
    return ', '.join(lines[:SHOWN_GROUPS]) + rest
