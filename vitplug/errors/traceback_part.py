"""The part of a model, or the file, that an error comes from, read from its traceback."""

from collections.abc import Iterator
from traceback import walk_tb

from mmengine.dataset import BaseDataset
from torch import nn


def failing_part(error: BaseException, model: nn.Module) -> str:
    """The innermost part of a model that was at work when an error arose, as a prefix of a message.

    Such as ``'head.fc (Linear): '``; ``''`` where it was none.
    """
    names = {id(module): f'{name} ({type(module).__name__}): ' for name, module in model.named_modules() if name}
    return next((names[id(owner)] for owner in _owners(error) if id(owner) in names), '')


def failing_file(error: BaseException) -> str:
    """The annotation file that a data set could not read, as a prefix of a message: parsers know its content alone.

    Such as ``'data/train.json cannot be read by CocoDataset: '``; ``''`` where the message names it, or it was none.
    """
    readers = [owner for owner in _owners(error) if isinstance(owner, BaseDataset) and getattr(owner, 'ann_file', None)]
    if not readers or isinstance(error, OSError) or str(readers[0].ann_file) in str(error):
        return ''
    return f'{readers[0].ann_file} cannot be read by {type(readers[0]).__name__}: '


def _owners(error: BaseException) -> Iterator:
    """The objects whose methods were at work when an error arose, the innermost first."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return (frame.f_locals.get('self') for frame in reversed(frames))
