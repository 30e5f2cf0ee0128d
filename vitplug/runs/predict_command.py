"""The command behind `tools/predict.py`."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import cv2
import mmcv
import numpy as np
from mmengine.registry import HOOKS
from mmengine.structures import BaseDataElement
from tqdm import tqdm

from vitplug.commands import add_device
from vitplug.config.options import add_exported, add_options, exported_hook, model_parser
from vitplug.errors import printable
from vitplug.files.picture_sources import Picture, Source, Unreadable, find_sources, read_pictures

from .checks import model_config
from .prediction import SCORE, Predictor

PICTURES, RECORDS = 'pictures', 'predictions.jsonl'


def main(argv: Sequence[str] | None = None) -> int:
    """Predicts pictures with a trained model.

    Returns:
        Exit status: 0; 1 if some of the inputs could not be used, each being named on stderr.
    """
    args = _parser().parse_args(argv)
    if args.batch_size < 1:
        raise ValueError(f'--batch-size {args.batch_size}: expected at least 1')
    if (Path(args.out) / RECORDS).exists():
        raise FileExistsError(f'--out: {args.out} holds the {RECORDS} of another call: choose another folder')
    sources = find_sources(args.paths)
    cfg = model_config(args.config, args.checkpoint, 'CHECKPOINT', args.cfg_options)
    predictor = Predictor(cfg, args.checkpoint, args.device, args.score_thr)
    if args.exported:
        HOOKS.build(exported_hook(args.exported)).replace(predictor.model, args.checkpoint)
    failed = predict(predictor, sources, Path(args.out), args.batch_size)
    print(f'{len(sources) - len(failed)} of {len(sources)} inputs done: {args.out}')
    return 1 if failed else 0


def predict(predictor: Predictor, sources: Sequence[Source], out: Path, batch_size: int) -> set[Source]:
    """Writes pictures and records of all sources as they come, and says on stderr which cannot be used and why.

    Returns:
        Sources that could not be used, or not to their end.
    """
    failed: set[Source] = set()
    read = predictor.read  # a pipeline that reads no files is refused before a file of results is there

    def fail(source: Source, place: str, reason: str) -> None:
        failed.add(source)
        tqdm.write(printable(f'cannot use {place}: {" ".join(reason.split())}'), file=sys.stderr)

    def pictures() -> Iterator[Picture]:
        for source in sources:
            try:
                yield from read_pictures(source, read)
            except Unreadable as error:
                fail(source, str(source.path), str(error))

    waiting, total = pictures(), sum(source.count() for source in sources)
    drawing: Source | None = None
    out.mkdir(parents=True, exist_ok=True)
    with (
        tqdm(desc='predicting', total=total, unit='picture', mininterval=1.0, disable=None) as bar,
        ExitStack() as video,  # ends the one that is written, whatever happens
    ):
        while batch := list(islice(waiting, batch_size)):
            for picture, result in zip(batch, _predict_batch(predictor, batch), strict=True):
                place = dict(file=str(picture.source.path))
                if picture.frame is not None:
                    place |= dict(frame=picture.frame)
                if isinstance(result, Exception):
                    where = ', frame '.join(map(str, place.values()))
                    fail(picture.source, where, f'{type(result).__name__}: {result}')
                    continue
                drawn = predictor.draw(picture.pixels, result)[..., ::-1]
                if picture.source != drawing:
                    video.close()
                    drawing = picture.source
                    if picture.frame is not None:
                        writer = _video(out / PICTURES / f'{drawing.name}.mp4', picture.fps, drawn.shape[1::-1])
                        video.callback(writer.release)
                if picture.frame is None:
                    mmcv.imwrite(drawn, str(out / PICTURES / f'{picture.name}.png'))
                else:
                    writer.write(np.ascontiguousarray(drawn))
                record = place | predictor.record(result, picture.name, out)
                with open(out / RECORDS, 'a', encoding='utf-8') as file:
                    file.write(f'{json.dumps(record)}\n')
            bar.update(len(batch))
    return failed


def _predict_batch(predictor: Predictor, batch: Sequence[Picture]) -> list[BaseDataElement | Exception]:
    """Predictions, or errors, for each picture: a failing picture leaves the others alone."""
    try:
        return predictor([picture.pixels for picture in batch])
    except Exception as error:  # transforms and models of any kind
        if len(batch) == 1:
            return [error]
    return [result for picture in batch for result in _predict_batch(predictor, [picture])]


def _video(path: Path, fps: float, size: tuple[int, int]) -> cv2.VideoWriter:
    """A video that frames of (width, height) can be added to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*'mp4v'), fps, size)
    if not writer.isOpened():
        raise OSError(f'OpenCV cannot write {path}, {size[0]} x {size[1]} pixels, {fps} frames a second')
    return writer


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
        default=SCORE,
        metavar='SCORE',
        help='least score of a box that is drawn (default 0.3)',
    )
    parser.add_argument('--batch-size', type=int, default=1, metavar='N', help='pictures at a time (default 1)')
    add_exported(parser)
    add_options(parser)
    return parser
