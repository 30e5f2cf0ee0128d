"""Checkpoints are data: a training or test reads them without running what else a pickle may hold."""

import torch
from mmengine.runner.checkpoint import CheckpointLoader

from vitplug.errors import CheckpointNotRead

from .files import local_file, read_checkpoint


def refuse_pickled_code() -> None:
    """Makes mmengine read checkpoints in this process (`--resume`, `load_from`, `Pretrained`) through `load_from_file`.

    mmengine by itself tries without running code, and where that fails runs it with a warning. Names of models, such
    as torchvision://resnet50, and buckets are refused with the rest of what is neither a path nor an http address.
    """
    CheckpointLoader.register_scheme(tuple(CheckpointLoader._schemes), loader=load_from_file, force=True)


def allow_pickled_code() -> None:
    """Lets mmengine run the code of checkpoints as it does by itself, with downloads kept by their whole address."""
    CheckpointLoader.register_scheme(('http://', 'https://'), loader=_load_any, force=True)


def _load_any(address: str, map_location=None):
    return torch.load(local_file(address), map_location=map_location, weights_only=False)


def load_from_file(filename: str, map_location=None) -> dict:
    """Reads a checkpoint onto the CPU without running code that it may hold.

    Raises:
        CheckpointNotRead: if the file is missing, broken, or would have to run code.
    """
    try:
        content = read_checkpoint(local_file(filename))
    except (OSError, ValueError) as error:
        raise CheckpointNotRead(' '.join(str(error).split())) from error
    # mmengine runs this text, a config of years ago, to count the GPUs of the training that is resumed.
    if isinstance(content.get('meta'), dict):
        content['meta'].pop('config', None)
    return content
