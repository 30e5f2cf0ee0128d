"""Records the validations of a cell while it is trained, and its result at the end."""

import json
import math
import resource
import sys
import time
from pathlib import Path

import torch
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop

from vitplug.files.atomic import AtomicBackend
from vitplug.files.fingerprint import of_file, of_names
from vitplug.registry import HOOKS
from vitplug.runs.saving.checkpoint_checks import bare_model

from .records import DONE, FAILED, VALIDATIONS

SECONDS, CODE = 'cell_seconds', 'cell_code'


@HOOKS.register_module()
class CellRecorder(Hook):
    """Writes `validations.jsonl` after each validation, and `done.json` after the training.

    Both are written as a whole or not at all. A training that goes on from a checkpoint forgets the validations behind
    it, which it repeats, and goes on counting the seconds that the checkpoint holds: work that was lost is not counted.

    Args:
        metric: The metric by which the grid compares.
        greater_is_better: False for a loss.

    Raises:
        ValueError: At the first validation, if it does not give the metric.
    """

    # Late, but before InterruptionHook: that runs a validation that was cut off before a resumed training begins, and
    # ends a training behind a validation.
    priority = 'VERY_LOW'

    def __init__(self, metric: str, greater_is_better: bool = True):
        self.metric, self.greater_is_better = metric, greater_is_better
        self.files = AtomicBackend()
        self.records: dict[int, dict] = {}

    def before_train(self, runner) -> None:
        """Takes up the records up to where the training stands."""
        self.by = 'iter' if isinstance(runner.train_loop, IterBasedTrainLoop) else 'epoch'
        self.folder = Path(runner.work_dir)
        info = runner.message_hub.runtime_info
        self.spent, self.begin = float(info.get(SECONDS, 0.0)), time.monotonic()
        self.code = list(dict.fromkeys([*info.get(CODE, ()), code_of_vitplug()]))
        path, position = self.folder / VALIDATIONS, self._position(runner)
        lines = path.read_text(encoding='utf-8').splitlines() if path.is_file() else []
        self.records = {one['step']: one for one in map(json.loads, lines) if one['step'] <= position}

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Puts the seconds and the code into the checkpoint."""
        checkpoint['message_hub']['runtime_info'] |= {SECONDS: self.seconds, CODE: self.code}

    def after_val_epoch(self, runner, metrics=None) -> None:
        """Records a validation."""
        if self.metric not in (metrics or {}):
            raise ValueError(
                f'the validation gives no {self.metric!r}; it gives {", ".join(metrics or ()) or "nothing"}'
            )
        step = self._position(runner)
        self.records[step] = dict(step=step, by=self.by, metrics={k: _number(value) for k, value in metrics.items()})
        if is_main_process():
            lines = (json.dumps(self.records[step]) + '\n' for step in sorted(self.records))
            self.files.put_text(''.join(lines), self.folder / VALIDATIONS)

    def after_run(self, runner) -> None:
        """Writes the result."""
        if not is_main_process():
            return
        values = [self.records[step]['metrics'].get(self.metric) for step in sorted(self.records)]
        if not values:
            raise ValueError('the training ended without a validation')
        finite = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
        best = (max if self.greater_is_better else min)(finite, default=None)
        model = bare_model(runner.model)
        result = dict(
            metric=self.metric,
            value=values[-1],
            best=best,
            seconds=round(self.seconds, 3),
            memory_mib=round(peak_memory(), 1),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            iterations=runner.iter,
            checkpoints=written_checkpoints(runner),
            code=self.code,
            status='done',
        )
        self.files.put_text(json.dumps(result, indent=1) + '\n', self.folder / DONE)
        (self.folder / FAILED).unlink(missing_ok=True)

    @property
    def seconds(self) -> float:
        """Duration of the training so far."""
        return self.spent + time.monotonic() - self.begin

    def _position(self, runner) -> int:
        return runner.iter if self.by == 'iter' else runner.epoch


def written_checkpoints(runner) -> list[str]:
    """Names of the checkpoints in the folder of a training."""
    return sorted(path.name for path in Path(runner.work_dir).glob('*.pth') if path.is_file())


def code_of_vitplug() -> str:
    """Fingerprint of the modules of vitplug."""
    root = Path(__file__).resolve().parents[1]
    return of_names(f'{path.relative_to(root)} {of_file(path)}' for path in sorted(root.rglob('*.py')))


def peak_memory() -> float:
    """Peak memory of this process in MiB: of the accelerator if there is one, else resident."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == 'darwin' else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def _number(value: object) -> object:
    """A metric as JSON has it; text stays text."""
    return value.item() if hasattr(value, 'item') else value
