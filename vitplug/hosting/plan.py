"""Where the tokens of every block are, found once for each size of images; and biases that all blocks get at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import detect_fake_mode
from torch.nn.modules.module import _has_any_global_hook as has_global_hooks

from vitplug.attention import GlobalLayout, Site

from .padding import TokenMap, shrink, valid_sizes
from .pixels import PixelGrid

if TYPE_CHECKING:
    from .model import PluggedModel
    from .places import Block, Section

# Sizes of images whose plans a model keeps; training at many sizes comes back to few of them. Masks of shifted windows
# are most of a plan: some 20 MB for Swin at 800 x 1216.
MOST_PLANS = 8
# Attributes of a model, or of the attention of its blocks, that layouts follow.
SETTINGS = ('window_size', 'shift_size', 'pad_small_map', 'windows', 'global_blocks', 'shows_padding')


class Plan:
    """The sites of all blocks for one grid of the first block's tokens. What it holds depends on shapes alone.

    ``like`` is the plan of the same grid without padding, whose masks serve.

    Attributes:
        sites: One for each block, with the masks of its windows.
        ends: The tokens after each section, and after its merging.
        last: The last block's tokens as one window.
    """

    def __init__(
        self,
        model: PluggedModel,
        sections: Sequence[Section],
        tokens: TokenMap,
        device: torch.device,
        like: Plan | None = None,
    ):
        fresh = torch.compiler.is_compiling() or tokens.sizes_B2 is not None
        self.sites: list[Site] = []
        placed: dict[Any, Site] = {}  # blocks that are alike share their masks
        self.ends: list[tuple[TokenMap, TokenMap]] = []
        for section in sections:
            for _ in section.blocks:
                index = len(self.sites)
                if like is None:
                    site = model.site(model.layout, index, tokens)
                    key = None if fresh else (site.layout, site.keys, site.entering)
                    alike = placed.get(key) if key is not None else None
                    site = site.in_windows(device) if alike is None else alike.at(index)
                    site.call_mask()
                    placed[key] = site
                else:
                    site = like.sites[index].with_valid(*model.valid(index, tokens))
                self.sites.append(site)
                tokens = tokens.every(model.strides(index)[0])
            before = tokens
            if section.merge is not None:
                hw = section.merge.place(PixelGrid(tokens.hw)).hw
                tokens = tokens.merged(hw, section.merge.stride)
            self.ends.append((before, tokens))
        valid = None if before.sizes_B2 is None else before.valid
        self.last = Site(GlobalLayout(*before.hw, model.num_prefix), index=len(self.sites) - 1, valid=valid)


def plan_of(model: PluggedModel, sections: Sequence[Section], hw: tuple[int, int], images: torch.Tensor) -> Plan:
    """The plan of images whose first tokens lie on a grid ``hw``; kept, for the last sizes, but for padding.

    It is made afresh while torch compiles, traces or exports, which records the operations, and under fake tensors,
    which belong to one mode, and when settings of windows have changed.
    """
    device, sizes = images.device, shrink(valid_sizes(images), model.image_stride)
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or detect_fake_mode() is not None:
        return Plan(model, sections, TokenMap(hw, sizes, model.num_prefix), device)
    kept: dict[Any, tuple[Plan, list[tuple[dict, str]], list]] = model.__dict__.setdefault('_kept_plans', {})
    key = (*hw, device, model.num_prefix, *[len(section.blocks) for section in sections])
    plan, settings, values = kept.pop(key, (None, [], []))
    if plan is None or [owner[name] for owner, name in settings] != values:
        with torch.inference_mode(False):  # whose tensors a later training could not use
            plan = Plan(model, sections, TokenMap(hw, None, model.num_prefix), device)
        attentions = [getattr(block, 'attn', None) for block in model.plugged_blocks()]
        owners = [vars(owner) for owner in (model, *attentions) if owner is not None]
        settings = [(owner, name) for owner in owners for name in SETTINGS if name in owner]
        values = [copy(owner[name]) for owner, name in settings]
    kept[key] = plan, settings, values  # the last one
    if len(kept) > MOST_PLANS:
        del kept[next(iter(kept))]
    if sizes is None:
        return plan
    return Plan(model, sections, TokenMap(hw, sizes, model.num_prefix), device, like=plan)


def made_together(blocks: Sequence[Block], sites: Sequence[Site]) -> Mapping[int, list[Any]]:
    """Biases that depend on parameters alone, of all blocks on one grid at once: block index -> one for each module.

    A compiler joins the operations of blocks itself. Modules on which something acts when they or their blocks are
    called (hooks, shards, a forward of their own) are asked by their blocks.
    """
    if torch.compiler.is_compiling() or has_global_hooks():
        return {}
    groups: dict[Any, list[tuple[int, int, Any]]] = {}
    bound = [block.plugs.bind() for block in blocks]
    for index, (block, sockets) in enumerate(zip(blocks, bound, strict=True)):
        for position, module in sockets.made_together:
            if is_untouched(block) and is_untouched(module):
                key = module.together_key, sites[index].pairs
                groups.setdefault(key, []).append((index, position, module))
    biases: dict[int, list[Any]] = {}
    for members in groups.values():
        modules = [module for *_, module in members]
        made = modules[0].together(modules, sites[members[0][0]])
        for (index, position, _), bias in zip(members, made or (), strict=False):
            biases.setdefault(index, [None] * len(bound[index].bias))[position] = bias
    return biases


def is_untouched(module: Any) -> bool:
    """Whether a call of a module is its class's forward and nothing else."""
    own = module.__dict__
    hooks = own['_forward_hooks'] or own['_forward_pre_hooks'] or own['_backward_hooks'] or own['_backward_pre_hooks']
    return not hooks and 'forward' not in own
