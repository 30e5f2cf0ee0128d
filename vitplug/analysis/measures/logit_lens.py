"""Logit lens by patch: the classes that a classifier's head reads from the patch tokens of an earlier block."""

import torch
from torch import Tensor, nn

from vitplug.hosting import PluggedModel

# Tokens that go through the head at a time.
CHUNK = 4096


@torch.no_grad()
def logit_lens(model: nn.Module, tokens_BND: Tensor, num_prefix: int) -> Tensor:
    """The logits of each patch token, as if the last block had given it and the image had no other token.

    It goes through the final norm, the neck and the head; where the head reads the class token, it takes its place.
    nostalgebraist 2020, on the patches of an image.

    Args:
        model: A classifier of mmpretrain with a backbone of vitplug, in evaluation mode.
        tokens_BND: Output tokens of a block ``(B, N, D)``, as wide as those of the last one.
        num_prefix: Tokens before those of the grid.

    Returns:
        ``(B, patches, classes)``.

    Raises:
        ValueError: If the model is no such classifier, its head does not read one token alone, or the tokens have
            another width.
    """
    backbone, head = getattr(model, 'backbone', None), getattr(model, 'head', None)
    if not isinstance(backbone, PluggedModel) or not callable(head):
        raise ValueError(f'{type(model).__name__}: expected a classifier with a backbone of vitplug and a head')
    last, width = len(backbone.sections()) - 1, backbone.sections()[-1].embed_dims
    if tokens_BND.shape[-1] != width:
        raise ValueError(f'tokens of width {tokens_BND.shape[-1]}: the head reads tokens of width {width}')
    patches = tokens_BND[:, num_prefix:].flatten(0, 1)
    chunks = [_read(model, backbone, last, some) for some in patches.split(CHUNK)]
    return torch.cat(chunks).unflatten(0, (len(tokens_BND), -1))


def _read(model: nn.Module, backbone: PluggedModel, last: int, tokens_ND: Tensor) -> Tensor:
    images_BND = tokens_ND[:, None].expand(-1, backbone.num_extra_tokens + 1, -1)
    feats, neck = (backbone.format_output(last, images_BND, (1, 1)),), getattr(model, 'neck', None)
    try:
        logits = model.head(feats if neck is None else neck(feats))
    except RuntimeError as error:  # weights of another shape
        names = ' and '.join(type(part).__name__ for part in (neck, model.head) if part is not None)
        raise ValueError(f'{names} do not read one token alone: {error}') from error
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise ValueError(f'{type(model.head).__name__} gives no logits (images, classes) to read')
    return logits
