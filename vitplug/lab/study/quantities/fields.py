"""The effective receptive field (ERF): how strongly each input pixel acts on the central token of the last map.

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields* (arXiv 2305.04722),
Section 3 and its code::

    Y = mean over channels of map[centre]        G = mean over input channels of dY / dx
    ERF = mean over images of relu(G)            x: the normalised image

The rectifier acts on each image, so images go through one at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from vitplug.attention.precision import at_least_float32
from vitplug.hosting import PluggedModel, with_gradient

from .gradients import checkpointed, frozen

#: From images ``(1, C, H, W)`` to the last map ``(1, D, h, w)``.
FeatureMap = Callable[[Tensor], Tensor]
# A gradient that is smaller than this share of a comparable one is rounding noise: float32 has 7 digits.
NOISE = 1e-4


def effective_receptive_field(features: PluggedModel | FeatureMap, images: Iterable[Tensor]) -> Tensor:
    """The ERF over some images.

    Args:
        features: A backbone in evaluation mode, or any function from an image to a map.
        images: Normalised images ``(1, C, H, W)``, all of one size; one at a time is held.

    Returns:
        ``(H, W)``, float64: the mean of :func:`input_gradient` over the images.

    Raises:
        ValueError: If there are no images, or they differ in size; or as :func:`input_gradient`.
    """
    total, count = None, 0
    for image in images:
        gradient = input_gradient(features, image).double()
        if total is not None and total.shape != gradient.shape:
            raise ValueError(
                f'image {count} has {tuple(gradient.shape)} pixels, and those before it {tuple(total.shape)}: the ERF '
                'is a mean over images of one size'
            )
        total, count = gradient if total is None else total + gradient, count + 1
    if total is None:
        raise ValueError('no images: the ERF is a mean over at least one')
    return total / count


def input_gradient(features: PluggedModel | FeatureMap, image: Tensor) -> Tensor:
    """What one image adds to the ERF: the rectified gradient of the central token, mean over channels.

    Args:
        features: See :func:`effective_receptive_field`. Its parameters get no gradients.
        image: ``(1, C, H, W)``.

    Returns:
        ``(H, W)``, not negative.

    Raises:
        ValueError: If the model is in training mode, the batch has several images, or what ``features`` gives is no map
            or does not depend on the image.
    """
    with torch.enable_grad(), _frugal(features):
        pixels, centre_D = _central_token(features, image)
        (gradient,) = torch.autograd.grad(centre_D.mean(), pixels)
    return gradient[0].mean(0).relu()


def cancels(features: PluggedModel | FeatureMap, image: Tensor) -> bool:
    """Whether the mean over channels does not depend on the image, so that its gradient is rounding noise.

    A LayerNorm that scales all channels alike, as an untrained one does, gives tokens with a constant mean. The
    gradient of the mean is compared with that of a sum with alternating signs. Arguments as :func:`input_gradient`.
    """
    with torch.enable_grad(), _frugal(features):
        pixels, centre_D = _central_token(features, image)
        (of_mean,) = torch.autograd.grad(centre_D.mean(), pixels, retain_graph=True)
        signs_D = 1 - 2 * (torch.arange(len(centre_D), device=centre_D.device) % 2)
        (of_others,) = torch.autograd.grad((signs_D * centre_D).mean(), pixels)
    return len(centre_D) > 1 and bool(of_mean.norm() < NOISE * of_others.norm())


def _frugal(features: PluggedModel | FeatureMap) -> ExitStack:
    """Saves memory where the model is known."""
    with ExitStack() as stack:
        if isinstance(features, nn.Module):
            stack.enter_context(frozen(features))
        if isinstance(features, PluggedModel):
            stack.enter_context(checkpointed(features))
        return stack.pop_all()


def _central_token(features: PluggedModel | FeatureMap, image: Tensor) -> tuple[Tensor, Tensor]:
    """The image as the start of a graph, and the channels of the central token of its map."""
    if getattr(features, 'training', False):
        raise ValueError(f'{type(features).__name__} is in training mode, with dropout: call eval() first')
    if image.ndim != 4 or len(image) != 1:
        raise ValueError(f'image of shape {tuple(image.shape)}: expected (1, C, H, W), one image at a time')
    pixels = with_gradient(image)
    maps = last_map(features, pixels) if isinstance(features, PluggedModel) else features(pixels)
    if maps.ndim != 4 or len(maps) != 1 or not maps.requires_grad:
        raise ValueError(
            f'features gives {tuple(maps.shape)}, requires_grad={maps.requires_grad}: expected a map (1, D, h, w) '
            'with a gradient'
        )
    row, column = centre_token(maps.shape[-2:])
    return pixels, maps[0, :, row, column].to(at_least_float32(maps.dtype))


def mean_field(fields: Sequence[np.ndarray]) -> np.ndarray:
    """The ERF of some images, each ``(H, W)``, its sum being 1; zeros stay zeros."""
    mean = np.mean(fields, 0, dtype=np.float64)
    return mean / max(mean.sum(), np.finfo(float).tiny)


def centre_token(hw: tuple[int, int]) -> tuple[int, int]:
    """Row and column of the central token; of four central ones, or of two, the upper left one."""
    return (hw[0] - 1) // 2, (hw[1] - 1) // 2


def last_map(backbone: PluggedModel, images: Tensor) -> Tensor:
    """The patch tokens that the backbone's last output is made of, ``(B, D, h, w)``, whatever its ``out_type``.

    They come after the final norm, where there is one: a model that normalises after pooling gives the tokens as the
    last block does.
    """
    with _giving_maps(backbone):
        return backbone.forward_features(images, None)[-1]


@contextmanager
def _giving_maps(backbone: PluggedModel) -> Iterator[None]:
    """Lets a backbone give maps, and takes it back."""
    out_type = getattr(backbone, 'out_type', None)
    if out_type in (None, 'featmap'):  # hosts without a choice give maps
        yield
        return
    backbone.out_type = 'featmap'
    try:
        yield
    finally:
        backbone.out_type = out_type
