"""transformers' ``Trainer`` with ELECTRA's settings."""

import math
import re
from typing import Any

import torch
import transformers
from torch import nn

WEIGHT_DECAY, EPSILON, CLIP = 0.01, 1e-6, 1.0


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


class FiniteLoss(transformers.TrainerCallback):
    """Ends a training whose loss is not finite, before anything of it is saved."""

    def on_log(self, args, state, control, logs=None, **rest) -> None:
        if not all(math.isfinite(value) for name, value in (logs or {}).items() if name in ('loss', 'eval_loss')):
            raise ValueError(f'the loss is not finite at step {state.global_step}: set a lower --lr')


def make_trainer(
    model: nn.Module, args: Any, steps: int, warmup: float, seed: int, data: dict[str, Any], **settings: Any
) -> transformers.Trainer:
    """A ``Trainer``: linear warm-up times linear decay to 0, gradients of norm 1 at most.

    Args:
        model: The model.
        args: Options of the command: ``out``, ``batch``, ``lr``, and ``layer_decay`` if rates differ by layer.
        steps: Steps of the training.
        warmup: Steps of the warm-up.
        seed: Seed of the order of the data and of dropout.
        data: The Trainer's ``train_dataset``, ``data_collator`` and ``eval_dataset``.
        settings: Further ``TrainingArguments``.

    Raises:
        ValueError: If each step would have more than ``args.batch`` examples.
    """
    settings |= dict(per_device_train_batch_size=args.batch, per_device_eval_batch_size=args.batch, max_steps=steps)
    settings |= dict(logging_nan_inf_filter=False, remove_unused_columns=False, max_grad_norm=CLIP)
    settings |= dict(report_to='none', disable_tqdm=True, dataloader_pin_memory=torch.cuda.is_available())
    settled = transformers.TrainingArguments(args.out, seed=seed, data_seed=seed, **settings)
    if settled.train_batch_size * settled.world_size != args.batch:
        raise ValueError('several GPUs would make the batch larger than --batch: set CUDA_VISIBLE_DEVICES=0')
    optimizer = make_optimizer(model, args.lr, getattr(args, 'layer_decay', 1.0))
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 - step / steps) * min(1.0, step / max(warmup, 1.0))
    )
    return transformers.Trainer(model, settled, optimizers=(optimizer, rate), callbacks=[FiniteLoss()], **data)
