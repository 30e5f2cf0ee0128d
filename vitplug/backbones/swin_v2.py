"""Swin Transformer V2: cosine attention, a position bias for any window, norms after the branches.

*Swin Transformer V2: Scaling Up Capacity and Resolution*, with the arguments, state-dict keys and outputs of
mmpretrain's class of the same name. Two things of training follow the authors' code, from which mmpretrain differs:
stochastic depth drops a branch after its norm, and these norms start at 0.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import log

import torch
import torch.nn.functional as F
from mmcv.cnn.bricks.drop import build_dropout
from torch import Tensor, nn

from vitplug.attention import Carry, LayerRecord, OffsetBias, Site
from vitplug.attention.precision import at_least_float32, without_autocast
from vitplug.compat import register_load_state_dict_pre_hook
from vitplug.hosting import Section, SelfAttention, overlay
from vitplug.plugs import BlockShape
from vitplug.registry import MODELS

from .ffn import PluggedFFN, layer_norm
from .patch_merging import PostNormPatchMerging
from .settings import choose_arch, named_archs, per_item
from .swin import ShiftWindowAttention, SwinBlock, SwinStage, SwinTransformer, relative_position_index

# Largest factor of the cosines.
MOST_SCALE = 100.0
# A vector of this length or less counts as 0, as in torch's normalize.
LEAST_LENGTH = 1e-12


class WindowAttentionV2(SelfAttention):
    """Self-attention inside windows, by the cosines of queries and keys, with a continuous position bias::

        scores = min(exp(logit_scale), 100) * cos(q, k)              a scale per head, Eq. (2)
        bias   = 16 * sigmoid(W2 relu(W1 [s(dy), s(dx)] + b1))       Eq. (3)
        s(t)   = sign(t) log2(1 + 8 |t| / (window - 1)) / 3          offsets t, query minus key, Eq. (4)

    The core gets q of length 1 times the scale of its head and k of length 1, so ``q @ k^T`` are the scores. k has no
    bias. Offsets are divided by the side of the windows of the pretraining; 0 is the window's own.
    """

    def __init__(
        self,
        embed_dims: int,
        shape: BlockShape,
        window_size: int,
        qkv_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        cpb_mlp_hidden_dims: int = 512,
        pretrained_window_size: int = 0,
    ):
        super().__init__(embed_dims, shape, qkv_bias=False, qk_scale=1.0, attn_drop=attn_drop, proj_drop=proj_drop)
        self.cpb_mlp = nn.Sequential(
            nn.Linear(2, cpb_mlp_hidden_dims),
            nn.ReLU(inplace=True),
            nn.Linear(cpb_mlp_hidden_dims, shape.map_heads, bias=False),
        )
        self.logit_scale = nn.Parameter(torch.empty(shape.map_heads, 1, 1))
        self.q_bias = nn.Parameter(torch.empty(shape.map_heads * shape.head_dims)) if qkv_bias else None
        self.v_bias = nn.Parameter(torch.empty(shape.value_heads * shape.head_dims)) if qkv_bias else None
        self.windows, side = (window_size, pretrained_window_size or window_size), 2 * window_size - 1
        # In the state dict because the host's checkpoints have both there.
        self.register_buffer('relative_coords_table', torch.empty(1, side, side, 2))
        self.register_buffer('relative_position_index', torch.empty(window_size**2, window_size**2, dtype=torch.long))
        register_load_state_dict_pre_hook(self, _fit_checkpoint)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gives scale, biases and the tables of offsets their start."""
        nn.init.constant_(self.logit_scale, log(10))
        for bias in (self.q_bias, self.v_bias):
            if bias is not None:
                nn.init.zeros_(bias)
        self.relative_coords_table.copy_(log_offsets(*self.windows))
        self.relative_position_index.copy_(relative_position_index(self.windows[0]))

    def biases(self, site: Site) -> tuple[OffsetBias]:
        """The position bias of one window, of a table ``(H, 2 * window - 1, 2 * window - 1)``."""
        # bfloat16 would round a bias of up to 16 by up to 1/32.
        with without_autocast(self.relative_coords_table.device):
            offsets_yx2 = self.relative_coords_table[0].to(self.cpb_mlp[0].weight.dtype)
            table_yxH = 16 * self.cpb_mlp(offsets_yx2).sigmoid()
        return (OffsetBias(table_yxH.permute(2, 0, 1), site.pairs),)

    def to_qkv(self, tokens: Tensor) -> Tensor:
        return F.linear(tokens, self.qkv.weight, self.qkv_bias)

    @property
    def qkv_bias(self) -> Tensor | None:
        return None if self.q_bias is None else torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))

    def split_heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, each ``(G, heads, N, d)``; q and k at length 1, q times the scale of its head."""
        heads = self.shape.map_heads
        parts = qkv.unflatten(-1, (-1, self.shape.head_dims)).transpose(1, 2)
        q_and_k, v = parts.split((2 * heads, self.shape.value_heads), dim=1)
        wide = q_and_k.to(at_least_float32(qkv.dtype))
        lengths = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).clamp(min=LEAST_LENGTH)
        scale_H11 = self.logit_scale.clamp(max=log(MOST_SCALE)).exp()
        factors = torch.cat((scale_H11, torch.ones_like(scale_H11))) / lengths
        q, k = (wide * factors).to(qkv.dtype).split(heads, dim=1)
        return q, k, v


def log_offsets(window: int, pretrained: int) -> Tensor:
    """Offsets inside a window on a logarithmic scale, ``(1, 2 * window - 1, 2 * window - 1, 2)``: rows, columns.

    The largest ones in a window of side ``pretrained`` are ``+-log2(9) / 3``.
    """
    offsets = 8 * (torch.arange(1 - window, window, dtype=torch.float32) / max(pretrained - 1, 1))
    logs = offsets.sign() * torch.log2(offsets.abs() + 1) / 3
    return torch.stack(torch.meshgrid(logs, logs, indexing='ij'), dim=-1)[None]


class SwinBlockV2(SwinBlock):
    """One block with norms after the branches: attention in windows, then MLP::

        x = x + drop_path(norm1(attention(x)))
        x = x + drop_path(norm2(mlp(x)))
        x = norm3(x)                            in every n-th block of huge and giant networks

    It takes the arguments of mmpretrain's block, so that its ``block_cfgs`` work, and ``reshape``, the plugs' changes
    of the block's shape. Plugs act inside the branches, before their norms.
    """

    has_cosines = True

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        window_size: int = 8,
        *,
        extra_norm: bool = False,
        drop_path: float = 0.0,
        attn_cfgs: Mapping = dict(),
        ffn_cfgs: Mapping = dict(),
        norm_cfg: dict = dict(type='LN'),
        pretrained_window_size: int = 0,
        **settings,
    ):
        attn_cfgs = attn_cfgs | dict(window_msa=WindowAttentionV2, pretrained_window_size=pretrained_window_size)
        ffn_cfgs = ffn_cfgs | dict(add_identity=False)
        branches = dict(attn_cfgs=attn_cfgs, ffn_cfgs=ffn_cfgs, norm_cfg=norm_cfg)
        # The branches drop no path: their norms come first.
        super().__init__(embed_dims, num_heads, window_size, **branches, **settings)
        self.norm3 = layer_norm(norm_cfg, embed_dims) if extra_norm else nn.Identity()
        self.drop_path = build_dropout(dict(type='DropPath', drop_prob=drop_path))

    def _build(self, embed_dims: int, norm_cfg: dict, attn_settings: Mapping, ffn_settings: Mapping) -> None:
        self.attn = ShiftWindowAttention(embed_dims, self.shape, **attn_settings)
        self.norm1 = layer_norm(norm_cfg, embed_dims)
        self.ffn = PluggedFFN(embed_dims, **ffn_settings)
        self.norm2 = layer_norm(norm_cfg, embed_dims)

    def init_weights(self):
        super().init_weights()
        # Every block starts as the identity, as in the authors' code.
        for parameter in (*self.norm1.parameters(), *self.norm2.parameters()):
            nn.init.zeros_(parameter)

    def forward(
        self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        plugs = self.plugs.bind()
        branch, carry = self.attn(x_BND, site, plugs, carry, record)
        x_BND = x_BND + plugs.residual('msa', self.drop_path(self.norm1(branch)), site, record)
        mlp = self.drop_path(self.norm2(self.ffn(x_BND, x_BND, plugs, site)))
        return self.norm3(x_BND + plugs.residual('mlp', mlp, site, record)), carry


class SwinStageV2(SwinStage):
    """The merging of patches, if any, and blocks of one resolution, of which every n-th ends with a norm, or none."""

    block_type, merging_type, MERGES_FIRST = SwinBlockV2, PostNormPatchMerging, True

    def __init__(
        self,
        embed_dims: int,
        depth: int,
        block_cfgs: Mapping | Sequence[Mapping] = dict(),
        extra_norm_every_n_blocks: int = 0,
        **settings,
    ):
        every = extra_norm_every_n_blocks
        block_cfgs = [
            dict(extra_norm=every > 0 and (index + 1) % every == 0) | block_cfg
            for index, block_cfg in enumerate(per_item(block_cfgs, depth, 'block_cfgs'))
        ]
        super().__init__(embed_dims, depth, block_cfgs=block_cfgs, **settings)


_archs = partial(named_archs, ('embed_dims', 'depths', 'num_heads', 'extra_norm_every_n_blocks'))


@MODELS.register_module()
class SwinTransformerV2(SwinTransformer):
    """Swin Transformer V2 with plugs.

    Plugs act inside the branches, before their norms: ``msa`` after the projection, ``mlp_end`` after the last layer of
    the MLP. Scores are the scaled cosines.

    Takes the arguments of :class:`~vitplug.backbones.swin.SwinTransformer` but ``out_after_downsample``, and these:

    Args:
        window_size: Side of the windows, of all stages or of each.
        pretrained_window_sizes: Where a checkpoint was trained with other windows, their side, of all stages or of
            each, so that position biases keep their scale; 0 where not.
    """

    arch_zoo = {
        **{name: arch | {'extra_norm_every_n_blocks': 0} for name, arch in SwinTransformer.arch_zoo.items()},
        **_archs('h huge', 352, [2, 2, 18, 2], [8, 16, 32, 64], 6),
        **_archs('g giant', 512, [2, 2, 42, 4], [16, 32, 64, 128], 6),
    }
    stage_type = SwinStageV2
    # The version that mmpretrain writes into its checkpoints.
    _version = 1

    def __init__(
        self,
        arch: str | Mapping = 'tiny',
        img_size: int | Sequence[int] = 256,
        *,
        window_size: int | Sequence[int] = 8,
        stage_cfgs: Mapping | Sequence[Mapping] = dict(),
        pretrained_window_sizes: int | Sequence[int] = 0,
        **settings,
    ):
        if isinstance(arch, Mapping):
            arch = {'extra_norm_every_n_blocks': 0, **arch}
        arch = choose_arch(arch, self.arch_zoo)
        count, every = len(arch['depths']), arch['extra_norm_every_n_blocks']
        windows = per_item(window_size, count, 'window_size')
        pretrained = per_item(pretrained_window_sizes, count, 'pretrained_window_sizes')
        stage_cfgs = [
            {'window_size': window, 'pretrained_window_size': before, 'extra_norm_every_n_blocks': every, **replaced}
            for window, before, replaced in zip(
                windows, pretrained, per_item(stage_cfgs, count, 'stage_cfgs'), strict=True
            )
        ]
        super().__init__(arch, img_size, out_after_downsample=False, stage_cfgs=stage_cfgs, **settings)

    def sections(self) -> list[Section]:
        stages = self.stages
        return self.sections_of((stage.blocks for stage in stages), [stage.downsample for stage in stages[1:]])


# Rows of each parameter that belong to one head: as wide as a head, or one.
_OF_HEADS = {'q_bias': True, 'v_bias': True, 'logit_scale': False, 'cpb_mlp.2.weight': False}


def _fit_checkpoint(attention: WindowAttentionV2, state_dict, prefix, *_) -> None:
    """Fills in the tables of the window, and makes a stock checkpoint fit the heads that plugs have made."""
    if f'{prefix}logit_scale' not in state_dict:
        return
    # They depend on the windows alone, so those of the checkpoint say nothing new.
    for name in ('relative_coords_table', 'relative_position_index'):
        state_dict[f'{prefix}{name}'] = getattr(attention, name)
    shape, dims, parameters = attention.shape, attention.qkv.in_features, dict(attention.named_parameters())
    for name, is_wide in _OF_HEADS.items():
        stock, parameter = state_dict.get(f'{prefix}{name}'), parameters.get(name)
        rows = dims if is_wide else dims // shape.head_dims
        if stock is not None and parameter is not None and len(stock) == rows != len(parameter):
            state_dict[f'{prefix}{name}'] = overlay(parameter, stock, dim=0)
