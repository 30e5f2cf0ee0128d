"""Fine-tuning on GLUE and its development sets: the command ``vitplug glue``.

Each seed is a training: head, dropout and order of the data come from it, the same for all plugs. Results lie in
``OUT/TASK/PLUGS/seed0.json``; a call adds what is missing, and prints all that there are. Plugs are compared with the
model without them, seed by seed (:mod:`vitplug.statistics.seeds`).
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn import metrics

from vitplug.commands import command_parser
from vitplug.files.fingerprint import of_file
from vitplug.files.whole import write_whole
from vitplug.plugs.text import NONE, PLUGS_HELP, label_of, parse_plugs
from vitplug.spelling import hint
from vitplug.statistics.seeds import MIN_SEEDS, compare, t_interval
from vitplug.tables import format_table

from . import training
from .data import HIGHEST, TASKS, Examples, read_examples
from .models import MODELS, classifier, library, vocabulary_content

WARMUP, MEAN, ALL = 0.1, 'all eight', 'all'
#: The metrics, of answers and predictions; those of correlation are NaN where either is constant.
METRICS = dict(
    accuracy=metrics.accuracy_score,
    f1=lambda expected, found: metrics.f1_score(expected, found, zero_division=0),
    matthews=metrics.matthews_corrcoef,
    pearson=lambda expected, found: stats.pearsonr(expected, found).statistic,
    spearman=lambda expected, found: stats.spearmanr(expected, found).statistic,
)
#: Values by metric, plugs and seed.
Values = dict[str, dict[str, dict[int, float]]]


def main(argv: Sequence[str] | None = None) -> int:
    """Fine-tunes and evaluates.

    Returns:
        Exit status 0. A wrong setting or file ends in one line and 2, Ctrl-C in 75.
    """
    args = _parser().parse_args(argv)
    with training.one_line_errors():
        training.check_numbers(args, 'seeds', 'batch', 'lr', 'layer_decay', 'epochs')
        if args.plugs is not None:
            parse_plugs(args.plugs, '--plugs')
            args.plugs = label_of(args.plugs)
        names = {name.lower(): [name] for name in TASKS} | {ALL: list(TASKS)}
        if args.task.lower() not in names:
            near = hint(args.task, [*TASKS, ALL])
            raise ValueError(f'TASK {args.task!r}: expected one of {", ".join(TASKS)}, or {ALL}{near}')
        data = {name: _read(name, args) for name in names[args.task.lower()]}  # all, before anything is trained
        for name, splits in data.items():
            for seed in range(args.seeds):
                run(name, splits, seed, args)
        print(table(collect(Path(args.out))))
    return 0


def _read(name: str, args: argparse.Namespace) -> dict[str, Examples]:
    return {split: read_examples(name, args.data, split, args.leave_out) for split in ('train', *TASKS[name].dev)}


# --- one training ---


class Sentences(torch.utils.data.Dataset):
    """Examples as inputs of a model; of two sentences, the longer one is cut. Targets that are numbers are up to 1."""

    def __init__(self, examples: Examples, tokenizer: Any, length: int, is_number: bool, both_orders: bool = False):
        pairs = list(zip(examples.texts, examples.targets, strict=True))
        self.pairs = pairs + [(texts[::-1], target) for texts, target in pairs] * both_orders
        self.scale = HIGHEST if is_number else 1
        self.options = dict(truncation='longest_first', max_length=length)
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        texts, target = self.pairs[index]
        return dict(self.tokenizer(*texts, **self.options), labels=target / self.scale if self.scale > 1 else target)


def run(name: str, data: Mapping[str, Examples], seed: int, args: argparse.Namespace) -> None:
    """Trains and evaluates, unless there is a result of the same content.

    Raises:
        ValueError: If results of other content are there, or a loss or a prediction is not finite.
    """
    task = TASKS[name]
    torch.manual_seed(seed)
    model, tokenizer = classifier(args.model, args.plugs, len(task.labels) or 1, args.vocab)
    label = model.base_model.config.plugs
    folder, epochs = Path(args.out, name, label), args.epochs or task.epochs
    path = folder / f'seed{seed}.json'
    _claim(folder, data, epochs, tokenizer, args)
    if path.is_file():
        return
    sets = {
        split: Sentences(examples, tokenizer, args.length, not task.labels, split == 'train' and task.both_orders)
        for split, examples in data.items()
    }
    steps = epochs * math.ceil(len(sets['train']) / args.batch)
    collate = library().DataCollatorWithPadding(tokenizer)
    trainer = training.make_trainer(
        model, sets['train'], collate, args, steps, WARMUP * steps, seed, save_strategy='no', logging_strategy='no'
    )
    trainer.train()
    found = {}
    for split in task.dev:
        logits = trainer.predict(sets[split]).predictions
        if not np.isfinite(logits).all():
            raise ValueError(f'{name}: predictions are not finite: set a lower --lr than {args.lr:g}')
        predicted = logits.argmax(1) if task.labels else logits[:, 0]
        values = {metric: 100 * float(METRICS[metric](data[split].targets, predicted)) for metric in task.metrics}
        prefix = 'mismatched ' * split.endswith('mismatched')
        found |= {f'{prefix}{metric}': value if math.isfinite(value) else None for metric, value in values.items()}
    write_whole(path, lambda part: part.write_text(json.dumps(found, indent=1)))
    shown = ', '.join(f'{metric} {"undefined" if v is None else f"{v:.1f}"}' for metric, v in found.items())
    print(f'{name}, {label}, seed {seed}: {shown}', flush=True)


def _claim(folder: Path, data: Mapping[str, Examples], epochs: int, tokenizer: Any, args: argparse.Namespace) -> None:
    """Refuses results of other content: in the folder of these plugs, and in those that they are compared with."""
    source = Path(args.model)
    record = source / training.RECORD
    pretraining = json.loads(record.read_text()) if record.is_file() else {}
    shared = {name: getattr(args, name) for name in ('lr', 'layer_decay', 'batch', 'length')} | dict(
        epochs=epochs,
        data={split: examples.content for split, examples in data.items()},
        vocabulary=vocabulary_content(tokenizer),
        pretraining={key: value for key, value in pretraining.items() if key != 'plugs'},
    )
    files = sorted(path for kind in ('config.json', '*.safetensors', '*.bin') for path in source.glob(kind))
    weights = {path.name: of_file(path) for path in files} if args.model not in MODELS else MODELS[args.model]
    for other in folder.parent.glob(f'*/{training.RECORD}'):
        before = json.loads(other.read_text())
        training.compare(other.parent, {key: before.get(key) for key in shared}, shared)
    training.claim(folder, shared | dict(weights=weights))


# --- all results ---


def collect(out: Path) -> dict[str, Values]:
    """The results below a folder, by task, without undefined ones.

    If all eight tasks are there, also the mean of their first metrics, for the seeds that all have.
    """
    found: dict[str, Values] = {}
    for name in TASKS:
        for path in sorted(out.glob(f'{name}/*/seed*.json'), key=lambda path: (path.parent, int(path.stem[4:]))):
            for metric, value in json.loads(path.read_text()).items():
                seeds = found.setdefault(name, {}).setdefault(metric, {}).setdefault(path.parent.name, {})
                seeds.update({} if value is None else {int(path.stem[4:]): value})
    if len(found) == len(TASKS):
        firsts = [found[name][task.metrics[0]] for name, task in TASKS.items()]
        labels = [label for label in firsts[0] if all(label in first for first in firsts)]
        found[MEAN] = {'mean': {label: _mean([first[label] for first in firsts]) for label in labels}}
    return found


def _mean(tasks: Sequence[Mapping[int, float]]) -> dict[int, float]:
    seeds = set.intersection(*map(set, tasks))
    return {seed: float(np.mean([values[seed] for values in tasks])) for seed in sorted(seeds)}


def table(results: Mapping[str, Values]) -> str:
    """Results as text: means, and paired differences from the model without plugs, with Student's 95 % intervals."""
    rows = [('task', 'metric', 'plugs', 'seeds', 'mean', '95 %', 'difference', '95 %', 'verdict')]
    for task, values in results.items():
        for metric, labels in values.items():
            compared = compare(labels, NONE) if NONE in labels else {}
            for label, by_seed in labels.items():
                rows.append((task, metric, label, *_mean_of([*by_seed.values()]), *_difference(compared.get(label))))
    return format_table(rows, range(3, 8))


def _mean_of(values: list[float]) -> tuple[str, str, str]:
    has_spread = len(values) >= MIN_SEEDS and np.ptp(values) > 0
    interval = t_interval(np.asarray(values)) if has_spread else None
    ends = f'{interval.low:.1f} to {interval.high:.1f}' if interval else ''
    return str(len(values)), f'{np.mean(values):.1f}' if values else 'undefined', ends


def _difference(comparison: Any) -> tuple[str, str, str]:
    if comparison is None or comparison.difference is None:
        return '', '', ''
    ends = '' if comparison.low is None else f'{comparison.low:+.1f} to {comparison.high:+.1f}'
    return f'{comparison.difference:+.1f}', ends, comparison.verdict.value


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        'glue',
        'Fine-tune on tasks of GLUE and evaluate on their development sets, with several seeds. A call '
        'adds what is missing in a folder of results; with and without plugs in one folder, they are compared.',
    )
    add = parser.add_argument
    add('task', metavar='TASK', help=f'{", ".join(TASKS)}, or {ALL}')
    add('--data', required=True, metavar='DIR', help="GLUE's folders, such as DIR/CoLA with train.tsv and dev.tsv")
    add('--out', required=True, metavar='DIR', help='folder of results')
    add('--model', required=True, help=f'folder that pretrain has written; {", ".join(MODELS)} for initial weights')
    add('--plugs', help=f'{PLUGS_HELP} (default: those of the folder)')
    add('--vocab', metavar='FILE', help='vocab.txt of BERT, for initial weights')
    add('--seeds', type=int, default=5, metavar='N', help='trainings of each task (default 5)')
    add('--epochs', type=int, metavar='N', help='default 3, and 10 for RTE and STS-B')
    add('--lr', type=float, default=3e-4, help='learning rate of the head (default 3e-4)')
    add('--layer-decay', type=float, default=0.8, help='factor of rates from layer to layer (default 0.8)')
    add('--batch', type=int, default=32, metavar='N', help='examples of a step (default 32)')
    add('--length', type=int, default=128, metavar='N', help='most tokens of an example (default 128)')
    add('--leave-out', action='store_true', help='leave lines out that cannot be read, and count them')
    return parser
