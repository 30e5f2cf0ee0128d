"""What all hosts share: a model with plugs as mmengine builds, initialises, freezes and decays it."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from math import prod

import numpy as np
import torch
from mmengine.logging import MMLogger, print_log
from mmengine.model import BaseModule
from mmengine.model.weight_init import trunc_normal_
from torch import Tensor, nn

from vitplug.checkpoints.position_tables import INTERPOLATE_MODES, fit_stored_positions, resize_position_table
from vitplug.checkpoints.pretrained import loads_checkpoint
from vitplug.checkpoints.through_mmengine import read_files_of_others
from vitplug.compat import register_load_state_dict_pre_hook
from vitplug.hosting import PixelGrid, PluggedModel, Section, build_plugs
from vitplug.plugs import NETWORK_SOCKETS, PlugSet
from vitplug.plugs.checks import check_choice, check_number
from vitplug.plugs.plug_set import is_plug

from .ffn import layer_norm
from .optimizers import spare_plugs
from .patch_embed import Patches, to_map
from .settings import choose_indices

#: Sockets of a network that has no place for further tokens.
WITHOUT_PREFIX = tuple(socket for socket in NETWORK_SOCKETS if socket != 'prefix')


class PluggedBackbone(PluggedModel, BaseModule):
    """Base of the hosts: a :class:`~vitplug.hosting.PluggedModel` that mmengine builds, starts, freezes and decays.

    Its sections and the names below say which parts lie how deep, and which ones are frozen together. Hosts take
    those of these arguments that they name, and describe only further ones.

    Args:
        arch: Name in ``arch_zoo``, or a dict with the keys of its entries.
        img_size: Image size ``(h, w)`` that position tables and plugs are made for.
        patch_size: Side of a patch in pixels.
        in_channels: Channels of the images.
        out_indices: Blocks of a columnar host, or stages, whose output is returned; negative ones count from the end.
        drop_rate: Drop rate after the embedding; of some hosts also after the attention projection and in the MLP.
        drop_path_rate: Stochastic depth of the last block; grows linearly from 0.
        norm_cfg: The norm layers.
        interpolate_mode: How position tables are resized, see
            :func:`~vitplug.checkpoints.position_tables.resize_position_map`.
        patch_cfg: More settings of mmcv's ``PatchEmbed``.
        frozen_stages: Columnar hosts: number of blocks to freeze, with everything before them, nothing for values
            below 1. Others: last stage to freeze, with everything before it; -1 freezes nothing.
        frozen: ``'host'`` freezes all but the plugs; None leaves it to ``frozen_stages``.
        plugs: A text such as ``'gab+residual(alpha=0.25)'``, or a list of texts, dicts and plugs.
        with_cp: Whether activations are computed again in backward instead of being kept.
        init_cfg: Weight initialisation.

    Raises:
        ValueError: If a value is refused; names the argument, its value and what is allowed.
    """

    #: Names of the modules and parameters before the first block: of depth 0, and frozen with the first stage.
    EMBEDDING: tuple[str, ...] = ('patch_embed', 'drop_after_pos', 'pos_embed', 'cls_token')
    #: Those that start from a truncated normal distribution, and the table of positions among them.
    DRAWN: tuple[str, ...] = ('pos_embed',)
    POSITIONS = 'pos_embed'
    #: The blocks of a columnar host, or stages, as frozen one by one; the first ``frozen_stages`` that freezes one.
    STAGES, FIRST_FROZEN = 'stages', 0
    #: Forms of an output that the host knows.
    OUT_TYPES: tuple[str, ...] = ('featmap',)

    #: The embedding.
    patch_embed: Patches
    #: Positions of the prefix tokens and of the grid :attr:`patch_resolution`, ``(1, N, D)``, or None.
    pos_embed: Tensor | None
    #: How it is resized.
    interpolate_mode: str
    drop_after_pos: nn.Module
    #: Width of the tokens of the first block, and of those of every stage.
    embed_dims: int
    num_features: Sequence[int]
    frozen_stages = -1
    out_type = 'featmap'
    #: Tensors of files that it does not read, as the library whose arguments it was built with does not.
    leaves_out: tuple[str, ...] = ()

    def __init__(self, init_cfg: Mapping | Sequence[Mapping] | None, *, frozen: str | None = None):
        super().__init__(init_cfg)
        self.frozen = check_choice('frozen', frozen, (None, 'host'))

    # --- construction ---

    def choose_outputs(
        self,
        count: int,
        out_indices: int | Sequence[int],
        frozen_stages: int,
        out_type: str = 'featmap',
        with_cls_token: bool = True,
    ) -> None:
        """Notes the outputs, of ``count`` sections, and the frozen stages.

        Raises:
            ValueError: If there is no such section, stage or form, the form needs a class token and there is none, or
                the whole host is frozen without its plugs.
        """
        self.out_indices = choose_indices(out_indices, count)
        self.out_type = check_choice('out_type', out_type, self.OUT_TYPES)
        if 'cls_token' in out_type and not with_cls_token:
            others = ' or '.join(repr(name) for name in ('featmap', 'avg_featmap') if name in self.OUT_TYPES)
            raise ValueError(f'out_type={out_type!r} needs with_cls_token=True; without one, choose {others}')
        most = count - 1 + self.FIRST_FROZEN
        if type(frozen_stages) is not int or not -1 <= frozen_stages <= most:
            raise ValueError(f'frozen_stages={frozen_stages!r}: expected an integer from -1 (none) to {most}')
        if self.frozen and frozen_stages >= self.FIRST_FROZEN:
            raise ValueError(
                f'frozen_stages={frozen_stages} beside frozen={self.frozen!r}: the first freezes plugs, too; keep one'
            )
        self.frozen_stages = frozen_stages

    def plan_blocks(self, plugs: str | Sequence, count: int, drop_path_rate: float) -> tuple[PlugSet, list[dict]]:
        """The plugs, and of every block ``drop_path`` and ``reshape``, the plugs' changes of its shape."""
        check_number('drop_path_rate', drop_path_rate, least=0.0, below=1.0)
        plug_set, rates = PlugSet(build_plugs(plugs), count), np.linspace(0, drop_path_rate, count).tolist()
        return plug_set, [
            dict(drop_path=rate, reshape=partial(plug_set.shape_block, index=i)) for i, rate in enumerate(rates)
        ]

    def plan_stages(
        self, plugs: str | Sequence, depths: Sequence[int], drop_path_rate: float
    ) -> tuple[PlugSet, list[list[dict]]]:
        """As :meth:`plan_blocks`, cut into stages of some depths."""
        plug_set, blocks = self.plan_blocks(plugs, sum(depths), drop_path_rate)
        rest = iter(blocks)
        return plug_set, [list(islice(rest, depth)) for depth in depths]

    def add_norms(self, norm_cfg: dict | None) -> None:
        """Adds a norm for each output."""
        for index in self.out_indices:
            self.add_module(f'norm{index}', layer_norm(norm_cfg, self.num_features[index]))

    def choose_window(self, window_size: int | None) -> None:
        """Notes the side of the windows in tokens; None for global attention.

        Raises:
            ValueError: If it is no positive integer, or there are tokens that lie in no window.
        """
        self.window_size = window_size
        if window_size is None:
            return
        if type(window_size) is not int or window_size < 1:
            raise ValueError(f'window_size={window_size!r}: expected an integer from 1, or None for global attention')
        if self.prefix_names:
            raise ValueError(
                f'window_size={window_size}: {list(self.prefix_names)} lie in no window; set with_cls_token=False and '
                f'num_storage_tokens=0, and choose an out_type without a class token'
            )
        self.network_sockets = WITHOUT_PREFIX

    def add_positions(self, use_abs_pos_embed: bool, interpolate_mode: str, drop_rate: float) -> None:
        """Adds the prefix tokens with a position, the table of positions, if there is one, and the dropout after it.

        Raises:
            ValueError: If no table is resized in such a mode.
        """
        self.interpolate_mode = check_choice('interpolate_mode', interpolate_mode, INTERPOLATE_MODES)
        self.patch_resolution = self.patch_embed.init_out_size
        self.cls_token = None
        for name in self.placed_names:
            setattr(self, name, nn.Parameter(torch.zeros(1, 1, self.embed_dims)))
        num_tokens = self.num_placed_tokens + prod(self.patch_resolution)
        table = nn.Parameter(torch.zeros(1, num_tokens, self.embed_dims)) if use_abs_pos_embed else None
        setattr(self, self.POSITIONS, table)
        register_load_state_dict_pre_hook(self, fit_stored_positions)
        self.drop_after_pos = nn.Dropout(drop_rate)

    @property
    def placed_names(self) -> tuple[str, ...]:
        """Parameters of the prefix tokens that have a position."""
        return self.prefix_names[: self.num_placed_tokens]

    # --- forward ---

    def sections_of(self, blocks: Iterable[Sequence[nn.Module]], merges: Sequence[nn.Module]) -> list[Section]:
        """The sections of a host with stages: the blocks of every stage, and the mergings between them."""
        stages = enumerate(zip(blocks, self.num_features, (*merges, None), strict=True))
        return [Section(list(blocks), dims, stage, merge) for stage, (blocks, dims, merge) in stages]

    def embed(self, images: Tensor, mix: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, tuple[int, int]]:
        """Images to tokens ``(B, N, D)`` and their grid; ``mix`` changes them, ``(B, h, w, D)``, without positions."""
        x_BND, hw = self.patch_embed(images)
        if mix is not None:
            x_BND = mix(x_BND.unflatten(1, tuple(hw))).flatten(1, 2)
        return self.place(x_BND, hw), hw

    def place(self, x_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        """Patch tokens with the prefix tokens before them, all with their positions."""
        if self.num_placed_tokens:
            prefix = [getattr(self, name).expand(x_BND.shape[0], -1, -1) for name in self.placed_names]
            x_BND = torch.cat((*prefix, x_BND), dim=1)
        if self.pos_embed is not None:
            x_BND = x_BND + resize_position_table(
                self.pos_embed, self.patch_resolution, hw, self.interpolate_mode, self.num_placed_tokens
            )
        return self.drop_after_pos(x_BND)

    def format_output(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor | tuple[Tensor, ...]:
        x_BND = self.normalise(section, x_BND, hw)
        if self.plugs._modules and self.plugs.at('normed') and section == len(self.sections()) - 1:
            x_BND = self.plugs.normed(x_BND)
        if self.out_type == 'raw':
            return x_BND
        if self.out_type == 'cls_token':
            return self.class_token(x_BND)
        patches = x_BND[:, x_BND.shape[1] - hw[0] * hw[1] :]
        if self.out_type == 'avg_featmap':
            return patches.mean(dim=1)
        featmap = self.featmap(patches, hw)
        return featmap if self.out_type == 'featmap' else (featmap, self.class_token(x_BND))

    def normalise(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        """The tokens after a section, as an output has them."""
        return getattr(self, f'norm{section}')(x_BND)

    def class_token(self, x_BND: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The class token ``(B, D)`` of an output; a host with several gives all of them."""
        return x_BND[:, 0]

    def featmap(self, patches_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        """The tokens of the grid as a map ``(B, D, h, w)``."""
        return to_map(patches_BND, hw).contiguous()

    # --- images ---

    def check_images(self, images: Tensor) -> None:
        self.patch_embed.check_images(images)

    @property
    def image_stride(self) -> tuple[int, int]:
        return self.patch_embed.image_stride

    def pixels(self, image_size: tuple[int, int]) -> PixelGrid:
        return self.patch_embed.pixels(image_size)

    # --- frozen parts ---

    def freeze(self) -> None:
        """Stops the gradients of the frozen parts and puts them into evaluation mode."""
        if self.frozen:
            for name, parameter in self.named_parameters():
                if not is_plug(name):
                    parameter.requires_grad_(False)
            for name, module in self.named_modules():
                if not is_plug(name):
                    module.training = False
        count = max(self.frozen_stages + 1 - self.FIRST_FROZEN, 0)
        if not count:
            return
        parts = [getattr(self, name, None) for name in (*self.EMBEDDING, *self.prefix_names)]
        parts += [*self.plugs.at('prefix'), *getattr(self, self.STAGES)[:count]]
        parts += [part for stage in range(count) for part in self.frozen_with(stage)]
        for part in parts:
            if part is not None:
                part.requires_grad_(False)
            if isinstance(part, nn.Module):
                part.eval()

    def frozen_with(self, stage: int) -> Sequence[nn.Module | None]:
        """Modules outside of the stages that are frozen with one: the norms of its output."""
        return [getattr(self, f'norm{stage}', None)]

    # --- plugs ---

    def attach(self, plug_set: PlugSet) -> None:
        """As there, and logs one line about the plugs."""
        super().attach(plug_set)
        print_log(f'{type(self).__name__}: {self.plug_summary}', logger='current')
        self.freeze()

    # --- mmengine ---

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Depth of a parameter for layer-wise learning rate decay.

        Args:
            param_name: Name of the parameter.
            prefix: Prefix of the backbone's own names.

        Returns:
            The depth, from 0 (embedding) to ``blocks + 1`` (everything after them), and the number of depths. A merging
            has that of the last block before it.
        """
        last = len(self.plugged_blocks()) + 1
        if not param_name.startswith(prefix):
            return last, last + 1
        name = param_name.removeprefix(prefix)
        if re.match(r'plugs\.[^.]+\.prefix\.', name):
            return 0, last + 1
        depths, parts = self._depths(), name.split('.')
        within = ('.'.join(parts[:count]) for count in range(1, len(parts) + 1))
        return next((depths[part] for part in within if part in depths), last), last + 1

    def _depths(self) -> dict[str, int]:
        """The depth of the embedding's parts, of every block and of every merging by name."""
        names = {module: name for name, module in self.named_modules()}
        depths, depth = dict.fromkeys((*self.EMBEDDING, *self.prefix_names), 0), 0
        for section in self.sections():
            for block in section.blocks:
                depth += 1
                depths[names[block]] = depth
            if section.merge is not None:
                depths[names[section.merge]] = depth
        return depths

    def init_weights(self) -> None:
        """Initialises the weights. Scripts do not show mmengine's line for each parameter; its files have them."""
        MMLogger.get_current_instance().addFilter(_is_no_parameter)
        super().init_weights()
        if loads_checkpoint(self.init_cfg):
            return  # which no random start may overwrite
        for table in (getattr(self, name, None) for name in self.DRAWN):
            if table is not None:
                trunc_normal_(table, std=0.02)

    def train(self, mode: bool = True) -> nn.Module:
        """Sets the mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        self.freeze()
        return self


def _is_no_parameter(record: logging.LogRecord) -> bool:
    """Whether it is not mmengine's line of a parameter without a log file: its name, shape and start."""
    return not re.match(r'\n\S+ - torch\.Size\(\[[\d, ]*\]\): \n', record.getMessage())


spare_plugs()
read_files_of_others()
