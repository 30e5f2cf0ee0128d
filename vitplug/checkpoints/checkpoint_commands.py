"""The command behind `tools/model_converters/convert.py`."""

from collections.abc import Sequence
from pathlib import Path

import torch

from vitplug.commands import command_parser
from vitplug.files.named import check_new_file
from vitplug.files.whole import write_whole

from .files import WRONG_SHAPES, find_weights, read_checkpoint, some_of
from .formats import convert


def convert_main(argv: Sequence[str] | None = None) -> None:
    """Converts a checkpoint, and says what of its weights is in no tensor of the new file.

    Raises:
        ValueError or OSError: If the file cannot be read or converted, or the new one not be written.
    """
    parser = command_parser(
        'convert',
        "Convert a checkpoint of timm, OpenMMLab or the authors of a paper to vitplug's and mmpretrain's keys; its "
        'format is detected from its keys. No file is ever overwritten.',
    )
    parser.add_argument('source', metavar='SRC', help='checkpoint file, or its http address')
    parser.add_argument('target', metavar='DST', type=Path, help='new file; .pth or .pt')
    parser.add_argument('--prefix', help='use only the keys that begin with this, such as teacher.')
    args = parser.parse_args(argv)
    check_new_file(args.target, 'DST', ('.pth', '.pt'))
    content = read_checkpoint(args.source)
    state, place = find_weights(content, args.source)
    try:
        converted, source_format, left_out = convert(state, args.prefix)
    except WRONG_SHAPES as error:
        raise ValueError(f'{args.source}: {error}') from error
    # Copies: a view would be saved with the whole storage behind it.
    state_dict = {key: value.clone() for key, value in converted.items()}
    # What the keys do not show, such as rotary positions, is known by the format.
    meta = dict(converted_from=source_format.name) | content.get('meta', {})
    write_whole(args.target, lambda part: torch.save(dict(meta=meta, state_dict=state_dict), part))
    origin = f'{len(state)} of {source_format.name}{place and f" in {place}"}'
    strange = source_format.without_rule(converted)
    kept = f'; no such network has these, kept all the same: {some_of(strange, 10)}' if strange else ''
    print(f'{args.target}: {len(converted)} tensors, from {origin}; left out: {some_of(left_out, 10)}{kept}')
