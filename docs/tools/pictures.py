"""Draws the pictures of the documentation: python docs/tools/pictures.py

Maps are computed by the plugs' modules; diagrams are drawn by hand. The files are plain SVG without fonts or scripts.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from vitplug.attention import GlobalLayout, Site
from vitplug.plugs import BlockShape, ContextBroadcast, GaussianAttentionBias, LayerPlan, Refiner, ResidualAttention

FOLDER = Path(__file__).resolve().parents[1] / 'images'
INK, BLUE, PALE, RED = '#1a1a2e', (48, 63, 159), '#e8eaf6', '#c62828'


def text(x: float, y: float, words: str, size: int = 13, anchor: str = 'middle', fill: str = INK) -> str:
    words = words.replace('&', '&amp;').replace('<', '&lt;')
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def box(x: float, y: float, width: float, height: float, words: str, fill: str = PALE, line: str = INK) -> str:
    rect = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" stroke="{line}"/>'
    return rect + text(x + width / 2, y + height / 2 + 4, words, fill=line)


def arrow(*points: tuple[float, float], colour: str = INK) -> str:
    path = 'M' + ' L'.join(f'{x},{y}' for x, y in points)
    head = 'red' if colour == RED else 'ink'
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5" marker-end="url(#{head})"/>'


def shade(value: float) -> str:
    """White for 0, dark blue for 1."""
    return '#' + ''.join(f'{round(255 + (channel - 255) * value):02x}' for channel in BLUE)


def heat_map(x: float, y: float, values: Tensor, side: float, title: str, largest: float | None = None) -> str:
    """Values from 0 to ``largest`` as squares. The longer axis has the length ``side``; one path per colour."""
    cell = side / max(values.shape)
    largest = values.max().item() if largest is None else largest
    levels = (values.clamp(0, largest) / largest * 20).round().int()
    parts = [text(x + side / 2, y - 8, title)]
    for level in levels.unique().tolist():
        cells = torch.nonzero(levels == level).tolist()
        path = ''.join(f'M{x + j * cell:.1f} {y + i * cell:.1f}h{cell:.1f}v{cell:.1f}h-{cell:.1f}z' for i, j in cells)
        parts.append(f'<path d="{path}" fill="{shade(level / 20)}" stroke="#d0d0d8" stroke-width="0.4"/>')
    return ''.join(parts)


def svg(width: int, height: int, parts: Iterable[str], description: str) -> str:
    heads = ''.join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="{colour}"/></marker>'
        for name, colour in (('ink', INK), ('red', RED))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif"><title>{description}</title><defs>{heads}</defs>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n' + '\n'.join(parts) + '\n</svg>\n'
    )


def plan(index: int, site: Site, heads: int = 1, num_layers: int = 1) -> LayerPlan:
    shape, prefixes = BlockShape.stock(4 * heads, heads, 8), ('cls_token',) * site.layout.num_prefix
    return LayerPlan(index, num_layers, 4 * heads, shape, site, prefix_names=prefixes)


def sockets() -> str:
    """One block and its sockets."""
    attention = ['LN', 'q, k, v', 'q k^T', '+ bias', 'softmax', 'maps v', 'proj']
    mlp = ['LN', 'fc1, act', 'fc2']
    socket_at = {(0, 1): 'qkv, tap', (0, 2): 'scores', (0, 3): 'bias', (0, 4): 'map', (0, 5): 'heads', (0, 6): 'msa'}
    further = {(0, 1): 'extra_keys', (0, 3): 'logits', (0, 4): 'normalise', (0, 6): 'residual', (1, 2): 'residual'}
    socket_at |= {(1, 0): 'mlp_front', (1, 1): 'mlp_mid', (1, 2): 'mlp_end'}
    parts = []
    for row, names in enumerate((attention, mlp)):
        y = 40 + 120 * row
        parts += [text(24, y + 19, 'x'), arrow((32, y + 15), (50, y + 15))]
        for column, name in enumerate(names):
            x = 50 + 92 * column
            parts += [box(x, y, 72, 30, name), arrow((x + 72, y + 15), (x + 92, y + 15))]
            if (row, column) in socket_at:
                parts += [box(x - 2, y + 50, 76, 24, socket_at[row, column], fill='#fff', line=RED)]
                parts += [arrow((x + 36, y + 50), (x + 36, y + 32), colour=RED)]
            if (row, column) in further:
                parts += [text(x + 36, y + 88, further[row, column], fill=RED)]
        end = 50 + 92 * len(names)
        parts += [text(end + 10, y + 20, '+', 18)]
        parts += [arrow((36, y + 15), (36, y - 15), (end + 10, y - 15), (end + 10, y + 5))]
    network = ('block_in, block_out: tokens between blocks', 'prefix: tokens before the first block')
    network += ('start: the carry before the first block', 'finish: the tokens after the last block')
    for row, words in enumerate(network):
        parts += [text(470, 165 + 22 * row, words, anchor='start', fill=RED)]
    return svg(740, 270, parts, 'The sockets of a block')


def context_broadcast() -> str:
    """Weights of the input tokens in the output tokens: the modules applied to unit vectors."""
    tokens = torch.eye(10)[None]
    site = Site(GlobalLayout(3, 3, num_prefix=1))
    maps = {'plain': tokens[0]}
    for title, settings in {
        'CB, mode=mean': dict(),
        'mode=cls': dict(mode='cls'),
        'CB_S, Lambda = 2': dict(scaled=True, scale_init_value=2.0),
    }.items():
        (module,) = ContextBroadcast(**settings).build_layer(plan(0, site)).values()
        if settings.get('scaled'):
            module.cb_scale.data = torch.full((10,), 2.0)
        maps[title] = module(tokens, site)[0].detach()
    parts = [heat_map(30 + 175 * i, 45, values, 140, title, 1.0) for i, (title, values) in enumerate(maps.items())]
    parts += [text(30 + 175 * i + 70, 205, 'input tokens', 11) for i in range(4)]
    parts += [f'<g transform="rotate(-90 20 115)">{text(20, 115, "output tokens", 11)}</g>']
    return svg(720, 220, parts, 'Weights of the input tokens in the output tokens')


def gaussian_bias() -> str:
    """The bias of one query for every key of a grid."""
    site = Site(GlobalLayout(14, 14))
    parts = []
    for i, (sigma, (row, column)) in enumerate(((5.0, (7, 7)), (5.0, (2, 11)), (2.0, (7, 7)))):
        module = GaussianAttentionBias(sigma=sigma).build_layer(plan(0, site))['bias']
        pairs = module(site).expand().detach()[0]
        values = pairs[14 * row + column].unflatten(0, (14, 14))
        x = 20 + 230 * i
        parts.append(heat_map(x, 35, values, 196, f'sigma = {sigma:g}, query at ({row}, {column})', 4.0))
        cell = 196 / 14
        parts.append(
            f'<rect x="{x + column * cell:.1f}" y="{35 + row * cell:.1f}" width="{cell:.1f}" height="{cell:.1f}" '
            f'fill="none" stroke="{RED}" stroke-width="2"/>'
        )
    parts.append(text(348, 252, 'white: 0, dark: A^2 = 4; the red square is the query', 12))
    return svg(700, 265, parts, 'The Gaussian bias of one query on a 14 x 14 grid')


def blend_weights(alpha: float, num_layers: int) -> Tensor:
    """Weights of each block's own scores in each block's blended scores, ``(blended, own)``, by the blocks' modules."""
    site = Site(GlobalLayout(1, 1))
    plug = ResidualAttention(alpha=alpha)
    layers, network = plug.build([plan(i, site, num_layers=num_layers) for i in range(num_layers)])
    carry = network['start']({})
    rows = []
    for own, layer in zip(torch.eye(num_layers), layers, strict=True):
        logits, carry = layer['scores'](own.view(-1, 1, 1, 1, 1), None, site, carry)
        rows.append(logits.detach().flatten())
    return torch.stack(rows)


def residual_attention() -> str:
    parts = []
    for i in range(4):
        x = 20 + 95 * i
        parts += [box(x, 60, 64, 30, f'block {i}'), arrow((x + 32, 90), (x + 32, 118))]
        parts += [text(x + 32, 134, f'softmax(S{i})', 11)]
        if i:
            parts += [arrow((x - 31, 75), (x, 75), colour=RED), text(x - 16, 68, f'S{i - 1}', 11, fill=RED)]
    parts += [text(190, 30, 'scores are passed from block to block')]
    for i, alpha in enumerate((0.5, 0.75)):
        x = 420 + 165 * i
        parts += [heat_map(x, 45, blend_weights(alpha, 6), 130, f'alpha = {alpha:g}', 1.0)]
        parts += [text(x + 65, 190, 'own scores of block 0 to 5', 11)]
    parts += [f'<g transform="rotate(-90 412 110)">{text(412, 110, "scores used in block 0 to 5", 11)}</g>']
    return svg(730, 205, parts, 'Scores passed from block to block, and their weights')


def broad_attention() -> str:
    parts = [text(24, 45, 'x'), arrow((32, 40), (52, 40))]
    for i in range(3):
        x = 52 + 130 * i
        parts += [box(x, 22, 90, 36, ('block 0', 'block 1', 'last block')[i])]
        parts += [arrow((x + 90, 40), (x + 130, 40))]
        parts += [arrow((x + 45, 58), (x + 45, 108), colour=RED), text(x + 50, 88, 'q, k, v', 11, 'start', RED)]
    parts += [text(452, 45, '+', 20), arrow((464, 40), (500, 40)), box(500, 22, 100, 36, 'final norm')]
    parts += [box(52, 110, 350, 36, 'softmax(c sum q k^T) [v, v, ..., v]'), box(420, 110, 64, 36, 'pool')]
    parts += [arrow((402, 128), (420, 128)), arrow((452, 110), (452, 52)), text(460, 88, 'gamma', 11, 'start')]
    return svg(630, 165, parts, 'One more attention over q, k and v of all blocks')


def refiner() -> str:
    """Entries of a map that one refined entry depends on: its nonzero gradients."""
    site = Site(GlobalLayout(4, 4))
    row, column = 6, 9
    parts = []
    for i, constraint in enumerate(('none', 'spatial', 'rowcol')):
        torch.manual_seed(0)
        (module,) = Refiner(expansion=0, constraint=constraint).build_layers([plan(0, site)])[0].values()
        for weight in module.parameters():
            weight.data.fill_(1.0)
        maps = torch.zeros(1, 1, 16, 16, requires_grad=True)
        module.refine(maps, site.pairs)[0, 0, row, column].backward()
        parts.append(heat_map(30 + 235 * i, 35, (maps.grad[0, 0] != 0).float(), 200, f"constraint='{constraint}'", 1.0))
        parts.append(text(130 + 235 * i, 252, 'keys', 11))
    parts.append(f'<g transform="rotate(-90 20 135)">{text(20, 135, "queries", 11)}</g>')
    return svg(735, 265, parts, 'Entries of a 16 x 16 map that one refined entry depends on')


PICTURES: Sequence[Callable[[], str]] = (
    *(sockets, context_broadcast, gaussian_bias),
    *(residual_attention, broad_attention, refiner),
)


def main() -> None:
    for draw in PICTURES:
        (FOLDER / f'{draw.__name__}.svg').write_text(draw())


if __name__ == '__main__':
    main()
