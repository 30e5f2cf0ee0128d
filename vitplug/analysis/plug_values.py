"""Reads and plots the learned values of plugs, block by block: the command `tools/analysis_tools/plug_values.py`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vitplug.backbones.plug_configs import build_plugs
from vitplug.backbones.settings import MOST
from vitplug.checkpoints.files import find_meta, find_weights, local_file, read_checkpoint
from vitplug.checkpoints.settings import read_settings
from vitplug.commands import command_parser
from vitplug.config.checks import check_types
from vitplug.config.reading import read_config
from vitplug.errors.one_line import one_line_errors
from vitplug.files.named import check_new_file
from vitplug.plugs import PlugSet
from vitplug.tables import format_table

# Key of a plug's tensor: block (or the network), name of the plug, name in the plug.
PLUG_KEY = re.compile(r'(?P<place>.*?)\.?\bplugs\.(?P<plug>[^.]+)\.(?P<name>.+)')
HEADINGS = ('value', 'block', 'mean', 'min', 'max', 'numbers')
PANEL_INCHES = (4.2, 2.6)
DPI = 110

# Values by plug and symbol, then by block; None is the whole network.
Values = Mapping[str, Mapping[int | None, Tensor]]


def main(argv: Sequence[str] | None = None) -> None:
    """Prints and plots the learned values of plugs. A wrong setting or file gives a one-line error and status 2."""
    parser = command_parser(
        'values', "Print and plot the learned values of a checkpoint's plugs: alpha, A, sigma, Lambda of each block."
    )
    parser.add_argument('checkpoint', help='checkpoint file of a training')
    parser.add_argument('--out', type=Path, metavar='PNG', help='picture (default <name of the checkpoint>_plugs.png)')
    parser.add_argument('--config', help='config of the training, if the checkpoint has none, or for your own plugs')
    args = parser.parse_args(argv)
    with one_line_errors(ValueError, OSError, ImportError):
        out = args.out or Path(f'{Path(args.checkpoint).stem}_plugs.png')
        check_new_file(out, '--out', ('.png',))
        values = read_plug_values(args.checkpoint, args.config)
        print(format_table([HEADINGS, *_rows(values)], numeric=range(1, len(HEADINGS))))
        plot_values(values, out, title=Path(args.checkpoint).name)
        print(f'plot: {out}')


def read_plug_values(checkpoint: str, config: str | None = None) -> Values:
    """Learned values of a checkpoint's plugs, as :meth:`~vitplug.hosting.PluggedModel.learned_values`.

    No model is built: the plugs come from the config in the checkpoint, which is parsed and not run.

    Args:
        checkpoint: Path or address of the file.
        config: Another config for the plugs; needed for your own plugs, because it imports them.

    Returns:
        The values by plug and symbol, then by block.

    Raises:
        ValueError or OSError: If a file cannot be read, if the config has no plugs, or if the plugs have no watched
            values.
    """
    content = read_checkpoint(local_file(checkpoint))
    state, _ = find_weights(content, checkpoint)
    settings = read_config(config)._cfg_dict if config else read_settings(find_meta(content, checkpoint))
    plug_lists = list(_plug_lists(settings.get('model')))
    if len(plug_lists) != 1 or not plug_lists[0]:
        raise ValueError(
            f'{config or checkpoint} has {len(plug_lists)} backbones with plugs in its config: expected one; name the '
            'config of the training with --config'
        )
    plugs = _build(plug_lists[0], config)
    blocks = _block_places(state)
    values: dict[str, dict[int | None, Tensor]] = {}
    for (block, name), tensors in _by_plug(state).items():
        if name in plugs:
            index = blocks.index(block) if block in blocks else None
            for symbol, value in plugs[name].learned_values(tensors).items():
                values.setdefault(f'{name}.{symbol}', {})[index] = value
    if not values:
        raise ValueError(f'{checkpoint}: its plugs, {sorted(plugs)}, have no learned alpha, A, sigma or Lambda')
    return {name: dict(sorted(by_block.items(), key=lambda item: item[0] or 0)) for name, by_block in values.items()}


def _plug_lists(node) -> Iterator[Sequence[Mapping]]:
    """The plugs of each backbone in a config."""
    for key, child in node.items() if isinstance(node, Mapping) else ():
        if key == 'plugs' and isinstance(child, Sequence) and child:
            yield child
        else:
            yield from _plug_lists(child)


def _build(settings: Sequence[Mapping], config: str | None) -> dict:
    """The plugs by name."""
    try:
        if not config:
            check_types(dict(plugs=settings))
        # The set numbers plugs that occur twice by the order of their blocks, which more blocks do not change.
        return {plug.name: plug for plug in PlugSet(build_plugs(settings), MOST).indices}
    except ValueError as error:
        advice = '' if config else '; if it is your own plug, name the config that imports it with --config'
        raise ValueError(f'{error}{advice}') from error


def _by_plug(state: Mapping[str, Tensor]) -> dict[tuple[str, str], dict[str, Tensor]]:
    """Tensors of plugs by place and plug, then by name."""
    tensors_of: dict[tuple[str, str], dict[str, Tensor]] = {}
    for match, tensor in ((PLUG_KEY.fullmatch(key), tensor) for key, tensor in state.items()):
        if match:
            tensors_of.setdefault((match['place'], match['plug']), {})[match['name']] = tensor
    return tensors_of


def _block_places(state: Mapping[str, Tensor]) -> list[str]:
    """Key prefixes of all blocks of the backbone, in order: those with plugs, and those that differ in numbers."""
    patterns = {re.sub(r'\d+', r'\\d+', re.escape(place)) for place, _ in _by_plug(state) if place[-1:].isdecimal()}
    places = {match[0] for pattern in patterns for key in state if (match := re.match(rf'{pattern}(?=\.)', key))}
    return sorted(places, key=lambda place: [int(number) for number in re.findall(r'\d+', place)])


def _rows(values: Values) -> Iterator[tuple[str, ...]]:
    for name, by_block in values.items():
        for index, value in by_block.items():
            numbers = [f'{number:.4g}' for number in (value.mean(), value.min(), value.max())]
            yield name, 'all' if index is None else str(index), *numbers, str(value.numel())


def plot_values(values: Values, path: Path, title: str) -> None:
    """Plots each value over the blocks: mean and range; a horizontal line for a value of all blocks."""
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width, height * len(values)), layout='constrained')
    figure.suptitle(title, fontsize=11)
    for ax, (name, by_block) in zip(figure.subplots(len(values), squeeze=False)[:, 0], values.items(), strict=True):
        _plot(ax, by_block)
        ax.set_title(name, fontsize=10)
        ax.grid(alpha=0.3)
    figure.savefig(path, dpi=DPI)


def _plot(ax: Axes, by_block: Mapping[int | None, Tensor]) -> None:
    if None in by_block:
        ax.axhline(by_block[None].mean().item())
        ax.set_xticks([])
        ax.set_xlabel('all blocks')
    blocks = [index for index in by_block if index is not None]
    if blocks:
        kinds = (Tensor.min, Tensor.mean, Tensor.max)
        least, mean, most = ([kind(by_block[index]).item() for index in blocks] for kind in kinds)
        ax.fill_between(blocks, least, most, alpha=0.25)
        ax.plot(blocks, mean, marker='o')
        ax.set_xticks(blocks)
        ax.set_xlabel('block')
