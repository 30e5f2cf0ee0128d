"""The command behind `tools/analysis_tools/analyze.py`."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from vitplug.analysis.tables import format_table
from vitplug.config.checks import check_no_pickles
from vitplug.config.reading import CONFIG_HELP, OptionsAction, read_config
from vitplug.errors.full_disks import explained_writes
from vitplug.errors.one_line import SETTINGS, one_line_errors
from vitplug.errors.stops import BadSample
from vitplug.files.named import check_weights
from vitplug.files.readers import refuse_code_in_files
from vitplug.tasks import check_scope

from . import results
from .images import SPLITS, find_images
from .plan import LeftOut, check_images, finished, identity, plan
from .run import run
from .store import Store, check_folder
from .subject import BASELINE, MODEL, Subject
from .table import ALL, MEASURES, choose

COMMAND = 'python tools/analysis_tools/analyze.py'


def main(argv: Sequence[str] | None = None) -> int:
    """Measures a trained model over images.

    Returns:
        Exit status: 0; 65 if some of the images could not be used, each being named on stderr. A wrong setting ends in
        one line and 2, a checkpoint that cannot be read in 66, a full disk in 74.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    args = _parser().parse_args(argv)
    with one_line_errors(*SETTINGS), explained_writes(args.out):
        out = Path(args.out)
        measures = choose(args.measures)
        check_folder(out)
        cfg = _read_config(args.config, args.checkpoint, 'CHECKPOINT', args.cfg_options)
        named = [(MODEL, cfg, args.checkpoint)]
        if args.baseline:
            config, checkpoint = args.baseline
            named.append((BASELINE, _read_config(config, checkpoint, '--baseline'), checkpoint))
        refuse_code_in_files()
        paths = find_images(cfg, args.images, args.num)
        subjects = [Subject.read(*one, args.device, args.allow_changes) for one in named]
        usable, skipped = check_images(subjects, paths)
        store = Store(out, identity(subjects, usable))
        jobs, left_out = plan(measures, subjects, store, explicit=args.measures != ALL)
        _say(left_out)
        run(jobs, subjects, usable, store)
        found = results.results_of([*jobs, *finished(MEASURES.values(), jobs, subjects, store)])
        images = dict(where=args.images, number=len(usable), files=list(map(str, usable)), skipped=skipped)
        pictures = results.write(out, found, subjects, images, left_out, f'{COMMAND} {shlex.join(argv)}')
    print(results.table(found))
    print(f'{len(usable)} images; {len(pictures)} pictures, {results.JSON} and {results.CSV} in {out}')
    if not skipped:
        return 0
    print(f'error: {len(skipped)} of {len(paths)} images cannot be used; they are named above', file=sys.stderr)
    return BadSample.status


def _read_config(path: str, checkpoint: str, option: str, settings: dict | None = None) -> Config:
    """A config whose model can be built, after a look for its checkpoint."""
    cfg = read_config(path, settings)
    check_scope(cfg)
    check_weights(checkpoint, option)
    check_no_pickles(cfg)
    return cfg


def _say(left_out: LeftOut) -> None:
    for measure, reasons in left_out.items():
        for label, reason in reasons.items():
            print(f'left out: {measure} of the {label}: {reason}')


class _List(argparse.Action):
    """`--list`: prints the measures and ends, whatever else is there."""

    def __call__(self, parser, namespace, values, option_string=None):
        lines = [('measure', 'unit', 'source', 'needs', 'definition')]
        lines += [(m.name, m.unit, m.source, m.needs, m.definition) for m in MEASURES.values()]
        print(format_table(lines))
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description='Measure what a trained model does: entropy, distance, similarity, receptive field and more, '
        'over images, with 95 %% intervals and pictures. A second call goes on where the first one stopped.'
    )
    parser.add_argument('config', help=CONFIG_HELP)
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--out', required=True, metavar='DIR', help='folder for all results: new, or of the same call')
    parser.add_argument(
        '--images',
        default=SPLITS[0],
        metavar='PATH',
        help=f'folder of images, image, or {" or ".join(SPLITS)} of the config (default {SPLITS[0]})',
    )
    parser.add_argument('--num', type=int, default=128, metavar='N', help='images, evenly spaced (default 128)')
    parser.add_argument(
        '--measures',
        default=ALL,
        metavar='NAME,...',
        help=f'of {", ".join(MEASURES)} (default {ALL}: those that apply to the model)',
    )
    parser.add_argument(
        '--baseline', nargs=2, metavar=('CONFIG', 'CHECKPOINT'), help='another model, measured on the same images'
    )
    parser.add_argument('--list', action=_List, nargs=0, help='print the measures with their definitions, and end')
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
