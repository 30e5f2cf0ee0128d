"""Counts elementwise operations and reductions of plugs, which are not part of the MACs.

Context Broadcasting, for example, has no matrix products at all. Counted are::

    elementwise   one per output element of a product, quotient, exponential or similar
    reduction     one per input element of a mean, sum, maximum or softmax

Additions are not counted: as in a multiply-accumulate, they belong to the product before them. Copies, casts and
comparisons are not counted either.
"""

from collections import Counter

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ELEMENTWISE = 'elementwise'
REDUCTION = 'reduction'
REDUCTIONS = frozenset(('amax', 'amin', 'max', 'mean', 'min', 'sum', 'var', 'var_mean', '_softmax', '_log_softmax'))
# fmt: off
FREE = frozenset((
    'add', 'add_', 'sub', 'sub_', 'rsub', 'neg', 'abs', 'clone', 'copy_', '_to_copy', 'where', 'masked_fill',
    'masked_fill_', 'clamp', 'clamp_', 'minimum', 'maximum', 'eq', 'ne', 'lt', 'le', 'gt', 'ge', 'logical_not',
    'fill', 'fill_', 'floor_divide', 'remainder', 'relu', 'relu_',
))
# fmt: on


class ElementCounter(TorchDispatchMode):
    """Context manager that counts elementwise operations and reductions.

    Attributes:
        counts: The counts so far, ``'elementwise'`` and ``'reduction'``.
    """

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        name = func.overloadpacket.__name__
        if name in REDUCTIONS:
            self.counts[REDUCTION] += args[0].numel()
        elif torch.Tag.pointwise in func.tags and name not in FREE and isinstance(out, Tensor):
            self.counts[ELEMENTWISE] += out.numel()
        return out
