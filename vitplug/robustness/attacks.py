"""Attacks on classifiers, in pixel space with the normalisation inside the model, and five checks of what they rest on.

Pixels are from 0 to 1, and a model is a function from pixels ``(B, C, H, W)`` to logits ``(B, classes)``. Attacks are
white-box, untargeted, and bounded in the maximum norm.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Logits = Callable[[Tensor], Tensor]
# Random images of the black box that a white box has to beat.
GUESSES = 4
# One class and the nine others that AutoAttack's targeted attacks aim at.
LEAST_CLASSES = 10


class Attack(Protocol):
    """Gives pixels that a model classifies worse, no more than ``epsilon`` from the given ones."""

    epsilon: float

    def __call__(self, logits: Logits, pixels: Tensor, labels: Tensor, images: Sequence[int]) -> Tensor:
        """The attacked pixels.

        Args:
            logits: The model.
            pixels: ``(B, C, H, W)``, 0 to 1.
            labels: The classes ``(B,)``.
            images: Numbers of the images, for what is drawn.
        """


@dataclass(frozen=True)
class FGSM:
    """Fast gradient sign method: one step of the gradient's sign (Goodfellow et al., 2015; CB, Table 8).

    Attributes:
        epsilon: Length of the step in each value, above 0, at most 1.
    """

    epsilon: float

    def __post_init__(self):
        check_epsilon(self.epsilon)

    def __call__(self, logits: Logits, pixels: Tensor, labels: Tensor, images: Sequence[int]) -> Tensor:
        return (pixels + self.epsilon * gradient(logits, pixels, labels).sign()).clamp(0, 1)


@dataclass(frozen=True)
class PGD:
    """Projected gradient descent from a random start in the ball (Madry et al., 2018).

    Attributes:
        epsilon: Radius of the ball, above 0, at most 1.
        steps: Number of steps, at least 1.
        seed: The start depends on it and on the number of the image.
        step: Length of a step; None for 2.5 epsilon / steps.
    """

    epsilon: float
    steps: int = 10
    seed: int = 0
    step: float | None = None

    def __post_init__(self):
        check_epsilon(self.epsilon)
        if self.steps < 1:
            raise ValueError(f'steps = {self.steps!r}: expected at least 1')

    def __call__(self, logits: Logits, pixels: Tensor, labels: Tensor, images: Sequence[int]) -> Tensor:
        low, high = (pixels - self.epsilon).clamp(min=0), (pixels + self.epsilon).clamp(max=1)
        step = 2.5 * self.epsilon / self.steps if self.step is None else self.step
        attacked = pixels + self.epsilon * uniform(pixels, self.seed, images)
        for _ in range(self.steps):
            attacked = attacked.clamp(low, high)
            attacked = attacked + step * gradient(logits, attacked, labels).sign()
        return attacked.clamp(low, high)


@dataclass(frozen=True)
class StandardAutoAttack:
    """AutoAttack's standard version: APGD-CE, targeted APGD-DLR, targeted FAB, Square (Croce and Hein, ICML 2020).

    Each image is attacked alone, so that what is drawn depends on the seed and its number. Needs ``pyautoattack``.

    Attributes:
        epsilon: Radius of the ball, above 0, at most 1.
        seed: Of what is drawn.

    Raises:
        ImportError: If the package is missing.
        ValueError: In the call, if there are fewer classes than its targeted attacks need.
    """

    epsilon: float
    seed: int = 0

    def __post_init__(self):
        check_epsilon(self.epsilon)
        if find_spec('pyautoattack') is None:
            raise ImportError("AutoAttack needs pyautoattack: pip install 'vitplug[autoattack]'")

    def __call__(self, logits: Logits, pixels: Tensor, labels: Tensor, images: Sequence[int]) -> Tensor:
        from pyautoattack import AutoAttack

        with torch.no_grad():
            classes = logits(pixels[:1]).shape[1]
        if classes < LEAST_CLASSES:
            raise ValueError(
                f'AutoAttack: its targeted attacks need {LEAST_CLASSES} classes, and the model has {classes}'
            )
        attacked = []
        for image, x, label in zip(images, pixels.detach().split(1), labels.split(1), strict=True):
            attack = AutoAttack(logits, eps=self.epsilon, seed=self.seed + image, device=pixels.device)
            attack.verbose = False
            with torch.enable_grad():
                attacked.append(attack.run_standard_evaluation(x, label, batch_size=1)[0])
        return torch.cat(attacked).detach().to(pixels).clamp(pixels - self.epsilon, pixels + self.epsilon)


def check_epsilon(epsilon: float) -> None:
    """Checks the size of an attack.

    Raises:
        ValueError: If it is not above 0 and at most 1.
    """
    if not 0 < epsilon <= 1:
        raise ValueError(
            f'epsilon = {epsilon!r}: expected above 0 and at most 1, such as 4/255: pixels are from 0 to 1'
        )


def gradient(logits: Logits, pixels: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the summed cross entropy with respect to the pixels."""
    with torch.enable_grad():
        pixels = pixels.detach().requires_grad_()
        loss = F.cross_entropy(logits(pixels), labels, reduction='sum')
        return torch.autograd.grad(loss, pixels)[0]


def uniform(pixels: Tensor, seed: int, images: Sequence[int]) -> Tensor:
    """Numbers from -1 to 1 in the shape of some images, of the seed and each image's number alone."""
    drawn = [np.random.default_rng([seed, image]).uniform(-1, 1, pixels.shape[1:]) for image in images]
    return torch.as_tensor(np.stack(drawn)).to(pixels)


# --- the checks, after AutoAttack's ---


def check_model(logits: Logits, pixels: Tensor, labels: Tensor) -> None:
    """Checks what a gradient attack rests on: the first four of AutoAttack's five checks.

    Args:
        logits: The model.
        pixels: Some images ``(B, C, H, W)``, 0 to 1.
        labels: Their classes.

    Raises:
        ValueError: If outputs change between two calls, are probabilities, are found by optimisation, or if an image
            has a gradient of zero everywhere; says which.
    """
    with torch.no_grad(), _gradients_counted() as count:
        first, second = logits(pixels), logits(pixels)
    if count():
        raise ValueError('the model takes gradients when it predicts: an attack through it would be of another model')
    if not torch.equal(first, second):
        raise ValueError(
            'the model gives other outputs for the same images: is it in evaluation mode, without dropout?'
        )
    if (first >= 0).all() and torch.allclose(first.sum(1), torch.ones_like(first[:, 0]), atol=1e-3):
        raise ValueError('the model gives probabilities: expected logits, whose gradients do not vanish')
    flat = gradient(logits, pixels, labels).flatten(1)
    dead = int((~flat.any(1)).sum())
    if dead:
        raise ValueError(f'the gradient of {dead} of {len(flat)} images is zero everywhere: an attack would do nothing')


def black_box_wins(logits: Logits, attack: Attack, pixels: Tensor, labels: Tensor, images: Sequence[int]) -> str:
    """The fifth check: random steps of the same length must not do more harm than the attack.

    Returns:
        What is wrong, '' for nothing.
    """
    with torch.no_grad():
        white = correct(logits, attack(logits, pixels, labels, images), labels)
        black = torch.ones_like(white)
        for guess in range(GUESSES):
            step = attack.epsilon * uniform(pixels, guess, images).sign()
            black &= correct(logits, (pixels + step).clamp(0, 1), labels)
    if black.sum() >= white.sum():
        return ''
    return (
        f'random steps fool {int((~black).sum())} of {len(labels)} images and the attack {int((~white).sum())}: '
        'the gradients mislead it'
    )


def correct(logits: Logits, pixels: Tensor, labels: Tensor) -> Tensor:
    """Which images are classified rightly, ``(B,)``."""
    return logits(pixels).argmax(1) == labels


@contextmanager
def _gradients_counted() -> Iterator[Callable[[], int]]:
    """Counts calls of autograd."""
    with (
        mock.patch.object(torch.autograd, 'grad', wraps=torch.autograd.grad) as grad,
        mock.patch.object(torch.autograd, 'backward', wraps=torch.autograd.backward) as backward,
    ):
        yield lambda: grad.call_count + backward.call_count
