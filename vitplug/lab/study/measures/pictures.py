"""Figures of the papers that are pictures alone, of a few images."""

from math import prod

import numpy as np
import torch
from scipy.special import entr
from torch import Tensor, nn

from vitplug.statistics.images import Arrays, evenly_spaced

from ..measure import FEW, Run, Seen, by_block, measure, nothing
from ..places import Place, patch_maps, to_image
from .fields import centre_token
from .learned import bias_of, has_own_biases
from .tokens import feature_similarity

BLOCK = 'block {}'
# Smallest probability whose logarithm is taken.
TINY = np.float32(1e-12)
# Entries of a matrix of all pairs of tokens that a picture can show.
MOST_PAIRS = 2**22
# Maps of a picture from low to high entropy; blocks of a picture.
MAPS, BLOCKS = 6, 12
# Blocks of Refiner's Figure 5, counted from 1, of 32.
OF_32 = (1, 4, 11, 18, 23, 29, 30)
ALONE, ONE = dict(estimate=nothing, slow=True), dict(most=1, draw='rows_of_maps')


def _of_class_token(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    if place.layout.is_windowed or not place.one_grid:
        return None
    return tensor[0, 0, :, 0].mean(0).float().cpu().numpy()


@measure(
    'ln of probability',
    'Context Broadcasting, Fig. 10',
    'probs',
    reduce=_of_class_token,
    why_not=lambda run: '' if run.has_class_token else 'it has no class token',
    draw='rows_of_maps',
    most=FEW,
    **ALONE,
)
def class_attention(seen: Seen) -> Arrays:
    """Logarithm of the attention of the class token to each token, mean over heads, a row for each block; tokens are
    the class token and the patches in reading order."""
    rows = [row for _, row in sorted(seen.found.get('probs', {}).items()) if row is not None]
    rows_BN = np.log(np.maximum(by_block(dict(enumerate(rows)), len(rows)), TINY)) if rows else None
    return {} if rows_BN is None else {f'|image {seen.index}': rows_BN}


def _central(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray:
    """The attention of the central patch to the patches, by head, normalised again."""
    row, column = centre_token(place.layout.hw)
    maps_Hhw = to_image(tensor, place, torch.tensor([row * place.layout.hw[1] + column]))[0, :, 0]
    return (maps_Hhw / maps_Hhw.sum((1, 2), keepdim=True)).float().cpu().numpy()


@measure('nats', 'Context Broadcasting, Fig. 3b', 'probs', reduce=_central, **ONE, **ALONE)
def maps_by_entropy(seen: Seen) -> Arrays:
    """Attention of the central patch to the patches, by head, and its entropy in nats, the row normalised again without
    further tokens; maps at even steps between the lowest and the highest entropy of all blocks."""
    maps = {
        (float(entr(heads[head]).sum()), layer, head): heads[head]
        for layer, heads in seen.found.get('probs', {}).items()
        for head in range(len(heads))
        if np.isfinite(heads[head]).all()  # a head with all of its attention elsewhere has none
    }
    if not maps:
        return {}
    ranked = sorted(maps)
    wanted = np.linspace(ranked[0][0], ranked[-1][0], MAPS)
    chosen = dict.fromkeys(min(ranked, key=lambda key, value=value: abs(key[0] - value)) for value in wanted)
    named = {f'{key[0]:.2f} (block {key[1]}, head {key[2]})': maps[key] for key in chosen}
    return {'picture': seen.picture, **named}


# --- biases, trained and untrained ---


def _shown_patches(place: Place) -> tuple[int, ...]:
    """The patches of one window, or of the image, that the paper shows: 0, 1, 2 and the last."""
    return 0, 1, 2, prod(place.layout.grid.hw) - 1


def _biases(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    if has_own_biases(tensor):
        return None
    return torch.stack([bias_of(tensor, place.site, p) for p in _shown_patches(place)]).float().cpu().numpy()


def untrained(run: Run) -> nn.Module:
    """The backbone of a run with new weights, drawn with seed 0."""
    from mmengine.registry import MODELS

    from vitplug.checkpoints.pretrained import loads_checkpoint

    settings = dict(run.cfg.model.backbone)
    if loads_checkpoint(settings.get('init_cfg')):
        del settings['init_cfg']
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = MODELS.build(settings)
        backbone.init_weights()
    return backbone.to(run.device).eval()


@measure('logit', 'Gaussian Attention Bias, Fig. 5, and its supplement', 'bias', reduce=_biases, **ONE, **ALONE)
def bias_rows(seen: Seen) -> Arrays:
    """Position bias of the first, second, third and last patch to all patches, host and plugs together, mean over
    heads, of the first block with one; untrained: new weights of the same config."""
    layers = sorted(layer for layer, bias in seen.found.get('bias', {}).items() if bias is not None)
    if not layers:
        return {}
    first, run, place = layers[0], seen.run, seen.place(layers[0])
    _, fresh = untrained(run).forward_intermediates(seen.inputs, ('bias',), layers=[first])
    both = dict(trained=seen.found['bias'][first], untrained=_biases(run, 'bias', fresh['bias'][first], place))
    return {
        f'{state}, block {first}|patch {patch}': bias
        for state, biases in both.items()
        for patch, bias in zip(_shown_patches(place), biases, strict=True)
    }


# --- all pairs of tokens ---


def _pairs(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    if prod(place.layout.hw) ** 2 > MOST_PAIRS:
        return None
    return feature_similarity(tensor[:, place.layout.num_prefix :])[0].float().cpu().numpy()


@measure('cosine', 'ReViT, Fig. 3', 'block', reduce=_pairs, **ONE, **ALONE)
def token_pairs(seen: Seen) -> Arrays:
    """Cosine similarity of every two patch tokens of an image at a block's output."""
    layers = {layer: pairs for layer, pairs in seen.found['block'].items() if pairs is not None}
    chosen = [sorted(layers)[at] for at in evenly_spaced(len(layers), BLOCKS)]
    return {f'|{BLOCK.format(layer)}': layers[layer] for layer in chosen}


def _dense(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    maps_NN = patch_maps(tensor, place, MOST_PAIRS) if kind == 'probs' or run.changes_maps else None
    return None if maps_NN is None else maps_NN.cpu().numpy()


def papers_blocks(blocks: int) -> list[int]:
    """The blocks of Refiner's Figure 5, at the same share of another depth."""
    return list(dict.fromkeys(round((number - 1) * (blocks - 1) / 31) for number in OF_32))


@measure('weight', 'Refiner, Fig. 5', 'probs', 'maps', reduce=_dense, **ONE, **ALONE)
def refined_maps(seen: Seen) -> Arrays:
    """Attention of every patch to every patch, mean over heads, before and after the plug that changes maps."""
    arrays: Arrays = {}
    before, after = (
        {layer: maps for layer, maps in seen.found.get(kind, {}).items() if maps is not None}
        for kind in ('probs', 'maps')
    )
    for layer in papers_blocks(seen.run.blocks):
        if layer in before:
            arrays[f'|{BLOCK.format(layer)}'] = before[layer]
        if layer in after:
            own = max((other for other in before if other <= layer), default=layer)
            reused = '' if own == layer else f' (map of block {own})'
            arrays[f'after the plug|{BLOCK.format(layer)}{reused}'] = after[layer]
    return arrays


PICTURES = (class_attention, maps_by_entropy, bias_rows, token_pairs, refined_maps)
