"""The command `tools/analysis_tools/erf.py`: effective receptive fields with fitted Gaussians."""

import argparse
import io
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import torch
from matplotlib.figure import Figure
from mmengine.config import Config
from torch import nn
from tqdm import tqdm

from vitplug.backbones.base import PluggedBackbone
from vitplug.config.checks import check_no_pickles
from vitplug.config.reading import CONFIG_HELP, OptionsAction, read_config
from vitplug.errors.full_disks import explained_writes
from vitplug.errors.one_line import SETTINGS, one_line_errors
from vitplug.errors.stops import BadSample, Interrupted
from vitplug.files.atomic import AtomicBackend
from vitplug.files.named import check_weights
from vitplug.files.readers import refuse_code_in_files
from vitplug.runs.prediction import Predictor
from vitplug.tasks import check_scope
from vitplug.tasks.predictions import Predictions

from .measures.gaussian_fit import GaussianFit, centre_bias, fit_gaussian
from .measures.learned import learned_statistics
from .measures.receptive_field import cancels, centre_token, describe_last_map, input_gradient, last_map
from .measures.reset import RESETS, reset_copy
from .study import drawing, plan
from .study.images import SPLITS, Loaded, find_images
from .study.results import describe, versions
from .study.statistics import GROUPS, LEVEL, Estimate, jackknife, without_groups
from .study.store import Store, check_folder
from .study.subject import BASELINE, MODEL, Subject
from .tables import format_table
from .timm_models import TimmSubject, describe_feature_map, feature_map

COMMAND = 'python tools/analysis_tools/erf.py'
MEASURE = 'erf'
JSON, MAPS, PICTURE, BIASES = 'erf.json', 'maps.npz', 'erf.png', 'biases.png'
DEFINITION = (
    'effective receptive field of the central token (upper left of the middle) of the last feature map: the gradient '
    "of the mean of the token's channels with respect to the normalised image, mean over the image's channels, "
    'rectified for each image, mean over images; divided by its sum for plots and fits'
)
SOURCE = 'Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields, Section 3'
FIT = (
    'amp / (2 pi sigma_x sigma_y) exp(-(x - x0)^2 / (2 sigma_x^2) - (y - y0)^2 / (2 sigma_y^2)), least squares, in '
    'pixels from 0; r_squared = 1 - var(residual) / var(map)'
)
BIAS = 'position bias of the central query, all kinds summed, mean over heads, minimum subtracted; fitted in tokens'
NUMBERS = ('amp', 'x', 'y', 'sigma_x', 'sigma_y', 'r_squared')
CANCELS = (
    'the final norm scales all channels alike, as in an untrained model: the mean of a token is constant, and this map '
    'is rounding noise'
)
NO_FIT = ('-', '-', '-', '-', 'no fit')


def main(argv: Sequence[str] | None = None) -> int:
    """Measures effective receptive fields and fits Gaussians to them.

    Returns:
        Exit status: 0; 65 if some of the images could not be used, each being named on stderr. A wrong setting ends in
        one line and 2, a checkpoint that cannot be read in 66, a full disk in 74, Ctrl-C in 75.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    args = _parser().parse_args(argv)
    with one_line_errors(*SETTINGS), explained_writes(args.out), _interruptible():
        out = Path(args.out)
        _check(args)
        check_folder(out)
        subjects = _read_subjects(args)
        configs = [subject.cfg for subject in subjects if isinstance(subject, Subject)]
        if not configs and args.images in SPLITS:
            raise ValueError(f'--images {args.images}: --timm has no data set: name a folder of images')
        paths = find_images(configs[0] if configs else Config(), args.images, args.num)
        fields = [field for subject in subjects for field in _fields(subject, args.reset)]
        usable, skipped = plan.check_images(subjects, paths)
        for subject in subjects:
            _check_sizes(subject)
        store = Store(out, _identity(subjects, usable, args.size))
        run(fields, subjects, usable, store)
        found = [Result.of(field, store, usable, args.bounds) for field in fields]
        images = dict(
            size=args.size, where=args.images, number=len(usable), files=list(map(str, usable)), skipped=skipped
        )
        write(out, found, images, f'{COMMAND} {shlex.join(argv)}')
    print(table(found))
    print(f'{len(usable)} images; {PICTURE}, {JSON} and {MAPS} in {out}')
    if not skipped:
        return 0
    print(f'error: {len(skipped)} of {len(paths)} images cannot be used; they are named above', file=sys.stderr)
    return BadSample.status


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turns Ctrl-C into one line.

    Raises:
        Interrupted: On Ctrl-C; says how to go on.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted('interrupted; the maps so far are kept, and the same command goes on') from error


# --- what is measured ---


@dataclass(eq=False)
class Field:
    """A model whose ERF is measured: as it is, or with its positions re-initialised.

    Attributes:
        label: ``'model'``, ``'baseline'`` or, say, ``'model reset ape'``.
        subject: The model that it is made of, which reads the images.
        network: Its backbone, or a copy of it with other positions.
        reset: Kind of re-initialisation and the parameters that it changed; None for none.
    """

    label: str
    subject: Subject | TimmSubject
    network: nn.Module
    reset: tuple[str, Sequence[str]] | None = None

    @cached_property
    def features(self):
        """From an image to the last map, as the measures take it."""
        return self.network if isinstance(self.network, PluggedBackbone) else feature_map(self.network)

    def map_size(self, image: Loaded) -> tuple[int, int]:
        """Rows and columns of the last map."""
        with torch.no_grad():
            is_plugged = isinstance(self.network, PluggedBackbone)
            found = last_map(self.network, image.inputs) if is_plugged else self.features(image.inputs)
        return tuple(found.shape[-2:])

    def describe(self) -> dict:
        """Which model it is, and which of its maps counts."""
        subject = self.subject
        about = describe(subject) if isinstance(subject, Subject) else subject.describe()
        if isinstance(self.network, PluggedBackbone):
            about |= dict(map=describe_last_map(self.network))
        else:
            about |= dict(map=describe_feature_map(self.network))
        if self.reset:
            kind, names = self.reset
            about |= dict(reset=dict(kind=kind, about=RESETS[kind].about, parameters=names))
        return about


def _fields(subject: Subject | TimmSubject, resets: Sequence[str]) -> Iterator[Field]:
    """The ERFs of a model: its own and, of the model but not of its baseline, those after each reset."""
    yield Field(subject.label, subject, subject.backbone)
    for kind in dict.fromkeys(resets if subject.label == MODEL else ()):
        network, names = reset_copy(subject.backbone, kind)
        yield Field(f'{subject.label} reset {kind}', subject, network, (kind, names))


def _read_subjects(args: argparse.Namespace) -> list[Subject | TimmSubject]:
    named = [] if args.timm else [(MODEL, args.config, args.model_checkpoint, 'CHECKPOINT', args.cfg_options)]
    if args.baseline:
        named.append((BASELINE, *args.baseline, '--baseline', None))
    configs = [(label, _config(path, weights, option, given), weights) for label, path, weights, option, given in named]
    refuse_code_in_files()
    found: list[Subject | TimmSubject] = []
    if args.timm:
        check_weights(args.checkpoint, '--checkpoint')
        found.append(TimmSubject.read(MODEL, args.timm, args.checkpoint, args.device))
    of_configs = [Subject.read(*one, args.device, args.allow_changes) for one in configs]
    if args.size:
        for subject in of_configs:
            subject.predictor = Cropping(subject.predictor, tuple(args.size))
    return found + of_configs


@dataclass(frozen=True)
class Cropping:
    """A predictor that reads images cropped at their centre to the shape of a size, and resized to it.

    All images then have one size after the test pipeline, too.

    Attributes:
        predictor: The model with its pipeline.
        size: Height and width in pixels.
    """

    predictor: Predictor
    size: tuple[int, int]

    def read(self, path: str | Path) -> np.ndarray:
        """The pixels of an image file, ``(height, width, channels)``."""
        pixels, (height, width) = self.predictor.read(path), self.size
        scale = min(pixels.shape[0] / height, pixels.shape[1] / width)
        sides = [max(1, round(side * scale)) for side in self.size]
        top, left = ((has - wanted) // 2 for has, wanted in zip(pixels.shape[:2], sides, strict=True))
        return mmcv.imresize(pixels[top : top + sides[0], left : left + sides[1]], (width, height))

    @property
    def task(self) -> Predictions:
        return self.predictor.task

    @property
    def model(self) -> nn.Module:
        return self.predictor.model


def _config(path: str, checkpoint: str, option: str, settings: Mapping | None) -> Config:
    cfg = read_config(path, settings)
    check_scope(cfg)
    check_weights(checkpoint, option)
    check_no_pickles(cfg)
    return cfg


def _check(args: argparse.Namespace) -> None:
    """Checks that one model is named, and the size.

    Raises:
        ValueError: If none or several are, or the size is empty or of no use.
    """
    if args.timm and args.config:
        raise ValueError(f'--timm {args.timm} is the model: leave CONFIG and CHECKPOINT out')
    if args.checkpoint and not args.timm:
        raise ValueError('--checkpoint is that of --timm: name the one of a config after it, CONFIG CHECKPOINT')
    if args.size and min(args.size) < 1:
        raise ValueError(f'--size {args.size[0]} {args.size[1]}: expected height and width in pixels')
    if args.size and args.timm and not args.baseline:
        raise ValueError("--size: timm's models get images of their own size: leave it out")
    if not args.timm and not args.model_checkpoint:
        raise ValueError('no model: name CONFIG and CHECKPOINT, or a model of timm by --timm NAME')


def _check_sizes(subject: Subject | TimmSubject) -> None:
    """Checks that all images of a model have one size.

    Raises:
        ValueError: If they differ.
    """
    sizes = sorted(set(subject.sizes))
    if len(sizes) > 1:
        shown = ', '.join(f'{height}x{width}' for height, width in sizes[:4])
        raise ValueError(
            f'the test pipeline of the {subject.label} gives images of {len(sizes)} sizes ({shown}): the receptive '
            f'field is a mean over images of one size; crop them first, by --size {sizes[-1][0]} {sizes[-1][1]}, say'
        )


def _identity(subjects: Sequence[Subject | TimmSubject], paths: Sequence[Path], size: Sequence[int] | None) -> dict:
    """What the maps depend on; resets may be added by a later call."""
    of_configs = plan.identity([subject for subject in subjects if isinstance(subject, Subject)], paths)
    of_timm = {
        subject.label: dict(timm=subject.name, checkpoint=subject.sha256[:16])
        for subject in subjects
        if isinstance(subject, TimmSubject)
    }
    return dict(command=MEASURE, size=size) | of_configs | of_timm


# --- the run ---


def groups(num_images: int) -> list[np.ndarray]:
    """Indices of the images whose sums are kept apart: what an interval over images is made of."""
    return np.array_split(np.arange(num_images), min(GROUPS, num_images))


def run(
    fields: Sequence[Field], subjects: Sequence[Subject | TimmSubject], paths: Sequence[Path], store: Store
) -> None:
    """Adds up the gradients that are still missing, with a progress bar; what is done is kept on an interruption.

    Args:
        fields: What is measured.
        subjects: The models.
        paths: The images.
        store: Where the sums of the groups of images are kept.

    Raises:
        Unreadable: If an image cannot be read any more.
    """
    todo = {field.label: _todo(store, field.label, len(paths)) for field in fields}
    total = sum(map(len, todo.values()))
    try:
        with tqdm(desc='receptive fields', total=total, unit='image', mininterval=1.0, disable=None) as bar:
            for index in sorted(set().union(*todo.values())):
                for subject in subjects:
                    wanted = [field for field in fields if field.subject is subject and index in todo[field.label]]
                    image = subject.load(paths[index]) if wanted else None
                    for field in wanted:
                        _add(store, field, todo[field.label][index], image)
                        bar.update()
                store.save_sometimes()
    finally:
        store.save()


def _todo(store: Store, label: str, num_images: int) -> dict[int, int]:
    """The images that are not in the sums, and the groups that they belong to. Groups are filled in order."""
    kept = store.units(label, MEASURE)
    return {
        int(index): number
        for number, group in enumerate(groups(num_images))
        for index in group[int(kept[number]['count']) if number in kept else 0 :]
    }


def _add(store: Store, field: Field, group: int, image: Loaded) -> None:
    gradient = input_gradient(field.features, image.inputs).double().cpu().numpy()
    kept = store.units(field.label, MEASURE).get(group, dict(total=0.0, count=0))
    unit = dict(total=kept['total'] + gradient, count=np.array(int(kept['count']) + 1))
    store.add(field.label, MEASURE, group, unit)


# --- the results ---


@dataclass(frozen=True)
class Result:
    """What one ERF says.

    Attributes:
        field: Of which model.
        erf: The map ``(H, W)``, its sum being 1.
        fit: The Gaussian fitted to it.
        intervals: Intervals over images of the numbers of the fit, by name.
        centre: Row and column of the central token, and the size of its map.
        biases: Of each block with a position bias, the bias of the central query.
        bias_fits: Gaussians fitted to them.
        learned: Statistics of the learned values of plugs.
        warning: Why the map says nothing; '' if it does.
    """

    field: Field
    erf: np.ndarray
    fit: GaussianFit
    intervals: Mapping[str, Estimate]
    centre: tuple[tuple[int, int], tuple[int, int]]
    biases: Mapping[int, np.ndarray]
    bias_fits: Mapping[int, GaussianFit]
    learned: Mapping
    warning: str

    @classmethod
    def of(cls, field: Field, store: Store, paths: Sequence[Path], bounds: bool) -> 'Result':
        """Fits the sums of a finished run."""
        units = [unit for _, unit in sorted(store.units(field.label, MEASURE).items())]
        erf, fit = _fitted(units, bounds)
        left_out = [_numbers(_fitted(some, bounds)[1]) for some in without_groups(units)]
        image = field.subject.load(paths[0])
        size = field.map_size(image)
        biases = _biases(field.network, image) if isinstance(field.network, PluggedBackbone) else {}
        return cls(
            field,
            erf,
            fit,
            jackknife(_numbers(fit), left_out, len(paths)),
            (centre_token(size), size),
            biases,
            {block: _fit_bias(bias, bounds) for block, bias in biases.items()},
            learned_statistics(field.network) if isinstance(field.network, PluggedBackbone) else {},
            CANCELS if cancels(field.features, image.inputs) else '',
        )

    def as_json(self) -> dict[str, Any]:
        """The results as JSON can hold them."""
        (row, column), (rows, columns) = self.centre
        estimates = {name: _interval(self.intervals[name]) for name in NUMBERS}
        return self.field.describe() | dict(
            warning=self.warning,
            image_size=list(self.erf.shape),
            token=dict(row=row, column=column, rows=rows, columns=columns),
            fit=self.fit.as_json() | dict(intervals=estimates),
            biases={block: fit.as_json() for block, fit in self.bias_fits.items()},
            learned=self.learned,
        )


def _fitted(units: Sequence[Mapping[str, np.ndarray]], bounds: bool) -> tuple[np.ndarray, GaussianFit]:
    """The map of some groups of images, its sum being 1, and its Gaussian."""
    total = np.sum([unit['total'] for unit in units], axis=0)
    erf = total / total.sum() if total.sum() > 0 else total
    return erf, fit_gaussian(erf, bounds)


def _numbers(fit: GaussianFit) -> dict[str, np.ndarray]:
    return {name: np.array(getattr(fit, name)) for name in NUMBERS}


def _interval(found: Estimate) -> list[float] | None:
    ends = [float(found.low), float(found.high)]
    return ends if np.isfinite(ends).all() else None


@torch.no_grad()
def _biases(backbone: PluggedBackbone, image: Loaded) -> dict[int, np.ndarray]:
    """The bias of the central query of each block that has one; where it depends on queries, that of this image."""

    def reduce(name, bias, site):
        return centre_bias(bias[:1, :1] if bias.ndim == 5 else bias, site).cpu().numpy()

    _, found = backbone.forward_intermediates(image.inputs, ('bias',), reduce=reduce)
    return found.get('bias', {})


def _fit_bias(bias: np.ndarray, bounds: bool) -> GaussianFit:
    try:
        return fit_gaussian(bias, bounds)
    except ValueError as error:  # windows of a few tokens
        return GaussianFit.failed(str(error))


def write(folder: Path, results: Sequence[Result], images: Mapping, command: str) -> None:
    """Writes numbers, maps and pictures, each file as a whole.

    Raises:
        OSError: If they cannot be written.
    """
    content = dict(
        command=command,
        versions=versions(),
        definition=DEFINITION,
        source=SOURCE,
        fit=FIT,
        biases=BIAS,
        interval=f'{LEVEL:.0%} over images; jackknife over at most {GROUPS} groups of images',
        images=images,
        models={result.field.label: result.as_json() for result in results},
    )
    AtomicBackend().put_text(json.dumps(content, indent=1), folder / JSON)
    maps = io.BytesIO()
    np.savez_compressed(maps, **{result.field.label: result.erf for result in results})
    AtomicBackend().put(maps.getvalue(), folder / MAPS)
    drawing.save(_picture(results, images['number']), folder / PICTURE)
    if any(result.biases for result in results):
        drawing.save(_bias_picture([result for result in results if result.biases]), folder / BIASES)


def table(results: Sequence[Result]) -> str:
    """The fits as text: of each ERF, in pixels, and of the position biases of each block, in tokens."""
    rows = [('map', 'block', 'sigma x', 'sigma y', 'centre x', 'centre y', 'R^2')]
    for result in results:
        label = result.field.label
        numbers = [_cell(result.intervals[name]) for name in ('sigma_x', 'sigma_y', 'x', 'y', 'r_squared')]
        rows.append((f'ERF, {label}, pixels', '', *(numbers if result.fit.converged else NO_FIT)))
        for block, fit in result.bias_fits.items():
            cells = [f'{getattr(fit, name):.3g}' for name in ('sigma_x', 'sigma_y', 'x', 'y', 'r_squared')]
            cells = cells if fit.converged else NO_FIT
            rows.append((f'position bias, {label}, tokens', str(block), *cells))
    warnings = [f'warning: {result.field.label}: {result.warning}' for result in results if result.warning]
    return '\n'.join((format_table(rows, numeric=range(1, 7)), *warnings))


def _cell(found: Estimate) -> str:
    half = (found.high - found.low) / 2
    return f'{float(found.mean):.3g}' + (f' ± {float(half):.2g}' if np.isfinite(half) else '')


def _picture(results: Sequence[Result], num_images: int) -> Figure:
    title = f'effective receptive field, {num_images} images; ellipses at 1 and 2 sigma'
    fields = {_heading(result): result.erf for result in results}
    return drawing.receptive_fields(title, fields, {_heading(result): result.fit for result in results})


def _heading(result: Result) -> str:
    """Names a panel; a map that says nothing is called so."""
    return result.field.label + (' (untrained, rounding noise)' if result.warning else '')


def _bias_picture(results: Sequence[Result]) -> Figure:
    """The position biases of at most 12 evenly spaced blocks of each model."""
    shown = [(result, block) for result in results for block in drawing.some(list(result.biases))]
    title = 'position bias of the central query, mean over heads; ellipses at 1 and 2 sigma'
    figure, axes = drawing.panels(len(shown), title, columns=4, inches=(2.6, 2.7))
    for ax, (result, block) in zip(axes, shown, strict=True):
        fit = result.bias_fits[block]
        ax.imshow(result.biases[block], cmap=drawing.HEAT)
        drawing.outline(ax, fit)
        told = f'sigma {fit.sigma_x:.2g} x {fit.sigma_y:.2g}, R^2 {fit.r_squared:.2f}' if fit.converged else 'no fit'
        ax.set_title(f'{result.field.label}, block {block}\n{told}', fontsize=8)
        ax.set_xlabel('tokens', fontsize=8)
    return figure


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description='Measure the effective receptive field of a model over images, and fit a Gaussian to it and to the '
        'position bias of each block. A second call goes on where the first one stopped.'
    )
    parser.add_argument('config', nargs='?', help=CONFIG_HELP)
    parser.add_argument('model_checkpoint', nargs='?', metavar='checkpoint', help='checkpoint file')
    parser.add_argument('--timm', metavar='NAME', help="a model of timm in the config's place")
    parser.add_argument(
        '--checkpoint', metavar='FILE', help='weights of the model of timm, with its names (default: drawn at random)'
    )
    parser.add_argument('--out', required=True, metavar='DIR', help='folder for all results: new, or of the same call')
    parser.add_argument(
        '--images',
        default=SPLITS[0],
        metavar='PATH',
        help=f'folder of images, image, or {" or ".join(SPLITS)} of the config (default {SPLITS[0]})',
    )
    parser.add_argument('--num', type=int, default=100, metavar='N', help='images, evenly spaced (default 100)')
    parser.add_argument(
        '--size',
        nargs=2,
        type=int,
        metavar=('HEIGHT', 'WIDTH'),
        help='crop images at their centre to this shape and resize them to it, before the test pipeline; for images of '
        'several sizes',
    )
    parser.add_argument(
        '--reset',
        nargs='+',
        default=[],
        choices=list(RESETS),
        metavar='KIND',
        help='also measure copies of the model without its learned positions: '
        + '; '.join(f'{name}: {kind.about}' for name, kind in RESETS.items()),
    )
    parser.add_argument(
        '--baseline', nargs=2, metavar=('CONFIG', 'CHECKPOINT'), help='another model, measured on the same images'
    )
    parser.add_argument(
        '--bounds', action='store_true', help='fit no negative volumes and no centres outside of the map'
    )
    parser.add_argument('--device', help='such as cpu or cuda:0 (default: an accelerator where there is one)')
    parser.add_argument(
        '--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings that win over the config'
    )
    parser.add_argument(
        '--allow-changes',
        action='store_true',
        help='take checkpoints that were trained with other settings than those of their configs; they are listed',
    )
    return parser
