"""What a GPU would run, on fake tensors of a CPU, whose backward pass needs no driver.

torch chooses kernels of attention and the operations of autocast by the device. Both choices are made here as for a
GPU: attention by torch's flash and memory-efficient kernels where they take the tensors, and float32 where autocast on
CUDA keeps it and on a CPU does not. vitplug's own choices follow :func:`vitplug.attention.tuning.tuned_for`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.attention.tuning import BIAS_STEP, tuned_for

aten = torch.ops.aten
# Widest head of the flash kernel, and entries to which it pads a narrower one.
FLASH_WIDTH, FLASH_STEP = 256, 8


def _is_half_under_autocast(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float16, torch.bfloat16) and torch.is_autocast_enabled('cpu')


def _of_single(function: Callable) -> Callable:
    """A function whose input autocast on CUDA casts to float32, and autocast on a CPU leaves as it is."""

    @wraps(function)
    def run(x: Tensor, *args, **kwargs):
        return function(x.float() if _is_half_under_autocast(x) else x, *args, **kwargs)

    return run


def _to_single(function: Callable) -> Callable:
    """A function whose output is float32 under autocast on CUDA, unless its caller says otherwise."""

    @wraps(function)
    def run(x: Tensor, *args, **kwargs):
        if _is_half_under_autocast(x) and kwargs.get('dtype') is None:
            kwargs['dtype'] = torch.float32
        return function(x, *args, **kwargs)

    return run


# Of autocast's list for CUDA, what the models here call on half precision.
SINGLE = (
    (F, 'layer_norm', _of_single),
    (F, 'group_norm', _of_single),
    (F, 'normalize', _of_single),
    (F, 'softmax', _to_single),
    (F, 'log_softmax', _to_single),
    (torch, 'softmax', _to_single),
    (Tensor, 'softmax', _to_single),
)


def attend(q: Tensor, k: Tensor, v: Tensor, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None) -> Tensor:
    """``scaled_dot_product_attention`` by the kernel that torch's documentation names for a GPU.

    Args:
        q, k, v: ``(B, H, N, width)``; v may be wider.
        attn_mask: Added to the scores, or True for the keys that count; ``(B or 1, H or 1, Nq or 1, Nk)``.
        dropout_p: Drop rate of the probabilities.
        is_causal: Whether queries see earlier keys alone.
        scale: Factor of the dot products.

    Returns:
        ``(B, H, N, width of v)``.
    """
    if torch.is_autocast_enabled('cpu'):
        dtype = torch.get_autocast_dtype('cpu')
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    width, step = q.shape[-1], 16 // q.dtype.itemsize
    if q.dtype.itemsize == 2 and attn_mask is None and v.shape[-1] == width <= FLASH_WIDTH:
        pad = -width % FLASH_STEP
        q, k, v = (F.pad(t, (0, pad)) if pad else t for t in (q, k, v))
        scale = width**-0.5 if scale is None else scale
        out = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, scale=scale)[0]
        return out[..., :width] if pad else out
    if width % step == 0 and v.shape[-1] % step == 0 and q.dtype != torch.float64:
        mask = None if attn_mask is None else _expanded(attn_mask, q, k)
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
        return aten._scaled_dot_product_efficient_attention(
            q, k, v, mask, needs_grad, dropout_p, is_causal, scale=scale
        )[0]
    return aten._scaled_dot_product_attention_math(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)[0]


def _expanded(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The mask as the memory-efficient kernel takes it: numbers, rows of whole words, expanded without a copy."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
    if mask.stride(-1) != 1 or any(stride % BIAS_STEP for stride in mask.stride()[:-1]):
        num_keys = mask.shape[-1]
        mask = F.pad(mask, (0, BIAS_STEP - num_keys % BIAS_STEP))[..., :num_keys]
    return mask.expand(*q.shape[:-1], k.shape[-2])


# --- operations outside of torch ---


def _writes_into_its_arguments(*args, **kwargs) -> None:
    """Stands for an operation of mmcv that fills tensors which it is given."""


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """The forms of a GPU inside a ``with`` block, of torch, of vitplug and of mmcv's RoI operations."""
    with ExitStack() as stack:
        stack.enter_context(tuned_for('cuda'))
        stack.enter_context(without_roi_kernels())
        # Not a TorchFunctionMode: checkpointing would run its second forward pass outside of it.
        stack.enter_context(patch.object(F, 'scaled_dot_product_attention', attend))
        for owner, name, change in SINGLE:
            stack.enter_context(patch.object(owner, name, change(getattr(owner, name))))
        yield


@contextmanager
def without_roi_kernels() -> Iterator[None]:
    """Lets mmcv's RoIAlign run on fake tensors, which have no numbers that its kernel could read."""
    try:
        module = import_module('mmcv.ops.roi_align')  # mmcv.ops has a function of this name
    except ImportError:
        yield
        return
    kernels: dict[str, Callable] = dict.fromkeys(
        ('roi_align_forward', 'roi_align_backward'), _writes_into_its_arguments
    )
    with patch.object(module, 'ext_module', SimpleNamespace(**kernels)):
        yield
