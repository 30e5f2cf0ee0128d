"""The command behind `tools/analysis_tools/microscope.py`."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import Tensor
from tqdm import tqdm

from vitplug.checkpoints.files import local_file
from vitplug.commands import add_device, call
from vitplug.config.options import add_allow_changes, add_options, model_parser
from vitplug.config.parts import loader_leaves
from vitplug.errors import one_line_errors
from vitplug.files.fingerprint import file_hash
from vitplug.files.folders import IMAGE_SUFFIXES
from vitplug.files.named import check_new_file
from vitplug.files.whole import write_bytes
from vitplug.hosting import PluggedModel
from vitplug.lab.study.measures.grad_cam import grad_cams
from vitplug.runs.checks import model_config
from vitplug.runs.prediction import Predictor

from .classes import named_scores
from .look import Model, Prediction, View, as_picture
from .writing import MAX_MB, facts_of, write_page

#: Where images are looked for, in this order. Training sets may be large, and show nothing of a model.
SPLITS = ('test', 'val')


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the page."""
    args = _parser().parse_args(argv)
    with one_line_errors('nothing was written'):
        check_new_file(args.out, '--out', ('.html',))
        for path in args.images:
            if not path.is_file() or path.suffix.lower() not in IMAGE_SUFFIXES:
                raise ValueError(f'IMAGE: {path} is no image file, of {", ".join(IMAGE_SUFFIXES)}: name a few images')
        named = [('Baseline', *args.baseline)] if args.baseline else []
        named.append(('Model', args.config, args.checkpoint))
        subjects = [Subject(title, config, checkpoint, args) for title, config, checkpoint in named]
        scopes = {subject.cfg.default_scope for subject in subjects}
        if len(scopes) > 1:
            raise ValueError(
                f'--baseline: models of one task are compared, and these are of {", ".join(sorted(scopes))}'
            )
        facts = facts_of([subject.model for subject in subjects], args.images, call('microscope', argv))
        views = [view_of(subjects, path, truth) for path, truth in find_truths(subjects[-1], args.images).items()]
        progress = partial(tqdm, desc='looking', unit='image', disable=None)
        page = write_page([subject.model for subject in subjects], views, facts, args.max_mb, progress)
        write_bytes(args.out, page)
    print(f'report: {args.out} ({len(page) / 1e6:.2f} MB)')


class Subject:
    """A model of a config and a checkpoint.

    Args:
        title: ``'Model'`` or ``'Baseline'``.
        config: Its config.
        checkpoint: Its checkpoint.
        args: The options.

    Raises:
        ValueError: If its backbone is none of vitplug's.
    """

    def __init__(self, title: str, config: str, checkpoint: str, args: argparse.Namespace):
        self.cfg = model_config(config, checkpoint, 'CHECKPOINT', args.cfg_options)
        self.predictor = Predictor(self.cfg, checkpoint, args.device, allow_changes=args.allow_changes)
        network = self.predictor.model
        backbone = getattr(network, 'backbone', None)
        if not isinstance(backbone, PluggedModel):
            raise ValueError(
                f'{config}: model.backbone is a {type(backbone).__name__}, which records no intermediates: expected '
                "one of vitplug's, such as vitplug.VisionTransformer or vitplug.SwinTransformer, which have the same "
                'arguments and weights'
            )
        self.model = Model(
            title,
            Path(config).stem,
            f'{Path(config).stem}, {type(backbone).__name__}: {backbone.plug_summary}',
            f'{config}, {checkpoint} (sha256 {file_hash(Path(local_file(checkpoint)))[:12]})',
            backbone,
            partial(grad_cams, network),
        )

    def predict(self, path: Path) -> tuple[np.ndarray, Mapping[str, Any], BaseDataElement]:
        """Pixels of an image file, the batch of its own, and what is predicted.

        Raises:
            ValueError: If it cannot be read, or the pipeline fails on it.
        """
        try:
            pixels = self.predictor.read(path)
            batch = self.predictor.collate([pixels])
        except Exception as error:  # decoders and transforms of any kind
            raise ValueError(f'{path}: cannot be read: {type(error).__name__}: {error}') from error
        return pixels, batch, self.predictor.run(batch)[0]

    def inputs(self, batch: Mapping[str, Any]) -> Tensor:
        """The batch as the backbone gets it, ``(1, C, H, W)``."""
        return self.predictor.model.data_preprocessor(batch, training=False)['inputs']

    def said(self, pixels: np.ndarray, sample: BaseDataElement) -> Prediction:
        """A prediction in words for a class, drawn by the library otherwise."""
        if 'pred_score' in sample:
            return Prediction(named_scores(sample.pred_score, self.predictor.task.classes))
        return Prediction('', self.predictor.draw(pixels, sample))


def view_of(subjects: Sequence[Subject], path: Path, truth: BaseDataElement | None) -> View:
    """An image as the models see it.

    Raises:
        ValueError: If it cannot be read, or becomes images of two sizes.
    """
    predicted = [subject.predict(path) for subject in subjects]
    before = predicted[-1][1]['inputs'][0]
    inputs = [subject.inputs(batch) for subject, (_, batch, _) in zip(subjects, predicted, strict=True)]
    sizes = [tuple(x.shape[-2:]) for x in inputs]
    if len({*sizes}) > 1:
        raise ValueError(
            f'--baseline: {path} becomes an image of {sizes[0]} and of {sizes[1]} pixels in the two test pipelines: '
            'maps side by side need images of one size; give the baseline a config with the same test_dataloader'
        )
    rgb = before.flip(0) if len(before) == 3 else before  # pipelines load blue first
    picture, note = as_picture(rgb, sizes[-1])
    said = [subject.said(pixels, sample) for subject, (pixels, _, sample) in zip(subjects, predicted, strict=True)]
    known = None if truth is None else truth_of(subjects[-1], predicted[-1][0], truth)
    return View(f'{path.name}, {note}' if note else path.name, picture, inputs, said, known)


# --- ground truth ---


def find_truths(subject: Subject, paths: Sequence[Path]) -> dict[Path, BaseDataElement | None]:
    """By image, its sample in the data of a test or a validation; None of one that these do not list.

    Data that are not on this machine list none.
    """
    found: dict[Path, BaseDataElement | None] = dict.fromkeys(paths)
    wanted = {path.resolve(): path for path in paths}
    init_default_scope(subject.cfg.default_scope)
    for settings in _data_sets(subject.cfg):
        try:
            dataset = DATASETS.build(settings)
        except (ValueError, OSError):
            continue
        for index in range(len(dataset)):
            path = wanted.get(Path(dataset.get_data_info(index).get('img_path') or '.').resolve())
            if path and found[path] is None:
                found[path] = dataset[index]['data_samples']
    return found


def _data_sets(cfg: Config) -> Iterator[dict]:
    for split in SPLITS:
        if cfg.get(f'{split}_dataloader'):
            yield from (dict(settings) for _, settings in loader_leaves(cfg, split))


def truth_of(subject: Subject, pixels: np.ndarray, truth: BaseDataElement) -> Prediction | None:
    """What the data say of an image, a sample with annotations; None if nothing."""
    if 'gt_label' in truth:
        classes = subject.predictor.task.classes
        labels = truth.gt_label.tolist()
        return Prediction(', '.join(str(classes[label]) if classes else f'class {label}' for label in labels))
    if 'gt_sem_seg' not in truth and 'gt_instances' not in truth:
        return None
    if 'gt_instances' in truth:  # mmdet's boxes are no tensors yet
        truth.gt_instances.bboxes = getattr(truth.gt_instances.bboxes, 'tensor', truth.gt_instances.bboxes)
    return Prediction('', subject.predictor.draw_truth(pixels, truth))


def _parser() -> argparse.ArgumentParser:
    parser = model_parser(
        'microscope',
        'Write one HTML file that shows what a model sees: the attention of every token of images, by block and head, '
        'beside that of a baseline, with predictions and ground truth. It opens without a network.',
    )
    parser.add_argument('images', nargs='+', type=Path, metavar='IMAGE', help='image files, about four')
    parser.add_argument(
        '--baseline', nargs=2, metavar=('CONFIG', 'CHECKPOINT'), help='model to compare with, such as one without plugs'
    )
    parser.add_argument(
        '--out', type=Path, default=Path('report.html'), metavar='HTML', help='a new file (default report.html)'
    )
    parser.add_argument(
        '--max-mb',
        type=float,
        default=MAX_MB,
        metavar='MB',
        help='largest file, in millions of bytes (default 5); fewer queries are kept until it fits',
    )
    add_device(parser)
    add_options(parser, 'settings that win over the configs')
    add_allow_changes(parser)
    return parser
