"""Fine-tunes models of timm and Hugging Face on scikit-learn's digits, plain and with plugs, with their own tools.

    PYTHONPATH=. python tests/soak/foreign_digits.py timm [--seeds 10] [--epochs 6]
    PYTHONPATH=. python tests/soak/foreign_digits.py transformers [--seeds 10] [--epochs 6]

For each seed, a model is trained without plugs first; each variant goes on from its weights, with the same data in the
same order. timm's are trained with its optimiser factory and its scheduler, Hugging Face's with ``Trainer``. Prints the
accuracy on the 540 images of the other split, and the paired differences from the plain variant with Student's t
intervals of 95 %.
"""

import argparse
import copy
import tempfile

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vitplug
from vitplug.statistics.seeds import t_interval

PLUGS = ([], 'gab', 'residual', 'gab+residual+cb(scaled=True)')
FIRST_EPOCHS, BATCH = 30, 32
SIZES = dict(depth=3, heads=4, dims=32)


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images ``(N, 1, 8, 8)`` for training and for the test, and their labels."""
    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x, y, test_size=0.3, random_state=0, stratify=y)
    train_x, test_x = (torch.tensor(part, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1 for part in parts[:2])
    return train_x, test_x, torch.tensor(parts[2]), torch.tensor(parts[3])


def timm_model() -> nn.Module:
    """A small ViT of timm."""
    import timm

    sizes = dict(embed_dim=SIZES['dims'], depth=SIZES['depth'], num_heads=SIZES['heads'])
    return timm.create_model('vit_tiny_patch16_224', img_size=8, patch_size=2, in_chans=1, num_classes=10, **sizes)


def train_timm(model: nn.Module, x: Tensor, y: Tensor, epochs: int, lr: float, seed: int) -> None:
    """Trains with timm's optimiser and schedule."""
    from timm.optim import create_optimizer_v2
    from timm.scheduler import create_scheduler_v2

    optimizer = create_optimizer_v2(model, opt='adamw', lr=lr, weight_decay=0.05, layer_decay=0.9)
    scheduler, _ = create_scheduler_v2(optimizer, sched='cosine', num_epochs=epochs, warmup_epochs=1, warmup_lr=1e-5)
    draws = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        scheduler.step(epoch)
        for part in torch.randperm(len(x), generator=draws).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model.train()(x[part]), y[part]).backward()
            optimizer.step()


def transformers_model() -> nn.Module:
    """A small ViT of transformers."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = dict(hidden_size=SIZES['dims'], num_hidden_layers=SIZES['depth'], num_attention_heads=SIZES['heads'])
    sizes |= dict(intermediate_size=4 * SIZES['dims'], image_size=8, patch_size=2, num_channels=1, num_labels=10)
    return ViTForImageClassification(ViTConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def train_transformers(model: nn.Module, x: Tensor, y: Tensor, epochs: int, lr: float, seed: int) -> None:
    """Trains with ``Trainer``."""
    from transformers import Trainer, TrainingArguments

    data = [dict(pixel_values=image, labels=int(label)) for image, label in zip(x, y, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=BATCH,
            learning_rate=lr,
            weight_decay=0.05,
            lr_scheduler_type='cosine',
            warmup_steps=len(x) // BATCH,
            seed=seed,
            use_cpu=True,
            report_to=[],
            save_strategy='no',
            logging_strategy='no',
            disable_tqdm=True,
        )
        Trainer(model, args, train_dataset=data).train()


LIBRARIES = {'timm': (timm_model, train_timm), 'transformers': (transformers_model, train_transformers)}


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of images that are classified right."""
    found = model.eval()(x)
    return (getattr(found, 'logits', found).argmax(1) == y).float().mean().item()


def main() -> None:
    """Prints a row for each variant."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('library', choices=LIBRARIES)
    parser.add_argument('--seeds', type=int, default=10)
    parser.add_argument('--epochs', type=int, default=6, help='of the fine-tuning')
    args = parser.parse_args()
    build, train = LIBRARIES[args.library]
    train_x, test_x, train_y, test_y = digits()
    found: dict[str, list[float]] = {}
    for seed in range(args.seeds):
        torch.manual_seed(seed)
        start = build()
        train(start, train_x, train_y, FIRST_EPOCHS, 3e-3, seed)
        found.setdefault('start', []).append(accuracy(start, test_x, test_y))
        for plugs in PLUGS:
            torch.manual_seed(seed)
            model = vitplug.plug_in(copy.deepcopy(start), plugs)
            train(model, train_x, train_y, args.epochs, 1e-3, seed)
            found.setdefault(plugs or 'plain', []).append(accuracy(model, test_x, test_y))
        print(f'seed {seed}: ' + ', '.join(f'{name} {values[-1]:.4f}' for name, values in found.items()), flush=True)
    for name, values in found.items():
        change = np.subtract(values, found['plain'])
        interval = t_interval(change) if change.any() and len(change) > 1 else None
        ends = '' if interval is None else f', {interval.mean:+.4f} ({interval.low:+.4f} to {interval.high:+.4f})'
        print(f'{name}, {args.epochs} epochs: {np.mean(values):.4f}{ends}')


if __name__ == '__main__':
    main()
