"""Fine-tuning on GLUE and its development sets: the command of ``tools/text/glue.py``.

Each seed is a training: head, dropout and order of the data come from it, the same for all plugs. Results lie in
``OUT/TASK/PLUGS/seed0.json``; a call adds what is missing, and prints all that there are. Plugs are compared with the
model without them, seed by seed (:mod:`vitplug.statistics.seeds`).
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from vitplug.commands import add_device, command_parser
from vitplug.plugs.text import NONE, PLUGS_HELP, label_of, parse_plugs
from vitplug.statistics.seeds import MIN_SEEDS, compare, t_interval
from vitplug.tables import format_table

from .metrics import METRICS
from .models import MODELS, classifier
from .tasks import HIGHEST, TASKS, Examples, Task, find_tasks, read_examples
from .training import check_options, check_same, make_optimizer, one_line_errors, take_step, write_json

WARMUP, MEAN = 0.1, 'all eight'
#: Values by metric, plugs and seed.
Values = dict[str, dict[str, dict[int, float]]]


def main(argv: Sequence[str] | None = None) -> int:
    """Fine-tunes and evaluates.

    Returns:
        Exit status 0. A wrong setting or file ends in one line and 2, Ctrl-C in 75.
    """
    args = _parser().parse_args(argv)
    with one_line_errors():
        numbers = {name: getattr(args, name) for name in ('seeds', 'batch', 'lr', 'layer_decay', 'epochs')}
        args.device = check_options(args.device, args.length, **numbers)
        if args.plugs is not None:
            parse_plugs(args.plugs, '--plugs')
            args.plugs = label_of(args.plugs)
        tasks = find_tasks(args.task)
        data = [_read(task, args) for task in tasks]  # all, before anything is trained
        for task, splits in zip(tasks, data, strict=True):
            for seed in range(args.seeds):
                _run(task, splits, seed, args)
        print(table(collect(Path(args.out))))
    return 0


def _read(task: Task, args: argparse.Namespace) -> dict[str, Examples]:
    splits = {name: read_examples(task, args.data, name, args.leave_out) for name in ('train', *task.dev.values())}
    for name, examples in splits.items():
        if examples.num_left_out:
            print(f'{task.name}, {name}: {examples.num_left_out} lines left out, {len(examples.texts)} kept')
    return splits


# --- one training ---


def _run(task: Task, data: Mapping[str, Examples], seed: int, args: argparse.Namespace) -> None:
    """Trains and evaluates, unless there is a result."""
    torch.manual_seed(seed)
    model, tokenizer = classifier(args.model, args.plugs, len(task.labels) or 1, args.vocab)
    folder = Path(args.out, task.name, model.base_model.config.plugs)
    settings = {
        name: getattr(args, name) for name in ('model', 'vocab', 'epochs', 'lr', 'layer_decay', 'batch', 'length')
    }
    check_same(folder, 'seed*.json', settings | {name: len(examples.texts) for name, examples in data.items()})
    path = folder / f'seed{seed}.json'
    if path.is_file():
        return
    train(model.to(args.device), tokenizer, task, data['train'], seed, args)
    metrics = {}
    for prefix, name in task.dev.items():
        values = evaluate(model, tokenizer, task, data[name], args)
        metrics |= {f'{prefix}{metric}': value for metric, value in values.items()}
    write_json(path, metrics)
    shown = ', '.join(f'{name} {value:.1f}' for name, value in metrics.items())
    print(f'{task.name}, {folder.name}, seed {seed}: {shown}', flush=True)


def make_inputs(texts: Sequence[tuple[str, ...]], tokenizer: Any, args: argparse.Namespace) -> dict[str, Tensor]:
    """Sentences as inputs of a model, padded to the longest ``(B, N)``; of two, the longer one is cut."""
    columns = [list(column) for column in zip(*texts, strict=True)]
    options = dict(truncation='longest_first', max_length=args.length, padding=True, return_tensors='pt')
    return dict(tokenizer(*columns, **options).to(args.device))


def train(model: nn.Module, tokenizer: Any, task: Task, data: Examples, seed: int, args: argparse.Namespace) -> None:
    """Trains on all examples, in an order of the seed.

    Raises:
        ValueError: If the loss is not finite.
    """
    texts, targets = data.texts, torch.tensor(data.targets)
    if task.both_orders:
        texts, targets = texts + [pair[::-1] for pair in texts], targets.repeat(2)
    epochs, order = args.epochs or task.epochs, torch.Generator().manual_seed(seed)
    batches = [part for _ in range(epochs) for part in torch.randperm(len(texts), generator=order).split(args.batch)]
    optimizer = make_optimizer(model, args.lr, args.layer_decay)
    torch.manual_seed(seed)  # whatever head and plugs have drawn
    model.train()
    for step, chosen in enumerate(batches):
        logits = model(**make_inputs([texts[i] for i in chosen], tokenizer, args)).logits
        expected = targets[chosen].to(args.device)
        loss = cross_entropy(logits, expected) if task.labels else mse_loss(logits.squeeze(-1), expected / HIGHEST)
        if not loss.isfinite():
            raise ValueError(f'{task.name}: the loss is {loss:g} at step {step}: set a lower --lr than {args.lr:g}')
        take_step(optimizer, loss, step, len(batches), WARMUP * len(batches))


@torch.no_grad()
def evaluate(
    model: nn.Module, tokenizer: Any, task: Task, data: Examples, args: argparse.Namespace
) -> dict[str, float]:
    """The metrics of a task, in percent."""
    model.eval()
    parts = (data.texts[start : start + args.batch] for start in range(0, len(data.texts), args.batch))
    logits = torch.cat([model(**make_inputs(part, tokenizer, args)).logits.float().cpu() for part in parts])
    predicted = (logits.argmax(1) if task.labels else logits.squeeze(-1)).numpy()
    return {name: METRICS[name](predicted, np.asarray(data.targets)) for name in task.metrics}


# --- all results ---


def collect(out: Path) -> dict[str, Values]:
    """The results below a folder, by task; if all eight tasks are there, also the mean of their first metrics."""
    by_task: dict[str, Values] = {}
    for path in sorted(out.glob('*/*/seed*.json')):
        task, label, seed = path.parts[-3], path.parts[-2], int(path.stem.removeprefix('seed'))
        for metric, value in json.loads(path.read_text()).items():
            by_task.setdefault(task, {}).setdefault(metric, {}).setdefault(label, {})[seed] = value
    by_task = {task: by_task[task] for task in TASKS if task in by_task}
    if len(by_task) == len(TASKS):
        firsts = [by_task[name][task.metrics[0]] for name, task in TASKS.items()]
        by_task[MEAN] = {'mean': {label: _mean([first.get(label, {}) for first in firsts]) for label in firsts[0]}}
    return by_task


def _mean(tasks: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Mean over tasks, for the seeds that all have."""
    seeds = set.intersection(*map(set, tasks))
    return {seed: float(np.mean([values[seed] for values in tasks])) for seed in sorted(seeds)}


def table(results: Mapping[str, Values]) -> str:
    """Results as text: means, and paired differences from the model without plugs, with Student's 95 % intervals."""
    rows = [('task', 'metric', 'plugs', 'seeds', 'mean', '95 %', 'difference', '95 %', 'verdict')]
    for task, values in results.items():
        for metric, labels in values.items():
            compared = compare(labels, NONE) if NONE in labels else {}
            for label, by_seed in labels.items():
                rows.append((task, metric, label, *_mean_of(list(by_seed.values())), *_difference(compared.get(label))))
    return format_table(rows, range(3, 8))


def _mean_of(values: list[float]) -> tuple[str, str, str]:
    mean, has_spread = f'{np.mean(values):.1f}' if values else '', len(values) >= MIN_SEEDS and np.ptp(values) > 0
    interval = t_interval(np.asarray(values)) if has_spread else None
    return str(len(values)), mean, f'{interval.low:.1f} to {interval.high:.1f}' if interval else ''


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
    add('task', metavar='TASK', help=f'{", ".join(TASKS)}, or all')
    add('--data', required=True, metavar='DIR', help="GLUE's folders, such as DIR/CoLA with train.tsv and dev.tsv")
    add('--out', required=True, metavar='DIR', help='folder of results')
    add('--model', required=True, help=f'folder that pretrain.py has written; {", ".join(MODELS)} for initial weights')
    add('--plugs', help=f'{PLUGS_HELP} (default: those of the folder)')
    add('--vocab', metavar='FILE', help='vocab.txt of BERT (default: that of the folder)')
    add('--seeds', type=int, default=5, metavar='N', help='trainings of each task (default 5)')
    add('--epochs', type=int, metavar='N', help='default 3, and 10 for RTE and STS-B')
    add('--lr', type=float, default=3e-4, help='learning rate of the head (default 3e-4)')
    add('--layer-decay', type=float, default=0.8, help='factor of rates from layer to layer (default 0.8)')
    add('--batch', type=int, default=32, metavar='N', help='examples of a step (default 32)')
    add('--length', type=int, default=128, metavar='N', help='most tokens of an example (default 128)')
    add('--leave-out', action='store_true', help='leave lines out that cannot be read, and count them')
    add_device(parser)
    return parser
