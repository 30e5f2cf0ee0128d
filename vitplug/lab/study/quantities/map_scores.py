"""Scores of relevance maps: against a mask of the object, and by pixels taken out of the image.

Maps and masks are ``(H, W)`` in pixels of the model's input. Against a mask, values below 0 count as 0.
"""

from collections.abc import Callable

import numpy as np

#: Takes an image ``(C, H, W)`` and gives the score of the prediction under study.
Score = Callable[[np.ndarray], float]


def pointing_game(heat_HW: np.ndarray, mask_HW: np.ndarray) -> float:
    """1 if the highest point lies in the mask, else 0; of several highest points, the share in it. Zhang et al. 2018.

    The tolerance around the mask, 15 pixels in the paper, is left out.

    Args:
        heat_HW: The map.
        mask_HW: True for the pixels of the object.

    Raises:
        ValueError: If shapes differ, the mask is empty, or the map has a value that is not finite.
    """
    heat, mask = _checked(heat_HW, mask_HW)
    return float(mask[heat == heat.max()].mean())


def relevance_mass(heat_HW: np.ndarray, mask_HW: np.ndarray) -> float:
    """Share of the map's sum in the mask. Arras et al. 2022, "relevance mass accuracy".

    A map of zeros has no mass in it: 0. Arguments as :func:`pointing_game`.
    """
    heat, mask = _checked(heat_HW, mask_HW)
    return float(heat[mask].sum() / max(heat.sum(), np.finfo(float).tiny))


def relevance_rank(heat_HW: np.ndarray, mask_HW: np.ndarray) -> float:
    """Share of the K highest pixels in the mask, which has K pixels. Arras et al. 2022, "relevance rank accuracy".

    Of pixels that tie for the last places, each counts by the share of them that has a place. Arguments as
    :func:`pointing_game`.
    """
    heat, mask = _checked(heat_HW, mask_HW)
    places = int(mask.sum())
    last = np.partition(heat.ravel(), -places)[-places]
    above, tied = heat > last, heat == last
    return float((mask[above].sum() + (places - above.sum()) * mask[tied].mean()) / places)


def pixel_flipping(score: Score, image_CHW: np.ndarray, heat_HW: np.ndarray, steps: int = 10) -> np.ndarray:
    """The score while the pixels are taken out, those of the highest values first. Samek et al. 2017.

    A pixel that is out has the mean colour of the image. Pixels of one value go from the first row on.

    Args:
        score: Scores an image.
        image_CHW: The image, before normalisation.
        heat_HW: The map.
        steps: Steps of equal numbers of pixels; after the last one, all are out.

    Returns:
        ``(steps + 1,)``, the first of the image as it is. A good map makes the score fall early: its mean is low.

    Raises:
        ValueError: If the sizes differ, or ``steps`` is no number from 1 to that of the pixels.
    """
    if heat_HW.shape != image_CHW.shape[1:]:
        raise ValueError(f'map {heat_HW.shape} of an image {image_CHW.shape[1:]}: expected one size')
    if not 1 <= steps <= heat_HW.size:
        raise ValueError(f'steps={steps}: expected 1 to {heat_HW.size}')
    order = np.argsort(-heat_HW.ravel(), kind='stable')
    colour = image_CHW.mean((1, 2), keepdims=True).astype(image_CHW.dtype)
    scores = [score(image_CHW)]
    for out in np.linspace(0, len(order), steps + 1).round().astype(int)[1:]:
        is_out = np.zeros(len(order), bool)
        is_out[order[:out]] = True
        scores.append(score(np.where(is_out.reshape(heat_HW.shape), colour, image_CHW)))
    return np.array(scores, float)


def _checked(heat_HW: np.ndarray, mask_HW: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    heat, mask = np.asarray(heat_HW, float), np.asarray(mask_HW, bool)
    if heat.shape != mask.shape:
        raise ValueError(f'map {heat.shape} and mask {mask.shape}: expected one shape')
    if not mask.any():
        raise ValueError('the mask is empty: there is no object to score the map by')
    if not np.isfinite(heat).all():
        raise ValueError('the map has values that are not finite')
    return heat.clip(min=0), mask
