"""The attention branch of a block."""

from itertools import repeat
from math import prod

import torch
from torch import Tensor, nn

from vitplug.attention import Carry, LayerRecord, Layout, PairBias, Site, attend
from vitplug.compat import is_exporting, register_load_state_dict_pre_hook, replace
from vitplug.plugs import BlockShape, LayerPlugs

from .heads import fit_heads
from .parts import num_parts


class SelfAttention(nn.Module):
    """Multi-head self-attention, of a whole image or inside windows: projections around the one core.

    Args:
        embed_dims: Width of a token, ``D``.
        shape: The heads.
        qkv_bias: Whether q, k and v have a bias.
        qk_scale: Factor of the dot products; ``d ** -0.5`` by default.
        attn_drop: Drop rate of the probabilities.
        proj_drop: Drop rate after the projection.
        in_dims: Width of the tokens that come in, where it is another.
    """

    #: Names of parameters with a column for each head that has a map.
    head_tables: tuple[str, ...] = ()

    def __init__(
        self,
        embed_dims: int,
        shape: BlockShape,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        in_dims: int | None = None,
    ):
        super().__init__()
        self.shape = shape
        # As mmpretrain names them. Heads are those that have v; plugs may have taken q and k from some.
        self.embed_dims, self.num_heads, self.head_dims = embed_dims, shape.value_heads, shape.head_dims
        self.scale = qk_scale or shape.head_dims**-0.5
        self.attn_drop = attn_drop
        heads = 2 * shape.map_heads + shape.value_heads
        self.qkv = nn.Linear(in_dims or embed_dims, heads * shape.head_dims, bias=qkv_bias)
        self.proj = nn.Linear(shape.out_heads * shape.head_dims, embed_dims)
        self.proj_drop = nn.Dropout(proj_drop)
        register_load_state_dict_pre_hook(self, fit_heads)

    @property
    def projected_heads(self) -> dict[str, tuple[int, ...]]:
        """For each projection to heads, by its name, how many of them are q's, k's and v's, in the rows' order."""
        return {'qkv': (self.shape.map_heads, self.shape.map_heads, self.shape.value_heads)}

    @property
    def dropout_p(self) -> float:
        """Drop rate of the probabilities in the present mode."""
        return self.attn_drop if self.training else 0.0

    def forward(
        self, x_BND: Tensor, site: Site, plugs: LayerPlugs, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        heads_BWNe, carry = self._in_windows(x_BND, site.in_windows(x_BND.device), plugs, carry, record)
        heads_BNe = site.layout.from_windows(heads_BWNe)
        of_queries_BND = x_BND if site.entering is None else None
        tokens = self.proj(plugs.change_heads(heads_BNe, of_queries_BND, site, carry, self.head_dims, record))
        return plugs.tokens('msa', self.proj_drop(tokens), site), carry

    def _in_windows(
        self, x_BND: Tensor, site: Site, plugs: LayerPlugs, carry: Carry, record: LayerRecord | None
    ) -> tuple[Tensor, Carry]:
        """Outputs of the heads, side by side, ``(B, W, N, heads * d)``, and the carry; in inference by some windows."""
        layout = site.layout
        apart = plugs.keeps_windows_apart and record is None
        parts = min(num_parts(x_BND, self), prod(layout.windows)) if apart else 1
        if parts == 1:
            return self._attend(self.project(x_BND, layout), site, plugs, carry, record)
        masks = repeat(None) if site.mask is None else site.mask.chunk(parts, dim=1)
        valids = repeat(None) if site.valid_keys is None else site.valid_keys.chunk(parts, dim=1)
        windows = zip(layout.to_windows(x_BND).chunk(parts, dim=1), masks, valids, strict=False)
        outs = [
            self._attend(self.to_qkv(some), replace(site, mask=mask, valid_keys=valid), plugs, carry)[0]
            for some, mask, valid in windows
        ]
        return torch.cat(outs, dim=1), carry

    def _attend(
        self, qkv: Tensor, site: Site, plugs: LayerPlugs, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """The same from q, k and v of windows, side by side."""
        q, k, v = (t.transpose(2, 3) for t in self.split_heads(qkv))
        out_BWHNd, carry = attend(
            *self.place(q, k, v, carry, site),
            scale=self.scale,
            site=site,
            plugs=plugs,
            carry=carry,
            biases=self.biases(site),
            dropout_p=self.dropout_p,
            record=record,
        )
        return out_BWHNd.transpose(2, 3).flatten(3), carry

    def place(
        self, q_BWHNd: Tensor, k_BWHNd: Tensor, v_BWHNd: Tensor, carry: Carry, site: Site
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v with the host's own rotary positions."""
        return q_BWHNd, k_BWHNd, v_BWHNd

    def biases(self, site: Site) -> tuple[PairBias, ...]:
        """The host's own position biases."""
        return ()

    def project(self, x_BND: Tensor, layout: Layout) -> Tensor:
        """q, k and v of tokens in windows, side by side, ``(B, W, N, heads * d)``."""
        # A graph that is exported for all sizes pads tokens, of which a linear layer makes the same.
        if is_exporting() or not layout.is_padded:
            return self.to_qkv(layout.to_windows(x_BND))
        # A zero token projects to the bias, so pad after the projection, with the bias.
        qkv, bias = self.to_qkv(x_BND), self.qkv_bias
        return layout.to_windows(qkv, None if bias is None else bias[None].to(qkv.dtype))

    def to_qkv(self, tokens: Tensor) -> Tensor:
        """q, k and v of tokens ``(..., D)``, side by side, ``(..., heads * d)``."""
        return self.qkv(tokens)

    @property
    def qkv_bias(self) -> Tensor | None:
        """The bias of q, k and v, side by side, ``(heads * d,)``; None for none."""
        return self.qkv.bias

    def split_heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, each ``(..., heads, d)``."""
        heads = (self.shape.map_heads, self.shape.map_heads, self.shape.value_heads)
        return qkv.unflatten(-1, (-1, self.shape.head_dims)).split(heads, dim=-2)
