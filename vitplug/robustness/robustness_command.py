"""The command behind `tools/analysis_tools/robustness.py`."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from vitplug.analysis.study.drawing import FORMATS
from vitplug.analysis.study.options import add_out, add_settings
from vitplug.analysis.study.store import check_folder, open_store
from vitplug.commands import call, command_parser
from vitplug.config.reading import CONFIG_HELP
from vitplug.errors.one_line import one_line_ends
from vitplug.files.readers import refuse_code_in_files

from . import curves_and_examples, results
from .attacks import check_epsilon
from .columns import read_columns
from .run import calibrate, check_attacks, check_same_images, identity, run
from .scores import check_metric
from .suites import ALL, SEVERITIES, SUITES, Options, choose_suites
from .transforms import check_severity

REPEATS = 5
GOES_ON = 'finished tests are kept, and the same command goes on'
# The suites that read an option.
READ_BY = {
    **dict.fromkeys(('epsilon', 'calibrate', 'pgd', 'autoattack', 'imagenet_a'), ('cb-table8',)),
    'imagenet_v2': ('cb-table6',),
    'photons': ('cb-table12',),
    'directions': ('revit-table4', 'revit-table5'),
    **dict.fromkeys(('severities', 'imagenet_c'), ('corruptions',)),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Tests how robust trained models are."""
    args = _parser().parse_args(argv)
    with one_line_ends(args.out, GOES_ON):
        pairs, options = _pairs(args.models), _options(args)
        check_folder(args.out)
        refuse_code_in_files()
        columns = read_columns(pairs, args.timm, args.cfg_options, args.device, args.allow_changes)
        for column in columns:
            check_metric(column)
        images = check_same_images(columns, args.num)
        # Refuses what is missing; the calibrated size comes later.
        choose_suites(args.suite, columns, replace(options, epsilons=options.epsilons or _to_be_found(args)))
        with open_store(args.out, identity(columns, images, args.seed, options)) as store:
            remarks = []
            if args.calibrate is not None:
                epsilon, accuracy = calibrate(columns[0], images, args.calibrate, store)
                remarks.append(
                    f'calibrated: {columns[0].label} has top-1 {accuracy:.2f} (asked: {args.calibrate:g}) under FGSM '
                    f'of epsilon {epsilon:.6g} = {255 * epsilon:.4g}/255'
                )
                options = replace(options, epsilons=sorted({*options.epsilons, epsilon}))
            suites = choose_suites(args.suite, columns, options)
            conditions = [condition for of_suite in suites.values() for condition in of_suite]
            remarks += check_attacks(columns, conditions, images)
            for remark in remarks:
                print(remark)
            run(columns, conditions, images, args.seed, args.repeats, store)
            numbers = results.numbers_of(suites, columns, store, args.repeats)
            about = dict(
                command=call('robustness', argv),
                images=len(images),
                seed=args.seed,
                repeats=args.repeats,
                photons=options.photons,
                remarks=remarks,
            )
            names = [name for name in suites if name in SUITES]
            results.write(args.out, numbers, columns, names, options, about)
            drawn = curves_and_examples.write(
                args.out, numbers, suites, columns, options, images, args.seed, args.format
            )
    for name in names:
        print(f'\n{results.table(name, numbers, columns, options)}')
    print(f'\n{len(images)} images; {results.INTERVALS}')
    print(f'{len(drawn)} pictures, {results.JSON} and {results.CSV} in {args.out}')


def _to_be_found(args: argparse.Namespace) -> tuple[float, ...]:
    return () if args.calibrate is None else (1 / 255,)


def _pairs(models: Sequence[str]) -> list[tuple[str, str]]:
    if len(models) % 2:
        raise ValueError(f'CONFIG CHECKPOINT: {len(models)} files: expected a checkpoint after each config')
    return list(zip(models[::2], models[1::2], strict=True))


def _options(args: argparse.Namespace) -> Options:
    """The options of suites, checked.

    Raises:
        ValueError: If one is wrong; names it.
    """
    for option, least, number in (('--num', 1, args.num), ('--repeats', 2, args.repeats), ('--seed', 0, args.seed)):
        if number is not None and number < least:
            raise ValueError(f'{option} {number}: expected at least {least}')
    if args.pgd < 0:
        raise ValueError(f'--pgd {args.pgd}: expected a number of steps, 0 for no PGD')
    if args.calibrate is not None and not 0 < args.calibrate < 100:
        raise ValueError(f'--calibrate {args.calibrate:g}: expected a top-1 accuracy in points, above 0 and below 100')
    _check_used(args)
    if not args.photons > 0:
        raise ValueError(f'--photons {args.photons}: expected a number above 0')
    for severity in args.severities:
        check_severity('--severities', severity)
    return Options(
        sorted({_epsilon(text) for text in args.epsilon}),
        args.pgd,
        args.autoattack,
        args.directions,
        args.photons,
        sorted(set(args.severities) - {0}),
        args.imagenet_a,
        args.imagenet_v2,
        args.imagenet_c,
    )


def _check_used(args: argparse.Namespace) -> None:
    """Checks that a suite reads each option.

    Raises:
        ValueError: If none does; names the option.
    """
    defaults = _parser()
    for name, suites in READ_BY.items():
        is_read = {ALL, *suites} & set(args.suite)
        if not is_read and getattr(args, name) != defaults.get_default(name):
            raise ValueError(
                f'--{name.replace("_", "-")}: is for --suite {" or ".join(suites)}, not for {" ".join(args.suite)}: '
                'leave it out'
            )


def _epsilon(text: str) -> float:
    try:
        epsilon = float(Fraction(text))
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f'--epsilon {text}: expected a number or a fraction, such as 4/255') from error
    check_epsilon(epsilon)
    return epsilon


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        'robustness',
        "Test how robust trained models are, by the papers' tests: scores and drops with 95 % intervals, "
        'differences on the same images, curves over strength. A second call goes on where the first one stopped.',
    )
    parser.add_argument(
        'models',
        nargs='+',
        metavar='CONFIG CHECKPOINT',
        help=f'{CONFIG_HELP}, and its checkpoint; further pairs are further columns, compared with the first',
    )
    parser.add_argument(
        '--timm',
        nargs=2,
        action='append',
        default=[],
        metavar=('NAME', 'CHECKPOINT'),
        help='a model of timm and a file with its weights as a further column',
    )
    parser.add_argument('--suite', nargs='+', required=True, choices=[*SUITES, ALL], help='what to test')
    add_out(parser)
    parser.add_argument('--num', type=int, metavar='N', help='images, evenly spaced (default: all)')
    parser.add_argument('--repeats', type=int, default=REPEATS, metavar='N', help=f'of noise (default {REPEATS})')
    parser.add_argument('--seed', type=int, default=0, help='of noise and corruptions (default 0)')
    attacks = parser.add_argument_group('cb-table8')
    attacks.add_argument(
        '--epsilon', nargs='+', default=[], metavar='E', help='sizes of FGSM, pixels from 0 to 1: 1/255'
    )
    attacks.add_argument(
        '--calibrate',
        type=float,
        metavar='TARGET',
        help='find the epsilon at which the first model has this top-1 accuracy, in points',
    )
    attacks.add_argument('--pgd', type=int, default=0, metavar='STEPS', help='attack with PGD, too (default: no)')
    attacks.add_argument(
        '--autoattack', action='store_true', help='attack with AutoAttack, too: thousands of forwards for each image'
    )
    attacks.add_argument(
        '--imagenet-a', type=Path, metavar='DIR', help='ImageNet-A, a folder for each of its 200 classes'
    )
    others = parser.add_argument_group('other suites')
    others.add_argument(
        '--imagenet-v2', type=Path, nargs='+', default=[], metavar='DIR', help='cb-table6: sets of ImageNet-V2'
    )
    others.add_argument(
        '--photons',
        type=float,
        default=1.0,
        metavar='N',
        help='cb-table12: of shot noise, for a grey level (default 1)',
    )
    others.add_argument(
        '--directions',
        choices=('first', 'both'),
        default='first',
        help='revit-table4 and 5: right and down, or left and up as well (default first)',
    )
    others.add_argument(
        '--severities',
        type=int,
        nargs='+',
        default=list(SEVERITIES),
        metavar='N',
        help='of corruptions, 0 (the clean image) to 5 (default 1 to 5)',
    )
    others.add_argument(
        '--imagenet-c', type=Path, metavar='DIR', help="corruptions: ImageNet-C's files, DIR/CORRUPTION/SEVERITY/CLASS"
    )
    parser.add_argument('--format', choices=FORMATS, default=FORMATS[0], help=f'of the pictures (default {FORMATS[0]})')
    add_settings(parser)
    return parser
