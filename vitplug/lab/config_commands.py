"""The commands ``config``, ``diff`` and ``flops``: a config, what two of them differ in, and what a model costs."""

from collections import Counter
from collections.abc import Mapping, Sequence

from mmengine.config import Config, ConfigDict
from mmengine.optim import build_optim_wrapper
from torch import nn

from vitplug.commands import command_parser
from vitplug.config.options import add_options, add_shape, config_parser
from vitplug.config.reading import CONFIG_HELP, read_config
from vitplug.errors import one_line_errors
from vitplug.tables import format_table
from vitplug.tasks import TASKS, check_scope

from .costs import ELEMENTWISE, REDUCTION, Costs, build_model, count_costs, silence_logs
from .image_size import read_image_size


def print_config(argv: Sequence[str] | None = None) -> None:
    """Prints a config with all inherited settings."""
    parser = command_parser('config', 'Print a config with all inherited settings.')
    parser.add_argument('config', help=CONFIG_HELP)
    add_options(parser, 'settings that override the config')
    args = parser.parse_args(argv)
    with one_line_errors():
        print(read_config(args.config, args.cfg_options).pretty_text)


def print_difference(argv: Sequence[str] | None = None) -> None:
    """Prints the differences of two configs and of their models."""
    parser = command_parser(
        'diff', 'Print what two configs differ in, and the effect on parameters, MACs, optimizer and attention.'
    )
    parser.add_argument('base', help=CONFIG_HELP)
    parser.add_argument('child', help='the config to compare with it')
    add_shape(parser)
    add_options(parser, 'settings that override those of the child')
    args = parser.parse_args(argv)
    with one_line_errors():
        print(report_difference(read_config(args.base), read_config(args.child, args.cfg_options), args.shape))


def get_flops(argv: Sequence[str] | None = None) -> None:
    """Prints parameters and MACs of a config's model."""
    parser = config_parser(
        'flops', 'Count the parameters and multiply-accumulates (MACs; papers call them FLOPs) of a model.'
    )
    add_shape(parser)
    parser.add_argument('--batch', type=int, default=1, metavar='N', help='number of images (default 1)')
    add_options(parser, 'settings that override the config')
    args = parser.parse_args(argv)
    with one_line_errors():
        print(report_costs(read_config(args.config, args.cfg_options), args.shape, args.batch))


# --- costs ---


def report_costs(cfg: Config, shape: Sequence[int] | None = None, batch: int = 1) -> str:
    """Parameters and MACs of a config's model, part by part, with an explanation of the counts.

    Raises:
        ValueError or ImportError: If the model cannot be built, or cannot be run on images of this size.
    """
    check_scope(cfg)
    if batch < 1:
        raise ValueError(f'--batch {batch}: expected at least 1')
    size = read_image_size(cfg, shape)
    model = build_model(cfg)
    costs = count_costs(model, cfg.default_scope, size.chw, batch)
    lines = (
        format_table(_cost_rows(costs), numeric=(1, 2, 3, 4)),
        '',
        f'{costs.total_parameters / 1e6:.3f} M parameters, {costs.total_macs / 1e9:.3f} G MACs',
        f'images: {batch} of {size}',
        f'counted: {TASKS[cfg.default_scope].describe_inference(model)}',
        'a MAC is one multiply-accumulate of a convolution or matrix product, including attention (in its plain form);',
        'norms, activations, softmax, pooling and interpolation are counted only for plugs, in two other columns:',
        'elementwise is the number of output elements of products, quotients and exponentials (an addition belongs to',
        'the product before it), reduction is the number of input elements of means, sums, maxima and softmax',
    )
    return '\n'.join(lines)


def _cost_rows(costs: Costs) -> list[tuple[str, ...]]:
    """Parts and their costs with headings and totals; elementwise operations and reductions of plugs are columns."""
    kinds = (ELEMENTWISE, REDUCTION)
    rows = [('part', 'parameters', 'MACs', *kinds)]
    for part in {**costs.parameters, **costs.macs, **costs.elements}:
        elements = [f'{costs.elements[part][kind]:,}' if part in costs.elements else '' for kind in kinds]
        rows.append((part, f'{costs.parameters.get(part, 0):,}', f'{costs.macs.get(part, 0):,}', *elements))
    totals = [f'{sum(counts[kind] for counts in costs.elements.values()):,}' for kind in kinds]
    return [*rows, ('total', f'{costs.total_parameters:,}', f'{costs.total_macs:,}', *totals)]


# --- two configs ---


def report_difference(base: Config, child: Config, shape: Sequence[int] | None = None) -> str:
    """The settings in which two configs differ, and the effects, as tables.

    Args:
        base: The first config.
        child: The second one.
        shape: Height and width of the images; by default, the size in the config.

    Raises:
        ValueError: If a model or its optimizer cannot be built, or a model cannot be run on this size.
    """
    sizes, models, costs = [], [], []
    for cfg in (base, child):
        check_scope(cfg)
        models.append(build_model(cfg))
        sizes.append(read_image_size(cfg, shape))
        costs.append(count_costs(models[-1], cfg.default_scope, sizes[-1].chw))
    groups = [count_groups(cfg, model) for cfg, model in zip((base, child), models, strict=True)]
    plugs = [getattr(getattr(model, 'backbone', None), 'plug_summary', 'not one of vitplug') for model in models]
    where = ' and '.join(dict.fromkeys(map(str, sizes)))
    sections = (
        '\n'.join(filter(str.strip, Config.diff(base, child).splitlines())) or 'no setting differs',
        f'BASE   {plugs[0]}\nCHILD  {plugs[1]}',
        _section('parameters', *(one.parameters for one in costs)),
        _section(f'MACs of one image of {where}', *(one.macs for one in costs)),
        _section('trained parameters by learning rate and weight decay', *groups),
    )
    return '\n\n'.join(sections)


def count_groups(cfg: Config, model: nn.Module) -> dict[str, int]:
    """Number of parameters for each initial learning rate and weight decay of the config's optimizer.

    Raises:
        ValueError: If the optimizer cannot be built.
    """
    settings = cfg.get('optim_wrapper') or {}
    if not settings:
        return {}
    # The rates depend only on these. A wrapper for mixed precision could be built only on an accelerator.
    kept = {key: settings[key] for key in ('optimizer', 'constructor', 'paramwise_cfg') if key in settings}
    with silence_logs():
        try:
            optimizer = build_optim_wrapper(model, ConfigDict(type='OptimWrapper', **kept)).optimizer
        except (KeyError, TypeError) as error:
            raise ValueError(f'{cfg.filename}: the optimizer cannot be built: {error}') from error
    counts: Counter[tuple[float, float]] = Counter()
    for group in optimizer.param_groups:
        rates = (group['lr'], group.get('weight_decay', 0.0))
        counts[rates] += sum(p.numel() for p in group['params'] if p.requires_grad)
    named = {f'lr {lr:.4g}, weight decay {wd:.4g}': n for (lr, wd), n in sorted((+counts).items(), reverse=True)}
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    return {**named, 'frozen': frozen} if frozen else named


def _section(title: str, before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """A table of two sets of counts, their differences, and totals."""
    before, after = (_as_coarse(*pair) for pair in ((before, after), (after, before)))
    pairs = {key: (before.get(key, 0), after.get(key, 0)) for key in {**before, **after}}
    pairs['total'] = (sum(before.values()), sum(after.values()))
    rows = [(key, f'{old:,}', f'{new:,}', f'{new - old:+,}') for key, (old, new) in pairs.items()]
    return f'{title}\n{format_table([("", "BASE", "CHILD", "difference"), *rows], range(1, 4))}'


def _as_coarse(counts: Mapping[str, int], others: Mapping[str, int]) -> Counter[str]:
    """The counts of parts, a host's as one beside a library's backbone, which is one part; those of plugs stay."""
    merged: Counter[str] = Counter()
    for part, count in counts.items():
        whole = part.partition('.')[0]
        merged[whole if whole in others and '.plugs.' not in part else part] += count
    return merged
