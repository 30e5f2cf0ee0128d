"""Keeps one broken file among many from ending a training."""

import logging

from mmengine.dataset import BaseDataset
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner.base_loop import BaseLoop

from vitplug.errors import TrainingStopped
from vitplug.registry import HOOKS


@HOOKS.register_module()
class BadSampleHook(Hook):
    """Names a training image or label map that cannot be read, and has mmengine draw another sample in its place.

    Validations and tests end at such a file: a metric over a part of the images is none.

    Args:
        max_in_a_row: After how many such files in a row, of one process or worker, the training ends.

    Raises:
        TrainingStopped: In training; names the last file.
    """

    def __init__(self, max_in_a_row: int = 20):
        self.max_in_a_row = max_in_a_row

    def before_run(self, runner) -> None:
        """Wraps the loading steps of all data."""
        for loop, most in ((runner._train_loop, self.max_in_a_row), (runner._val_loop, 1), (runner._test_loop, 1)):
            if isinstance(loop, BaseLoop):
                wrap_loading(loop.dataloader.dataset, most)


def wrap_loading(dataset, max_in_a_row: int) -> None:
    """Wraps the loading steps of a data set, and of those inside of it, as :class:`TolerantLoad`."""
    inside = [*getattr(dataset, 'datasets', ())]
    if not isinstance(dataset, BaseDataset) and hasattr(dataset, 'dataset'):
        inside.append(dataset.dataset)
    for child in inside:
        wrap_loading(child, max_in_a_row)
    steps = [] if inside else getattr(getattr(dataset, 'pipeline', None), 'transforms', [])
    for number, step in enumerate(steps):
        if type(step).__name__.startswith('Load'):
            steps[number] = TolerantLoad(step, max_in_a_row)


class TolerantLoad:
    """A loading step of a pipeline that gives None for a file that it cannot read; mmengine then draws another sample.

    At the last of `max_in_a_row` such files in a row it raises TrainingStopped.
    """

    def __init__(self, step, max_in_a_row: int):
        self.step, self.max_in_a_row, self.in_a_row, self.named = step, max_in_a_row, 0, set()

    def __call__(self, results: dict) -> dict | None:
        try:
            loaded = self.step(results)
        except Exception as error:  # whatever decoders and parsers raise
            self.in_a_row += 1
            reason = f'{type(error).__name__}: {" ".join(str(error).split())}'
            path = results.get('img_path', 'a sample without a path')
            said = f'cannot use {path}: {reason}'
            if self.in_a_row >= self.max_in_a_row:
                raise TrainingStopped(f'{said} ({self.in_a_row} in a row): repair or remove it') from error
            if path not in self.named:  # once, not in every epoch
                self.named.add(path)
                print_log(f'{said}; another sample takes its place', 'current', logging.WARNING)
            return None
        self.in_a_row = 0
        return loaded
