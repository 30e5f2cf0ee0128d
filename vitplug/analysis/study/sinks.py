"""Attention sinks: in which heads they are, what the heads do with them, and where they lie."""

import numpy as np
import torch
from torch import Tensor

from vitplug.analysis.measures.places import Place
from vitplug.analysis.measures.sinks import ATTENTION, LONG, QUERIES, RANK, SHORT, Sinks, find_sinks
from vitplug.statistics.images import Arrays

from .attention import HeatPicture, OfMaps, PerHead
from .loaded import Loaded
from .measure import Recorded
from .subject import Subject

SINK = f'a key that gets at least {ATTENTION:g} of the attention of {QUERIES:.0%} of the queries'
SOURCE = 'Xiao et al. 2024 (sinks); the classes by value norm and stable rank: studies of sinks in ViTs'
VALUES = 'values'


class _OfSinks(OfMaps):
    """Takes the values of a block before its probabilities come."""

    refined = False
    needs = 'attention maps'

    def names(self, subject: Subject) -> tuple[str, ...]:
        return ('v', 'probs')

    def sinks(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> Sinks | None:
        """The sinks of a block, once its probabilities are there."""
        if name == 'v':
            subject.kept[VALUES] = tensor
            return None
        return find_sinks(tensor, subject.kept[VALUES], place)


class SinkHeads(_OfSinks, PerHead):
    """Numbers of each head, mean over windows."""

    def __init__(self):
        super().__init__(
            'sinks',
            'Attention sinks',
            'Attention that the key with the most of it gets, mean over queries (the value is called "attention of '
            f'the first key"); and whether it is a sink, {SINK}. A sink is a NOP if the norm of its value is at most '
            f'{SHORT:g} medians of the others, and a broadcast if it is at least {LONG:g} and the outputs of the head '
            f'have a stable rank of at most {RANK:g}. Means over windows',
            'share',
            SOURCE,
            {},
        )

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> dict[str, np.ndarray]:
        sinks = self.sinks(subject, name, tensor, place)
        if sinks is None:
            return {}
        values = {
            'attention of the first key': sinks.mass,
            'sink': sinks.is_sink,
            'NOP': sinks.is_nop,
            'broadcast': sinks.is_broadcast,
        }
        return {value: of_windows[0].float().mean(0).cpu().numpy() for value, of_windows in values.items()}


class SinkMap(HeatPicture, _OfSinks):
    """Where sinks lie, on a few images."""

    name = 'sink_map'
    title = 'Number of heads whose sink is the patch'
    definition = f'Number of heads, of all blocks, in which the patch is {SINK}; those of other tokens in words'
    unit = 'heads'
    source = SOURCE

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> tuple[np.ndarray, int] | None:
        sinks = self.sinks(subject, name, tensor, place)
        if sinks is None:
            return None
        window, head = sinks.is_sink[0].nonzero(as_tuple=True)
        patches = place.keys.patch[window.cpu(), sinks.key[0, window, head].cpu()]
        counts = torch.bincount(patches[patches >= 0], minlength=place.key_layout.hw[0] * place.key_layout.hw[1])
        heat = place.key_pixels.to_image(counts.float().unflatten(0, place.key_layout.hw), tuple(place.image_size))
        return heat.numpy(), int((patches < 0).sum())

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        kept = [one for one in recorded['probs'].values()]
        others = sum(count for _, count in kept)
        text = f'{others} sinks at the class token or others without a place'
        return {'picture': image.picture, 'target': np.array(text), '': sum(heat for heat, _ in kept)}


SINKS = (SinkHeads(), SinkMap())
