"""The command behind `tools/predict.py`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import cv2
import mmcv
import numpy as np
from mmengine.structures import BaseDataElement
from tqdm import tqdm

from vitplug.config.checks import check_no_pickles
from vitplug.config.reading import add_options, read_config
from vitplug.errors.full_disks import explained_writes
from vitplug.errors.one_line import SETTINGS, one_line_errors, printable
from vitplug.errors.stops import BadSample
from vitplug.files.named import check_pictures_folder, check_weights
from vitplug.files.pictures import Picture, Source, Unreadable, find_sources, read_pictures
from vitplug.files.readers import refuse_code_in_files
from vitplug.tasks import check_scope

from ..checks.data import max_pixels
from .predictor import Predictor

PICTURES = 'pictures'


def main(argv: Sequence[str] | None = None) -> int:
    """Predicts pictures with a trained model.

    Returns:
        Exit status: 0; 65 if some of the inputs could not be used, each being named on stderr. A wrong setting ends in
        one line and 2, a checkpoint that cannot be read in 66, a full disk in 74.
    """
    args = _parser().parse_args(argv)
    with one_line_errors(*SETTINGS), explained_writes(args.out):
        if args.batch_size < 1:
            raise ValueError(f'--batch-size {args.batch_size}: expected at least 1')
        if args.score_thr is not None and not 0 <= args.score_thr <= 1:
            raise ValueError(f'--score-thr {args.score_thr}: expected 0 to 1')
        check_pictures_folder(args.out, '--out')
        sources = find_sources(args.paths)
        cfg = read_config(args.config, args.cfg_options)
        check_scope(cfg)
        check_weights(args.checkpoint, option='CHECKPOINT')
        check_no_pickles(cfg)
        refuse_code_in_files()
        Path(args.out).mkdir(parents=True, exist_ok=True)
        predictor = Predictor(cfg, args.checkpoint, args.device, args.score_thr, args.allow_changes)
        failed = predict(predictor, sources, Path(args.out), args.batch_size, max_pixels(cfg))
    print(f'{len(sources) - failed} of {len(sources)} inputs done: {args.out}')
    if not failed:
        return 0
    print(f'error: {failed} of {len(sources)} inputs cannot be used; they are named above', file=sys.stderr)
    return BadSample.status


def predict(predictor: Predictor, sources: Sequence[Source], out: Path, batch_size: int, most_pixels: int) -> int:
    """Writes pictures and results of all sources, and says on stderr which cannot be used and why.

    Returns:
        How many of the sources could not be used, or not to their end.
    """
    failed: dict[Source, str] = {}

    def fail(source: Source, place: object, reason: str) -> None:
        failed.setdefault(source, reason)
        tqdm.write(printable(f'cannot use {place}: {reason}'), file=sys.stderr)

    def pictures() -> Iterator[Picture]:
        for source in sources:
            try:
                yield from read_pictures(source, predictor.read, most_pixels)
            except Unreadable as error:
                fail(source, source.path, str(error))

    waiting, drawings = pictures(), Drawings(out)
    total = sum(source.count() for source in sources)
    with tqdm(desc='predicting', total=total, unit='picture', mininterval=1.0, disable=None) as bar:
        while batch := list(islice(waiting, batch_size)):
            for picture, result in zip(batch, _predict_batch(predictor, batch), strict=True):
                if isinstance(result, Exception):
                    fail(picture.source, picture, f'{type(result).__name__}: {" ".join(str(result).split())}')
                    continue
                drawings.add(picture, predictor.draw(picture.pixels, result))
                predictor.task.record(picture, result, out)
            bar.update(len(batch))
    drawings.close()
    predictor.task.write(out)
    return len(failed)


def _predict_batch(predictor: Predictor, batch: Sequence[Picture]) -> list[BaseDataElement | Exception]:
    """Predictions, or errors, for each picture: a failing picture leaves the others alone."""
    try:
        return list(predictor([picture.pixels for picture in batch]))
    except Exception as error:  # transforms and models of any kind
        if len(batch) == 1:
            return [error]
    return [result for picture in batch for result in _predict_batch(predictor, [picture])]


class Drawings:
    """Drawn pictures in a folder; frames of a video become a video.

    Args:
        out: The folder of all results.
    """

    def __init__(self, out: Path):
        self.folder = out / PICTURES
        self.video: tuple[Source, cv2.VideoWriter] | None = None

    def add(self, picture: Picture, drawn: np.ndarray) -> None:
        """Writes one, ``(height, width, 3)``, red first.

        Raises:
            OSError: If it cannot be written.
        """
        if picture.frame is None:
            mmcv.imwrite(drawn[..., ::-1], str(self.folder / f'{picture.name}.png'))
            return
        if self.video is None or self.video[0] != picture.source:
            self.close()
            self.video = picture.source, self._open(picture, drawn)
        self.video[1].write(np.ascontiguousarray(drawn[..., ::-1]))

    def _open(self, picture: Picture, drawn: np.ndarray) -> cv2.VideoWriter:
        path = self.folder / f'{picture.source.name}.mp4'
        path.parent.mkdir(parents=True, exist_ok=True)
        size = drawn.shape[1], drawn.shape[0]
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*'mp4v'), picture.fps, size)
        if not writer.isOpened():
            raise OSError(f'{path}: OpenCV cannot write it; is MPEG-4 left out of it, or the folder unwritable?')
        return writer

    def close(self) -> None:
        """Finishes the video, if there is one."""
        if self.video is not None:
            self.video[1].release()
        self.video = None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description='Predict pictures with a trained model: drawn pictures, and JSON. The config decides the task.'
    )
    parser.add_argument('config', help='config file of the training')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('paths', nargs='+', metavar='PATH', help='image, video, or folder with such at any depth')
    parser.add_argument('--out', required=True, metavar='DIR', help='new or empty folder for all results')
    parser.add_argument('--device', help='such as cpu or cuda:0 (default: an accelerator where there is one)')
    parser.add_argument('--score-thr', type=float, metavar='SCORE', help='least score of what is drawn')
    parser.add_argument('--batch-size', type=int, default=1, metavar='N', help='pictures at a time (default 1)')
    add_options(parser)
    parser.add_argument(
        '--allow-changes',
        action='store_true',
        help='take a checkpoint that was trained with other settings than those of the config; they are listed',
    )
    return parser
