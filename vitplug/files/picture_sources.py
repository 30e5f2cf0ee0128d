"""From paths to pictures: files, folders and videos, one picture after the other."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import mmcv
import numpy as np

from .folders import IMAGE_SUFFIXES, names_in

VIDEOS = ('.mp4', '.avi', '.mov', '.mkv', '.webm')

# Reads the pixels of an image file, ``(height, width, 3)``, blue first.
Reader = Callable[[str | Path], np.ndarray]


class Unreadable(ValueError):
    """An input that cannot be used; the others can."""


@dataclass(frozen=True)
class Source:
    """A file with one picture or, if it is a video, many."""

    path: Path
    name: str  # its place below the output folder, without suffix

    @property
    def is_video(self) -> bool:
        return self.path.suffix.lower() in VIDEOS

    def count(self) -> int:
        """How many pictures it says to have."""
        return max(1, len(mmcv.VideoReader(str(self.path)))) if self.is_video else 1


@dataclass(frozen=True)
class Picture:
    """One picture of a source."""

    source: Source
    pixels: np.ndarray  # (height, width, 3), blue first
    frame: int | None = None  # its number, from 0, in a video; None for an image
    fps: float | None = None  # frames a second of the video

    @property
    def name(self) -> str:
        """Its place below the output folder, without suffix; frames lie in a folder of the video's whole name."""
        own = self.source.name
        return own if self.frame is None else f'{own}{self.source.path.suffix}/{self.frame:06}'


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
        video = mmcv.VideoReader(str(source.path), cache_capacity=1)
        frame = -1
        for frame, pixels in enumerate(video):
            yield Picture(source, pixels, frame, video.fps)
        if frame < 0:
            raise Unreadable('is no video that OpenCV can read, or has no frames')
        return
    try:
        pixels = read(source.path)
    except Exception as error:  # decoders of any kind
        raise Unreadable(' '.join(str(error).split()) or type(error).__name__) from error
    yield Picture(source, pixels)
