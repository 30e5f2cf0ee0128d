"""The command ``vitplug bench``: what plugs cost, side by side with the plain model and with other libraries' models.

``time``      a training step and inference of whole models. All models of a table take turns in one process, and the
              ratio is the median over the rounds: what disturbs a round disturbs all of its models.
``overhead``  what is spent before kernels run: ATen operations, and calls of Python functions, of a tiny model with as
              many blocks. Both are exact for one version of Python and of the libraries. Where small batches wait for
              Python, as on a GPU, these counts are the time.
"""

import argparse
import cProfile
import platform
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from vitplug.attention.tuning import tuned_for
from vitplug.commands import command_parser
from vitplug.tables import format_table

from .costs import quiet

PLUGS = ('cb', 'gab', 'residual', 'broad', 'refiner')
DTYPES = {'fp32': None, 'bf16': torch.bfloat16, 'fp16': torch.float16}
TIMES = ('model', 'ms', 'ratio', 'quartiles')
COUNTS = ('model', 'operations', 'ratio', 'training', 'ratio', 'Python calls', 'ratio')
ROUNDS, WARM_UP = 5, 2


# --- models of one size from several libraries; the first library of a host is the one that ratios are to ---


def vit(library: str, plugs: str, size: int, tiny: bool) -> nn.Module:
    """A DeiT-S, or as many blocks of 48 channels and patches of 8 pixels."""
    width, heads, hidden, patch = (48, 6, 96, 8) if tiny else (384, 6, 1536, 16)
    if library == 'timm':
        from timm.models.vision_transformer import VisionTransformer

        sizes = dict(embed_dim=width, depth=12, num_heads=heads, mlp_ratio=hidden / width, patch_size=patch)
        return VisionTransformer(num_classes=0, img_size=size, **sizes)
    arch = dict(embed_dims=width, num_layers=12, num_heads=heads, feedforward_channels=hidden)
    return _of_openmmlab(library, 'VisionTransformer', plugs, arch=arch, img_size=size, patch_size=patch)


def swin(library: str, plugs: str, size: int, tiny: bool) -> nn.Module:
    """A Swin-T with four outputs, or one of 12 channels with windows of 3."""
    sizes = dict(embed_dims=12 if tiny else 96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24])
    window = dict(window_size=3 if tiny else 7, drop_path_rate=0.0)
    if library == 'mmdet':
        from mmdet.models.backbones import SwinTransformer

        return SwinTransformer(**sizes, **window)
    window |= dict(out_indices=(0, 1, 2, 3), pad_small_map=True)
    return _of_openmmlab(library, 'SwinTransformer', plugs, arch=sizes, img_size=size, **window)


def _of_openmmlab(library: str, name: str, plugs: str, **settings: Any) -> nn.Module:
    from mmpretrain.models import backbones

    from vitplug import backbones as ours

    if library == 'mmpretrain':
        return getattr(backbones, name)(**settings)
    return getattr(ours, name)(plugs=plugs, **settings)


#: Function and libraries by host.
HOSTS = {'deit': (vit, ('timm', 'mmpretrain')), 'swin': (swin, ('mmdet', 'mmpretrain'))}


def models(host: str, plugs: Sequence[str], size: int, tiny: bool) -> dict[str, nn.Module]:
    """The models of a host by name; those of libraries that are not installed are left out, and said."""
    build, libraries = HOSTS[host]
    found: dict[str, nn.Module] = {}
    for library in libraries:
        try:
            found[library] = build(library, '', size, tiny)
        except ImportError as error:
            print(f'{library} is left out: {error}', file=sys.stderr)
    return found | {
        f'vitplug {text}': build('vitplug', 'none' if text == 'plain' else text, size, tiny) for text in plugs
    }


# --- time ---


def step_of(model: nn.Module, images: Tensor, is_training: bool, dtype: torch.dtype | None = None) -> Callable:
    """A forward pass, or a training step without an optimizer."""
    model.train(is_training)

    def step() -> None:
        with torch.inference_mode(not is_training), _autocast(images, dtype):
            outs = model(images)
        if is_training:
            outs = outs if isinstance(outs, tuple | list) else [outs]
            sum(out.float().sum() for out in outs).backward()
            model.zero_grad()

    return step


def _autocast(images: Tensor, dtype: torch.dtype | None) -> AbstractContextManager:
    return torch.autocast(images.device.type, dtype) if dtype else nullcontext()


def seconds_of(steps: Mapping[str, Callable[[], None]], seconds: float, device: str) -> dict[str, list[float]]:
    """Times of each step by round; all take turns, in both orders, for some seconds and at least five rounds."""
    wait = torch.cuda.synchronize if device == 'cuda' else lambda: None
    for step in [*steps.values()] * WARM_UP:
        step()
    wait()
    times: dict[str, list[float]] = {name: [] for name in steps}
    end, done = time.perf_counter() + seconds, 0
    while done < ROUNDS or time.perf_counter() < end:
        for name in steps if done % 2 else reversed(steps):
            times[name].append(timeit.timeit(lambda name=name: (steps[name](), wait()), number=1))
        done += 1
    return times


def timed(host: str, size: int, args: argparse.Namespace) -> None:
    """Prints a table of times for training and one for inference."""
    images = torch.rand(args.batch, 3, size, size, device=args.device)
    built = {name: model.to(args.device) for name, model in models(host, args.plugs, size, tiny=False).items()}
    if args.compile:
        built = {name: torch.compile(model) for name, model in built.items()}
    for mode in ('training', 'inference'):
        steps = {name: step_of(one, images, mode == 'training', DTYPES[args.dtype]) for name, one in built.items()}
        times = seconds_of(steps, args.seconds, args.device)
        first = next(iter(times.values()))
        rows = [TIMES]
        for name, own in times.items():
            ratios = [a / b for a, b in zip(own, first, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            rows.append((name, f'{1e3 * statistics.median(own):.2f}', f'{middle:.2f}', f'{low:.2f} to {high:.2f}'))
        show(f'{host}, {size} x {size}, batch {args.batch}, {mode}, {len(first)} rounds', rows)


# --- overhead ---


class Operations(TorchDispatchMode):
    """Counts the ATen operations that reach the device."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += func._schema.name.startswith('aten::')
        return func(*args, **(kwargs or {}))


def operations(step: Callable[[], None]) -> int:
    """Operations of a step whose caches are warm."""
    step()
    with Operations() as counted:
        step()
    return counted.number


def python_calls(step: Callable[[], None]) -> int:
    """Calls of Python functions in a step whose caches are warm."""
    profile = cProfile.Profile(builtins=False)
    step()
    profile.enable()
    step()
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def overhead(host: str, plugs: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """Operations of inference and of training, and Python calls of inference, in the forms of a GPU, by model."""
    size, counts = {'deit': 32, 'swin': 64}[host], {}
    images = torch.zeros(2, 3, size, size)
    for name, model in models(host, plugs, size, tiny=True).items():
        with tuned_for('cuda'):
            seen = step_of(model, images, is_training=False)
            calls, forward = python_calls(seen), operations(seen)
            counts[name] = forward, operations(step_of(model, images, is_training=True)), calls
    return counts


def counted(host: str, plugs: Sequence[str]) -> None:
    """Prints the table of a host."""
    counts = overhead(host, plugs)
    first = next(iter(counts.values()))
    rows = [COUNTS]
    for name, own in counts.items():
        pairs = ((f'{a:,}', f'{a / b:.2f}') for a, b in zip(own, first, strict=True))
        rows.append((name, *(text for pair in pairs for text in pair)))
    show(f'{host}: operations of inference and training, and calls of Python functions in inference', rows)


# --- the command ---


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and prints a table at a time."""
    args = parser().parse_args(argv)
    device = torch.cuda.get_device_name() if args.device == 'cuda' else platform.processor() or platform.machine()
    where = f'torch {torch.__version__}, Python {platform.python_version()}, {device}'
    print(f'{where}, {torch.get_num_threads()} threads, {args.dtype}')
    with quiet():  # a line for each model
        for host in args.hosts:
            if 'overhead' in args.parts:
                counted(host, args.plugs)
            for size in args.size if 'time' in args.parts else ():
                timed(host, size, args)
    return 0


def show(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    print(f'\n{title}\n{format_table(rows, range(1, len(rows[0])))}', flush=True)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = command_parser('bench', 'Measure what plugs cost. Times need an idle machine; counts do not.')
    add, device = options.add_argument, 'cuda' if torch.cuda.is_available() else 'cpu'
    add('--parts', nargs='+', choices=('time', 'overhead'), default=['overhead', 'time'], help='default: both')
    add('--hosts', nargs='+', choices=HOSTS, default=[*HOSTS], help='default: all')
    add('--plugs', nargs='+', default=['plain', *PLUGS], help="texts of plugs; default: plain and the five papers'")
    add('--size', nargs='+', type=int, default=[224, 512], help='images, in pixels; default 224 512')
    add('--batch', type=int, default=2, help='images of a batch; default 2')
    add('--device', choices=('cpu', 'cuda'), default=device, help='default: cuda where there is a GPU')
    add('--dtype', choices=DTYPES, default='fp32', help='precision, by autocast; default fp32')
    add('--compile', action='store_true', help='compile the models')
    add('--seconds', type=float, default=60, help='time of the rounds of a table; default 60')
    return options
