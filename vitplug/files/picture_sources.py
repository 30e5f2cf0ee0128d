"""From paths to pictures: files, folders and videos, one picture after the other."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import mmcv
import numpy as np

from .folders import IMAGE_SUFFIXES, names_in

DEFAULT_FPS, MAX_FPS = 25.0, 1000  # of drawn videos, where the header gives none or more than any camera
VIDEOS = ('.mp4', '.avi', '.mov', '.mkv', '.webm')

# Reads the pixels of an image file, ``(height, width, 3)``, blue first.
Reader = Callable[[str | Path], np.ndarray]


class Unreadable(ValueError):
    """An input that cannot be used; the others can."""


@dataclass(frozen=True)
class Source:
    """A file with one picture or, if it is a video, many.

    Args:
        path: The file.
        name: Its place below the output folder, without suffix.
    """

    path: Path
    name: str

    @property
    def is_video(self) -> bool:
        return self.path.suffix.lower() in VIDEOS

    def count(self) -> int:
        """How many pictures it says to have."""
        return max(1, len(mmcv.VideoReader(str(self.path)))) if self.is_video else 1


@dataclass(frozen=True)
class Picture:
    """One picture of a source.

    Args:
        source: Where it is from.
        pixels: ``(height, width, 3)``, blue first.
        frame: Its number, from 0, in a video; None for an image.
        fps: Frames a second of the video.
    """

    source: Source
    pixels: np.ndarray
    frame: int | None = None
    fps: float | None = None

    @property
    def name(self) -> str:
        """Its place below the output folder, without suffix; frames lie in a folder of the video's whole name."""
        own = self.source.name
        return own if self.frame is None else f'{own}{self.source.path.suffix}/{self.frame:06}'

    def __str__(self) -> str:
        return str(self.source.path) if self.frame is None else f'{self.source.path}, frame {self.frame}'


def find_sources(paths: Sequence[str]) -> list[Source]:
    """All images and videos among files and below folders, in order of their names; no two have one name.

    Raises:
        FileNotFoundError: If there is no such file or folder, or a folder has none of them.
    """
    files: dict[Path, Source] = {}
    names: set[str] = set()
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f'no such image, video or folder: {path}')
        below = names_in(path, (*IMAGE_SUFFIXES, *VIDEOS)) if path.is_dir() else [path.name]
        if not below:
            raise FileNotFoundError(f'{path} has no image or video in it, of {", ".join((*IMAGE_SUFFIXES, *VIDEOS))}')
        for name in below:
            file, stem = path / name if path.is_dir() else path, os.path.splitext(name)[0]
            if file.resolve() not in files:
                free = next(one for one in chain((stem,), (f'{stem}_{n}' for n in count(2))) if one not in names)
                files[file.resolve()] = Source(file, free)
                names.add(free)
    return list(files.values())


def read_pictures(source: Source, read: Reader) -> Iterator[Picture]:
    """The picture of an image file, or those of a video.

    Raises:
        Unreadable: If the file cannot be read; says why.
    """
    if source.is_video:
        yield from _read_frames(source)
        return
    try:
        pixels = read(source.path)
    except Exception as error:  # decoders of any kind
        raise Unreadable(' '.join(str(error).split()) or type(error).__name__) from error
    yield Picture(source, pixels)


def _read_frames(source: Source) -> Iterator[Picture]:
    video = mmcv.VideoReader(str(source.path), cache_capacity=1)
    frame, pixels = 0, video.read()
    while pixels is not None:
        yield Picture(source, pixels, frame, video.fps if 0 < video.fps <= MAX_FPS else DEFAULT_FPS)
        frame, pixels = frame + 1, video.read()
    if not frame:
        raise Unreadable('is no video that OpenCV can read, or has no frames')
    # The number in the header may be rounded from the duration.
    if frame < len(video) - max(1, len(video) // 100):
        raise Unreadable(f'only {frame} of its {len(video)} frames can be read: it is cut or damaged')
