"""Measures that need gradients: receptive fields, Grad-CAM, and scores of relevance maps."""

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from vitplug.attention.grids import ceil_div
from vitplug.config.parts import as_list
from vitplug.hosting import PluggedModel
from vitplug.statistics.images import Arrays
from vitplug.tasks.studied import Studied, studied_class, studied_map

from .. import figures
from ..measure import FEW, Measure, Seen, nothing, together
from ..quantities.fields import cancels, input_gradient, mean_field
from ..quantities.gaussian_fit import fit_gaussian
from ..quantities.grad_cam import AT, grad_cams
from ..quantities.map_scores import pixel_flipping, pointing_game, relevance_mass, relevance_rank
from ..quantities.maps import dense_maps
from ..runs import Run
from .attention import rollout_heat
from .learned import FITTED
from .scores import label_map

# Blocks of Grad-CAM, the last ones on which the score depends.
BLOCKS = 2
STEPS = 10
AGAINST_MASKS = {'pointing game': pointing_game, 'relevance mass': relevance_mass, 'relevance rank': relevance_rank}


# --- receptive fields ---


def feature_map(run: Run):
    """From images to the last map ``(1, D, h, w)``: of a backbone of vitplug, or of any model that gives a map."""
    own = getattr(run.model, 'backbone', None)
    if isinstance(own, PluggedModel):
        return own
    timm = getattr(run.model, 'model', None)
    if own is None and hasattr(timm, 'forward_features'):
        return lambda image: _timm_map(timm, image)
    return lambda image: as_list(list(own(image)) if isinstance(own(image), tuple) else own(image))[-1]


def _timm_map(model: nn.Module, image: Tensor) -> Tensor:
    """The map of timm's ``forward_features``, prefix tokens dropped.

    Raises:
        ValueError: If it gives no map, or its tokens are no grid of patches.
    """
    maps = model.forward_features(image)
    if isinstance(maps, Tensor) and maps.ndim == 4:
        return maps.permute(0, 3, 1, 2) if getattr(model, 'output_fmt', 'NCHW') == 'NHWC' else maps
    embed = getattr(model, 'patch_embed', getattr(model, 'stem', None))
    patch = getattr(embed, 'patch_size', None)
    if isinstance(maps, Tensor) and maps.ndim == 3 and patch is not None:
        patches = maps[:, getattr(model, 'num_prefix_tokens', 0) :]
        steps = (patch, patch) if isinstance(patch, int) else tuple(patch)
        for divided in (ceil_div, lambda side, step: side // step):
            rows, columns = (divided(side, step) for side, step in zip(image.shape[-2:], steps, strict=True))
            if rows * columns == patches.shape[1]:
                return patches.transpose(1, 2).unflatten(2, (rows, columns))
    what = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
    raise ValueError(f'{type(model).__name__}: forward_features gives {what}, which is no map of patches')


def _field(seen: Seen) -> Arrays:
    features = feature_map(seen.run)
    arrays = {'field': input_gradient(features, seen.inputs).float().cpu().numpy()}
    if 'cancels' not in seen.run.cache:
        seen.run.cache['cancels'] = cancels(features, seen.inputs)
    return arrays | {'is noise': np.array(float(seen.run.cache['cancels']))}


def _fit(units: Sequence[Arrays]) -> Arrays:
    fit = fit_gaussian(mean_field([unit['field'] for unit in units]))
    noise = {'rounding noise': np.array(1.0)} if units[0]['is noise'] else {}
    return {value: np.array(getattr(fit, name)) for value, name in FITTED.items()} | noise


# --- Grad-CAM ---


def _cams(seen: Seen) -> Arrays:
    heats, target = {}, ''
    try:
        maps = grad_cams(seen.run.model, seen.inputs)
        for layer in sorted(maps)[-BLOCKS:]:
            target = maps[layer].targets[0]
            heats[f'block {layer}'] = maps[layer].on_image()[0].float().cpu().numpy()
    except ValueError as error:  # no box in the image, say: the picture says so
        target = str(error)
    return dict(picture=seen.picture, target=np.array(target), **heats)


def _no_target(run: Run) -> str:
    own = isinstance(getattr(run.model, 'backbone', None), PluggedModel)
    return '' if own else 'its backbone is not one of vitplug'


# --- scores of relevance maps ---


def _mean_map(run: Run, kind: str, tensor: Tensor, place) -> Tensor:
    return dense_maps(tensor.mean(2, keepdim=True), place)[:, 0]


def _map_scores(seen: Seen) -> Arrays:
    """Scores of Grad-CAM, rollout and random values: against the mask, where there is one, and by pixel flipping."""
    [sample] = seen.run.predict(seen.batch, [seen.index])
    names = [*AGAINST_MASKS, 'score left by pixel flipping']
    arrays = {f'{heat}: {score}': np.array(np.nan) for heat in ('Grad-CAM', 'rollout', 'random') for score in names}
    try:
        studied = _studied(seen, sample)
    except ValueError:  # one class alone, or one that is predicted nowhere
        return arrays
    heats = {'random': np.random.default_rng(0).random(seen.size)}
    if cams := grad_cams(seen.run.model, seen.inputs, studied.target):
        heats['Grad-CAM'] = cams[max(cams)].on_image()[0].float().cpu().numpy()
    with contextlib.suppress(ValueError):  # blocks without maps, or on several grids
        heats['rollout'] = rollout_heat(seen, seen.found.get('probs', {}))
    for name, heat in heats.items():
        if studied.mask is not None:
            arrays |= {f'{name}: {score}': np.array(of(heat, studied.mask)) for score, of in AGAINST_MASKS.items()}
        arrays[f'{name}: {names[-1]}'] = np.array(_flipping(seen, studied, heat))
    return arrays


def _studied(seen: Seen, sample) -> Studied:
    """The predicted class; of a segmentation the class with the second most pixels, the first being the background."""
    if seen.run.library == 'mmpretrain':
        return studied_class(sample)
    if 'gt_sem_seg' not in sample:
        return studied_map(sample, None)
    return studied_map(sample, label_map(seen).numpy())


def _flipping(seen: Seen, studied: Studied, heat: np.ndarray) -> float:
    """The score of the prediction relative to that of the whole image, mean over the steps."""
    pixels = seen.batch['inputs'][0]

    def score(image_CHW: np.ndarray) -> float:
        batch: Mapping = dict(seen.batch, inputs=[torch.from_numpy(image_CHW).to(pixels)])
        return studied.score(seen.run.predict(batch, [seen.index])[0])

    height, width = pixels.shape[-2:]
    curve = pixel_flipping(score, pixels.numpy(), heat[:height, :width], STEPS)
    return float(curve[1:].mean() / curve[0]) if curve[0] else np.nan


def _no_map_scores(run: Run) -> str:
    return 'it is for classifiers and segmentors' if run.library == 'mmdet' else _no_target(run)


GRADIENTS = (
    Measure(
        'erf',
        'Gradient of the central token of the last map, mean over channels, to the normalised image, mean over its '
        'channels, rectified, averaged over images of the most frequent size; and the Gaussian fitted to it: standard '
        'deviations and the share of the variance that it explains',
        'pixels; R²: share',
        'Gaussian Attention Bias, Sec. 3 and supplement',
        _field,
        estimate=together(_fit),
        one_size=True,
        draw=figures.receptive_fields,
    ),
    Measure(
        'grad_cam',
        f'ReLU of the tokens at the {AT["attn"]}, weighed by the mean gradient of a score: the logit of the predicted '
        "class, the logits of the most frequent class's pixels, or the score of the first box; of the last two blocks "
        'that it depends on',
        'score',
        'ReViT, Fig. 1 and 8; Selvaraju et al. 2017',
        _cams,
        estimate=nothing,
        most=FEW,
        why_not=_no_target,
        draw=figures.heat,
    ),
    Measure(
        'map_scores',
        'Grad-CAM, rollout and random values. Against masks of the data: whether the highest point lies in the mask, '
        "the mask's share of the sum, and of as many highest pixels as it has. Pixel flipping: the score left, mean "
        f"over {STEPS} steps; the highest pixels get the image's mean colour first; low is good",
        'share',
        'Zhang et al. 2018; Arras et al. 2022; Samek et al. 2017',
        _map_scores,
        ('probs',),
        _mean_map,
        why_not=_no_map_scores,
        slow=True,
    ),
)
