"""FlexAttention on a GPU beside the exact form: time, memory and difference of attention whose bias is trained.

    PYTHONPATH=. python tests/attention/measured_flex.py

Forward and backward in bfloat16, 4 layers of 6 heads of 64, 4 images, GAB. A difference is relative, of the outputs.
"""

import argparse
from functools import partial
from statistics import median

import torch

from vitplug.attention import tuning
from vitplug.benchmark.attention import Sizes, Stack
from vitplug.benchmark.measure import CLOCKS
from vitplug.plugs import GaussianAttentionBias
from vitplug.tables import format_table

SIDES = (32, 48, 64)
FORMS = {'exact': None, 'FlexAttention': 2}


def measure(stack: Stack, flex_from: int | None) -> tuple[torch.Tensor, float, float]:
    """Output, milliseconds and GiB of a step."""
    tuning.FLEX_FROM = flex_from
    for _ in range(3):  # compiles
        stack.step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    seconds = median(CLOCKS['cuda'](stack.step) for _ in range(20))
    peak = torch.cuda.max_memory_allocated() - before
    with torch.no_grad():
        return stack.forward().float(), 1e3 * seconds, peak / 2**30


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(torch.cuda.get_device_name(), torch.__version__)
    rows = [('tokens', *(f'{form}, {unit}' for form in FORMS for unit in ('ms', 'GiB')), 'difference')]
    for side in SIDES:
        stack = Stack(Sizes(4, 6, 64, side, side, 0, 4), [GaussianAttentionBias(sigma=8.0)], 'cuda', torch.bfloat16)
        exact, flex = map(partial(measure, stack), FORMS.values())
        difference = ((flex[0] - exact[0]).norm() / exact[0].norm()).item()
        rows.append((str(side * side), *(f'{value:.2f}' for value in (*exact[1:], *flex[1:])), f'{difference:.1e}'))
        print(rows[-1], flush=True)
    print(format_table(rows))


if __name__ == '__main__':
    main()
