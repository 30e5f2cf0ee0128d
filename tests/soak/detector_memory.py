"""Trains the detector of a config on random images of the size that COCO's largest have, and prints its memory.

    python tests/soak/detector_memory.py configs/residual_attention/mvitv2-t_mask-rcnn_16xb4-ms-crop-36e_coco.py

Weights are random. The peak is that of the whole process, Python and its libraries included.
"""

import argparse
import resource
import time

import torch
from mmdet.testing import demo_mm_inputs
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope


def peak_gigabytes() -> float:
    """The most memory that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('config', help='config of a detector')
    parser.add_argument('--iterations', type=int, default=20, help='20 by default')
    parser.add_argument('--size', type=int, nargs=2, default=(800, 1333), help='height and width; 800 1333 by default')
    parser.add_argument('--batch', type=int, default=1, help='images per iteration; 1 by default')
    args = parser.parse_args()
    cfg = Config.fromfile(args.config)
    init_default_scope(cfg.default_scope)
    cfg.model.backbone.init_cfg = None
    torch.manual_seed(0)
    model = MODELS.build(cfg.model).train()
    model.init_weights()
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper)
    start = peak_gigabytes()
    for iteration in range(args.iterations):
        shapes = [[3, *args.size]] * args.batch
        data = demo_mm_inputs(args.batch, shapes, num_items=[8] * args.batch, num_classes=80, with_mask=True)
        began = time.perf_counter()
        losses = model.train_step(data, optimizer)
        seconds, loss = time.perf_counter() - began, losses['loss'].item()
        print(
            f'iteration {iteration + 1}: loss {loss:.3f}, {seconds:.1f} s, peak {peak_gigabytes():.2f} GiB', flush=True
        )
    print(f'peak {peak_gigabytes():.2f} GiB, {start:.2f} GiB of it before the first iteration')


if __name__ == '__main__':
    main()
