"""Runs ViT and Swin with all plugs over ever new image sizes and checks that no cache and no memory grows.

    python tests/soak/changing_shapes.py [--shapes 2000] [--warm-up 400] [--bound 30]

Every model sees every size, in inference and in training steps by turns, and after every fourth size an earlier one
again. Every size is another token grid, and the largest comes first, so that the most memory is taken in warm-up.

After warm-up no dict, list, set or deque of the whole process may go on growing with the sizes (a cache without a bound
would keep at least one entry of each), nor may the number of tensors, nor resident memory beyond the bound: 19 KB a
size, where one N x N table of a single head is 100 KB on average, and more than what the allocator makes of blocks of
ever new sizes. The exit status is 1 if one does.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'helpers'))

from cases import PLUGS, images, randomize, swin_padding_small_maps, vit, vit_with_windows
from soak.memory import containers, function_caches, grown, resident, tensors, trend

Size = tuple[int, int]

# Sizes up to the first, and a tenth of those between: attention goes by rows from 512 tokens on.
USUAL_TOKENS, MOST_TOKENS = 350, 640
TOGETHER = [
    dict(type='ContextBroadcast', scaled=True),
    dict(type='RelPosBias'),
    dict(type='RelPosMlp', hidden_dims=8),
    dict(type='GaussianAttentionBias', coord='relative'),
    dict(type='ResidualAttention', window_align='token', low_memory=False),
    dict(type='BroadAttention'),
    dict(type='Refiner'),
]
# Alone the plugs take fast forms that exclude each other.
ALONE = ('rel-pos-bias', 'rel-pos-mlp-and-gab', 'residual', 'broad', 'refiner')
HOSTS = {'vit': (vit, 8), 'vit-windows': (vit_with_windows, 8), 'swin': (swin_padding_small_maps, 4)}


class Subject:
    """A small model with plugs that takes token grids of any size.

    Args:
        host: Name of the backbone in `HOSTS`.
        plugs: Configs of the plugs.
    """

    def __init__(self, host: str, plugs: Sequence[dict]):
        build, self.patch = HOSTS[host]
        self.model = randomize(build(plugs=[dict(plug) for plug in plugs]))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5)

    def run(self, size: Size, trains: bool) -> None:
        """One step, or one inference, on noise."""
        x = images(*(side * self.patch for side in size), batch=1, dtype=torch.float32)
        self.model.train(trains)
        with torch.enable_grad() if trains else torch.inference_mode():
            loss = sum(out.square().mean() for out in self.model(x))
        if trains:
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        if not loss.isfinite():
            raise FloatingPointError(f'loss {loss.item()} on a token grid of {size}')


def subjects() -> list[Subject]:
    """Each host with all plugs together, and those without windows or with shifted ones with each alone."""
    together = [Subject(host, TOGETHER) for host in HOSTS]
    return together + [Subject(host, PLUGS[name]) for host in ('vit', 'swin') for name in ALONE]


def sizes(count: int, draw: random.Random) -> list[Size]:
    """Different token grids (h, w), the largest first and the others in random order."""
    every = [(h, w) for h in range(1, MOST_TOKENS) for w in range(1, MOST_TOKENS // h + 1)]
    chosen = draw.sample([(h, w) for h, w in every if h * w <= USUAL_TOKENS or (h + w) % 10 == 0], count)
    largest = max(chosen, key=lambda size: size[0] * size[1])
    return [largest, *(size for size in chosen if size != largest)]


def run_through(models: Sequence[Subject], new: Sequence[Size], draw: random.Random) -> Iterator[int]:
    """Runs all models over all sizes and earlier ones again; yields the number of sizes so far."""
    for count, size in enumerate(new, 1):
        again = [draw.choice(new[:count])] if count % 4 == 0 else []
        for visited in (size, *again):
            for index, model in enumerate(models):
                model.run(visited, trains=(count + index) % 2 == 0)
        yield count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--shapes', type=int, default=2000)
    parser.add_argument('--warm-up', type=int, default=400, help='sizes that fill every cache, those of libraries too')
    parser.add_argument('--bound', type=float, default=30, help='MB by which resident memory may grow after that')
    parser.add_argument('--every', type=int, default=20, help='sizes from sample to sample of resident memory')
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    if not 0 < args.warm_up < args.shapes - 3 * args.every:
        parser.error(f'--warm-up {args.warm_up} leaves too few of {args.shapes} sizes to judge by')
    torch.manual_seed(args.seed)
    torch.set_num_threads(int(os.environ.get('OMP_NUM_THREADS', 1)))
    draw, process, begin = random.Random(args.seed), psutil.Process(), time.monotonic()
    models = subjects()
    # Of its full length from the start, for it is no cache.
    samples = np.zeros((args.shapes // args.every, 2))
    for count in run_through(models, sizes(args.shapes, draw), draw):
        if count % args.every == 0:
            samples[count // args.every - 1] = count, resident(process)
        if count == args.warm_up:
            warm, warm_tensors = containers(), tensors()
        if count % 200 == 0:
            print(f'{count:5} sizes, {resident(process):7.1f} MB, {time.monotonic() - begin:5.0f} s', flush=True)
    least = max(2, (args.shapes - args.warm_up) // 20)
    growing, end_tensors, memory = grown(warm, least), tensors(), trend(samples, args.warm_up)
    print(f'{args.shapes} sizes through {len(models)} models')
    print(f'memory  {memory}; bound {args.bound:g} MB')
    print(f'tensors {warm_tensors} after warm-up, {end_tensors} at the end')
    for name, info in sorted(function_caches('vitplug').items()):
        print(f'cache   {name}: {info.currsize} of at most {info.maxsize} entries, {info.hits} hits')
    print(f'of {len(warm)} containers {len(growing)} grew with the sizes' + ''.join(f'\n  {line}' for line in growing))
    failed = growing or memory.growth > args.bound or end_tensors >= warm_tensors + least
    print('FAILED' if failed else 'passed')
    return int(bool(failed))


if __name__ == '__main__':
    sys.exit(main())
