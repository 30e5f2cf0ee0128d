"""Blocks of one width on one grid of tokens: what ViT, T2T-ViT and MLP-Mixer share."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from mmengine.model import ModuleList
from torch import Tensor, nn

from vitplug.checkpoints.position_tables import resize_position_table
from vitplug.hosting import Section
from vitplug.plugs import PlugSet

from .base import PluggedBackbone, freeze_module
from .checks import WRONG_SETTINGS
from .settings import per_item


class ColumnarBackbone(PluggedBackbone):
    """Base of the hosts with blocks of one width on one grid, and prefix tokens before it.

    The constructor of a host sets the attributes below and the modules named by :attr:`EMBED`, :attr:`BLOCKS` and
    :attr:`NORMS`; :meth:`add_prefix_tokens` and :meth:`build_layers` help.
    """

    OUT_TYPES = ('raw', 'cls_token', 'featmap', 'avg_featmap')
    #: Parameters of the tokens before the patches', where there is a class token.
    PREFIX = ('cls_token',)
    #: Names, as in checkpoints, of the embedding, of the list of blocks, and of the norms after them, the final first.
    EMBED, BLOCKS, NORMS = 'patch_embed', 'layers', ('ln1', 'ln2')

    embed_dims: int
    num_layers: int
    out_type: str
    #: How :attr:`pos_embed` is resized.
    interpolate_mode: str
    #: Whether the last block's output is normalised.
    final_norm: bool
    #: Blocks to freeze, with everything before them; nothing for values below 1.
    frozen_stages: int
    #: Positions of the prefix tokens and of the grid :attr:`patch_resolution`, ``(1, N, D)``, or None.
    pos_embed: Tensor | None
    drop_after_pos: nn.Dropout

    @property
    def placed_names(self) -> tuple[str, ...]:
        """Parameters of the prefix tokens that have a position."""
        return self.prefix_names[: self.num_placed_tokens]

    # --- construction ---

    def add_prefix_tokens(self) -> None:
        """Adds a parameter for each prefix token with a position; ``cls_token`` is None where there is none."""
        self.cls_token = None
        for name in self.placed_names:
            setattr(self, name, nn.Parameter(torch.zeros(1, 1, self.embed_dims)))

    def build_layers(
        self,
        layer: Callable[..., nn.Module],
        plug_set: PlugSet,
        drop_path_rates: Sequence[float],
        layer_cfgs: Mapping | Sequence[Mapping],
        **defaults,
    ) -> ModuleList:
        """The blocks, shaped by the plugs.

        Args:
            layer: Builds a block from its settings.
            plug_set: The plugs.
            drop_path_rates: Stochastic depth of each block.
            layer_cfgs: Settings of the blocks: one dict for all or a list with one for each.
            defaults: Settings that ``layer_cfgs`` may replace.

        Raises:
            ValueError: If settings make no block.
        """
        layers = ModuleList()
        for index, layer_cfg in enumerate(per_item(layer_cfgs, self.num_layers, 'layer_cfgs')):
            settings = {**defaults, 'drop_path_rate': drop_path_rates[index], **layer_cfg}
            settings |= dict(reshape=partial(plug_set.shape_block, index=index))
            try:
                layers.append(layer(**settings))
            except WRONG_SETTINGS as error:
                if not layer_cfg:
                    raise
                raise ValueError(f'layer_cfgs={layer_cfg!r} makes no block: {error}') from error
        return layers

    # --- forward ---

    def sections(self) -> list[Section]:
        return [Section([layer], self.embed_dims) for layer in getattr(self, self.BLOCKS)]

    def embed(self, images: Tensor, mix: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, tuple[int, int]]:
        """Images to tokens ``(B, N, D)`` and their grid ``(h, w)``.

        Args:
            images: ``(B, C, H, W)``.
            mix: Changes the patch tokens ``(B, h, w, D)`` before positions are added.
        """
        x_BND, hw = getattr(self, self.EMBED)(images)
        if mix is not None:
            x_BND = mix(x_BND.unflatten(1, tuple(hw))).flatten(1, 2)
        if self.num_placed_tokens:
            prefix = [getattr(self, name).expand(x_BND.shape[0], -1, -1) for name in self.placed_names]
            x_BND = torch.cat((*prefix, x_BND), dim=1)
        if self.pos_embed is not None:
            x_BND = x_BND + resize_position_table(
                self.pos_embed, self.patch_resolution, hw, self.interpolate_mode, self.num_placed_tokens
            )
        return self.drop_after_pos(x_BND), hw

    def format_output(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor | tuple[Tensor, ...]:
        if section == self.num_layers - 1 and self.final_norm:
            x_BND = self.normalise(x_BND, hw)
        if self.out_type == 'raw':
            return x_BND
        if self.out_type == 'cls_token':
            return self._format_prefix(x_BND)
        patches = x_BND[:, x_BND.shape[1] - hw[0] * hw[1] :]
        if self.out_type == 'avg_featmap':
            return patches.mean(dim=1)
        featmap = patches.transpose(1, 2).unflatten(2, hw)
        return featmap if self.out_type == 'featmap' else (featmap, self._format_prefix(x_BND))

    def normalise(self, x_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        """The last block's output after the final norm."""
        return getattr(self, self.NORMS[0])(x_BND)

    def _format_prefix(self, x_BND: Tensor):
        return x_BND[:, 0]

    # --- training ---

    def freeze(self) -> None:
        if self.frozen_stages < 1:
            return
        for parameter in (
            self.pos_embed,
            *(getattr(self, name) for name in self.placed_names),
        ):
            if parameter is not None:
                parameter.requires_grad_(False)
        frozen = [self.drop_after_pos, getattr(self, self.EMBED), *self.plugs.at('prefix')]
        frozen += getattr(self, self.BLOCKS)[: self.frozen_stages]
        if self.frozen_stages == self.num_layers:
            frozen += [getattr(self, name) for name in self.NORMS if hasattr(self, name)]
        for module in frozen:
            freeze_module(module)

    def depth_of(self, name: str) -> int | None:
        if name.startswith(f'{self.BLOCKS}.'):
            return int(name.split('.')[1]) + 1
        is_embedding = name in (*self.prefix_names, 'pos_embed') or name.startswith(f'{self.EMBED}.')
        return 0 if is_embedding else None
