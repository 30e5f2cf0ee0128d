"""Files of text: a corpus with masked words, and the eight tasks of GLUE that papers report.

Source: Wang et al., GLUE, ICLR 2019. A task has a folder with ``train.tsv`` and ``dev.tsv``: UTF-8, fields between tabs
without quoting, and a line of column names, but for CoLA. Test sets have no labels and are not read.
"""

import csv
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

NUM_SPECIAL, TWO_SEGMENTS, MASKED, REPLACED, IGNORED = 3, 0.9, 0.15, 0.85, -100
HIGHEST = 5.0
#: Sentences, and the index of the class or a number.
Example = tuple[tuple[str, ...], float]


def cut(files: Iterable[Path], tokenizer: Any, length: int) -> list[np.ndarray]:
    """Documents, which blank lines part, as sequences of tokens; none has parts of two.

    Args:
        files: The texts; one at a time is in memory.
        tokenizer: The tokenizer.
        length: Most tokens of a sequence with its special ones.
    """
    parts, size, kind = [], length - NUM_SPECIAL, np.min_scalar_type(len(tokenizer))  # a corpus is large
    for file in files:
        for text in re.split(r'\n\s*\n', file.read_text('utf-8-sig')):
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
        columns: Names of the columns of the one or two sentences and of the label.
        metrics: Names of :data:`~vitplug.lab.text.glue.METRICS`; the first one is in Refiner's Table 6.
        labels: The classes; none if labels are numbers from 0 to 5.
        epochs: Passes over the training data.
        dev: The development sets.
        both_orders: Whether training has each pair in both orders.
        heading: The names of all columns; None for those in the first line.
    """

    columns: tuple[str, ...]
    metrics: tuple[str, ...] = ('accuracy',)
    labels: tuple[str, ...] = ('0', '1')
    epochs: int = 3
    dev: tuple[str, ...] = ('dev',)
    both_orders: bool = False
    heading: tuple[str, ...] | None = None


_ENTAILED, _CLASSES = ('entailment', 'not_entailment'), ('contradiction', 'entailment', 'neutral')
TASKS = {
    'CoLA': Task(('sentence', 'label'), ('matthews',), heading=('source', 'label', 'mark', 'sentence')),
    'SST-2': Task(('sentence', 'label')),
    'MRPC': Task(('#1 String', '#2 String', 'Quality'), ('accuracy', 'f1'), both_orders=True),
    'STS-B': Task(('sentence1', 'sentence2', 'score'), ('spearman', 'pearson'), (), epochs=10, both_orders=True),
    'QQP': Task(('question1', 'question2', 'is_duplicate'), ('accuracy', 'f1')),
    'MNLI': Task(('sentence1', 'sentence2', 'gold_label'), labels=_CLASSES, dev=('dev_matched', 'dev_mismatched')),
    'QNLI': Task(('question', 'sentence', 'label'), labels=_ENTAILED),
    'RTE': Task(('sentence1', 'sentence2', 'label'), labels=_ENTAILED, epochs=10),
}


def read_examples(name: str, data: str | Path, split: str) -> list[Example]:
    """Reads a file of a task.

    Lines with another number of fields or a wrong label are left out, as by ELECTRA's code, and counted in a line.

    Args:
        name: The task.
        data: The folder with a folder for each task.
        split: Name of the file without its ending.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If no line can be read.
    """
    task, path = TASKS[name], Path(data, name, f'{split}.tsv')
    with open(path, encoding='utf-8-sig', newline='') as file:
        lines = csv.DictReader(file, task.heading, restkey='more', delimiter='\t', quoting=csv.QUOTE_NONE)
        found = [_example(task, fields) for fields in lines]
    examples = [example for example in found if example is not None]
    if len(examples) < len(found):
        print(f'{path}: {len(found) - len(examples)} lines left out, {len(examples)} kept')
    if not examples:
        raise ValueError(f'{path} has no example: expected columns {task.columns}, labels {task.labels or "0 to 5"}')
    return examples


def _example(task: Task, fields: Mapping[str, Any]) -> Example | None:
    """The sentences and the target in a line; None if it cannot be read."""
    *sentences, label = map(fields.get, task.columns)
    if 'more' in fields or None in (*sentences, label):
        return None
    if label in task.labels:
        return tuple(sentences), task.labels.index(label)
    number = float(label) if not task.labels and re.fullmatch(r'\d+(\.\d*)?', label) else HIGHEST + 1
    return (tuple(sentences), number) if number <= HIGHEST else None


def content_of(*parts: bytes) -> str:
    """The hash by which content is known, however its files are named."""
    return hashlib.sha256(b''.join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def vocabulary_content(tokenizer: Any) -> str:
    """The hash of a vocabulary: its tokens in their order."""
    words = tokenizer.get_vocab()
    return content_of('\n'.join(sorted(words, key=words.get)).encode())
