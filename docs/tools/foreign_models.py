"""Writes which models of other libraries take which plugs: python docs/tools/foreign_models.py [--check]

Needs timm and transformers; ``--check`` compares the rows of those that there are. transformers 5 and mmpretrain cannot
be imported together, so this imports torch's part of vitplug alone.
"""

import importlib.util
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / 'tests')]
PAGE = ROOT / 'docs' / 'plug_in.md'
BEGIN, END = '<!-- models: docs/tools/foreign_models.py -->\n', '<!-- end of models -->\n'
#: What a message says of plugs that are refused: the shorter words of the table.
REASONS = {
    "socket 'prefix'": 'adds tokens',
    'change the heads': 'changes heads',
    'does not offer': 'no attention',
    'no attention': 'no attention',
    'which has none': 'no attention',
    'with q and k and 0 with v': 'no attention',
    '0 outputs of 0 values': 'no attention',
    'are pooled': 'pooled keys',
    'block 1 pools': 'pooled queries',
    'on another grid': 'pooled keys',
    'are not its queries': 'pooled keys',
    'needs both in the same': 'pooled keys',
    'lie on a grid': 'several grids',
}
HEAD = '| library | model | plugs it takes | checkpointed | compiled | refused |'


def rows(library: str) -> list[str]:
    """A row for each model of a library, Markdown."""
    from adapters.foreign import PLUGS
    from adapters.pairs import MODELS, UNCHECKPOINTED, check_compiled, check_without_plugs, reason_of_refusal

    lines = []
    for name in MODELS[library]:
        check_without_plugs(library, name)
        check_compiled(library, name)
        refused: dict[str, list[str]] = {}
        for plug in PLUGS:
            if reason := reason_of_refusal(library, name, plug):
                refused.setdefault(shortened(reason), []).append(f'`{plug}`')
        taken = len(PLUGS) - sum(map(len, refused.values()))
        told = '; '.join(f'{", ".join(plugs)} ({reason})' for reason, plugs in refused.items())
        saves = f'not by {library}' if name.startswith(UNCHECKPOINTED) else 'yes'
        lines.append(f'| {library} | `{name}` | {taken} | {saves} | yes | {told or "none"} |')
        print(lines[-1], flush=True)
    return lines


def shortened(reason: str) -> str:
    """A few words for a message."""
    return next((short for part, short in REASONS.items() if part in reason), reason.removeprefix('plugs: '))


def main() -> int:
    """Writes the table, or, with ``--check``, returns 1 if a row is another."""
    warnings.filterwarnings('ignore')
    before, rest = PAGE.read_text().split(BEGIN)
    old, after = rest.split(END)
    if '--check' in sys.argv:
        there = [name for name in ('timm', 'transformers') if importlib.util.find_spec(name)]
        return int(any(line not in old for name in there for line in rows(name)))
    head = [HEAD, '|---|---|---|---|---|---|']
    PAGE.write_text(before + BEGIN + '\n'.join([*head, *rows('timm'), *rows('transformers')]) + '\n' + END + after)
    return 0


if __name__ == '__main__':
    sys.exit(main())
