"""Steps of ELECTRA's training, and what both commands need: errors in one line, files written whole, checks.

Without OpenMMLab: transformers 5 and mmpretrain cannot be in one process.
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitplug.files.whole import write_whole

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
        group = groups.setdefault(key, dict(params=[], lr=key[0], highest=key[0], weight_decay=key[1]))
        group['params'].append(parameter)
    return torch.optim.AdamW(list(groups.values()), eps=EPSILON)


def take_step(optimizer: torch.optim.Optimizer, loss: Tensor, step: int, steps: int, warmup: float) -> Tensor:
    """One step; linear warm-up times linear decay to 0, and gradients of norm 1 at most.

    Args:
        optimizer: Of :func:`make_optimizer`.
        loss: The loss.
        step: Steps done.
        steps: Steps of the training.
        warmup: Steps of the warm-up.

    Returns:
        The loss without its graph.
    """
    optimizer.zero_grad()
    loss.backward()
    for group in optimizer.param_groups:
        group['lr'] = group['highest'] * (1 - step / steps) * min(1.0, step / max(warmup, 1.0))
    nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group['params']], CLIP)
    optimizer.step()
    return loss.detach()


# --- commands ---


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns wrong settings and files into one line on stderr and exit status 2, Ctrl-C into 75."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        _end(f'error: {error}', 2)
    except KeyboardInterrupt:
        _end('interrupted; the same command goes on', 75)


def _end(message: str, status: int) -> None:
    print(' '.join(message.split()), file=sys.stderr)
    sys.exit(status)


def check_options(device: str | None, length: int, **above_0: float | None) -> str:
    """Checks what both commands have; gives the device, an accelerator where none is named and there is one.

    Raises:
        ValueError: If a number is out of range, or there is no such device.
    """
    for name, value in above_0.items():
        if value is not None and not value > 0:
            raise ValueError(f'--{name.replace("_", "-")} {value:g}: expected a number above 0')
    if not 8 <= length <= 512:
        raise ValueError(f'--length {length}: expected 8 to 512 tokens')
    if device is None:
        return 'cuda' if torch.cuda.is_available() else 'cpu'
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f'--device {device}: cannot be used ({error}); leave it out, or choose cpu') from error
    return device


def write_json(path: Path, content: Any) -> None:
    """Writes a file of JSON."""
    write_whole(path, lambda part: part.write_text(json.dumps(content, indent=1)))


def check_same(folder: Path, results: str, settings: dict[str, Any]) -> None:
    """Compares settings with those with which a folder's results were made; without results, notes them.

    Args:
        folder: The folder.
        results: Pattern of the results' names.
        settings: What the results depend on.

    Raises:
        ValueError: If they differ.
    """
    path = folder / 'settings.json'
    before = json.loads(path.read_text()) if path.is_file() and any(folder.glob(results)) else None
    if before is None:
        write_json(path, settings)
    elif before != settings:
        differing = [
            f'{key} {before.get(key)!r}, now {now!r}' for key, now in settings.items() if before.get(key) != now
        ]
        raise ValueError(f'{folder} has results of other settings: {"; ".join(differing)}; choose another --out')
