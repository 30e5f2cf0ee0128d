"""Changes of test images as transforms of a pipeline, in mmcv's way.

They take and give the key ``img``, an array ``(H, W)`` or ``(H, W, C)`` or a PIL image of the size that stays the same,
and can stand in any pipeline. Those before the packing step see the pixels that the model gets, 0 to 255, before the
normalisation. A fill of the data preprocessor's mean is a zero after it.

Random ones draw from their seed and the image's ``sample_idx`` alone, so that workers, orders and batch sizes give the
same images.
"""

import contextlib
from collections.abc import Iterator, Sequence
from math import floor

import cv2
import numpy as np
from mmcv.transforms import BaseTransform
from PIL import Image

from vitplug.registry import TRANSFORMS

SEVERITIES = range(6)
DIRECTIONS = ('right', 'left', 'down', 'up')
#: A value for all channels, or one for each in the order of the image's channels.
Fill = float | Sequence[float]


class Change(BaseTransform):
    """A change of the pixels of an image."""

    def transform(self, results: dict) -> dict:
        """Changes ``img``; the result is an array, also of a PIL image."""
        pixels = np.asarray(results['img'])
        changed = self.change(pixels if pixels.ndim == 3 else pixels[..., None], results)
        results['img'] = changed
        results['img_shape'] = changed.shape[:2]
        return results

    def change(self, pixels: np.ndarray, results: dict) -> np.ndarray:
        """The changed image ``(H, W, C)``.

        Args:
            pixels: The image ``(H, W, C)``, 0 to 255.
            results: All that the pipeline knows of it.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f'{type(self).__name__}({", ".join(f"{name}={value!r}" for name, value in vars(self).items())})'


def pixels_of(fraction: float, side: int) -> int:
    """A fraction of a side in whole pixels, halves up."""
    return floor(fraction * side + 0.5)


def _canvas(shape: Sequence[int], fill: Fill) -> np.ndarray:
    """An image of one colour, in float32: a mean is no whole number.

    Raises:
        ValueError: If the fill has another number of channels.
    """
    fill = np.atleast_1d(np.asarray(fill, np.float32))
    if len(fill) not in (1, shape[-1]):
        raise ValueError(f'fill = {fill.tolist()}: expected one value, or one for each of {shape[-1]} channels')
    return np.broadcast_to(fill, shape).copy()


def _check_fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f'{name} = {value!r}: expected a part of the side, from 0 to 1')


@TRANSFORMS.register_module()
class Shift(Change):
    """Moves an image by a part of its width or height; the vacated area is filled (ReViT, Tables 4 and 5).

    Args:
        fraction: Part of the side, 0 to 1; 0.15 of 224 pixels are 34.
        direction: ``'right'``, ``'left'``, ``'down'`` or ``'up'``.
        fill: Of the vacated area.

    Raises:
        ValueError: If an argument is none of these.
    """

    def __init__(self, fraction: float, direction: str = 'right', fill: Fill = 0.0):
        _check_fraction('fraction', fraction)
        if direction not in DIRECTIONS:
            raise ValueError(f'direction = {direction!r}: expected one of {", ".join(DIRECTIONS)}')
        self.fraction, self.direction, self.fill = fraction, direction, fill

    def change(self, pixels, results):
        axis = 1 if self.direction in ('right', 'left') else 0
        side = pixels.shape[axis]
        step = pixels_of(self.fraction, side)
        kept, vacated = slice(0, side - step), slice(step, side)
        if self.direction in ('left', 'up'):
            kept, vacated = vacated, kept
        moved = _canvas(pixels.shape, self.fill)
        np.moveaxis(moved, axis, 0)[vacated] = np.moveaxis(pixels, axis, 0)[kept]
        return moved


@TRANSFORMS.register_module()
class Shrink(Change):
    """Resizes both sides by the same part and pads to the old size, centred (ReViT, Table 6).

    Args:
        fraction: Part that each side loses, 0 to below 1; 224 pixels lose 34 at 0.15.
        fill: Of the border.
        interpolation: As Pillow names it; it filters when it shrinks.

    Raises:
        ValueError: If an argument is none of these.
    """

    def __init__(self, fraction: float, fill: Fill = 0.0, interpolation: str = 'bilinear'):
        _check_fraction('fraction', fraction)
        self.fraction, self.fill, self.interpolation = fraction, fill, _resampling(interpolation).name.lower()

    def change(self, pixels, results):
        sides = [max(pixels_of((1 - self.fraction) * side, 1), 1) for side in pixels.shape[:2]]
        smaller = _resized(pixels, sides, self.interpolation)
        placed = _canvas(pixels.shape, self.fill)
        top, left = ((side - inner) // 2 for side, inner in zip(pixels.shape, sides, strict=False))
        placed[top : top + sides[0], left : left + sides[1]] = smaller
        return placed


@TRANSFORMS.register_module()
class OccludeCentre(Change):
    """Fills the central part of an image (CB, Table 8: 112 x 112 of 224 x 224 pixels).

    Args:
        fraction: Part of each side, 0 to 1.
        fill: Of the occluded part.

    Raises:
        ValueError: If the fraction is another number.
    """

    def __init__(self, fraction: float = 0.5, fill: Fill = 0.0):
        _check_fraction('fraction', fraction)
        self.fraction, self.fill = fraction, fill

    def change(self, pixels, results):
        occluded = pixels.astype(np.float32)
        sides = [pixels_of(self.fraction, side) for side in pixels.shape[:2]]
        top, left = ((side - inner) // 2 for side, inner in zip(pixels.shape, sides, strict=False))
        occluded[top : top + sides[0], left : left + sides[1]] = _canvas((*sides, pixels.shape[-1]), self.fill)
        return occluded


@TRANSFORMS.register_module()
class CalibrateReceptiveField(Change):
    """Resizes the short side to ``floor(size / ratio)`` and crops or pads to a square, centred (Refiner, Table 5).

    It takes the place of the resize and the crop of a test pipeline. Above 1, the ratio leaves a border of black
    pixels; mmcv's ``CenterCrop`` would pad on the right and at the bottom alone.

    Args:
        ratio: Of the crop to the resized short side, above 0.
        size: Side of the result, in pixels.
        interpolation: As Pillow names it.

    Raises:
        ValueError: If an argument is none of these.
    """

    def __init__(self, ratio: float, size: int, interpolation: str = 'bicubic'):
        if ratio <= 0 or size < 1 or size / ratio < 1:
            raise ValueError(f'ratio = {ratio!r}, size = {size!r}: expected above 0, and a resized side of a pixel')
        self.ratio, self.size, self.interpolation = ratio, size, _resampling(interpolation).name.lower()

    def change(self, pixels, results):
        # 448 / 1.12 is 399.99999999999994 in floating point.
        short = floor(self.size / self.ratio + 1e-9)
        height, width = pixels.shape[:2]
        # The long side is truncated, as torchvision does.
        sides = (short * height // width, short) if width <= height else (short, short * width // height)
        return _centred(_resized(pixels, sides, self.interpolation), self.size)


def _centred(pixels: np.ndarray, size: int) -> np.ndarray:
    """The central square; what is missing is black, the odd pixel on the right and at the bottom."""
    square = np.zeros((size, size, pixels.shape[-1]), pixels.dtype)
    places = []
    for side in pixels.shape[:2]:
        length = min(side, size)
        before, start = (size - length) // 2, round((side - length) / 2)  # rounds as torchvision's crop does
        places.append((slice(before, before + length), slice(start, start + length)))
    square[places[0][0], places[1][0]] = pixels[places[0][1], places[1][1]]
    return square


def _resampling(name: str) -> Image.Resampling:
    names = [one.name.lower() for one in Image.Resampling]
    if name.lower() not in names:
        raise ValueError(f'interpolation = {name!r}: expected one of {", ".join(names)}')
    return Image.Resampling[name.upper()]


def _resized(pixels: np.ndarray, sides: Sequence[int], interpolation: str) -> np.ndarray:
    """An image ``(H, W, C)`` in 8 bit, resized by Pillow channel by channel."""
    channels = np.moveaxis(_as_bytes(pixels), -1, 0)
    size = sides[1], sides[0]
    return np.stack([Image.fromarray(one).resize(size, _resampling(interpolation)) for one in channels], axis=-1)


def _as_bytes(pixels: np.ndarray) -> np.ndarray:
    return pixels if pixels.dtype == np.uint8 else pixels.round().clip(0, 255).astype(np.uint8)


# --- noise and blur ---


class Random(Change):
    """A change that is drawn.

    Args:
        seed: At least 0; together with the image's number, all that the draw depends on.

    Raises:
        ValueError: If the seed is below 0.
    """

    def __init__(self, seed: int = 0):
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f'seed = {seed!r}: expected a whole number, at least 0')
        self.seed = seed

    def sequence(self, results: dict) -> np.random.SeedSequence:
        """The source of an image's draws.

        Raises:
            ValueError: If the data set numbers no images.
        """
        if results.get('sample_idx', -1) < 0:
            raise ValueError(f'{type(self).__name__}: the image has no sample_idx, which its draw depends on')
        return np.random.SeedSequence([self.seed, results['sample_idx']])

    def generator(self, results: dict) -> np.random.Generator:
        """The generator of an image."""
        return np.random.default_rng(self.sequence(results))


@TRANSFORMS.register_module()
class GaussianNoise(Random):
    """Adds Gaussian noise, clips to 0 and 255 and does not round (CB, Table 12: sigma 5 and 10).

    Args:
        sigma: Standard deviation in grey levels, at least 0.
        seed: See :class:`Random`.

    Raises:
        ValueError: If sigma is below 0.
    """

    def __init__(self, sigma: float, seed: int = 0):
        super().__init__(seed)
        self.sigma = _not_negative('sigma', sigma)

    def change(self, pixels, results):
        noise = self.generator(results).standard_normal(pixels.shape, np.float32)
        return (pixels + np.float32(self.sigma) * noise).clip(0, 255)


@TRANSFORMS.register_module()
class ShotNoise(Random):
    """Draws each value from a Poisson distribution with its mean, and clips to 255 (CB, Table 12).

    Args:
        photons: Counted for one grey level, above 0: the variance is the value divided by it.
        seed: See :class:`Random`.

    Raises:
        ValueError: If the number of photons is not above 0.
    """

    def __init__(self, photons: float = 1.0, seed: int = 0):
        super().__init__(seed)
        if not photons > 0:
            raise ValueError(f'photons = {photons!r}: expected a number above 0')
        self.photons = photons

    def change(self, pixels, results):
        counts = self.generator(results).poisson(pixels * self.photons)
        return (counts / self.photons).clip(0, 255).astype(np.float32)


@TRANSFORMS.register_module()
class GaussianBlur(Change):
    """Blurs with a Gaussian, mirrored at the edges (CB, Table 12: sigma 1 and 2).

    Args:
        sigma: Standard deviation in pixels, at least 0.

    Raises:
        ValueError: If sigma is below 0.
    """

    def __init__(self, sigma: float):
        self.sigma = _not_negative('sigma', sigma)

    def change(self, pixels, results):
        image = pixels.astype(np.float32)
        if self.sigma == 0:
            return image
        width = 2 * floor(4 * self.sigma + 0.5) + 1
        return cv2.GaussianBlur(image, (width, width), self.sigma).reshape(pixels.shape)


def _not_negative(name: str, value: float) -> float:
    if not value >= 0:
        raise ValueError(f'{name} = {value!r}: expected a number, at least 0')
    return value


# --- corruptions ---


@TRANSFORMS.register_module()
class Corruption(Random):
    """One of the common corruptions of Hendrycks and Dietterich, computed by ``imagecorruptions``.

    These images are not those of ImageNet-C: its authors ask for their JPEG files. Images have at least 32 pixels a
    side. Of a grey image, the first channel of the corrupted colour image is taken.

    Args:
        name: As ``imagecorruptions`` names it.
        severity: 1 to 5; 0 leaves the image as it is.
        seed: See :class:`Random`.

    Raises:
        ImportError: If the package is missing.
        ValueError: If there is no such corruption or severity.
    """

    def __init__(self, name: str, severity: int, seed: int = 0):
        super().__init__(seed)
        known = corruption_names('all')
        if name not in known:
            raise ValueError(f'name = {name!r}: expected one of {", ".join(known)}')
        check_severity('severity', severity)
        self.name, self.severity = name, severity

    def transform(self, results: dict) -> dict:
        # mmcv reads files blue first; Pillow's images and those that data sets keep in memory are red first.
        self._is_bgr = 'img_path' in results and not isinstance(results['img'], Image.Image)
        return super().transform(results)

    def change(self, pixels, results):
        from imagecorruptions import corrupt

        image = _as_bytes(pixels)
        if self.severity == 0:
            return image
        if min(image.shape[:2]) < 32:
            raise ValueError(
                f'{self.name}: the image is {image.shape[0]} x {image.shape[1]}: expected 32 pixels a side'
            )
        order = slice(None, None, -1 if self._is_bgr else 1)
        state = int(self.sequence(results).generate_state(1)[0] >> 1)
        # These two draw from generators of their own, whatever numpy's seed is.
        seeding = dict(seed=state) if self.name in ('impulse_noise', 'glass_blur') else {}
        with _numpy_seed(state):
            corrupted = corrupt(np.ascontiguousarray(image[..., order]), self.severity, self.name, **seeding)
        return np.ascontiguousarray(corrupted[..., order][..., : pixels.shape[-1]])

    def __repr__(self) -> str:
        return f'Corruption({self.name!r}, severity={self.severity}, seed={self.seed})'


def check_severity(name: str, severity: int) -> None:
    """Checks a severity.

    Raises:
        ValueError: If it is not 0 to 5.
    """
    if severity not in SEVERITIES:
        raise ValueError(f'{name} = {severity!r}: expected 0 (the image as it is) to {SEVERITIES[-1]}')


def corruption_names(subset: str) -> list[str]:
    """Names of corruptions.

    Args:
        subset: ``'common'`` for the 15 of the benchmark, ``'validation'`` for the 4 held out, or ``'all'``.

    Raises:
        ImportError: If ``imagecorruptions`` is missing.
    """
    try:
        from imagecorruptions import get_corruption_names
    except ImportError as error:
        raise ImportError(f'corruptions need imagecorruptions ({error}): pip install imagecorruptions-imaug') from error
    return get_corruption_names(subset)


@contextlib.contextmanager
def _numpy_seed(seed: int) -> Iterator[None]:
    """Numpy's global generator with a seed; as before afterwards."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)
