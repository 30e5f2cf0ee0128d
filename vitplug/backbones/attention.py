"""The projections around attention, which all hosts have alike."""

from mmengine.model import BaseModule
from torch import Tensor, nn

from vitplug.plugs import BlockShape


class AttentionProjections(BaseModule):
    """Projections to q, k and v and back to tokens.

    Args:
        embed_dims: Width of a token, ``D``.
        shape: The heads.
        qkv_bias: Whether q, k and v have a bias.
        qk_scale: Factor of the dot products; ``d ** -0.5`` by default.
        attn_drop: Drop rate of the probabilities.
        proj_drop: Drop rate after the projection.
    """

    def __init__(self, embed_dims: int, shape: BlockShape, qkv_bias=True, qk_scale=None, attn_drop=0.0, proj_drop=0.0):
        super().__init__()
        self.shape = shape
        self.scale = qk_scale or shape.head_dims**-0.5
        self.attn_drop = attn_drop
        heads = 2 * shape.map_heads + shape.value_heads
        self.qkv = nn.Linear(embed_dims, heads * shape.head_dims, bias=qkv_bias)
        self.proj = nn.Linear(shape.out_heads * shape.head_dims, embed_dims)
        self.proj_drop = nn.Dropout(proj_drop)

    @property
    def dropout_p(self) -> float:
        """Drop rate of the probabilities in the present mode."""
        return self.attn_drop if self.training else 0.0

    def split_qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens ``(..., D)`` to q, k and v, each ``(..., heads, d)``."""
        heads = (self.shape.map_heads, self.shape.map_heads, self.shape.value_heads)
        return self.qkv(x).unflatten(-1, (-1, self.shape.head_dims)).split(heads, dim=-2)
