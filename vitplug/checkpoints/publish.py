"""Writes a checkpoint for publication: weights and meta, without optimizer, schedules and logs."""

import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from .files import WEIGHT_KEYS, check_new, find_meta, find_weights, local_file, read_checkpoint, write_new

# Key and prefix of the plain weights in files that also have averaged ones, by the key of the averaged weights.
# mmengine swaps the two when it saves: `state_dict` has the averages, `ema_state_dict` the trained weights with the
# prefix of a wrapper.
PLAIN_WEIGHTS = {
    'state_dict': ('ema_state_dict', 'module.'),
    'state_dict_ema': ('state_dict', ''),
    'model_ema': ('model', ''),
}


def publish(
    source: str | os.PathLike, target: str | os.PathLike, averaged: bool = True, unsafe_unpickle: bool = False
) -> Path:
    """Writes the weights and the meta of a checkpoint into a new file.

    Args:
        source: The checkpoint, a path or an http address.
        target: The name of the new file; ``-`` and the first 8 digits of its SHA-256 are added. The default suffix is
            ``.pth``.
        averaged: If the file has averaged and plain weights, write the averaged ones.
        unsafe_unpickle: If True, the source may run code.

    Returns:
        The path of the new file.

    Raises:
        FileNotFoundError: If the source or the target's folder does not exist.
        FileExistsError: If the target exists.
        ValueError: If the source cannot be read, or if ``averaged`` is False and it has no plain weights.
    """
    target = Path(target)
    target = target if target.suffix else target.with_suffix('.pth')
    check_new(target)
    content = read_checkpoint(local_file(source), unsafe_unpickle)
    state, weights_key = find_weights(content, source)
    if not averaged:
        state |= _plain_weights(content, weights_key, source)
    return write_new(state, target, meta=find_meta(content, source), add_hash=True)


def _plain_weights(content: Mapping, weights_key: str, path: str | os.PathLike) -> dict[str, Tensor]:
    key, wrapper = PLAIN_WEIGHTS.get(weights_key, (None, ''))
    if not isinstance(content.get(key), Mapping):
        raise ValueError(
            f'{path} has no plain weights besides the averaged ones (of {list(WEIGHT_KEYS)} it has '
            f'{weights_key or "none"}): publish it without --no-ema'
        )
    plain = {name: value for name, value in content[key].items() if name.startswith(wrapper)}
    return {name.removeprefix(wrapper): value for name, value in plain.items()}
