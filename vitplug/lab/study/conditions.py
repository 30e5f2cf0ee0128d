"""How a model is tested: other pixels, images or weights, an attack, edits. A condition makes a run of a run.

A condition by name is a function of the words after its name, or a ``module:function`` of one's own; it gives one
:class:`Condition` or several.
"""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial, wraps
from importlib.resources import files
from math import floor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from mmengine.structures import BaseDataElement
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode, functional

from vitplug.hosting import Edits

from .edits import random_control, reset_copy, zero
from .runs import Run
from .store import digest

# Axis and sign of a move.
DIRECTIONS = {'right': (1, 1), 'left': (1, -1), 'down': (0, 1), 'up': (0, -1)}
# Steps of a test pipeline that a calibrated receptive field replaces.
RESIZES = re.compile(r'(.*[./])?(Resize|ResizeEdge|CenterCrop)')
IMAGENET_CLASSES = 1000
# The largest size of an attack that a calibration tries, of pixels from 0 to 1, and its halvings.
HIGHEST, HALVINGS = 64 / 255, 16


@dataclass(frozen=True)
class Condition:
    """One test.

    Attributes:
        name: Of the row.
        change: Makes the changed run.
        family, strength, unit: Conditions of one family are a curve over their strength.
        own_images: Whether it brings its own images or labels: then there is no drop from the clean ones.
        repeat: Number of the draw, of what is drawn; repeats share the name of the row.
        code: What its numbers depend on besides: classes, the source of a user's own condition.
        of_first: Makes the condition itself, of the top-1 accuracies of the first model of a study under others.
    """

    name: str
    change: Callable[[Run], Run] = lambda run: run
    family: str = ''
    strength: float = 0.0
    unit: str = ''
    own_images: bool = False
    repeat: int | None = None
    code: str = ''
    of_first: 'Callable[[Callable[[Condition], float]], Condition] | None' = None

    @property
    def key(self) -> str:
        """Hash of all that its numbers depend on besides the run."""
        return digest(self.name, repr(self.strength), repr(self.repeat), self.code)


CLEAN = Condition('clean')


def at_input(change: Callable[[np.ndarray, dict], np.ndarray]) -> Callable[[Run], Run]:
    """A step before the packing, on what the model gets: pixels ``(H, W, C)`` from 0 to 255.

    What is known of the image has ``fill``, too, the pixel that is zero after the normalisation, and ``is_bgr``.
    """

    def changed(run: Run) -> Run:
        def step(results: dict) -> dict:
            pixels = np.asarray(results['img'])
            known = results | dict(fill=run.mean_pixel, is_bgr=run.turns_channels)
            image = change(pixels if pixels.ndim == 3 else pixels[..., None], known)
            return results | dict(img=image, img_shape=image.shape[:2])

        return run.changed(pipeline=[*run.pipeline[:-1], step, run.pipeline[-1]])

    return changed


def number(text: str, least: float = 0, most: float = np.inf) -> float:
    """A number in words, between two others."""
    if not least <= float(text) <= most:
        raise ValueError(f'{text}: expected a number from {least:g} to {most:g}')
    return float(text)


def of_pixels(name: str, family: str, unit: str, least: float = 0, most: float = np.inf) -> Callable[..., Callable]:
    """Makes a condition of a function of pixels and of what is known of the image.

    Its further arguments are the words of a command line. The last one is the strength, a number from ``least`` to
    ``most``; what is drawn has a ``seed``, too. Words that it does not take are found before an image is read.
    """

    def made(change: Callable[..., np.ndarray]) -> Callable[..., Condition]:
        @wraps(change)
        def condition(*words: str, **draw: int) -> Condition:
            *others, text = words
            strength = number(text, least, most)

            def changed(pixels: np.ndarray, known: dict) -> np.ndarray:
                return change(pixels, known, *others, strength, **draw)

            # Refuses wrong words.
            changed(np.zeros((32, 32, 3), np.uint8), dict(fill=[0.0] * 3, is_bgr=True, sample_idx=0))
            names = name.format(*words), family.format(*words)
            return Condition(names[0], at_input(changed), names[1], strength, unit, repeat=draw.get('seed'))

        return condition

    return made


# --- geometry of what a model gets, before the normalisation ---


def _in_pixels(percent: float, side: int) -> int:
    """A share of a side in whole pixels, halves up."""
    return floor(percent / 100 * side + 0.5)


def _centre(shape: Sequence[int], sides: Sequence[int]) -> tuple[slice, slice]:
    """The central part of an image; of an odd rest, the larger part is on the right and at the bottom."""
    starts = [(side - inner) // 2 for side, inner in zip(shape, sides, strict=False)]
    return tuple(slice(start, start + inner) for start, inner in zip(starts, sides, strict=True))


def _by_channel(pixels: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """Changes each channel as an image of Pillow."""
    return np.stack([np.asarray(change(Image.fromarray(one))) for one in np.moveaxis(_bytes(pixels), -1, 0)], axis=-1)


def _bytes(pixels: np.ndarray) -> np.ndarray:
    return pixels if pixels.dtype == np.uint8 else pixels.round().clip(0, 255).astype(np.uint8)


@of_pixels('shift {} {} %', 'shift {}', 'shift, % of the side', most=100)
def shift(pixels: np.ndarray, known: dict, direction: str, percent: float) -> np.ndarray:
    """The image moves by a share of its side: ``shift:right:15``; the vacated area is zero after the normalisation.

    ReViT, Tables 4 and 5.
    """
    if direction not in DIRECTIONS:
        raise ValueError(f'direction {direction!r}: expected one of {", ".join(DIRECTIONS)}')
    axis, sign = DIRECTIONS[direction]
    step = sign * _in_pixels(percent, pixels.shape[axis])
    moved = np.moveaxis(np.roll(pixels.astype(np.float32), step, axis), axis, 0)
    moved[slice(step) if step > 0 else slice(len(moved) + step, None)] = known['fill']
    return np.moveaxis(moved, 0, axis)


@of_pixels('smaller by {} %', 'smaller image', 'loss of each side, %', most=100)
def shrink(pixels: np.ndarray, known: dict, percent: float) -> np.ndarray:
    """The image loses a share of both sides, bilinear with Pillow's filter, and is padded with zeros: ``shrink:30``.

    ReViT, Table 6.
    """
    height, width = (max(_in_pixels(100 - percent, side), 1) for side in pixels.shape[:2])
    placed = np.full(pixels.shape, known['fill'], np.float32)  # a mean is no whole number
    placed[_centre(pixels.shape, (height, width))] = _by_channel(
        pixels, lambda one: one.resize((width, height), Image.Resampling.BILINEAR)
    )
    return placed


@of_pixels('centre occluded, {} %', 'occlusion', '% of each side', most=100)
def occlude(pixels: np.ndarray, known: dict, percent: float) -> np.ndarray:
    """The centre is zero after the normalisation: ``occlude:50`` for half of each side. CB, Table 8."""
    occluded = pixels.astype(np.float32)
    occluded[_centre(pixels.shape, [_in_pixels(percent, side) for side in pixels.shape[:2]])] = known['fill']
    return occluded


def field(ratio: str) -> Condition:
    """Receptive field calibration: ``field:1.12``. Refiner, Table 5.

    In place of the resize and the crop of a test pipeline, the short side becomes ``floor(size / ratio)``, bicubic, and
    the image is cropped or padded to a square. Above 1, the ratio leaves a centred border of black pixels; mmcv's
    ``CenterCrop`` would pad on the right and at the bottom alone.
    """
    share = number(ratio, least=0.01)

    def changed(run: Run) -> Run:
        if run.library != 'mmpretrain':
            raise ValueError(f'field:{ratio}: {run.label} is no classifier')
        kept = [step for step in run.pipeline if not RESIZES.fullmatch(str(step['type']))]
        if len(kept) == len(run.pipeline):
            raise ValueError(f'field:{ratio}: {run.label} has no resize or crop in its test pipeline to replace')
        height, width = _size(run)
        if height != width:
            raise ValueError(f'field:{ratio}: the images of {run.label} are {height} x {width}: expected squares')
        return at_input(lambda pixels, results: calibrated_field(pixels, share, height))(run.changed(pipeline=kept))

    unit = 'ratio of the crop to the resized short side'
    return Condition(f'field calibrated, ratio {ratio}', changed, 'calibrated field', share, unit)


def _size(run: Run) -> Sequence[int]:
    """Height and width of what a model gets of the first image that can be read."""
    for index in run.images:
        with suppress(Exception):  # it is named when it is tested
            return run.inputs(run.batch([index])).shape[-2:]
    raise ValueError(f'none of {len(run.images)} images can be read')


def calibrated_field(pixels: np.ndarray, ratio: float, size: int) -> np.ndarray:
    """A square of an image whose short side becomes ``floor(size / ratio)``."""
    short = floor(size / ratio + 1e-9)  # 448 / 1.12 is 399.99999999999994 in floating point
    return _by_channel(
        pixels, lambda one: functional.center_crop(functional.resize(one, short, InterpolationMode.BICUBIC), size)
    )


# --- noise, blur, corruptions ---


def _sequence(known: dict, seed: int) -> np.random.SeedSequence:
    """The source of an image's draws: orders and batch sizes of images do not matter."""
    return np.random.SeedSequence([seed, known['sample_idx']])


@of_pixels('Gaussian noise, sigma {}', 'Gaussian noise', 'sigma, grey levels')
def noise(pixels: np.ndarray, known: dict, sigma: float, seed: int = 0) -> np.ndarray:
    """Gaussian noise in grey levels, clipped to 0 and 255, not rounded: ``noise:5``. CB, Table 12."""
    drawn = np.random.default_rng(_sequence(known, seed)).standard_normal(pixels.shape, np.float32)
    return (pixels + np.float32(sigma) * drawn).clip(0, 255)


@of_pixels('shot noise, {} photons', 'shot noise', 'photons a grey level', least=1e-6)
def shot(pixels: np.ndarray, known: dict, photons: float, seed: int = 0) -> np.ndarray:
    """Shot noise of so many photons a grey level, clipped to 255: ``shot:1``. CB, Table 12.

    Each value is drawn from a Poisson distribution with its mean; the variance is the value divided by the photons.
    """
    counts = np.random.default_rng(_sequence(known, seed)).poisson(pixels * photons)
    return (counts / photons).clip(0, 255).astype(np.float32)


@of_pixels('Gaussian blur, sigma {}', 'Gaussian blur', 'sigma, pixels')
def blur(pixels: np.ndarray, known: dict, sigma: float) -> np.ndarray:
    """Gaussian blur in pixels, mirrored at the edges: ``blur:2``. CB, Table 12."""
    image, width = pixels.astype(np.float32), 2 * floor(4 * sigma + 0.5) + 1
    return cv2.GaussianBlur(image, (width, width), sigma).reshape(pixels.shape) if sigma else image


@of_pixels('{}, severity {}', '{}', 'severity', most=5)
def corruption(pixels: np.ndarray, known: dict, name: str, severity: float, seed: int = 0) -> np.ndarray:
    """A corruption of ``imagecorruptions``: ``corruption:fog:3``, on images of 32 pixels a side or more.

    Computed in memory: not ImageNet-C's files, which its authors ask for. Of a grey image, the first channel of the
    corrupted colour image is taken.
    """
    import imagecorruptions

    if name not in (names := imagecorruptions.get_corruption_names('all')):
        raise ValueError(f'{name}: expected one of {", ".join(names)}')
    if severity % 1:
        raise ValueError(f'severity {severity}: expected a whole number')
    image = _bytes(pixels)
    if severity == 0:
        return image
    order = slice(None, None, -1 if known['is_bgr'] else 1)
    drawn = int(_sequence(known, seed).generate_state(1)[0] >> 1)
    # These two draw from generators of their own, whatever numpy's seed is.
    seeding = dict(seed=drawn) if name in ('impulse_noise', 'glass_blur') else {}
    before = np.random.get_state()
    try:
        np.random.seed(drawn)
        red_first = np.ascontiguousarray(image[..., order])
        corrupted = imagecorruptions.corrupt(red_first, int(severity), name, **seeding)
    finally:
        np.random.set_state(before)
    return np.ascontiguousarray(corrupted[..., order][..., : pixels.shape[-1]])


# --- attack ---


def signed(run: Run, images: Tensor, labels: Tensor, size: float) -> Tensor:
    """Pixels from 0 to 1 after one step of the sign of the cross entropy's gradient; NaN of an image without one."""
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        loss = F.cross_entropy(run.logits(images), labels, reduction='sum')
        signs = torch.autograd.grad(loss, images)[0].sign()
    attacked = (images.detach() + size * signs).clamp(0, 1)
    attacked[~signs.flatten(1).any(1)] = torch.nan
    return attacked


def fgsm(epsilon: str, target: str = '') -> Condition:
    """One step of the gradient's sign: ``fgsm:1/255``, or ``fgsm:calibrate:27.2`` for the top-1 of the first model.

    Goodfellow et al. 2015; CB, Table 8. Pixels from 0 to 1, clipped, the normalisation inside the model. Images whose
    gradient is zero everywhere are left out: nothing would attack them.
    """
    if epsilon == 'calibrate':
        return Condition(f'FGSM, calibrated to {target}', of_first=partial(_calibrated, float(target)))
    size = float(Fraction(epsilon))
    if not 0 < size <= 1:
        raise ValueError(f'fgsm:{epsilon}: expected above 0 and at most 1, such as 4/255: pixels are from 0 to 1')

    def change(run: Run) -> Run:
        if run.library != 'mmpretrain':
            raise ValueError(f'fgsm: {run.label} is no classifier')
        return run.changed(attack=partial(signed, size=size))

    name = f'FGSM, epsilon {255 * size:.6g}/255'
    return Condition(name, change, 'FGSM', 255 * size, 'epsilon, in 1/255')


def _calibrated(target: float, top_1: Callable[[Condition], float]) -> Condition:
    """FGSM of the size at which a model has a top-1 accuracy, found by bisection."""
    accuracy = cache(lambda size: top_1(fgsm(str(size)) if size else CLEAN))
    low, high = 0.0, HIGHEST
    if not accuracy(low) >= target >= accuracy(high):
        raise ValueError(
            f'fgsm:calibrate:{target:g}: the first model has {accuracy(low):.2f} without an attack and '
            f'{accuracy(high):.2f} at {255 * high:g}/255: choose an accuracy between them'
        )
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if accuracy(middle) > target else (low, middle)
    best = min(high, low, key=lambda size: abs(accuracy(size) - target))
    return replace(fgsm(str(best)), name=f'FGSM, calibrated to {target:g}: epsilon {255 * best:.4g}/255', family='')


# --- weights and intermediates ---


def reset(kind: str) -> Condition:
    """Positions drawn again on a copy: ``reset:ape``. GAB, Figure 4; kinds: see :data:`.edits.RESETS`."""
    return Condition(f'reset {kind}', lambda run: run.changed(model=reset_copy(run.model, kind)[0]))


def edit(place: str, block: str, which: str, kind: str = 'zero', control: str = '') -> Condition:
    """Zero in place of a head, or of a token of a block's output, by its number: ``edit:head:3:0:zero``.

    The class token is token 0. A sixth word, ``control``, makes a change of the same size in a random direction.
    Michel et al. 2019 for heads.
    """
    name = dict(head='heads', token='block').get(place)
    if name is None or kind != 'zero' or control not in ('', 'control'):
        raise ValueError('expected head or token, zero, and control or nothing')
    layer, made = int(block), zero(**{f'{place}s': [int(which)]})

    def edits(run: Run, index: int) -> Edits:
        seed = int(digest(run.image_key(index), block, which), 16) % 2**31
        return {name: {layer: random_control(made, seed) if control else made}}

    title = f'{place} {which} of block {block}: {kind}' + (', control' if control else '')
    return Condition(title, lambda run: run.changed(edits=edits), f'{place} {which}, {kind}', layer, 'block')


# --- other images and labels ---


def imagenet_a(*folder: str) -> list[Condition]:
    """ImageNet-A, and the clean images of its 200 classes: ``imagenet-a:DIR``. CB, Table 8."""
    return _folders('ImageNet-A', folder)


def imagenet_v2(*folder: str) -> list[Condition]:
    """A set of ImageNet-V2: ``imagenet-v2:DIR``. CB, Table 6."""
    return _folders('ImageNet-V2', folder)


def _folders(title: str, parts: Sequence[str]) -> list[Condition]:
    """A folder, whose name may have colons, of folders of classes, by number or by synset.

    With some of the classes alone, these are told apart, of the clean images, too.
    """
    folder, synsets = Path(':'.join(parts)), _timm_file('imagenet_synsets.txt').split()
    numbers = {name: number for number, synset in enumerate(synsets) for name in (synset, str(number))}
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())  # as the data set counts them
    if unknown := [name for name in names if name not in numbers]:
        raise ValueError(f'{folder}: {unknown[0]} is no class of ImageNet by number or synset')
    classes = [numbers[name] for name in names]
    new = dict(
        source=dict(type='mmpretrain.CustomDataset', data_root=str(folder)),
        right=lambda sample: [classes[int(sample.gt_label)]],
    )
    if len(classes) == IMAGENET_CLASSES:
        return [_of_imagenet(f'{title}, {folder.name}', **new)]
    code = digest(*names)
    clean = _of_imagenet(f'clean, the {len(classes)} classes of {title}, {folder.name}', code, among=classes)
    return [clean, _of_imagenet(f'{title}, {folder.name}', code, among=classes, **new)]


def real() -> Condition:
    """ImageNet-ReaL, labels for the validation images: ``real``. CB, Table 6; Refiner, Table 7.

    Images without a label are left out; a prediction is right if it is one of the labels.
    """
    labels = json.loads(_timm_file('imagenet_real_labels.json'))
    sets = {f'ILSVRC2012_val_{number:08d}.JPEG': label for number, label in enumerate(labels, 1)}

    def right(sample: BaseDataElement) -> list[int]:
        name = Path(sample.img_path).name
        if name not in sets:
            raise ValueError(f'real: {name} is no validation image of ImageNet, such as {next(iter(sets))}')
        return sets[name]

    return _of_imagenet('ImageNet-ReaL', right=right)


def _of_imagenet(name: str, code: str = '', **parts: Any) -> Condition:
    """Other images or labels for models of ImageNet's 1000 classes."""

    def change(run: Run) -> Run:
        classes = len(run.dataset.metainfo.get('classes') or ())
        if run.library != 'mmpretrain' or classes != IMAGENET_CLASSES:
            raise ValueError(f"it needs a model of ImageNet's 1000 classes, and {run.label} has {classes}")
        return run.changed(**parts)

    return Condition(name, change, own_images=True, code=code)


def _timm_file(name: str) -> str:
    return (files('timm.data') / '_info' / name).read_text()
