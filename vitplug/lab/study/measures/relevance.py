"""Scores of relevance maps: against a mask of the object, and by pixels taken out of the image.

Maps and masks are ``(H, W)`` in pixels of the model's input. Against a mask, values below 0 count as 0.
"""

import contextlib
from collections.abc import Callable

import numpy as np
import torch
from mmengine.structures import BaseDataElement

from vitplug.statistics.images import Arrays
from vitplug.tasks.targets import ClassLogit, PixelClass

from ..measure import Run, Seen, measure
from .attention import mean_map, rollout_heat
from .grad_cam import grad_cams, no_target, over_image
from .neighbours import label_map
from .scores import void_label

# Steps of pixel flipping.
STEPS = 10
#: What is explained, its mask if it is known, and its score from 0 to 1 in another prediction for the image.
Studied = tuple[ClassLogit | PixelClass, np.ndarray | None, Callable[[BaseDataElement], float]]


def against_mask(heat_HW: np.ndarray, mask_HW: np.ndarray) -> dict[str, float]:
    """Scores of a map by the pixels of the object, at least one.

    Returns:
        ``'pointing game'``: whether the highest point lies in the mask; of several highest points, the share (Zhang et
        al. 2018, without tolerance). ``'relevance mass'``: share of the map's sum; 0 of a map of zeros.
        ``'relevance rank'``: share of the K highest pixels, for a mask of K; of pixels that tie for the last places,
        each counts by the share of them that has a place (both Arras et al. 2022).
    """
    heat, places = heat_HW.clip(min=0), int(mask_HW.sum())
    last = np.partition(heat.ravel(), -places)[-places]
    above, tied = heat > last, heat == last
    ranked = mask_HW[above].sum() + (places - above.sum()) * mask_HW[tied].mean()
    return {
        'pointing game': float(mask_HW[heat == heat.max()].mean()),
        'relevance mass': float(heat[mask_HW].sum() / max(heat.sum(), np.finfo(float).tiny)),
        'relevance rank': float(ranked / places),
    }


def pixel_flipping(
    score: Callable[[np.ndarray], float], image_CHW: np.ndarray, heat_HW: np.ndarray, steps: int = STEPS
) -> np.ndarray:
    """The score while the pixels get the image's mean colour, those of the highest values first. Samek et al. 2017.

    Pixels of one value go from the first row on.

    Returns:
        ``(steps + 1,)``, the first of the image as it is. A good map makes the score fall early: its mean is low.
    """
    rank_HW = np.argsort(np.argsort(-heat_HW.ravel(), kind='stable')).reshape(heat_HW.shape)
    colour = image_CHW.mean((1, 2), keepdims=True).astype(image_CHW.dtype)
    counts = np.linspace(0, rank_HW.size, steps + 1).round()
    return np.array([score(np.where(rank_HW < count, colour, image_CHW)) for count in counts], float)


def _no_scores(run: Run) -> str:
    return 'it is for classifiers and segmentors' if run.library == 'mmdet' else no_target(run)


SOURCE = 'Zhang et al. 2018; Arras et al. 2022; Samek et al. 2017'


@measure('share', SOURCE, 'probs', reduce=mean_map, why_not=_no_scores, slow=True)
def map_scores(seen: Seen) -> Arrays:
    """Grad-CAM, rollout and random values for the predicted class; of a segmentation, for the class with the second
    most pixels of the label map, the first being the background. Against its mask there: whether the highest point
    lies in it, its share of the sum, and of as many highest pixels as it has. Pixel flipping: the score left, mean over
    10 steps; low is good. An image without such a class is left out."""
    run, pixels, arrays = seen.run, seen.batch['inputs'][0], {}
    [sample] = run.predict(seen.batch, [seen.index])
    if run.library == 'mmpretrain':
        found = of_class(sample)
    else:
        found = of_pixels(sample, label_map(seen).numpy(), void_label(run))
    if found is None:
        return {}
    target, mask, score_of = found
    heats = {'random': np.random.default_rng(0).random(seen.size)}
    with contextlib.suppress(ValueError):  # a network without attention, or one that reads no patch
        cams = grad_cams(run.model, seen.inputs, target)
        heats['Grad-CAM'] = over_image(cams[max(cams)], seen)
    with contextlib.suppress(ValueError):  # blocks without maps, or on several grids
        heats['rollout'] = rollout_heat(seen).float().cpu().numpy()

    def score(image_CHW: np.ndarray) -> float:
        return score_of(run.predict(dict(seen.batch, inputs=[torch.from_numpy(image_CHW).to(pixels)]), [seen.index])[0])

    for name, heat in heats.items():
        scores = {} if mask is None else against_mask(heat, mask)
        curve = pixel_flipping(score, pixels.numpy(), heat[: pixels.shape[1], : pixels.shape[2]])
        scores['left by pixel flipping'] = curve[1:].mean() / curve[0] if curve[0] else np.nan
        arrays |= {f'{name}: {kind}': np.array(value) for kind, value in scores.items()}
    return arrays


def of_class(sample: BaseDataElement) -> Studied:
    """The predicted class of a sample of mmpretrain; it has no mask."""
    label = int(sample.pred_score.argmax())
    return ClassLogit(label), None, lambda after: float(after.pred_score[label])


def of_pixels(sample: BaseDataElement, labels_HW: np.ndarray, void: int) -> Studied | None:
    """Of a sample of mmseg: the class with the second most pixels of the label map, None if it is predicted nowhere."""
    present, counts = np.unique(labels_HW[labels_HW != void], return_counts=True)
    if len(present) < 2:
        return None
    label = int(present[np.argsort(-counts, kind='stable')[1]])
    region = sample.pred_sem_seg.data[0] == label
    if not region.any():
        return None

    def probability(after: BaseDataElement) -> float:
        logits_CHW = after.seg_logits.data.double()
        if len(logits_CHW) == 1:  # one output for two classes is the logit of the second
            logits_CHW = torch.cat((torch.zeros_like(logits_CHW), logits_CHW))
        return float(logits_CHW.softmax(0)[label][region].mean())

    return PixelClass(label), labels_HW == label, probability


RELEVANCE = (map_scores,)
