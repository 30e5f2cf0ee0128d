"""Looks at every file of a config's data before a training does: behind `tools/misc/check_dataset.py`."""

from collections.abc import Sequence

from vitplug.config.options import OptionsAction, config_parser
from vitplug.config.reading import read_config
from vitplug.errors import printable
from vitplug.tasks.libraries import check_scope

from .checks import SPLITS, examine, own_splits


def main(argv: Sequence[str] | None = None) -> int:
    """Says what of the data is kept and left out, and what is wrong.

    Returns:
        Exit status: 0 without errors, 1 with errors.
    """
    parser = config_parser('check', 'Look at every image and annotation of a config before training.')
    help = "default: all, without a test on the validation's data"
    parser.add_argument('--splits', nargs='+', choices=SPLITS, help=help)
    parser.add_argument(
        '--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings that win over the config'
    )
    args = parser.parse_args(argv)
    cfg = read_config(args.config, args.cfg_options)
    check_scope(cfg)
    sources, errors = examine(cfg, args.splits or own_splits(cfg), every=True)
    for source in sources:
        seen = f'{len(source.samples):,} images' if source.samples else 'not looked at: its class fetches its files'
        print(printable(f'{source.path}: {source.account or seen}'))
    print()
    for error in errors:
        print(printable(f'error  {error}'))
    print(f'{len(errors)} errors')
    return int(bool(errors))
