"""Effects of edits: `analyze.py --edit NAME`. A new one is one entry of `EDITS`.

An edit stands beside a control: a change as large as its own in a random direction or, for a token, an edit of a patch
that is chosen at random.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from vitplug.analysis.measures import interventions
from vitplug.analysis.measures.features import token_norms
from vitplug.attention import Site
from vitplug.hosting import Edit, Edits
from vitplug.statistics.images import Arrays, evenly_spaced

from . import drawing
from .attention import OF_HEADS
from .effects import effect_of, run_edited, seed_of
from .loaded import Loaded
from .measure import Measure, Recorded, Shown, by_block
from .places import ImagePlace
from .subject import Subject

#: Images that a held-out mean is of, at most.
REFERENCES = 32
#: The names of the values, by the attribute of :class:`Effect`.
VALUES = dict(features='change of the last features', score='fall of the score', prediction='changed prediction')
CONTROL = ', control'
RUNS_ONCE = ' that runs once for an image'
EFFECTS = (
    'effect on the last features, relative to their norm, on the mean score of what was predicted, and on the share of '
    'the prediction that changes'
)
SOURCE = 'heads without output: Michel et al. 2019; the other edits and the controls are ours'


class References:
    """What edits of one image take from other images: means, and the values of a donor.

    Args:
        subject: The model.
        name: The intermediate.
    """

    def __init__(self, subject: Subject, name: str):
        self.subject, self.name = subject, name
        self._by_image: dict[ImagePlace, dict[int, interventions.TokenMeans]] = {}
        self._last: dict[str, tuple[ImagePlace, dict]] = {}

    @classmethod
    def of(cls, subject: Subject, name: str) -> 'References':
        """Those of a model, which all edits share."""
        return subject.kept.setdefault(('references', name), cls(subject, name))

    def means(self, path: ImagePlace) -> dict[int, interventions.TokenMeans]:
        """Means over images other than this one, by block."""
        return self._of_last('means', path, self._means_without)

    def donor(self, path: ImagePlace) -> dict[int, Tensor]:
        """The values of the next image of the same size, by block."""
        return self._of_last('donor', path, self._next_values)

    def _of_last(self, what: str, path: ImagePlace, make: Callable[[ImagePlace], dict]) -> dict:
        if self._last.get(what, (None,))[0] != path:
            self._last[what] = path, make(path)
        return self._last[what][1]

    def _means_without(self, path: ImagePlace) -> dict[int, interventions.TokenMeans]:
        paths = self.subject.paths
        chosen = evenly_spaced(len(paths), REFERENCES + 1)
        others = [paths[index] for index in chosen if paths[index] != path][:REFERENCES]
        for other in others:
            if other not in self._by_image:
                self._by_image[other] = self._recorded(other, _mean_of)
        layers = dict.fromkeys(layer for other in others for layer in self._by_image[other])
        return {
            layer: interventions.TokenMeans.joined(self._by_image[other][layer] for other in others) for layer in layers
        }

    def _next_values(self, path: ImagePlace) -> dict[int, Tensor]:
        images = list(zip(self.subject.paths, self.subject.sizes, strict=True))
        at = self.subject.paths.index(path)
        others = [other for other, size in images[at + 1 :] + images[:at] if size == images[at][1]]
        return self._recorded(others[0], lambda name, tensor, site: tensor)

    @torch.no_grad()
    def _recorded(self, path: ImagePlace, reduce: Callable) -> dict:
        inputs = self.subject.load(path).inputs
        _, recorded = self.subject.backbone.forward_intermediates(inputs, (self.name,), reduce=reduce)
        return recorded.get(self.name, {})


def _mean_of(name: str, tensor: Tensor, site: Site) -> interventions.TokenMeans:
    means = interventions.TokenMeans()
    means.add(tensor, site)
    return means


#: Makes an edit of one block; takes what other images gave, the image, the block, and which heads or tokens.
Make = Callable[..., Edit]


def _zero(references: References, path: ImagePlace, layer: int, **which) -> Edit:
    return interventions.zero(**which)


def _mean(references: References, path: ImagePlace, layer: int, **which) -> Edit:
    return interventions.mean(references.means(path)[layer], **which)


def _shuffled(references: References, path: ImagePlace, layer: int, **which) -> Edit:
    return interventions.shuffled(seed_of(path, layer), **which)


def _donor(references: References, path: ImagePlace, layer: int, **which) -> Edit:
    return interventions.given(references.donor(path)[layer], **which)


def _redirected(to: str, references: References, path: ImagePlace, layer: int, **which) -> Edit:
    return interventions.redirected(to, **which)


@dataclass(frozen=True)
class Step:
    """One edit of an image.

    Attributes:
        value: What is edited, before the names of the values; '' for heads.
        layer: Block.
        head: Head; 0 for others.
        edits: The edit.
        is_control: Whether it is the control of another one.
    """

    value: str
    layer: int
    head: int
    edits: Edits
    is_control: bool = False


class Edited(Measure):
    """Edits of one kind in one kind of place.

    Args:
        kind: The kind of edit.
        words: What takes the place, in words.
        make: Makes an edit.
        of_others: Whether it takes values of other images.
        of_donor: Whether it takes those of one image of the same size.
    """

    unit = 'share'
    source = SOURCE
    #: What is edited, and the intermediate that a block must have for it.
    place: str
    intermediate: str
    #: Whether it is inside the attention, which some blocks run several times.
    in_attention = False
    #: Whether it chooses tokens of the whole image.
    of_tokens = False

    def __init__(self, kind: str, words: str, make: Make, of_others: bool = False, of_donor: bool = False):
        self.name, self.title = f'{self.place}-{kind}', f'Edit of each {self.place}: {words}'
        self.kind, self.words, self.make, self.of_others, self.of_donor = kind, words, make, of_others, of_donor

    def why_not(self, subject: Subject) -> str:
        if not subject.is_plugged:
            return "its backbone is not one of vitplug's"
        if subject.slides and (self.of_others or self.of_tokens):
            return "it takes tokens of whole images, and the model sees crops: set model.test_cfg.mode='whole'"
        if self.of_others and len(subject.sizes) < 2:
            return 'it takes values of other images, and there is one image alone'
        if not self.units(subject):
            return 'it takes values of another image of the same size, and all have different sizes'
        return '' if self.layers(subject) else f'no block has {self.needs}{RUNS_ONCE if self.takes_one_run else ""}'

    def units(self, subject: Subject) -> list[Sequence[int]]:
        if not self.of_donor:
            return super().units(subject)
        return [[index] for index, size in enumerate(subject.sizes) if subject.sizes.count(size) > 1]

    @property
    def takes_one_run(self) -> bool:
        """Whether blocks are left out that run their attention several times: what is recorded is the last run."""
        return self.in_attention and self.of_others

    def layers(self, subject: Subject) -> list[int]:
        """The blocks that are edited."""
        layers = subject.layers_with(self.intermediate)
        if not self.takes_one_run:
            return layers
        blocks = subject.backbone.plugged_blocks()
        return [layer for layer in layers if getattr(blocks[layer], 'recursions', 1) == 1]

    def steps(self, subject: Subject, image: Loaded) -> Iterator[Step]:
        """The edits of an image."""
        raise NotImplementedError

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        batch = subject.batch(image.path)
        before = subject.run(batch)
        values: dict[str, dict[int, dict[int, float]]] = {}
        for step in self.steps(subject, image):
            effect = effect_of(subject, before, run_edited(subject, step.edits, batch))
            for key, words in VALUES.items():
                name = f'{step.value}{words}{CONTROL if step.is_control else ""}'
                values.setdefault(name, {}).setdefault(step.layer, {})[step.head] = getattr(effect, key)
        return {name: array for value, layers in values.items() for name, array in self.arrays(value, layers, subject)}

    def arrays(self, value: str, layers: Mapping[int, Mapping[int, float]], subject: Subject):
        """Named arrays of the numbers of a value, by block and head."""
        yield value, by_block({layer: np.float32(effects[0]) for layer, effects in layers.items()}, subject.num_layers)

    def draw(self, shown: Sequence[Shown]) -> Figure:
        """A panel for each value, in which the control has a line of its own."""
        panels: dict[str, dict] = {}
        for one in shown:
            for value, estimate in one.estimates.items():
                if OF_HEADS.format('') in value:
                    continue
                label = one.label + (CONTROL if value.endswith(CONTROL) else '')
                mean = one.estimates.get(OF_HEADS.format(value), estimate)
                heads = dict(heads=estimate) if mean is not estimate else {}
                panels.setdefault(value.removesuffix(CONTROL), {})[label] = dict(mean=mean, **heads)
        return drawing.over_depth(self.title, self.unit, panels)


class OfHead(Edited):
    """Edits of the output of each head, one head at a time, each beside its control."""

    place, intermediate, edited_name = 'head', 'heads', 'heads'
    needs, in_attention = 'attention', True

    @property
    def definition(self) -> str:
        return f'The output of one head at a time becomes {self.words}: {EFFECTS}'

    def steps(self, subject: Subject, image: Loaded) -> Iterator[Step]:
        references = References.of(subject, self.edited_name)
        for layer in self.layers(subject):
            for head in range(subject.recorded[self.intermediate][layer][2]):
                edit = self.make(references, image.path, layer, heads=[head])
                yield Step('', layer, head, {self.edited_name: {layer: edit}})
                seed = seed_of(image.path, layer, head)
                control = interventions.random_control(edit, seed, of_maps=self.edited_name == 'maps')
                yield Step('', layer, head, {self.edited_name: {layer: control}}, is_control=True)

    def arrays(self, value, layers, subject):
        heads = {
            layer: np.array([effects[head] for head in sorted(effects)], np.float32)
            for layer, effects in layers.items()
        }
        yield value, by_block(heads, subject.num_layers)
        means = {layer: effects.mean() for layer, effects in heads.items()}
        yield OF_HEADS.format(value), by_block(means, subject.num_layers)


class OfMap(OfHead):
    """Edits of the attention of each head."""

    intermediate = edited_name = 'maps'
    needs = 'attention maps'

    @property
    def definition(self) -> str:
        return f'The attention of one head at a time goes {self.words}: {EFFECTS}'

    def layers(self, subject: Subject) -> list[int]:
        layers = super().layers(subject)
        one_grid = [layer for layer in layers if subject.place(layer, subject.sizes[0]).one_grid]
        return one_grid if self.kind == interventions.SELF else layers


class OfToken(Edited):
    """Edits of one token of a block's output; the control is a patch that is chosen at random."""

    place, intermediate = 'token', 'block'
    needs, of_tokens = 'tokens', True
    axes = ('layer',)

    @property
    def definition(self) -> str:
        return (
            f"The class token, the patch with the largest norm, or a random patch of a block's output becomes "
            f'{self.words}: {EFFECTS}'
        )

    def steps(self, subject: Subject, image: Loaded) -> Iterator[Step]:
        references = References.of(subject, 'block')
        for layer, tokens in self._tokens(subject, image).items():
            for value, token in tokens.items():
                edit = self.make(references, image.path, layer, tokens=[token])
                yield Step(f'{value}: ', layer, 0, {'block': {layer: edit}})

    @torch.no_grad()
    def _tokens(self, subject: Subject, image: Loaded) -> dict[int, dict[str, int]]:
        """The edited tokens of each block, by what they are."""

        def choose(name: str, tokens_BND: Tensor, site: Site) -> dict[str, int]:
            prefix = subject.place(site.index, image.size).layout.num_prefix
            count = tokens_BND.shape[1] - prefix
            chosen = {'class token': 0} if subject.has_class_token else {}
            chosen['longest patch'] = prefix + int(token_norms(tokens_BND)[0, prefix:].argmax())
            chosen['random patch'] = prefix + seed_of(image.path, site.index) % count
            return chosen

        return subject.backbone.forward_intermediates(image.inputs, ('block',), reduce=choose)[1]['block']


class OfBranch(Edited):
    """Edits of the branches of a block, each beside its control."""

    place, intermediate = 'block', 'block'
    needs = 'tokens'
    axes = ('layer',)
    BRANCHES = {'attention': ('attn',), 'MLP': ('mlp',), 'both branches': ('attn', 'mlp')}

    @property
    def definition(self) -> str:
        return f'What the attention, the MLP or both add to the tokens of a block becomes {self.words}: {EFFECTS}'

    def steps(self, subject: Subject, image: Loaded) -> Iterator[Step]:
        for layer in range(subject.num_layers):
            for value, names in self.BRANCHES.items():
                if not all(layer in subject.recorded.get(name, ()) for name in names):
                    continue
                edits = {name: {layer: self.make(References.of(subject, name), image.path, layer)} for name in names}
                yield Step(f'{value}: ', layer, 0, edits)
                controls = {
                    name: {layer: interventions.random_control(edit[layer], seed_of(image.path, layer, number))}
                    for number, (name, edit) in enumerate(edits.items())
                }
                yield Step(f'{value}: ', layer, 0, controls, is_control=True)


EDITS: Mapping[str, Measure] = {
    edit.name: edit
    for edit in (
        OfHead('zero', 'zero', _zero),
        OfHead('mean', 'its mean over other images', _mean, of_others=True),
        OfHead('shuffled', 'that of the other patches, in random order', _shuffled),
        OfHead('donor', 'that of another image', _donor, of_others=True, of_donor=True),
        OfMap('self', "to the query's own token", partial(_redirected, interventions.SELF)),
        OfMap('all', 'to all keys alike', partial(_redirected, interventions.ALL)),
        OfToken('zero', 'zero', _zero),
        OfToken('mean', 'the mean over other images', _mean, of_others=True),
        OfBranch('zero', 'zero', _zero),
        OfBranch('mean', 'the mean over other images', _mean, of_others=True),
    )
}
