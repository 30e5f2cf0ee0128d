"""What both commands need: transformers' ``Trainer`` with ELECTRA's settings, and folders of one content."""

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitplug.files.whole import write_whole

from .models import library

WEIGHT_DECAY, EPSILON, CLIP, RECORD = 0.01, 1e-6, 1.0, 'made_of.json'


def make_optimizer(model: nn.Module, lr: float, layer_decay: float = 1.0) -> torch.optim.AdamW:
    """AdamW with learning rates by layer, and no weight decay of biases and norms.

    With L blocks, the head learns at ``lr``, block i (from 0) at ``lr * layer_decay ** (L + 1 - i)``, embeddings at
    ``lr * layer_decay ** (L + 2)``, as in ELECTRA's code. A block's plugs learn at the rate of the block.

    Args:
        model: BERT, RoBERTa or ELECTRA with a head.
        lr: Learning rate of the head.
        layer_decay: Factor from layer to layer.
    """
    last, groups = model.config.num_hidden_layers + 2, {}
    for name, parameter in model.named_parameters():
        block = re.search(r'\.layer\.(\d+)\.', name)
        depth = int(block[1]) + 1 if block else 0 if '.embeddings' in name else last
        key = lr * layer_decay ** (last - depth), WEIGHT_DECAY if parameter.ndim > 1 else 0.0
        groups.setdefault(key, dict(params=[], lr=key[0], weight_decay=key[1]))['params'].append(parameter)
    return torch.optim.AdamW(list(groups.values()), eps=EPSILON)


def make_trainer(
    model: nn.Module, data: Any, collate: Any, args: Any, steps: int, warmup: float, seed: int, **options: Any
) -> Any:
    """A ``Trainer``: linear warm-up times linear decay to 0, gradients of norm 1 at most.

    Args:
        model: The model.
        data: The training data.
        collate: Makes a batch of its entries.
        args: Options of the command: ``out``, ``batch``, ``lr``, and ``layer_decay`` if rates differ by layer.
        steps: Steps of the training.
        warmup: Steps of the warm-up.
        seed: Seed of the order of the data and of dropout.
        options: Further ``TrainingArguments``; ``eval_dataset`` is the Trainer's.

    Raises:
        ValueError: If each step would have more than ``args.batch`` examples.
    """
    transformers, held_out = library(), options.pop('eval_dataset', None)
    sizes = dict(per_device_train_batch_size=args.batch, per_device_eval_batch_size=args.batch, max_steps=steps)
    quiet = dict(report_to='none', disable_tqdm=True, dataloader_pin_memory=torch.cuda.is_available())
    exact = dict(logging_nan_inf_filter=False, remove_unused_columns=False, max_grad_norm=CLIP)
    settings = transformers.TrainingArguments(args.out, seed=seed, data_seed=seed, **sizes, **quiet, **exact, **options)
    if settings.train_batch_size * settings.world_size != args.batch:
        raise ValueError('several GPUs would make the batch larger than --batch: set CUDA_VISIBLE_DEVICES=0')
    optimizer = make_optimizer(model, args.lr, getattr(args, 'layer_decay', 1.0))
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 - step / steps) * min(1.0, step / max(warmup, 1.0))
    )
    trainer = transformers.Trainer(
        model, settings, collate, data, held_out, optimizers=(optimizer, rate), callbacks=[_callback(args.lr)]
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def _callback(lr: float) -> Any:
    class Losses(library().TrainerCallback):
        """Prints losses, and ends a training whose loss is not finite, before anything of it is saved."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
            for name, value in (logs or {}).items():
                if name.endswith('loss') and not math.isfinite(value):
                    at = f'up to step {state.global_step}'
                    raise ValueError(f'the loss is not finite {at}: set a lower --lr than {lr:g}')
                if name in ('loss', 'eval_loss'):
                    print(f'step {state.global_step}: {"held-out " * (name != "loss")}loss {value:.3f}', flush=True)

    return Losses()


# --- folders ---


def claim(folder: Path, made_of: Mapping[str, Any]) -> None:
    """Notes in a new folder of what its content is made; in one that stands, compares it.

    Raises:
        ValueError: If the folder is of other content, or has files of other origin.
    """
    path = folder / RECORD
    if path.is_file():
        compare(folder, json.loads(path.read_text()), made_of)
    elif folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f'{folder} has files that this command has not written; choose another --out')
    else:
        write_whole(path, lambda part: part.write_text(json.dumps(made_of, indent=1)))


def compare(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Compares two records.

    Raises:
        ValueError: If they differ; names how.
    """
    if differing := list(_differences('', before, json.loads(json.dumps(now)))):
        raise ValueError(f'{folder} is made of something else: {"; ".join(differing)}; choose another --out')


def _differences(name: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            yield from _differences(f'{name} {key}'.strip(), before.get(key), now.get(key))
    elif before != now:
        yield f'{name} {before!r}, now {now!r}'


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns wrong settings and files into one line on stderr and exit status 2, Ctrl-C into 75."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        print('error:', ' '.join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print('interrupted; the same command goes on', file=sys.stderr)
        sys.exit(75)


def check_numbers(args: Any, *names: str) -> None:
    """Checks that options are above 0, and ``--length`` is one that the models take.

    Raises:
        ValueError: If not.
    """
    if wrong := [name for name in names if getattr(args, name) is not None and not getattr(args, name) > 0]:
        raise ValueError(f'--{wrong[0].replace("_", "-")} {getattr(args, wrong[0]):g}: expected a number above 0')
    if not 8 <= args.length <= 512:
        raise ValueError(f'--length {args.length}: expected 8 to 512 tokens')
