"""What a format of checkpoints is: how it is recognised, and a table of its names for the tensors of a network.

A table has names of modules or tensors, theirs and vitplug's, by commas or lines; a name alone is the same in both::

    class_embedding:vector = cls_token                      another layout, see LAYOUTS
    pools.{} = transformers.{+1}.pool                       {} is a number; vitplug's is one more here
    head = .head.fc                                         a dot: outside of the backbone
    norm = norm{last}                                       number of the last stage
    [blocks.{} = layers.{}]                                 the names below begin with these
    norm1 = ln1, attn.proj
    attn.q_bias+attn.k_bias?+attn.v_bias = attn.qkv.bias    parts that are one tensor here; a bias of 0 may be missing

*vitplug's keys* are the keys of a whole classifier of mmpretrain: ``backbone.<key of the backbone>`` and
``head.<key of the head>``. The first pair that matches a key counts.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..files import some_of

State = Mapping[str, Tensor]
# A prefix of names without numbers: numbers belong to lists of blocks.
_PREFIX = r'((?:[A-Za-z_]\w*\.)*?)'
_HOLE = re.compile(r'\{([+-]\d+)?\}')
# Names of both halves of a SwiGLU, where its names are not those of an MLP.
_GATED = re.compile(r'(?:.*\.)?(?:ffn\.w12|mlp\.(?:w12|w1|fc1_g|weights_in|gate_proj))\..*')

# What Swin and MViT have once in each stage after the first: a patch merging, a block that widens the tokens.
_NEXT_STAGE = re.compile(r'.*(?:\.downsample\.reduction|\d\.(?:shortcut_proj_\w+|proj))\.weight')


def _channels_first(tensor: Tensor) -> Tensor:
    """Entries of a 2x2 patch from (pixel, channel), pixels down first, to (channel, pixel), pixels across first."""
    return tensor.unflatten(-1, (2, 2, -1)).transpose(-3, -2).movedim(-1, -3).flatten(-3)


def _as_tokens(positions: Tensor) -> Tensor:
    return positions.flatten(2).transpose(1, 2) if positions.ndim == 4 else positions


#: Changes of their tensors to vitplug's layout, by name.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    '': lambda tensor: tensor,
    'vector': lambda tensor: tensor[None, None],
    'matrix': lambda tensor: tensor[None],
    'merged': _channels_first,  # of Swin's patch merging
    'image': _as_tokens,  # as mmdet stores a table of positions; mmpretrain does not
}


class Rule(NamedTuple):
    """A pair of a table.

    Args:
        theirs: Names of the parts.
        ours: vitplug's name.
        optional: Index of the part whose bias may be missing, as it is 0; -1 for none.
        layout: One of :data:`LAYOUTS`.
    """

    theirs: tuple[str, ...]
    ours: str
    optional: int
    layout: str

    def suits(self, gated: bool) -> bool:
        """False for the names of an MLP in a network with SwiGLUs, and the other way round."""
        return gated if '.ffn.w' in self.ours or '.ffn.norm' in self.ours else not (gated and '.ffn.l' in self.ours)


@cache
def read_table(sections: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules of a table, whose text is in sections."""
    rules, begin = [], ('', '')
    for pair in filter(None, map(str.strip, re.split('[,\n]', '\n'.join(sections)))):
        if pair.startswith('['):
            theirs, _, ours = pair.strip('[]').partition(' = ')
            begin = f'{theirs}.', f'{ours or theirs}.'
        else:
            rules.append(_rule(pair, *begin))
    return tuple(rules)


def _rule(pair: str, theirs: str, ours: str) -> Rule:
    their, _, our = pair.partition(' = ')
    their, _, layout = their.partition(':')
    parts = re.split(r'\+(?!\d)', their)
    optional = next((index for index, part in enumerate(parts) if part.endswith('?')), -1)
    our = our or their
    our = our[1:] if our.startswith('.') else f'backbone.{ours}{our}'
    return Rule(tuple(theirs + part.rstrip('?') for part in parts), our, optional, layout)


@cache
def _pattern(name: str) -> re.Pattern:
    return re.compile(re.escape(name).replace(r'\{\}', r'(\d+)') + r'(?=\.|$)')


def _translate(key: str, name: str, others: Iterable[str]) -> list[str] | None:
    """A key whose tensor or module has this name, by other names of it; None if it has not."""
    found = _pattern(name).match(key)
    return found and [_fill(other, found.groups()) + key[found.end() :] for other in others]


def _fill(name: str, numbers: Sequence[str]) -> str:
    left = iter(numbers)
    return _HOLE.sub(lambda hole: str(int(next(left)) + int(hole[1] or 0)), name)


@dataclass(frozen=True)
class Format:
    """Checkpoints of one code base and one architecture, without a prefix.

    Args:
        name: Name for messages.
        anchors: Keys, with ``{}`` for a number. A checkpoint of this format has all of them.
        names: The table, in sections. Keys without a rule are those of vitplug's backbone.
        without_bias: Regular expression of biases, by the backbone's names, that its network may be built without:
            missing ones are 0.
        rotary: The kind of rotary positions of its networks, which no key may show; '' for none.
        strict: Whether keys without a rule are refused, as in the files that authors of a paper released.
        prepare: Changes their tensors before the table does, and refuses networks with these keys that vitplug has not.
    """

    name: str
    anchors: str
    names: tuple[str, ...] = ()
    without_bias: str = ''
    rotary: str = ''
    strict: bool = False
    prepare: Callable[[State], State] = lambda theirs: theirs

    def recognise(self, keys: Iterable[str]) -> set[str]:
        """The prefixes of this format's weights; empty if there are none."""
        keys = list(keys)
        patterns = [_PREFIX + anchor.replace('.', r'\.').replace('{}', r'\d+') for anchor in self.anchors.split()]
        matches = ((re.fullmatch(pattern, key) for key in keys) for pattern in patterns)
        return set.intersection(*({match[1] for match in found if match} for found in matches))

    def rename(self, key: str) -> str | None:
        """vitplug's name of a tensor, None if no rule has it."""
        found = _find(key, read_table(self.names))
        return found and found[1]

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        """This format's weights with vitplug's keys.

        Raises:
            ValueError: If such networks are refused, a part of a tensor is missing, or a key is unknown in a strict
                format.
        """
        theirs, rules = self.prepare(state), self._rules(state)
        found = {key: _find(key, rules) for key in theirs}
        if self.strict and (strange := [key for key, place in found.items() if place is None]):
            raise ValueError(
                f'{self.name} has no {some_of(strange)} ({len(strange)} of {len(theirs)} tensors): the file is of a '
                'variant that vitplug does not have'
            )
        ours: dict[str, Tensor] = {}
        for key, tensor in theirs.items():
            rule, name, parts = found[key] or (Rule((key,), key, -1, ''), f'backbone.{key}', [key])
            if key != next(part for part in parts if part in theirs):
                continue  # joined with the first part
            if name in ours:
                raise ValueError(f'{self.name}: {key} and another tensor of the file are both {name}')
            if len(parts) > 1:
                tensor = _join(key, parts, rule.optional, theirs)
            ours[name] = LAYOUTS[rule.layout](tensor)
        return ours

    def _rules(self, state: State) -> list[Rule]:
        """The rules for a network with these tensors."""
        gated, last = is_gated(state), sum(bool(_NEXT_STAGE.fullmatch(key)) for key in state)
        suiting = [rule for rule in read_table(self.names) if rule.suits(gated)]
        return [rule._replace(ours=rule.ours.replace('{last}', str(last))) for rule in suiting]


def _find(key: str, rules: Sequence[Rule]) -> tuple[Rule, str, list[str]] | None:
    """The rule of a key of theirs, vitplug's key, and theirs of all parts of that tensor."""
    for rule in rules:
        for part in rule.theirs:
            if names := _translate(key, part, (rule.ours, *rule.theirs)):
                return rule, names[0], names[1:]
    return None


def _join(key: str, parts: list[str], optional: int, theirs: State) -> Tensor:
    """The parts of a tensor, one after the other.

    Raises:
        ValueError: If one is missing that is no bias of keys, which some formats lack because it is 0.
    """
    like = theirs[key]
    may_lack = [parts[optional]] if optional >= 0 and like.ndim == 1 else []
    if lacking := [part for part in parts if part not in theirs and part not in may_lack]:
        raise ValueError(f'the file has {key} and lacks {", ".join(lacking)}: get a whole copy of it')
    return torch.cat([theirs[part] if part in theirs else torch.zeros_like(like) for part in parts])


def is_gated(state: State) -> bool:
    """True for a SwiGLU, also where both halves are one tensor under the name of an MLP's first layer."""
    if any(_GATED.fullmatch(key) for key in state):
        return True
    first = next((key for key in state if re.fullmatch(r'.*\.mlp\.fc1\.weight', key)), None)
    second = first and state.get(first.replace('fc1', 'fc2'))
    return second is not None and state[first].shape[0] == 2 * second.shape[1]
