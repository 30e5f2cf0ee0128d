"""Keeps one broken file among many from ending a training."""

import logging

from mmengine.dataset import BaseDataset
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner.base_loop import BaseLoop

from vitplug.registry import HOOKS


@HOOKS.register_module()
class BadSampleHook(Hook):
    """Names an image or label map that cannot be read, and has mmengine draw another sample in its place.

    Validations and tests end at such a file, as mmengine has it: a metric over a part of the images is none.
    """

    def before_run(self, runner) -> None:
        """Wraps the loading steps of all data."""
        for loop in (runner._train_loop, runner._val_loop, runner._test_loop):
            if isinstance(loop, BaseLoop):
                wrap_loading(loop.dataloader.dataset)


def wrap_loading(dataset) -> None:
    """Wraps the loading steps of a data set, and of those inside of it, as :class:`TolerantLoad`."""
    inside = [*getattr(dataset, 'datasets', ())]
    if not isinstance(dataset, BaseDataset) and hasattr(dataset, 'dataset'):
        inside.append(dataset.dataset)
    for child in inside:
        wrap_loading(child)
    steps = [] if inside else getattr(getattr(dataset, 'pipeline', None), 'transforms', [])
    for number, step in enumerate(steps):
        if type(step).__name__.startswith('Load'):
            steps[number] = TolerantLoad(step)


class TolerantLoad:
    """A loading step of a pipeline that names a file that it cannot read, and gives None, as mmengine expects."""

    def __init__(self, step):
        self.step, self.named = step, set()

    def __call__(self, results: dict) -> dict | None:
        try:
            return self.step(results)
        except Exception as error:  # whatever decoders and parsers raise
            path = results.get('img_path', 'a sample without a path')
            if path not in self.named:  # once, not in every epoch
                self.named.add(path)
                reason = f'{type(error).__name__}: {" ".join(str(error).split())}'
                said = f'cannot use {path}: {reason}: in a training another sample takes its place'
                print_log(said, 'current', logging.WARNING)
            return None
