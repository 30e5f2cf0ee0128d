"""Conditions that change the pixels that a model gets, before the normalisation.

Draws depend on their seed and on the image's ``sample_idx`` alone, so that orders and batch sizes give the same images.
"""

import re
from collections.abc import Callable, Sequence
from math import floor

import cv2
import numpy as np
from PIL import Image
from torchvision.transforms import InterpolationMode, functional

from .conditions import Condition, at_input, number
from .runs import Run

DIRECTIONS = ('right', 'left', 'down', 'up')
# Steps of a test pipeline that a calibrated receptive field replaces.
RESIZES = re.compile(r'(.*[./])?(Resize|ResizeEdge|CenterCrop)')


# --- geometry ---


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


def shift(direction: str, percent: str) -> Condition:
    """The image moves by a share of its side: ``shift:right:15``; the vacated area is zero after the normalisation.

    ReViT, Tables 4 and 5.
    """
    if direction not in DIRECTIONS:
        raise ValueError(f'direction {direction!r}: expected one of {", ".join(DIRECTIONS)}')
    share, axis = number(percent, most=100), 1 if direction in ('right', 'left') else 0

    def change(pixels: np.ndarray, results: dict) -> np.ndarray:
        step = _in_pixels(share, pixels.shape[axis]) * (1 if direction in ('right', 'down') else -1)
        moved = np.moveaxis(np.roll(pixels.astype(np.float32), step, axis), axis, 0)
        moved[slice(step) if step > 0 else slice(len(moved) + step, None)] = results['fill']
        return np.moveaxis(moved, 0, axis)

    name = f'shift {direction}'
    return Condition(f'{name} {percent} %', at_input(change), name, share, 'shift, % of the side')


def shrink(percent: str) -> Condition:
    """The image loses a share of both sides, bilinear with Pillow's filter, and is padded with zeros: ``shrink:30``.

    ReViT, Table 6.
    """
    share = number(percent, most=100)

    def change(pixels: np.ndarray, results: dict) -> np.ndarray:
        height, width = (max(_in_pixels(100 - share, side), 1) for side in pixels.shape[:2])
        placed = np.empty(pixels.shape, np.float32)  # a mean is no whole number
        placed[:] = results['fill']
        placed[_centre(pixels.shape, (height, width))] = _by_channel(
            pixels, lambda one: one.resize((width, height), Image.Resampling.BILINEAR)
        )
        return placed

    return Condition(f'smaller by {percent} %', at_input(change), 'smaller image', share, 'loss of each side, %')


def occlude(percent: str = '50') -> Condition:
    """The centre is zero after the normalisation: ``occlude:50`` for half of each side. CB, Table 8."""
    share = number(percent, most=100)

    def change(pixels: np.ndarray, results: dict) -> np.ndarray:
        occluded = pixels.astype(np.float32)
        occluded[_centre(pixels.shape, [_in_pixels(share, side) for side in pixels.shape[:2]])] = results['fill']
        return occluded

    return Condition(f'centre occluded, {percent} %', at_input(change), 'occlusion', share, '% of each side')


def field(ratio: str) -> Condition:
    """Receptive field calibration: ``field:1.12``. Refiner, Table 5.

    In place of the resize and the crop of a test pipeline, the short side becomes ``floor(size / ratio)``, bicubic, and
    the image is cropped or padded to a square. Above 1, the ratio leaves a centred border of black pixels; mmcv's
    ``CenterCrop`` would pad on the right and at the bottom alone.
    """
    share = number(ratio, least=0.01)

    def changed(run: Run) -> Run:
        kept = [step for step in run.pipeline if not RESIZES.fullmatch(str(step['type']))]
        if len(kept) == len(run.pipeline):
            raise ValueError(f'field:{ratio}: {run.label} has no resize or crop in its test pipeline to replace')
        height, width = run.inputs(run.batch(run.images[:1])).shape[-2:]
        if height != width:
            raise ValueError(f'field:{ratio}: the images of {run.label} are {height} x {width}: expected squares')
        return at_input(lambda pixels, results: calibrated_field(pixels, share, height))(run.changed(pipeline=kept))

    unit = 'ratio of the crop to the resized short side'
    return Condition(f'field calibrated, ratio {ratio}', changed, 'calibrated field', share, unit)


def calibrated_field(pixels: np.ndarray, ratio: float, size: int) -> np.ndarray:
    """A square of an image whose short side becomes ``floor(size / ratio)``."""
    short = floor(size / ratio + 1e-9)  # 448 / 1.12 is 399.99999999999994 in floating point
    return _by_channel(
        pixels, lambda one: functional.center_crop(functional.resize(one, short, InterpolationMode.BICUBIC), size)
    )


# --- noise, blur, corruptions ---


def _sequence(results: dict, seed: int) -> np.random.SeedSequence:
    """The source of an image's draws."""
    return np.random.SeedSequence([seed, results['sample_idx']])


def noise(sigma: str, seed: int = 0) -> Condition:
    """Gaussian noise in grey levels, clipped to 0 and 255, not rounded: ``noise:5``. CB, Table 12."""
    strength = number(sigma)

    def change(pixels: np.ndarray, results: dict) -> np.ndarray:
        drawn = np.random.default_rng(_sequence(results, seed)).standard_normal(pixels.shape, np.float32)
        return (pixels + np.float32(strength) * drawn).clip(0, 255)

    name = f'Gaussian noise, sigma {sigma}'
    return Condition(name, at_input(change), 'Gaussian noise', strength, 'sigma, grey levels', repeat=seed)


def shot(photons: str = '1', seed: int = 0) -> Condition:
    """Shot noise of so many photons a grey level, clipped to 255: ``shot:1``. CB, Table 12.

    Each value is drawn from a Poisson distribution with its mean; the variance is the value divided by the photons.
    """
    strength = number(photons, least=1e-6)

    def change(pixels: np.ndarray, results: dict) -> np.ndarray:
        counts = np.random.default_rng(_sequence(results, seed)).poisson(pixels * strength)
        return (counts / strength).clip(0, 255).astype(np.float32)

    name = f'shot noise, {photons} photons'
    return Condition(name, at_input(change), 'shot noise', strength, 'photons a grey level', repeat=seed)


def blur(sigma: str) -> Condition:
    """Gaussian blur in pixels, mirrored at the edges: ``blur:2``. CB, Table 12."""
    strength = number(sigma)

    def change(pixels: np.ndarray, results: dict) -> np.ndarray:
        image, width = pixels.astype(np.float32), 2 * floor(4 * strength + 0.5) + 1
        return cv2.GaussianBlur(image, (width, width), strength).reshape(pixels.shape) if strength else image

    return Condition(f'Gaussian blur, sigma {sigma}', at_input(change), 'Gaussian blur', strength, 'sigma, pixels')


def corruption(name: str, severity: str, seed: int = 0) -> Condition:
    """A corruption of ``imagecorruptions``: ``corruption:fog:3``, on images of 32 pixels a side or more.

    Computed in memory: not ImageNet-C's files, which its authors ask for. Of a grey image, the first channel of the
    corrupted colour image is taken.
    """
    import imagecorruptions

    if name not in (names := imagecorruptions.get_corruption_names('all')):
        raise ValueError(f'{name}: expected one of {", ".join(names)}')
    strength = int(number(severity, most=5))

    def change(pixels: np.ndarray, results: dict) -> np.ndarray:
        image = _bytes(pixels)
        if strength == 0:
            return image
        # mmcv reads files blue first; Pillow's images and those that data sets keep in memory are red first.
        is_bgr = 'img_path' in results and not isinstance(results['img'], Image.Image)
        order = slice(None, None, -1 if is_bgr else 1)
        drawn = int(_sequence(results, seed).generate_state(1)[0] >> 1)
        # These two draw from generators of their own, whatever numpy's seed is.
        seeding = dict(seed=drawn) if name in ('impulse_noise', 'glass_blur') else {}
        before = np.random.get_state()
        try:
            np.random.seed(drawn)
            corrupted = imagecorruptions.corrupt(np.ascontiguousarray(image[..., order]), strength, name, **seeding)
        finally:
            np.random.set_state(before)
        return np.ascontiguousarray(corrupted[..., order][..., : pixels.shape[-1]])

    title = f'{name}, severity {severity}'
    return Condition(title, at_input(change), name, float(strength), 'severity', repeat=seed)
