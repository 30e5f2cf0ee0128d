"""Fine-tuning on GLUE and its development sets: the command ``vitplug glue``.

Each seed is a training: head, dropout and order of the data come from it, the same for all plugs. ``OUT/TASK`` is of
one recipe, data and pre-training, and has a file for each result, named by plugs, weights and seed; a call adds what is
missing, and prints all results. Plugs are compared with the model without them, seed by seed.

GLUE (Wang et al., ICLR 2019) has a folder for each task with ``train.tsv`` and ``dev.tsv``: UTF-8, fields between tabs
without quoting, and a line of column names, but for CoLA. Test sets have no labels and are not read.
"""

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from sklearn import metrics
from torch import nn

from vitplug.adapters import load_plugs, plug_in
from vitplug.commands import command_parser
from vitplug.files.folders import of_file, of_names
from vitplug.files.whole import write_text
from vitplug.plugs.text import NONE
from vitplug.statistics.seeds import compare, mean_and_sd
from vitplug.tables import format_table

from .pretrain import RECORD, claim, make_optimizers, training_arguments

WARMUP, LAYER_DECAY, ALL, HIGHEST = 0.1, 0.8, 'all', 5.0
#: Sentences, and the index of the class or a number.
Example = tuple[tuple[str, ...], float]
#: The metrics, of answers and predictions; a rank correlation is NaN where either is constant.
METRICS = dict(
    accuracy=metrics.accuracy_score,
    matthews=metrics.matthews_corrcoef,
    spearman=lambda expected, found: stats.spearmanr(expected, found).statistic,
)


class Task(NamedTuple):
    """A task of GLUE."""

    columns: tuple[str, ...]  # of the one or two sentences, and of the label
    metric: str = 'accuracy'
    labels: tuple[str, ...] = ('0', '1')  # none if they are numbers from 0 to 5
    epochs: int = 3
    dev: str = 'dev'
    both_orders: bool = False  # whether training has each pair in both orders
    heading: tuple[str, ...] | None = None  # names of all columns; None for those in the first line


_ENTAILED, _CLASSES = ('entailment', 'not_entailment'), ('contradiction', 'entailment', 'neutral')
TASKS = {
    'CoLA': Task(('sentence', 'label'), 'matthews', heading=('source', 'label', 'mark', 'sentence')),
    'SST-2': Task(('sentence', 'label')),
    'MRPC': Task(('#1 String', '#2 String', 'Quality'), both_orders=True),
    'STS-B': Task(('sentence1', 'sentence2', 'score'), 'spearman', (), epochs=10, both_orders=True),
    'QQP': Task(('question1', 'question2', 'is_duplicate')),
    'MNLI': Task(('sentence1', 'sentence2', 'gold_label'), labels=_CLASSES, dev='dev_matched'),
    'QNLI': Task(('question', 'sentence', 'label'), labels=_ENTAILED),
    'RTE': Task(('sentence1', 'sentence2', 'label'), labels=_ENTAILED, epochs=10),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Fine-tunes and evaluates."""
    parser = command_parser(
        'glue',
        'Fine-tune on tasks of GLUE and evaluate on their development sets, with several seeds. A call '
        'adds what is missing in a folder of results; with and without plugs in one folder, they are compared.',
    )
    add = parser.add_argument
    add('task', choices=(*TASKS, ALL), metavar='TASK', help=f'{", ".join(TASKS)}, or {ALL}')
    add('--data', required=True, metavar='DIR', help="GLUE's folders, such as DIR/CoLA with train.tsv and dev.tsv")
    add('--out', required=True, metavar='DIR', help='folder of results')
    add('--model', required=True, metavar='DIR', help='folder that pretrain has written')
    add('--seeds', type=int, default=5, metavar='N', help='trainings of each task (default 5)')
    add('--epochs', type=int, metavar='N', help='default 3, and 10 for RTE and STS-B')
    add('--lr', type=float, default=3e-4, help='learning rate of the head (default 3e-4)')
    add('--batch', type=int, default=32, metavar='N', help='examples of a step (default 32)')
    add('--length', type=int, default=128, metavar='N', help='most tokens of an example (default 128)')
    args = parser.parse_args(argv)
    data = {
        name: [read_examples(name, args.data, split) for split in ('train', TASKS[name].dev)]
        for name in (TASKS if args.task == ALL else [args.task])
    }
    before = json.loads(Path(args.model, RECORD).read_text())
    weights = sorted([Path(args.model, 'config.json'), *Path(args.model).glob('*.safetensors')])
    model = dict(plugs=before.pop('plugs'), weights=of_names(map(of_file, weights)))
    recipe = {name: getattr(args, name) for name in ('lr', 'batch', 'length')} | dict(pretraining=before)
    for name, examples in data.items():  # all, before anything is trained
        own = dict(epochs=args.epochs or TASKS[name].epochs, data=of_names(map(repr, examples)))
        claim(Path(args.out, name), recipe | own)
    for name, (train, dev) in data.items():
        for seed in range(args.seeds):
            path = Path(args.out, name, f'{model["plugs"]}_{model["weights"]}_seed{seed}.json')
            if not path.is_file():
                value = run(name, train, dev, seed, args)
                write_text(path, json.dumps(model | dict(seed=seed, value=value), indent=1))
                print(f'{name}, {model["plugs"]}, seed {seed}: {TASKS[name].metric} {value}', flush=True)
    print(table(Path(args.out)))
    return 0


def read_examples(name: str, data: str | Path, split: str) -> list[Example]:
    """Reads a file of a task.

    Lines with another number of fields or a wrong label are left out, as by ELECTRA's code, and counted in a line.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If no line can be read.
    """
    task, path = TASKS[name], Path(data, name, f'{split}.tsv')
    numbers = {label: index for index, label in enumerate(task.labels)}
    examples, left_out = [], 0
    with open(path, encoding='utf-8-sig', newline='') as file:
        for fields in csv.DictReader(file, task.heading, restkey='more', delimiter='\t', quoting=csv.QUOTE_NONE):
            *texts, label = map(fields.get, task.columns)
            is_number = not task.labels and label and re.fullmatch(r'\d+(\.\d*)?', label)
            target = float(label) if is_number else numbers.get(label, math.inf)
            if 'more' in fields or None in texts or target > HIGHEST:
                left_out += 1
            else:
                examples.append((tuple(texts), target))
    if left_out:
        print(f'{path}: {left_out} lines left out, {len(examples)} kept')
    if not examples:
        raise ValueError(f'{path} has no example: expected columns {task.columns}, labels {task.labels or "0 to 5"}')
    return examples


def classifier(folder: str, num_outputs: int) -> tuple[nn.Module, Any]:
    """The model of a folder of ``pretrain`` with its plugs and a new head for sentences, and its tokenizer.

    Raises:
        ValueError: If it lacks weights.
    """
    import transformers

    network, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=num_outputs, output_loading_info=True
    )
    if lacking := [key for key in loading['missing_keys'] if not re.search('classifier|pooler', key)]:
        raise ValueError(f'--model {folder} lacks weights of the model, such as {lacking[0]}')
    load_plugs(plug_in(network, network.config.plugs), folder)
    return network, transformers.AutoTokenizer.from_pretrained(folder)


def run(name: str, train: Sequence[Example], dev: Sequence[Example], seed: int, args: Any) -> float:
    """Trains, and gives the metric of the development set in percent.

    Raises:
        ValueError: If a prediction is not finite.
    """
    from transformers import DataCollatorWithPadding, Trainer

    task = TASKS[name]
    torch.manual_seed(seed)
    model, tokenizer = classifier(args.model, len(task.labels) or 1)

    def encoded(texts: Sequence[str], target: float) -> Mapping[str, Any]:
        """Of two sentences, the longer one is cut; targets that are numbers are up to 1."""
        found = tokenizer(*texts, truncation='longest_first', max_length=args.length)
        return found | dict(labels=target if task.labels else target / HIGHEST)

    turned = [(texts[::-1], target) for texts, target in train if task.both_orders]
    train_set = [encoded(*example) for example in [*train, *turned]]
    steps = (args.epochs or task.epochs) * math.ceil(len(train_set) / args.batch)
    trainer = Trainer(
        model,
        training_arguments(args, steps, seed, save_strategy='no', logging_strategy='no'),
        train_dataset=train_set,
        data_collator=DataCollatorWithPadding(tokenizer),
        optimizers=make_optimizers(model, args.lr, steps, WARMUP * steps, LAYER_DECAY),
    )
    trainer.train()
    logits = trainer.predict([encoded(*example) for example in dev]).predictions
    if not np.isfinite(logits).all():
        raise ValueError(f'{name}: predictions are not finite: set a lower --lr than {args.lr:g}')
    predicted = logits.argmax(1) if task.labels else logits[:, 0]
    return 100 * float(METRICS[task.metric]([target for _, target in dev], predicted))


def table(out: Path) -> str:
    """All results as text: means with standard deviations, and paired differences from the model without plugs.

    An undefined correlation counts for no mean.
    """
    rows = [('task', 'metric', 'plugs and weights', 'seeds', 'mean', 'sd', 'difference', 'from', 'to', 'verdict')]
    for name, task in TASKS.items():
        values: dict[str, dict[int, float]] = {}
        for one in (json.loads(path.read_text()) for path in sorted(out.glob(f'{name}/*_seed*.json'))):
            by_seed = values.setdefault(f'{one["plugs"]} {one["weights"][:6]}', {})
            by_seed |= {one['seed']: one['value']} if math.isfinite(one['value']) else {}
        plain = next((label for label in values if label.startswith(f'{NONE} ')), None)
        compared = compare(values, plain) if plain else {}
        for label, by_seed in values.items():
            found = compared.get(label)
            paired = (found.difference, found.low, found.high) if found else (None, None, None)
            numbers = mean_and_sd([*by_seed.values()]) + paired
            texts = ('' if number is None else f'{number:.1f}' for number in numbers)
            rows.append((name, task.metric, label, str(len(by_seed)), *texts, found.verdict.value if found else ''))
    return format_table(rows, range(3, 9))
