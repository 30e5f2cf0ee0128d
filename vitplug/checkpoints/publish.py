"""What of a training's checkpoint is given to others."""

import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from .files import WEIGHT_KEYS, check_new, find_meta, find_weights, local_file, read_checkpoint, write_new

# Where the weights that were not averaged lie in files that have both. mmengine swaps them when it saves: its
# `state_dict` has the averages, and `ema_state_dict` what the optimizer works on, under the name of a wrapper.
PLAIN_WEIGHTS = {
    'state_dict': ('ema_state_dict', 'module.'),
    'state_dict_ema': ('state_dict', ''),
    'model_ema': ('model', ''),
}


def publish(
    source: str | os.PathLike, target: str | os.PathLike, averaged: bool = True, unsafe_unpickle: bool = False
) -> Path:
    """Writes the weights and the meta of a checkpoint, without optimizer, schedules and logs, into a new file.

    Args:
        source: The checkpoint, a path or an http address.
        target: The name of the new file, to which ``-`` and the first 8 digits of its SHA-256 are added; without a
            suffix it gets ``.pth``.
        averaged: Of a file with averaged and plain weights, whether to take the averaged ones.
        unsafe_unpickle: Whether the source may run code of its own.

    Returns:
        The file written.

    Raises:
        FileNotFoundError, FileExistsError: As reading and writing say; no file is ever replaced.
        ValueError: If the source cannot be read, or has no plain weights where they are asked for.
    """
    target = Path(target)
    target = target if target.suffix else target.with_suffix('.pth')
    check_new(target)
    content = read_checkpoint(local_file(source), unsafe_unpickle)
    state, place = find_weights(content, source)
    if not averaged:
        state |= _plain_weights(content, place, source)
    return write_new(state, target, meta=find_meta(content, source), add_hash=True)


def _plain_weights(content: Mapping, place: str, path: str | os.PathLike) -> dict[str, Tensor]:
    key, wrapper = PLAIN_WEIGHTS.get(place, (None, ''))
    if not isinstance(content.get(key), Mapping):
        raise ValueError(
            f'{path} has no plain weights beside averaged ones (of {list(WEIGHT_KEYS)} it has {place or "none"}): '
            'publish it without --no-ema'
        )
    plain = {name: value for name, value in content[key].items() if name.startswith(wrapper)}
    return {name.removeprefix(wrapper): value for name, value in plain.items()}
