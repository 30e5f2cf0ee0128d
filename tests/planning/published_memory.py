"""Planned memory against that in the tables of mmdet and mmseg, for their stock configs.

    PYTHONPATH=. python tests/planning/published_memory.py

The figures are those of `metafile.yml` in the installed packages: most memory of 8 processes' logs, on GPUs, with the
torch 1 of their time. It had no fused attention, its softmax kept its input beside its output for the backward pass
(until 1.11, pytorch #64000), and `zero_grad` kept gradients, as zeros (until 2.0). The second plan does so too.
"""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import torch
import torch.nn.functional as F
import yaml
from mmengine.config import Config
from torch import Tensor

from vitplug.analysis.image_size import read_image_size
from vitplug.planning.cards import GIB
from vitplug.planning.measure_step import Step, Variant, trace_step
from vitplug.planning.memory_model import memory_of
from vitplug.tables import markdown_table

PROCESSES = 8
aten = torch.ops.aten
CONFIGS = {
    'mmseg': (
        'fcn/fcn_r50-d8_4xb2-40k_cityscapes-512x1024',
        'pspnet/pspnet_r50-d8_4xb4-80k_ade20k-512x512',
        'deeplabv3plus/deeplabv3plus_r50-d8_4xb4-80k_ade20k-512x512',
        'upernet/upernet_r50_4xb2-40k_cityscapes-512x1024',
        'upernet/upernet_r50_4xb4-80k_ade20k-512x512',
        'upernet/upernet_r101_4xb4-80k_ade20k-512x512',
        'vit/vit_vit-b16_mln_upernet_8xb2-80k_ade20k-512x512',
        'vit/vit_deit-s16_upernet_8xb2-80k_ade20k-512x512',
        'vit/vit_deit-b16_upernet_8xb2-80k_ade20k-512x512',
        'swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512',
        'swin/swin-small-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512',
        'swin/swin-base-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512',
    ),
    'mmdet': (
        'retinanet/retinanet_r50_fpn_1x_coco',
        'faster_rcnn/faster-rcnn_r50_fpn_1x_coco',
        'mask_rcnn/mask-rcnn_r50_fpn_1x_coco',
        'mask_rcnn/mask-rcnn_r101_fpn_1x_coco',
        'cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco',
        'swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco',
        'swin/mask-rcnn_swin-t-p4-w7_fpn_ms-crop-3x_coco',
    ),
}
# Of images that are cropped after they are grouped by their shape, a wide and a tall one may come together.
SIZES = {'mask-rcnn_swin-t-p4-w7_fpn_ms-crop-3x_coco': (1344, 1344)}
KEYS = ('Training Memory (GB)', 'Memory (GB)')


def configs_of(library: str) -> Path:
    return Path(import_module(library).__file__).parent / '.mim' / 'configs'


def published(path: Path) -> float:
    """GB of a config, from the metafile beside it."""
    [file] = path.parent.glob('metafile.y*ml')
    models = yaml.safe_load(file.read_text())
    models = models['Models'] if isinstance(models, dict) else models
    [model] = [model for model in models if Path(model['Config']).stem == path.stem]
    return next(model['Metadata'][key] for key in KEYS if key in model['Metadata'])


def with_maps(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """Attention as `nn.MultiheadAttention` had it in torch 1."""
    scores = (q * (scale or q.shape[-1] ** -0.5)) @ k.transpose(-2, -1)
    return F.dropout((scores if attn_mask is None else scores + attn_mask).softmax(-1), dropout_p) @ v


class _KeepsItsInput(torch.autograd.Function):
    """Softmax, or its logarithm, that saves its input as well."""

    @staticmethod
    def forward(ctx, x: Tensor, dim: int, is_log: bool) -> Tensor:
        out = (aten._log_softmax if is_log else aten._softmax)(x, dim, False)
        ctx.save_for_backward(x, out)
        ctx.dim, ctx.is_log = dim, is_log
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        x, out = ctx.saved_tensors
        backward = aten._log_softmax_backward_data if ctx.is_log else aten._softmax_backward_data
        return backward(grad, out, ctx.dim, x.dtype), None, None


def softmax(x: Tensor, dim: int, *args, dtype: torch.dtype | None = None, **kwargs) -> Tensor:
    return _KeepsItsInput.apply(x if dtype is None else x.to(dtype), dim, False)


def log_softmax(x: Tensor, dim: int, *args, dtype: torch.dtype | None = None, **kwargs) -> Tensor:
    return _KeepsItsInput.apply(x if dtype is None else x.to(dtype), dim, True)


def cross_entropy(x: Tensor, target: Tensor, weight=None, ignore_index=-100, reduction='mean') -> Tensor:
    return F.nll_loss(log_softmax(x, 1), target, weight, ignore_index=ignore_index, reduction=reduction)


@contextmanager
def as_in_torch_1() -> Iterator[None]:
    """Attention with maps, and softmax that keeps its input, inside a ``with`` block."""
    changes = (
        (F, 'softmax', softmax),
        (torch, 'softmax', softmax),
        (Tensor, 'softmax', softmax),
        (F, 'log_softmax', log_softmax),
        (F, 'cross_entropy', cross_entropy),
    )
    with ExitStack() as stack:
        stack.enter_context(patch('vitplug.planning.gpu_forms.attend', with_maps))
        for owner, name, change in changes:
            stack.enter_context(patch.object(owner, name, change))
        yield


def peak_with_kept_gradients(step: Step) -> float:
    """Bytes of one process that has its gradients at all times."""
    memory = memory_of(step, 'ddp', PROCESSES, False)
    return memory.weights + memory.gradients + memory.optimizer + step.activations


def row(library: str, name: str) -> tuple[str, ...]:
    path = configs_of(library) / f'{name}.py'
    cfg = Config.fromfile(path)
    batch = cfg.train_dataloader.batch_size
    height, width = SIZES.get(path.stem) or read_image_size(cfg).chw[1:]
    today = memory_of(trace_step(cfg, (3, height, width), batch, Variant()), 'ddp', PROCESSES, False).peak / GIB
    with as_in_torch_1():
        planned = peak_with_kept_gradients(trace_step(cfg, (3, height, width), batch, Variant())) / GIB
    known = published(path)
    return (
        path.stem,
        f'{batch} x {height}x{width}',
        f'{known:.2f}',
        f'{today:.2f}',
        f'{planned:.2f}',
        f'{planned / known:.2f}',
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('names', nargs='*', help='parts of names; default: all')
    names = parser.parse_args().names
    rows = [('config', 'images', 'published, GB', 'planned today, GiB', 'as torch 1, GiB', 'ratio')]
    for library, configs in CONFIGS.items():
        for name in configs:
            if names and not any(part in name for part in names):
                continue
            try:
                rows.append(row(library, name))
                print(rows[-1], flush=True)
            except (ValueError, StopIteration) as error:
                print(f'{name}: {error!r}', flush=True)
    print(markdown_table(rows, numeric=range(2, 6)))


if __name__ == '__main__':
    main()
