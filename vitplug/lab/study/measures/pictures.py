"""Figures of the papers that are pictures of maps alone, of a few images."""

from math import prod

import numpy as np
import torch
from scipy.special import entr
from torch import Tensor

from vitplug.statistics.images import Arrays, evenly_spaced

from ..measure import FEW, Run, Seen, measure, nothing
from ..places import Place, to_image
from .attention import MOST_PAIRS, map_of_patches
from .fields import centre_token
from .tokens import feature_similarity

# Smallest probability whose logarithm is taken.
TINY = np.float32(1e-12)
# Maps of a picture from low to high entropy; blocks of a picture.
MAPS, BLOCKS = 6, 12
# Blocks of Refiner's figure, of 32, counted from 1.
OF_32 = (1, 4, 11, 18, 23, 29, 30)
FIGURE = dict(estimate=nothing, draw='maps')


def _of_class_token(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    if place.layout.is_windowed or place.layout != place.key_layout:
        return None
    return tensor[0, 0, :, 0].mean(0).float().cpu().numpy()


def _no_class_token(run: Run) -> str:
    return '' if run.has_class_token else 'it has no class token'


OF_CLASS = dict(reduce=_of_class_token, why_not=_no_class_token, most=FEW)


@measure('ln of probability', 'Context Broadcasting, Fig. 10', 'probs', **OF_CLASS, **FIGURE)
def class_attention(seen: Seen) -> Arrays:
    """Logarithm of the attention of the class token to each token, mean over heads, a row for each block; tokens are
    the class token and the patches in reading order."""
    rows = list(seen.found['probs'].values())
    return {f'|image {seen.index}': np.log(np.maximum(rows, TINY))} if rows else {}


def _central(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray:
    """The attention of the central patch to the patches, by head, normalised again."""
    row, column = centre_token(place.layout.hw)
    maps_Hhw = to_image(tensor, place, torch.tensor([row * place.layout.hw[1] + column]))[0, :, 0]
    return (maps_Hhw / maps_Hhw.sum((1, 2), keepdim=True)).float().cpu().numpy()


@measure('nats', 'Context Broadcasting, Fig. 3b', 'probs', reduce=_central, most=1, **FIGURE)
def maps_by_entropy(seen: Seen) -> Arrays:
    """Attention of the central patch to the patches, by head, and its entropy in nats, the row normalised again without
    further tokens; maps at even steps between the lowest and the highest entropy of all blocks."""
    maps = {
        (float(entr(heads[head]).sum()), layer, head): heads[head]
        for layer, heads in seen.found['probs'].items()
        for head in range(len(heads))
        if np.isfinite(heads[head]).all()  # a head with all of its attention elsewhere has none
    }
    if not maps:
        return {}
    wanted = np.linspace(min(maps)[0], max(maps)[0], MAPS)
    chosen = dict.fromkeys(min(sorted(maps), key=lambda key, value=value: abs(key[0] - value)) for value in wanted)
    named = {f'{key[0]:.2f} (block {key[1]}, head {key[2]})': maps[key] for key in chosen}
    return {'picture': seen.picture, **named}


def _pairs(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    if prod(place.layout.hw) ** 2 > MOST_PAIRS:
        return None
    return feature_similarity(tensor[:, place.layout.num_prefix :])[0].float().cpu().numpy()


@measure('cosine', 'ReViT, Fig. 3', 'block', reduce=_pairs, most=1, **FIGURE)
def token_pairs(seen: Seen) -> Arrays:
    """Cosine similarity of every two patch tokens of an image at a block's output."""
    pairs = list(seen.found['block'].items())
    chosen = [pairs[at] for at in evenly_spaced(len(pairs), BLOCKS)]
    return {f'|block {layer}': one for layer, one in chosen}


@measure('weight', 'Refiner, Fig. 5', 'probs', 'maps', reduce=map_of_patches, most=1, **FIGURE)
def refined_maps(seen: Seen) -> Arrays:
    """Attention of every patch to every patch, mean over heads, before and after the plug that changes maps; of the
    blocks of the paper's figure, at the same share of another depth."""
    arrays: Arrays = {}
    before, after = seen.found['probs'], seen.found['maps']
    for layer in dict.fromkeys(round((number - 1) * (seen.run.blocks - 1) / 31) for number in OF_32):
        if layer in before:
            arrays[f'|block {layer}'] = before[layer].cpu().numpy()
        if layer in after:
            own = max((other for other in before if other <= layer), default=layer)
            reused = '' if own == layer else f' (map of block {own})'
            arrays[f'after the plug|block {layer}{reused}'] = after[layer].cpu().numpy()
    return arrays
