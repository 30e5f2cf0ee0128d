"""Refiner: attention maps expanded, convolved and reduced before they meet the values.

*Refiner: Refining Self-attention for Vision Transformers*, Figure 3 and the equations of its "attention
expansion", "distributed local attention" (DLA) and "attention reduction"; the convolution's constraints
and the sharing of maps are those of its ablations. With H heads and H' = r H::

    A = softmax(q k^T)   (H, N, N)
    |
    W_E   1x1, H -> H'          expansion: new maps as mixtures of heads
    |
    C     k x k, depthwise      DLA: each map convolved over its N x N plane
    |
    W_R   1x1, H' -> H          reduction
    |
    A~                          not normalised again, by intention
    |
    A~ @ v

All three are linear and without bias, hence together one dense convolution H -> H, whatever r::

    K_eff[h, g] = sum_h' W_R[h, h'] K[h'] W_E[h', g]        (k x k each)

That form is computed: it never holds the H' maps, and its cost does not depend on r.

The official code (https://github.com/zhoudaquan/Refiner_ViT, models/refined_transformer.py) goes another way, which
is ``scheme='official'``. Its blocks form pairs; with s = d^-0.5 and the bottleneck chain B, maps of pair i are::

    A_i   = softmax(s q k^T) + s A_(i-1)     (H, N, N)   in the first block; the first pair has nothing to add
    A~_i  = s B(A_i)                         (H, N, N)   in the second, which has neither q nor k

and A_i, neither refined nor scaled, is what the next pair adds. The branches of all its blocks weigh twice, the MLP's
times a learned scale of every channel, ``(D,)``, which starts at 1e-5::

    x + 2 MSA(LN x)        x + 2 scale MLP(LN x)
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.carry import Carry, carrying
from ..attention.grids import TokenGrid
from ..attention.kernels import ROWS_FROM, Attention, attend_to_convolved, channels_last, fused
from ..attention.precision import without_autocast
from .checks import check_choice, check_flag, check_integer
from .plug import BlockShape, LayerPlan, Plug

KEY = 'refiner'
NOISE_STD = 0.02
SCALE_START = 1e-5
# Entries of the maps of one image that fill a processor's cache: 1 MB of float32.
MAPS_IN_CACHE = 1 << 18


class Refiner(Plug):
    """Refines the attention maps between softmax and values.

    Args:
        expansion: Maps per head after the expansion, ``r``. 0 is DLA alone: no mixing of heads.
        kernel_size: Side ``k`` of the convolution, odd.
        reduction: Whether the maps are reduced to H again. Otherwise map ``h'`` serves value head
            ``h' // r``, and the r H outputs enter a projection r times as wide.
        constraint: What the convolution sees. ``'none'``: the N x N plane of flattened tokens, class token
            included (the paper's best); ``'spatial'``: each query's row as an image on the key grid, the
            columns of prefix keys being mixed but not convolved; ``'rowcol'``: a line of k keys and a line
            of k queries.
        mode: ``'linear'`` (paper) or ``'mbconv'``, the inverted bottleneck of the official code: a batch norm
            after each convolution, ReLU6 after the first two, a shortcut and one more batch norm. ``'none'``:
            maps are not refined and have no parameters; only ``share`` acts (plain attention in Table 13).
        share: Blocks after a refined one that reuse its refined map: they have neither q, k nor a Refiner.
            The plug's blocks form groups of ``1 + share``. Not for windowed hosts.
        init: ``'identity'`` starts as the plain host, with noise that cancels out but sets the r copies of a
            head apart; ``'default'`` is PyTorch's for convolutions. Without reduction ``'identity'``
            repeats each map r times: the host itself with ``value_split``, or with a stock checkpoint's
            projection, which is spread over the copies on loading; otherwise, the projection being new,
            r copies of the host's attention. ``'mbconv'`` has ``'default'`` only.
        rowcol_mode: Whether the two lines of ``'rowcol'`` are summed (``'sum'``) or one convolves the
            result of the other (``'sequential'``).
        value_split: Without reduction: map ``h'`` serves a slice of width d / r of value head ``h' // r``
            instead, and the projection stays as it is.
        rescale_by_tokens: For ``'mbconv'``, whose batch norms depend on the size 1 / N of the probabilities:
            whether they are multiplied by N over a reference. None: in evaluation only, the reference being
            the N of the last training forward (before any, that of the configured image size), so that
            nothing changes at that N. True: always, the reference being the configured N. False: never.
        scheme: ``'paper'``: a refined map is what its block uses and what is reused. ``'official'``: what the blocks
            of the official Refined-ViT-S/M/L compute, see above; for ``mode='mbconv'`` and ``share=1``. Their
            norms see ``x / 2``, which is a LayerNorm of 4 times the epsilon and the host's to have:
            ``layer_cfgs=dict(norm_cfg=dict(type='LN', eps=4e-6))``. Of the drop rates, ``attn_drop_rate`` alone
            differs: here the softmax is dropped, there the sum with the map handed on. The code's losses
            and dense head are not the plug's.
        layers: Blocks that get it, see :class:`Plug`.

    Raises:
        ValueError: If an argument is none of these, arguments exclude each other, or blocks cannot use each
            other's maps.
    """

    name = KEY
    shape_rank = 1

    def __init__(
        self,
        expansion: int = 3,
        kernel_size: int = 3,
        reduction: bool = True,
        constraint: str = 'none',
        mode: str = 'linear',
        share: int = 0,
        init: str = 'identity',
        rowcol_mode: str = 'sum',
        value_split: bool = False,
        rescale_by_tokens: bool | None = None,
        scheme: str = 'paper',
        layers: str | Sequence[int] = 'all',
    ):
        super().__init__(layers)
        self.expansion = check_integer('expansion', expansion, least=0)
        self.kernel_size = check_integer('kernel_size', kernel_size, least=1)
        self.reduction = check_flag('reduction', reduction)
        self.constraint = check_choice('constraint', constraint, ('none', 'spatial', 'rowcol'))
        self.mode = check_choice('mode', mode, ('linear', 'mbconv', 'none'))
        self.share = check_integer('share', share, least=0)
        self.init = check_choice('init', init, ('identity', 'default'))
        self.rowcol_mode = check_choice('rowcol_mode', rowcol_mode, ('sum', 'sequential'))
        self.value_split = check_flag('value_split', value_split)
        self.rescale_by_tokens = check_choice('rescale_by_tokens', rescale_by_tokens, (None, True, False))
        self.scheme = check_choice('scheme', scheme, ('paper', 'official'))
        if kernel_size % 2 == 0:
            raise ValueError(f'kernel_size={kernel_size}: expected an odd integer')
        if not reduction and expansion == 0:
            raise ValueError('reduction=False: expansion=0 has nothing to reduce; expected expansion of at least 1')
        if value_split and reduction:
            raise ValueError('value_split=True goes with reduction=False only')
        if rowcol_mode != 'sum' and constraint != 'rowcol':
            raise ValueError(f"rowcol_mode={rowcol_mode!r} goes with constraint='rowcol' only, not {constraint!r}")
        if mode == 'none':
            self._check_none()
        elif mode == 'mbconv':
            self._check_mbconv()
        elif rescale_by_tokens is not None:
            raise ValueError(f"rescale_by_tokens={rescale_by_tokens} goes with mode='mbconv' only, not {mode!r}")
        if scheme == 'official' and (mode, share) != ('mbconv', 1):
            raise ValueError(f"scheme='official' goes with mode='mbconv' and share=1 only, not {mode!r} and {share}")

    def _check_mbconv(self) -> None:
        wanted = dict(constraint='none', reduction=True, init='default')
        wrong = [f'{key}={value!r}' for key, value in wanted.items() if getattr(self, key) != value]
        wrong += ['expansion of at least 1'] * (self.expansion == 0)
        if wrong:
            raise ValueError(f"mode='mbconv' has no such variant: it needs {', '.join(wrong)}")

    def _check_none(self) -> None:
        defaults = {key: p.default for key, p in inspect.signature(Refiner).parameters.items()}
        others = defaults.keys() - {'mode', 'share', 'layers'}
        wrong = [f'{key}={getattr(self, key)!r}' for key in sorted(others) if getattr(self, key) != defaults[key]]
        if wrong:
            raise ValueError(f"mode='none' refines nothing: leave out {', '.join(wrong)}")
        if not self.share:
            raise ValueError("mode='none' changes nothing with share=0: expected share of at least 1")

    @property
    def copies(self) -> int:
        """Maps per head that meet the values."""
        return 1 if self.reduction else self.expansion

    def shape_block(self, shape: BlockShape, index: int, num_layers: int) -> BlockShape:
        indices = self.layer_indices(num_layers)
        if index not in indices:
            return shape
        if not self.value_split:
            out_heads = shape.out_heads + (self.copies - 1) * shape.map_heads
            shape = replace(shape, out_heads=out_heads, repeats=self.copies)
        reuses = indices.index(index) % (1 + self.share) > 0
        return replace(shape, map_heads=0) if reuses else shape

    def build_layers(self, plans: Sequence[LayerPlan]) -> Sequence[Mapping[str, nn.Module]]:
        if self.scheme == 'official':
            return self._build_official(plans)
        built = []
        for i, plan in enumerate(plans):
            turn = i % (1 + self.share)
            module = self._build_reuse(plan, plans[i - turn], turn) if turn else self._build_refine(plan)
            built.append({'map': module})
        return built

    def _build_official(self, plans: Sequence[LayerPlan]) -> Sequence[Mapping[str, nn.Module]]:
        if len(plans) % 2:
            raise ValueError(f"Refiner: scheme='official' pairs blocks, and {len(plans)} are odd; choose other layers")
        built = []
        for first, second in zip(plans[::2], plans[1::2], strict=True):
            self._check_refinable(first)
            self._check_addable(first, plans[0])
            self._check_reusable(second, first, turn=1)
            scale = first.shape.head_dims**-0.5
            refine = RefinedReuse(first.num_heads, first.grid.num_tokens, scale, self)
            for module in (ResidualMap(scale), refine):
                built.append({'map': module, 'msa': Doubled(), 'mlp_end': DoubledScale(first.embed_dims)})
        return built

    def _build_refine(self, plan: LayerPlan) -> nn.Module:
        self._check_refinable(plan)
        if self.mode == 'none':
            return UnrefinedMap(self)
        if self.mode == 'mbconv':
            return BottleneckRefine(plan.num_heads, plan.grid.num_tokens, self)
        return LinearRefine(plan.num_heads, self)

    def _build_reuse(self, plan: LayerPlan, source: LayerPlan, turn: int) -> nn.Module:
        self._check_reusable(plan, source, turn)
        return ReusedMap(self)

    def _check_refinable(self, plan: LayerPlan) -> None:
        if self.share and plan.grid.layout is not None:
            raise ValueError(
                f'Refiner: share={self.share} is not for windowed attention: regular and shifted windows hold other '
                'pairs of tokens, so a block cannot use the map of another; set share=0'
            )
        if plan.num_heads == 0:
            raise ValueError(f'Refiner: block {plan.index} has no attention map to refine; leave it out of layers')
        if self.value_split and plan.shape.head_dims % self.expansion:
            raise ValueError(
                f'Refiner: value_split=True cannot cut the heads of block {plan.index}, {plan.shape.head_dims} wide, '
                f'into expansion={self.expansion} slices; choose an expansion that divides the width'
            )

    def _check_addable(self, plan: LayerPlan, source: LayerPlan) -> None:
        if (plan.num_heads, plan.grid) != (source.num_heads, source.grid):
            raise ValueError(
                f"Refiner: scheme='official' adds up the maps of all pairs, but those of blocks {source.index} and "
                f"{plan.index} are of other tokens or heads; choose other layers or scheme='paper'"
            )

    def _check_reusable(self, plan: LayerPlan, source: LayerPlan, turn: int) -> None:
        if plan.index != source.index + turn:
            raise ValueError(
                f'Refiner: share={self.share} makes groups of {1 + self.share} blocks in a row, but block {plan.index} '
                f'does not follow block {source.index}, whose map it is to reuse; choose other layers'
            )
        alike = replace(source.shape, map_heads=0, hidden_dims=plan.shape.hidden_dims)
        if (plan.shape, plan.grid) != (alike, source.grid):
            raise ValueError(
                f'Refiner: block {plan.index} cannot reuse the map of block {source.index}: its tokens or heads are '
                'others; choose other layers or share=0'
            )


class Matched(nn.Module):
    """How refined or reused maps meet the values."""

    def __init__(self, settings: Refiner):
        super().__init__()
        self.copies = settings.copies
        self.split = settings.value_split

    def weigh(self, maps: Tensor, v_BWHNd: Tensor) -> tuple[Tensor, Tensor]:
        """Maps ``(B, W, r H, N, N)`` times the values, map ``h'`` with those of head ``h' // r``.

        Returns:
            ``(B, W, r H, N, d)``, or ``(B, W, H, N, d)`` where heads are split; and the further value heads.
        """
        heads = maps.shape[2] // self.copies
        own, rest = v_BWHNd[:, :, :heads], v_BWHNd[:, :, heads:]
        maps = maps.unflatten(2, (heads, self.copies))
        if self.split:
            slices = own.unflatten(-1, (self.copies, -1)).transpose(-2, -3)
            return (maps @ slices).transpose(-2, -3).flatten(-2), rest
        # All copies of a head in one product, so that its values need no repetition.
        out = maps.flatten(3, 4) @ own
        return out.unflatten(3, (self.copies, -1)).flatten(2, 3), rest


class ReusedMap(Matched):
    """Takes the refined map of an earlier block in place of an own one."""

    def forward(self, probs: Tensor, mask_WNN: Tensor | None, grid: TokenGrid, carry: Carry) -> tuple[Tensor, Carry]:
        """The handed-over maps; ``probs`` has no head."""
        return carry[KEY], carry


class Refine(Matched):
    """Refines maps ``(B, W, H, N, N)``; what is special to linear and bottleneck form is in :meth:`refine`."""

    def __init__(self, settings: Refiner):
        super().__init__(settings)
        self.hands_over = settings.share > 0

    def refine(self, maps_BHNN: Tensor, grid: TokenGrid) -> Tensor:
        """Refined maps of one batch of windows."""
        raise NotImplementedError

    def forward(self, probs: Tensor, mask_WNN: Tensor | None, grid: TokenGrid, carry: Carry) -> tuple[Tensor, Carry]:
        """The maps ``(B, W, H or r H, N, N)`` that multiply the values, and the carry."""
        maps = self.refine(probs.flatten(0, 1), grid).unflatten(0, probs.shape[:2])
        if mask_WNN is not None:
            # The convolution has carried probability over to pairs of tokens that must not see each other.
            maps = maps.masked_fill((mask_WNN != 0)[:, None], 0)
        return maps, carrying(carry, KEY, maps) if self.hands_over else carry


class UnrefinedMap(Refine):
    """Hands a map over as it is."""

    def refine(self, maps_BHNN: Tensor, grid: TokenGrid) -> Tensor:
        return maps_BHNN


class LinearRefine(Refine):
    """Expansion, DLA and reduction as one convolution.

    Parameters (none but these): ``expand`` ``(H', H, 1, 1)``, ``reduce`` ``(H, H', 1, 1)``, and DLA's ``local``
    ``(H', 1, k, k)`` or, for ``'rowcol'``, ``along_keys`` ``(H', 1, 1, k)`` and ``along_queries``
    ``(H', 1, k, 1)``. They are no ``nn.Conv2d``, because the ``init_cfg`` of a host reaches all of those.
    """

    def __init__(self, heads: int, settings: Refiner):
        super().__init__(settings)
        self.constraint = settings.constraint
        self.sequential = settings.rowcol_mode == 'sequential'
        expansion, side = settings.expansion, settings.kernel_size
        maps = heads * max(expansion, 1)
        self.expand = new_kernel(maps, heads, 1, 1) if expansion else None
        if self.constraint == 'rowcol':
            self.along_keys = new_kernel(maps, 1, 1, side)
            self.along_queries = new_kernel(maps, 1, side, 1)
        else:
            self.local = new_kernel(maps, 1, side, side)
        self.reduce = new_kernel(heads, maps, 1, 1) if expansion and settings.reduction else None
        if settings.init == 'identity':
            self._start_as_identity(heads, expansion)

    @torch.no_grad()
    def _start_as_identity(self, heads: int, expansion: int) -> None:
        if self.constraint == 'rowcol':
            share = 1.0 if self.sequential else 0.5
            for kernel in (self.along_keys, self.along_queries):
                kernel.copy_(share * delta(kernel))
        else:
            self.local.copy_(delta(self.local))
        if self.expand is None:
            return
        copied = torch.eye(heads).repeat_interleave(expansion, dim=0)
        if self.reduce is not None:
            self.reduce.copy_(copied.T[:, :, None, None] / expansion)
        if not self.split:
            # Equal copies would get equal gradients for ever. Slices of a head differ in their gradients anyway.
            noise = NOISE_STD * torch.randn(heads, expansion, heads)
            copied = copied + (noise - noise.mean(dim=1, keepdim=True)).flatten(0, 1)
        self.expand.copy_(copied[:, :, None, None])

    def dla(self) -> Tensor:
        """The depthwise kernel ``(H', 1, k, k)``."""
        if self.constraint != 'rowcol':
            return self.local
        if self.sequential:
            return self.along_queries * self.along_keys
        half = self.along_keys.shape[-1] // 2
        return F.pad(self.along_keys, (0, 0, half, half)) + F.pad(self.along_queries, (half, half, 0, 0))

    def fold(self, local: Tensor) -> Tensor:
        """Expansion, a depthwise kernel ``(H', 1, k, k)`` and reduction as one kernel, ``(maps, H or 1, k, k)``."""
        if self.expand is None:
            return local
        kernel = local * self.expand
        if self.reduce is None:
            return kernel
        # Rounded once, with the maps, and not here: in half precision the identity would be lost.
        with without_autocast(kernel.device):
            return (self.reduce.flatten(1) @ kernel.flatten(1)).unflatten(1, kernel.shape[1:])

    def fast_form(self, inputs: Attention):
        """Convolved values in place of maps, or convolved maps by rows; None where neither is possible or pays."""
        if inputs.mask is not None or self.copies > 1 or self.hands_over:
            return None
        if self.expand is None and self.constraint == 'spatial':
            return self._on_value_grid
        if self.constraint == 'spatial':
            return None
        if self.expand is None and inputs.goes_by_rows(ROWS_FROM):
            return self._on_values
        pays = inputs.goes_by_rows(ROWS_FROM) or _pays_by_images(inputs)
        return self._by_rows if inputs.q.shape[1] == 1 and pays else None

    def _by_rows(self, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        return attend_to_convolved(inputs, self.fold(self.dla())), carry

    def _on_values(self, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        """Along the keys the kernel's rows convolve the values, along the queries the outputs are shifted::

        out[i] = sum_a (A v_a)[i + a - k//2]        v_a[j] = sum_b K[a, b] v[j - b + k//2]
        """
        kernel_Hab = self.dla()[:, 0].to(inputs.v.dtype)
        side = kernel_Hab.shape[-1]
        half = side // 2
        shifted = F.pad(inputs.v, (0, 0, half, half)).unfold(-2, side, 1)
        spread = torch.einsum('hab,xwhndb->xwhnad', kernel_Hab.flip(-1), shifted).flatten(-2)
        outs = F.pad(fused(replace(inputs, v=spread)), (0, 0, half, half)).unflatten(-1, (side, -1))
        tokens = inputs.v.shape[-2]
        return sum(outs[..., a : a + tokens, a, :] for a in range(side)), carry

    def _on_value_grid(self, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        """Each query's row convolved over the key grid is attention with values convolved over it."""
        grid, v = inputs.grid, inputs.v
        dims = v.shape[-1]
        prefix, image = v[..., : grid.num_prefix, :], v[..., grid.num_prefix :, :].transpose(-2, -1)
        image = image.flatten(0, 1).unflatten(-1, (grid.height, grid.width)).flatten(1, 2)
        kernel = self.local.flip(-2, -1).to(v.dtype).repeat_interleave(dims, dim=0)
        image = F.conv2d(image, kernel, padding=kernel.shape[-1] // 2, groups=len(kernel))
        image = image.unflatten(1, (-1, dims)).flatten(-2).unflatten(0, v.shape[:2]).transpose(-2, -1)
        return fused(replace(inputs, v=torch.cat((prefix, image), dim=-2))), carry

    def refine(self, maps_BHNN: Tensor, grid: TokenGrid) -> Tensor:
        kernel = self.fold(self.dla())
        maps_BHNN = maps_BHNN.to(kernel.dtype)
        if self.constraint != 'spatial':
            return convolve(channels_last(maps_BHNN), kernel).contiguous()
        keys_BHNhw = maps_BHNN[..., grid.num_prefix :].unflatten(-1, (grid.height, grid.width))
        refined = convolve(keys_BHNhw, kernel[:, :, None]).flatten(-2)
        if not grid.num_prefix:
            return refined
        mixing = self.fold(torch.ones_like(self.local[..., :1, :1]))
        return torch.cat((convolve(maps_BHNN[..., : grid.num_prefix], mixing), refined), dim=-1)


def _pays_by_images(inputs: Attention) -> bool:
    """Whether a CPU had better go image by image: with nothing to keep for backward, maps that fill its cache alone."""
    images, _, heads, tokens, _ = inputs.q.shape
    on_cpu = inputs.q.device.type == 'cpu' and not torch.is_grad_enabled()
    return on_cpu and images > 1 and heads * tokens**2 >= MAPS_IN_CACHE and inputs.goes_by_rows(0)


class BottleneckRefine(Refine):
    """The official code's chain::

        A -> 1x1 -> BN -> ReLU6 -> k x k depthwise -> BN -> ReLU6 -> 1x1 -> BN -> + A -> BN

    Batch statistics are those of all images, windows and token pairs, masked ones included.
    """

    def __init__(self, heads: int, num_tokens: int, settings: Refiner):
        super().__init__(settings)
        maps, side = heads * settings.expansion, settings.kernel_size
        self.rescale = settings.rescale_by_tokens
        self.expand = new_kernel(maps, heads, 1, 1)
        self.expand_bn = nn.BatchNorm2d(maps)
        self.local = new_kernel(maps, 1, side, side)
        self.local_bn = nn.BatchNorm2d(maps)
        self.reduce = new_kernel(heads, maps, 1, 1)
        self.reduce_bn = nn.BatchNorm2d(heads)
        self.adapt_bn = nn.BatchNorm2d(heads)
        # With the batch norms' statistics, to which it belongs, in the state dict.
        self.register_buffer('reference_tokens', torch.tensor([num_tokens]))

    def refine(self, maps_BHNN: Tensor, grid: TokenGrid) -> Tensor:
        maps_BHNN = self._rescaled(maps_BHNN).to(self.expand.dtype)
        x = F.relu6(normalize(self.expand_bn, convolve(maps_BHNN, self.expand)))
        x = F.relu6(normalize(self.local_bn, convolve(x, self.local)))
        x = normalize(self.reduce_bn, convolve(x, self.reduce))
        return normalize(self.adapt_bn, x + maps_BHNN)

    def _rescaled(self, maps_BHNN: Tensor) -> Tensor:
        tokens = maps_BHNN.shape[-1]
        if self.rescale is None and self.training:
            self.reference_tokens.fill_(tokens)
        if self.rescale or (self.rescale is None and not self.training):
            return maps_BHNN * (tokens / self.reference_tokens.to(maps_BHNN.dtype))
        return maps_BHNN


class ResidualMap(nn.Module):
    """First block of an official pair: its maps ``(B, W, H, N, N)`` plus ``scale`` times those of the pair before."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, probs: Tensor, mask_WNN: Tensor | None, grid: TokenGrid, carry: Carry) -> tuple[Tensor, Carry]:
        """The sum, which is used and handed on; at the first pair the maps as they are."""
        maps = torch.add(probs, carry[KEY], alpha=self.scale) if KEY in carry else probs
        return maps, carrying(carry, KEY, maps)


class RefinedReuse(BottleneckRefine):
    """Second block of an official pair: ``scale`` times the refined maps of the first, which stay in the carry."""

    def __init__(self, heads: int, num_tokens: int, scale: float, settings: Refiner):
        super().__init__(heads, num_tokens, settings)
        self.scale = scale

    def forward(self, probs: Tensor, mask_WNN: Tensor | None, grid: TokenGrid, carry: Carry) -> tuple[Tensor, Carry]:
        """The maps that multiply the values, and the carry as it was; ``probs`` has no head."""
        maps, _ = super().forward(carry[KEY], mask_WNN, grid, carry)
        return self.scale * maps, carry


class Doubled(nn.Module):
    """``2 x`` of a branch's tokens ``(B, N, D)``."""

    def forward(self, x_BND: Tensor, valid_BN: Tensor | None = None) -> Tensor:
        return 2 * x_BND


class DoubledScale(nn.Module):
    """``2 scale x`` of a branch's tokens ``(B, N, D)``, ``scale`` of shape ``(D,)`` starting at 1e-5."""

    def __init__(self, dims: int):
        super().__init__()
        self.scale = nn.Parameter(torch.full((dims,), SCALE_START))

    def forward(self, x_BND: Tensor, valid_BN: Tensor | None = None) -> Tensor:
        # In the precision of the scale, as LayerScale does: half precision has few digits left for such small numbers.
        return x_BND * (2 * self.scale)


def convolve(maps: Tensor, kernel: Tensor) -> Tensor:
    """Correlation with zero padding, on the plane of ``(B, H, N, N)`` or the volume of ``(B, H, N, h, w)``."""
    conv = F.conv2d if kernel.ndim == 4 else F.conv3d
    padding = tuple(side // 2 for side in kernel.shape[2:])
    return conv(maps, kernel, padding=padding, groups=maps.shape[1] // kernel.shape[1])


def normalize(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Batch norm in its own precision: autocast leaves it what the convolution returned."""
    return norm(x.to(norm.weight.dtype))


def new_kernel(*shape: int) -> nn.Parameter:
    """A kernel that starts as PyTorch's convolutions do."""
    kernel = nn.Parameter(torch.empty(shape))
    nn.init.kaiming_uniform_(kernel, a=5**0.5)
    return kernel


def delta(kernel: Tensor) -> Tensor:
    """Ones in the centre, zeros elsewhere."""
    out = torch.zeros_like(kernel)
    out[..., kernel.shape[-2] // 2, kernel.shape[-1] // 2] = 1
    return out
