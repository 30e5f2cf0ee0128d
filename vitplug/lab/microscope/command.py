"""The command behind `tools/analysis_tools/microscope.py`."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import Tensor

from vitplug.checkpoints.files import local_file
from vitplug.commands import add_device, call
from vitplug.config.options import add_options, model_parser
from vitplug.config.parts import loader_leaves
from vitplug.errors import one_line_errors
from vitplug.files.folders import IMAGE_SUFFIXES, file_hash
from vitplug.files.named import check_new_file
from vitplug.hosting import PluggedModel
from vitplug.runs.checks import model_config
from vitplug.runs.prediction import Predictor

from .look import Model, Prediction, View, named_scores
from .writing import write_page

#: Where images are looked for, in this order. Training sets may be large, and show nothing of a model.
SPLITS = ('test', 'val')


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the page."""
    parser = model_parser(
        'microscope',
        'Write one HTML file that shows what a model sees: the attention of every token of images, by block and head, '
        'beside that of a baseline, with predictions and ground truth. It opens without a network.',
    )
    add = parser.add_argument
    add('images', nargs='+', type=Path, metavar='IMAGE', help='image files, about four')
    baseline = 'model to compare with, such as one without plugs'
    add('--baseline', nargs=2, metavar=('CONFIG', 'CHECKPOINT'), help=baseline)
    add('--out', type=Path, default=Path('report.html'), metavar='HTML', help='a new file (default report.html)')
    add_device(parser)
    add_options(parser, 'settings that win over the configs')
    args = parser.parse_args(argv)
    with one_line_errors():
        check_new_file(args.out, '--out', ('.html',))
        for path in args.images:
            if not path.is_file() or path.suffix.lower() not in IMAGE_SUFFIXES:
                raise ValueError(f'IMAGE: {path} is no image file, of {", ".join(IMAGE_SUFFIXES)}: name a few images')
        named = [('Baseline', *args.baseline)] if args.baseline else []
        named.append(('Model', args.config, args.checkpoint))
        subjects = [Subject(title, config, checkpoint, args) for title, config, checkpoint in named]
        scopes = {subject.cfg.default_scope for subject in subjects}
        if len(scopes) > 1:
            raise ValueError(f'--baseline: models of one task are compared, these are of {", ".join(sorted(scopes))}')
        views = [view_of(subjects, path, truth) for path, truth in find_truths(subjects[-1], args.images).items()]
        models = [subject.model for subject in subjects]
        write_page(args.out, models, views, args.images, call('microscope', argv))
    print(f'report: {args.out} ({args.out.stat().st_size / 1e6:.2f} MB)')


class Subject:
    """A model of a config and a checkpoint, with the settings and the device of the command's options.

    Raises:
        ValueError: If its backbone is none of vitplug's.
    """

    def __init__(self, title: str, config: str, checkpoint: str, args: argparse.Namespace):
        self.cfg = model_config(config, checkpoint, 'CHECKPOINT', args.cfg_options)
        self.predictor = Predictor(self.cfg, checkpoint, args.device)
        backbone = getattr(self.predictor.model, 'backbone', None)
        if not isinstance(backbone, PluggedModel):
            raise ValueError(f"{config}: model.backbone is a {type(backbone).__name__}: expected one of vitplug's")
        self.model = Model(
            title,
            Path(config).stem,
            f'{Path(config).stem}, {type(backbone).__name__}: {backbone.plug_summary}',
            f'{config}, {checkpoint} (sha256 {file_hash(Path(local_file(checkpoint)))[:12]})',
            backbone,
        )

    def look_at(self, path: Path) -> tuple[np.ndarray, Mapping[str, Any], Tensor, Prediction]:
        """Pixels of an image file, the batch of its own, the same as the backbone gets it, and what is predicted.

        Raises:
            ValueError: If it cannot be read, or the pipeline fails on it.
        """
        try:
            pixels = self.predictor.read(path)
            batch = self.predictor.collate([pixels])
        except Exception as error:  # decoders and transforms of any kind
            raise ValueError(f'{path}: cannot be read: {type(error).__name__}: {error}') from error
        [sample] = self.predictor.run(batch)
        if 'pred_score' in sample:
            said = Prediction(named_scores(sample.pred_score, self.predictor.classes))
        else:
            said = Prediction('', self.predictor.draw(pixels, sample))
        return pixels, batch, self.predictor.model.data_preprocessor(batch, training=False)['inputs'], said


def view_of(subjects: Sequence[Subject], path: Path, truth: BaseDataElement | None) -> View:
    """An image as the models see it.

    Raises:
        ValueError: If it cannot be read, or becomes images of two sizes.
    """
    pixels, batches, inputs, said = zip(*(subject.look_at(path) for subject in subjects), strict=True)
    sizes = [tuple(x.shape[-2:]) for x in inputs]
    if len({*sizes}) > 1:
        raise ValueError(f'--baseline: {path} becomes an image of {sizes[0]} and of {sizes[1]} pixels: one is needed')
    before = batches[-1]['inputs'][0]
    rgb = before.flip(0) if len(before) == 3 else before  # pipelines load blue first
    known = None if truth is None else truth_of(subjects[-1], pixels[-1], truth)
    return View.of(path.name, rgb, inputs, said, known)


# --- ground truth ---


def find_truths(subject: Subject, paths: Sequence[Path]) -> dict[Path, BaseDataElement | None]:
    """By image, its sample in the data of a test or a validation; None of one that these do not list.

    Data that are not on this machine list none.
    """
    found: dict[Path, BaseDataElement | None] = dict.fromkeys(paths)
    wanted = {path.resolve(): path for path in paths}
    init_default_scope(subject.cfg.default_scope)
    for _, settings in (leaf for split in SPLITS for leaf in loader_leaves(subject.cfg, split)):
        try:
            dataset = DATASETS.build(dict(settings))
        except (ValueError, OSError, AssertionError, RuntimeError):
            continue
        for index in range(len(dataset)):
            path = wanted.get(Path(dataset.get_data_info(index).get('img_path') or '.').resolve())
            if path and found[path] is None:
                found[path] = dataset[index]['data_samples']
    return found


def truth_of(subject: Subject, pixels: np.ndarray, truth: BaseDataElement) -> Prediction | None:
    """What the data say of an image, a sample with annotations; None if nothing."""
    if 'gt_label' in truth:
        classes = subject.predictor.classes
        return Prediction(', '.join(str(classes[i]) if classes else f'class {i}' for i in truth.gt_label.tolist()))
    if 'gt_sem_seg' not in truth and 'gt_instances' not in truth:
        return None
    if 'gt_instances' in truth:  # mmdet's boxes are no tensors yet
        truth.gt_instances.bboxes = getattr(truth.gt_instances.bboxes, 'tensor', truth.gt_instances.bboxes)
    return Prediction('', subject.predictor.draw(pixels, truth, truth=True))
