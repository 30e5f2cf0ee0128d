"""What a format of checkpoints is: how it is recognised, and a table of its names for the tensors of a network.

A table has names of modules or tensors, theirs and vitplug's, by commas or lines; a name alone is the same in both::

    class_embedding:vector = cls_token                      another layout, see LAYOUTS
    pools.{} = transformers.{+1}.pool                       {} is a number; vitplug's is one more here
    head = .head.fc                                         a dot: outside of the backbone
    norm = norm{last}                                       number of the last stage
    [blocks.{} = layers.{}]                                 the names below begin with these
    norm1 = ln1, attn.proj
    attn.q_bias+attn.k_bias+attn.v_bias = attn.qkv.bias     parts that are one tensor here

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

State = Mapping[str, Tensor]
# A prefix of names without numbers: numbers belong to lists of blocks.
_PREFIX = r'((?:[A-Za-z_]\w*\.)*?)'
_HOLE = re.compile(r'\{([+-]\d+)?\}')
# Names of both halves of a SwiGLU, where its names are not those of an MLP.
_GATED = re.compile(r'.*\.mlp\.(?:w12|w1|fc1_g|weights_in|gate_proj)\..*')
_KEY_BIAS = re.compile(r'.*\.(?:k_bias|k_proj\.bias|key\.bias)')
# What Swin and MViT have once in each stage after the first: a patch merging, a block that widens the tokens.
_NEXT_STAGE = re.compile(r'.*(?:\.downsample\.reduction|\d\.(?:shortcut_proj_\w+|proj))\.weight')


def _channels_first(tensor: Tensor) -> Tensor:
    """Entries of a 2x2 patch from (pixel, channel), pixels down first, to (channel, pixel), pixels across first."""
    return tensor.unflatten(-1, (2, 2, -1)).transpose(-3, -2).movedim(-1, -3).flatten(-3)


#: Changes of their tensors to vitplug's layout, by name.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    '': lambda tensor: tensor,
    'vector': lambda tensor: tensor[None, None],
    'matrix': lambda tensor: tensor[None],
    'merged': _channels_first,  # of Swin's patch merging
}


class Rule(NamedTuple):
    """A pair of a table.

    Args:
        theirs: Names of the parts.
        ours: vitplug's name.
        layout: One of :data:`LAYOUTS`.
    """

    theirs: tuple[str, ...]
    ours: str
    layout: str

    def suits(self, gated: bool) -> bool:
        """False for the names of an MLP in a network with SwiGLUs, and the other way round."""
        return gated if '.ffn.w' in self.ours or '.ffn.norm' in self.ours else not (gated and '.ffn.l' in self.ours)


@cache
def read_table(sections: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules of a table, whose text is in sections."""
    rules, begin = [], ('', '')
    for pair in filter(None, map(str.strip, re.split('[,\n]', '\n'.join(sections)))):
        theirs, _, ours = pair.strip('[]').partition(' = ')
        if pair.startswith('['):
            begin = f'{theirs}.', f'{ours or theirs}.'
            continue
        theirs, _, layout = theirs.partition(':')
        parts = tuple(begin[0] + part for part in re.split(r'\+(?!\d)', theirs))
        name = ours[1:] if ours.startswith('.') else f'backbone.{begin[1]}{ours or theirs}'
        rules.append(Rule(parts, name, layout))
    return tuple(rules)


@cache
def _pattern(name: str) -> re.Pattern:
    return re.compile(re.escape(name).replace(r'\{\}', r'(\d+)') + r'(?=\.|$)')


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
        may_lack_bias: Modules of the backbone, as a regular expression, that its networks may be built without a bias
            in, which is as if it were 0; '' for none.
        rotary: The setting of a backbone for the rotary positions of its networks, which no key may show; '' for none.
        prepare: Changes their tensors before the table does, and refuses networks with these keys that vitplug has not.
    """

    name: str
    anchors: str
    names: tuple[str, ...] = ()
    may_lack_bias: str = ''
    rotary: str = ''
    prepare: Callable[[State], State] = lambda theirs: theirs

    def recognise(self, keys: Iterable[str]) -> set[str]:
        """The prefixes of this format's weights; empty if there are none."""
        keys = list(keys)
        patterns = [_PREFIX + anchor.replace('.', r'\.').replace('{}', r'\d+') for anchor in self.anchors.split()]
        matches = ((re.fullmatch(pattern, key) for key in keys) for pattern in patterns)
        return set.intersection(*({match[1] for match in found if match} for found in matches))

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        """This format's weights with vitplug's keys.

        Raises:
            ValueError: If such networks are refused, or a part of a tensor is missing.
        """
        theirs, rules = self.prepare(state), self._rules(state)
        ours: dict[str, Tensor] = {}
        for key, tensor in theirs.items():
            layout, name, parts = _find(key, rules)
            if key != next(part for part in parts if part in theirs):
                continue  # joined with the first part
            if name in ours:
                raise ValueError(f'{self.name}: {key} and another tensor of the file are both {name}')
            if len(parts) > 1:
                tensor = _join(key, parts, theirs)
            ours[name] = LAYOUTS[layout](tensor)
        return ours

    def without_rule(self, ours: Iterable[str]) -> list[str]:
        """Converted keys of the backbone that are those of the file, as no rule of the table gives them."""
        places = [_pattern(re.sub(r'\{[^}]*\}', '{}', rule.ours)) for rule in read_table(self.names)]
        keys = [key for key in ours if places and key.startswith('backbone.')]
        return [key for key in keys if not any(place.match(key) for place in places)]

    def _rules(self, state: State) -> list[Rule]:
        """The rules for a network with these tensors."""
        gated, last = is_gated(state), sum(bool(_NEXT_STAGE.fullmatch(key)) for key in state)
        suiting = [rule for rule in read_table(self.names) if rule.suits(gated)]
        return [rule._replace(ours=rule.ours.replace('{last}', str(last))) for rule in suiting]


def _find(key: str, rules: Sequence[Rule]) -> tuple[str, str, list[str]]:
    """The layout of a tensor, vitplug's key, and theirs of all its parts, by the first rule for a key of theirs."""
    for rule in rules:
        for part in rule.theirs:
            if match := _pattern(part).match(key):
                rest = key[match.end() :]
                name, *parts = (_fill(other, match.groups()) + rest for other in (rule.ours, *rule.theirs))
                return rule.layout, name, parts
    return '', f'backbone.{key}', [key]


def _join(key: str, parts: list[str], theirs: State) -> Tensor:
    """The parts of a tensor, one after the other; a bias of keys, which a softmax does not see, may be missing.

    Raises:
        ValueError: If another part is missing.
    """
    if lacking := [part for part in parts if part not in theirs and not _KEY_BIAS.fullmatch(part)]:
        raise ValueError(f'the file has {key} and lacks {", ".join(lacking)}: get a whole copy of it')
    return torch.cat([theirs[part] if part in theirs else torch.zeros_like(theirs[key]) for part in parts])


def is_gated(state: State) -> bool:
    """True for a SwiGLU, also where both halves are one tensor under the name of an MLP's first layer."""
    if any(_GATED.fullmatch(key) for key in state):
        return True
    first = next((key for key in state if re.fullmatch(r'.*\.mlp\.fc1\.weight', key)), None)
    second = first and state.get(first.replace('fc1', 'fc2'))
    return second is not None and state[first].shape[0] == 2 * second.shape[1]
