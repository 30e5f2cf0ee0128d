"""Planned memory and time against a training step measured on this CPU, or on a GPU.

    OMP_NUM_THREADS=1 PYTHONPATH=. python tests/planning/measured.py
    PYTHONPATH=. python tests/planning/measured.py --gpu h100

Every config runs in a process of its own, and the time is a median of some steps. On a CPU, memory is the process's
peak, less what it had before the step, and the roofline takes the rates that it reaches in one large product and one
large copy. On a GPU, memory is the peak of torch's tensors, and the roofline takes the rates of the card's data sheet.
"""

import argparse
import ctypes
import fcntl
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS

from vitplug.analysis.costs import silence_logs
from vitplug.analysis.image_size import read_image_size
from vitplug.benchmark.measure import CLOCKS
from vitplug.planning.cards import CARDS, GIB, Card
from vitplug.planning.measure_step import Step, Variant, make_optimizer, trace_step
from vitplug.planning.time_model import Band, step_seconds
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
# The same on a GPU, with the type of autocast.
CASES_ON_GPU = (
    ('configs/context_broadcast/deit-s-p16-cb_8xb128-300e_in1k.py', 128, None, False),
    ('configs/context_broadcast/deit-s-p16-cb_8xb128-300e_in1k.py', 128, torch.bfloat16, False),
    ('configs/context_broadcast/deit-s-p16-cb_8xb128-300e_in1k.py', 512, torch.bfloat16, True),
    ('configs/gaussian_bias/vit-relpos-s-p16-gab_8xb288-400e_in1k.py', 288, torch.bfloat16, False),
    ('configs/residual_attention/vit-b-p16-residual_32xb128-300e_in1k.py', 128, torch.bfloat16, False),
    ('configs/residual_attention/swin-t-p4-w7-residual_8xb128-300e_in1k.py', 128, torch.bfloat16, False),
    ('configs/broad_attention/deit-s-p16-broad_8xb64-300e_in1k.py', 256, torch.bfloat16, False),
    ('configs/refiner/convstem-vit-s-p16-refiner_8xb64-300e_in1k.py', 64, torch.bfloat16, False),
    ('configs/gaussian_bias/swin-s-p4-w7-gab_upernet_8xb2-160k_ade20k-512x512.py', 8, torch.bfloat16, False),
)
STEPS_ON_GPU = 20
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


class Trainer:
    """A config's model and the step that trains it."""

    def __init__(self, cfg: Config, on_gpu: bool):
        with silence_logs():
            self.model = revert_sync_batchnorm(MODELS.build(cfg.model)).to('cuda' if on_gpu else 'cpu').train()
        self.task = TASKS[cfg.default_scope]
        self.optimizer, self.clip = make_optimizer(cfg, self.model, on_gpu)
        self.trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def step(self, images: torch.Tensor, half: torch.dtype | None = None) -> None:
        with torch.autocast(images.device.type, half) if half else nullcontext():
            loss = sum(self.task.training_losses(self.model, images))
        loss.backward()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.trained, **self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()


def measure(path: str, batch: int, with_cp: bool) -> None:
    """Prints one row, measured in this process."""
    cfg = Config.fromfile(path)
    size = read_image_size(cfg)
    planned = trace_step(cfg, size.chw, batch, Variant(with_cp=with_cp), on_gpu=False)
    cfg.model.backbone.with_cp = with_cp
    step = Trainer(cfg, on_gpu=False).step
    images = torch.rand(batch, *size.chw)
    step(images[:1].repeat(2, 1, 1, 1) if batch > 1 else images)  # loads kernels, makes the optimizer's state
    ctypes.CDLL('libc.so.6').malloc_trim(0)
    Path('/proc/self/clear_refs').write_text('5')  # resets the peak
    before = status('VmRSS') - planned.weights - planned.optimizer - images.numel() * 4
    times = [best_of(lambda: step(images), 1)]
    peak = status('VmHWM') - before
    times += [best_of(lambda: step(images), 1) for _ in range(STEPS - 1)]
    name = f'{Path(path).stem}{", with_cp" if with_cp else ""}'
    print_row(name, batch, planned, images, peak, step_seconds(planned.operations, this_cpu()), median(times))


def measure_on_gpu(path: str, batch: int, half: torch.dtype | None, with_cp: bool, card: Card) -> None:
    """Prints one row, measured on the GPU."""
    cfg, variant = Config.fromfile(path), Variant(half, with_cp)
    size = read_image_size(cfg)
    planned = trace_step(cfg, size.chw, batch, variant)
    cfg.model.backbone.with_cp = with_cp
    with open(__file__, encoding='utf-8') as lock:  # plans are made side by side, steps are measured one after another
        fcntl.flock(lock, fcntl.LOCK_EX)
        trainer, images = Trainer(cfg, on_gpu=True), torch.rand(batch, *size.chw, device='cuda')

        def seconds() -> float:
            return CLOCKS['cuda'](lambda: trainer.step(images, half))

        for _ in range(3):
            seconds()
        torch.cuda.reset_peak_memory_stats()
        times = [seconds() for _ in range(STEPS_ON_GPU)]
    peak, band = torch.cuda.max_memory_allocated(), step_seconds(planned.operations, card)
    print_row(f'{Path(path).stem}, {variant}', batch, planned, images, peak, band, median(times))


def print_row(name: str, batch: int, planned: Step, images: torch.Tensor, peak: int, band: Band, taken: float) -> None:
    planned_gib, measured_gib = (planned.peak + images.numel() * 4) / GIB, peak / GIB
    print(
        f'{name}|{batch}|{planned_gib:.3f}|{measured_gib:.3f}|{planned_gib / measured_gib:.3f}'
        f'|{band.low:.3f} to {band.high:.3f}|{taken:.3f}'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--gpu', choices=CARDS, help='the GPU of this machine; default: measure on the CPU')
    parser.add_argument('--case', type=int, help='measure one case in this process')
    args = parser.parse_args()
    cases = CASES_ON_GPU if args.gpu else CASES
    if args.case is not None:
        case = cases[args.case]
        return measure_on_gpu(*case, CARDS[args.gpu]) if args.gpu else measure(*case)

    def row(index: int) -> tuple[str, ...] | None:
        command = [sys.executable, __file__, '--case', str(index), *(['--gpu', args.gpu] if args.gpu else [])]
        done = subprocess.run(command, env={**os.environ, **ALLOCATOR}, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.count('|') == 6]
        print(lines[0] if lines else (cases[index], done.stderr[-600:]), flush=True)
        return tuple(lines[0].split('|')) if lines else None

    with ThreadPoolExecutor(len(cases) if args.gpu else 1) as threads:
        rows = list(threads.map(row, range(len(cases))))
    header = ('config', 'batch', 'planned, GiB', 'measured, GiB', 'ratio', 'planned, s', 'measured, s')
    print(format_table([header, *filter(None, rows)]))


if __name__ == '__main__':
    main()
