"""A model that vitplug does not own, as the analyses see it: a :class:`~vitplug.hosting.PluggedModel`."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from vitplug.attention import GlobalLayout, Layout, Recorder, Site
from vitplug.hosting import Edits, PixelGrid, PluggedModel, Section, TokenMap, build_plugs
from vitplug.hosting.model import run_plainly, run_plugged
from vitplug.plugs import NETWORK_SOCKETS, PlugSet

from .arguments import Extras, check_asked, with_mask
from .blocks import PluggedBlock
from .maps import ModelMap, find
from .walk import Step, Walk


class AdaptedModel(PluggedModel):
    """A model of another library with plugs.

    Its blocks run in the library's own forward, which it calls; :class:`~vitplug.adapters.walk.PluggedBlocks` leads
    them here (:meth:`pass_block`). They are :class:`PluggedBlock`.

    Raises:
        ValueError: If the plugs cannot work together here, or would change the model's own weights.
    """

    def __init__(self, model: nn.Module, names: ModelMap, plugs: str | Sequence):
        super().__init__()
        self.model, self.names = model, names
        #: Takes the intermediates of forwards inside of :meth:`recording`.
        self.active_recorder: Recorder | None = None
        # The list of blocks, and what is in it; a tuple, for the blocks are parts of the model.
        self._listed: tuple[Any, list[Section], list[nn.Module]] = (None, [], [])
        self.prefix_names = names.prefix(model)
        self.patch_resolution = tuple(names.resolution(model))
        patch = None if names.patch is None else find(model, names.patch)
        self.image_stride = (1, 1) if patch is None else tuple(getattr(patch, 'stride', (1, 1)))
        # The final norm is the library's.
        missing = ('normed',) if names.keeps_prefix else ('normed', 'prefix')
        self.network_sockets = tuple(socket for socket in NETWORK_SOCKETS if socket not in missing)
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
        merges = [*(SimpleNamespace(place=partial(stage.place, part)) for part in parts[1:]), None]
        return [Section(blocks, blocks[-1].embed_dims, i, merges[i]) for i, blocks in enumerate(stages)]

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
        with self.recording(recorder):
            x = self.names.features(self.model, images, **settings)
        if x.ndim == 4:
            return (x.permute(0, 3, 1, 2),)
        hw = self.grid_of(len(self.plugged_blocks()) - 1, tuple(images.shape[-2:]))
        return (x[:, self.num_extra_tokens :].transpose(1, 2).unflatten(2, hw),)

    @contextmanager
    def recording(self, recorder: Recorder | None) -> Iterator[None]:
        before, self.active_recorder = self.active_recorder, recorder
        # Compiled code records nothing. torch before 2.6 cannot be told to run the model without it.
        stance = getattr(torch.compiler, 'set_stance', None) if recorder else None
        try:
            with stance('force_eager') if stance else nullcontext():
                yield
        finally:
            self.active_recorder = before
        if recorder and not stance and not any(record.site for record in recorder.layers.values()):
            raise ValueError(f'{type(self.model).__name__} is compiled, and records nothing: use torch 2.6 or newer')

    def edited(self, edits: Edits) -> AbstractContextManager[None]:
        parts, switches = self.model.modules(), ('grad_checkpointing', 'gradient_checkpointing')
        if torch.is_grad_enabled() and any(getattr(part, switch, False) for part in parts for switch in switches):
            why = 'computes activations again in the backward pass, without edits'
            raise ValueError(f'edits: the model {why}: switch its checkpointing off, or edit under torch.no_grad()')
        return super().edited(edits)

    # --- blocks ---

    def pass_block(
        self, step: Step, block: PluggedBlock, x: Tensor, hw: tuple[int, int] | None, extras: Extras
    ) -> Tensor:
        """One block of a walk: tokens of the library, in and out; ``hw`` are the grid's rows and columns, if known.

        Raises:
            ValueError: If it is asked for something that plugs do not do, or the grid of the tokens is unknown.
        """
        asked = find(self.model, 'config.output_attentions?')
        check_asked(type(block).__name__, {'output_attentions': asked, **extras})
        walk, index, own = step.walk, step.index, self.num_extra_tokens
        hw = self._grid(x, walk) if hw is None else hw
        is_repeated = index in walk.entered  # by activation checkpointing
        carry, added = walk.enter(index)
        x_BND = x.flatten(1, 2) if x.ndim == 4 else x
        if index == 0:
            x_BND = self.plugs.add_prefix(x_BND, own)
        elif added is not None:
            added = added if step.on_prefix is None else step.on_prefix(added)
            x_BND = torch.cat((x_BND[:, :own], added, x_BND[:, own:]), dim=1)
        site = with_mask(self.site(self.layout, index, TokenMap(hw)), extras)
        record = walk.recorder.at(index) if walk.recorder else None
        if record is not None:
            if record.site is not None and not is_repeated:
                raise ValueError(f'{type(self.model).__name__} runs its blocks more than once in a call; expected once')
            record.enter(site.in_windows(x_BND.device))
        run = run_plugged if walk.fuses else run_plainly
        x_BND, carry = run(partial(block.run, extras), block.plugs, x_BND, site, carry, record)
        if index == len(self.plugged_blocks()) - 1:
            last = Site(GlobalLayout(*site.layout.hw, self.num_prefix), index=index, valid=site.valid)
            x_BND = self._finish(x_BND, last, carry, walk.recorder)
        extra = self.num_prefix - own
        walk.leave(index, carry, x_BND[:, own : own + extra] if extra else None)
        x_BND = torch.cat((x_BND[:, :own], x_BND[:, own + extra :]), dim=1) if extra else x_BND
        return x_BND.unflatten(1, hw) if x.ndim == 4 else x_BND

    def _grid(self, x: Tensor, walk: Walk) -> tuple[int, int]:
        """Rows and columns of the tokens that enter a block."""
        if x.ndim == 4:
            return tuple(x.shape[1:3])
        count = x.shape[1] - self.num_extra_tokens
        hw = (1, count) if self.names.patch is None else walk.hw
        if hw is None or hw[0] * hw[1] != count:
            raise ValueError(
                f'{count} tokens on an unknown grid (the patch embedding made {hw}): plugs need all tokens of an '
                'image: drop no patches, change the embedding before plug_in, and call, or compile, the whole model'
            )
        return hw


def _check_shape(plug_set: PlugSet, block: PluggedBlock, index: int) -> None:
    """Refuses plugs that need other heads: the weights are the model's."""
    if plug_set.shape_block(block.shape, index) == block.shape:
        return
    shapes = {plug: plug.shape_block(block.shape, index, plug_set.num_layers) for plug in plug_set.indices}
    changing = [plug.describe() for plug, shape in shapes.items() if shape != block.shape]
    raise ValueError(
        f'plugs: {changing} change the heads of block {index}, and so the shapes of weights that the model owns; '
        "use vitplug's own backbones for them, or other settings"
    )
