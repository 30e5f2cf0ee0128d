"""Checkpoints are data: a training or test reads them without running what else a pickle may hold."""

from collections.abc import Callable

import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from vitplug.checkpoints.files import allowed_as, check_packed, check_sizes, local_file, read_checkpoint

from .stops import CheckpointNotRead

# What a saved record of mmengine says of itself with getattr.
STATISTICS = ('min', 'max', 'current', 'mean')


def refuse_pickled_code() -> None:
    """Makes mmengine read checkpoints in this process (`--resume`, `load_from`, `Pretrained`) through `load_safely`.

    mmengine by itself tries without running code, and where that fails runs it with a warning. Names of models, such
    as torchvision://resnet50, and buckets, which it reads in the same way, are refused with the rest of what is
    neither a path nor an http address.
    """
    CheckpointLoader.register_scheme(tuple(CheckpointLoader._schemes), loader=load_safely, force=True)


def allow_pickled_code() -> None:
    """Lets mmengine run the code of checkpoints as it does by itself, with downloads kept by their whole address."""
    CheckpointLoader.register_scheme(('http://', 'https://'), loader=_load_any, force=True)


def _load_any(address: str, map_location=None):
    return torch.load(local_file(address), map_location=map_location, weights_only=False)


def load_safely(filename: str, map_location=None) -> dict:
    """Reads a checkpoint without running code that it may hold.

    Args:
        filename: A path, or an address that begins with http:// or https://.
        map_location: Where tensors go, as for `torch.load`.

    Returns:
        The content. What mmengine itself saves beside tensors, such as its records, is read too; of other objects in
        checkpoints of well-known programs only what weights do not depend on is left blank.

    Raises:
        CheckpointNotRead: if the file is missing, broken, or would have to run code.
    """
    try:
        path = local_file(filename)
        check_packed(path)
        content = _read_records(path, map_location)
        if content is None:
            content = read_checkpoint(path)
        else:
            check_sizes(content, path)
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointNotRead(' '.join(str(error).split())) from error
    # mmengine runs this text, a config of years ago, to count the GPUs of the training that is resumed.
    meta = content.get('meta') if isinstance(content, dict) else None
    if isinstance(meta, dict):
        meta.pop('config', None)
    return content


def _read_records(path, map_location):
    """The content with mmengine's records in it; None where `read_checkpoint` has to look at the file."""
    try:
        with torch.serialization.safe_globals(_own_globals()):
            return torch.load(path, map_location=map_location, weights_only=True)
    except Exception:  # a broken file can end in nearly any; the second way says what is wrong
        return None


def _own_globals() -> list[Callable]:
    """What mmengine lists as safe, with a getattr that fetches nothing but the statistics of its records.

    With the real one a file gets at `exec`, and through the globals of a listed function has it called.
    """
    # As old as 0.10.7 mmengine has no such list; then its own checkpoints take the second way as well.
    listed = getattr(mmengine_checkpoint, 'get_torch_safe_globals', list)()
    return [entry for entry in listed if entry is not getattr] + [allowed_as('builtins.getattr', _statistic)]


def _statistic(owner, name: str):
    if owner is not HistoryBuffer or name not in STATISTICS:
        raise ValueError(f'getattr({owner!r}, {name!r})')
    return getattr(owner, name)
