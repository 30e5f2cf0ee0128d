"""The command ``flops``: what the model of a config costs."""

from collections.abc import Sequence

from vitplug.config.image_size import read_image_size
from vitplug.config.options import add_options, add_shape, config_parser
from vitplug.config.reading import read_config
from vitplug.tables import format_table
from vitplug.tasks.libraries import TASKS, check_scope

from .costs import build_model, count_costs

EXPLANATION = """\
a MAC is one multiply-accumulate of a convolution or matrix product, including attention (in its plain form);
elementwise operations are not counted; the costs of plugs are part of the backbone's"""


def get_flops(argv: Sequence[str] | None = None) -> None:
    """Prints parameters and MACs of a config's model, of its parts and plugs, with an explanation of the counts.

    Raises:
        ValueError or ImportError: If the model cannot be built, or cannot be run on images of this size.
    """
    about = 'Count the parameters and multiply-accumulates (MACs; papers call them FLOPs) of a model.'
    parser = config_parser('flops', about)
    add_shape(parser)
    add_options(parser, 'settings that override the config')
    args = parser.parse_args(argv)
    cfg = read_config(args.config, args.cfg_options)
    check_scope(cfg)
    chw = read_image_size(cfg, args.shape)
    costs = count_costs(build_model(cfg), cfg.default_scope, chw)
    rows = [(part, f'{cost.parameters:,}', f'{cost.macs:,}') for part, cost in costs.items()]
    print(format_table([('part', 'parameters', 'MACs'), *rows], numeric=(1, 2)))
    parameters, macs = costs['total']
    print(f'\n{parameters / 1e6:.3f} M parameters, {macs / 1e9:.3f} G MACs of an image of {chw[1]}x{chw[2]}')
    print(f'counted: {TASKS[cfg.default_scope].counted}\n{EXPLANATION}')
