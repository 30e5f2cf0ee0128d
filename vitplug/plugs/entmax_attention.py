"""Sparse attention: *Adaptively Sparse Transformers* (Correia et al., EMNLP 2019)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..attention.carry import Carry
from ..attention.precision import at_least_float32
from ..attention.site import Site
from .checks import check_flag, check_number
from .learned import LearnedVectors
from .plug import LayerPlan, Plug

# Newton's steps to the threshold. The most keys and alpha near 2 need most: 10 left no error of 16,384 keys at 2.
NEWTON_STEPS = {torch.float32: 12, torch.float64: 14}
# Nearer to 1 the powers of entmax lose all digits, and softmax stands for it.
NEAR = 1e-3


class EntmaxAttention(Plug):
    """alpha-entmax in place of the softmax, whose rows have exact zeros::

        p_i = [(alpha - 1) z_i - tau]_+ ^ (1 / (alpha - 1))          sum_i p_i = 1

    alpha = 1 is the softmax, 1.5 entmax-1.5 and 2 sparsemax. All maps are formed: it is no fused form.

    Args:
        alpha: From 1 to 2 (its start, if learned).
        learnable: Whether each head learns its alpha, between 1 and 2.

    Raises:
        ValueError: If an argument is none of these.
    """

    name = 'entmax_attention'
    short_name = 'entmax'
    watched = {'entmax_alpha': 'alpha'}

    def __init__(self, alpha: float = 1.5, learnable: bool = False, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.alpha = check_number('alpha', alpha, least=1.0, most=2.0)
        self.learnable = check_flag('learnable', learnable)
        self.identity_start = self.alpha == 1

    def learned_values(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """alpha as it acts, between 1 and 2."""
        return {symbol: value.clamp(1, 2) for symbol, value in super().learned_values(tensors).items()}

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'normalise': Entmax(plan.num_heads if self.learnable else 0, self.alpha)}


class Entmax(LearnedVectors):
    """``entmax_alpha`` of shape ``(H,)`` where it is learned; with no heads it is the constant."""

    entmax_alpha: nn.Parameter

    def __init__(self, heads: int, alpha: float):
        super().__init__(heads, **(dict(entmax_alpha=alpha) if heads else {}))
        self.alpha, self.is_learned = alpha, heads > 0

    def project_parameters(self) -> None:
        """Brings a learned alpha back that the last step left outside; sharded trainings call it on the shards."""
        if self.is_learned:
            self.entmax_alpha.data.clamp_(1, 2)

    def forward(self, logits: Tensor, site: Site, carry: Carry) -> Tensor:
        z = logits.to(at_least_float32(logits.dtype))
        if not self.is_learned:
            return _Entmax.apply(z, self.alpha, NEAR)
        if self.training:
            self.project_parameters()
        return _Entmax.apply(z, self.entmax_alpha.to(z.dtype).clamp(1, 2), NEAR)


class _Entmax(torch.autograd.Function):
    """Over the last axis of ``(B, W, H, Nq, Nk)``, with a number as alpha, or a tensor ``(H or 1,)`` from 1 to 2.

    ``near`` is :data:`NEAR`, an argument for torch's compiler: with open sizes it fails at a module's number in here.

    The gradients are those of Correia et al., Eq. (9) and Proposition 1; at alpha = 1 its limit, half of
    ``p_i (sum_j p_j log^2 p_j - log^2 p_i)``.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, alpha: Tensor | float, near: float) -> Tensor:
        ctx.near, ctx.alpha = near, None if isinstance(alpha, Tensor) else alpha
        if isinstance(alpha, Tensor):
            rest = alpha.detach().view(1, 1, -1, 1, 1) - 1
            p = torch.where(rest < near, z.softmax(-1), _by_newton(z, rest.clamp(min=near)))
        elif alpha - 1 < near:
            p = z.softmax(-1)
        else:
            p = _by_newton(z, alpha - 1)
        ctx.save_for_backward(p, *([alpha] if isinstance(alpha, Tensor) else []))
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        p, *learned = ctx.saved_tensors
        alpha = learned[0].view(1, 1, -1, 1, 1) if learned else ctx.alpha
        slope = _power(p, 2 - alpha)
        slope_of_one = slope / slope.sum(-1, keepdim=True)
        grad_z = slope * (grad - (slope_of_one * grad).sum(-1, keepdim=True))
        if not ctx.needs_input_grad[1]:
            return grad_z, None, None
        logs = torch.where(p > 0, p.clamp(min=torch.finfo(p.dtype).tiny).log(), 0)
        entropy = -p * logs
        rest = (alpha - 1).clamp(min=ctx.near)
        of_power = (p - slope_of_one) / rest**2 + (entropy - slope_of_one * entropy.sum(-1, keepdim=True)) / rest
        of_softmax = p * ((p * logs**2).sum(-1, keepdim=True) - logs**2) / 2
        by_alpha = grad * torch.where(alpha - 1 < ctx.near, of_softmax, of_power)
        dims = (0, 1, 3, 4) if alpha.numel() > 1 else (0, 1, 2, 3, 4)
        return grad_z, by_alpha.sum(dims).view_as(learned[0]), None


def _by_newton(z: Tensor, rest: Tensor | float) -> Tensor:
    """entmax for alpha from 1 to 2, ``rest`` being alpha - 1.

    The p-norm of ``[z - t]_+``, p = 1 / rest, is 1 at the threshold t. It is convex in t and nearly straight, so that
    Newton's steps from below come to the last digit sooner than a sort of the logits, for any alpha.
    """
    p, z = 1 / rest, z * rest
    low = z.amax(-1, keepdim=True) - 1
    for _ in range(NEWTON_STEPS[z.dtype]):
        x = (z - low).clamp(min=0)
        slopes = _power(x, p - 1)
        total = (slopes * x).sum(-1, keepdim=True)
        norm = total**rest
        low = low + (norm - 1) * total / norm / slopes.sum(-1, keepdim=True)
    powers = _power((z - low).clamp(min=0), p)
    return powers / powers.sum(-1, keepdim=True)


def _power(x: Tensor, exponent: Tensor | float) -> Tensor:
    """``x ** exponent`` of numbers from 0 on, and 0 where x is 0 whatever the exponent."""
    if not isinstance(exponent, Tensor) and exponent > 0:
        return x**exponent
    return torch.where(x > 0, x.clamp(min=torch.finfo(x.dtype).tiny) ** exponent, 0)
