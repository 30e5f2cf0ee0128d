"""The command behind `tools/probe.py`."""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmengine.config import Config

from vitplug.analysis.study.options import add_out
from vitplug.analysis.study.store import check_folder, open_store
from vitplug.commands import add_device, call
from vitplug.config.options import add_options, config_parser
from vitplug.errors.one_line import one_line_ends
from vitplug.files.readers import refuse_code_in_files
from vitplug.runs.checks.data import check_data
from vitplug.runs.checks.model import model_config
from vitplug.runs.prediction.predictor import check_device
from vitplug.stacks import installed
from vitplug.tasks import TASKS

from . import results
from .extractors import POOLS, Extractor, Frozen, Pixels
from .images import SPLITS, Images, check_apart, class_names
from .kinds import KINDS, Kind
from .probes import LinearHead, LogisticRegression, NearestNeighbours, Probe
from .run import Plan, Subject, run, split_held_out

MODEL, BASELINE, RANDOM, PIXELS = 'model', 'baseline', 'random', 'pixels'
CONTROLS = (RANDOM, PIXELS)
PROBES = (NearestNeighbours.name, LinearHead.name, LogisticRegression.name)
GOES_ON = 'features and probes so far are kept, and the same command goes on'
PATCHES = 64
NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9.+-]*')


@dataclass(frozen=True)
class Named:
    """A model that the command line names.

    Attributes:
        label: As results name it.
        cfg: Its config.
        checkpoint: Its weights; None for initial weights.
    """

    label: str
    cfg: Config
    checkpoint: str | None


def main(argv: Sequence[str] | None = None) -> int:
    """Probes frozen backbones; returns exit status 0."""
    args = _parser().parse_args(argv)
    with one_line_ends(args.out, GOES_ON):
        plan = _plan(args)
        device = check_device(args.device)
        kind = KINDS[args.task]
        named = _models(args, kind)
        check_folder(args.out)
        refuse_code_in_files()
        check_data(named[0].cfg, SPLITS)
        extractors = _extractors(args, named, kind, device)
        subjects, names = _subjects(args, named[0].cfg, extractors, kind, device)
        reference = _reference([subject.label for subject in subjects])
        with open_store(args.out, _identity(subjects, plan)) as store:
            run(subjects, plan, store, args.cache_gib)
            findings = results.collect(subjects, plan, store, reference)
            results.write(args.out, findings, subjects, plan, names, call('probe', argv))
    print(results.table(findings, plan))
    counts = ' and '.join(f'{len(subjects[0].images[split])} {split} images' for split in SPLITS)
    print(f'{plan.seeds} seeds, {counts}; {results.JSON}, {results.CSV} and two pictures in {args.out}')
    return 0


def _plan(args: argparse.Namespace) -> Plan:
    """The probe and the seeds.

    Raises:
        ValueError: If a number is out of range, or an option is of another probe or task; names the option.
    """
    least = dict(layers=1, seeds=1, patches=1, iterations=1, num_train=2, num_test=1)
    for name, lowest in least.items():
        value = getattr(args, name)
        if value is not None and value < lowest:
            raise ValueError(f'--{name.replace("_", "-")} {value}: expected at least {lowest}')
    if not args.cache_gib > 0:
        raise ValueError(f'--cache-gib {args.cache_gib:g}: expected a positive number of GiB')
    for option, probe in (('k', NearestNeighbours), ('temperature', NearestNeighbours), ('iterations', LinearHead)):
        if getattr(args, option) is not None and args.probe != probe.name:
            raise ValueError(f'--{option}: is for --probe {probe.name}, not for {args.probe}: leave it out')
    for option, task in (('pool', 'classification'), ('patches', 'segmentation')):
        if getattr(args, option) is not None and args.task != task:
            raise ValueError(f'--{option}: is for --task {task}, not for {args.task}: leave it out')
    return Plan(_probe(args), args.seeds, args.patches or PATCHES)


def _probe(args: argparse.Namespace) -> Probe:
    if args.probe == LogisticRegression.name:
        return LogisticRegression()
    if args.probe == LinearHead.name:
        return LinearHead(**_given(iterations=args.iterations))
    if args.k is not None and min(args.k) < 1:
        raise ValueError(f'--k {min(args.k)}: expected at least 1 neighbour')
    if args.temperature is not None and not args.temperature > 0:
        raise ValueError(f'--temperature {args.temperature:g}: expected a positive number, such as 0.07')
    return NearestNeighbours(**_given(ks=args.k and tuple(args.k), temperature=args.temperature))


def _given(**settings) -> dict:
    return {name: value for name, value in settings.items() if value is not None}


def _models(args: argparse.Namespace, kind: Kind) -> list[Named]:
    """The model, those of `--also`, and the baseline; configs are read, checkpoints are not.

    Raises:
        FileNotFoundError, ValueError: If a file is missing, a config is of another task, or a name is taken.
    """
    models = [
        _named(MODEL, [args.config, *([args.checkpoint] if args.checkpoint else [])], 'CHECKPOINT', args.cfg_options)
    ]
    for name, *files in args.also or ():
        taken = [one.label for one in models] + [BASELINE, *CONTROLS]
        if not NAME.fullmatch(name) or name in taken:
            raise ValueError(
                f'--also {name}: expected a name of letters, digits, dots and dashes, none of {", ".join(taken)}'
            )
        if not 1 <= len(files) <= 2:
            raise ValueError(f'--also {name}: expected NAME CONFIG [CHECKPOINT], got {len(files)} files')
        models.append(_named(name, files, f'--also {name}'))
    if args.baseline:
        if len(args.baseline) > 2:
            raise ValueError(f'--baseline: expected CONFIG [CHECKPOINT], got {len(args.baseline)} files')
        models.append(_named(BASELINE, args.baseline, '--baseline'))
    for one in models:
        _check_task(one.cfg, kind, args.task)
    if RANDOM in args.controls and args.checkpoint is None:
        raise ValueError(
            f'--controls {RANDOM}: the model itself has initial weights; name a CHECKPOINT, or leave it out'
        )
    return models


def _named(label: str, files: Sequence[str], option: str, settings: Mapping | None = None) -> Named:
    config, checkpoint = files[0], files[1] if len(files) > 1 else None
    return Named(label, model_config(config, checkpoint, option, settings), checkpoint)


def _check_task(cfg: Config, kind: Kind, task: str) -> None:
    """Checks that a config is of the probed task and has a backbone and both splits.

    Raises:
        ValueError: Names what is missing.
    """
    name = TASKS[cfg.default_scope].name
    if name not in KINDS:
        raise ValueError(
            f"{cfg.filename} is of {name} ({cfg.default_scope}), which is not probed: a detector's features say little "
            f'without its head; name a config of {" or ".join(KINDS)}'
        )
    if cfg.default_scope != kind.library:
        raise ValueError(f'--task {task}: {cfg.filename} is of {name} ({cfg.default_scope}); set --task {name}')
    if not isinstance(cfg.model.get('backbone'), Mapping):
        raise ValueError(f'{cfg.filename}: model has no backbone to probe')
    missing = [f'{split}_dataloader' for split in SPLITS if not cfg.get(f'{split}_dataloader')]
    if missing:
        raise ValueError(
            f'{cfg.filename} has no {" and no ".join(missing)}: a probe learns from train and tests on test'
        )


def _extractors(
    args: argparse.Namespace, named: Sequence[Named], kind: Kind, device: str
) -> list[tuple[Named, Extractor]]:
    """The models and the controls, with what makes their features; weights are read here."""
    model = named[0]
    controls = [Named(control, model.cfg, None) for control in CONTROLS if control in args.controls]

    def extractor(one: Named) -> Extractor:
        if one.label == PIXELS:
            return Pixels(kind.dense)
        return Frozen(one.cfg, one.checkpoint, kind.dense, args.layers, args.pool or POOLS[0], device)

    return [(one, extractor(one)) for one in (*named, *controls)]


def _subjects(
    args: argparse.Namespace, cfg: Config, extractors: Sequence[tuple[Named, Extractor]], kind: Kind, device: str
) -> tuple[list[Subject], Sequence[str]]:
    """The models with the images of the first one's config, and the names of the classes.

    Raises:
        ValueError: If a test image is a training image, or there are too few.
    """
    numbers = dict(train=args.num_train, test=args.num_test)
    subjects = []
    for one, extractor in extractors:
        images = {split: Images(cfg, split, numbers[split], one.cfg) for split in SPLITS}
        if not subjects:
            check_apart(images['train'], images['test'])
            split_held_out(len(images['train']), seed=0)
            names = class_names(images['train'])
        subjects.append(Subject(one.label, one.cfg, extractor, images, kind, len(names), Path(args.cache), device))
    return subjects, names


def _reference(labels: Sequence[str]) -> str | None:
    """What the others are compared with: the baseline, else the first control, else the model if there are others."""
    if len(labels) == 1:
        return None
    return next(label for label in (BASELINE, *CONTROLS, MODEL) if label in labels)


def _identity(subjects: Sequence[Subject], plan: Plan) -> dict:
    """What the values of a folder depend on, besides the seed."""
    return dict(
        vitplug=installed(['vitplug']).get('vitplug'),
        probe=plan.probe.name,
        settings=dict(plan.probe.settings),
        patches=plan.patches,
        models={subject.label: subject.cache.key for subject in subjects},
    )


def _parser() -> argparse.ArgumentParser:
    parser = config_parser(
        'probe',
        'Probe frozen backbones: classify images, or the patches of images, by simple classifiers of their '
        'features, with several seeds. A second call goes on where the first one stopped.',
    )
    parser.add_argument('checkpoint', nargs='?', help='checkpoint file; without one, the backbone has initial weights')
    add_out(parser)
    parser.add_argument('--task', choices=tuple(KINDS), required=True, help='detection is not probed')
    parser.add_argument('--probe', choices=PROBES, default=LinearHead.name, help=f'default {LinearHead.name}')
    parser.add_argument(
        '--layers', type=int, default=1, metavar='N', help='last blocks, or stages, whose outputs are used (default 1)'
    )
    parser.add_argument(
        '--pool',
        choices=POOLS,
        help=f'of images, where there is a class token; else the mean (default {POOLS[0]})',
    )
    parser.add_argument('--seeds', type=int, default=5, metavar='N', help='probes of each model (default 5)')
    parser.add_argument(
        '--baseline',
        nargs='+',
        metavar='FILE',
        help='CONFIG [CHECKPOINT] of the model that all others are compared with',
    )
    parser.add_argument(
        '--also',
        nargs='+',
        action='append',
        metavar='ARG',
        help='NAME CONFIG [CHECKPOINT] of a further model; repeatable',
    )
    parser.add_argument(
        '--controls',
        nargs='+',
        choices=CONTROLS,
        default=(),
        help='random: the same backbone with initial weights; pixels: no backbone',
    )
    parser.add_argument('--num-train', type=int, metavar='N', help='training images, evenly spaced (default all)')
    parser.add_argument('--num-test', type=int, metavar='N', help='test images, evenly spaced (default all)')
    parser.add_argument(
        '--patches', type=int, metavar='N', help=f'patches of each training image to learn from (default {PATCHES})'
    )
    parser.add_argument(
        '--k', type=int, nargs='+', metavar='N', help='neighbours, the best of several on held-out images (default 20)'
    )
    parser.add_argument('--temperature', type=float, metavar='T', help='of the weights of neighbours (default 0.07)')
    parser.add_argument('--iterations', type=int, metavar='N', help='of the linear head (default 1000)')
    parser.add_argument(
        '--cache', default='work_dirs/features', metavar='DIR', help='folder of features (default work_dirs/features)'
    )
    parser.add_argument(
        '--cache-gib', type=float, default=4.0, metavar='GIB', help='most that the folder may hold (default 4)'
    )
    add_device(parser)
    add_options(parser, 'settings of the model that win over its config')
    return parser
