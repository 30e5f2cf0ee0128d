"""Further arguments of a library's blocks: what plugs do not do, and masks."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitplug.attention import Site
from vitplug.attention.layouts import HIDDEN
from vitplug.compat import replace

#: Further arguments of a block, by name: masks, rotations, shared biases.
Extras = Mapping[str, Any]

#: Arguments of blocks and stages that ask for what plugs do not do, and what to do.
_REFUSED = {
    'is_causal': 'causal attention',
    'cache': 'a cache of keys and values',
    'past_key_values': 'a cache of keys and values',
    'encoder_hidden_states': 'cross-attention',
    'cu_seq_lens_q': 'packed sequences',
    'always_partition': 'always_partition: shifted windows on a map of one window',
    'output_attentions': "output_attentions: vitplug.intermediates(model, inputs, names=('probs',)) gives the maps",
}


def check_asked(kind: str, extras: Extras) -> None:
    """Checks the further arguments of a block or a stage, a ``kind``.

    Raises:
        ValueError: If they ask for what plugs do not do.
    """
    if asked := [what for name, what in _REFUSED.items() if not (extras.get(name) is None or extras[name] is False)]:
        raise ValueError(f'a {kind} with plugs does not do this: {asked[0]}')


def with_mask(site: Site, extras: Extras) -> Site:
    """The site with the mask of a block's arguments: of keys that count, or of pairs, True or 0 for visible ones.

    Raises:
        ValueError: If the mask is of another kind or of other tokens.
    """
    mask = _mask(extras)
    if mask is None:
        return site
    shape, count = tuple(mask.shape) if isinstance(mask, Tensor) else (), site.layout.grid.num_tokens
    of_keys = len(shape) == 2 and shape[1] == count
    if not of_keys and not (len(shape) == 4 and shape[1] == 1 and shape[2] in (1, count) and shape[3] == count):
        raise ValueError(
            f'attention mask {shape or type(mask).__name__}: plugs take one for all heads, of keys (B, N) or of pairs '
            f'(B, 1, N, N), N = {count} with class tokens and those of plugs; transformers makes it with '
            "attn_implementation='sdpa' or 'eager'"
        )
    is_additive = mask.is_floating_point() and mask.ndim == 4
    sees = mask > torch.finfo(mask.dtype).min / 2 if is_additive else mask.bool()
    # Once a forward: reading a value waits for a GPU, and cannot be compiled.
    if is_additive and site.index == 0 and (torch.compiler.is_compiling() or (mask != 0)[sees].any()):
        raise ValueError(
            'attention mask: has other values than 0 and the lowest one, such as those of a position bias, or is '
            'compiled, where nothing can check that. Plugs would not see them: mask tokens alone, by True and False in '
            "compiled code (attn_implementation='sdpa'), and give the bias to the model in another way"
        )
    if mask.ndim == 2:
        return replace(site, valid=sees, attends_padding=False)
    return replace(site, mask=torch.where(sees, 0.0, HIDDEN), valid=sees.squeeze(1).any(-2), attends_padding=False)


def without_blind(out: Tensor, v: Tensor, extras: Extras) -> Tensor:
    """The output of the heads ``(B, 1, H, N, d)``, where the mask of a query hides all keys as SDPA gives it.

    0 where all are hidden by False or -inf, and the mean of the values where by the lowest finite number.
    """
    mask = _mask(extras)
    if mask is None or mask.ndim != 4:
        return out
    highest = mask.amax(-1, keepdim=True).unsqueeze(2)
    if not mask.is_floating_point():
        return out.masked_fill(~highest.bool(), 0)
    of_blind = v.mean(-2, keepdim=True).where(highest.isfinite(), 0)
    return torch.where(highest <= torch.finfo(mask.dtype).min, of_blind, out)


def _mask(extras: Extras) -> Any:
    """The mask of a block's arguments, one of pairs as ``(B, 1, N, N)``; None for none."""
    of_pairs = extras.get('attn_mask')
    if of_pairs is None:
        return extras.get('attention_mask')
    return of_pairs[None, None] if isinstance(of_pairs, Tensor) and of_pairs.ndim == 2 else of_pairs
