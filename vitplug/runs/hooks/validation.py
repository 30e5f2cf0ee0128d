"""A batch of the validation before a training, and the loss of a classifier over its validation images."""

from collections.abc import Callable, Mapping, Sequence

import torch
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.runner.base_loop import BaseLoop
from torch import Tensor, nn

from vitplug.registry import HOOKS

from ..sharding import reshard

NAME = 'loss/cross_entropy'
# How far the scores of an image may be from a sum of 1.
TOLERANCE = 1e-3


@HOOKS.register_module()
class DryValidationHook(Hook):
    """Predicts one batch of validation images before the first step, which would else fail after hours.

    Its images lie far apart in the data. `tools/train.py` adds this hook to every config.

    Raises:
        ValueError: If images of several shapes make no batch, and one of them does; other errors as they are.
    """

    priority = 'LOW'  # behind what prepares models and loaders

    def before_train(self, runner) -> None:
        """Predicts the batch, unless the training goes on."""
        if runner.val_loop is None or runner.iter > 0:
            return
        loader = runner.val_loop.dataloader
        number, images = getattr(loader.batch_sampler, 'batch_size', 1), len(loader.dataset)
        chosen = range(0, images, max(1, images // number))[:number]
        samples = [loader.dataset[index] for index in chosen]
        try:
            _predict(runner.model, loader.collate_fn, samples)
        except (RuntimeError, ValueError, AssertionError, TypeError) as error:
            if len({getattr(sample['inputs'], 'shape', None) for sample in samples}) < 2:
                raise
            _predict(runner.model, loader.collate_fn, samples[:1])  # what fails for one is not a matter of sizes
            raise ValueError(
                f'val_dataloader.batch_size = {number}: a batch of images of several sizes fails in the validation '
                f'({type(error).__name__}: {" ".join(str(error).split())[:300]}): set it to 1'
            ) from error


def _predict(model: nn.Module, collate: Callable, samples: Sequence[Mapping]) -> None:
    model.eval()
    with torch.no_grad():
        model.val_step(collate(samples))
    reshard(model)


@HOOKS.register_module()
class ValidationLossHook(Hook):
    """Adds the metric ``loss/cross_entropy`` to the validation and the test of a classifier.

    It is the mean over the images of ``-log p`` of the true class, ``p`` being the score that the model predicts, as in
    *Scratching Visual Transformer's Back with Uniform Attention*, Fig. 9. Scores that are no probabilities of one class
    have none. `tools/train.py` and `tools/test.py` add this hook to every config.

    In the log, numbers of a validation are those of this validation alone. mmengine shows the mean of the last ones
    for every metric that has "loss" in its name.
    """

    def before_run(self, runner) -> None:
        """Adds it, last, for the first metric is the one that chooses the best checkpoint."""
        for loop in (runner._val_loop, runner._test_loop):
            if isinstance(loop, BaseLoop) and runner.cfg.get('default_scope') == 'mmpretrain':
                metrics = loop.evaluator.metrics
                if not any(isinstance(metric, CrossEntropy) for metric in metrics):  # by the training before a test
                    metrics.append(CrossEntropy())

    def before_val(self, runner) -> None:
        """Forgets the numbers of earlier validations, over which mmengine would average."""
        for name in [name for name in runner.message_hub.log_scalars if name.startswith('val/')]:
            del runner.message_hub.log_scalars[name]


class CrossEntropy(BaseMetric):
    """Mean cross entropy of predicted probabilities of one class; no number where there are none."""

    default_prefix, name = NAME.split('/')

    def process(self, data_batch: Mapping | None, data_samples: Sequence[Mapping]) -> None:
        """Takes what the model predicts of a batch."""
        self.results += [_cross_entropy(sample.get('pred_score'), sample.get('gt_label')) for sample in data_samples]

    def compute_metrics(self, results: list) -> dict[str, float]:
        """The mean over the images."""
        if not results or None in results:
            return {}
        return {self.name: float(torch.tensor(results, dtype=torch.float64).mean())}


def _cross_entropy(scores: Tensor | None, label: Tensor | None) -> float | None:
    """That of one image; None where it has no probabilities of one class."""
    if scores is None or scores.ndim != 1 or label is None or label.numel() != 1:
        return None
    scores = scores.double()
    if scores.min() < 0 or abs(scores.sum() - 1) > TOLERANCE:
        return None
    return -scores[label.item()].clamp(min=torch.finfo(torch.float32).tiny).log().item()
