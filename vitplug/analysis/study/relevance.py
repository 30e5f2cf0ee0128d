"""Relevance maps beside each other, scored: against the masks of the data, and by pixels taken out of the image."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from vitplug.analysis.measures.attention import CLASS_TOKEN
from vitplug.analysis.measures.grad_cam import grad_cams
from vitplug.analysis.measures.logit_lens import logit_lens
from vitplug.analysis.measures.map_scores import pixel_flipping, pointing_game, relevance_mass, relevance_rank
from vitplug.analysis.measures.places import Place
from vitplug.analysis.truths import find_listed
from vitplug.statistics.images import Arrays, Estimate, evenly_spaced, student
from vitplug.tasks.studied import Studied

from . import drawing
from .attention import FEW, Rollout, heat_rows
from .loaded import Loaded
from .measure import Measure, Recorded, Shown, by_block
from .subject import Subject

LIBRARY = 'pytorch_grad_cam'
#: Scores against a mask, by name of the value.
AGAINST_MASKS = {
    'pointing game': pointing_game,
    'relevance mass': relevance_mass,
    'relevance rank': relevance_rank,
}
FLIPPED = 'score left by pixel flipping'
MASK = 'share of the image in the mask'
STEPS = 10


class _Image:
    """One image of a model, from which maps are made.

    Args:
        subject: The model.
        image: The image.
        studied: What is to be explained.
    """

    def __init__(self, subject: Subject, image: Loaded, studied: Studied):
        self.subject, self.image, self.studied = subject, image, studied
        self.rollout = Rollout()
        self.rolls = not self.rollout.why_not(subject)

        def reduce(name: str, tensor: Tensor, site):
            place = subject.place(site.index, image.size)
            return self.rollout.reduce(subject, name, tensor, place) if name == 'probs' else tensor

        self.last_map = max(subject.layers_with('probs'), default=None)
        names = ('probs', 'block') if self.rolls else ('block',)
        with torch.no_grad():
            _, self.recorded = subject.backbone.forward_intermediates(image.inputs, names, reduce=reduce)


def _grad_cam(one: _Image) -> np.ndarray | None:
    maps = grad_cams(one.subject.model, one.image.inputs, one.studied.target)
    return _array(maps[max(maps)].on_image()[0]) if maps else None


def _eigen_cam(one: _Image) -> np.ndarray | None:
    """The first principal component of the last block's patch tokens."""
    from pytorch_grad_cam.utils.svd_on_activations import get_2d_projection

    layer = one.subject.num_layers - 1
    place = one.subject.place(layer, one.image.size)
    tokens_ND = one.recorded['block'][layer][0, place.layout.num_prefix :]
    maps_1Dhw = tokens_ND.T.unflatten(1, place.layout.hw)[None]
    heat_hw = torch.from_numpy(get_2d_projection(maps_1Dhw.float().cpu().numpy())[0].astype(np.float32))
    return _array(place.pixels.to_image(heat_hw, one.image.size))


@torch.no_grad()
def _attention(one: _Image) -> np.ndarray | None:
    if one.last_map is None:
        return None
    subject, layer, size = one.subject, one.last_map, one.image.size
    _, recorded = subject.backbone.forward_intermediates(one.image.inputs, ('probs',), layers=[layer])
    query = CLASS_TOKEN if subject.has_class_token else None
    return _array(subject.backbone.maps_to_image(recorded, layer, size, query=query)[0].mean(0))


def _rollout(one: _Image) -> np.ndarray | None:
    return one.rollout.observe(one.subject, one.image, one.recorded)[''] if one.rolls else None


def _random(one: _Image) -> np.ndarray:
    return np.random.default_rng(0).random(one.image.size)


def _array(heat: Tensor) -> np.ndarray:
    return heat.float().cpu().numpy()


#: Makers of maps, by name.
MAPS: Mapping[str, Callable[[_Image], np.ndarray | None]] = {
    'Grad-CAM': _grad_cam,
    'EigenCAM': _eigen_cam,
    'attention': _attention,
    'rollout': _rollout,
    'random': _random,
}


def _is_shown(subject: Subject, image: Loaded) -> bool:
    """Whether the image is one of the few whose maps are drawn."""
    return any(subject.paths[index] == image.path for index in evenly_spaced(len(subject.paths), FEW))


class MapScores(Measure):
    name = 'map_scores'
    title = 'Relevance maps'
    definition = (
        'Grad-CAM of the last block that counts; EigenCAM and the attention of the class token, or the attention '
        'received, of the last block; rollout; random values. Against masks of the data: whether the highest point '
        "lies in the mask, the mask's share of the sum, and of as many highest pixels as it has. Pixel flipping: the "
        f'score of the prediction relative to that of the whole image, mean over {STEPS} steps; the highest pixels get '
        "the image's mean colour first; low is good. Segmentation: the class with the second most pixels; detection: "
        'the first box'
    )
    unit = 'share'
    source = 'Zhang et al. 2018; Arras et al. 2022; Samek et al. 2017; EigenCAM: Muhammad and Yeasin 2020, by grad-cam'
    needs = 'attention; to be named: it is slow'
    axes = ()
    by_default = False
    KEPT = ('picture', 'target')

    def why_not(self, subject: Subject) -> str:
        if not subject.is_plugged:
            return "its backbone is not one of vitplug's"
        return '' if subject.layers_with('attn') else 'no block has an attention branch'

    def left_out(self, subject: Subject) -> str:
        without = Rollout().why_not(subject)
        reasons = [f'rollout: {without}'] if without else []
        if not find_spec(LIBRARY):
            reasons.append('EigenCAM: the package grad-cam is not installed')
        return '; '.join(reasons)

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        batch = subject.batch(image.path)
        sample = subject.run(batch).sample
        names = [name for name in MAPS if name != 'EigenCAM' or find_spec(LIBRARY)]
        try:
            studied = subject.predictor.task.studied(sample, self._truth(subject, image, sample), image.size)
            one = _Image(subject, image, studied)
            heats = {name: MAPS[name](one) for name in names}
            target = studied.target(subject.model, image.inputs).names[0] if _is_shown(subject, image) else ''
        except ValueError as error:  # no box in the image, say
            heats, studied, target = dict.fromkeys(names), None, str(error)
        values = {
            f'{name}: {value}': number
            for name, heat in heats.items()
            for value, number in self._scores(subject, batch, sample, studied, heat).items()
        }
        has_mask = studied is not None and studied.mask is not None
        values[MASK] = studied.mask.mean() if has_mask else np.nan
        arrays = {name: np.array(number, float) for name, number in values.items()}
        if not _is_shown(subject, image):
            return arrays
        shown = {f'{name} ': heat.astype(np.float32) for name, heat in heats.items() if heat is not None}
        return arrays | dict(picture=image.picture, target=np.array(target), **shown)

    def _truth(self, subject: Subject, image: Loaded, sample):
        if 'listed' not in subject.kept:
            subject.kept['listed'] = find_listed(subject.cfg, subject.paths)
        known = subject.kept['listed'].get(image.path)
        return known and subject.predictor.task.truth(*known, sample, image.size)

    def _scores(self, subject, batch: Mapping, sample, studied: Studied | None, heat) -> dict[str, float]:
        values = dict.fromkeys((*AGAINST_MASKS, FLIPPED), np.nan)
        if studied is None or heat is None:
            return values
        if studied.mask is not None:
            values |= {name: score(heat, studied.mask) for name, score in AGAINST_MASKS.items()}
        pixels = batch['inputs'][0]

        def score(image_CHW: np.ndarray) -> float:
            changed = torch.from_numpy(image_CHW).to(pixels)[None]
            inputs = changed if isinstance(batch['inputs'], Tensor) else [changed[0]]
            return studied.score(subject.run(dict(batch, inputs=inputs)).sample)

        height, width = pixels.shape[-2:]
        curve = pixel_flipping(score, pixels.numpy(), heat[:height, :width], STEPS)
        return values | {FLIPPED: curve[1:].mean() / curve[0] if curve[0] else np.nan}

    def estimate(self, units: Sequence[Arrays], images: int) -> dict[str, Estimate]:
        names = [name for name, array in units[0].items() if not array.ndim and name not in self.KEPT]
        values = {name: np.stack([unit[name] for unit in units]) for name in names}
        return {name: student(numbers) for name, numbers in values.items() if np.isfinite(numbers).any()}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        pictures = []
        for one in shown:
            units = [unit for unit in one.units if 'picture' in unit]
            kept = [
                {name: array for name, array in unit.items() if name in self.KEPT or array.ndim == 2} for unit in units
            ]
            pictures.append(Shown(one.label, one.estimates, kept))
        return drawing.heat_over_images(self.title, heat_rows(pictures))


class LogitLens(Measure):
    name = 'logit_lens'
    title = 'Logit lens: probability of the predicted class'
    definition = (
        "Softmax of the head's logits of each patch token alone, after the final norm, by block: the probability of "
        'the class that the model predicts for the image, mean over patches, and the share of patches whose largest '
        'logit it has'
    )
    unit = 'share'
    source = 'nostalgebraist 2020; of patches: ours'
    needs = 'a classifier'
    axes = ('layer',)
    MAP = 'map of block '

    def why_not(self, subject: Subject) -> str:
        if not subject.is_plugged:
            return "its backbone is not one of vitplug's"
        width, weight = subject.backbone.sections()[-1].embed_dims, next(subject.model.parameters())
        try:
            logit_lens(subject.model, weight.new_zeros(1, 1, width), 0)
        except ValueError as error:
            return str(error)
        return ''

    def left_out(self, subject: Subject) -> str:
        width = subject.backbone.sections()[-1].embed_dims
        narrow = [i for i, section in enumerate(self._sections(subject)) if section.embed_dims != width]
        return f'blocks {narrow}, whose tokens have another width than the head reads' if narrow else ''

    @staticmethod
    def _sections(subject: Subject) -> list:
        return [section for section in subject.backbone.sections() for _ in section.blocks]

    def names(self, subject: Subject) -> tuple[str, ...]:
        return ('block',)

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> tuple[Tensor, Place]:
        return tensor, place

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        label = int(subject.run(subject.batch(image.path)).sample.pred_score.argmax())
        width = subject.backbone.sections()[-1].embed_dims
        probability, share, maps = {}, {}, {}
        for layer, (tokens, place) in recorded['block'].items():
            if tokens.shape[-1] == width:
                logits_NC = logit_lens(subject.model, tokens, place.layout.num_prefix)[0]
                of_label_N = logits_NC.softmax(-1)[:, label]
                probability[layer] = np.float32(of_label_N.mean())
                share[layer] = np.float32((logits_NC.argmax(-1) == label).float().mean())
                maps[f'{self.MAP}{layer:02}'] = of_label_N.unflatten(0, place.layout.hw).half().cpu().numpy()
        values = {'probability, mean of patches': probability, 'patches of the class': share}
        arrays = {value: by_block(layers, subject.num_layers) for value, layers in values.items()}
        return arrays | maps | dict(picture=image.picture) if _is_shown(subject, image) else arrays

    def estimate(self, units: Sequence[Arrays], images: int) -> dict[str, Estimate]:
        names = [name for name in units[0] if name != 'picture' and not name.startswith(self.MAP)]
        return {name: student(np.stack([unit[name] for unit in units])) for name in names}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        rows: dict[str, dict[str, np.ndarray]] = {}
        for one in shown:
            for number, unit in enumerate(unit for unit in one.units if 'picture' in unit):
                layers = drawing.some([name for name in unit if name.startswith(self.MAP)])
                maps = {f'block {int(name.removeprefix(self.MAP))}': unit[name].astype(np.float32) for name in layers}
                rows[f'{one.label}, image {number}'] = dict(image=unit['picture']) | maps
        return drawing.map_rows(self.title, rows, limits=(0, 1))


RELEVANCE = (MapScores(), LogitLens())
