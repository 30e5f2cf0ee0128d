"""The command lines of `tools/train.py` and `tools/test.py`, and the configs that they give."""

import argparse
import os
from pathlib import Path

from mmengine.config import Config

from vitplug.config.options import add_allow_changes, add_options, config_parser
from vitplug.config.parts import as_list
from vitplug.config.reading import read_config
from vitplug.config.text import config_text
from vitplug.files.atomic import write_beside
from vitplug.files.named import check_pictures_folder, check_results_file
from vitplug.tasks import TASKS, check_scope

from .augmented_test import augment_test
from .checks.settings import count_accumulated, split_batch
from .saving.folders import AUTO

SPLITS = ('train', 'val', 'test')


def train_parser() -> argparse.ArgumentParser:
    """The command line of `tools/train.py`."""
    parser = _parser('train', 'Train a model; the config decides the task.')
    parser.add_argument(
        '--amp',
        nargs='?',
        const='float16',
        choices=['float16', 'bfloat16'],
        help='train in automatic mixed precision (default float16, with a dynamic scale of the loss)',
    )
    parser.add_argument(
        '--resume',
        nargs='?',
        const=AUTO,
        metavar='PATH',
        help='go on from this checkpoint; without PATH, from the latest one in the work dir, or start if there is none',
    )
    parser.add_argument(
        '--auto-scale-lr', action='store_true', help='scale the learning rate to the number of processes'
    )
    parser.add_argument(
        '--auto-scale-batch',
        action='store_true',
        help='divide the batch that the learning rate is for among the processes',
    )
    return parser


def test_parser() -> argparse.ArgumentParser:
    """The command line of `tools/test.py`."""
    parser = _parser('test', 'Evaluate a checkpoint; the config decides the task.')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--out', metavar='PKL', help='write the predictions to this .pkl file')
    parser.add_argument(
        '--tta',
        action='store_true',
        help='predict each image several times, as tta_pipeline says (default: once as it is, once flipped), and merge',
    )
    add_exported(parser)
    parser.add_argument('--show', action='store_true', help='show each prediction in a window')
    parser.add_argument('--show-dir', metavar='DIR', help='write pictures of the predictions into this folder')
    parser.add_argument('--wait-time', type=float, default=2, help='seconds per window of --show (default 2)')
    return parser


def add_exported(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--exported`."""
    help = 'file of tools/export.py of this checkpoint: run it in place of PyTorch'
    parser.add_argument('--exported', metavar='FILE', help=help)


def _parser(command: str, description: str) -> argparse.ArgumentParser:
    parser = config_parser(command, description)
    parser.add_argument('--work-dir', help='folder for logs and checkpoints (default work_dirs/<name of the config>)')
    add_options(parser)
    parser.add_argument(
        '--unsafe-unpickle',
        action='store_true',
        help='let checkpoints run code of their own; only if you trust them',
    )
    add_allow_changes(parser)
    parser.add_argument(
        '--launcher',
        choices=['none', 'pytorch', 'slurm', 'mpi'],
        default='none',
        help='what starts several processes (default none)',
    )
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help='set by some launchers')
    return parser


def train_config(args: argparse.Namespace) -> Config:
    """The config of a training.

    Raises:
        FileNotFoundError: if the config file does not exist.
        ValueError: if an option does not fit the config.
    """
    cfg = _base_config(args)
    if args.amp:
        cfg.optim_wrapper.type = 'AmpOptimWrapper'
        cfg.optim_wrapper.dtype = args.amp
        # bfloat16 has the range of float32, so that its gradients need no scale.
        cfg.optim_wrapper.setdefault('loss_scale', 'dynamic' if args.amp == 'float16' else 1.0)
    if args.auto_scale_lr:
        if 'base_batch_size' not in cfg.get('auto_scale_lr', {}):
            raise ValueError('--auto-scale-lr needs auto_scale_lr.base_batch_size in the config')
        cfg.auto_scale_lr.enable = True
        count_accumulated(cfg)
    if args.auto_scale_batch:
        split_batch(cfg)
    if args.resume == AUTO:
        cfg.resume = AUTO
    elif args.resume:
        cfg.resume, cfg.load_from = True, args.resume
    return cfg


def test_config(args: argparse.Namespace) -> Config:
    """The config of a test.

    Raises:
        FileNotFoundError: if the config file does not exist.
        ValueError: if an option does not fit the config.
    """
    check_results_file(args.out)
    check_pictures_folder(args.show_dir)
    cfg = _base_config(args)
    check_scope(cfg)
    cfg.load_from = args.checkpoint
    if args.tta:
        augment_test(cfg)
    if args.out:
        dump = dict(type=TASKS[cfg.default_scope].result_dump, out_file_path=args.out)
        cfg.test_evaluator = [*as_list(cfg.test_evaluator), dump]
    if args.show or args.show_dir:
        if 'visualization' not in cfg.default_hooks:
            raise ValueError('--show and --show-dir need default_hooks.visualization in the config')
        folder = os.path.abspath(args.show_dir) if args.show_dir else None
        TASKS[cfg.default_scope].show_predictions(cfg, dict(show=args.show, wait_time=args.wait_time), folder)
    return cfg


def _base_config(args: argparse.Namespace) -> Config:
    # Launchers that pass the local rank as an option leave the variable unset, and mmengine reads the variable.
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = RunConfig.of(read_config(args.config, args.cfg_options))
    fit_workers(cfg)
    cfg.launcher = args.launcher
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or os.path.join('work_dirs', Path(args.config).stem)
    return cfg


def fit_workers(cfg: Config) -> None:
    """Drops what torch refuses of loaders without workers, such as ``num_workers=0`` on the command line."""
    for split in SPLITS:
        loader = cfg.get(f'{split}_dataloader') or {}
        if loader.get('num_workers') == 0:
            for setting in ('persistent_workers', 'prefetch_factor'):
                loader.pop(setting, None)


class RunConfig(Config):
    """A config whose dumps overwrite no file: a work dir may be the folder of the config itself."""

    @classmethod
    def of(cls, cfg: Config) -> 'RunConfig':
        """The same config."""
        copied = cls.__new__(cls)
        copied.__dict__.update(cfg.__dict__)
        return copied

    @property
    def pretty_text(self) -> str:
        """The config as Python; mmengine's own escapes no key, and lets names be templates."""
        return config_text(self._cfg_dict)

    def dump(self, file: str | Path | None = None) -> str | None:
        """Writes the config, under another name where a file with another text exists."""
        if file is None:
            return super().dump()
        write_beside(Path(file), self.pretty_text if str(file).endswith('.py') else super().dump())
        return None
