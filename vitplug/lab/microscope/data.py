"""Everything that the microscope shows, measured: one pass for each image and model, block by block."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.attention import GlobalLayout
from vitplug.compat import replace
from vitplug.files.picture_sources import Unreadable
from vitplug.hosting import PixelGrid
from vitplug.lab.microscope.effects import Effect, effect_of, run_edited, seed_of
from vitplug.lab.microscope.loaded import Loaded
from vitplug.lab.microscope.observed import Observed
from vitplug.lab.study.quantities import edits as interventions
from vitplug.lab.study.quantities.attention import (
    attention_entropy,
    attention_rollout,
    mean_attention_distance,
    non_locality,
)
from vitplug.lab.study.quantities.cka import MinibatchCKA
from vitplug.lab.study.quantities.gaussian_fit import GaussianFit, fit_gaussian
from vitplug.lab.study.quantities.maps import dense_maps
from vitplug.lab.study.quantities.places import Place
from vitplug.lab.study.quantities.tokens import norm_outliers, token_norms
from vitplug.tasks.outcomes import Outcome

from .tiles import Level, Shelf, Tiles, attention_tiles, image_tiles, levels

#: Longest side of the picture of an effective receptive field.
FIELD_SIDE = 112
#: Most rows and columns of tokens that CKA compares.
CKA_SIDE = 32

Heads = Callable[[Tensor, Place], Tensor]


@dataclass(frozen=True)
class Measure:
    """A number of each head of each block.

    Args:
        key: Name in the data.
        title: Title of its chart.
        unit: Unit of its values.
        definition: What it is, in one sentence.
        of: Maps ``(1, W, H, Nq, Nk)`` and where they lie, to ``(1, H)``.
    """

    key: str
    title: str
    unit: str
    definition: str
    of: Heads


MEASURES = (
    Measure(
        'entropy',
        'Attention entropy',
        'nats',
        'Entropy of the attention of a patch, mean over patches; ln N where attention is uniform over N keys.',
        attention_entropy,
    ),
    Measure(
        'distance',
        'Mean attention distance',
        'pixels',
        'Distance from a patch to the patches it attends to, weighted by attention.',
        mean_attention_distance,
    ),
    Measure('non_locality', 'Non-locality', 'tokens', 'The same distance, counted in tokens.', non_locality),
)


@dataclass(frozen=True)
class Norms:
    """Norms of the tokens of a block: least, median, most, and the number of outliers."""

    low: float
    median: float
    high: float
    outliers: int


@dataclass(frozen=True, eq=False)
class Field:
    """The effective receptive field of the central token.

    Args:
        image: Mean over images of the positive gradients, ``(height, width)``.
        images: Number of images: those of the most common size.
        fit: The Gaussian fitted to it, or why there is none.
    """

    image: Tensor
    images: int
    fit: GaussianFit


@dataclass(frozen=True)
class WithoutHead:
    """What one head without output changes for one image.

    Attributes:
        effect: The effect.
        control: That of a change as large, in a random direction.
        words: How the prediction changes.
    """

    effect: Effect
    control: Effect
    words: str


@dataclass(eq=False)
class Reading:
    """What one model does with all images.

    Attributes:
        subject: The model.
        outcomes: Its prediction for each image.
        edits: For each image, the heads of each block without output; None for a block without attention. Empty if
            they were not asked for.
        cams: What its Grad-CAMs explain, or why there are none, for each image.
        measures: By measure and block, the heads ``(H,)``, mean over images; None for a block without attention.
        norms: Of each block, mean over images.
        learned: Learned values of plugs: by name, then by block; None is the whole network.
        field: Its effective receptive field.
        similarity: CKA of all blocks with all blocks.
    """

    subject: Observed
    outcomes: list[Outcome] = field(default_factory=list)
    cams: list[str] = field(default_factory=list)
    edits: list[list[list[WithoutHead] | None]] = field(default_factory=list)
    measures: dict[str, list[np.ndarray | None]] = field(default_factory=dict)
    norms: list[Norms] = field(default_factory=list)
    learned: Mapping[str, Mapping[int | None, Tensor]] = field(default_factory=dict)
    field: Field | None = None
    similarity: np.ndarray | None = None


@dataclass(eq=False)
class Findings:
    """What the report shows.

    Attributes:
        readings: Of the baseline, if there is one, and of the model, in this order.
        images: The images.
        shelf: Tiles of all maps, named ``model/image/kind``.
        truths: What the data of the model's config say of each image; None of one that they do not list.
        cross: CKA of the baseline's blocks (rows) with the model's (columns); None without a baseline.
    """

    readings: list[Reading]
    images: list[Loaded]
    shelf: Shelf
    truths: list[Outcome | None] = field(default_factory=list)
    cross: np.ndarray | None = None


def tiles_name(model: int, image: int, kind: str) -> str:
    return f'{model}/{image}/{kind}'


def no_rollout(subject: Observed, size: tuple[int, int]) -> str:
    """Why a model has no attention rollout; '' if it has one."""
    if len(subject.layers_with('probs')) < subject.num_layers:
        return 'not every block has attention maps of its own'
    places = [subject.place(layer, size) for layer in range(subject.num_layers)]
    grids = {grid for place in places for grid in (place.layout.hw, place.key_layout.hw)}
    return 'its blocks have tokens on several grids' if len(grids) > 1 else ''


# --- one image ---


class Observer:
    """Takes maps and tokens of one image as they come, and keeps tiles and measures: one block at a time.

    Args:
        subject: The model.
        size: Height and width of the image.
        open_levels: Levels at which tiles are made.
        grid: Rows and columns to which features are averaged for CKA.
    """

    def __init__(self, subject: Observed, size: tuple[int, int], open_levels: Sequence[Level], grid: tuple[int, int]):
        self.subject, self.size, self.levels, self.grid = subject, size, open_levels, grid
        self.rolls = not no_rollout(subject, size)
        self.rolled: Tensor | None = None
        self.tiles: dict[str, dict[int, dict[Level, Tiles]]] = {}
        self.measures: dict[str, dict[int, Tensor]] = {measure.key: {} for measure in MEASURES}
        self.norms: list[Norms] = []
        self.features: list[Tensor] = []
        self._last_probs: Tensor | None = None

    def __call__(self, name: str, tensor: Tensor, site) -> None:
        place = self.subject.place(site.index, self.size)
        {'maps': self._take_maps, 'probs': self._take_probs, 'block': self._take_tokens}[name](
            tensor, place, site.index
        )

    def _take_maps(self, maps: Tensor, place: Place, layer: int) -> None:
        # The probabilities of a block come before its maps and mostly are the same.
        probs, self._last_probs = self._last_probs, None
        if probs is not None and probs.shape == maps.shape and torch.equal(probs, maps):
            self.tiles.setdefault('maps', {})[layer] = self.tiles['probs'][layer]
        else:
            self._keep('maps', layer, lambda level: attention_tiles(maps, place, level))

    def _take_probs(self, probs: Tensor, place: Place, layer: int) -> None:
        for measure in MEASURES:
            self.measures[measure.key][layer] = measure.of(probs, place)[0].float().cpu()
        self._last_probs = probs
        self._keep('probs', layer, lambda level: attention_tiles(probs, place, level))
        if self.rolls:
            mean_NN = dense_maps(probs.mean(2, keepdim=True), place)[:, 0]
            step_NN = attention_rollout([mean_NN])
            self.rolled = step_NN if self.rolled is None else step_NN @ self.rolled
            self._keep('rollout', layer, lambda level: _rollout_tiles(self.rolled, place, level))

    def _take_tokens(self, tokens: Tensor, place: Place, layer: int) -> None:
        norms_N = token_norms(tokens)[0, place.layout.num_prefix :]
        self.norms.append(
            Norms(
                float(norms_N.min()),
                float(norms_N.median()),
                float(norms_N.max()),
                int(norm_outliers(norms_N[None]).sum()),
            )
        )
        norms_hw = norms_N.unflatten(0, place.layout.hw)
        self.keep_map('norms', layer, norms_hw, place.pixels)
        grid_Dhw = tokens[0, place.layout.num_prefix :].float().T.unflatten(1, place.layout.hw)
        self.features.append(F.adaptive_avg_pool2d(grid_Dhw, self.grid).flatten(1).T.cpu())

    def keep_map(self, kind: str, layer: int, values_hw: Tensor, pixels: PixelGrid) -> None:
        """Keeps the tile of a map of the whole image, which is the same at all levels."""
        tiles = image_tiles(values_hw, pixels)
        self._keep(kind, layer, lambda level: tiles)

    def _keep(self, kind: str, layer: int, tiles_at: Callable[[Level], Tiles]) -> None:
        self.tiles.setdefault(kind, {})[layer] = {level: tiles_at(level) for level in self.levels}

    def put_on(self, shelf: Shelf, model: int, image: int) -> None:
        """Puts all tiles on the shelf. Maps that no plug changed are left out."""
        if self.tiles.get('maps', {}) == self.tiles.get('probs', {}):
            self.tiles.pop('maps', None)
        for kind, by_layer in self.tiles.items():
            none: dict[Level, Tiles | None] = dict.fromkeys(self.levels)
            blocks = [by_layer.get(layer, none) for layer in range(self.subject.num_layers)]
            shelf.add(tiles_name(model, image, kind), {level: [at[level] for at in blocks] for level in self.levels})


def _rollout_tiles(rolled: Tensor, place: Place, level: Level) -> Tiles:
    layouts = [GlobalLayout(*layout.hw, layout.num_prefix) for layout in (place.layout, place.key_layout)]
    whole = replace(place, layout=layouts[0], key_layout=layouts[1])  # windows are undone
    return attention_tiles(rolled[:, None, None], whole, level)


# --- all images ---


def observe(
    subjects: Sequence[Observed],
    paths: Sequence[Path],
    budget: int,
    progress: Callable[[Iterable], Iterable] = iter,
    edits: bool = False,
) -> Findings:
    """Measures models on images.

    Args:
        subjects: The baseline, if there is one, and the model.
        paths: Image files.
        budget: Bytes for all maps.
        progress: Wraps the images, to show how far it is.
        edits: Whether to run the models without each of their heads, too.

    Raises:
        ValueError: If the models get images of different sizes.
        OverBudget: If not even few queries and keys fit into the budget.
        Unreadable: If an image cannot be read.
    """
    images = [_load_alike(subjects, path) for path in paths]
    shelf = Shelf(_levels_for(subjects, images), budget)
    findings = Findings([Reading(subject) for subject in subjects], images, shelf)
    truths = subjects[-1].truths(paths)
    counts = [subject.num_layers for subject in subjects]
    similarities = {
        (a, b): MinibatchCKA(counts[a], counts[b]) for a in range(len(subjects)) for b in range(a, len(subjects))
    }
    collected: list[list[Observer]] = [[] for _ in subjects]
    for index, (path, image) in enumerate(progress(list(zip(paths, images, strict=True)))):
        grid = _common_grid(subjects, image.size)
        observers = [
            _observe_image(reading, image, path, grid, shelf, model, index)
            for model, reading in enumerate(findings.readings)
        ]
        for reading in findings.readings if edits else ():
            reading.edits.append(_without_each_head(reading.subject, path, image.size))
        findings.truths.append(truths[path](image.size) if path in truths else None)
        for (a, b), similarity in similarities.items():
            similarity.update(observers[a].features, observers[b].features)
        for of_model, observer in zip(collected, observers, strict=True):
            of_model.append(_without_tiles(observer))
    for model, (reading, seen) in enumerate(zip(findings.readings, collected, strict=True)):
        _summarise(reading, seen, images)
        reading.similarity = similarities[model, model].result().numpy()
    if len(subjects) > 1:
        findings.cross = similarities[0, 1].result().numpy()
    return findings


def _load_alike(subjects: Sequence[Observed], path: Path) -> Loaded:
    """An image as the model gets it, which must be as large as the baseline's.

    Raises:
        Unreadable: If it cannot be read.
        ValueError: If the baseline gets another size.
    """
    try:
        loaded = [subject.load(path) for subject in subjects]
    except Unreadable as error:
        raise Unreadable(f'{path}: {error}') from error
    if len({image.size for image in loaded}) > 1:
        sizes = ' and '.join(f'{height}x{width}' for height, width in (image.size for image in loaded))
        raise ValueError(
            f'--baseline: {path} becomes an image of {sizes} in the two test pipelines: maps side by side need images '
            'of one size; give the baseline a config with the same test_dataloader'
        )
    return loaded[-1]


def _levels_for(subjects: Sequence[Observed], images: Sequence[Loaded]) -> list[Level]:
    places = [
        subject.place(layer, size)
        for subject in subjects
        for size in sorted({image.size for image in images})
        for layer in range(subject.num_layers)
    ]
    query_side = max(max(place.layout.hw) for place in places)
    return levels(query_side, max(max(place.key_layout.grid.hw) for place in places))


def _common_grid(subjects: Sequence[Observed], size: tuple[int, int]) -> tuple[int, int]:
    """The grid of the last blocks, the smaller one of two models; with the four tokens that CKA needs at least.

    CKA holds the products of all pairs of tokens, for each block.
    """
    grids = [subject.place(subject.num_layers - 1, size).layout.hw for subject in subjects]
    return tuple(max(2, min(*sides, CKA_SIDE)) for sides in zip(*grids, strict=True))


def _observe_image(
    reading: Reading, image: Loaded, path: Path, grid: tuple[int, int], shelf: Shelf, model: int, index: int
) -> Observer:
    subject = reading.subject
    inputs = subject.load(path).inputs
    subject.probe(image)
    observer = Observer(subject, image.size, shelf.open_levels, grid)
    with torch.no_grad():
        subject.backbone.forward_intermediates(inputs, ('probs', 'maps', 'block'), reduce=observer)
    reading.outcomes.append(subject.outcome(subject.run(subject.batch(path)).sample, image.size))
    reading.cams.append(_add_grad_cam(subject, inputs, observer))
    observer.put_on(shelf, model, index)
    return observer


def _without_each_head(subject: Observed, path: Path, size: tuple[int, int]) -> list[list[WithoutHead] | None]:
    """The heads of each block set to zero, one at a time."""
    batch = subject.batch(path)
    before = subject.run(batch)
    outcome, heads_of = subject.outcome(before.sample, size), subject.recorded.get('heads', {})

    def without(layer: int, head: int) -> WithoutHead:
        edit = interventions.zero(heads=[head])
        control = interventions.random_control(edit, seed_of(path, layer, head))
        after, other = (run_edited(subject, {'heads': {layer: one}}, batch) for one in (edit, control))
        words = outcome.change_to(subject.outcome(after.sample, size))
        return WithoutHead(effect_of(subject, before, after), effect_of(subject, before, other), words)

    return [
        [without(layer, head) for head in range(heads_of[layer][2])] if layer in heads_of else None
        for layer in range(subject.num_layers)
    ]


def _add_grad_cam(subject: Observed, inputs: Tensor, observer: Observer) -> str:
    """Adds the maps of all blocks; returns the score that they explain, or why there are none."""
    try:
        cams = subject.grad_cams(inputs)
    except ValueError as error:
        return f'There is none: {error}.'
    for layer, cam in cams.items():
        observer.keep_map('gradcam', layer, cam.heat[0].cpu(), cam.pixels)
    if not cams:
        return 'There is none: the score depends on the patch tokens of no block.'
    first = next(iter(cams.values()))
    return f'Score: {first.targets[0]}, {float(first.scores[0]):.3g}.'


def _without_tiles(observer: Observer) -> Observer:
    observer.tiles, observer.rolled, observer.features = {}, None, []
    return observer


def _summarise(reading: Reading, seen: Sequence[Observer], images: Sequence[Loaded]) -> None:
    subject = reading.subject
    reading.learned = subject.backbone.learned_values()
    for measure in MEASURES:
        by_image = [observer.measures[measure.key] for observer in seen]
        reading.measures[measure.key] = [
            torch.stack([heads[layer] for heads in by_image]).mean(0).numpy() if layer in by_image[0] else None
            for layer in range(subject.num_layers)
        ]
    for of_block in zip(*(observer.norms for observer in seen), strict=True):
        means = [float(np.mean([getattr(norms, key) for norms in of_block])) for key in ('low', 'median', 'high')]
        reading.norms.append(Norms(*means, sum(norms.outliers for norms in of_block)))
    reading.field = _read_field(subject, images)


def _read_field(subject: Observed, images: Sequence[Loaded]) -> Field:
    """The receptive field over the images of the most common size."""
    [(size, count)] = Counter(image.size for image in images).most_common(1)
    inputs = (subject.load(image.path).inputs for image in images if image.size == size)
    image = subject.receptive_field(inputs).cpu()
    return Field(image, count, fit_gaussian(image))


def field_tiles(image: Tensor) -> Tiles:
    """The tile of an effective receptive field: square roots of its values relative to the largest one."""
    height, width = image.shape
    step = -(-max(height, width) // FIELD_SIDE)
    relative = (image / image.max().clamp(min=torch.finfo(image.dtype).tiny)).clamp(min=0)[None]
    cells = F.avg_pool2d(relative, step, ceil_mode=True)[0] if step > 1 else relative[0]
    pixels = PixelGrid(tuple(cells.shape), stride=(step, step))
    return image_tiles(cells.sqrt(), pixels)
