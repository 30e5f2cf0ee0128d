"""Grad-CAM: where in the image the tokens of a block speak for a prediction.

*Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization* (arXiv 1610.02391), on tokens::

    weights = mean over patch tokens of d score / d tokens          (B, D)
    map     = relu(sum over channels of weights * tokens)           (B, h, w)

ReViT (arXiv 2402.11301) takes the output of the attention branch, after the projection and before it is added to the
tokens: ``at='attn'``. Windows give their tokens in the order of the image, so every host works alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from vitplug.adapters import host_of
from vitplug.attention.precision import at_least_float32
from vitplug.hosting import PixelGrid, PluggedModel, with_gradient
from vitplug.statistics.images import Arrays

from ..measure import FEW, Run, Seen, measure, nothing

if TYPE_CHECKING:
    from vitplug.tasks.targets import Target

#: Tokens of a block that can be taken, in words.
AT = {'attn': 'output of the attention branch', 'mlp': 'output of the MLP branch', 'block': "block's output"}
# Blocks of the picture, the last ones on which the score depends.
BLOCKS = 2


@dataclass(frozen=True)
class GradCam:
    """The map of one block.

    Attributes:
        heat: ``(B, h, w)`` on the block's grid, from 0 on, not normalised.
        targets: The score of each image in words, such as ``'logit of class 3'``.
        scores: Its value ``(B,)``.
        pixels: Where the tokens lie in the image; ``pixels.interpolate(heat, size)`` is the map over the image.
    """

    heat: Tensor
    targets: tuple[str, ...]
    scores: Tensor
    pixels: PixelGrid


def grad_cams(
    model: nn.Module,
    images: Tensor,
    target: 'Target | None' = None,
    layers: str | Sequence[int] = 'all',
    at: str = 'attn',
) -> dict[int, GradCam]:
    """The Grad-CAMs of several blocks in one forward and one backward. The model stays as it is.

    Args:
        model: A classifier or segmentor of mmpretrain or mmseg with a backbone of vitplug, or another model after
            :func:`vitplug.plug_in`, in evaluation mode.
        images: ``(B, C, H, W)``, as the backbone gets them; with :func:`~vitplug.hosting.padding.mark_padding` where
            they are padded, as vitplug's data preprocessors give them.
        target: The score to explain, see :mod:`vitplug.tasks.targets`; None for the task's own: the logit of the
            predicted class, or the logits of the class of the most pixels. Detectors and models of other libraries need
            one.
        layers: Block indices, or ``'all'``.
        at: Which tokens of the blocks, see :data:`AT`.

    Returns:
        Maps by block. Blocks on whose patch tokens the score does not depend are left out: a head on the class token
        reads no other token after the last attention.

    Raises:
        ValueError: If the model is in training mode or has another backbone, or there is no such block, branch or
            score, or the score has no gradients.
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
    recorder = backbone.recorder((at,), layers)
    with torch.inference_mode(False), torch.enable_grad(), backbone.recording(recorder):
        scores = target(model, with_gradient(images))
        found = recorder.collect().get(at, {})
        if not found:
            raise ValueError(f'blocks {layers} of {type(backbone).__name__} have no {AT[at]}')
        try:
            grads = torch.autograd.grad(scores.values.sum(), list(found.values()), allow_unused=True)
        except RuntimeError as error:  # such as soft suppression of boxes
            raise ValueError(f'{scores.names[0]}: the model gives it without gradients') from error
    size, maps = tuple(images.shape[-2:]), {}
    for (layer, tokens_BND), grad_BND in zip(found.items(), grads, strict=True):
        layout, pixels = backbone.place_block(layer, size)
        if grad_BND is not None and grad_BND[:, layout.num_prefix :].any():
            wide = at_least_float32(tokens_BND.dtype)
            tokens, grad = (t.detach()[:, layout.num_prefix :].to(wide) for t in (tokens_BND, grad_BND))
            heat_Bhw = torch.einsum('bnd,bd->bn', tokens, grad.mean(1)).relu().unflatten(1, pixels.hw)
            maps[layer] = GradCam(heat_Bhw, scores.names, scores.values.detach(), pixels)
    return maps


def over_image(cam: GradCam, seen: Seen) -> np.ndarray:
    """The map ``(H, W)`` over the pixels of an image."""
    return cam.pixels.interpolate(cam.heat, seen.size)[0].float().cpu().numpy()


def no_target(run: Run) -> str:
    own = isinstance(getattr(run.model, 'backbone', None), PluggedModel)
    return '' if own else 'its backbone is not one of vitplug'


@measure(
    'score', 'ReViT, Fig. 1 and 8; Selvaraju et al. 2017', estimate=nothing, most=FEW, why_not=no_target, draw='heat'
)
def grad_cam(seen: Seen) -> Arrays:
    """ReLU of the tokens at the output of the attention branch, weighed by the mean gradient of a score: the logit of
    the predicted class, or the logits of the most frequent class's pixels; of the last two blocks that it depends on.
    """
    try:
        maps = grad_cams(seen.run.model, seen.inputs)
    except ValueError as error:  # of a detector, say: the picture says so
        return dict(picture=seen.picture, target=np.array(str(error)))
    heats = {f'block {layer}': over_image(maps[layer], seen) for layer in sorted(maps)[-BLOCKS:]}
    target = next((one.targets[0] for one in maps.values()), '')
    return dict(picture=seen.picture, target=np.array(target), **heats)


GRAD_CAM = (grad_cam,)
