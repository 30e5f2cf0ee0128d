"""A model that vitplug does not own, as the analyses see it: a :class:`~vitplug.hosting.PluggedModel`."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitplug.attention import Carry, GlobalLayout, LayerRecord, Layout, Recorder, Site
from vitplug.attention.layouts import HIDDEN
from vitplug.compat import replace
from vitplug.hosting import PixelGrid, PluggedModel, Section, TokenMap, build_plugs
from vitplug.plugs import NETWORK_SOCKETS, PlugSet

from .blocks import PluggedBlock
from .maps import Extras, ModelMap, StageMap, check_asked, find, mask_of_pairs
from .walk import Step, Walk, recording


class AdaptedModel(PluggedModel):
    """A model of another library with plugs.

    Its blocks run in the library's own forward, which it calls; :class:`~vitplug.adapters.walk.PluggedBlocks` leads
    them here (:meth:`pass_block`).

    Args:
        model: The model that has the list of blocks. Its blocks are :class:`PluggedBlock`.
        names: The map of its names.
        plugs: The plugs, see :func:`vitplug.plug_in`.

    Raises:
        ValueError: If the plugs cannot work together here, or would change the model's own weights.
    """

    def __init__(self, model: nn.Module, names: ModelMap, plugs: str | Sequence):
        super().__init__()
        self.model, self.names = model, names
        # The list of blocks, and what is in it; a tuple, for the blocks are parts of the model.
        self._listed: tuple[Any, list[Section], list[nn.Module]] = (None, [], [])
        self.prefix_names = names.prefix(model)
        self.patch_resolution = tuple(names.resolution(model))
        patch = None if names.patch is None else find(model, names.patch)
        self.image_stride = (1, 1) if patch is None else tuple(patch.stride)
        self.network_sockets = tuple(s for s in NETWORK_SOCKETS if names.keeps_prefix or s != 'prefix')
        self.out_indices = (len(self.sections()) - 1,)
        blocks = self.plugged_blocks()
        plug_set = PlugSet(build_plugs(plugs), len(blocks))
        for index, block in enumerate(blocks):
            _check_shape(plug_set, block, index)
        self.attach(plug_set)

    # --- what PluggedModel asks for ---

    def sections(self) -> list[Section]:
        return self._list()[1]

    def plugged_blocks(self) -> list[nn.Module]:
        return self._list()[2]

    def _list(self) -> tuple[Any, list[Section], list[nn.Module]]:
        """The list of blocks, its sections and its blocks: made once for each list, which pruning replaces."""
        listed = find(self.model, self.names.blocks)
        if listed is not self._listed[0]:
            sections = self._cut(list(listed._modules.values()))
            self._listed = listed, sections, [block for section in sections for block in section.blocks]
        return self._listed

    def _cut(self, parts: list[nn.Module]) -> list[Section]:
        stage = self.names.stage
        if stage is None:
            return [Section(parts, parts[-1].embed_dims)]
        stages = [list(find(part, stage.blocks)) for part in parts]
        merges = [*(Merging(stage, part) for part in parts[1:]), None]
        return [Section(blocks, blocks[-1].embed_dims, i, merges[i]) for i, blocks in enumerate(stages)]

    def first_block(self, stage: int) -> int:
        """Index of the first block of a stage."""
        return sum(len(section.blocks) for section in self.sections()[:stage])

    @property
    def stage_reads(self) -> tuple[str, ...]:
        """Attributes of a stage that the model's loop over stages reads."""
        return () if self.names.stage is None else self.names.stage.reads

    def strides(self, index: int) -> tuple[int, int]:
        return self.plugged_blocks()[index].strides

    def layout(self, index: int, hw: tuple[int, int]) -> Layout:
        block = self.plugged_blocks()[index]
        layout = block.maps[0].layout
        return GlobalLayout(*hw, self.num_prefix) if layout is None else layout(block, hw)

    def pixels(self, image_size: tuple[int, int]) -> PixelGrid:
        if self.names.patch is None:
            raise ValueError(f'{type(self.model).__name__} takes text: its tokens lie in no image')
        conv, path = find(self.model, self.names.patch), self.names.patch.rpartition('.')[0]
        embed = find(self.model, path) if path else None
        if hasattr(embed, 'backbone'):  # timm's hybrids
            raise ValueError(
                f'{type(self.model).__name__} embeds images by more than one convolution: where its tokens lie in an '
                'image is not known'
            )
        # timm's and transformers' embeddings that fill up the last patches.
        pads = getattr(embed, 'dynamic_img_pad', False) or hasattr(embed, 'maybe_pad')
        steps = conv.stride if pads else (1, 1)
        size = tuple(-(-side // step) * step for side, step in zip(image_size, steps, strict=True))
        return PixelGrid(size).after(conv)

    def forward_features(self, images: Tensor, recorder: Recorder | None, **settings: Any) -> tuple[Tensor, ...]:
        """The last tokens as a map ``(B, D, h, w)``; intermediates go to the recorder."""
        with recording(self, recorder):
            x = self.names.features(self.model, images, **settings)
        if x.ndim == 4:
            return (x.permute(0, 3, 1, 2),)
        hw = self.grid_of(len(self.plugged_blocks()) - 1, tuple(images.shape[-2:]))
        return (x[:, self.num_extra_tokens :].transpose(1, 2).unflatten(2, hw),)

    def recording(self, recorder: Recorder | None) -> AbstractContextManager[None]:
        return recording(self, recorder)

    # --- blocks ---

    def pass_block(
        self, step: Step, block: PluggedBlock, x: Tensor, hw: tuple[int, int] | None, extras: Extras
    ) -> Tensor:
        """One block of a walk: tokens of the library, in and out; ``hw`` are the grid's rows and columns, if known.

        Raises:
            ValueError: If it is asked for something that plugs do not do, or the grid of the tokens is unknown.
        """
        asked = find(self.model, 'config.output_attentions')
        check_asked(type(block).__name__, {'output_attentions': asked, **extras})
        walk, index = step.walk, step.index
        own, hw = self.num_extra_tokens, self._grid(x, walk) if hw is None else hw
        carry, added = walk.enter(index)
        x_BND = x.flatten(1, 2) if x.ndim == 4 else x
        if index == 0:
            x_BND = self.plugs.add_prefix(x_BND, own)
        elif added is not None:
            added = added if step.on_prefix is None else step.on_prefix(added)
            x_BND = torch.cat((x_BND[:, :own], added, x_BND[:, own:]), dim=1)
        site = _with_mask(self.site(self.layout, index, TokenMap(hw)), extras)
        x_BND, carry = self.run_block(_Bound(block, extras), x_BND, site, carry, walk.recorder)
        if index == len(self.plugged_blocks()) - 1:
            x_BND = self._finish(x_BND, site, carry, walk)
        extra = self.num_prefix - own
        added = x_BND[:, own : own + extra] if extra else None
        walk.leave(index, carry, added)
        x_BND = torch.cat((x_BND[:, :own], x_BND[:, own + extra :]), dim=1) if extra else x_BND
        return x_BND.unflatten(1, hw) if x.ndim == 4 else x_BND

    def _finish(self, x_BND: Tensor, site: Site, carry: Carry, walk: Walk) -> Tensor:
        site = Site(GlobalLayout(*site.layout.hw, self.num_prefix), index=site.index, valid=site.valid)
        record = walk.recorder.at(site.index) if walk.recorder else None
        if record is not None:
            record.site = site
        return self.plugs.finish(x_BND, site, carry, record)

    def _grid(self, x: Tensor, walk: Walk) -> tuple[int, int]:
        """Rows and columns of the tokens that enter a block."""
        if x.ndim == 4:
            return tuple(x.shape[1:3])
        count = x.shape[1] - self.num_extra_tokens
        hw = (1, count) if self.names.patch is None else walk.hw
        if hw is None or hw[0] * hw[1] != count:
            raise ValueError(
                f'{count} tokens on an unknown grid (the patch embedding made {hw}): plugs need all tokens of an '
                'image, so leave out dropping of patches, and call the model on images'
            )
        return hw


@dataclass(frozen=True)
class Merging:
    """What the library does between two stages, as far as it moves tokens.

    Args:
        names: The map of the stages.
        stage: The later one.
    """

    names: StageMap
    stage: nn.Module

    def place(self, pixels: PixelGrid) -> PixelGrid:
        """Where the merged tokens lie in the image."""
        return self.names.place(self.stage, pixels)


class _Bound:
    """A block with the further arguments of this call, as :meth:`PluggedModel.run_block` takes it.

    Not a dataclass, whose attributes the compiler does not find. Checkpointing is the library's.
    """

    with_cp = False

    def __init__(self, block: PluggedBlock, extras: Extras):
        self.block, self.extras, self.plugs = block, extras, block.plugs

    def __call__(self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None) -> tuple[Tensor, Carry]:
        return self.block.run(x_BND, site, carry, record, self.extras)


def _check_shape(plug_set: PlugSet, block: PluggedBlock, index: int) -> None:
    """Refuses plugs that need other heads: the weights are the model's."""
    if plug_set.shape_block(block.shape, index) == block.shape:
        return
    changing = [
        plug.describe()
        for plug in plug_set.indices
        if plug.shape_block(block.shape, index, plug_set.num_layers) != block.shape
    ]
    raise ValueError(
        f'plugs: {changing} change the heads of block {index}, and so the shapes of weights that the model owns; '
        "use vitplug's own backbones for them, or other settings"
    )


def _with_mask(site: Site, extras: Extras) -> Site:
    """The site with the mask of a block's arguments: of keys that count, or of pairs, True or 0 for visible ones.

    Raises:
        ValueError: If the mask is of another kind.
    """
    mask = mask_of_pairs(extras)
    if mask is None:
        return site
    if not isinstance(mask, Tensor) or mask.ndim not in (2, 4) or (mask.ndim == 4 and mask.shape[1] != 1):
        what = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f'attention mask {what}: plugs take one for all heads, of keys (B, N) or of pairs (B, 1, N, N); '
            "transformers makes it with attn_implementation='sdpa' or 'eager'"
        )
    is_additive = mask.is_floating_point() and mask.ndim == 4
    sees = mask > torch.finfo(mask.dtype).min / 2 if is_additive else mask.bool()
    # Once a forward: reading a value waits for a GPU, and cannot be compiled.
    if is_additive and site.index == 0 and not torch.compiler.is_compiling() and (mask != 0)[sees].any():
        raise ValueError(
            'attention mask: has other values than 0 and the lowest one, such as those of a position bias. Plugs would '
            'not see them: mask tokens alone, and give the bias to the model in another way'
        )
    if mask.ndim == 2:
        return replace(site, valid=sees, attends_padding=False)
    return replace(site, mask=torch.where(sees, 0.0, HIDDEN), valid=sees.squeeze(1).any(-2), attends_padding=False)
