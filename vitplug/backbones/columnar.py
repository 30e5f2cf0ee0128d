"""Blocks of one width on one grid of tokens: what ViT, T2T-ViT and MLP-Mixer share."""

from collections.abc import Callable, Mapping, Sequence

from mmengine.model import ModuleList
from torch import Tensor, nn

from vitplug.hosting import Section
from vitplug.plugs import PlugSet

from .base import PluggedBackbone
from .patch_embed import to_map
from .settings import choose_arch, per_item


class ColumnarBackbone(PluggedBackbone):
    """Base of the hosts with blocks of one width on one grid, and prefix tokens before it."""

    STAGES, FIRST_FROZEN = 'layers', 1
    OUT_TYPES = ('raw', 'cls_token', 'featmap', 'avg_featmap')
    #: Parameters of the tokens before the patches', where there is a class token.
    PREFIX = ('cls_token',)
    #: Names, as in checkpoints, of the norms after the blocks, the final first.
    NORMS = ('ln1', 'ln2')

    arch_zoo: Mapping[str, Mapping]
    num_layers: int
    #: Whether the last block's output is normalised.
    final_norm: bool

    def choose_size(self, arch: str | Mapping) -> None:
        self.arch_settings = choose_arch(arch, self.arch_zoo)
        self.embed_dims, self.num_layers = self.arch_settings['embed_dims'], self.arch_settings['num_layers']

    def build_layers(
        self,
        layer: Callable[..., nn.Module],
        plugs: str | Sequence,
        last_rate: float,
        layer_cfgs: Mapping | Sequence[Mapping],
        **defaults,
    ) -> tuple[PlugSet, ModuleList]:
        """The plugs, and the blocks, shaped by them: of ``defaults``, which ``layer_cfgs`` may replace.

        Stochastic depth grows linearly from 0 to ``last_rate``.
        """
        plug_set, of_blocks = self.plan_blocks(plugs, self.num_layers, last_rate)
        layers = ModuleList()
        for each, layer_cfg in zip(of_blocks, per_item(layer_cfgs, self.num_layers, 'layer_cfgs'), strict=True):
            settings = {'drop_path_rate': each['drop_path'], **defaults, **layer_cfg}
            layers.append(layer(**settings, reshape=each['reshape']))
        return plug_set, layers

    def sections(self) -> list[Section]:
        return [Section([layer], self.embed_dims) for layer in getattr(self, self.STAGES)]

    def normalise(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        is_normed = section == self.num_layers - 1 and self.final_norm
        return getattr(self, self.NORMS[0])(x_BND) if is_normed else x_BND

    def featmap(self, patches_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        return to_map(patches_BND, hw)

    def frozen_with(self, stage: int) -> Sequence[nn.Module | None]:
        return [getattr(self, name, None) for name in self.NORMS] if stage == self.num_layers - 1 else []
