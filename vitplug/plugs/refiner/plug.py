"""The plug as configured."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from vitplug.compat import replace

from ..checks import check_choice, check_flag, check_integer
from ..plug import BlockShape, LayerPlan, Plug
from .linear import LinearRefine
from .maps import ReusedMap, UnrefinedMap
from .official import SCALE_START, BottleneckRefine, Doubled, DoubledScale, RefinedReuse, ResidualMap


class Refiner(Plug):
    """Refines the attention maps between softmax and values.

    Args:
        expansion: Maps per head after the expansion, ``r``. 0 is DLA alone: no mixing of heads.
        kernel_size: Side ``k`` of the convolution, odd.
        reduction: Whether the maps are reduced to H again. Otherwise map ``h'`` serves value head
            ``h' // r``, and the r H outputs enter a projection r times as wide.
        constraint: The plane of the convolution. ``'none'``: the N x N plane of flattened tokens, class token
            included (the paper's best); ``'spatial'``: each query's row as an image on the key grid, the
            columns of prefix keys being mixed but not convolved; ``'rowcol'``: the sum of a line of k keys and
            one of k queries.
        mode: ``'linear'`` (paper) or ``'mbconv'``, the inverted bottleneck of the official code: a batch norm
            after each convolution, ReLU6 after the first two, a shortcut and one more batch norm. ``'none'``:
            maps are not refined and have no parameters; only ``share`` acts (plain attention in Table 13).
        share: Blocks after a refined one that reuse its refined map: they have neither q, k nor a Refiner.
            The plug's blocks form groups of ``1 + share``. Not for windowed hosts.
        init: ``'identity'`` starts as the plain host, with noise that cancels out but sets the r copies of a
            head apart; ``'default'`` is PyTorch's for convolutions. Without reduction ``'identity'``
            repeats each map r times: the host itself with a stock checkpoint's projection, which is spread over
            the copies on loading; otherwise, the projection being new, r copies of the host's attention.
            ``'mbconv'`` has ``'default'`` only.
        rescale_by_tokens: For ``'mbconv'``, whose batch norms depend on the size 1 / N of the probabilities:
            whether they are multiplied by N over a reference. None: in evaluation only, the reference being
            the N of the last training forward (before any, that of the configured image size), so that
            nothing changes at that N. True: always, the reference being the configured N. False: never.
        scheme: ``'paper'``: a block uses its refined map, and others reuse the refined map. ``'official'``: the blocks
            of the official Refined-ViT-S/M/L, see above; for ``mode='mbconv'`` and ``share=1``. Their
            norms see ``x / 2``, which is a LayerNorm of 4 times the epsilon and the host's to have:
            ``layer_cfgs=dict(norm_cfg=dict(type='LN', eps=4e-6))``. Of the drop rates, ``attn_drop_rate`` alone
            differs: here the softmax is dropped, there the sum with the map handed on. The code's losses
            and dense head are not the plug's.

    Raises:
        ValueError: If an argument is none of these, arguments exclude each other, or blocks cannot use each
            other's maps.
    """

    name = 'refiner'
    #: After other plugs that change maps: it may make several maps of one.
    rank = 1
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
        self.identity_start = init == 'identity' and not share
        self.rescale_by_tokens = check_choice('rescale_by_tokens', rescale_by_tokens, (None, True, False))
        self.scheme = check_choice('scheme', scheme, ('paper', 'official'))
        if kernel_size % 2 == 0:
            raise ValueError(f'kernel_size={kernel_size}: expected an odd integer')
        if not reduction and expansion == 0:
            raise ValueError('reduction=False: expansion=0 has nothing to reduce; expected expansion of at least 1')
        self._check_mode()
        if scheme == 'official' and (mode, share) != ('mbconv', 1):
            raise ValueError(f"scheme='official' goes with mode='mbconv' and share=1 only, not {mode!r} and {share}")

    def _check_mode(self) -> None:
        """Refuses what only another mode has."""
        defaults = {key: parameter.default for key, parameter in inspect.signature(Refiner).parameters.items()}
        needed: dict[str, Any] = dict(rescale_by_tokens=None)
        if self.mode == 'mbconv':
            needed = dict(constraint='none', reduction=True, init='default', expansion=self.expansion or 1)
        elif self.mode == 'none':
            needed = {key: value for key, value in defaults.items() if key not in ('mode', 'share', 'layers')}
        wrong = [f'{key}={value!r}' for key, value in needed.items() if getattr(self, key) != value]
        if wrong:
            raise ValueError(f'mode={self.mode!r} needs {", ".join(wrong)}')
        if self.mode == 'none' and not self.share:
            raise ValueError("mode='none' changes nothing with share=0: expected share of at least 1")

    @property
    def copies(self) -> int:
        """Maps per head that multiply the values."""
        return 1 if self.reduction else self.expansion

    def shape_block(self, shape: BlockShape, index: int, num_layers: int) -> BlockShape:
        indices = self.layer_indices(num_layers)
        if index not in indices:
            return shape
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
            if turn:
                self._check_reusable(plan, plans[i - turn], turn)
            built.append({'map': ReusedMap(self) if turn else self._build_refine(plan)})
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
            refine = RefinedReuse(first.num_heads, first.site.pairs.keys.num_tokens, scale, self)
            for plan, module in zip((first, second), (ResidualMap(self.name, scale), refine), strict=True):
                doubled = DoubledScale(plan.width_at('mlp_end'), scale=SCALE_START)
                built.append({'map': module, 'msa': Doubled(), 'mlp_end': doubled})
        return built

    def _build_refine(self, plan: LayerPlan) -> nn.Module:
        self._check_refinable(plan)
        if self.mode == 'none':
            return UnrefinedMap(self)
        if self.mode == 'mbconv':
            return BottleneckRefine(plan.num_heads, plan.site.pairs.keys.num_tokens, self)
        return LinearRefine(plan.num_heads, self)

    def _check_refinable(self, plan: LayerPlan) -> None:
        if self.share and plan.site.layout.is_windowed:
            raise ValueError(
                f'Refiner: share={self.share} is not for windowed attention: regular and shifted windows hold other '
                'pairs of tokens, so a block cannot use the map of another; set share=0'
            )
        if plan.num_heads == 0:
            raise ValueError(f'Refiner: block {plan.index} has no attention map to refine; leave it out of layers')

    def _check_addable(self, plan: LayerPlan, source: LayerPlan) -> None:
        if (plan.num_heads, plan.site.pairs) != (source.num_heads, source.site.pairs):
            raise ValueError(
                f"Refiner: scheme='official' adds up the maps of all pairs, but those of blocks {source.index} and "
                f"{plan.index} are of other tokens or heads; choose other layers or scheme='paper'"
            )

    def _check_reusable(self, plan: LayerPlan, source: LayerPlan, turn: int) -> None:
        if plan.index != source.index + turn:
            raise ValueError(
                f'Refiner: share={self.share} makes groups of {1 + self.share} blocks in a row, but block {plan.index} '
                f'does not follow block {source.index}, the map of which it would reuse; choose other layers'
            )
        expected = replace(source.shape, map_heads=0, hidden_dims=plan.shape.hidden_dims)
        if (plan.stage, plan.shape, plan.site.pairs) != (source.stage, expected, source.site.pairs):
            raise ValueError(
                f'Refiner: block {plan.index} cannot reuse the map of block {source.index}: its tokens, heads or stage '
                'are others; choose other layers or share=0'
            )
