"""What an attack is: it damages a sandbox, and says which commands are run there and what may come of it."""

import enum
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sandbox import Sandboxes


class Accept(enum.Enum):
    """Which results are legitimate where a command ends with status 0."""

    SAME = 'only those of the sound input'
    TOLD = 'others than those of the sound input if the damage is named on the terminal or in bad_samples.jsonl'
    REFUSED = 'none: the command must not end with status 0'
    ANY = 'any that are finite'


@dataclass(frozen=True)
class Command:
    """One run of a tool.

    Attributes:
        line: What a user types, without `python tools/...`.
        fault: Called in the process of the tool before it starts.
        signals: Pairs (seconds after the start, signal) that are sent to the process.
        ends: Statuses that the fault or the signals explain, negative for signals; their message is not judged.
        asked: A signal that asks the tool to end. To die of it instead of saving is poor, but no crash.
    """

    line: str
    fault: Callable[[], object] | None = None
    signals: tuple[tuple[float, int], ...] = ()
    ends: frozenset[int] = frozenset()
    asked: int | None = None


@dataclass(frozen=True)
class Trial:
    """What is run in a damaged sandbox.

    Attributes:
        steps: Commands; those of one step run at the same time.
        damage: What was done, for the record.
        names: The message of a refusal has at least one of these: the damaged file, key or value.
        accept: Which results are legitimate where the last step ends with status 0.
        base: The sound sandbox, a key of `sandbox.BASES`.
        clean: Lines whose results in the sound sandbox are legitimate; by default those of the last step.
        may_change: Patterns of files, from the sandbox's parent, that may change or vanish.
        alone: Whether no more than one command of the last step may end with status 0.
        harmless: Whether nothing is wrong, so that a refusal is one without need.
    """

    steps: Sequence[Sequence[Command]]
    damage: str
    names: tuple[str, ...]
    accept: Accept
    base: str = 'plain'
    clean: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()
    alone: bool = False
    harmless: bool = False

    @property
    def commands(self) -> list[Command]:
        return [command for step in self.steps for command in step]

    @property
    def is_compared(self) -> bool:
        """Whether the results of the sound sandbox are needed."""
        return self.accept in (Accept.SAME, Accept.TOLD)

    @property
    def clean_lines(self) -> tuple[str, ...]:
        return self.clean or tuple(command.line for command in self.steps[-1])


@dataclass(frozen=True)
class Scene:
    """What an attack works with.

    Attributes:
        folder: The sandbox, in which the commands run; made by `make`.
        draw: The source of all chances.
        sandboxes: Makes it.
    """

    folder: Path
    draw: random.Random
    sandboxes: 'Sandboxes'

    def make(self, base: str = 'plain') -> Path:
        """Makes the sound sandbox and returns it."""
        return self.sandboxes.make(self.folder.parent, base)

    @property
    def precious(self) -> Path:
        """A folder beside the sandbox, with files that no command may touch."""
        return self.folder.parent / 'precious'

    @property
    def harm(self) -> Path:
        """What exists as soon as code of a file has run."""
        return self.folder.parent / 'harm'


Attack = Callable[[Scene], Trial]


@dataclass
class Registry:
    """All attacks by name, such as ``'checkpoint: truncated'``."""

    attacks: dict[str, Attack] = field(default_factory=dict)

    def add(self, family: str, function: Callable, attack: Attack | None = None) -> Callable:
        """Adds an attack under the name of a function, and returns the function."""
        self.attacks[f'{family}: {function.__name__.strip("_").replace("_", " ")}'] = attack or function
        return function

    def order(self, seed: int) -> list[str]:
        """All names in an order that the seed decides; case n is the n-th, again and again."""
        names = sorted(self.attacks)
        random.Random(seed).shuffle(names)
        return names


REGISTRY = Registry()


def places_in(node, path: tuple = ()) -> Iterator[tuple]:
    """The keys to every value of nested dicts and lists, without those of names that begin with ``_``."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if not str(key).startswith('_'):
            yield (*path, key)
            if isinstance(value, dict | list):
                yield from places_in(value, (*path, key))


def value_at(node, path: tuple):
    for key in path:
        node = node[key]
    return node


def flip_bits(data: bytes, draw: random.Random, counts: Sequence[int]) -> tuple[bytes, list[int]]:
    """Flips one of these numbers of bits; also returns where."""
    changed, places = bytearray(data), [draw.randrange(8 * len(data)) for _ in range(draw.choice(counts))]
    for place in places:
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed), places


def draw_content(kinds: dict[str, bytes], path: Path, draw: random.Random) -> str:
    """Writes one of these contents into a file; returns its name."""
    kind = draw.choice(list(kinds))
    path.write_bytes(kinds[kind])
    return kind


def become(path: Path, kind: str) -> None:
    """Puts something that is no file, or a link to a path, in the place of a file."""
    path.unlink(missing_ok=True)
    if kind == 'FIFO':
        os.mkfifo(path)
    elif kind == 'folder':
        path.mkdir()
    else:
        path.symlink_to({'link to itself': path.name, 'link to nothing': 'nothing'}.get(kind, kind))


def one(line: str, **settings) -> list[list[Command]]:
    """Steps with one command."""
    return [[Command(line, **settings)]]
