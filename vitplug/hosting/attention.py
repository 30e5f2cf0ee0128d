"""The attention branch of a block."""

from torch import Tensor, nn

from vitplug.attention import Carry, LayerRecord, PairBias, Site, attend_windows
from vitplug.attention.layouts import from_slots, to_slots
from vitplug.compat import register_load_state_dict_pre_hook
from vitplug.plugs import Bindable, BlockShape, Sockets

from .heads import fit_heads


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

    def forward(
        self, x_BND: Tensor, site: Site, plugs: Bindable, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        plugs, site = plugs.bind(), site.in_windows(x_BND.device)
        q, k, v = self.to_heads(x_BND, site)
        if carry:
            q, k, v = self.place(q, k, v, carry, site)
        out, carry = attend_windows(
            q,
            k,
            v,
            scale=self.scale,
            windows=site.num_windows,
            site=site,
            plugs=plugs,
            carry=carry,
            biases=self.biases(site),
            dropout_p=self.attn_drop if self.training else 0.0,
            record=record,
        )
        heads_BNe = out.transpose(1, 2).flatten(2)
        if site.slots is not None:
            heads_BNe = from_slots(heads_BNe.view(x_BND.shape[0], -1, heads_BNe.shape[2]), site.slots)
        return self.join_heads(heads_BNe, x_BND, site, plugs, carry, record), carry

    def join_heads(
        self, heads_BNe: Tensor, x_BND: Tensor, site: Site, plugs: Sockets, carry: Carry, record: LayerRecord | None
    ) -> Tensor:
        """Outputs of the heads, side by side, to tokens ``(B, N, D)``, with the sockets ``heads`` and ``msa``."""
        if plugs.heads or record is not None:
            of_queries = x_BND if site.entering is None else None
            heads_BNe = plugs.change_heads(heads_BNe, of_queries, site, carry, self.head_dims, record)
        tokens = self.proj(heads_BNe)
        drop = self._modules['proj_drop']  # read without a call of Python
        if drop is not None and drop.training:  # by its own mode, which Monte Carlo dropout switches alone
            tokens = drop(tokens)
        for module in plugs.msa:
            tokens = module(tokens, site)
        return tokens

    def to_heads(self, x_BND: Tensor, site: Site) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of tokens in windows, each ``(G, heads, N, d)``."""
        if site.slots is None:
            return self.split_heads(self.to_qkv(x_BND))
        slots, tokens = site.slots, site.layout.grid.num_tokens
        if slots.padding is None:
            return self.split_heads(self.to_qkv(to_slots(x_BND, slots).view(-1, tokens, x_BND.shape[2])))
        # A zero token projects to the bias, so pad after the projection, with the bias.
        qkv, bias = self.to_qkv(x_BND), self.qkv_bias
        qkv = to_slots(qkv, slots, None if bias is None else bias[None].to(qkv.dtype))
        return self.split_heads(qkv.view(-1, tokens, qkv.shape[2]))

    def place(self, q: Tensor, k: Tensor, v: Tensor, carry: Carry, site: Site) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v with the host's own rotary positions."""
        return q, k, v

    def biases(self, site: Site) -> tuple[PairBias, ...]:
        """The host's own position biases."""
        return ()

    def to_qkv(self, tokens: Tensor) -> Tensor:
        """q, k and v of tokens ``(..., D)``, side by side, ``(..., heads * d)``."""
        return self.qkv(tokens)

    @property
    def qkv_bias(self) -> Tensor | None:
        """The bias of q, k and v, side by side, ``(heads * d,)``; None for none."""
        modules: dict = self._modules  # read without a call of Python
        qkv = modules['qkv']
        return qkv._modules.get('original_layer', qkv).bias  # mmpretrain's LoRA wraps it

    def split_heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, each ``(G, heads, N, d)``, of ``(G, N, heads * d)``."""
        shape = self.shape
        heads = (shape.map_heads, shape.map_heads, shape.value_heads)
        if heads[0] == heads[2] and not qkv.requires_grad:
            q, k, v = qkv.unflatten(-1, (3, heads[0], shape.head_dims)).permute(2, 0, 3, 1, 4).unbind(0)
            return q, k, v
        # More views, and a copy less in backward, which puts the three gradients side by side.
        q, k, v = qkv.unflatten(-1, (-1, shape.head_dims)).split_with_sizes(heads, 2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
