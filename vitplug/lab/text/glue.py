"""Fine-tuning on GLUE and its development sets: the command ``vitplug glue``.

Each seed is a training: head, dropout and order of the data come from it, the same for all plugs. A result is a file in
``OUT/TASK``, named by plugs, seed and the hash of all that it depends on; a call adds what is missing, and prints all
results. Plugs are compared with the model without them, seed by seed, where nothing else differs.
"""

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn import metrics
from torch import nn

from vitplug.adapters import load_plugs, plug_in
from vitplug.commands import command_parser
from vitplug.files.whole import write_text
from vitplug.plugs.text import NONE
from vitplug.statistics.seeds import Comparison, compare, mean_and_sd
from vitplug.tables import format_table

from .data import HIGHEST, TASKS, Example, Task, content_of, read_examples, vocabulary_content
from .pretrain import RECORD

WARMUP, ALL = 0.1, 'all'
#: The metrics, of answers and predictions; those of correlation are NaN where either is constant.
METRICS = dict(
    accuracy=metrics.accuracy_score,
    f1=lambda expected, found: metrics.f1_score(expected, found, zero_division=0),
    matthews=metrics.matthews_corrcoef,
    pearson=lambda expected, found: stats.pearsonr(expected, found).statistic,
    spearman=lambda expected, found: stats.spearmanr(expected, found).statistic,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Fine-tunes and evaluates."""
    args = _parser().parse_args(argv)
    data = {
        name: {split: read_examples(name, args.data, split) for split in ('train', *TASKS[name].dev)}
        for name in (TASKS if args.task == ALL else [args.task])
    }  # all, before anything is trained
    for name, splits in data.items():
        for seed in range(args.seeds):
            run(name, splits, seed, args)
    print(table(Path(args.out)))
    return 0


class Sentences(torch.utils.data.Dataset):
    """Examples as inputs of a model; of two sentences, the longer one is cut. Targets that are numbers are up to 1."""

    def __init__(self, examples: Sequence[Example], tokenizer: Any, length: int, task: Task):
        self.examples, self.tokenizer, self.length, self.task = examples, tokenizer, length, task

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        texts, target = self.examples[index]
        inputs = self.tokenizer(*texts, truncation='longest_first', max_length=self.length)
        return dict(inputs, labels=target if self.task.labels else target / HIGHEST)


def classifier(folder: str, num_outputs: int) -> tuple[nn.Module, Any]:
    """The model of a folder with its plugs and a new head for sentences, and its tokenizer.

    Args:
        folder: A folder that ``pretrain`` has written.
        num_outputs: Outputs of the head; 1 for a number.

    Raises:
        ValueError: If it lacks weights.
    """
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder, num_labels=num_outputs)
    plugs = getattr(config, 'plugs', NONE)
    network, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, config=config, output_loading_info=True
    )
    if lacking := [key for key in loading['missing_keys'] if not re.search('classifier|pooler', key)]:
        raise ValueError(f'--model {folder} lacks weights of the model, such as {lacking[0]}')
    plug_in(network, plugs)
    network = network if plugs == NONE else load_plugs(network, folder)
    return network, transformers.AutoTokenizer.from_pretrained(folder)


def run(name: str, data: Mapping[str, Sequence[Example]], seed: int, args: argparse.Namespace) -> None:
    """Trains and evaluates, unless there is a result of the same content.

    Raises:
        ValueError: If a loss or a prediction is not finite.
    """
    from transformers import DataCollatorWithPadding

    from .training import make_trainer

    task = TASKS[name]
    torch.manual_seed(seed)
    model, tokenizer = classifier(args.model, len(task.labels) or 1)
    label, epochs = model.base_model.config.plugs, args.epochs or task.epochs
    weights = sorted([Path(args.model, 'config.json'), *Path(args.model).glob('*.safetensors')])
    made_of = dict(plugs=label, weights=content_of(*(path.read_bytes() for path in weights)))
    made_of |= dict(shared=_shared_content(data, epochs, tokenizer, args))
    path = Path(args.out, name, f'{label}_seed{seed}_{content_of(repr(made_of).encode())}.json')
    if path.is_file():
        return
    turned = [(texts[::-1], target) for texts, target in data['train'] if task.both_orders]
    sets = {split: Sentences(examples, tokenizer, args.length, task) for split, examples in data.items()}
    sets['train'].examples = [*data['train'], *turned]
    steps = epochs * math.ceil(len(sets['train']) / args.batch)
    given = dict(train_dataset=sets['train'], data_collator=DataCollatorWithPadding(tokenizer))
    settings = dict(save_strategy='no', logging_strategy='no')
    trainer = make_trainer(model, args, steps, WARMUP * steps, seed, given, **settings)
    trainer.train()
    values: dict[str, float | None] = {}
    for split in task.dev:
        logits = trainer.predict(sets[split]).predictions
        if not np.isfinite(logits).all():
            raise ValueError(f'{name}: predictions are not finite: set a lower --lr than {args.lr:g}')
        predicted = logits.argmax(1) if task.labels else logits[:, 0]
        for metric in task.metrics:
            value = 100 * float(METRICS[metric]([target for _, target in data[split]], predicted))
            values['mismatched ' * split.endswith('mismatched') + metric] = value if math.isfinite(value) else None
    write_text(path, json.dumps(made_of | dict(seed=seed, values=values), indent=1))
    print(f'{name}, {label}, seed {seed}: {values}', flush=True)


def _shared_content(data: Mapping, epochs: int, tokenizer: Any, args: argparse.Namespace) -> str:
    """The hash of all that results depend on, plugs and weights aside: data, recipe and how weights were trained."""
    record = Path(args.model, RECORD)
    before = json.loads(record.read_text()) if record.is_file() else {}
    before.pop('plugs', None)
    recipe = (args.lr, args.layer_decay, args.batch, args.length, epochs)
    return content_of(*(repr(part).encode() for part in (data, recipe, vocabulary_content(tokenizer), before)))


def table(out: Path) -> str:
    """All results as text: means with standard deviations, and paired differences from the model without plugs.

    Results are compared where they share data, recipe and pre-training. An undefined correlation counts for no mean.
    """
    found: dict[tuple[str, str, str], dict[str, dict[int, float]]] = {}
    for name in TASKS:
        for one in (json.loads(path.read_text()) for path in sorted(out.glob(f'{name}/*.json'))):
            for metric, value in one['values'].items():
                labels = found.setdefault((name, metric, one['shared'][:6]), {})
                by_seed = labels.setdefault(f'{one["plugs"]} {one["weights"][:6]}', {})
                by_seed.update({} if value is None else {one['seed']: value})
    rows = [('task', 'metric', 'content', 'plugs and weights', 'seeds', 'mean', 'sd', 'difference', '95 %', 'verdict')]
    for key, labels in found.items():
        plain = next((label for label in labels if label.startswith(f'{NONE} ')), None)
        compared = compare(labels, plain) if plain else {}
        for label, by_seed in labels.items():
            mean, sd = mean_and_sd([*by_seed.values()])
            cells = ('undefined' if mean is None else f'{mean:.1f}', '' if sd is None else f'{sd:.1f}')
            rows.append((*key, label, str(len(by_seed)), *cells, *_difference(compared.get(label))))
    return format_table(rows, range(4, 9))


def _difference(comparison: Comparison | None) -> tuple[str, str, str]:
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
    add('task', choices=(*TASKS, ALL), metavar='TASK', help=f'{", ".join(TASKS)}, or {ALL}')
    add('--data', required=True, metavar='DIR', help="GLUE's folders, such as DIR/CoLA with train.tsv and dev.tsv")
    add('--out', required=True, metavar='DIR', help='folder of results')
    add('--model', required=True, metavar='DIR', help='folder that pretrain has written')
    add('--seeds', type=int, default=5, metavar='N', help='trainings of each task (default 5)')
    add('--epochs', type=int, metavar='N', help='default 3, and 10 for RTE and STS-B')
    add('--lr', type=float, default=3e-4, help='learning rate of the head (default 3e-4)')
    add('--layer-decay', type=float, default=0.8, help='factor of rates from layer to layer (default 0.8)')
    add('--batch', type=int, default=32, metavar='N', help='examples of a step (default 32)')
    add('--length', type=int, default=128, metavar='N', help='most tokens of an example (default 128)')
    return parser
