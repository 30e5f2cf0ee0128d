"""Figures of the papers that are pictures alone: `analyze.py --figure NAME`. A new one is one entry of `FIGURES`.

Each has the quantities of the paper's figure, of the images and models of the call. Its arrays are kept with those of
the measures.
"""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import torch
from matplotlib.figure import Figure
from mmengine.registry import MODELS
from scipy.special import entr
from torch import Tensor, nn

from vitplug.analysis.measures.features import feature_similarity
from vitplug.analysis.measures.gaussian_fit import bias_of
from vitplug.analysis.measures.maps import dense_maps, to_image
from vitplug.analysis.measures.places import Place
from vitplug.analysis.measures.receptive_field import centre_token
from vitplug.checkpoints.pretrained import loads_checkpoint
from vitplug.statistics.images import Arrays

from . import drawing
from .attention import FEW, OfMaps
from .learned import PositionBias
from .loaded import Loaded
from .measure import Measure, Picture, Recorded, Shown
from .subject import Subject

BLOCK = 'block {}'
# Smallest probability whose logarithm is taken.
TINY = np.float32(1e-12)
# Entries of a matrix of all pairs of tokens that a picture can show.
MOST_PAIRS = 2**22


def _pairs_do_not_fit(subject: Subject) -> str:
    """Why a picture cannot show all pairs of tokens; '' if it can. The first block has the most."""
    pairs = prod(subject.place(0, subject.sizes[0]).layout.hw) ** 2
    return f'its matrices have {pairs:,} entries, and at most {MOST_PAIRS:,} are drawn' if pairs > MOST_PAIRS else ''


class ClassAttention(Picture, OfMaps):
    name = 'cb-figure10'
    title = 'Attention of the class token, natural logarithm'
    definition = (
        'Logarithm of the attention of the class token to each token, mean over heads, a row for each block; tokens '
        'are the class token and the patches in reading order'
    )
    unit = 'ln of probability'
    source = 'Context Broadcasting, Fig. 10'
    needs = 'a class token and attention maps without windows'
    refined = False
    count = FEW

    def why_not(self, subject: Subject) -> str:
        if without := super().why_not(subject):
            return without
        if not subject.has_class_token:
            return 'it has no class token'
        layouts = [subject.place(layer, subject.sizes[0]) for layer in subject.layers_with('probs')]
        windowed = any(place.layout.is_windowed or not place.one_grid for place in layouts)
        return 'its blocks attend in windows, or to pooled keys' if windowed else ''

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> np.ndarray:
        return tensor[0, 0, :, 0].mean(0).float().cpu().numpy()

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        layers = recorded['probs']
        return {BLOCK.format(layer): layers[layer] for layer in sorted(layers)}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        rows = {
            f'{one.label}, image {number}': np.stack([np.log(np.maximum(row, TINY)) for row in unit.values()])
            for one in shown
            for number, unit in enumerate(one.units)
        }
        return drawing.strips(self.title, rows, 'token', 'block')


class MapsByEntropy(Picture, OfMaps):
    name = 'cb-figure3b'
    title = 'Attention of the central patch, from low to high entropy'
    definition = (
        'Attention of the central patch to the patches, by head, and its entropy -sum_j a_j ln a_j, the row normalised '
        'again without further tokens; maps at even steps between the lowest and the highest entropy of all blocks'
    )
    unit = 'nats'
    source = 'Context Broadcasting, Fig. 3b'
    needs = 'attention maps'
    refined = False
    SHOWN = 6

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> np.ndarray:
        height, width = place.layout.hw
        row, column = centre_token((height, width))
        maps_Hhw = to_image(tensor, place, torch.tensor([row * width + column]))[0, :, 0]
        total = maps_Hhw.sum((1, 2), keepdim=True)
        return (maps_Hhw / total.clamp(min=float(TINY))).float().cpu().numpy()

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        maps = {
            (float(entr(heads[head]).sum()), layer, head): heads[head]
            for layer, heads in recorded['probs'].items()
            for head in range(len(heads))
        }
        ranked = sorted(maps)
        wanted = np.linspace(ranked[0][0], ranked[-1][0], self.SHOWN)
        chosen = dict.fromkeys(min(ranked, key=lambda key, value=value: abs(key[0] - value)) for value in wanted)
        named = {f'{key[0]:.2f} (block {key[1]}, head {key[2]})': maps[key] for key in chosen}
        return {'picture': image.picture, **named}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        rows = {one.label: one.units[0] for one in shown}
        return drawing.map_rows(f'{self.title}, in nats', rows, own_scale=True)


class BiasRows(Picture, PositionBias):
    name = 'gab-figure5'
    title = 'Position bias of patches, trained and untrained'
    definition = (
        'Position bias of the first, second, third and last patch to all patches, host and plugs together, mean over '
        'heads, of the first block with one; untrained: new weights of the same config'
    )
    unit = 'logit'
    source = 'Gaussian Attention Bias, Fig. 5, and its supplement for Swin'
    needs = 'position biases in attention'

    def why_not(self, subject: Subject) -> str:
        return self.why_no_bias(subject)  # nothing is fitted

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> np.ndarray:
        return torch.stack([bias_of(tensor, place.site, patch) for patch in _patches(place)]).float().cpu().numpy()

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        layer = min(recorded['bias'])
        _, fresh = untrained(subject).forward_intermediates(image.inputs, ('bias',), layers=[layer])
        place = subject.place(layer, image.size)
        untrained_biases = self.reduce(subject, 'bias', fresh['bias'][layer], place)
        return {
            f'{state}, block {layer}|patch {patch}': bias
            for state, biases in dict(trained=recorded['bias'][layer], untrained=untrained_biases).items()
            for patch, bias in zip(_patches(place), biases, strict=True)
        }

    def draw(self, shown: Sequence[Shown]) -> Figure:
        rows: dict[str, dict[str, np.ndarray]] = {}
        for one in shown:
            for name, bias in one.units[0].items():
                row, column = name.split('|')
                rows.setdefault(f'{one.label}, {row}', {})[column] = bias
        return drawing.map_rows(self.title, rows)


def _patches(place: Place) -> tuple[int, ...]:
    """The patches of one window, or of the image, that the paper shows: 0, 1, 2 and 195 of 14 x 14."""
    return 0, 1, 2, prod(place.layout.grid.hw) - 1


def untrained(subject: Subject) -> nn.Module:
    """The model's backbone with new weights, drawn with seed 0."""
    settings = dict(subject.cfg.model.backbone)
    if loads_checkpoint(settings.get('init_cfg')):
        del settings['init_cfg']
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = MODELS.build(settings)
        backbone.init_weights()
    return backbone.to(next(subject.backbone.parameters()).device).eval()


class TokenSimilarity(Picture):
    name = 'revit-figure3'
    title = 'Cosine similarity of the patch tokens of an image, by block'
    definition = "Cosine similarity of every two patch tokens of an image at a block's output"
    unit = 'cosine'
    source = 'ReViT, Fig. 3'
    needs = 'tokens'

    def why_not(self, subject: Subject) -> str:
        return _pairs_do_not_fit(subject)

    def names(self, subject: Subject) -> tuple[str, ...]:
        return ('block',)

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> np.ndarray:
        return feature_similarity(tensor[:, place.layout.num_prefix :])[0].float().cpu().numpy()

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        return {BLOCK.format(layer): recorded['block'][layer] for layer in drawing.some(sorted(recorded['block']))}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        rows = {one.label: one.units[0] for one in shown}
        return drawing.map_rows(self.title, rows, limits=(-1, 1), colours=drawing.MATRIX)


class RefinedMaps(Picture, OfMaps):
    name = 'refiner-figure5'
    title = 'Attention maps by block, before and after the plug'
    definition = (
        'Attention of every patch to every patch, mean over heads, before and after the plug that changes maps, of the '
        "paper's blocks: 1, 4, 11, 18, 23, 29 and 30 of 32, counted from 1, or those as deep"
    )
    unit = 'weight'
    source = 'Refiner, Fig. 5'
    needs = 'attention maps'

    def why_not(self, subject: Subject) -> str:
        if without := super().why_not(subject):
            return without
        if subject.label == 'model' and not subject.changes_maps:
            return 'no plug changes its maps: name a model with Refiner, or another plug of the maps, first'
        return _pairs_do_not_fit(subject)

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> np.ndarray:
        maps_NN = dense_maps(tensor.mean(2, keepdim=True), place)[0, 0]
        queries, keys = (maps_NN.shape[axis] - prod(layout.hw) for axis, layout in enumerate(_layouts(place)))
        return maps_NN[queries:, keys:].float().cpu().numpy()

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        # A block that uses another's map has none of its own: its map is that of the last block that has one.
        return {
            f'{name}|{_of_block(layer, recorded["probs"])}': recorded[name][layer]
            for name in self.names(subject)
            for layer in papers_blocks(subject.num_layers)
            if layer in recorded[name]
        }

    def draw(self, shown: Sequence[Shown]) -> Figure:
        rows: dict[str, dict[str, np.ndarray]] = {}
        for one in shown:
            for key, maps in one.units[0].items():
                name, column = key.split('|')
                rows.setdefault(self.value_of(one.label, name), {})[column] = maps
        return drawing.map_rows(self.title, rows, own_scale=True)


def papers_blocks(num_layers: int) -> list[int]:
    """The blocks of Refiner's Figure 5, counted from 0: those of its 32 blocks, or the same shares of another depth."""
    shown = (0, 3, 10, 17, 22, 28, 29)
    return list(dict.fromkeys(round(block / 31 * (num_layers - 1)) for block in shown))


def _of_block(layer: int, own: Mapping[int, np.ndarray]) -> str:
    """Title of the map that a block uses, which may be another's."""
    if layer in own:
        return BLOCK.format(layer)
    return f'{BLOCK.format(layer)} (map of {BLOCK.format(max(other for other in own if other < layer))})'


def _layouts(place: Place) -> tuple:
    return place.layout, place.key_layout


FIGURES: Mapping[str, Measure] = {
    figure.name: figure for figure in (MapsByEntropy(), ClassAttention(), BiasRows(), TokenSimilarity(), RefinedMaps())
}
