"""Inputs of a prediction: videos that end early or state nonsense, playlists, names that meet."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from .trials import REGISTRY, Accept, Scene, Trial, one

FRAMES = 40

# Damages `in/clip.mp4`; returns what was done, what may come of it, and what a message may name.
Damage = Callable[[Path, Scene], tuple[str, Accept, tuple[str, ...]]]


def video(damage: Damage) -> Damage:
    """Registers damage to the inputs of a prediction."""

    def attack(scene: Scene) -> Trial:
        folder = scene.make()
        (folder / 'in').mkdir()
        clip = folder / 'in' / 'clip.mp4'
        _write(clip, 25.0)
        what, accept, names = damage(clip, scene)
        return Trial(one('predict.py classify.py good_classify.pth in --out out'), what, names, accept)

    return REGISTRY.add('video', damage, attack)


def _write(path: Path, fps: float) -> None:
    # As the tool does, which is too late in a fork of a process that has written a video.
    os.environ['OPENCV_FFMPEG_LOGLEVEL'] = '-8'
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*'mp4v'), fps, (32, 32))
    for number in range(FRAMES):
        writer.write(np.random.default_rng(number).integers(0, 255, (32, 32, 3), np.uint8))
    writer.release()


@video
def cut(path: Path, scene: Scene) -> tuple[str, Accept, tuple[str, ...]]:
    length = int(path.stat().st_size * scene.draw.uniform(0, 0.95))
    os.truncate(path, length)
    return f'cut to {length} bytes', Accept.REFUSED, ('clip.mp4',)


@video
def missing_frames(path: Path, scene: Scene) -> tuple[str, Accept, tuple[str, ...]]:
    """The frames of the second half are zeros; the index of the file is whole."""
    data = bytearray(path.read_bytes())
    start = data.index(b'mdat') - 4
    size = struct.unpack('>I', data[start : start + 4])[0]
    half = start + 8 + (size - 8) // 2
    data[half : start + size] = bytes(start + size - half)
    path.write_bytes(data)
    return 'zeros from its middle', Accept.REFUSED, ('clip.mp4',)


@video
def playlist(path: Path, scene: Scene) -> tuple[str, Accept, tuple[str, ...]]:
    os.mkfifo(path.parent.with_name('pipe'))
    path.write_text('#EXTM3U\n#EXTINF:1,\n../pipe\n#EXT-X-ENDLIST\n')
    return 'a playlist of a pipe', Accept.REFUSED, ('clip.mp4',)


@video
def frame_rate(path: Path, scene: Scene) -> tuple[str, Accept, tuple[str, ...]]:
    fps = scene.draw.choice([0.1, 1001.0, 100_000.0])
    _write(path, fps)
    return f'{fps} frames a second', Accept.ANY, ('clip.mp4',)


@video
def names_that_meet(path: Path, scene: Scene) -> tuple[str, Accept, tuple[str, ...]]:
    """A folder with the name of the video, the video twice under links, and a second one."""
    (path.parent / 'clip').mkdir()
    cv2.imwrite(str(path.parent / 'clip' / '000000.png'), np.zeros((32, 32, 3), np.uint8))
    path.with_name('same.mp4').symlink_to(path)
    _write(path.with_name('clip.avi'), 25.0)
    return 'names that meet', Accept.ANY, ('clip',)
