"""The command behind `tools/predict.py`."""

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import cv2
import mmcv
import numpy as np
from mmengine.structures import BaseDataElement
from tqdm import tqdm

from vitplug.commands import add_device
from vitplug.config.options import add_allow_changes, add_options, model_parser
from vitplug.errors.one_line import SETTINGS, one_line_errors, printable, status_of_skipped
from vitplug.errors.stops import Interrupted
from vitplug.files.named import check_pictures_folder
from vitplug.files.picture_sources import Picture, Source, Unreadable, find_sources, read_pictures
from vitplug.files.readers import refuse_code_in_files

from ..checks.data import max_pixels
from ..checks.model import model_config
from ..exported import read_notes
from ..options import add_exported
from .predictor import Predictor

PICTURES = 'pictures'
STOPS = (signal.SIGINT, signal.SIGTERM)


def main(argv: Sequence[str] | None = None) -> int:
    """Predicts pictures with a trained model.

    Returns:
        Exit status: 0; 65 if some of the inputs could not be used, each being named on stderr. A wrong setting ends in
        one line and 2, a checkpoint that cannot be read in 66, a full disk in 74, Ctrl-C in 75.
    """
    args = _parser().parse_args(argv)
    with one_line_errors(*SETTINGS):
        if args.batch_size < 1:
            raise ValueError(f'--batch-size {args.batch_size}: expected at least 1')
        if args.score_thr is not None and not 0 <= args.score_thr <= 1:
            raise ValueError(f'--score-thr {args.score_thr}: expected 0 to 1')
        check_pictures_folder(args.out, '--out')
        sources = find_sources(args.paths)
        cfg = model_config(args.config, args.checkpoint, 'CHECKPOINT', args.cfg_options)
        refuse_code_in_files()
        if args.exported is not None:
            read_notes(Path(args.exported))
        Path(args.out).mkdir(parents=True, exist_ok=True)
        predictor = Predictor(cfg, args.checkpoint, args.device, args.score_thr, args.allow_changes, args.exported)
        failed = predict(predictor, sources, Path(args.out), args.batch_size, max_pixels(cfg))
    print(f'{len(sources) - len(failed)} of {len(sources)} inputs done: {args.out}')
    return status_of_skipped(len(failed), len(sources), 'inputs')


def predict(
    predictor: Predictor, sources: Sequence[Source], out: Path, batch_size: int, most_pixels: int
) -> dict[Source, str]:
    """Writes pictures and results of all sources, and says on stderr which cannot be used and why.

    Results are written as they come. Ctrl-C ends it after the batch at hand, with all files whole.

    Returns:
        Sources that could not be used, or not to their end, with the reasons.

    Raises:
        Interrupted: On Ctrl-C; says what is missing.
    """
    failed: dict[Source, str] = {}
    read = predictor.read  # a pipeline that reads no files is refused before a file of results is there

    def fail(source: Source, place: object, reason: str) -> None:
        failed.setdefault(source, reason)
        tqdm.write(printable(f'cannot use {place}: {reason}'), file=sys.stderr)

    def pictures() -> Iterator[Picture]:
        for source in sources:
            try:
                yield from read_pictures(source, read, most_pixels)
            except Unreadable as error:
                fail(source, source.path, str(error))

    waiting, total = pictures(), sum(source.count() for source in sources)
    with (
        tqdm(desc='predicting', total=total, unit='picture', mininterval=1.0, disable=None) as bar,
        Results(predictor, out) as results,
        stop_asked() as asked,
    ):
        while batch := list(islice(waiting, batch_size)):
            if asked():
                done = sources.index(batch[0].source) - len(failed)
                raise Interrupted(f'interrupted before {batch[0]}: {done} of {len(sources)} inputs are done: {out}')
            for picture, result in zip(batch, _predict_batch(predictor, batch), strict=True):
                if isinstance(result, Exception):
                    fail(picture.source, picture, f'{type(result).__name__}: {" ".join(str(result).split())}')
                    continue
                try:
                    results.add(picture, result)
                except Unreadable as error:
                    fail(picture.source, picture, str(error))
            bar.update(len(batch))
    return failed


@contextmanager
def stop_asked() -> Iterator[Callable[[], bool]]:
    """Notes a Ctrl-C or SIGTERM, and gives the answer to whether one came. A second one ends the process as usual."""
    received = []

    def note(number: int, frame: object) -> None:
        received.append(number)
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    # Python delivers signals to the main thread only.
    heard = STOPS if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield lambda: bool(received)
    finally:
        restore()


def _predict_batch(predictor: Predictor, batch: Sequence[Picture]) -> list[BaseDataElement | Exception]:
    """Predictions, or errors, for each picture: a failing picture leaves the others alone."""
    try:
        return list(predictor([picture.pixels for picture in batch]))
    except Exception as error:  # transforms and models of any kind
        if len(batch) == 1:
            return [error]
    return [result for picture in batch for result in _predict_batch(predictor, [picture])]


class Results:
    """Records and drawn pictures in a folder; drawn frames of a video become a video.

    Args:
        predictor: Draws the pictures.
        out: The folder.
    """

    def __init__(self, predictor: Predictor, out: Path):
        self.predictor, self.out = predictor, out
        self.files = predictor.task.files(out)
        self.video: tuple[Source, cv2.VideoWriter] | None = None

    def __enter__(self) -> 'Results':
        return self

    def __exit__(self, *error) -> None:
        self._close_video()
        for file in self.files.values():
            file.close()

    def add(self, picture: Picture, sample: BaseDataElement) -> None:
        """Writes the drawn picture and the records of one.

        Raises:
            Unreadable: If OpenCV can write no video of these frames.
            OSError: If the folder cannot be written.
        """
        drawn = self.predictor.draw(picture.pixels, sample)[..., ::-1]
        if picture.frame is None:
            mmcv.imwrite(drawn, str(self.out / PICTURES / f'{picture.name}.png'))
        else:
            self._add_frame(picture, np.ascontiguousarray(drawn))
        for name, records in self.predictor.task.record(picture, sample, self.out).items():
            for record in records:
                self.files[name].add(record)

    def _add_frame(self, picture: Picture, drawn: np.ndarray) -> None:
        if self.video is None or self.video[0] != picture.source:
            self._close_video()
            self.video = picture.source, self._open_video(picture, drawn)
        self.video[1].write(drawn)

    def _open_video(self, picture: Picture, drawn: np.ndarray) -> cv2.VideoWriter:
        path = self.out / PICTURES / f'{picture.source.name}.mp4'
        path.parent.mkdir(parents=True, exist_ok=True)
        size = drawn.shape[1], drawn.shape[0]
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*'mp4v'), picture.fps, size)
        if not writer.isOpened():
            raise Unreadable(f'OpenCV cannot write {path}, {size[0]} x {size[1]} pixels, {picture.fps} frames a second')
        return writer

    def _close_video(self) -> None:
        if self.video is not None:
            self.video[1].release()
        self.video = None


def _parser() -> argparse.ArgumentParser:
    parser = model_parser(
        'predict', 'Predict pictures with a trained model: drawn pictures, and JSON. The config decides the task.'
    )
    parser.add_argument('paths', nargs='+', metavar='PATH', help='image, video, or folder with such at any depth')
    parser.add_argument('--out', required=True, metavar='DIR', help='new or empty folder for all results')
    add_device(parser)
    parser.add_argument(
        '--score-thr',
        type=float,
        metavar='SCORE',
        help='least score of what is drawn (default 0.3 for boxes, 0 for classes)',
    )
    parser.add_argument('--batch-size', type=int, default=1, metavar='N', help='pictures at a time (default 1)')
    add_exported(parser)
    add_options(parser)
    add_allow_changes(parser)
    return parser
