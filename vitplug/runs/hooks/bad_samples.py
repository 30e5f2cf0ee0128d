"""Keeps one broken file among many from ending a training."""

from pathlib import Path

from mmengine import dist
from mmengine.hooks import Hook
from mmengine.runner.base_loop import BaseLoop
from torch.nn.parallel import DistributedDataParallel

from vitplug.files.atomic import check_record_file
from vitplug.files.limits import MAX_PIXELS
from vitplug.registry import HOOKS

from ..data.bad_samples import RECORDS, BadSamples
from ..data.stream import (
    EachOnce,
    EndlessBatches,
    SkippingDataset,
    SkippingLoader,
    TolerantDataset,
    check_sources,
    rebuilt_loader,
    sum_over_processes,
)


@HOOKS.register_module()
class BadSampleHook(Hook):
    """Replaces training samples that cannot be used, leaves out such validation images, and counts both in the log.

    A sample cannot be used if its pipeline raises an error (a file is missing, empty or cut short), its label map has
    another size than its image, or a label is outside of the classes. Neither can one with an image of too many pixels,
    a file that is a pipe or a device, or a box, polygon or RLE far outside of its image (`vitplug.files.limits`); such
    are found before a C library sees them. `bad_samples.jsonl` in the work dir names each. What the ecosystem handles
    itself stays as it is: boxes without area and images without boxes (mmdet leaves them out), grey, transparent and
    16-bit images (loaded as three channels of 8 bit), EXIF rotation (applied). Labels that would be read as others, on
    pixels they were not drawn on or cut to 8 bits, end the run: see `vitplug.runs.data.label_files`.

    `tools/test.py` is always strict: a result over a part of the images is none. So is a validation where the processes
    share the model out (FSDP), for then all of them have to run the same number of batches.

    Args:
        strict: Whether the first bad sample ends the training.
        max_in_a_row: How many draws in a row may fail until the training ends.
        max_pixels: Largest image.
        interval: In how many iterations the processes of a distributed training add up their counts.

    Raises:
        ValueError: if `max_in_a_row`, `max_pixels` or `interval` is less than 1.
        FileExistsError: if the file of records is a link or no regular file.
        BadSample: in training; names the file.
    """

    def __init__(self, strict: bool = False, max_in_a_row: int = 20, max_pixels: int = MAX_PIXELS, interval: int = 10):
        for name, value in dict(max_in_a_row=max_in_a_row, max_pixels=max_pixels, interval=interval).items():
            if value < 1:
                raise ValueError(f'{name} = {value!r}: must be at least 1')
        self.settings = dict(strict=strict, max_in_a_row=max_in_a_row)
        self.max_pixels, self.interval = max_pixels, interval
        self.reported = {}

    def before_run(self, runner) -> None:
        """Wraps the data sets of a training or a test, before `vitplug.RandomnessHook` seeds their samples."""
        path = Path(runner.work_dir, RECORDS)
        check_record_file(path)
        self.training = BadSamples(path, 'train', **self.settings)
        self.validation = BadSamples(path, 'val', **self.settings)
        if isinstance(runner._test_loop, BaseLoop):
            self._wrap(runner._test_loop, SkippingDataset, BadSamples(path, 'test', strict=True))
        if not isinstance(runner._train_loop, BaseLoop):
            return
        self._wrap(runner._train_loop, TolerantDataset, self.training)
        if not isinstance(runner._val_loop, BaseLoop):
            return
        if not _runs_alone(runner.model):
            self._wrap(runner._val_loop, SkippingDataset, BadSamples(path, 'val', strict=True))
            return
        batches = runner._val_loop.dataloader.batch_sampler
        if hasattr(batches.sampler, 'rank'):
            batches.sampler = EachOnce(batches.sampler)
        self._wrap(runner._val_loop, SkippingDataset, self.validation, SkippingLoader)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Reports the 1st, 2nd, 4th, 8th ... replacement: often enough to be seen, too seldom to fill a log."""
        if dist.get_world_size() > 1 and not self.every_n_train_iters(runner, self.interval):
            return
        count, reported = sum_over_processes(self.training.count.value), self.reported.get('train', 0)
        if count >= max(1, 2 * reported):
            self.reported['train'] = count
            runner.logger.warning(f'{count} samples replaced so far that cannot be used: {self.training.path}')

    def after_val_epoch(self, runner, metrics=None) -> None:
        """Says over how many images the metrics are not."""
        count, reported = sum_over_processes(self.validation.count.value), self.reported.get('val', 0)
        self.reported['val'] = count
        if count > reported:
            runner.logger.warning(
                f'{count - reported} of {len(runner.val_dataloader.dataset)} validation images cannot be read; '
                f'the metrics above are those of the rest: {self.validation.path}'
            )

    def after_train(self, runner) -> None:
        """Reports the final count."""
        runner.logger.info(f'{sum_over_processes(self.training.count.value)} training samples were replaced')

    def _wrap(self, loop, dataset_type, bad_samples: BadSamples, kind=None) -> None:
        loader = loop.dataloader
        check_sources(loader.dataset, self.max_pixels)
        dataset = dataset_type(loader.dataset, bad_samples, loader.num_workers)
        loop.dataloader = rebuilt_loader(loader, dataset, loader.batch_sampler, kind)
        iterator = getattr(loop, 'dataloader_iterator', None)
        if isinstance(iterator, EndlessBatches):
            iterator.loader = loop.dataloader
        elif iterator is not None:
            loop.dataloader_iterator = type(iterator)(loop.dataloader)


def _runs_alone(model) -> bool:
    """Whether this process can evaluate without the others; it cannot with a part of the model."""
    return dist.get_world_size() == 1 or isinstance(model, DistributedDataParallel)
