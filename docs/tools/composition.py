"""Writes which plugs go together: python docs/tools/composition.py [--check]"""

import sys
from itertools import combinations
from pathlib import Path

from mmengine.logging import MMLogger

from vitplug.backbones import VisionTransformer
from vitplug.plugs.text import SHORT_NAMES

PAGE = Path(__file__).parents[1] / 'plugs' / 'further.md'
BEGIN, END = '<!-- pairs: docs/tools/composition.py -->\n', '<!-- end of pairs -->\n'
ARCH = dict(embed_dims=32, num_layers=2, num_heads=4, feedforward_channels=8)
# A head that is taken from an even number leaves an odd one.
TEXTS = {'uniform': "uniform(mode='append')"}


def refusals() -> dict[str, list[str]]:
    """Reasons why pairs of plugs are refused on a ViT, with the pairs."""
    MMLogger.get_current_instance().setLevel('ERROR')
    found: dict[str, list[str]] = {}
    for pair in combinations(SHORT_NAMES, 2):
        plugs = '+'.join(TEXTS.get(name, name) for name in pair)
        try:
            VisionTransformer(ARCH, img_size=16, patch_size=4, plugs=plugs)
        except ValueError as error:
            reason = str(error).removeprefix('plugs: ').split(';')[0]
            found.setdefault(reason, []).append('+'.join(pair))
    return found


def table() -> str:
    """The pairs that are refused, Markdown."""
    lines = ['| refused | because |', '|---|---|']
    lines += [f'| {", ".join(f"`{pair}`" for pair in pairs)} | {reason} |' for reason, pairs in refusals().items()]
    return '\n'.join(lines) + '\n'


def main() -> int:
    """Writes the table, or, with ``--check``, returns 1 if it is another."""
    before, rest = PAGE.read_text().split(BEGIN)
    old, after = rest.split(END)
    new = table()
    if '--check' in sys.argv:
        return int(old != new)
    PAGE.write_text(before + BEGIN + new + END + after)
    return 0


if __name__ == '__main__':
    sys.exit(main())
