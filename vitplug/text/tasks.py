"""The eight tasks of GLUE that papers report, and their files.

Source: Wang et al., GLUE, ICLR 2019. A task has a folder with ``train.tsv`` and ``dev.tsv``: UTF-8, fields between tabs
without quoting, and a line of column names, but for CoLA. Test sets have no labels and are not read.
"""

import difflib
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: Its name and folder.
        columns: Names of the columns of the one or two sentences and of the label; numbers if the file has no names.
        metrics: Names of :data:`~vitplug.text.metrics.METRICS`; the first one is in Refiner's Table 6.
        labels: The classes; none if labels are numbers from 0 to 5.
        epochs: Passes over the training data.
        dev: Names of the development sets, by what is put before the names of metrics.
        num_fields: Fields of a line, if the file has no names of columns.
        both_orders: Whether training has each pair in both orders.
    """

    name: str
    columns: tuple[str | int, ...]
    metrics: tuple[str, ...] = ('accuracy',)
    labels: tuple[str, ...] = ('0', '1')
    epochs: int = 3
    dev: dict[str, str] = field(default_factory=lambda: {'': 'dev'})
    num_fields: int = 0
    both_orders: bool = False


HIGHEST = 5.0
_ENTAILED = ('entailment', 'not_entailment')
_NLI = dict(labels=('contradiction', 'entailment', 'neutral'), dev={'': 'dev_matched', 'mismatched ': 'dev_mismatched'})
_TASKS = (
    Task('CoLA', (3, 1), ('matthews',), num_fields=4),
    Task('SST-2', ('sentence', 'label')),
    Task('MRPC', ('#1 String', '#2 String', 'Quality'), ('accuracy', 'f1'), both_orders=True),
    Task('STS-B', ('sentence1', 'sentence2', 'score'), ('spearman', 'pearson'), (), epochs=10, both_orders=True),
    Task('QQP', ('question1', 'question2', 'is_duplicate'), ('accuracy', 'f1')),
    Task('MNLI', ('sentence1', 'sentence2', 'gold_label'), **_NLI),
    Task('QNLI', ('question', 'sentence', 'label'), labels=_ENTAILED),
    Task('RTE', ('sentence1', 'sentence2', 'label'), labels=_ENTAILED, epochs=10),
)
TASKS = {task.name: task for task in _TASKS}
ALL = 'all'


def find_tasks(name: str) -> list[Task]:
    """The task of a name in upper or lower case, or all for ``'all'``.

    Raises:
        ValueError: If there is none.
    """
    if name.lower() == ALL:
        return list(_TASKS)
    known = {one.lower(): one for one in (*TASKS, ALL)}
    if name.lower() not in known:
        near = ' or '.join(known[key] for key in difflib.get_close_matches(name.lower(), known, n=1))
        hint = f': did you mean {near}?' if near else ''
        raise ValueError(f'TASK {name!r}: expected one of {", ".join(TASKS)}, or {ALL}{hint}')
    return [TASKS[known[name.lower()]]]


@dataclass(frozen=True)
class Examples:
    """A file of a task: sentences, targets (indices of classes, or numbers), and how many lines were left out."""

    texts: list[tuple[str, ...]]
    targets: list[float]
    num_left_out: int = 0


def read_examples(task: Task, data: str | Path, split: str, leaves_out: bool = False) -> Examples:
    """Reads a file of a task.

    Args:
        task: The task.
        data: The folder with a folder for each task.
        split: Name of the file without its ending.
        leaves_out: Whether lines that cannot be read are left out and counted.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, or a line has another number of fields or a wrong label.
    """
    path = Path(data, task.name, f'{split}.tsv')
    if not path.is_file():
        wanted = ', '.join(f'{name}.tsv' for name in ('train', *task.dev.values()))
        raise FileNotFoundError(f'no such file: {path}; --data must have a folder {task.name} with {wanted}')
    try:
        text = path.read_bytes().decode('utf-8-sig').replace('\r\n', '\n').removesuffix('\n')
    except UnicodeDecodeError as error:
        raise ValueError(f'{path} is no UTF-8 text: byte {error.start} cannot be read') from error
    lines = [line.split('\t') for line in text.split('\n')]
    places, num_fields, first = task.columns, task.num_fields, 0
    if not num_fields:
        if lacking := [name for name in places if name not in lines[0]]:
            raise ValueError(
                f'{path}: no column {", ".join(lacking)} in its first line, which has {", ".join(lines[0])}'
            )
        places, num_fields, first = [lines[0].index(name) for name in places], len(lines[0]), 1
    texts, targets, faults = [], [], []
    for number, fields in enumerate(lines[first:], first + 1):
        try:
            if len(fields) != num_fields:
                raise ValueError(f'{len(fields)} fields between tabs, expected {num_fields}')
            *sentences, label = (fields[column] for column in places)
            targets.append(_target(task, label))
            texts.append(tuple(sentences))
        except ValueError as error:
            faults.append(f'{path}, line {number}: {error}')
    if faults and not leaves_out:
        raise ValueError(f'{faults[0]}; such lines: {len(faults)}; repair them, or set --leave-out')
    if not texts:
        raise ValueError(f'{path} has no example')
    return Examples(texts, targets, len(faults))


def _target(task: Task, label: str) -> float:
    if label in task.labels:
        return task.labels.index(label)
    wanted = f'one of {", ".join(task.labels)}' if task.labels else f'a number from 0 to {HIGHEST:g}'
    try:
        if not task.labels and 0 <= float(label) <= HIGHEST:
            return float(label)
    except ValueError:
        pass
    raise ValueError(f'label {label!r}, expected {wanted}')
