"""The command behind `tools/model_converters/convert.py`."""

from collections.abc import Sequence
from pathlib import Path

from vitplug.commands import command_parser
from vitplug.errors import one_line_errors
from vitplug.files.named import check_new_file

from .files import SUFFIXES, WRONG_SHAPES, find_meta, find_weights, local_file, read_checkpoint, write_new
from .formats import TARGETS, convert


def convert_main(argv: Sequence[str] | None = None) -> None:
    """Converts a checkpoint. A wrong setting or file gives a one-line error and exit status 2."""
    parser = command_parser(
        'convert',
        'Convert a checkpoint of timm, OpenMMLab or the authors of a paper; its format is detected from its keys. No '
        'file is ever overwritten.',
    )
    parser.add_argument('source', metavar='SRC', help='checkpoint file, or its http address')
    parser.add_argument('target', metavar='DST', type=Path, help='new file; .pth, .pt or .safetensors')
    parser.add_argument('--to', choices=TARGETS, default='vitplug', help='format of the keys (default vitplug)')
    parser.add_argument('--prefix', help='use only the keys that begin with this, such as backbone.')
    args = parser.parse_args(argv)
    with one_line_errors():
        print(convert_file(args.source, args.target, args.to, args.prefix))


def convert_file(source: str, target: Path, to: str, prefix: str | None) -> str:
    """Converts a file and returns a one-line summary.

    Raises:
        ValueError or OSError: If reading, converting or writing fails; each names the file.
    """
    check_new_file(target, 'DST', SUFFIXES)
    content = read_checkpoint(local_file(source))
    state, _ = find_weights(content, source)
    try:
        converted, source_format, notes = convert(state, to, prefix)
    except WRONG_SHAPES as error:
        raise ValueError(f'{source}: {error}') from error
    # timm's own files are bare state dicts.
    write_new(converted, target, meta=None if to == 'timm' else find_meta(content, source))
    return '; '.join((f'{target}: {len(converted)} tensors, from {source_format.name} to {to}', *notes))
