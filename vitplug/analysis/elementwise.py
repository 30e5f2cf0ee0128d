"""What plugs do beside convolutions and matrix products: elementwise operations and reductions.

Context Broadcasting, for one, has no product of matrices at all. Counted are::

    elementwise   one for each output element of a product, quotient, exponential and the like
    reduction     one for each input element of a mean, sum, maximum or softmax

An addition counts with the product before it, as in a multiply-accumulate, so it is not counted by itself; neither
are copies, casts and comparisons.
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
    """Counts elementwise operations and reductions while it is entered.

    Attributes:
        counts: What was counted so far, ``'elementwise'`` and ``'reduction'``.
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
