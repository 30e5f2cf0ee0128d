"""Checkpoints are data: a training or test reads them without running what else a pickle may hold."""

from mmengine.runner.checkpoint import CheckpointLoader

from .files import local_file, read_checkpoint


def refuse_pickled_code() -> None:
    """Makes mmengine read checkpoints in this process (`--resume`, `load_from`, `Pretrained`) through `load_from_file`.

    mmengine by itself tries without running code, and where that fails runs it with a warning.
    """
    CheckpointLoader.register_scheme(tuple(CheckpointLoader._schemes), loader=load_from_file, force=True)


def load_from_file(filename: str, map_location=None) -> dict:
    """Reads a checkpoint onto the CPU without running code that it may hold.

    Raises:
        ValueError or OSError: As :func:`~vitplug.checkpoints.files.read_checkpoint`.
    """
    content = read_checkpoint(local_file(filename))
    # mmengine runs this text, a config of years ago, to count the GPUs of the training that is resumed.
    if isinstance(content.get('meta'), dict):
        content['meta'].pop('config', None)
    return content
