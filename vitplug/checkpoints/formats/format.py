"""What a format of checkpoints is: how it is recognised, and its names for the tensors of a network.

*vitplug's keys* are the keys of a whole classifier of mmpretrain: ``backbone.<key of the backbone>`` and
``head.<key of the head>``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ..files import some_of

State = Mapping[str, Tensor]
#: Pairs of key prefixes, ``(theirs, vitplug's)``; ``{}`` is a number.
Names = Sequence[tuple[str, str]]
# A prefix of names without numbers: numbers belong to lists of blocks.
_PREFIX = r'((?:[A-Za-z_]\w*\.)*?)'
MAX_STAGES = 64


@dataclass(frozen=True)
class Format:
    """Checkpoints of one code base and one architecture, without a prefix.

    Args:
        name: Name for messages.
        network: The architecture, such as ``'ViT'``.
        anchors: Regular expressions of keys. A checkpoint of this format has a key for each of them.
        names: The first matching pair is used, in both directions.
        without_bias: Regular expressions of biases, by the backbone's names, that its network may be built without:
            missing ones are 0.
        rotary: The kind of rotary positions of its networks, which no key may show; '' for none.
    """

    name: str
    network: str
    anchors: tuple[str, ...]
    names: Names = ()
    without_bias: tuple[str, ...] = ()
    rotary: str = ''

    def recognise(self, keys: Iterable[str]) -> set[str]:
        """The prefixes of this format's weights; empty if there are none."""
        keys = list(keys)
        matches = ((re.fullmatch(_PREFIX + anchor, key) for key in keys) for anchor in self.anchors)
        return set.intersection(*({match.group(1) for match in found if match} for found in matches))

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        """This format's weights with vitplug's keys; a key without a pair gets the prefix ``backbone.``."""
        names = self.all_names(state)
        return {rename(key, names) or f'backbone.{key}': value for key, value in state.items()}

    def from_vitplug(self, state: State) -> dict[str, Tensor]:
        """The inverse of :meth:`to_vitplug`.

        Raises:
            ValueError: If the format has no name for a key.
        """
        names = [(ours, theirs) for theirs, ours in self.all_names(state)]
        renamed = {key: rename(key, names) for key in state}
        refuse_nameless(self.name, [key for key, name in renamed.items() if name is None])
        return {renamed[key]: value for key, value in state.items()}

    def all_names(self, state: State) -> Names:
        """The pairs of names for a network with these tensors, by its own or by vitplug's keys."""
        return self.names

    def notes(self, state: State) -> list[str]:
        """What :meth:`to_vitplug` leaves out, adds or merges, and why; one clause each."""
        return []


@dataclass(frozen=True)
class OpenMMLab(Format):
    """Formats with vitplug's keys, except for ``names``."""

    def from_vitplug(self, state: State) -> dict[str, Tensor]:
        names = [(ours, theirs) for theirs, ours in self.names]
        return {rename(key, names) or key.removeprefix('backbone.'): value for key, value in state.items()}


@dataclass(frozen=True)
class Released(Format):
    """Weights that the authors of a paper released: every tensor has a known place, any other is refused."""

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        names = self.all_names(state)
        strange = [key for key in state if rename(key, names) is None]
        if strange:
            raise ValueError(
                f'{self.name} has no {some_of(strange)} ({len(strange)} of {len(state)} tensors): the file is of a '
                'variant that vitplug does not have'
            )
        return super().to_vitplug(state)


@dataclass(frozen=True)
class Refused(Format):
    """Networks that vitplug has not, known so that a refusal names them and not a relative.

    Args:
        why: What to do.
    """

    why: str = ''

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        raise ValueError(f'{self.name}: {self.why}')


def rename(key: str, names: Names) -> str | None:
    """The key with its prefix renamed, or None if no pair matches."""
    for old, new in names:
        match = re.match(re.escape(old).replace(r'\{\}', r'(\d+)') + r'(?=\.|$)', key)
        if match:
            return new.format(*match.groups()) + key[match.end() :]
    return None


def below(theirs: str, ours: str, names: Names) -> list[tuple[str, str]]:
    """The pairs of a part of the network, each below the part's own names."""
    return [(f'{theirs}.{their}', f'{ours}.{our}') for their, our in names]


def check_stages(number: int) -> int:
    """The number of stages that the keys of a file name.

    Raises:
        ValueError: If there are too many.
    """
    if number > MAX_STAGES:
        raise ValueError(f'a key names stage {number - 1}: expected at most {MAX_STAGES} stages')
    return number


class Nameless(ValueError):
    """Tensors that a format or library has no name for.

    Args:
        message: What to do.
        keys: The tensors, by vitplug's keys.
    """

    def __init__(self, message: str, keys: Sequence[str]):
        super().__init__(message)
        self.keys = keys


def refuse_nameless(target: str, keys: Sequence[str]) -> None:
    """Refuses tensors that a format or library has no name for.

    Raises:
        Nameless: If there are any.
    """
    if keys:
        raise Nameless(
            f'{target} has no keys for {some_of(keys)} ({len(keys)} tensors): such a model cannot be exported; remove '
            "plugs and task heads first, or keep vitplug's format",
            keys,
        )
