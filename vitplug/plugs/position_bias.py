"""Relative position biases: added to the score of a query and a key because of where the two lie.

Every bias in this module depends on the offset (query minus key) alone, so it is one value for each offset; the
expansion to token pairs happens once, for the sum of all biases.

``RelPosBias`` is the learned table of *Swin Transformer* (Eq. 4); ``RelPosMlp`` is the small network over
log-spaced offsets on which the paper of :mod:`gaussian_bias` builds its ViTs.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitplug.compat import register_load_state_dict_pre_hook

from ..attention.bias import OffsetBias
from ..attention.grids import GridPair
from ..attention.site import Site
from .checks import check_integer, check_number
from .plug import LayerPlan, Plug


class RelPosBias(Plug):
    """A learned table of relative position bias per block: one value for each offset and head.

    On another grid than the one it was made for, the table is resized (bicubic). Prefix tokens have no bias.

    Raises:
        ValueError: If queries and keys of a block lie on different grids.
    """

    name = 'rel_pos_bias'
    undecayed = ('rel_pos_table',)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        _check_one_grid(self, plan)
        return {'bias': OffsetTable(plan.site.pairs, plan.num_heads)}


class OffsetTable(nn.Module):
    """``rel_pos_table`` of shape ``(H, qh + kh - 1, qw + kw - 1)``."""

    def __init__(self, pairs: GridPair, num_heads: int):
        super().__init__()
        self.rel_pos_table = nn.Parameter(torch.empty(num_heads, *pairs.table_size))
        register_load_state_dict_pre_hook(self, _fit_offset_table)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the table."""
        nn.init.trunc_normal_(self.rel_pos_table, std=0.02)

    def forward(self, site: Site) -> OffsetBias:
        return OffsetBias(_resize_offsets(self.rel_pos_table, site.pairs.table_size), site.pairs)


def _fit_offset_table(module: OffsetTable, state_dict: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Resizes a checkpoint's table made for another grid."""
    key = f'{prefix}rel_pos_table'
    if key in state_dict and state_dict[key].ndim == 3:
        height, width = module.rel_pos_table.shape[1:]
        state_dict[key] = _resize_offsets(state_dict[key], (height, width))


def _resize_offsets(table_Hyx: Tensor, size: tuple[int, int]) -> Tensor:
    if table_Hyx.shape[1:] == size:
        return table_Hyx
    return F.interpolate(table_Hyx[None], size=size, mode='bicubic', align_corners=False)[0]


class RelPosMlp(Plug):
    """A small network that maps an offset to its bias, per block::

        bias = W2 dropout(relu(W1 [s(dy), s(dx)] + b1)) + b2,    s(t) = sign(t) log(1 + |t|)

    It gives a bias for any grid. Prefix tokens have none.

    Args:
        hidden_dims: Width of the hidden layer.
        drop_rate: Drop rate of the hidden layer; it makes the bias random during training.

    Raises:
        ValueError: If an argument is out of range, or queries and keys of a block lie on different grids.
    """

    name = 'rel_pos_mlp'

    def __init__(self, hidden_dims: int = 128, drop_rate: float = 0.125, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.hidden_dims = check_integer('hidden_dims', hidden_dims, least=1)
        self.drop_rate = check_number('drop_rate', drop_rate, least=0.0, below=1.0)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        _check_one_grid(self, plan)
        return {'bias': OffsetMlp(plan.num_heads, self.hidden_dims, self.drop_rate)}


class OffsetMlp(nn.Module):
    """The network of :class:`RelPosMlp`."""

    def __init__(self, num_heads: int, hidden_dims: int, drop_rate: float):
        super().__init__()
        self.fc1 = nn.Linear(2, hidden_dims)
        self.drop = nn.Dropout(drop_rate)
        self.fc2 = nn.Linear(hidden_dims, num_heads)

    def forward(self, site: Site) -> OffsetBias:
        dy, dx = site.pairs.offsets(self.fc1.weight)
        offsets = torch.stack(torch.meshgrid(dy, dx, indexing='ij'), dim=-1)
        logs = (offsets.sign() * offsets.abs().log1p()).to(self.fc1.weight.dtype)
        # As wide as other tables: kernels may round whenever one of many pairs is added to an offset's gradient.
        table_Hyx = self.fc2(self.drop(F.relu(self.fc1(logs)))).permute(2, 0, 1).to(dy.dtype)
        return OffsetBias(table_Hyx, site.pairs)


def _check_one_grid(plug: Plug, plan: LayerPlan) -> None:
    queries, keys = plan.site.pairs.queries.hw, plan.site.pairs.keys.hw
    if queries != keys:
        raise ValueError(
            f'{type(plug).__name__}: block {plan.index} has queries on {queries[0]}x{queries[1]} and keys on '
            f'{keys[0]}x{keys[1]}, and a bias of every offset needs both in the same tokens; leave the block out by '
            'layers=[...], or use GaussianAttentionBias, which takes any distance'
        )
