"""How the files of a case are made bad: each function returns one that changes a folder."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

Make = Callable[[Path], object]


class Malicious:
    """Makes a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ('harm',)


def write(name: str, content: str | bytes) -> Make:
    """Puts a file there."""
    data = content.encode() if isinstance(content, str) else content

    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)

    return make


def child(text: str, name: str = 'child.py') -> Make:
    """Puts a config there that inherits the tiny classifier."""
    return write(name, f"_base_ = 'tiny.py'\n{text}\n")


def starting(checkpoint: str, settings: str = '', wider: str = '') -> Make:
    """Puts a config there whose backbone starts from a checkpoint."""
    init_cfg = f"init_cfg=dict(type='vitplug.Pretrained', checkpoint='{checkpoint}', {settings})"
    return child(f'model = dict(backbone=dict({init_cfg}, {wider}))')


def cut(name: str, size: int) -> Make:
    """Keeps the first bytes of a file."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def saved(content, name: str = 'bad.pth') -> Make:
    return lambda folder: torch.save(content, folder / name)


def changed(change: Callable[[dict], object], name: str = 'bad.pth') -> Make:
    """Saves what a function makes of the checkpoint of a training."""

    def make(folder: Path) -> None:
        content = torch.load(folder / 'good.pth', weights_only=False)
        result = change(content)
        torch.save(content if result is None else result, folder / name)

    return make


def both(*makes: Make) -> Make:
    return lambda folder: [make(folder) for make in makes]
