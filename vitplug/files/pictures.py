"""From paths to pictures: files, folders and videos, one picture after the other."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mmcv
import numpy as np

from .folders import IMAGE_SUFFIXES, files_below
from .limits import check_image_size, check_regular

VIDEOS = ('.mp4', '.avi', '.mov', '.mkv', '.webm')

# Reads the pixels of an image file, ``(height, width, 3)``, blue first.
Reader = Callable[[Path], np.ndarray]


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
        return max(1, len(_open_video(self.path))) if self.is_video else 1


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
        """Its place below the output folder, without suffix; frames lie in a folder of their video."""
        return self.source.name if self.frame is None else f'{self.source.name}/{self.frame:06}'

    def __str__(self) -> str:
        return str(self.source.path) if self.frame is None else f'{self.source.path}, frame {self.frame}'


def find_sources(paths: Sequence[str]) -> list[Source]:
    """All images and videos among files and below folders, in order of their names.

    Raises:
        FileNotFoundError: If there is no such file or folder, or a folder has none of them.
        ValueError: If a file has the suffix of neither.
    """
    found: dict[str, Source] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f'no such image, video or folder: {path}')
        below = _files_in(path) if path.is_dir() else [(path, path.name)]
        for file, name in below:
            stem = _free_name(os.path.splitext(name)[0], found)
            found[stem] = Source(file, stem)
    return list(found.values())


def _files_in(folder: Path) -> list[tuple[Path, str]]:
    """Images and videos in a folder, at any depth, and their places in it."""
    below = (Path(parent, name) for parent, names in files_below(folder) for name in names)
    files = sorted(path for path in below if path.suffix.lower() in (*IMAGE_SUFFIXES, *VIDEOS))
    if not files:
        raise FileNotFoundError(f'{folder} has no image or video in it, of {", ".join((*IMAGE_SUFFIXES, *VIDEOS))}')
    return [(file, str(file.relative_to(folder))) for file in files]


def _free_name(stem: str, taken: dict) -> str:
    """A name that no other input has: files of several folders may have the same."""
    number = 1
    while (name := stem if number == 1 else f'{stem}_{number}') in taken:
        number += 1
    return name


def read_pictures(source: Source, read: Reader, max_pixels: int) -> Iterator[Picture]:
    """The picture of an image file, or those of a video.

    Raises:
        Unreadable: If the file cannot be read; says why.
    """
    try:
        check_regular(source.path)
        if source.is_video:
            yield from _read_frames(source, max_pixels)
            return
        check_image_size(str(source.path), max_pixels)
        pixels = read(source.path)
    except Unreadable:
        raise
    except Exception as error:  # decoders of any kind
        reason = ' '.join(str(error).split()) or type(error).__name__
        raise Unreadable(reason.removeprefix(f'{source.path} ')) from error
    yield Picture(source, pixels)


def _read_frames(source: Source, max_pixels: int) -> Iterator[Picture]:
    video = _open_video(source.path)
    if video.width * video.height > max_pixels:
        raise Unreadable(f'has frames of {video.width * video.height:,} pixels: allowed are {max_pixels:,}')
    frame, pixels = 0, video.read()
    while pixels is not None:
        yield Picture(source, pixels, frame, video.fps or 25.0)
        frame, pixels = frame + 1, video.read()
    if not frame:
        raise Unreadable('is no video that OpenCV can read, or has no frames')


def _open_video(path: Path) -> mmcv.VideoReader:
    return mmcv.VideoReader(str(path), cache_capacity=1)
