"""Checkpoints of which the last complete and finite one is never lost."""

import inspect
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from mmengine.dist import all_reduce, is_main_process
from mmengine.hooks import CheckpointHook as MMEngineCheckpointHook
from torch.nn.parallel import DistributedDataParallel

from vitplug.errors.full_disks import free_space
from vitplug.errors.stops import CheckpointNotWritten
from vitplug.files.atomic import AtomicBackend, identity, remove_folder, remove_partial_files
from vitplug.files.named import is_sharded
from vitplug.registry import HOOKS
from vitplug.spelling import hint

from ..processes import any_process
from ..saving.checkpoint_checks import bare_model, check_checkpoint
from ..saving.data_note import NOTE, Note, note_data
from ..saving.folders import ANNOUNCED, checkpoint_folder, last_checkpoint
from .checkpoint_fit import CheckpointFitHook
from .non_finite import is_finite, local

if TYPE_CHECKING:
    from ..saving.shards import Unnamed

INTERRUPTED = 'interrupted.pth'
# Records of the numbers of the checkpoints that were written: regular ones, and the one of a doubtful state.
COUNTED = ('keep_ckpt_ids', 'doubtful_ckpt_ids')
BEST = 'best_ckpt'
# Record of the names of all files that were written.
WRITTEN = 'written_ckpts'


@HOOKS.register_module()
class CheckpointHook(MMEngineCheckpointHook):
    """mmengine's hook, made safe against a kill at any moment and a full disk.

    - A checkpoint and `last_checkpoint` are written beside their place and renamed once complete.
    - `last_checkpoint` is written after its checkpoint, and old checkpoints are removed last of all.
    - Only checkpoints in the hook's own folder are removed, whatever a checkpoint that is resumed says; no other folder
      than a sharded checkpoint.
    - A checkpoint of a state that is not finite, or follows an iteration without a finite loss, replaces no finite one:
      it goes when the next one is written, does not count for `max_keep_ckpts`, and `last_checkpoint` does not name it.
    - Gradients that wait for more in gradient accumulation are saved as well, their mean where processes have not
      exchanged them yet.
    - What the training data hold is noted in `meta`, so that `--resume` can tell whether it is still the same.
    - A checkpoint that does not fit the model is refused, where mmengine would leave weights at random.
    - The last one is written anew after its validation: `validated_iter` names it, and `--resume` has nothing to do.
    - `save_interrupted` saves between the regular checkpoints; the next regular one replaces that file.

    Args:
        *args, **kwargs: As mmengine's `CheckpointHook`. With `backend_args`, `file_client_args` or an `out_dir` that
            is an address, the writing is left to the backend they choose.

    Raises:
        CheckpointNotWritten: if a checkpoint cannot be written; names the last good one.
        CheckpointNotRead: if the one to be loaded does not fit the model or the training.
    """

    def __init__(self, *args, **kwargs):
        chosen = kwargs.get('backend_args') or kwargs.get('file_client_args')
        if not chosen and '://' not in str(kwargs.get('out_dir')):
            kwargs['backend_args'] = dict(backend='vitplug.atomic')
        super().__init__(*args, **kwargs)
        if self.args:  # mmengine hands them on to `save_checkpoint`, which takes none of them
            known = inspect.signature(MMEngineCheckpointHook.__init__).parameters
            unknown = next(iter(self.args))
            advice = hint(unknown, known) or f'; it takes {", ".join(list(known)[1:-1])}'
            raise ValueError(f'CheckpointHook has no argument {unknown!r}{advice}')
        self.saved_iter = None
        # The number and the place of the last regular checkpoint, and those of one whose state was validated after it.
        self.saved_as = self.without_validation = None
        self.gradients: dict[str, torch.Tensor] = {}
        self.keep_ckpt_ids: list[int] = []
        self.doubtful_ids: list[int] = []
        self.finite_ckpt: str | None = None
        self.written: list[str] = []
        self.training_data: Note = {}
        # A checkpoint that is written in the background, and what its name is followed by.
        self.unnamed: tuple[Unnamed, ExitStack] | None = None

    def before_train(self, runner) -> None:
        """Takes up where a killed training stopped: with the records of its checkpoints, less its broken files."""
        kept, doubtful = self._inherit(runner)
        super().before_train(runner)
        self.file_backend = RemovesLater(self.file_backend)
        if '://' not in self.out_dir:
            os.makedirs(self.out_dir, exist_ok=True)
        self.folders = {folder: identity(folder) for folder in (self.out_dir, runner.work_dir)}
        AtomicBackend.held = {os.path.abspath(folder): held for folder, held in self.folders.items() if held}
        self.keep_ckpt_ids, self.doubtful_ids = kept, doubtful
        runner.message_hub.update_info(WRITTEN, self.written)
        self._remove_later(map(self.filename_tmpl.format, self._surplus()))
        self.file_backend.remove_now()
        if is_main_process():
            self.training_data = note_data(runner.cfg, runner.logger)
            for path in remove_partial_files(self.out_dir):
                runner.logger.info(f'Removed {path}, which a killed training had not finished writing')

        for name, parameter in bare_model(runner.model).named_parameters():
            if name in self.gradients:
                parameter.grad = self.gradients[name].to(parameter)
        self.gradients = {}

    def _inherit(self, runner) -> tuple[list[int], list[int]]:
        """Takes over the records in the checkpoint that is resumed, of files that this training may remove.

        The resumed checkpoint and these files must lie where the new ones go to, so that a training that goes on in
        another work dir leaves the old one as it is.

        Returns:
            Numbers of the regular checkpoints, and of the checkpoints of a doubtful state.
        """
        info = runner.message_hub.runtime_info
        counted, best, written = (
            {name: info.pop(name) for name in list(info) if str(name).startswith(names)}
            for names in (COUNTED, BEST, WRITTEN)
        )
        source = _resumed_from(runner)
        # mmengine forgets it, and then keeps no record of a best checkpoint until the next regular one.
        self.last_ckpt = source
        self.finite_ckpt = source if source and is_finite(runner) else None
        folder = os.path.realpath(checkpoint_folder(self.out_dir, runner.work_dir))
        goes_on = source is not None and os.path.realpath(os.path.dirname(source)) == folder
        for name, path in best.items():
            if goes_on and self._is_best_of(folder, path):
                runner.message_hub.update_info(name, path)
            else:
                runner.logger.warning(f'{source}: {name} = {path!r:.200} is not of this training and is left as it is')
        self.written = _names(written.get(WRITTEN)) if goes_on else []
        return tuple(_numbers(counted.get(name)) if goes_on else [] for name in COUNTED)

    def _is_best_of(self, folder: str, path: object) -> bool:
        """Whether a record names a best checkpoint in a folder."""
        if not isinstance(path, str):
            return False
        parent, name = os.path.split(path)
        suffix = os.path.splitext(self.filename_tmpl)[1]
        return os.path.realpath(parent) == folder and name.startswith('best_') and name.endswith(suffix)

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Adds a note of the training data, and the gradients summed up so far; none after an optimizer's step."""
        checkpoint['meta'][NOTE] = self.training_data
        if 'optimizer' in checkpoint:
            checkpoint['gradients'] = self.gradients

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        """Refuses a checkpoint of another model, and takes the summed gradients of a training that is resumed."""
        if not any(isinstance(hook, CheckpointFitHook) for hook in runner.hooks):
            check_checkpoint(runner, checkpoint)
        if runner._resume:
            gradients = checkpoint.get('gradients', {})
            self.gradients = {name.removeprefix('module.'): value for name, value in gradients.items()}

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Names a checkpoint that is written in the background once it is whole, and saves by iterations."""
        if self.unnamed is not None and self.unnamed[0].is_written():
            self._name()
        super().after_train_iter(runner, batch_idx, data_batch, outputs)

    def after_val_epoch(self, runner, metrics) -> None:
        """Notes that the state was validated, then keeps it if it is the best."""
        runner.message_hub.update_info('validated_iter', runner.iter)
        super().after_val_epoch(runner, metrics)
        self.without_validation = self.saved_as if self.saved_iter == runner.iter else None

    def after_train(self, runner) -> None:
        """Writes the last checkpoint anew if its state was validated after it was written, so that it names that.

        During a training, a checkpoint comes before its validation, which may be long; `--resume` validates again.
        """
        self._name()
        if self.without_validation:
            try:
                self._save_checkpoint_with_step(runner, *self.without_validation)
                self._name()
            except CheckpointNotWritten as error:  # the one from before the validation is whole
                runner.logger.warning(f'{error}. The training is complete; --resume would validate once more')
        super().after_train(runner)

    def save_interrupted(self, runner, meta: dict) -> None:
        """Saves a checkpoint that stands until the next regular one.

        Args:
            runner: The runner of the training.
            meta: Its `epoch` and `iter`, the numbers of finished ones.
        """
        self._name()
        self._write(runner, INTERRUPTED, meta, is_finite(runner))
        self._name()

    def _save_checkpoint_with_step(self, runner, step, meta) -> None:
        self._name()
        finite = is_finite(runner)
        expired = self._count(step, finite)
        # The checkpoint still counts those that are removed after it: a training killed in between removes them when
        # it resumes.
        self._note_counted(runner, expired)
        self._remove_later(map(self.filename_tmpl.format, expired))
        if finite:
            self._remove_later([INTERRUPTED])
        self._write(runner, self.filename_tmpl.format(step), meta, finite)
        self._note_counted(runner)
        self.saved_as = (step, meta)

    def _count(self, step: int, finite: bool) -> list[int]:
        """Counts a checkpoint, and returns the numbers of those that it replaces."""
        if self.max_keep_ckpts <= 0 or step in (*self.keep_ckpt_ids, *self.doubtful_ids):
            return []
        expired, self.doubtful_ids = self.doubtful_ids, [] if finite else [step]
        self.keep_ckpt_ids += [step] if finite else []
        return [*expired, *self._surplus()]

    def _surplus(self) -> list[int]:
        """Forgets the oldest regular checkpoints where there are more than `max_keep_ckpts`, and returns them."""
        surplus = self.keep_ckpt_ids[: -self.max_keep_ckpts] if self.max_keep_ckpts > 0 else []
        self.keep_ckpt_ids = self.keep_ckpt_ids[len(surplus) :]
        return surplus

    def _note_counted(self, runner, expired: Sequence[int] = ()) -> None:
        for name, numbers in zip(COUNTED, ([*expired, *self.keep_ckpt_ids], [*self.doubtful_ids]), strict=True):
            runner.message_hub.update_info(name, numbers)

    def _save_best_checkpoint(self, runner, metrics) -> None:
        self._name()
        with self._explained():
            self._check_folders()
            super()._save_best_checkpoint(runner, metrics)
            self.file_backend.remove_now()
        best = (path for name, path in runner.message_hub.runtime_info.items() if str(name).startswith(BEST))
        self._note_written(runner, *(os.path.basename(path) for path in best if isinstance(path, str)))

    def _remove_later(self, filenames: Iterable[str]) -> None:
        for filename in filenames:
            path = self.file_backend.join_path(self.out_dir, filename)
            if is_main_process() and (is_sharded(path) or self.file_backend.isfile(path)):
                self.file_backend.remove(path)

    def _write(self, runner, filename: str, meta: dict, finite: bool) -> None:
        path = self.file_backend.join_path(self.out_dir, filename)
        runner.message_hub.update_info('last_ckpt', path)
        self._note_written(runner, filename)
        self.gradients = waiting_gradients(runner.model)
        # That of a sharded training may go on in the background.
        start = getattr(runner, 'start_checkpoint', runner.save_checkpoint)
        with self._explained(), ExitStack() as noted:
            noted.enter_context(self._noted(runner, path, finite))
            unnamed = start(
                self.out_dir,
                filename,
                self.file_client_args,
                save_optimizer=self.save_optimizer,
                save_param_scheduler=self.save_param_scheduler,
                meta=meta,
                by_epoch=self.by_epoch,
                backend_args=self.backend_args,
                **self.args,
            )
            if unnamed is not None:
                self.unnamed = unnamed, noted.pop_all()
                if unnamed.written is None:
                    self._name()
        self.gradients = {}
        self.saved_iter = meta['iter']

    def _name(self) -> None:
        """Waits for the checkpoint that is written in the background, if there is one, and names and notes it."""
        if self.unnamed is None:
            return
        (unnamed, noted), self.unnamed = self.unnamed, None
        with self._explained(), noted:
            unnamed.name()

    def _note_written(self, runner, *names: str) -> None:
        self.written += [name for name in names if name not in self.written]
        runner.message_hub.update_info(WRITTEN, self.written)

    @contextmanager
    def _noted(self, runner, path: str, finite: bool) -> Iterator[None]:
        """Announces the first checkpoint before it is written, and notes the last one after."""
        self._check_folders()
        named = path if finite else self.finite_ckpt or path
        note, announced = (os.path.join(runner.work_dir, name) for name in ('last_checkpoint', ANNOUNCED))
        if is_main_process() and not os.path.exists(note):
            AtomicBackend().put_text(path, announced)
        yield
        if is_main_process():
            AtomicBackend().put_text(named, note)
            Path(announced).unlink(missing_ok=True)
            self.file_backend.remove_now()
        self.last_ckpt = named
        self.finite_ckpt = path if finite else self.finite_ckpt

    def _check_folders(self) -> None:
        for folder, before in self.folders.items():
            if before != identity(folder):
                raise FileNotFoundError(f'{folder} was removed or replaced while the training ran')

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            good = f'the last good one is {self.last_ckpt}' if self.last_ckpt else 'this run has written none yet'
            reason = f'{error.strerror or error} ({free_space(self.out_dir)})'
            raise CheckpointNotWritten(
                f'cannot write a checkpoint into {self.out_dir}: {reason}; {good}: '
                'make room or make the folder writable, then go on with --resume'
            ) from error


class RemovesLater:
    """A file backend whose removals wait until the new checkpoints are complete."""

    def __init__(self, backend):
        self._backend = backend
        self._waiting: list[str] = []

    def __getattr__(self, name: str):
        return getattr(self._backend, name)

    def remove(self, path: str) -> None:
        """Notes a file to be removed."""
        self._waiting.append(path)

    def rmtree(self, path: str) -> None:
        """Notes a sharded checkpoint to be removed, and leaves another folder as it is."""
        if is_sharded(path):
            self._waiting.append(path)

    def remove_now(self) -> None:
        """Removes all noted files and folders."""
        while self._waiting:
            path = self._waiting.pop()
            if is_sharded(path):
                remove_folder(Path(path))
            else:
                self._backend.remove(path)


def waiting_gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Gradients by parameter that an optimizer's step has not used yet; every process has to ask.

    DistributedDataParallel exchanges them in the last iteration before a step; until then each process has its own, and
    their mean leads to the same step.
    """
    parameters = {name: p for name, p in bare_model(model).named_parameters() if p.requires_grad}
    if isinstance(model, DistributedDataParallel) and any_process(any(p.grad is not None for p in parameters.values())):
        means = {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in parameters.items()}
        for mean in means.values():
            all_reduce(mean, 'mean')
        return {name: mean.cpu() for name, mean in means.items()}
    # Shards are gathered, or written, where they are.
    return {name: p.grad if local(p) is not p else p.grad.cpu() for name, p in parameters.items() if p.grad is not None}


def _resumed_from(runner) -> str | None:
    """The checkpoint that a training goes on from; None for a new one."""
    if not runner._resume:
        return None
    latest = runner._load_from or last_checkpoint(runner.work_dir)
    return latest and str(latest)


def _numbers(record: object) -> list[int]:
    """The numbers of checkpoints in a record, which may come from a file of anybody."""
    return [item for item in record if type(item) is int and item >= 0] if isinstance(record, list | tuple) else []


def _names(record: object) -> list[str]:
    """The names of checkpoints in a record, which may come from a file of anybody; no paths."""
    names = record if isinstance(record, list | tuple) else ()
    return [name for name in names if isinstance(name, str) and os.path.basename(name) == name]
