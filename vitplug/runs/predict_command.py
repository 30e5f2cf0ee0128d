"""The command behind `tools/predict.py`."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import cv2
import mmcv
import numpy as np
from mmengine.registry import HOOKS
from tqdm import tqdm

from vitplug.commands import add_device
from vitplug.config.options import add_exported, add_options, exported_hook, model_parser
from vitplug.errors import printable
from vitplug.files.folders import IMAGE_SUFFIXES, names_in

from .checks import model_config
from .prediction import SCORE, Predictor

VIDEOS = ('.mp4', '.avi', '.mov', '.mkv', '.webm')
PICTURES, RECORDS = 'pictures', 'predictions.jsonl'


def main(argv: Sequence[str] | None = None) -> int:
    """Predicts pictures with a trained model.

    Returns:
        Exit status: 0; 1 if some of the inputs could not be used, each being named on stderr.
    """
    args = _parser().parse_args(argv)
    if (Path(args.out) / RECORDS).exists():
        raise FileExistsError(f'--out: {args.out} holds the {RECORDS} of another call: choose another folder')
    files = find_files(args.paths)
    cfg = model_config(args.config, args.checkpoint, 'CHECKPOINT', args.cfg_options)
    predictor = Predictor(cfg, args.checkpoint, args.device, args.score_thr)
    _ = predictor.read  # refused where the pipeline loads no files: the order of its channels is not known
    if args.exported:
        HOOKS.build(exported_hook(args.exported)).replace(predictor.model, args.checkpoint)
    failed = predict(predictor, files, Path(args.out))
    print(f'{len(files) - failed} of {len(files)} inputs done: {args.out}')
    return int(failed > 0)


def find_files(paths: Sequence[str]) -> dict[str, Path]:
    """The images and videos among files and below folders, by the names of their results, without suffix.

    Raises:
        FileNotFoundError: If there is no such file or folder, or a folder has none of them.
    """
    files: dict[str, Path] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f'no such image, video or folder: {path}')
        folder, names = path.parent, [path.name]
        if path.is_dir():
            folder, names = path, names_in(path, (*IMAGE_SUFFIXES, *VIDEOS))
        if not names:
            raise FileNotFoundError(f'{path} has no image or video in it, of {", ".join((*IMAGE_SUFFIXES, *VIDEOS))}')
        for name in names:
            stem = os.path.splitext(name)[0]
            names_of_results = chain([stem], (f'{stem}_{number}' for number in count(2)))
            files[next(one for one in names_of_results if one not in files)] = folder / name
    return files


def predict(predictor: Predictor, files: Mapping[str, Path], out: Path) -> int:
    """Writes pictures and records of all files as they come, and says on stderr which cannot be used and why.

    Returns:
        How many could not be used, or not to their end.
    """
    failed = 0
    out.mkdir(parents=True, exist_ok=True)
    for name, path in tqdm(files.items(), 'predicting', unit='file', mininterval=1.0, disable=None):
        predict_file = predict_video if path.suffix.lower() in VIDEOS else predict_image
        try:
            predict_file(predictor, path, name, out)
        except Exception as error:  # decoders, transforms and models of any kind
            failed += 1
            reason = f'{type(error).__name__}: {" ".join(str(error).split())}'
            tqdm.write(printable(f'cannot use {path}: {reason}'), file=sys.stderr)
    return failed


def predict_image(predictor: Predictor, path: Path, name: str, out: Path) -> None:
    """Writes the picture and the record of an image."""
    pixels = predictor.read(path)
    [sample] = predictor([pixels])
    mmcv.imwrite(predictor.draw(pixels, sample)[..., ::-1], str(out / PICTURES / f'{name}.png'))
    _add_record(out, dict(file=str(path)) | predictor.record(sample, name, out))


def predict_video(predictor: Predictor, path: Path, name: str, out: Path) -> None:
    """Writes a video, and the records of its frames."""
    video, drawn_video = mmcv.VideoReader(str(path), cache_capacity=1), cv2.VideoWriter()
    target, code = out / PICTURES / f'{name}.mp4', cv2.VideoWriter_fourcc(*'mp4v')
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        for frame, pixels in enumerate(tqdm(video, path.name, unit='frame', leave=False, disable=None)):
            [sample] = predictor([pixels])
            drawn = np.ascontiguousarray(predictor.draw(pixels, sample)[..., ::-1])
            if frame == 0 and not drawn_video.open(str(target), code, video.fps, drawn.shape[1::-1]):
                raise OSError(f'OpenCV cannot write {target} of {drawn.shape[1::-1]} pixels, {video.fps} frames/s')
            drawn_video.write(drawn)
            record = predictor.record(sample, f'{name}{path.suffix}/{frame:06}', out)
            _add_record(out, dict(file=str(path), frame=frame) | record)
    finally:
        drawn_video.release()
    if video.position == 0:
        raise ValueError('it is no video that OpenCV can read, or has no frames')
    if video.position < (count := video.frame_cnt):
        raise ValueError(f'only {video.position} of the {count} frames in its header can be read: these are predicted')


def _add_record(out: Path, record: Mapping[str, Any]) -> None:
    with open(out / RECORDS, 'a', encoding='utf-8') as file:
        file.write(f'{json.dumps(record)}\n')


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
    add_exported(parser)
    add_options(parser)
    return parser
