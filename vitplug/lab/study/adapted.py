"""Measures of a model that vitplug does not own, from Python: torch and NumPy alone, no config, no checkpoint."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vitplug.adapters import host_of
from vitplug.attention import Site

from .measures.attention import attention_entropy, mean_attention_distance, non_locality
from .measures.tokens import mean_similarity, norm_outliers, token_norms
from .places import Place

#: By name, what each makes of the maps ``(B, W, H, Nq, Nk)`` of a block: ``(B, H)``.
OF_MAPS: dict[str, Callable[[Tensor, Place], Tensor]] = {
    'attention_entropy': attention_entropy,
    'attention_distance': mean_attention_distance,
    'non_locality': non_locality,
}
#: By name, what each makes of the patch tokens ``(B, N, D)`` that leave a block: ``(B,)``.
OF_TOKENS: dict[str, Callable[[Tensor], Tensor]] = {
    'feature_similarity': mean_similarity,
    'token_norm': lambda tokens: token_norms(tokens).mean(1),
    'norm_outliers': lambda tokens: norm_outliers(token_norms(tokens)).sum(1).float(),
}


@torch.no_grad()
def measure(
    model: nn.Module, images: Tensor | Iterable[Tensor], names: Iterable[str] = (*OF_MAPS, *OF_TOKENS)
) -> dict[str, dict[int, Tensor]]:
    """Measures of attention and of tokens, mean over images, for a model of timm, Hugging Face or your own::

        model = vitplug.plug_in(timm.create_model('deit_tiny_patch16_224', pretrained=True), [])
        vitplug.measure(model, images)['attention_distance'][11]     # pixels, of each head of the last block

    ==================  =======================================================================  =========  ======
    name                what it is                                                               of         unit
    ==================  =======================================================================  =========  ======
    attention_entropy   entropy of the attention of a patch, mean over patches                   heads      nats
    attention_distance  distance to the patches that it attends to, weighted by attention        heads      pixels
    non_locality        the same                                                                 heads      tokens
    feature_similarity  cosine of two patch tokens that leave the block, mean over pairs         the block
    token_norm          L2 norm of these tokens, mean                                            the block
    norm_outliers       tokens whose norm exceeds 3 times the median                             the block  tokens
    ==================  =======================================================================  =========  ======

    Args:
        model: A model with plugs; ``plug_in(model, [])`` will do. It is measured in inference mode.
        images: Images ``(B, C, H, W)`` as the model takes them, or batches of such images, which may differ in size.
        names: The measures.

    Returns:
        ``{name: {block index through all stages: (H,) or ()}}``. Blocks without attention have no measure of maps;
        the similarity of a single patch token is NaN.

    Raises:
        ValueError: If the model has no plugs or takes text, or there are no images ``(B, C, H, W)``.
        KeyError: If a name is unknown.
    """
    host, total = host_of(model), 0
    of = {name: OF_MAPS.get(name) or OF_TOKENS[name] for name in ([names] if isinstance(names, str) else names)}
    sums: dict[str, dict[int, Tensor]] = {name: {} for name in of}

    def reduce(kind: str, tensor: Tensor, site: Site) -> None:
        place = Place.of(host, site.index, size)
        for name, function in of.items():
            if (kind == 'probs') == (name in OF_MAPS):
                value = function(tensor, place) if kind == 'probs' else function(tensor[:, place.layout.num_prefix :])
                sums[name][site.index] = sums[name].get(site.index, 0) + value.double().sum(0)

    with in_inference(model):
        for batch in image_batches(images):
            size = tuple(batch.shape[-2:])
            wanted = ('probs', 'block') if of.keys() & OF_MAPS.keys() else ('block',)
            host.forward_intermediates(batch, wanted, reduce=reduce)
            total += len(batch)
    return {name: {block: value / total for block, value in by_block.items()} for name, by_block in sums.items()}


def image_batches(images: Tensor | Iterable[Tensor]) -> Iterator[Tensor]:
    """The batches ``(B, C, H, W)`` of images.

    Raises:
        ValueError: If there is no image, or something else.
    """
    total = 0
    for batch in [images] if isinstance(images, Tensor) else images:
        if batch.ndim != 4 or not batch.is_floating_point():
            what = f'{batch.dtype} {tuple(batch.shape)}'
            raise ValueError(f'images: {what}: expected tensors (B, C, H, W), normalised, as the model takes them')
        total += len(batch)
        if len(batch):
            yield batch
    if not total:
        raise ValueError('images: there are none')


@contextmanager
def in_inference(*models: nn.Module) -> Iterator[None]:
    """Puts models into inference mode; afterwards, each part has the mode that it had."""
    before = {part: part.training for model in models for part in model.modules()}
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for part, training in before.items():
            part.training = training
