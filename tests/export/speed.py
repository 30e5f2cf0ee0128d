"""Milliseconds of a forward: eager, compiled, and in onnxruntime, at equal output, in one process.

`PYTHONPATH=.:tests python tests/export/speed.py --threads 2` measures DeiT-S at 224, Swin-T at 512, and UPerNet with
ViT-S at 512, batch 1, with initial weights. The runs take turns, and the median of each is printed.
"""

import argparse
import itertools
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from mmengine.registry import DefaultScope
from torch import Tensor, nn

from vitplug.backbones import SwinTransformer, VisionTransformer
from vitplug.export.folding import folded
from vitplug.export.formats import FORMATS, quantise
from vitplug.export.trace import quiet, trace
from vitplug.export.verify import TOLERANCE, check, compare, made_images
from vitplug.registry import MODELS
from vitplug.tasks.networks import MapLogits

Run = Callable[[Tensor], object]
INT8 = 'int8.onnx'


class Maps(nn.Module):
    """The maps of a backbone."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.backbone(images))


def deit(plugs: str | list) -> nn.Module:
    return Maps(VisionTransformer(arch='deit-small', img_size=224, plugs=plugs))


def swin(plugs: str | list) -> nn.Module:
    return Maps(SwinTransformer(arch='tiny', out_indices=(0, 1, 2, 3), pad_small_map=True, plugs=plugs))


def upernet(plugs: str | list) -> nn.Module:
    channels = [384] * 4
    backbone = dict(type='vitplug.VisionTransformer', arch='deit-small', img_size=512, out_type='featmap', plugs=plugs)
    head = dict(type='UPerHead', in_channels=channels, in_index=[0, 1, 2, 3], channels=512, num_classes=150)
    model = dict(
        type='EncoderDecoder',
        backbone=dict(backbone, out_indices=(2, 5, 8, 11)),
        neck=dict(type='MultiLevelNeck', in_channels=channels, out_channels=384, scales=[4, 2, 1, 0.5]),
        decode_head=dict(head, norm_cfg=dict(type='BN')),
        test_cfg=dict(mode='whole'),
    )
    with DefaultScope.overwrite_default_scope('mmseg'):
        return MapLogits(MODELS.build(model))


CASES: Mapping[str, tuple[Callable[[str | list], nn.Module], int]] = {
    'DeiT-S 224': (deit, 224),
    'Swin-T 512': (swin, 512),
    'UPerNet ViT-S 512': (upernet, 512),
}


def write(network: nn.Module, images: Tensor, path: Path) -> None:
    """Writes a network as ONNX, and beside it with int8 weights."""
    constant, _ = folded(network)
    program = trace(constant, images, ())
    names = [f'out{i}' for i in range(len(program.graph_signature.user_outputs))]
    with quiet():
        FORMATS['onnx'].write(program, path, names, {})
    shutil.copyfile(path, path.with_name(INT8))
    quantise(path.with_name(INT8))


def in_onnxruntime(path: Path, threads: int) -> Run:
    """A file in onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
    return lambda images: [torch.from_numpy(out) for out in session.run(None, {'images': images.numpy()})]


@torch.inference_mode()
def measure(runs: Mapping[str, Run], images: Tensor, rounds: int) -> dict[str, float]:
    """The median milliseconds of each; they take turns, so that a busy machine slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run(images)  # compiles, and fills caches
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run(images)
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('models', nargs='*', default=[*CASES], metavar='MODEL', help=f'of {", ".join(CASES)}')
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--plugs', nargs='+', default=[''], help="such as 'cb+gab'; '' for none")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print('| model | plugs | MB | difference | eager ms | compiled | onnxruntime | int8 | onnxruntime / eager |')
    print('|---|---|---|---|---|---|---|---|---|', flush=True)
    for name, plugs in itertools.product(args.models, args.plugs):
        print(f'| {name} | {plugs or "none"} | {row(name, plugs, args.threads, args.rounds)} |', flush=True)


def row(name: str, plugs: str, threads: int, rounds: int) -> str:
    """Size of the file, largest difference, milliseconds, and their ratio."""
    build, size = CASES[name]
    network, images = build(plugs or []).eval(), made_images((1, size, size), 3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'model.onnx'
        write(network, images, path)
        exported = in_onnxruntime(path, threads)
        (difference,) = compare(network, exported, [('the images', images)])
        check([difference], TOLERANCE)
        runs = {'eager': network, 'compiled': torch.compile(network), 'onnxruntime': exported}
        runs['int8'] = in_onnxruntime(path.with_name(INT8), threads)
        found = measure(runs, images, rounds)
        megabytes = path.stat().st_size / 1e6
    numbers = ' | '.join(f'{ms:.1f}' for ms in found.values())
    return f'{megabytes:.1f} | {difference.relative:.0e} | {numbers} | {found["onnxruntime"] / found["eager"]:.2f}'


if __name__ == '__main__':
    main()
