"""Files of text: a corpus with masked words, and the eight tasks of GLUE that papers report.

Source: Wang et al., GLUE, ICLR 2019. A task has a folder with ``train.tsv`` and ``dev.tsv``: UTF-8, fields between tabs
without quoting, and a line of column names, but for CoLA. Test sets have no labels and are not read.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

NUM_SPECIAL, TWO_SEGMENTS, MASKED, REPLACED, IGNORED = 3, 0.9, 0.15, 0.85, -100
HIGHEST = 5.0


def read_text(path: Path) -> str:
    """A file of UTF-8; of its lines' ends, ``\\r\\n`` is ``\\n``."""
    try:
        return path.read_bytes().decode('utf-8-sig').replace('\r\n', '\n')
    except UnicodeDecodeError as error:
        raise ValueError(f'{path} is no UTF-8 text: byte {error.start} cannot be read') from error


def content_of(*parts: bytes) -> str:
    """The hash by which content is known, however its files are named."""
    return hashlib.sha256(b''.join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def find_files(paths: Iterable[str]) -> list[Path]:
    """Text files by name; of a folder all ``*.txt`` in it and below."""
    files = []
    for path in map(Path, paths):
        found = sorted(path.rglob('*.txt')) if path.is_dir() else [path] * path.is_file()
        if not found:
            raise FileNotFoundError(f'TEXT {path}: no such file, or a folder without *.txt')
        files += found
    return files


def read_documents(files: Iterable[Path]) -> Iterable[str]:
    """Texts between blank lines; one file at a time is in memory."""
    return (part for file in files for part in re.split(r'\n\s*\n', read_text(file)) if part.strip())


def cut(documents: Iterable[str], tokenizer: Any, length: int) -> list[np.ndarray]:
    """Documents as sequences of tokens, none with parts of two; the narrowest integers, as a corpus is large.

    Args:
        documents: The texts.
        tokenizer: The tokenizer.
        length: Most tokens of a sequence with its special ones.
    """
    parts, size, kind = [], length - NUM_SPECIAL, np.min_scalar_type(len(tokenizer))
    for text in documents:
        ids = np.asarray(tokenizer(text, add_special_tokens=False)['input_ids'], kind)
        parts += [ids[at : at + size] for at in range(0, len(ids), size)]
    return parts


class MaskedWords(torch.utils.data.Dataset):
    """Sequences with masked words, as ELECTRA has them.

    Nine of ten are in two segments. 15 % of the words of each, at least one, are to be predicted; 85 % of these become
    ``[MASK]``. What is masked follows from seed, epoch and index: a training that goes on has the same masks.

    Args:
        parts: Sequences of tokens without special ones.
        tokenizer: The tokenizer.
        seed: The seed of segments and masks.
    """

    def __init__(self, parts: Sequence[np.ndarray], tokenizer: Any, seed: int):
        self.parts, self.tokenizer, self.seed, self.epoch = parts, tokenizer, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by accelerate before each pass."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        """``input_ids``, ``token_type_ids``, and ``labels``: the tokens to predict, and -100 elsewhere."""
        draw = np.random.default_rng((self.seed, self.epoch, index))
        words, start, end = self.parts[index].tolist(), self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        middle = len(words) // 2 if draw.random() < TWO_SEGMENTS else len(words)
        second = [*words[middle:], end] if middle < len(words) else []
        ids = np.array([start, *words[:middle], end, *second], np.int64)
        places = np.flatnonzero(~np.isin(ids, self.tokenizer.all_special_ids))
        chosen = draw.permutation(places)[: max(1, round(MASKED * len(places)))]
        labels = np.full_like(ids, IGNORED)
        labels[chosen] = ids[chosen]
        ids[chosen[draw.random(len(chosen)) < REPLACED]] = self.tokenizer.mask_token_id
        types = [0] * (len(ids) - len(second)) + [1] * len(second)
        return dict(input_ids=ids.tolist(), token_type_ids=types, labels=labels.tolist())


@dataclass(frozen=True)
class Task:
    """A task of GLUE.

    Attributes:
        columns: Names of the columns of the one or two sentences and of the label; numbers if the file has no names.
        metrics: Names of :data:`~vitplug.lab.text.glue.METRICS`; the first one is in Refiner's Table 6.
        labels: The classes; none if labels are numbers from 0 to 5.
        epochs: Passes over the training data.
        dev: The development sets.
        both_orders: Whether training has each pair in both orders.
    """

    columns: tuple[str | int, ...]
    metrics: tuple[str, ...] = ('accuracy',)
    labels: tuple[str, ...] = ('0', '1')
    epochs: int = 3
    dev: tuple[str, ...] = ('dev',)
    both_orders: bool = False


_ENTAILED, _CLASSES = ('entailment', 'not_entailment'), ('contradiction', 'entailment', 'neutral')
TASKS = {
    'CoLA': Task((3, 1), ('matthews',)),
    'SST-2': Task(('sentence', 'label')),
    'MRPC': Task(('#1 String', '#2 String', 'Quality'), ('accuracy', 'f1'), both_orders=True),
    'STS-B': Task(('sentence1', 'sentence2', 'score'), ('spearman', 'pearson'), (), epochs=10, both_orders=True),
    'QQP': Task(('question1', 'question2', 'is_duplicate'), ('accuracy', 'f1')),
    'MNLI': Task(('sentence1', 'sentence2', 'gold_label'), labels=_CLASSES, dev=('dev_matched', 'dev_mismatched')),
    'QNLI': Task(('question', 'sentence', 'label'), labels=_ENTAILED),
    'RTE': Task(('sentence1', 'sentence2', 'label'), labels=_ENTAILED, epochs=10),
}


@dataclass(frozen=True)
class Examples:
    """A file of a task: sentences, targets (indices of classes, or numbers), the hash of its content."""

    texts: list[tuple[str, ...]]
    targets: list[float]
    content: str


def read_examples(name: str, data: str | Path, split: str, leave_out: bool = False) -> Examples:
    """Reads a file of a task.

    Args:
        name: The task.
        data: The folder with a folder for each task.
        split: Name of the file without its ending.
        leave_out: Whether lines that cannot be read are left out; their number is printed.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, or a line has another number of fields or a wrong label.
    """
    task, path = TASKS[name], Path(data, name, f'{split}.tsv')
    if not path.is_file():
        wanted = ', '.join(f'{split}.tsv' for split in ('train', *task.dev))
        raise FileNotFoundError(f'no such file: {path}; --data must have a folder {name} with {wanted}')
    lines = [line.split('\t') for line in read_text(path).removesuffix('\n').split('\n')]
    head = lines.pop(0) if isinstance(task.columns[0], str) else list(range(4))
    if lacking := [str(column) for column in task.columns if column not in head]:
        raise ValueError(f'{path}: no column {", ".join(lacking)} in its first line, which has {", ".join(head)}')
    examples, faults = [], []
    for number, fields in enumerate(lines, 1 + isinstance(head[0], str)):
        try:
            examples.append(_example(task, head, fields))
        except ValueError as error:
            faults.append(f'{path}, line {number}: {error}')
    if faults and not leave_out:
        raise ValueError(f'{faults[0]}; such lines: {len(faults)}; repair them, or set --leave-out')
    if faults:
        print(f'{path}: {len(faults)} lines left out, {len(examples)} kept')
    if not examples:
        raise ValueError(f'{path} has no example')
    texts, targets = zip(*examples, strict=True)
    return Examples(list(texts), list(targets), content_of(path.read_bytes(), bytes([leave_out])))


def _example(task: Task, head: Sequence, fields: Sequence[str]) -> tuple[tuple[str, ...], float]:
    if len(fields) != len(head):
        raise ValueError(f'{len(fields)} fields between tabs, expected {len(head)}')
    *sentences, label = (fields[head.index(column)] for column in task.columns)
    if label in task.labels:
        return tuple(sentences), task.labels.index(label)
    number = float(label) if not task.labels and re.fullmatch(r'\d+(\.\d*)?', label) else HIGHEST + 1
    if number > HIGHEST:
        wanted = f'one of {", ".join(task.labels)}' if task.labels else f'a number from 0 to {HIGHEST:g}'
        raise ValueError(f'label {label!r}, expected {wanted}')
    return tuple(sentences), number
