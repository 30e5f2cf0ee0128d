"""Probes of frozen features: k nearest neighbours, logistic regression and a linear head.

A sample is an image or a patch. Its target is a row of shares: 1 for the class of an image; for a patch, the share of
its pixels in each class, which is less than 1 in sum if pixels are void. Each probe has one setting, such as the
learning rate, which it chooses on samples that were held out of the training data.

Shape suffixes: N samples, D width, C classes, R learning rates.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor

# Queries of one product with all stored samples.
QUERIES = 1024
# As DINOv2's sweep: 13 rates, three to a decade, for batches of 256. Ours end at 1, as trainings are shorter and
# features are standardised.
RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0)
RATE_BATCH = 256
# Inverse strengths of the L2 penalty, as scikit-learn's `C`, strongest first.
STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
MOST_STEPS = 500
GRADIENT = 1e-5
INITIAL_STD = 0.01  # of DINOv2's heads

#: Scores of samples ``(N, C)`` and their targets ``(N, C)`` to a number, where more is better.
Score = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Samples:
    """Samples with their targets.

    Attributes:
        features_ND: Features.
        targets_NC: Shares of the classes.
    """

    features_ND: Tensor
    targets_NC: Tensor

    def __len__(self) -> int:
        return len(self.features_ND)


@dataclass(frozen=True)
class Head:
    """A fitted probe.

    Attributes:
        scores: Features ``(N, D)`` to scores ``(N, C)``.
        chosen: The setting that was chosen.
        held_out: Its score on the held-out samples.
    """

    scores: Callable[[Tensor], Tensor]
    chosen: float
    held_out: float


class Probe(ABC):
    """A probe.

    Attributes:
        name: As commands name it.
        chooses: The setting that it chooses on held-out samples.
    """

    name: str
    chooses: str

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """The settings that its results depend on, as JSON can hold them."""

    @abstractmethod
    def fit(self, samples: Samples, held_out: Samples, score: Score, seed: int) -> Head:
        """Fits the probe.

        Args:
            samples: What it learns from.
            held_out: What its setting is chosen on.
            score: What is best there.
            seed: Of all that is drawn.

        Raises:
            ValueError: If there are too few samples.
        """


@dataclass(frozen=True)
class NearestNeighbours(Probe):
    """Votes of the most similar samples, weighted by ``exp(cosine similarity / temperature)``.

    Source: *Emerging Properties in Self-Supervised Vision Transformers* (DINO, arXiv 2104.14294), with k = 20 and a
    temperature of 0.07.

    Attributes:
        ks: Numbers of neighbours to choose from.
        temperature: Of the weights.
    """

    ks: Sequence[int] = (20,)
    temperature: float = 0.07
    name = 'knn'
    chooses = 'k'

    @property
    def settings(self):
        return dict(k=list(self.ks), temperature=self.temperature)

    def fit(self, samples, held_out, score, seed):
        if len(samples) < max(self.ks):
            raise ValueError(f'--k {max(self.ks)}: only {len(samples)} samples to search; choose fewer neighbours')
        bank_ND = F.normalize(samples.features_ND, dim=-1)

        def head(k: int) -> Callable[[Tensor], Tensor]:
            return lambda features_ND: votes(features_ND, bank_ND, samples.targets_NC, k, self.temperature)

        return _best({k: head(k) for k in self.ks}, held_out, score)


def votes(queries_ND: Tensor, bank_ND: Tensor, targets_NC: Tensor, k: int, temperature: float) -> Tensor:
    """Weighted votes of the k nearest neighbours by cosine similarity.

    Args:
        queries_ND: Features to classify.
        bank_ND: Features of the known samples, each of length 1.
        targets_NC: Their targets.
        k: Number of neighbours.
        temperature: Of the weights.

    Returns:
        ``(N, C)``, sums of 1 if no target is void.
    """
    chunks = []
    for part_ND in F.normalize(queries_ND, dim=-1).split(QUERIES):
        similarity_NK, index_NK = (part_ND @ bank_ND.T).topk(k, dim=1)
        weights_NK = (similarity_NK / temperature).softmax(dim=1)  # exp(s / t), to a sum of 1
        chunks.append(torch.einsum('nk,nkc->nc', weights_NK, targets_NC[index_NK]))
    return torch.cat(chunks)


@dataclass(frozen=True)
class LogisticRegression(Probe):
    """Multinomial logistic regression with an L2 penalty, on standardised features, by L-BFGS.

    Attributes:
        strengths: Inverse strengths of the penalty to choose from, see :func:`regress`.
    """

    strengths: Sequence[float] = STRENGTHS
    name = 'logistic'
    chooses = 'C'

    @property
    def settings(self):
        return dict(C=list(self.strengths))

    def fit(self, samples, held_out, score, seed):
        scale = Scale.of(samples.features_ND)
        inputs = Samples(scale(samples.features_ND), samples.targets_NC)
        heads, weights = {}, None
        for strength in sorted(self.strengths):
            weights = regress(inputs, strength, weights)  # each start is the last solution
            heads[strength] = _affine(scale, *weights)
        return _best(heads, held_out, score)


def regress(samples: Samples, strength: float, start: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Minimises ``strength * sum of cross-entropies + |W|^2 / 2``; the bias has no penalty, as in scikit-learn.

    Args:
        samples: The samples.
        strength: Inverse strength of the penalty, scikit-learn's ``C``.
        start: Weights and bias to start from; zeros by default.

    Returns:
        Weights ``(D, C)`` and bias ``(C,)``.
    """
    x_ND, targets_NC = samples.features_ND, samples.targets_NC
    width, classes = x_ND.shape[1], targets_NC.shape[1]
    penalty = 1 / (strength * len(samples))

    def unpack(values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=x_ND.dtype, device=x_ND.device).view(width + 1, classes)

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        both = unpack(values).requires_grad_()
        logits_NC = torch.addmm(both[-1], x_ND, both[:-1])
        loss = -(targets_NC * logits_NC.log_softmax(-1)).sum() / len(samples) + penalty / 2 * both[:-1].square().sum()
        loss.backward()
        return loss.item(), both.grad.flatten().double().cpu().numpy()

    first = np.zeros((width + 1) * classes)
    if start is not None:
        first = torch.cat((start[0], start[1][None])).flatten().double().cpu().numpy()
    options = dict(maxiter=MOST_STEPS, maxfun=2 * MOST_STEPS, gtol=GRADIENT, ftol=0.0)
    solution = unpack(minimize(objective, first, jac=True, method='L-BFGS-B', options=options).x.copy())
    return solution[:-1], solution[-1]


@dataclass(frozen=True)
class LinearHead(Probe):
    """A linear layer on standardised features, trained by SGD with several learning rates at the same time.

    As DINOv2 (arXiv 2304.07193) and DINOv3 (arXiv 2508.10104) probe: momentum 0.9, no weight decay, a cosine schedule,
    and the head of the best learning rate. Standardising does what DINOv3's batch norm does before its linear layer.

    Attributes:
        iterations: Number of batches.
        batch: Samples in a batch.
        rates: Learning rates to choose from, for batches of 256.
    """

    iterations: int = 1000
    batch: int = 256
    rates: Sequence[float] = RATES
    name = 'linear'
    chooses = 'learning rate'

    @property
    def settings(self):
        return dict(iterations=self.iterations, batch=self.batch, rates=list(self.rates))

    def fit(self, samples, held_out, score, seed):
        scale = Scale.of(samples.features_ND)
        inputs = Samples(scale(samples.features_ND), samples.targets_NC)
        weights_RDC, bias_RC = self._train(inputs, torch.Generator().manual_seed(seed))
        heads = {rate: _affine(scale, w, b) for rate, w, b in zip(self.rates, weights_RDC, bias_RC, strict=True)}
        return _best(heads, held_out, score)

    def _train(self, samples: Samples, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Weights ``(R, D, C)`` and biases ``(R, C)``: all heads start alike and see the same batches."""
        x_ND, targets_NC = samples.features_ND, samples.targets_NC
        first_DC = INITIAL_STD * torch.randn(x_ND.shape[1], targets_NC.shape[1], generator=generator)
        weights = [first_DC.to(x_ND).clone().requires_grad_() for _ in self.rates]
        biases = [x_ND.new_zeros(targets_NC.shape[1], requires_grad=True) for _ in self.rates]
        groups = [
            dict(params=[weight, bias], lr=rate * self.batch / RATE_BATCH)
            for weight, bias, rate in zip(weights, biases, self.rates, strict=True)
        ]
        optimizer = torch.optim.SGD(groups, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.iterations)
        order = torch.empty(0, dtype=torch.long)
        for _ in range(self.iterations):
            if len(order) < min(self.batch, len(samples)):
                order = torch.randperm(len(samples), generator=generator)
            chosen, order = order[: self.batch].to(x_ND.device), order[self.batch :]
            logits_RNC = torch.stack(biases)[:, None] + x_ND[chosen] @ torch.stack(weights)
            loss = -(targets_NC[chosen] * logits_RNC.log_softmax(-1)).sum() / len(chosen)
            optimizer.zero_grad()
            loss.backward()  # of the sum: no head has a gradient from another one
            optimizer.step()
            schedule.step()
        return torch.stack(weights).detach(), torch.stack(biases).detach()


@dataclass(frozen=True)
class Scale:
    """Standardises features by the mean and the standard deviation of the samples that a probe learns from.

    Attributes:
        mean_D: Their mean.
        factor_D: One over their standard deviation; 0 for a feature that is constant.
    """

    mean_D: Tensor
    factor_D: Tensor

    @classmethod
    def of(cls, features_ND: Tensor) -> 'Scale':
        std_D, mean_D = torch.std_mean(features_ND, dim=0, correction=0)
        tiny = torch.finfo(features_ND.dtype).eps * (1 + mean_D.abs())
        return cls(mean_D, torch.where(std_D > tiny, 1 / std_D, 0.0))

    def __call__(self, features_ND: Tensor) -> Tensor:
        return (features_ND - self.mean_D) * self.factor_D


def _affine(scale: Scale, weight_DC: Tensor, bias_C: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda features_ND: torch.addmm(bias_C, scale(features_ND), weight_DC)


def _best(heads: Mapping[float, Callable[[Tensor], Tensor]], held_out: Samples, score: Score) -> Head:
    """The head with the best score on held-out samples; of equal ones the first."""
    scores = {setting: score(head(held_out.features_ND), held_out.targets_NC) for setting, head in heads.items()}
    chosen = max(scores, key=scores.__getitem__)
    return Head(heads[chosen], float(chosen), scores[chosen])
