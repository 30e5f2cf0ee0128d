"""Differences of two configs and their effects: costs, optimizer groups, attention, memory."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.optim import build_optim_wrapper
from torch import nn

from vitplug.tables import format_table

from .costs import Costs, build_model, count_costs, silence_logs
from .image_size import ImageSize, read_image_size

ABSENT = '-'
# A part of another type becomes one row where more of its settings differ than these.
MOST_ROWS = 5
HIDDEN = '\na part of another type is one row: --all shows its settings'
# Settings that affect the memory of a training, beside the model and the image size.
MEMORY_SETTINGS = (
    'train_dataloader.batch_size',
    'optim_wrapper.type',
    'optim_wrapper.dtype',
    'optim_wrapper.accumulative_counts',
    'model.backbone.with_cp',
    'model.backbone.window_size',
    'runner_type',
    'strategy.type',
    'strategy.activation_checkpointing',
)


def flatten(node: Any, key: str = '') -> dict[str, Any]:
    """Nested settings as one dict, with keys as in ``--cfg-options``, such as ``model.backbone.plugs.0.type``."""
    if isinstance(node, Mapping) and node:
        items = node.items()
    elif isinstance(node, list | tuple) and any(isinstance(value, Mapping | list | tuple) for value in node):
        items = enumerate(node)
    else:
        return {key: node}
    flat = {}
    for name, value in items:
        flat |= flatten(value, f'{key}.{name}' if key else str(name))
    return flat


def changed_settings(base: Config, child: Config) -> dict[str, tuple[Any, Any]]:
    """The settings in which two configs differ: key -> (base, child); :data:`ABSENT` for a missing setting."""
    before, after = flatten(base.to_dict()), flatten(child.to_dict())
    pairs = {key: (before.get(key, ABSENT), after.get(key, ABSENT)) for key in [*before, *after]}
    # mmengine marks the library of a base `mmdet::...` with `_scope_`; it is not a setting.
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1] and not key.endswith('_scope_')}


def changed_rows(base: Config, child: Config, every: bool = False) -> dict[str, tuple[str, str]]:
    """Differing settings as written in a config; a part of another type with many of them is one row.

    Args:
        base: The first config.
        child: The second one.
        every: Whether such parts are shown setting by setting, too.
    """
    changes = changed_settings(base, child)
    parts = {} if every else _other_parts(changes, [flatten(cfg.to_dict()) for cfg in (base, child)])
    rows = {}
    for key, pair in changes.items():
        part = next((part for part in parts if key.startswith(f'{part}.')), None)
        if part is None:
            rows[key] = tuple(map(_as_written, pair))
        elif part not in rows:
            before, after = (_type_of(kind) for kind in changes[f'{part}.type'])
            rows[part] = before, f'{after} ({parts[part]} settings)'
    return rows


def _other_parts(changes: Mapping[str, tuple[Any, Any]], configs: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The outermost parts of another type, or of one config alone, and in how many settings each differs."""
    counts: dict[str, int] = {}
    for key in sorted((key for key in changes if key.endswith('.type')), key=lambda key: key.count('.')):
        part = key.removesuffix('.type')
        # The type of a part may be left to a default.
        untyped = [cfg for cfg, kind in zip(configs, changes[key], strict=True) if kind is ABSENT]
        default = any(name.startswith(f'{part}.') for cfg in untyped for name in cfg)
        if not default and not any(part.startswith(f'{outer}.') for outer in counts):
            count = sum(other.startswith(f'{part}.') for other in changes)
            counts |= {part: count} if count > MOST_ROWS else {}
    return counts


def _type_of(kind: Any) -> str:
    return ABSENT if kind is ABSENT else f'type {_as_written(kind)}'


@dataclass(frozen=True)
class Consequences:
    """Effects of the settings of one config.

    Attributes:
        size: Image size for which MACs are counted.
        costs: Parameters and MACs.
        groups: Number of trained parameters for each initial learning rate and weight decay.
        plugs: Summary of the plugs, their blocks, and fused or explicit attention.
        memory: The settings of :data:`MEMORY_SETTINGS` that the config has.
    """

    size: ImageSize
    costs: Costs
    groups: Mapping[str, int]
    plugs: str
    memory: Mapping[str, Any]


def find_consequences(cfg: Config, shape: Sequence[int] | None = None) -> Consequences:
    """Builds the model of a config on the meta device and inspects it.

    Args:
        cfg: The config.
        shape: Height and width of the images; by default, the size in the config.

    Raises:
        ValueError: If the model or its optimizer cannot be built, or if the model cannot be run on this size.
    """
    model = build_model(cfg)
    size = read_image_size(cfg, shape)
    settings = flatten(cfg.to_dict())
    return Consequences(
        size=size,
        costs=count_costs(model, cfg.default_scope, size.chw),
        groups=count_groups(cfg, model),
        plugs=getattr(getattr(model, 'backbone', None), 'plug_summary', 'not one of vitplug'),
        memory={key: settings[key] for key in MEMORY_SETTINGS if key in settings},
    )


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


def report_difference(base: Config, child: Config, shape: Sequence[int] | None = None, every: bool = False) -> str:
    """The settings in which two configs differ, and the effects, as tables.

    Args:
        base: The first config.
        child: The second one.
        shape: Height and width of the images; by default, the size in the config.
        every: Whether parts of another type are shown setting by setting.

    Raises:
        ValueError: As in :func:`find_consequences`.
    """
    changes, rows = changed_settings(base, child), changed_rows(base, child, every)
    before, after = (find_consequences(cfg, shape) for cfg in (base, child))
    sizes = ' and '.join(dict.fromkeys((str(before.size), str(after.size))))
    sections = (
        _section('changed settings', rows) + ('' if len(rows) == len(changes) else HIDDEN),
        f'BASE   {before.plugs}\nCHILD  {after.plugs}',
        _section('parameters', _with_totals(before.costs.parameters, after.costs.parameters)),
        _section(f'MACs of one image of {sizes}', _with_totals(before.costs.macs, after.costs.macs)),
        _section('trained parameters by learning rate and weight decay', _counts(before.groups, after.groups)),
        _section('settings that affect memory', _pairs(before.memory, after.memory, _as_written)),
    )
    return '\n\n'.join(sections)


def _section(title: str, pairs: Mapping[str, tuple[str, ...]]) -> str:
    """One table; the values of the rows determine the number of columns."""
    if not pairs:
        return f'{title}: none'
    headings = ('', 'BASE', 'CHILD', 'difference')[: 1 + max(map(len, pairs.values()))]
    numeric = range(1, 4) if len(headings) == 4 else ()
    return f'{title}\n{format_table([headings, *((key, *values) for key, values in pairs.items())], numeric)}'


def _pairs(before: Mapping, after: Mapping, show: Callable[[Any], str]) -> dict[str, tuple[str, str]]:
    return {key: (show(before.get(key, ABSENT)), show(after.get(key, ABSENT))) for key in {**before, **after}}


def _counts(before: Mapping, after: Mapping) -> dict[str, tuple[str, str, str]]:
    """Two sets of counts and their differences."""
    pairs = {key: (before.get(key, 0), after.get(key, 0)) for key in {**before, **after}}
    return {str(key): (f'{old:,}', f'{new:,}', f'{new - old:+,}') for key, (old, new) in pairs.items()}


def _with_totals(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[str, str, str]]:
    totals = ({'total': sum(counts.values())} for counts in (before, after))
    return _counts(_as_coarse(before, after), _as_coarse(after, before)) | _counts(*totals)


def _as_coarse(counts: Mapping[str, int], others: Mapping[str, int]) -> Counter[str]:
    """The counts of parts, a host's as one beside a library's backbone, which is one part; those of plugs stay."""
    merged: Counter[str] = Counter()
    for part, count in counts.items():
        whole = part.partition('.')[0]
        merged[whole if whole in others and '.plugs.' not in part else part] += count
    return merged


def _as_written(value: Any) -> str:
    """A setting as it is written in a config."""
    return value if value is ABSENT else repr(value)
