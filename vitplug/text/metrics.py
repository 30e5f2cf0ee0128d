"""The metrics of GLUE, in percent: of predictions and answers, both ``(n,)``, classes or numbers."""

import numpy as np
from scipy import stats


def accuracy(predicted: np.ndarray, expected: np.ndarray) -> float:
    """Share of right answers."""
    return 100 * float(np.mean(predicted == expected))


def f1(predicted: np.ndarray, expected: np.ndarray) -> float:
    """Harmonic mean of precision and recall of class 1; 0 without a true positive."""
    right = np.sum((predicted == 1) & (expected == 1))
    return 200 * float(right / max(np.sum(predicted == 1) + np.sum(expected == 1), 1))


def pearson(predicted: np.ndarray, expected: np.ndarray) -> float:
    """Pearson correlation, and Matthews correlation of classes 0 and 1; 0 if either is constant."""
    return 100 * float(stats.pearsonr(predicted, expected).statistic) if _vary(predicted, expected) else 0.0


def spearman(predicted: np.ndarray, expected: np.ndarray) -> float:
    """Spearman rank correlation; 0 if either is constant."""
    return 100 * float(stats.spearmanr(predicted, expected).statistic) if _vary(predicted, expected) else 0.0


def _vary(*values: np.ndarray) -> bool:
    return all(np.ptp(value) > 0 for value in values)


METRICS = dict(accuracy=accuracy, f1=f1, matthews=pearson, pearson=pearson, spearman=spearman)
