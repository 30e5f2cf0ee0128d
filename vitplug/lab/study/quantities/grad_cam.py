"""Grad-CAM: where in the image the tokens of a block speak for a prediction.

*Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization* (arXiv 1610.02391), on tokens::

    weights = mean over patch tokens of d score / d tokens          (B, D)
    map     = relu(sum over channels of weights * tokens)           (B, h, w)

ReViT (arXiv 2402.11301) takes the output of the attention branch, after the projection and before it is added to the
tokens: ``at='attn'``. Windows give their tokens in the order of the image, so every host works alike.

The score is picked by a target: :class:`~vitplug.tasks.targets.ClassLogit`,
:class:`~vitplug.tasks.targets.PixelClass` or :class:`~vitplug.tasks.targets.BoxScore`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitplug.adapters import host_of
from vitplug.attention.precision import at_least_float32
from vitplug.hosting import PixelGrid, PluggedModel, with_gradient
from vitplug.tasks.targets import Scores, Target

from .gradients import frozen

#: Tokens of a block that can be taken, in words.
AT = {'attn': 'output of the attention branch', 'mlp': 'output of the MLP branch', 'block': "block's output"}


@dataclass(frozen=True)
class GradCam:
    """The map of one block.

    Attributes:
        heat: ``(B, h, w)`` on the block's grid, from 0 on, not normalised.
        layer: Index of the block through all stages.
        at: Which of its tokens, see :data:`AT`.
        targets: The score of each image in words, such as ``'logit of class 3'``.
        scores: Its value ``(B,)``.
        pixels: Where the tokens lie in the image.
        image_size: Height and width of the model's input.
    """

    heat: Tensor
    layer: int
    at: str
    targets: tuple[str, ...]
    scores: Tensor
    pixels: PixelGrid
    image_size: tuple[int, int]

    @property
    def name(self) -> str:
        """The target layer in words: ``'block 11, output of the attention branch'``."""
        return _name(self.layer, self.at)

    def on_image(self) -> Tensor:
        """The map over the image, ``(B, height, width)``, bilinear between the middles of the tokens."""
        return self.pixels.interpolate(self.heat, self.image_size)


def grad_cam(
    model: nn.Module, images: Tensor, target: Target | None = None, layer: int | None = None, at: str = 'attn'
) -> GradCam:
    """The Grad-CAM of one block.

    The model, its gradients and its mode stay as they are.

    Args:
        model: A classifier, segmentor or detector of mmpretrain, mmseg or mmdet with a backbone of vitplug, or a model
            of another library after :func:`vitplug.plug_in`, in evaluation mode.
        images: ``(B, C, H, W)``, as the backbone gets them; with :func:`~vitplug.hosting.padding.mark_padding` where
            they are padded, as vitplug's data preprocessors give them.
        target: The score to explain; None for the task's own: the logit of the predicted class, the logits of the class
            of the most pixels, the score of the first box. Models of other libraries need one.
        layer: Index of the block through all stages; None for the last one whose patch tokens the score depends on.
            With a head on the class token, this is the last but one: nothing reads the patch tokens after it.
        at: Which tokens of the block, see :data:`AT`.

    Raises:
        ValueError: If the model is not in evaluation mode or has another backbone, there is no such block, branch or
            score, or the score does not depend on the block's patch tokens.
    """
    maps = grad_cams(model, images, target, 'all' if layer is None else [layer], at)
    if not maps:
        raise ValueError(
            f'{"layer=None" if layer is None else _name(layer, at)}: the score does not depend on the patch tokens '
            'there. A head on the class token reads no other token after the last attention: choose an earlier layer, '
            'or None for the last one that counts'
        )
    return maps[max(maps)]


def grad_cams(
    model: nn.Module,
    images: Tensor,
    target: Target | None = None,
    layers: str | Sequence[int] = 'all',
    at: str = 'attn',
) -> dict[int, GradCam]:
    """The Grad-CAMs of several blocks in one forward and one backward; arguments as in :func:`grad_cam`.

    Args:
        layers: Block indices, or ``'all'``.

    Returns:
        Maps by block; blocks on whose patch tokens the score does not depend are left out.

    Raises:
        ValueError: As :func:`grad_cam`.
    """
    backbone = _check_model(model)
    if at not in AT:
        raise ValueError(f'at={at!r}: expected one of {list(AT)}')
    target = _target_of(model) if target is None else target
    recorder = backbone.recorder((at,), layers)
    with torch.inference_mode(False), torch.enable_grad(), frozen(model), backbone.recording(recorder):
        scores = target(model, with_gradient(images))
        tokens = recorder.collect().get(at, {})
        if not tokens:
            raise ValueError(f'at={at!r}: blocks {layers} of {type(backbone).__name__} have no {AT[at]}')
        grads = _gradients(scores, list(tokens.values()))
    size, maps = tuple(images.shape[-2:]), {}
    for (layer, tokens_BND), grad_BND in zip(tokens.items(), grads, strict=True):
        layout, pixels = backbone.place_block(layer, size)
        if grad_BND is None or not grad_BND[:, layout.num_prefix :].any():
            continue
        patches = (t.detach()[:, layout.num_prefix :] for t in (tokens_BND, grad_BND))
        heat = weigh_channels(*patches).unflatten(1, pixels.hw)
        maps[layer] = GradCam(heat, layer, at, scores.names, scores.values.detach(), pixels, size)
    return maps


def weigh_channels(tokens_BND: Tensor, grad_BND: Tensor) -> Tensor:
    """The map of patch tokens ``(B, N, D)`` and the score's gradient to them, ``(B, N)``."""
    tokens_BND, grad_BND = (t.to(at_least_float32(t.dtype)) for t in (tokens_BND, grad_BND))
    return torch.einsum('bnd,bd->bn', tokens_BND, grad_BND.mean(1)).relu()


def _name(layer: int, at: str) -> str:
    return f'block {layer}, {AT[at]}'


def _target_of(model: nn.Module) -> Target:
    from vitplug.tasks import task_of  # mmengine, which models of other libraries do without

    return task_of(model).target()


def _check_model(model: nn.Module) -> PluggedModel:
    backbone = getattr(model, 'backbone', None)
    if not isinstance(backbone, PluggedModel):
        backbone = _host(model, backbone)
    if model.training:
        raise ValueError(f'{type(model).__name__} is in training mode, where predictions are random: call eval() first')
    return backbone


def _host(model: nn.Module, backbone: nn.Module | None) -> PluggedModel:
    try:
        return host_of(model)
    except ValueError:
        raise ValueError(
            f'{type(model).__name__} with {type(backbone).__name__} as backbone: expected one of vitplug, or a model '
            'with plugs, see vitplug.plug_in'
        ) from None


def _gradients(scores: Scores, tokens: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """The gradient to the tokens of each block, None where the score does not depend on them.

    Raises:
        ValueError: If the score has no gradients.
    """
    without = f'{scores.names[0]}: the model gives it without gradients, as soft suppression of boxes does'
    if not scores.values.requires_grad:
        raise ValueError(without)
    try:
        return torch.autograd.grad(scores.values.sum(), tokens, allow_unused=True)
    except NotImplementedError as error:  # a function without backward
        raise ValueError(without) from error
