"""What a format of checkpoints is: how it is recognised, and a table of its names for the tensors of a network.

A table has their names and vitplug's for modules or tensors, ``theirs = ours``; a name alone is the same in both::

    blocks.{}.norm1 = layers.{}.ln1                         {} is a number
    pools.{} = transformers.{+1}.pool                       one more than it is in the other name
    attn.q_bias+attn.k_bias?+attn.v_bias = attn.qkv.bias    parts that are one tensor here; a bias of 0 may be missing
    class_embedding:1 = cls_token                           their tensor has one axis, vitplug's three
    head = .head.fc                                         a dot: outside of the backbone
    norm = norm{last}                                       number of the last stage

*vitplug's keys* are the keys of a whole classifier of mmpretrain: ``backbone.<key of the backbone>`` and
``head.<key of the head>``. The first pair that matches a key counts, in both directions.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ..files import some_of

State = Mapping[str, Tensor]
# A prefix of names without numbers: numbers belong to lists of blocks.
_PREFIX = r'((?:[A-Za-z_]\w*\.)*?)'
_HOLE = re.compile(r'\{([+-]\d+)?\}')
# Names of both halves of a SwiGLU, where its names are not those of an MLP.
_GATED = re.compile(r'(?:.*\.)?(?:ffn\.w12|mlp\.(?:w12|w1|fc1_g|weights_in|gate_proj))\..*')


@dataclass(frozen=True)
class Rule:
    """A line of a table.

    Args:
        theirs: Names of the parts.
        ours: vitplug's name.
        optional: The part whose bias may be missing: it is 0, and has to be 0 in an export.
        axes: Axes of their tensor, where vitplug's has leading axes of size 1; 0 for the same number.
    """

    theirs: tuple[str, ...]
    ours: str
    optional: str = ''
    axes: int = 0

    def suits(self, gated: bool) -> bool:
        """False for the names of an MLP in a network with SwiGLUs, and the other way round."""
        return gated if '.ffn.w' in self.ours or '.ffn.norm' in self.ours else not (gated and '.ffn.l' in self.ours)


def table(text: str, theirs: str = '', ours: str = '') -> tuple[Rule, ...]:
    """The rules of a table, each name below ``theirs`` and ``ours``."""
    return tuple(_rule(pair.strip(), theirs, ours) for pair in re.split('[,\n]', text) if pair.strip())


def _rule(pair: str, theirs: str, ours: str) -> Rule:
    their, _, our = pair.partition(' = ')
    their, _, axes = their.partition(':')
    parts = [theirs + part for part in re.split(r'\+(?!\d)', their)]
    optional = [part.rstrip('?') for part in parts if part.endswith('?')]
    our = our or their
    our = our[1:] if our.startswith('.') else f'backbone.{ours}{our}'
    return Rule(tuple(part.rstrip('?') for part in parts), our, *optional, axes=int(axes or 0))


@cache
def _compiled(name: str) -> tuple[re.Pattern, tuple[int, ...]]:
    texts, offsets = _HOLE.split(name)[::2], _HOLE.split(name)[1::2]
    return re.compile(r'(\d+)'.join(map(re.escape, texts)) + r'(?=\.|$)'), tuple(int(offset or 0) for offset in offsets)


def _match(name: str, key: str) -> tuple[tuple[int, ...], str] | None:
    """The numbers in a key with this name, and the rest of the key."""
    pattern, offsets = _compiled(name)
    found = pattern.match(key)
    if found is None:
        return None
    return tuple(int(n) - offset for n, offset in zip(found.groups(), offsets, strict=True)), key[found.end() :]


def _fill(name: str, numbers: Sequence[int]) -> str:
    values = iter(zip(numbers, _compiled(name)[1], strict=True))
    return _HOLE.sub(lambda _: str(sum(next(values))), name)


@dataclass(frozen=True)
class Format:
    """Checkpoints of one code base and one architecture, without a prefix.

    Args:
        name: Name for messages.
        network: The architecture, such as ``'ViT'``.
        anchors: Regular expressions of keys. A checkpoint of this format has a key for each of them.
        rules: The table. Keys without a rule are those of vitplug's backbone.
        without_bias: Regular expressions of biases, by the backbone's names, that its network may be built without:
            missing ones are 0.
        rotary: The kind of rotary positions of its networks, which no key may show; '' for none.
        strict: Whether keys without a rule are refused, as in the files that authors of a paper released.
        why: Why such networks are refused; '' if they are not.
        zero_free: Whether biases of q and v that are all 0 are left out, as those of k.
        marks: Regular expressions of vitplug's keys; a network of this format has a key for each of them.
        lacks: The same of keys that it has not.
        last: The number of the last stage, of the state dict with either keys.
        prepare: Changes their tensors before the table does.
        finish: Changes vitplug's tensors after it, given theirs as well.
        restore: Changes their tensors after an export by the table.
        notes: What the conversion leaves out, adds or merges, and why, of their tensors; one clause each.
    """

    name: str
    network: str
    anchors: tuple[str, ...]
    rules: tuple[Rule, ...] = ()
    without_bias: tuple[str, ...] = ()
    rotary: str = ''
    strict: bool = False
    why: str = ''
    zero_free: bool = False
    marks: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    last: Callable[[State], int] = lambda state: 0
    prepare: Callable[[State], State] = dict
    finish: Callable[[dict[str, Tensor], State], dict[str, Tensor]] = lambda ours, theirs: ours
    restore: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict
    notes: Callable[[State], list[str]] = lambda state: []

    def recognise(self, keys: Iterable[str]) -> set[str]:
        """The prefixes of this format's weights; empty if there are none."""
        keys = list(keys)
        matches = ((re.fullmatch(_PREFIX + anchor, key) for key in keys) for anchor in self.anchors)
        return set.intersection(*({match.group(1) for match in found if match} for found in matches))

    def fits(self, ours: State) -> bool:
        """True for a network, by vitplug's keys, that belongs to this format."""
        has = [mark for mark in (*self.marks, *self.lacks) if any(re.fullmatch(mark, key) for key in ours)]
        return has == list(self.marks)

    def rename(self, key: str) -> str | None:
        """vitplug's name of a tensor, None if no rule has it."""
        found = _find(key, self.rules)
        return found and found[1]

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        """This format's weights with vitplug's keys.

        Raises:
            ValueError: If such networks are refused, a part of a tensor is missing, or a key is unknown in a strict
                format.
        """
        if self.why:
            raise ValueError(f'{self.name}: {self.why}')
        theirs, rules = self.prepare(state), self._rules(state)
        found = {key: _find(key, rules) for key in theirs}
        if self.strict and (strange := [key for key, place in found.items() if place is None]):
            raise ValueError(
                f'{self.name} has no {some_of(strange)} ({len(strange)} of {len(theirs)} tensors): the file is of a '
                'variant that vitplug does not have'
            )
        ours: dict[str, Tensor] = {}
        for key, tensor in theirs.items():
            rule, name, parts = found[key] or (Rule((key,), key), f'backbone.{key}', [key])
            if key != next(part for part in parts if part in theirs):
                continue  # joined with the first part
            if name in ours:
                raise ValueError(f'{self.name}: {key} and another tensor of the file are both {name}')
            if len(parts) > 1:
                tensor = _join(key, parts, rule.optional, theirs)
            ours[name] = tensor.reshape((1,) * (3 - tensor.ndim) + tensor.shape) if rule.axes else tensor
        return self.finish(ours, theirs)

    def from_vitplug(self, state: State) -> dict[str, Tensor]:
        """The inverse of :meth:`to_vitplug`.

        Raises:
            Nameless: If the format has no name for a key.
            ValueError: If it has no bias of keys, and a bias of keys is not 0.
        """
        rules = self._rules(state)
        places = {key: next(filter(None, (_place(key, rule) for rule in rules)), None) for key in state}
        if nameless := [key for key, place in places.items() if place is None]:
            raise Nameless(
                f'{self.name} has no keys for {some_of(nameless)} ({len(nameless)} tensors): such a model cannot be '
                "exported; remove plugs and task heads first, or keep vitplug's format",
                nameless,
            )
        theirs: dict[str, Tensor] = {}
        for key, tensor in state.items():
            rule, names = places[key]
            tensor = tensor.reshape(tensor.shape[tensor.ndim - rule.axes :]) if rule.axes else tensor
            theirs |= self._kept(dict(zip(names, tensor.chunk(len(names)), strict=True)), rule)
        return self.restore(theirs)

    def _rules(self, state: State) -> list[Rule]:
        """The rules for a network with these tensors, by its own or by vitplug's keys."""
        gated, last = is_gated(state), str(self.last(state))
        suiting = [rule for rule in self.rules if rule.suits(gated)]
        return [Rule(r.theirs, r.ours.replace('{last}', last), r.optional, r.axes) for r in suiting]

    def _kept(self, pieces: dict[str, Tensor], rule: Rule) -> dict[str, Tensor]:
        """The parts of a tensor that an export has."""
        if not rule.optional or any(piece.ndim > 1 for piece in pieces.values()):
            return pieces
        if self.zero_free and not any(piece.any() for piece in pieces.values()):
            return {}
        name = list(pieces)[rule.theirs.index(rule.optional)]
        if pieces[name].any():
            raise ValueError(
                f'{self.name} has no bias of keys, and {name} is not 0: train with layer_cfgs=dict(key_bias=False)'
            )
        return {key: piece for key, piece in pieces.items() if key != name}


def _find(key: str, rules: Sequence[Rule]) -> tuple[Rule, str, list[str]] | None:
    """The rule of a key of theirs, vitplug's key, and theirs of all parts of that tensor."""
    for rule in rules:
        for part in rule.theirs:
            if found := _match(part, key):
                numbers, rest = found
                return rule, _fill(rule.ours, numbers) + rest, [_fill(p, numbers) + rest for p in rule.theirs]
    return None


def _place(key: str, rule: Rule) -> tuple[Rule, list[str]] | None:
    """The rule and their names of the parts of a tensor, None if the rule is about others."""
    found = _match(rule.ours, key)
    return found and (rule, [_fill(part, found[0]) + found[1] for part in rule.theirs])


def _join(key: str, parts: list[str], optional: str, theirs: State) -> Tensor:
    """The parts of a tensor, one after the other.

    Raises:
        ValueError: If one is missing that is no bias of keys, which some formats lack because it is 0.
    """
    like = theirs[key]
    may_lack = optional if like.ndim == 1 else ''
    lacking = [part for part in parts if part not in theirs and not (may_lack and _match(may_lack, part))]
    if lacking:
        raise ValueError(f'the file has {key} and lacks {", ".join(lacking)}: get a whole copy of it')
    return torch.cat([theirs[part] if part in theirs else torch.zeros_like(like) for part in parts])


def is_gated(state: State) -> bool:
    """True for a SwiGLU, also where both halves are one tensor under the name of an MLP's first layer."""
    if any(_GATED.fullmatch(key) for key in state):
        return True
    first = next((key for key in state if re.fullmatch(r'.*\.mlp\.fc1\.weight', key)), None)
    second = first and state.get(first.replace('fc1', 'fc2'))
    return second is not None and state[first].shape[0] == 2 * second.shape[1]


class Nameless(ValueError):
    """Tensors that a format or library has no name for.

    Args:
        message: What to do.
        keys: The tensors, by vitplug's keys.
    """

    def __init__(self, message: str, keys: Sequence[str]):
        super().__init__(message)
        self.keys = keys
