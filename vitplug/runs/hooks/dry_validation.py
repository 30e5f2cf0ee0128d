"""Runs a batch of the validation before a training, which would else meet it after hours."""

from collections.abc import Sequence

import torch
from mmengine.hooks import Hook

from vitplug.registry import HOOKS

from ..checks.accounts import loaded_size
from ..sharding import reshard
from .randomness import SeededDataset

LOOKED_AT = 100


@HOOKS.register_module()
class DryValidationHook(Hook):
    """Predicts one batch of validation images before the first step, of those whose shapes differ most.

    Its metrics are not counted. `tools/train.py` adds this hook to every config.

    Raises:
        ValueError: If the batch cannot be made or predicted, and one image can; other errors as they are.
    """

    priority = 'LOW'  # behind what prepares models and loaders

    def before_train(self, runner) -> None:
        """Predicts the batch, unless the training goes on."""
        if runner.val_loop is None or runner.iter > 0:
            return
        loader = runner.val_loop.dataloader
        dataset = loader.dataset.dataset if isinstance(loader.dataset, SeededDataset) else loader.dataset
        chosen = different(dataset, getattr(loader.batch_sampler, 'batch_sampler', loader.batch_sampler).batch_size)
        try:
            self._predict(runner, dataset, chosen)
        except (RuntimeError, ValueError, AssertionError, TypeError) as error:
            self._predict(runner, dataset, chosen[:1])  # what fails for one image is not a matter of sizes
            reason = f'{type(error).__name__}: {" ".join(str(error).split())[:300]}'
            raise ValueError(
                f'val_dataloader.batch_size = {len(chosen)}: a batch of images of several sizes fails in the '
                f'validation ({reason}): set it to 1'
            ) from error

    def _predict(self, runner, dataset, chosen: Sequence[int]) -> None:
        batch = runner.val_loop.dataloader.collate_fn([dataset[index] for index in chosen])
        runner.model.eval()
        with torch.no_grad():
            runner.model.val_step(batch)
        reshard(runner.model)


def different(dataset, number: int) -> list[int]:
    """Indices of some samples of a data set: the widest and the narrowest image of those looked at come first."""
    indices = range(0, len(dataset), max(1, len(dataset) // LOOKED_AT))
    if number < 2 or not hasattr(dataset, 'get_data_info'):
        return list(indices[:number])
    by_shape = sorted(indices, key=lambda index: _shape(dataset.get_data_info(index)))
    return list(dict.fromkeys([by_shape[0], by_shape[-1], *indices]))[:number]


def _shape(info: dict) -> float:
    """Width of a sample's image, as a share of its height, as its annotations or its file have it."""
    width, height = info.get('width'), info.get('height')
    if not (width and height):
        width, height = (info.get('img_path') and loaded_size(info['img_path'], ())) or (1, 1)
    return width / height
