"""Planned memory and time against a training step measured on this CPU.

    OMP_NUM_THREADS=1 PYTHONPATH=. python tests/planning/measured.py

Every config runs in a process of its own: the process's peak memory, less what it had before the step, and the median
time of three steps. The roofline takes the rates that this CPU reaches in one large product and one large copy.
"""

import argparse
import ctypes
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS

from vitplug.analysis.costs import silence_logs
from vitplug.analysis.image_size import read_image_size
from vitplug.planning.cards import GIB, Card
from vitplug.planning.measure_step import Variant, make_optimizer, trace_step
from vitplug.planning.time_model import step_seconds
from vitplug.tables import format_table
from vitplug.tasks import TASKS

# Config, images, and whether the backbone's blocks are checkpointed.
CASES = (
    ('configs/context_broadcast/deit-s-p16-cb_8xb128-300e_in1k.py', 8, False),
    ('configs/context_broadcast/deit-s-p16-cb_8xb128-300e_in1k.py', 16, True),
    ('configs/broad_attention/deit-s-p16-broad_8xb64-300e_in1k.py', 8, False),
    ('configs/residual_attention/swin-t-p4-w7-residual_8xb128-300e_in1k.py', 4, False),
    ('configs/refiner/convstem-vit-s-p16-refiner_8xb64-300e_in1k.py', 4, False),
    ('configs/gaussian_bias/swin-s-p4-w7-gab_upernet_8xb2-160k_ade20k-512x512.py', 2, False),
)
STEPS = 3
# Large tensors go back to the system when they are freed, so that the process's memory is that of its tensors.
ALLOCATOR = dict(MALLOC_MMAP_THRESHOLD_='262144', MALLOC_TRIM_THRESHOLD_='262144', MALLOC_ARENA_MAX='1')


def status(name: str) -> int:
    """A line of the process's memory, in bytes."""
    text = Path('/proc/self/status').read_text(encoding='utf-8')
    return int(re.search(rf'{name}:\s*(\d+) kB', text).group(1)) << 10


def this_cpu() -> Card:
    """The rates that this CPU reaches."""
    a, b = torch.rand(2, 2048, 2048)
    products = 2 * 2048**3 / best_of(lambda: a @ b)
    x = torch.rand(1 << 26)
    y = torch.empty_like(x)
    bandwidth = 2 * 4 * x.numel() / best_of(lambda: y.copy_(x))
    return Card('this CPU', 0, bandwidth, products, products, products, 0)


def best_of(run, times: int = 5) -> float:
    def seconds() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return min(seconds() for _ in range(times))


def measure(path: str, batch: int, with_cp: bool) -> None:
    """Prints one row, measured in this process."""
    cfg = Config.fromfile(path)
    size = read_image_size(cfg)
    planned = trace_step(cfg, size.chw, batch, Variant(with_cp=with_cp), on_gpu=False)
    cfg.model.backbone.with_cp = with_cp
    with silence_logs():
        model = revert_sync_batchnorm(MODELS.build(cfg.model)).train()
    optimizer, clip = make_optimizer(cfg, model, on_gpu=False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def step(images: torch.Tensor) -> None:
        sum(TASKS[cfg.default_scope].training_losses(model, images)).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(trained, **clip)
        optimizer.step()
        optimizer.zero_grad()

    images = torch.rand(batch, *size.chw)
    step(images[:1].repeat(2, 1, 1, 1) if batch > 1 else images)  # loads kernels, makes the optimizer's state
    ctypes.CDLL('libc.so.6').malloc_trim(0)
    Path('/proc/self/clear_refs').write_text('5')  # resets the peak
    before = status('VmRSS') - planned.weights - planned.optimizer - images.numel() * 4
    times = [best_of(lambda: step(images), 1)]
    peak = status('VmHWM') - before
    times += [best_of(lambda: step(images), 1) for _ in range(STEPS - 1)]
    band = step_seconds(planned.operations, this_cpu())
    name = f'{Path(path).stem}{", with_cp" if with_cp else ""}'
    planned_gib, measured_gib = (planned.peak + images.numel() * 4) / GIB, peak / GIB
    print(
        f'{name}|{batch}|{planned_gib:.3f}|{measured_gib:.3f}|{planned_gib / measured_gib:.3f}'
        f'|{band.low:.2f} to {band.high:.2f}|{median(times):.2f}'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--case', type=int, help='measure one case in this process')
    args = parser.parse_args()
    if args.case is not None:
        return measure(*CASES[args.case])
    rows = [('config', 'batch', 'planned, GiB', 'measured, GiB', 'ratio', 'planned, s', 'measured, s')]
    for index in range(len(CASES)):
        command = [sys.executable, __file__, '--case', str(index)]
        done = subprocess.run(command, env={**os.environ, **ALLOCATOR}, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.count('|') == 6]
        if lines:
            rows.append(tuple(lines[0].split('|')))
            print(rows[-1], flush=True)
        else:
            print(CASES[index], done.stderr[-600:], flush=True)
    print(format_table(rows))


if __name__ == '__main__':
    main()
