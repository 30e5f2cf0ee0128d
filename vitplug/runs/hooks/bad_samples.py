"""Keeps one broken file among many from ending a training."""

import logging

import cv2
from mmengine.dataset import BaseDataset
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner.base_loop import BaseLoop

from vitplug.errors import TrainingStopped
from vitplug.registry import HOOKS

# So many in a row are no broken files among many: a disk is gone, or the paths are wrong.
MOST_IN_A_ROW = 20
# What decoders and mmcv's loading steps raise of a file; PIL says SyntaxError of the chunks of a PNG.
BROKEN = (OSError, ValueError, AssertionError, EOFError, SyntaxError, cv2.error)


@HOOKS.register_module()
class BadSampleHook(Hook):
    """Names a training image or label map that cannot be read, and has mmengine draw another sample in its place.

    Validations and tests end at such a file: a metric over a part of the images, or over others, is none.

    Raises:
        TrainingStopped: At such a file, in a training at the 20th in a row of one process or worker; names it.
    """

    def before_run(self, runner) -> None:
        """Wraps the loading steps of all data."""
        for loop, most in ((runner._train_loop, MOST_IN_A_ROW), (runner._val_loop, 1), (runner._test_loop, 1)):
            if isinstance(loop, BaseLoop):
                wrap_loading(loop.dataloader.dataset, most)


def wrap_loading(dataset, most: int) -> None:
    """Wraps the loading steps of a data set, and of those inside of it, as :class:`TolerantLoad`."""
    inside = [*getattr(dataset, 'datasets', ())]
    if not isinstance(dataset, BaseDataset) and hasattr(dataset, 'dataset'):
        inside.append(dataset.dataset)
    for child in inside:
        wrap_loading(child, most)
    steps = [] if inside else getattr(getattr(dataset, 'pipeline', None), 'transforms', [])
    for number, step in enumerate(steps):
        if type(step).__name__.startswith('Load'):
            steps[number] = TolerantLoad(step, most)


class TolerantLoad:
    """A loading step of a pipeline that names a file that it cannot read, and gives None, as mmengine expects.

    It raises `TrainingStopped` at the file that makes it ``most`` in a row.
    """

    def __init__(self, step, most: int):
        self.step, self.most, self.in_a_row, self.named = step, most, 0, set()

    def __call__(self, results: dict) -> dict | None:
        try:
            loaded = self.step(results)
        except BROKEN as error:
            self.in_a_row += 1
            path = results.get('img_path', 'a sample without a path')
            said = f'cannot use {path}: {type(error).__name__}: {" ".join(str(error).split())}'
            if self.in_a_row == self.most:
                raise TrainingStopped(f'{said} ({self.in_a_row} in a row): repair or remove it') from error
            if path not in self.named:  # once, not in every epoch
                self.named.add(path)
                # All processes show errors, and only the first one warnings.
                print_log(f'{said}: another sample takes its place', 'current', logging.ERROR)
            return None
        self.in_a_row = 0
        return loaded
