"""What both commands need: transformers' ``Trainer`` with ELECTRA's settings, and what content is known by."""

import hashlib
import importlib
import math
import re
from typing import Any

import torch
from torch import nn

WEIGHT_DECAY, EPSILON, CLIP = 0.01, 1e-6, 1.0


def library() -> Any:
    """transformers, once a command needs it.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        return importlib.import_module('transformers')
    except ImportError as error:
        raise ImportError(
            f"this needs transformers ({error}): pip install 'transformers[torch]>=5.24,<6' where mmpretrain is not"
        ) from error


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
    held_out = options.pop('eval_dataset', None)
    sizes = dict(per_device_train_batch_size=args.batch, per_device_eval_batch_size=args.batch, max_steps=steps)
    exact = dict(logging_nan_inf_filter=False, remove_unused_columns=False, max_grad_norm=CLIP)
    options |= dict(report_to='none', disable_tqdm=True, dataloader_pin_memory=torch.cuda.is_available())
    settings = library().TrainingArguments(args.out, seed=seed, data_seed=seed, **sizes, **exact, **options)
    if settings.train_batch_size * settings.world_size != args.batch:
        raise ValueError('several GPUs would make the batch larger than --batch: set CUDA_VISIBLE_DEVICES=0')
    optimizer = make_optimizer(model, args.lr, getattr(args, 'layer_decay', 1.0))
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 - step / steps) * min(1.0, step / max(warmup, 1.0))
    )
    return library().Trainer(
        model, settings, collate, data, held_out, optimizers=(optimizer, rate), callbacks=[_finite_loss()]
    )


def _finite_loss() -> Any:
    class FiniteLoss(library().TrainerCallback):
        """Ends a training whose loss is not finite, before anything of it is saved."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
            for name in {'loss', 'eval_loss'} & {*(logs or ())}:
                if not math.isfinite(float(logs[name])):
                    raise ValueError(f'the {name} is not finite at step {state.global_step}: set a lower --lr')

    return FiniteLoss()


def content_of(*parts: bytes) -> str:
    """The hash by which content is known, however its files are named."""
    return hashlib.sha256(b''.join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def vocabulary_content(tokenizer: Any) -> str:
    """The hash of a vocabulary: its tokens in their order."""
    words = tokenizer.get_vocab()
    return content_of('\n'.join(sorted(words, key=words.get)).encode())
