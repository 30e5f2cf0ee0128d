"""The tables of the papers' experiments, written from the metafiles so that every figure stands in one place.

A folder of `configs/` has a `metafile.yml` in OpenMMLab's form. Of each model it holds what is counted (`Parameters`
and `FLOPs`) and what its paper reports (`Results`)::

    Results:
      - Task: Image Classification
        Dataset: ImageNet-1k
        Source: the paper, Table 5
        Metrics:
          Top 1 Accuracy: 80.5
        Note: what to know of this figure (optional)

From it come the tables between two markers of the folder's README and the line with the paper's figures in the header
of each config.
"""

import argparse
import difflib
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import yaml
from mmengine.config import Config

from vitplug.errors.one_line import one_line_errors
from vitplug.files.atomic import AtomicBackend

from .costs import build_model, count_costs, count_parameters
from .image_size import read_image_size
from .tables import giga, markdown_table, millions

COMMAND = 'python tools/misc/paper_tables.py'
BEGIN = f'<!-- begin of what `{COMMAND}` writes -->'
END = '<!-- end of what it writes -->'
FIGURES = "# The paper's figures: "
CALL = '# python tools/'
SOURCE = 'the paper'
# How tables and headers name the metrics of a metafile.
METRICS = {
    'Top 1 Accuracy': 'top-1',
    'Top 5 Accuracy': 'top-5',
    'mIoU': 'mIoU',
    'aAcc': 'aAcc',
    'box AP': 'box AP',
    'mask AP': 'mask AP',
}


@dataclass(frozen=True)
class Result:
    """One result that a paper reports.

    Attributes:
        dataset: The data set it was evaluated on.
        source: Where the paper has it: `the paper, Table 5`.
        metrics: Metric names and values, as printed.
        note: What to know of it; may be all that there is.
    """

    dataset: str
    source: str
    metrics: dict[str, str]
    note: str = ''

    def text(self, training_data: str) -> str:
        """Metrics and note, preceded by the data set if the model was trained on another."""
        values = [f'{METRICS[name]} {value}' for name, value in self.metrics.items()]
        where = f'{self.dataset} ' if self.dataset != training_data else ''
        return where + ', '.join(filter(None, [*values, self.note]))


@dataclass(frozen=True)
class Model:
    """One experiment of a metafile.

    Attributes:
        config: Its config.
        training_data: Name of the data set it is trained on.
        parameters: Counted parameters.
        flops: Counted multiply-accumulates of one image, None where they are not counted.
        results: What the paper reports of it.
    """

    config: Path
    training_data: str
    parameters: int
    flops: int | None
    results: tuple[Result, ...]

    def figures(self) -> str:
        """The paper's figures in one line, with their place in the paper; empty without any."""
        groups = []
        for source, results in groupby(self.results, lambda result: result.source):
            place = source.removeprefix(SOURCE).lstrip(', ')
            text = '; '.join(result.text(self.training_data) for result in results)
            groups.append(f'{text} ({place})' if place else text)
        return '; '.join(groups)


def find_metafiles(root: Path) -> list[Path]:
    """The metafiles that `model-index.yml` names."""
    index = yaml.safe_load((root / 'model-index.yml').read_text())
    return [root / name for name in index['Import']]


def read_models(metafile: Path, root: Path) -> list[Model]:
    """The models of a metafile, in its order.

    Raises:
        ValueError: If the metafile lacks a key, names an unknown metric, or has a result without the paper's place.
    """
    # Every scalar as text, so that 80.0 and 92.780 stay as the papers print them.
    content = yaml.load(metafile.read_text(), yaml.BaseLoader)
    models = []
    for entry in content['Models']:
        try:
            models.append(_read_model(entry, root))
        except KeyError as error:
            raise ValueError(f'{metafile}: model {entry.get("Name")}: the key {error} is missing') from error
        except ValueError as error:
            raise ValueError(f'{metafile}: model {entry["Name"]}: {error}') from error
    return models


def _read_model(entry: dict, root: Path) -> Model:
    metadata = entry['Metadata']
    return Model(
        config=root / entry['Config'],
        training_data=metadata['Training Data'],
        parameters=int(metadata['Parameters']),
        flops=int(metadata['FLOPs']) if 'FLOPs' in metadata else None,
        results=tuple(map(_read_result, entry.get('Results', ()))),
    )


def _read_result(entry: dict) -> Result:
    metrics = entry.get('Metrics', {})
    if unknown := metrics.keys() - METRICS.keys():
        raise ValueError(f'unknown metrics {sorted(unknown)}: expected some of {list(METRICS)}')
    if not entry['Source'].startswith(SOURCE):
        raise ValueError(f'Source {entry["Source"]!r}: expected {SOURCE!r} and the place in it')
    if not metrics and 'Note' not in entry:
        raise ValueError('a result without Metrics needs a Note')
    return Result(entry['Dataset'], entry['Source'], metrics, entry.get('Note', ''))


# --- what is written ---


def generate(root: Path) -> dict[Path, str]:
    """The text of every README and config that holds something of a metafile.

    Raises:
        ValueError: If a metafile is not as expected, or a README has no markers.
    """
    texts = {}
    for metafile in find_metafiles(root):
        models = read_models(metafile, root)
        readme = metafile.with_name('README.md')
        if BEGIN in readme.read_text():
            texts[readme] = _replace_tables(readme, models)
        texts |= {model.config: _replace_figures(model) for model in models}
    return texts


def _replace_tables(readme: Path, models: Sequence[Model]) -> str:
    before, _, rest = readme.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f'{readme}: the marker {END!r} is missing')
    return f'{before}{BEGIN}\n\n{write_tables(models)}\n\n{END}{after}'


def write_tables(models: Sequence[Model]) -> str:
    """One table for each data set that models are trained on, Markdown."""
    datasets = dict.fromkeys(model.training_data for model in models)
    parts = []
    for dataset in datasets:
        chosen = [model for model in models if model.training_data == dataset]
        parts.append(f'### {dataset}\n\n{_write_table(chosen)}')
    return '\n\n'.join(parts)


def _write_table(models: Sequence[Model]) -> str:
    columns = {
        'Config': [f'[{model.config.stem}]({model.config.name})' for model in models],
        'Parameters': [millions(model.parameters) for model in models],
        'MACs': ['' if model.flops is None else giga(model.flops) for model in models],
        "The paper's figures": [model.figures() for model in models],
    }
    filled = {heading: cells for heading, cells in columns.items() if any(cells)}
    numeric = [i for i, heading in enumerate(filled) if heading in ('Parameters', 'MACs')]
    return markdown_table([tuple(filled), *zip(*filled.values(), strict=True)], numeric)


def _replace_figures(model: Model) -> str:
    lines = model.config.read_text().splitlines(keepends=True)
    call = next((i for i, line in enumerate(lines) if line.startswith(CALL)), None)
    if call is None:
        raise ValueError(f'{model.config}: its header has no line that starts with {CALL!r}')
    begin = next((i for i, line in enumerate(lines[:call]) if line.startswith(FIGURES)), call)
    figures = model.figures()
    wrapped = textwrap.wrap(f'{FIGURES}{figures}.', 120, subsequent_indent='# ') if figures else []
    return ''.join([*lines[:begin], *(f'{line}\n' for line in wrapped), *lines[call:]])


# --- what is counted ---


def count_models(metafile: Path, root: Path) -> Iterator[tuple[Model, int, int | None]]:
    """Each model of a metafile with its parameters and MACs, counted anew; MACs where the metafile has some."""
    for model in read_models(metafile, root):
        cfg = Config.fromfile(model.config)
        built = build_model(cfg)
        if model.flops is None:
            yield model, count_parameters(built, {}).total(), None
        else:
            costs = count_costs(built, cfg.default_scope, read_image_size(cfg).chw)
            yield model, costs.total_parameters, costs.total_macs


def write_counts(metafile: Path, root: Path) -> str:
    """The text of a metafile with counts made anew."""
    text = metafile.read_text()
    for model, parameters, macs in count_models(metafile, root):
        config = re.escape(model.config.relative_to(root).as_posix())
        for key, value in (('Parameters', parameters), ('FLOPs', macs)):
            # From the line of the config to that of the key, without passing into the next model.
            before = rf'Config: {config}\n(?:(?!  - Name:).*\n)*? +{key}: '
            text = re.sub(rf'({before})\d+', rf'\g<1>{value}', text)
    return text


# --- the command ---


def main(argv: Sequence[str] | None = None, root: Path | None = None) -> None:
    """Writes tables and headers, or compares them. Exit status 1 if one differs, 2 for a wrong metafile."""
    parser = argparse.ArgumentParser(
        description="Write the tables of the papers' experiments (README.md of each folder, headers of the configs) "
        'from the metafiles.'
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument('--check', action='store_true', help='write nothing; exit status 1 if a file differs')
    group.add_argument(
        '--count', action='store_true', help='count parameters and MACs into the metafiles first (some minutes)'
    )
    args = parser.parse_args(argv)
    root = root or Path.cwd()
    with one_line_errors(ValueError, OSError, ImportError):
        if args.count:
            _write({metafile: write_counts(metafile, root) for metafile in find_metafiles(root)}, root)
        texts = generate(root)
        if args.check:
            _compare(texts, root)
        else:
            _write(texts, root)


def _write(texts: dict[Path, str], root: Path) -> None:
    for path, text in texts.items():
        if path.read_text() != text:
            AtomicBackend().put_text(text, path)
            print(f'written: {path.relative_to(root)}')


def _compare(texts: dict[Path, str], root: Path) -> None:
    different = {path: text for path, text in texts.items() if path.read_text() != text}
    for path, text in different.items():
        name = str(path.relative_to(root))
        lines = difflib.unified_diff(
            path.read_text().splitlines(), text.splitlines(), name, 'metafile', lineterm='', n=0
        )
        print('\n'.join(lines))
    if different:
        sys.exit(f'{len(different)} files differ from their metafile: run {COMMAND}')
    print(f'{len(texts)} files agree with their metafiles')
