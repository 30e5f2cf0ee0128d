"""From paths to pictures: files, folders and videos, one picture after the other."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import numpy as np

from .folders import IMAGE_SUFFIXES, files_below
from .limits import check_image_size, check_regular

if TYPE_CHECKING:
    from mmcv import VideoReader

CONTROLS = frozenset(range(0x20)) - frozenset(b'\t\n\r')  # bytes that no text has, and every video
# Frames a second of drawn videos, where the header gives none or more than any camera.
DEFAULT_FPS, MAX_FPS = 25.0, 1000
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
        if not self.is_video:
            return 1
        try:
            return max(1, len(_open_video(self.path)))
        except (ValueError, OSError):
            return 1  # and named when it is read


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
    sources, names = {}, Names()
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f'no such image, video or folder: {path}')
        below = _files_in(path) if path.is_dir() else [(path, path.name)]
        for file, name in below:
            if (itself := file.resolve()) not in sources:
                source = Source(file, os.path.splitext(name)[0])
                sources[itself] = replace(source, name=names.free(source))
    return list(sources.values())


def _files_in(folder: Path) -> list[tuple[Path, str]]:
    """Images and videos in a folder, at any depth, and their places in it."""
    below = (Path(parent, name) for parent, names in files_below(folder) for name in names)
    files = sorted(path for path in below if path.suffix.lower() in (*IMAGE_SUFFIXES, *VIDEOS))
    if not files:
        raise FileNotFoundError(f'{folder} has no image or video in it, of {", ".join((*IMAGE_SUFFIXES, *VIDEOS))}')
    return [(file, str(file.relative_to(folder))) for file in files]


class Names:
    """Names of results that no two inputs share, since files of several folders may have the same.

    The frames of a video lie in a folder of its name, in which no other result may lie.
    """

    def __init__(self):
        self._taken, self._folders, self._of_videos = set(), set(), set()

    def free(self, source: Source) -> str:
        """A name for a source: its own, or with a number behind it, or behind a folder that a video has."""
        stem = source.name
        while shared := self._of_videos.intersection(map(str, PurePath(stem).parents)):
            folder = shared.pop()
            stem = f'{folder}_2{stem.removeprefix(folder)}'
        taken = self._taken | self._folders if source.is_video else self._taken
        name = next(name for name in chain((stem,), (f'{stem}_{n}' for n in count(2))) if name not in taken)
        self._taken.add(name)
        self._folders.update(map(str, PurePath(name).parents))
        if source.is_video:
            self._of_videos.add(name)
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


def read_picture(path: Path, read: Reader, max_pixels: int) -> np.ndarray:
    """The pixels of an image file; as :func:`read_pictures`."""
    [picture] = read_pictures(Source(path, path.stem), read, max_pixels)
    return picture.pixels


def _read_frames(source: Source, max_pixels: int) -> Iterator[Picture]:
    video = _open_video(source.path)
    if video.width * video.height > max_pixels:
        raise Unreadable(f'has frames of {video.width * video.height:,} pixels: allowed are {max_pixels:,}')
    fps = video.fps if 0 < video.fps <= MAX_FPS else DEFAULT_FPS
    frame, pixels = 0, video.read()
    while pixels is not None:
        yield Picture(source, pixels, frame, fps)
        frame, pixels = frame + 1, video.read()
    if not frame:
        raise Unreadable('is no video that OpenCV can read, or has no frames')
    # The number in the header may be rounded from the duration.
    if frame < len(video) - max(1, len(video) // 100):
        raise Unreadable(f'only {frame} of its {len(video)} frames can be read: it is cut or damaged')


def _open_video(path: Path) -> 'VideoReader':
    """A video, but no playlist: FFmpeg would open what that names, which may be a pipe without an end.

    Raises:
        ValueError: If it is a text, or no regular file.
    """
    check_regular(path)
    with open(path, 'rb') as file:
        head = file.read(512)
    if head and CONTROLS.isdisjoint(head):
        raise Unreadable('is a text, such as a playlist, and no video: name the videos themselves')
    import mmcv  # images do without it

    os.environ.setdefault('OPENCV_FFMPEG_LOGLEVEL', '-8')  # FFmpeg has a line for each damaged block
    return mmcv.VideoReader(str(path), cache_capacity=1)
