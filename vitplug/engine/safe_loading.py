"""Checkpoints are data: a training or test reads them without running what else a pickle may hold."""

import torch
from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from vitplug.checkpoints.files import local_file, read_checkpoint

from .stops import CheckpointNotRead

# Local paths, and addresses, which mmengine hands to torch.hub and so reads without any check.
PREFIXES = ('', 'http://', 'https://')


def refuse_pickled_code() -> None:
    """Makes mmengine read checkpoints in this process (`--resume`, `load_from`, `Pretrained`) through `load_safely`.

    mmengine by itself tries without running code, and where that fails runs it with a warning.
    """
    CheckpointLoader.register_scheme(PREFIXES, loader=load_safely, force=True)


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
        # As old as 0.10.7 mmengine has no such list; then its own checkpoints take the second way as well.
        own = getattr(mmengine_checkpoint, 'get_torch_safe_globals', list)()
        try:
            with torch.serialization.safe_globals(own):
                return torch.load(path, map_location=map_location, weights_only=True)
        except Exception:  # a broken file can end in nearly any; the second way says what is wrong
            return read_checkpoint(path)
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointNotRead(' '.join(str(error).split())) from error
