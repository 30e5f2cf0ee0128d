"""Do the papers' mechanisms show? One row for each claim of a paper, measured on the trained cells of a grid.

A claim compares a variant, which has one plug, with the baseline on the same seeds, or with its own start, or asks for
the sign of a number. It is *seen* if the 95 % interval over seeds lies on the side that the paper says, *opposite* if
it lies on the other, and *undecided* otherwise. Rows of numbers without a claimed side are *shown*. Intervals are not
adjusted for the number of claims.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint

from vitplug.analysis.study import drawing
from vitplug.analysis.study.images import find_images
from vitplug.analysis.study.measures_by_name import MEASURES
from vitplug.analysis.study.observed import MODEL
from vitplug.analysis.study.plan import check_images, identity, plan
from vitplug.analysis.study.results import results_of
from vitplug.analysis.study.run import run
from vitplug.analysis.study.store import open_store
from vitplug.analysis.study.subject import Subject
from vitplug.config.parts import model_settings
from vitplug.config.reading import read_config
from vitplug.files.atomic import AtomicBackend
from vitplug.files.readers import refuse_code_in_files
from vitplug.files.whole import write_whole
from vitplug.plugs.text import listed_plugs
from vitplug.runs.saving.folders import last_checkpoint
from vitplug.tables import format_table, markdown_table

from .cells import CONFIG
from .mechanism_claims import CLAIMS, Against, Claim, Numbers
from .mechanism_rows import FOLDER, JSON, NUMERIC, Row, as_json, picture, row_of, table
from .records import CELL, Grid, State, read_cells, read_grid, read_object

IMAGES = 128

# --- the models ---


@dataclass(frozen=True)
class Model:
    """A trained cell, or its start, whose numbers are measured once.

    Attributes:
        folder: Folder of the cell.
        seed: Its seed.
        is_start: Whether the weights that its training starts from are measured.
    """

    folder: Path
    seed: int
    is_start: bool = False

    @property
    def plugs(self) -> tuple[str, ...]:
        """Types of its plugs."""
        text = read_object(self.folder / CELL).get('plugs') or 'none'
        return tuple(plug['type'].removeprefix('vitplug.') for plug in listed_plugs(text))

    @property
    def axes(self) -> Mapping[str, object]:
        """The settings in which variants of the grid differ besides their plugs."""
        return read_object(self.folder / CELL).get('axes') or {}

    @property
    def trained(self) -> Path | None:
        """The last checkpoint of the cell, None if it keeps none."""
        found = last_checkpoint(self.folder)
        return found if found and found.is_file() else None

    def checkpoint(self, out: Path) -> Path | None:
        """The last checkpoint, or one with the weights of its start, which is written."""
        return _first_weights(read_config(str(self.folder / CONFIG)), self.seed, out) if self.is_start else self.trained


def _first_weights(cfg, seed: int, out: Path) -> Path:
    """Weights that a training of a config could start from: new ones, and over them those of its `load_from`."""
    path = out / 'start.pth'
    if not path.is_file():
        init_default_scope(cfg.default_scope)
        torch.manual_seed(seed)
        model = MODELS.build(model_settings(cfg))
        model.init_weights()
        if cfg.get('load_from'):
            load_checkpoint(model, cfg.load_from, map_location='cpu')
        content = dict(state_dict=model.state_dict(), meta=dict(cfg=cfg.pretty_text))
        write_whole(path, lambda partial: torch.save(content, partial))
    return path


def measure(model: Model, names: Sequence[str], out: Path, num: int) -> dict[str, Numbers]:
    """Measures one model over images of its validation set; goes on where an earlier call stopped.

    Returns:
        Arrays by measure and name of the value; measures that do not apply are left out.
    """
    out = out / (model.folder.name + ('_start' if model.is_start else ''))
    checkpoint = model.checkpoint(out)
    cfg = read_config(str(model.folder / CONFIG))
    subject = Subject.read(MODEL, cfg, str(checkpoint), None, False)
    usable, _ = check_images([subject], find_images(cfg, 'val', num))
    with ExitStack() as stack:
        try:
            store = stack.enter_context(open_store(out / 'measured', identity([subject], usable)))
        except FileExistsError as error:
            raise ValueError(
                f'--mechanisms: {out / "measured"} is of other images, or of another checkpoint or version: take as '
                'many images as before, or remove that folder to measure again'
            ) from error
        jobs, _ = plan([MEASURES[name] for name in names], [subject], store)
        run(jobs, [subject], usable, store)
        return {
            result.measure.name: {value: found.mean for value, found in result.shown[0].estimates.items()}
            for result in results_of(jobs)
        }


# --- the command ---


def look_for_mechanisms(folder: Path, num: int = IMAGES) -> None:
    """Measures all claims that the variants of a grid allow, prints their table, and writes it with pictures.

    Files go to ``FOLDER/mechanisms``: ``mechanisms.json``, ``mechanisms.md`` and a picture for each row.

    Args:
        folder: Folder of the grid.
        num: Images of the validation set.

    Raises:
        FileNotFoundError: If the folder is none of a grid, or no finished cell has kept its checkpoint.
        ValueError: If no cell of a variant with one plug that a claim is about is done.
    """
    grid = read_grid(folder)
    models = _trained(folder, grid)
    wanted = _claims_of(models)
    if not wanted:
        plugs = ', '.join(dict.fromkeys(claim.plug for claim in CLAIMS))
        raise ValueError(f'--mechanisms: no finished cell of {folder} has one of these plugs alone: {plugs}')
    refuse_code_in_files()
    out, rows = folder / FOLDER, []
    needed: dict[Model, dict[str, None]] = {}
    for label, claim in wanted:
        for model in [*models[label].values(), *(_reference(claim, label, models) or {}).values()]:
            needed.setdefault(model, {})[claim.measure] = None
    numbers = {}
    for count, (model, names) in enumerate(needed.items(), 1):
        print(f'{count} of {len(needed)}: {model.folder.name}{" at its start" if model.is_start else ""}', flush=True)
        numbers[model] = measure(model, list(names), out, num)
    for label, claim in wanted:
        rows += _rows(claim, label, models, numbers)
    _write(rows, out, num)


def _trained(folder: Path, grid: Grid) -> dict[str, dict[int, Model]]:
    """The finished cells that have kept their checkpoint, by variant and seed; names the others.

    Raises:
        FileNotFoundError: If none has kept it.
    """
    found: dict[str, dict[int, Model]] = {}
    without = []
    for cell in read_cells(folder, grid):
        model = Model(folder / cell.folder, cell.seed)
        if cell.state is State.DONE and model.trained:
            found.setdefault(cell.label, {})[cell.seed] = model
        elif cell.state is State.DONE:
            without.append(model.folder.name)
    if without and not found:
        raise FileNotFoundError(
            f'{folder}: none of its {len(without)} finished cells has a checkpoint: mechanisms are measured on trained '
            'models, so train the grid with --keep last'
        )
    if without:
        print(f'left out, without a checkpoint: {", ".join(without)}')
    plain = [label for label in found if _plain(label, found) == label]
    alone = [label for label in found if not _plain(label, found)]
    if alone:
        print(
            f'no rows against the plain model: {", ".join(alone)}: no finished cell with a checkpoint has the same '
            f'settings without plugs (there are {", ".join(plain) or "none"})'
        )
    return found


def _plain(label: str, models: Mapping[str, Mapping[int, Model]]) -> str | None:
    """The variant without plugs and with the same other settings, which tells what the plug alone has changed."""
    first = {other: next(iter(by_seed.values())) for other, by_seed in models.items()}
    return next((other for other, one in first.items() if not one.plugs and one.axes == first[label].axes), None)


def _claims_of(models: Mapping[str, Mapping[int, Model]]) -> list[tuple[str, Claim]]:
    """The claims about each variant: its only plug is the one of the claim."""
    plugs = {label: next(iter(by_seed.values())).plugs for label, by_seed in models.items()}
    return [(label, claim) for claim in CLAIMS for label, own in plugs.items() if own == (claim.plug,)]


def _reference(claim: Claim, label: str, models: Mapping[str, Mapping[int, Model]]) -> Mapping[int, Model] | None:
    if claim.against is Against.ZERO:
        return None
    if claim.against is Against.START:
        return {seed: Model(model.folder, seed, is_start=True) for seed, model in models[label].items()}
    return models.get(_plain(label, models), {})


def _rows(claim: Claim, label: str, models, numbers: Mapping[Model, Mapping[str, Numbers]]) -> list[Row]:
    """The row of a claim; none where a model has no such values, such as a fixed Lambda, or no seed has both."""
    reference = _reference(claim, label, models)

    def of(by_seed: Mapping[int, Model]) -> dict[int, Numbers]:
        return {seed: numbers[one][claim.measure] for seed, one in by_seed.items() if claim.measure in numbers[one]}

    try:
        row = row_of(claim, label, of(models[label]), None if reference is None else of(reference))
    except KeyError:
        return []
    return [row] if row.seeds else []


def _write(rows: Sequence[Row], out: Path, num: int) -> None:
    for number, row in enumerate(rows, 1):
        name = f'{number:02}_{row.claim.plug}_{row.claim.measure}.png'
        drawing.save(picture([row], ''), out / name)
    files, lines = AtomicBackend(), table(rows)
    files.put_text(json.dumps(as_json(rows, num), indent=1, allow_nan=False) + '\n', out / JSON)
    files.put_text(markdown_table(lines) + '\n', out / 'mechanisms.md')
    print(f'{format_table(lines, numeric=NUMERIC)}\n\n{len(rows)} rows, a picture for each: {out}')
