"""Grad-CAM: where in the image the tokens of a block speak for a prediction; and scores of such maps.

*Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization* (arXiv 1610.02391), on tokens::

    weights = mean over patch tokens of d score / d tokens          (B, D)
    map     = relu(sum over channels of weights * tokens)           (B, h, w)

The tokens are those of ReViT (arXiv 2402.11301): the output of the attention branch, after the projection and before it
is added. Windows give their tokens in the order of the image, so every host works alike.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitplug.adapters import host_of
from vitplug.attention.precision import at_least_float32
from vitplug.hosting import PluggedModel, keep_padding
from vitplug.statistics.images import Arrays
from vitplug.tasks.targets import Scores, Target

from ..measure import FEW, Seen, measure, nothing
from .attention import mean_map, rollout_heat

# Blocks of the picture, the last ones on which the score depends; steps of pixel flipping.
BLOCKS, STEPS = 2, 10


def grad_cams(model: nn.Module, images: Tensor, target: Target | None = None) -> tuple[dict[int, Tensor], Scores]:
    """The Grad-CAMs of all blocks in one forward and one backward, and the scores. The model stays as it is.

    Args:
        model: A classifier or segmentor with a backbone of vitplug, or another model after :func:`vitplug.plug_in`, in
            evaluation mode.
        images: ``(B, C, H, W)``, as the backbone gets them; with :func:`~vitplug.hosting.padding.mark_padding` where
            they are padded.
        target: The score to explain, see :mod:`vitplug.tasks.targets`; None for the task's own. Detectors and models of
            other libraries need one.

    Returns:
        Maps ``(B, h, w)`` on the grid of a block, from 0 on, by block; and the scores. Blocks on whose patch tokens
        these do not depend are left out: a head on the class token reads no other token after the last attention.

    Raises:
        ValueError: If the model is in training mode, or there is no attention or score.
    """
    backbone = getattr(model, 'backbone', None)
    if not isinstance(backbone, PluggedModel):
        backbone = host_of(model)
    if model.training:
        raise ValueError(f'{type(model).__name__} is in training mode, where predictions are random: call eval() first')
    if target is None:
        from vitplug.tasks.libraries import task_of  # mmengine, which models of other libraries do without

        make = task_of(model).target
        if make is None:
            raise ValueError(f'{type(model).__name__}: no score to explain without a target')
        target = make()
    recorder = backbone.recorder(('attn',), 'all')
    with torch.inference_mode(False), torch.enable_grad(), backbone.recording(recorder):
        scores = target(model, keep_padding(images.detach().clone().requires_grad_(), images))
        found = recorder.collect().get('attn', {})
        if not found:
            raise ValueError(f'blocks of {type(backbone).__name__} have no output of the attention branch')
        grads = torch.autograd.grad(scores.values.sum(), list(found.values()), allow_unused=True)
    maps = {}
    for (layer, tokens_BND), grad_BND in zip(found.items(), grads, strict=True):
        (layout, pixels), _ = backbone.place_maps(layer, tuple(images.shape[-2:]))
        if grad_BND is not None and grad_BND[:, layout.num_prefix :].any():
            wide = at_least_float32(tokens_BND.dtype)
            tokens, grad = (t.detach()[:, layout.num_prefix :].to(wide) for t in (tokens_BND, grad_BND))
            maps[layer] = torch.einsum('bnd,bd->bn', tokens, grad.mean(1)).relu().unflatten(1, pixels.hw)
    return maps, replace(scores, values=scores.values.detach())


def over_image(heat_1hw: Tensor, seen: Seen, layer: int) -> np.ndarray:
    """The map ``(H, W)`` of a block over the pixels of an image, bilinear between the middles of tokens."""
    pixels, axes = seen.place(layer).pixels, []
    for side, start, stride, count in zip(seen.size, pixels.start, pixels.stride, pixels.hw, strict=True):
        tokens = (torch.arange(side, dtype=torch.float64) + 0.5 - start) / stride
        axes.append(2 * tokens / count - 1)
    grid_1HW2 = torch.stack(torch.meshgrid(*axes, indexing='ij')[::-1], dim=-1)[None].to(heat_1hw)
    heat = F.grid_sample(heat_1hw[None], grid_1HW2, padding_mode='border', align_corners=False)
    return heat[0, 0].float().cpu().numpy()


@measure('score', 'ReViT, Fig. 1 and 8; Selvaraju et al. 2017', estimate=nothing, most=FEW, draw='maps')
def grad_cam(seen: Seen) -> Arrays:
    """ReLU of the tokens at the output of the attention branch, weighed by the mean gradient of a score: the logit of
    the predicted class, or the logits of the most frequent class's pixels; of the last two blocks that it depends on.
    """
    if not seen.run.is_plugged:
        raise ValueError('it has no attention')
    maps, scores = grad_cams(seen.run.model, seen.inputs)
    heats = {f'block {layer}': over_image(maps[layer], seen, layer) for layer in sorted(maps)[-BLOCKS:]}
    return dict(picture=seen.picture, target=np.array(scores.names[0]), **heats)


# --- scores of maps ---


def pixel_flipping(
    score: Callable[[np.ndarray], float], image_CHW: np.ndarray, heat_HW: np.ndarray, steps: int = STEPS
) -> np.ndarray:
    """The score while the pixels get the image's mean colour, those of the highest values first. Samek et al. 2017.

    Gives ``(steps + 1,)``, the first of the image as it is. A good map makes the score fall early: its mean is low.
    """
    rank_HW = np.argsort(np.argsort(-heat_HW.ravel(), kind='stable')).reshape(heat_HW.shape)
    colour = image_CHW.mean((1, 2), keepdims=True).astype(image_CHW.dtype)
    counts = np.linspace(0, rank_HW.size, steps + 1).round()
    return np.array([score(np.where(rank_HW < count, colour, image_CHW)) for count in counts], float)


@measure('share', 'Samek et al. 2017', 'probs', reduce=mean_map)
def map_scores(seen: Seen) -> Arrays:
    """Pixel flipping by Grad-CAM, by rollout and by random values: the score of the predicted class that is left, mean
    over 10 steps; low is good."""
    run, pixels, arrays = seen.run, seen.batch['inputs'][0], {}
    if run.library != 'mmpretrain':
        raise ValueError('it is for classifiers')

    def scores(image_CHW: np.ndarray) -> torch.Tensor:
        changed = torch.from_numpy(image_CHW).to(pixels)
        return run.predict(dict(seen.batch, inputs=[changed]))[0].pred_score

    label = int(scores(pixels.numpy()).argmax())
    heats = {'random': np.random.default_rng(0).random(seen.size)}
    with contextlib.suppress(ValueError):  # a network without attention, or one that reads no patch
        cams, _ = grad_cams(run.model, seen.inputs)
        heats['Grad-CAM'] = over_image(cams[max(cams)], seen, max(cams))
    with contextlib.suppress(ValueError):  # blocks without maps, or on several grids
        heats['rollout'] = rollout_heat(seen).float().cpu().numpy()
    for name, heat in heats.items():
        inside = heat[: pixels.shape[1], : pixels.shape[2]]
        curve = pixel_flipping(lambda image_CHW: float(scores(image_CHW)[label]), pixels.numpy(), inside)
        arrays[f'{name}: left by pixel flipping'] = np.array(curve[1:].mean() / curve[0] if curve[0] else np.nan)
    return arrays
