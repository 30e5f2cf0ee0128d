"""The layers of the Lite Vision Transformer, with the parameter names and shapes of the authors' code.

*Lite Vision Transformer with Enhanced Self-Attention*: convolutional self-attention (section 3.1), recursive atrous
self-attention (3.2), MLPs with a depthwise convolution, and class attention.
"""

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from vitplug.attention import Attention, Carry, LayerRecord, Site, attend, fused
from vitplug.attention.grids import ceil_div
from vitplug.compat import register_load_state_dict_pre_hook
from vitplug.hosting import Mlp, fit_heads
from vitplug.plugs import BLOCK_SOCKETS, BlockShape, LayerPlugs
from vitplug.plugs.sockets import STREAM_SOCKETS, TOKEN_SOCKETS

from .patch_embed import to_map, to_tokens


class StartedByOutputs(nn.Conv2d):
    """A convolution that starts as the authors': variance 2 / (entries of the kernel * output channels), bias 0."""

    def reset_parameters(self) -> None:
        """Draws the weights."""
        super().reset_parameters()
        fan_out = self.weight[0, 0].numel() * self.out_channels
        nn.init.normal_(self.weight, std=(2 / fan_out) ** 0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class ConvolutionalAttention(BaseModule):
    """Convolutional self-attention (CSA): maps inside 3 x 3 neighbourhoods, made from one token each::

        A_c = softmax(scale * (W_A mean of the 2 x 2 tokens at c + b_A))     9 x 9 for each head
        v_i = W_i x_i                                                        its own W_i for each of the 9 places
        y_i = sum over the neighbourhoods c with i of sum_j A_c[i, j] v_j

    The neighbourhoods are 2 tokens apart. Each of the ``num_heads`` heads ``H`` has maps of its own. Without q, k and
    maps of all tokens, it offers token sockets only.
    """

    sockets = (*TOKEN_SOCKETS, *STREAM_SOCKETS)
    #: Side, padding and distance of the neighbourhoods.
    SIDE, PAD, STEP = 3, 1, 2

    def __init__(self, embed_dims: int, num_heads: int, attn_drop: float = 0.0, proj_drop: float = 0.0):
        super().__init__()
        places = self.SIDE**2
        self.num_heads = num_heads
        self.scale = (embed_dims // num_heads) ** -0.5
        self.attn = nn.Linear(embed_dims, num_heads * places**2)
        self.attn_drop = nn.Dropout(attn_drop)
        # The W_i below each other.
        self.weight = StartedByOutputs(places * embed_dims, places * embed_dims, 1, groups=places, bias=False)
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(
        self, x_BND: Tensor, site: Site, plugs: LayerPlugs, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` in and out; the carry as it is."""
        hw = site.layout.hw
        x_BDhw = to_map(x_BND, hw)
        out_BCHkd = self._maps(x_BDhw) @ self._values(x_BDhw)
        patches_BDC = out_BCHkd.permute(0, 2, 4, 3, 1).flatten(1, 3)
        x_BDhw = F.fold(patches_BDC, hw, self.SIDE, padding=self.PAD, stride=self.STEP)
        return plugs.tokens('msa', self.proj_drop(self.proj(to_tokens(x_BDhw))), site), carry

    def _maps(self, x_BDhw: Tensor) -> Tensor:
        """Maps of the ``C`` neighbourhoods, ``(B, C, H, 9, 9)``."""
        centres_BCD = to_tokens(F.avg_pool2d(x_BDhw, self.STEP, ceil_mode=True))
        logits = self.scale * self.attn(centres_BCD).unflatten(-1, (self.num_heads, self.SIDE**2, self.SIDE**2))
        return self.attn_drop(logits.softmax(-1))

    def _values(self, x_BDhw: Tensor) -> Tensor:
        """Values of the ``C`` neighbourhoods, ``(B, C, H, 9, d)``."""
        batch, dims = x_BDhw.shape[:2]
        patches_BDC = F.unfold(x_BDhw, self.SIDE, padding=self.PAD, stride=self.STEP)
        patches_kBCD = patches_BDC.unflatten(1, (dims, -1)).permute(2, 0, 3, 1)
        weight_kDD = self.weight.weight.view(-1, dims, dims)
        values_kBCD = (patches_kBCD.flatten(1, 2) @ weight_kDD.mT).unflatten(1, (batch, -1))
        return values_kBCD.unflatten(-1, (self.num_heads, -1)).permute(1, 2, 3, 0, 4)


class AtrousConv(nn.Conv2d):
    """A 3 x 3 depthwise convolution at three rates with one kernel: ``sum_r silu(W *_r x)``."""

    #: Distances of the kernel's entries.
    RATES = (1, 3, 5)

    def __init__(self, dims: int):
        super().__init__(dims, dims, 3, groups=dims, bias=False)

    def reset_parameters(self) -> None:
        """Draws the kernel."""
        super().reset_parameters()
        nn.init.kaiming_uniform_(self.weight)

    def forward(self, x_BDhw: Tensor) -> Tensor:
        """A map ``(B, D, h, w)`` in and out."""
        return sum(
            F.silu(F.conv2d(x_BDhw, self.weight, padding=rate, dilation=rate, groups=self.groups))
            for rate in self.RATES
        )


class RecursiveAttention(BaseModule):
    """Recursive atrous self-attention (RASA): one attention, twice over, with the same weights::

        y_1 = silu(attention(x))
        y_2 = silu(attention(x + y_1))                      the output

    q passes through :class:`AtrousConv`. k and v come from a convolution whose stride is its kernel size; maps are
    padded to whole strides at bottom and right.

    **Plugs.** Both times begin with the carry of the block before, and call the sockets from ``qkv`` to ``heads``. The
    carry of the second is handed on, and the second is recorded. ``msa`` acts on ``y_2``.

    Args:
        embed_dims: Width of a token, ``D``.
        shape: The heads.
        sr_ratio: Stride of the keys.
        attn_drop: Drop rate of the probabilities.
        proj_drop: Drop rate after the projection, before ``silu``.
    """

    sockets = BLOCK_SOCKETS

    def __init__(
        self, embed_dims: int, shape: BlockShape, sr_ratio: int, attn_drop: float = 0.0, proj_drop: float = 0.0
    ):
        super().__init__()
        self.embed_dims = embed_dims
        self.shape = shape
        self.scale = shape.head_dims**-0.5
        self.sr_ratio = sr_ratio
        self.attn_drop = attn_drop
        maps, values = shape.map_heads * shape.head_dims, shape.value_heads * shape.head_dims
        # A block that reuses the map of an earlier one has neither q nor k.
        self.q = nn.Linear(embed_dims, maps, bias=False) if maps else None
        self.ds = AtrousConv(maps) if maps else None
        self.kv = nn.Linear(embed_dims, maps + values, bias=False)
        self.proj = nn.Linear(shape.out_heads * shape.head_dims, embed_dims)
        self.proj_drop = nn.Dropout(proj_drop)
        self.sr = self.norm = None
        if sr_ratio > 1:
            self.sr = StartedByOutputs(embed_dims, embed_dims, sr_ratio, stride=sr_ratio)
            self.norm = nn.LayerNorm(embed_dims)
        register_load_state_dict_pre_hook(self, fit_heads)

    @property
    def projected_heads(self) -> dict[str, tuple[int, ...]]:
        """As in :class:`~vitplug.hosting.SelfAttention`."""
        maps = self.shape.map_heads
        return {'q': (maps,), 'ds': (maps,), 'kv': (maps, self.shape.value_heads)}

    def forward(
        self, x_BND: Tensor, site: Site, plugs: LayerPlugs, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        site = site.in_windows(x_BND.device)
        x_BND = x_BND + self._attend(x_BND, site, plugs, carry)[0]
        out_BND, carry = self._attend(x_BND, site, plugs, carry, record)
        return plugs.tokens('msa', out_BND, site), carry

    def _attend(self, x_BND, site: Site, plugs, carry, record=None) -> tuple[Tensor, Carry]:
        """The attention once, and its carry."""
        out_BWHNd, carry = attend(
            self._queries(x_BND, site.layout.hw),
            *self._keys_and_values(x_BND, site.layout.hw),
            scale=self.scale,
            site=site,
            plugs=plugs,
            carry=carry,
            dropout_p=self.attn_drop if self.training else 0.0,
            record=record,
        )
        heads_BNe = site.layout.from_windows(out_BWHNd.transpose(2, 3).flatten(3))
        heads_BNe = plugs.change_heads(heads_BNe, x_BND, site, carry, self.shape.head_dims, record)
        return F.silu(self.proj_drop(self.proj(heads_BNe))), carry

    def _queries(self, x_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        """``(B, 1, H, N, d)``."""
        q_BNe = x_BND.new_empty(*x_BND.shape[:2], 0) if self.q is None else self.q(x_BND)
        if self.ds is not None:
            q_BNe = to_tokens(self.ds(to_map(q_BNe, hw)))
        return self._split_heads(q_BNe, self.shape.map_heads)

    def _keys_and_values(self, x_BND: Tensor, hw: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """``(B, 1, H, Nk, d)`` each."""
        if self.sr is not None:
            x_BND = self.norm(to_tokens(self.sr(_pad_to_whole(to_map(x_BND, hw), self.sr_ratio))))
        heads = (self.shape.map_heads, self.shape.value_heads)
        return self._split_heads(self.kv(x_BND), sum(heads)).split(heads, dim=2)

    def _split_heads(self, x_BNe: Tensor, heads: int) -> Tensor:
        """``(B, N, heads * d)`` to ``(B, 1, heads, N, d)``."""
        return x_BNe.unflatten(-1, (heads, self.shape.head_dims)).transpose(1, 2).unsqueeze(1)


def _pad_to_whole(x_BDhw: Tensor, stride: int) -> Tensor:
    """Zeros at bottom and right up to a multiple of the stride."""
    below, beside = (ceil_div(side, stride) * stride - side for side in x_BDhw.shape[2:])
    return F.pad(x_BDhw, (0, beside, 0, below)) if torch.compiler.is_compiling() or below or beside else x_BDhw


class PointwiseConv(nn.Conv2d):
    """A linear layer of tokens whose weight has the shape of a 1 x 1 convolution's."""

    def __init__(self, in_dims: int, out_dims: int):
        super().__init__(in_dims, out_dims, 1)

    def forward(self, x_BND: Tensor) -> Tensor:
        return F.linear(x_BND, self.weight.flatten(1), self.bias)


class ConvMlp(BaseModule):
    """An MLP with a 3 x 3 depthwise convolution before its activation, and the token sockets."""

    def __init__(self, embed_dims: int, hidden_dims: int, drop: float = 0.0):
        super().__init__()
        self.fc1 = PointwiseConv(embed_dims, hidden_dims)
        self.depconv = nn.Conv2d(hidden_dims, hidden_dims, 3, padding=1, groups=hidden_dims)
        self.fc2 = PointwiseConv(hidden_dims, embed_dims)
        self.drop = nn.Dropout(drop)

    def forward(self, x_BND: Tensor, plugs: LayerPlugs, site: Site) -> Tensor:
        """Tokens ``(B, N, D)`` in and out."""
        hidden_BND = self.fc1(plugs.tokens('mlp_front', x_BND, site))
        hidden_BND = to_tokens(self.depconv(to_map(hidden_BND, site.layout.hw)))
        hidden_BND = plugs.tokens('mlp_mid', self.drop(F.gelu(hidden_BND)), site)
        return plugs.tokens('mlp_end', self.drop(self.fc2(hidden_BND)), site)


class ClassAttention(BaseModule):
    """Attention of the class token to all tokens."""

    def __init__(self, embed_dims: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.kv = nn.Linear(embed_dims, 2 * embed_dims, bias=False)
        self.q = nn.Linear(embed_dims, embed_dims, bias=False)
        self.proj = nn.Linear(embed_dims, embed_dims)

    def forward(self, x_BND: Tensor) -> Tensor:
        """The new class token ``(B, 1, D)`` of tokens ``(B, 1 + N, D)``, the class token first."""
        q, k, v = (
            t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for t in (self.q(x_BND[:, :1]), *self.kv(x_BND).chunk(2, dim=-1))
        )
        out_BHNd = fused(Attention(q, k, v, scale=q.shape[-1] ** -0.5))
        return self.proj(out_BHNd.transpose(1, 2).flatten(2))


class ClassBlock(BaseModule):
    """A block that changes the class token only: class attention, then MLP."""

    def __init__(self, embed_dims: int, num_heads: int, hidden_dims: int, drop: float = 0.0):
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dims)
        self.attn = ClassAttention(embed_dims, num_heads)
        self.norm2 = nn.LayerNorm(embed_dims)
        self.mlp = Mlp(embed_dims, hidden_dims, drop_rate=drop)

    def forward(self, x_BND: Tensor) -> Tensor:
        """Tokens ``(B, 1 + N, D)`` in and out, the class token first."""
        cls_B1D = x_BND[:, :1] + self.attn(self.norm1(x_BND))
        cls_B1D = cls_B1D + self.mlp.out(self.mlp.hidden(self.norm2(cls_B1D)))
        return torch.cat((cls_B1D, x_BND[:, 1:]), dim=1)
