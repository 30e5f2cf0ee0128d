"""Changes of the pixels that a model gets, as functions: steps of a test pipeline, see :func:`.conditions.at_input`.

They take pixels ``(H, W, C)`` from 0 to 255, and what the pipeline knows of the image, before the normalisation. A
fill is a value for all channels, or one for each in the order of the image's channels: that of the data preprocessor's
mean is a zero after the normalisation. Draws depend on their seed and on the image's ``sample_idx`` alone, so that
orders and batch sizes give the same images.
"""

from collections.abc import Callable, Sequence
from math import floor

import cv2
import numpy as np
from PIL import Image
from torchvision.transforms import InterpolationMode, functional

DIRECTIONS = ('right', 'left', 'down', 'up')
#: A changed image of pixels, what the pipeline knows of the image, and further arguments.
Change = Callable[..., np.ndarray]


def step_of(change: Change, **values) -> Callable[[dict], dict]:
    """A step of a pipeline that changes ``img``, an array or an image of Pillow; it gives an array."""

    def step(results: dict) -> dict:
        pixels = np.asarray(results['img'])
        changed = change(pixels if pixels.ndim == 3 else pixels[..., None], results, **values)
        return results | dict(img=changed, img_shape=changed.shape[:2])

    return step


# --- geometry ---


def pixels_of(fraction: float, side: int) -> int:
    """A fraction of a side in whole pixels, halves up."""
    return floor(fraction * side + 0.5)


def _centre(shape: Sequence[int], sides: Sequence[int]) -> tuple[slice, slice]:
    """The central part of an image; of an odd rest, the larger part is on the right and at the bottom."""
    starts = [(side - inner) // 2 for side, inner in zip(shape, sides, strict=False)]
    return tuple(slice(start, start + inner) for start, inner in zip(starts, sides, strict=True))


def _by_channel(pixels: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """Changes each channel as an image of Pillow."""
    return np.stack([np.asarray(change(Image.fromarray(one))) for one in np.moveaxis(_bytes(pixels), -1, 0)], axis=-1)


def _bytes(pixels: np.ndarray) -> np.ndarray:
    return pixels if pixels.dtype == np.uint8 else pixels.round().clip(0, 255).astype(np.uint8)


def shift(pixels: np.ndarray, results: dict, fraction: float, direction: str = 'right', fill=0.0) -> np.ndarray:
    """Moves the image by a fraction of its side; the vacated area is filled (ReViT, Tables 4 and 5)."""
    axis = 1 if direction in ('right', 'left') else 0
    step = pixels_of(fraction, pixels.shape[axis]) * (1 if direction in ('right', 'down') else -1)
    moved = np.moveaxis(np.roll(pixels.astype(np.float32), step, axis), axis, 0)
    moved[slice(step) if step > 0 else slice(len(moved) + step, None)] = fill
    return np.moveaxis(moved, 0, axis)


def shrink(pixels: np.ndarray, results: dict, fraction: float, fill=0.0) -> np.ndarray:
    """Takes a fraction off both sides, bilinear with Pillow's filter, and pads to the old size (ReViT, Table 6)."""
    height, width = (max(pixels_of((1 - fraction) * side, 1), 1) for side in pixels.shape[:2])
    placed = np.empty(pixels.shape, np.float32)  # a mean is no whole number
    placed[:] = fill
    placed[_centre(pixels.shape, (height, width))] = _by_channel(
        pixels, lambda one: one.resize((width, height), Image.Resampling.BILINEAR)
    )
    return placed


def occlude(pixels: np.ndarray, results: dict, fraction: float = 0.5, fill=0.0) -> np.ndarray:
    """Fills the centre, a fraction of each side (CB, Table 8: 112 x 112 of 224 x 224 pixels)."""
    occluded = pixels.astype(np.float32)
    occluded[_centre(pixels.shape, [pixels_of(fraction, side) for side in pixels.shape[:2]])] = fill
    return occluded


def calibrate_field(pixels: np.ndarray, results: dict, ratio: float, size: int) -> np.ndarray:
    """Resizes the short side to ``floor(size / ratio)``, bicubic, and crops or pads to a square (Refiner, Table 5).

    It takes the place of the resize and the crop of a test pipeline. Above 1, the ratio leaves a centred border of
    black pixels; mmcv's ``CenterCrop`` would pad on the right and at the bottom alone.
    """
    short = floor(size / ratio + 1e-9)  # 448 / 1.12 is 399.99999999999994 in floating point
    return _by_channel(
        pixels, lambda one: functional.center_crop(functional.resize(one, short, InterpolationMode.BICUBIC), size)
    )


# --- noise and blur ---


def sequence(results: dict, seed: int) -> np.random.SeedSequence:
    """The source of an image's draws."""
    return np.random.SeedSequence([seed, results['sample_idx']])


def gaussian_noise(pixels: np.ndarray, results: dict, sigma: float, seed: int = 0) -> np.ndarray:
    """Adds Gaussian noise in grey levels, clips to 0 and 255 and does not round (CB, Table 12: sigma 5 and 10)."""
    noise = np.random.default_rng(sequence(results, seed)).standard_normal(pixels.shape, np.float32)
    return (pixels + np.float32(sigma) * noise).clip(0, 255)


def shot_noise(pixels: np.ndarray, results: dict, photons: float = 1.0, seed: int = 0) -> np.ndarray:
    """Draws each value from a Poisson distribution with its mean, and clips to 255 (CB, Table 12).

    ``photons`` are counted for one grey level: the variance is the value divided by them.
    """
    counts = np.random.default_rng(sequence(results, seed)).poisson(pixels * photons)
    return (counts / photons).clip(0, 255).astype(np.float32)


def blur(pixels: np.ndarray, results: dict, sigma: float) -> np.ndarray:
    """Blurs with a Gaussian, mirrored at the edges (CB, Table 12: sigma of 1 and 2 pixels)."""
    image, width = pixels.astype(np.float32), 2 * floor(4 * sigma + 0.5) + 1
    return cv2.GaussianBlur(image, (width, width), sigma).reshape(pixels.shape) if sigma else image


# --- corruptions ---


def corrupt(pixels: np.ndarray, results: dict, name: str, severity: int, seed: int = 0) -> np.ndarray:
    """A corruption computed by ``imagecorruptions``; severity 0 leaves the image as it is.

    These images are not those of ImageNet-C: its authors ask for their JPEG files. Images have at least 32 pixels a
    side. Of a grey image, the first channel of the corrupted colour image is taken.
    """
    import imagecorruptions

    image = _bytes(pixels)
    if severity == 0:
        return image
    # mmcv reads files blue first; Pillow's images and those that data sets keep in memory are red first.
    is_bgr = 'img_path' in results and not isinstance(results['img'], Image.Image)
    order = slice(None, None, -1 if is_bgr else 1)
    drawn = int(sequence(results, seed).generate_state(1)[0] >> 1)
    # These two draw from generators of their own, whatever numpy's seed is.
    seeding = dict(seed=drawn) if name in ('impulse_noise', 'glass_blur') else {}
    before = np.random.get_state()
    try:
        np.random.seed(drawn)
        corrupted = imagecorruptions.corrupt(np.ascontiguousarray(image[..., order]), severity, name, **seeding)
    finally:
        np.random.set_state(before)
    return np.ascontiguousarray(corrupted[..., order][..., : pixels.shape[-1]])
