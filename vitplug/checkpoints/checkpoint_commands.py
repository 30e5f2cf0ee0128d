"""The command behind `tools/model_converters/convert.py`."""

from collections.abc import Sequence
from pathlib import Path

import torch

from vitplug.commands import command_parser
from vitplug.errors import one_line_errors
from vitplug.files.named import check_new_file
from vitplug.files.whole import write_whole

from .files import WRONG_SHAPES, find_meta, find_weights, local_file, read_checkpoint
from .formats import convert


def convert_main(argv: Sequence[str] | None = None) -> None:
    """Converts a checkpoint. A wrong setting or file gives a one-line error and exit status 2."""
    parser = command_parser(
        'convert',
        "Convert a checkpoint of timm, OpenMMLab or the authors of a paper to vitplug's and mmpretrain's keys; its "
        'format is detected from its keys. No file is ever overwritten.',
    )
    parser.add_argument('source', metavar='SRC', help='checkpoint file, or its http address')
    parser.add_argument('target', metavar='DST', type=Path, help='new file; .pth or .pt')
    parser.add_argument('--prefix', help='use only the keys that begin with this, such as teacher.')
    args = parser.parse_args(argv)
    with one_line_errors():
        check_new_file(args.target, 'DST', ('.pth', '.pt'))
        content = read_checkpoint(local_file(args.source))
        state, _ = find_weights(content, args.source)
        try:
            converted, source_format = convert(state, args.prefix)
        except WRONG_SHAPES as error:
            raise ValueError(f'{args.source}: {error}') from error
        # Copies: a view would be saved with the whole storage behind it.
        written = dict(meta=find_meta(content), state_dict={key: value.clone() for key, value in converted.items()})
        write_whole(args.target, lambda part: torch.save(written, part))
        print(f'{args.target}: {len(converted)} tensors, from {len(state)} of {source_format.name}')
