"""Checks of all variants before the first cell is trained; each refusal names the variant."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from vitplug.analysis.config_diff import changed_settings, count_groups
from vitplug.analysis.costs import build_model
from vitplug.config.checks import check_parts, check_types
from vitplug.files.named import check_printable
from vitplug.runs.checks import check_training
from vitplug.runs.metrics import choose_metric
from vitplug.runs.training_commands import choose_readers

from .cells import finished_in
from .grid import GridFile, Variant
from .records import GRID, read_object
from .summary import default_margin


def check_variants(
    variants: Sequence[Variant],
    metric: str | None,
    out: Path,
    unsafe_unpickle: bool = False,
    told: Callable[[str], object] = lambda text: None,
) -> dict[str, int]:
    """Builds the model and the optimizer of every variant, without memory for weights, and checks data and metric.

    Args:
        variants: The variants.
        metric: The metric; None for the config's main one.
        out: Folder of the grid.
        unsafe_unpickle: Whether files that the configs name may run code of their own.
        told: Is told the progress.

    Returns:
        Number of parameters by label.

    Raises:
        ValueError: If a variant cannot be trained; names it.
        OSError: If data or a checkpoint cannot be read.
    """
    counts = {}
    for number, variant in enumerate(variants, 1):
        told(f'checking variant {number} of {len(variants)}: {variant.label}')
        try:
            counts[variant.label] = _check(variant.cfg, metric, out, unsafe_unpickle)
        except (ValueError, ImportError) as error:
            raise ValueError(f'{variant.label}: {error}') from error
    return counts


def _check(cfg: Config, metric: str | None, out: Path, unsafe_unpickle: bool) -> int:
    cfg = Config(cfg._cfg_dict.to_dict() | dict(work_dir=str(out), launcher='none'), filename=cfg.filename)
    check_parts(cfg)
    check_types(cfg._cfg_dict)
    choose_readers(cfg, unsafe_unpickle)
    choose_metric(cfg, metric)
    check_training(cfg)
    model = build_model(cfg)
    count_groups(cfg, model)
    return sum(parameter.numel() for parameter in model.parameters())


def check_folder(out: Path, grid: GridFile) -> None:
    """Checks that a folder is new, empty or of this grid.

    Raises:
        ValueError: If it is of another grid, or holds something else.
    """
    check_printable(out, '--out')
    before = read_earlier(out)
    if before is None:
        if out.exists() and (not out.is_dir() or any(one.name[0] != '.' for one in out.iterdir())):
            raise ValueError(f'--out: {out} is no folder of a grid and not empty: choose another one')
    elif Path(before['base']).name != Path(grid.base).name:
        raise ValueError(f'--out: {out} is the folder of another grid, with base {before["base"]}: choose another one')


def check_metric(out: Path, metric: str) -> None:
    """Checks that the cells of a folder were compared by a metric.

    Raises:
        ValueError: If they were compared by another one.
    """
    before = read_earlier(out)
    if before is not None and before['metric'] != metric:
        raise ValueError(
            f'--out: {out} is the folder of another grid, which compares by {before["metric"]}, not {metric}: choose '
            'another one'
        )


def check_labels(out: Path, labels: Sequence[str]) -> None:
    """Checks that no variant of a folder is left out whose results are there: p values count how many were compared.

    Raises:
        ValueError: If one is.
    """
    done = {label for label, _ in finished_in(out)}
    absent = [label for label in (read_earlier(out) or {}).get('labels', ()) if label in done and label not in labels]
    if absent:
        raise ValueError(
            f'{out} has finished cells of {", ".join(absent)}, which the grid has no more, and p values are corrected '
            'for all variants that were compared: name them again, choose another --out, or move their folders away'
        )


def chosen_margin(out: Path, metric: str, margin: float | None) -> float | None:
    """The margin of equality of a grid: that of its folder, the given one, or that of the metric.

    Raises:
        ValueError: If the folder has another one than the given one.
    """
    earlier = read_earlier(out) or {}
    if 'margin' not in earlier:
        return margin or default_margin(metric)
    before = earlier['margin']
    if margin not in (None, before):
        has = 'none' if before is None else f'{before:g}'
        raise ValueError(
            f'--margin {margin:g}: {out} has {has}, and a margin is chosen before the first cell: leave it away, or '
            'choose another --out'
        )
    return before


def read_earlier(out: Path) -> dict[str, Any] | None:
    """What the `grid.json` of a folder says; None if it has none.

    Raises:
        ValueError: If it cannot be read.
    """
    path = out / GRID
    if not path.exists():
        return None
    try:
        content = read_object(path)
        return content | {name: content[name] for name in ('base', 'metric')}
    except (ValueError, KeyError) as error:
        raise ValueError(f'{path} cannot be read ({error}): move the folder away') from error


def describe_change(base: Config, cfg: Config) -> str:
    """The settings in which a variant differs from the baseline, one a line."""
    pairs = changed_settings(base, cfg).items()
    return '\n'.join(f'{key}: {before!r} -> {after!r}' for key, (before, after) in pairs)
