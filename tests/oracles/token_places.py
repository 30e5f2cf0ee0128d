"""Where the tokens of every host are, by loops: their places in the image, in windows and in maps."""

from dataclasses import dataclass
from functools import partial
from itertools import product

from cases import HOSTS, PREFIX_PLUGS, vit

# Registers are no patches.
PLACED_HOSTS = HOSTS | {'vit-registers': partial(vit, plugs=PREFIX_PLUGS['registers'])}


@dataclass
class Side:
    """Queries or keys of a block: their grid, the middle of the first in pixels, the step, and tokens before them."""

    hw: tuple
    first: float
    step: float
    prefix: int = 0
    window: int = 0
    shift: int = 0

    def tokens(self):
        return list(product(*map(range, self.hw)))

    def middle(self, token):
        return tuple(self.first + self.step * place for place in token)

    def nearest(self, pixel, axis):
        """The token's place along an axis; of two equally near ones, the later."""
        return min(range(self.hw[axis]), key=lambda i: (abs(self.first + self.step * i - pixel), -i))

    def slot(self, token):
        """Window and place of a token."""
        if not self.window:
            return 0, self.prefix + token[0] * self.hw[1] + token[1]
        padded = [-(-side // self.window) * self.window for side in self.hw]
        y, x = ((place - self.shift) % side for place, side in zip(token, padded, strict=True))
        window = (y // self.window) * (padded[1] // self.window) + x // self.window
        return window, (y % self.window) * self.window + x % self.window


def sides(host, model, layer, size):
    """The queries and the keys of a block, from the hosts' definitions."""
    if host.startswith('vit'):
        window = model.window_size if host == 'vit-windows' and layer < 2 else 0
        one = Side(tuple(-(-s // 8) for s in size), 3.5, 8, {'vit': 1, 'vit-registers': 4}.get(host, 0), window or 0)
        return one, one
    if host.startswith('swin'):
        step = 4 * 2 ** (layer // 2)
        hw = tuple(-(-s // step) for s in size)
        attn = model.plugged_blocks()[layer].attn
        small = min(hw) <= 4 and not attn.pad_small_map
        one = Side(hw, (step - 1) / 2, step, 0, attn.window_size, 0 if small else attn.shift_size)
        return one, one
    if host.startswith('pit'):
        hw = tuple((s - 6) // 4 + 1 for s in size)
        stage = (0, 0, 1, 2)[layer]
        for _ in range(stage):
            hw = tuple((s - 1) // 2 + 1 for s in hw)
        one = Side(hw, 2.5, 4 * 2**stage, 1 + (host == 'pit-distilled'))
        return one, one
    if host.startswith('mvit'):
        prefix = int(host == 'mvit-cls')
        hw = tuple((s - 1) // 4 + 1 for s in size)
        steps, windows = ((1, 4), (2, 2), (2, 4), (4, 2))[layer], (0, 0)
        if host == 'mvit-windows':
            steps = (2, 8) if layer == 2 else steps
            windows = ((4, 1), (2, 2), (0, 0), (0, 0))[layer]
        return tuple(
            Side(tuple(-(-s // n) for s in hw), 0, 4 * n, prefix, window)
            for n, window in zip(steps, windows, strict=True)
        )
    if host == 't2t':
        # 7 x 7 pixels around pixel 1, then 3 x 3 tokens around the first, twice.
        hw = tuple((s + 4 - 7) // 4 + 1 for s in size)
        for _ in range(2):
            hw = tuple((s - 1) // 2 + 1 for s in hw)
        one = Side(hw, 1, 16, 1)
        return one, one
    if host == 'lvt':
        stage, squares = ((0, 1), (1, 2), (1, 2), (2, 1))[layer]
        hw = tuple((s - 1) // 4 + 1 for s in size)
        for _ in range(stage):
            hw = tuple((s - 1) // 2 + 1 for s in hw)
        step = 4 * 2**stage
        # A key stands for a square of tokens.
        keys = Side(tuple(-(-s // squares) for s in hw), step * (squares - 1) / 2, step * squares)
        return Side(hw, 0, step), keys
    raise KeyError(host)


def dense(maps, queries, keys):
    """The maps of patches by loops, ``(B, H, Nq, Nk)``."""
    found = maps.new_zeros(maps.shape[0], maps.shape[2], len(queries.tokens()), len(keys.tokens()))
    for (i, q), (j, k) in product(enumerate(queries.tokens()), enumerate(keys.tokens())):
        (window, row), (other, column) = queries.slot(q), keys.slot(k)
        if window == other:
            found[:, :, i, j] = maps[:, window, :, row, column]
    return found
