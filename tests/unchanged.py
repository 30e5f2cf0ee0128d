"""Stores outputs and gradients of every plug on every host before a refactoring, and compares them after it.

    python tests/unchanged.py store FILE         # before the first change
    python tests/unchanged.py compare FILE       # after it; status 1 if any number differs by more than 1e-12

Models are in float64, in training and in evaluation, at the configured and at another size, and at one of more tokens
than the fast forms ask for. A combination that is refused is kept as refused.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().with_name('helpers')))

from cases import HOSTS, PLUGS, images, randomize, swin, vit
from test_contract import gradients, loss_of

SMALL, OTHER = (32, 40), (48, 40)
# 24 x 24 tokens and the class token: by tiles. 48 x 48: residual attention widens q and k.
LARGE = {'vit-576': (vit, (192, 192)), 'vit-2304': (vit, (384, 384)), 'swin-large': (swin, (256, 256))}
TOLERANCE = 1e-12
# Batch norms of maps need statistics of more than tiny batches to keep rounding errors small.
FEW = dict(arch=dict(embed_dims=8, num_layers=2, num_heads=2, feedforward_channels=8))


def observe(model, x: Tensor) -> dict[str, Tensor]:
    """Outputs and gradients in training, then the outputs in evaluation."""
    found = {}
    for mode in (True, False):
        model.train(mode)
        torch.manual_seed(3)
        outs = model(x)
        found |= {f'out {i} train={mode}': out.detach().clone() for i, out in enumerate(outs)}
        if mode:
            loss_of(outs).backward()
            found |= {f'grad {name}': grad for name, grad in gradients(model).items()}
    return found


def observations() -> Iterator[tuple[str, dict[str, Tensor] | str]]:
    """Name and numbers of every combination, or why it is refused."""
    for plug, plugs in PLUGS.items():
        for host, build in HOSTS.items():
            for size in (SMALL, OTHER):
                yield f'{host} {plug} {size}', _observed(build, plugs, size)
        for host, (build, size) in LARGE.items():
            settings = FEW if build is vit else {}
            if host == 'vit-2304' and ('refiner' in plug or 'broad' in plug):
                continue  # memory
            yield f'{host} {plug} {size}', _observed(build, plugs, size, batch=1, **settings)


def _observed(build, plugs, size: tuple[int, int], batch: int = 2, **settings) -> dict[str, Tensor] | str:
    try:
        plugs = [{**plug, 'layers': 'all'} if settings and 'layers' in plug else plug for plug in plugs]
        model = randomize(build(plugs=plugs, **settings)).double()
    except ValueError as error:
        return str(error)
    return observe(model, images(*size, batch=batch))


def largest_difference(ours, theirs) -> float:
    """0 where both are refused or equal, infinity where names or shapes are others."""
    if isinstance(ours, str) or isinstance(theirs, str):
        return 0.0 if isinstance(ours, str) and isinstance(theirs, str) else float('inf')
    if {k: t.shape for k, t in ours.items()} != {k: t.shape for k, t in theirs.items()}:
        return float('inf')
    return max((float((ours[name] - theirs[name]).abs().max()) for name in ours if ours[name].numel()), default=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('action', choices=('store', 'compare'))
    parser.add_argument('file', type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.action == 'store':
        torch.save(dict(observations()), args.file)
        return 0
    stored, worst = torch.load(args.file), {}
    for name, numbers in observations():
        if name in stored:
            worst[name] = largest_difference(numbers, stored.pop(name))
    different = {name: value for name, value in worst.items() if not value <= TOLERANCE}
    for name, value in different.items():
        print(f'{name}: {value:.3g}')
    for name in stored:
        print(f'{name}: not there any more')
    largest = max(worst.values(), default=0)
    print(f'{len(worst)} combinations, {len(different)} differ, largest difference {largest:.3g}')
    return int(bool(different or stored))


if __name__ == '__main__':
    sys.exit(main())
