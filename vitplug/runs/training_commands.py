"""The commands behind `tools/train.py` and `tools/test.py`.

A training is mmengine's: `Runner.from_cfg(cfg).train()`. Before it, the config and its data are checked and the
checkpoint to go on from is named. What vitplug adds while it runs are the hooks of the config (`default_hooks`) and
those of :func:`build_runner`.
"""

from collections.abc import Sequence

from mmengine.config import Config
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import distributed

from vitplug.checkpoints.through_mmengine import refuse_pickled_code

from .checkpoint_fit import CheckpointFitHook
from .checks import check_run
from .checks.settings import is_sharded_run
from .hooks import CompileHook, DryValidationHook, ValidationLossHook
from .hooks.checkpoint import choose_start
from .launch import start_processes
from .options import test_config, test_parser, train_config, train_parser


def train(argv: Sequence[str] | None = None) -> None:
    """Trains the model of a config."""
    args = train_parser().parse_args(argv)
    cfg = train_config(args)
    choose_start(cfg)
    refuse_pickled_code()
    runner = build_runner(cfg, check_run(cfg))
    runner.train()
    leave_process_group()


def test(argv: Sequence[str] | None = None) -> None:
    """Evaluates a checkpoint."""
    args = test_parser().parse_args(argv)
    cfg = test_config(args)
    refuse_pickled_code()
    runner = build_runner(cfg, check_run(cfg, ('test',)))
    runner.test()
    leave_process_group()


def build_runner(cfg: Config, remarks: Sequence[str] = ()) -> Runner:
    """Builds mmengine's runner, for its strategy or named by `runner_type`, with the hooks that every run has.

    Args:
        cfg: The config.
        remarks: Lines for the log.
    """
    start_processes(cfg)
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else runner_class(cfg).from_cfg(cfg)
    counts = (cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1)
    scaling = getattr(runner, 'auto_scale_lr', None) or {}
    if 'base_batch_size' in scaling:  # mmengine's scaling knows nothing of accumulated batches
        runner.auto_scale_lr = {**scaling, 'base_batch_size': scaling['base_batch_size'] / counts}
    for kind in (CheckpointFitHook, CompileHook, DryValidationHook, ValidationLossHook):
        if not any(isinstance(hook, kind) for hook in runner.hooks):
            runner.register_hook(kind())
    for remark in remarks:
        runner.logger.warning(remark)
    return runner


def runner_class(cfg: Config) -> type[Runner]:
    """mmengine's runner, or the one that shards the model as `strategy` says."""
    if not is_sharded_run(cfg):
        return Runner
    from .sharded_runner import ShardedRunner  # needs a later torch than the oldest supported one

    return ShardedRunner


def leave_process_group() -> None:
    """Lets all processes end together: gloo aborts one whose peer is gone before it."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()
