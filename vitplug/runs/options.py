"""The command lines of `tools/train.py` and `tools/test.py`, and the configs that they give."""

import argparse
import os
from pathlib import Path

from mmengine.config import Config, ConfigDict

from vitplug.config.options import add_exported, add_options, config_parser, exported_hook
from vitplug.config.parts import as_list, loader_leaves, model_settings
from vitplug.config.reading import read_config
from vitplug.files.named import check_new_file
from vitplug.tasks.libraries import TASKS, check_scope

from .hooks.checkpoint import AUTO


def train_parser() -> argparse.ArgumentParser:
    """The command line of `tools/train.py`."""
    parser = _parser('train', 'Train a model; the config decides the task.')
    help, kinds = 'train in automatic mixed precision (default float16, with a dynamic scale)', ['float16', 'bfloat16']
    parser.add_argument('--amp', nargs='?', const='float16', choices=kinds, help=help)
    help = 'go on from this checkpoint; without PATH, from the latest one in the work dir, or start if there is none'
    parser.add_argument('--resume', nargs='?', const=AUTO, metavar='PATH', help=help)
    help = 'scale the learning rate to the batch of all processes and accumulated steps'
    parser.add_argument('--auto-scale-lr', action='store_true', help=help)
    return parser


def test_parser() -> argparse.ArgumentParser:
    """The command line of `tools/test.py`."""
    parser = _parser('test', 'Evaluate a checkpoint; the config decides the task.')
    parser.add_argument('checkpoint', help='checkpoint file')
    add_exported(parser)
    parser.add_argument('--out', metavar='PKL', help='write the predictions to this .pkl file')
    help = "predict each image in the views of the config's tta_pipeline, and merge them as its tta_model says"
    parser.add_argument('--tta', action='store_true', help=help)
    parser.add_argument('--show', action='store_true', help='show each prediction in a window')
    parser.add_argument('--show-dir', metavar='DIR', help='write pictures of the predictions here, in the work dir')
    parser.add_argument('--wait-time', type=float, default=2, help='seconds per window of --show (default 2)')
    return parser


def _parser(command: str, description: str) -> argparse.ArgumentParser:
    parser = config_parser(command, description)
    parser.add_argument('--work-dir', help="folder of what it writes (default: the config's, or work_dirs/<its name>)")
    add_options(parser)
    kinds = ['none', 'pytorch', 'slurm', 'mpi']
    parser.add_argument('--launcher', choices=kinds, default='none', help='starts several processes (default none)')
    return parser


def train_config(args: argparse.Namespace) -> Config:
    """The config of a training; raises ValueError if an option does not fit it."""
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
    if args.resume == AUTO:
        cfg.resume = AUTO
    elif args.resume:
        cfg.resume, cfg.load_from = True, args.resume
    return cfg


def test_config(args: argparse.Namespace) -> Config:
    """The config of a test; raises ValueError if an option does not fit it."""
    cfg = _base_config(args)
    check_scope(cfg)
    cfg.load_from, cfg.resume = args.checkpoint, False
    task = TASKS[cfg.default_scope]
    if args.exported:
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or ()), exported_hook(args.exported)]
    if args.tta:
        _augment(cfg)
    if args.out:
        check_new_file(args.out, '--out', ('.pkl', '.pickle'))
        dump = dict(type=task.result_dump, out_file_path=args.out)
        cfg.test_evaluator = [*as_list(cfg.test_evaluator), dump]
    if args.show or args.show_dir:
        if 'visualization' not in cfg.default_hooks:
            raise ValueError('--show and --show-dir need default_hooks.visualization in the config')
        drawing = {task.drawing: True, 'show': args.show, 'wait_time': args.wait_time, 'interval': 1}
        cfg.default_hooks.visualization.update(drawing)
        if args.show_dir:
            cfg.merge_from_dict({task.pictures: os.path.abspath(os.path.join(cfg.work_dir, args.show_dir))})
    return cfg


def _base_config(args: argparse.Namespace) -> Config:
    cfg = read_config(args.config, args.cfg_options)
    if 'model' not in cfg:
        raise ValueError(f'{args.config}: the config has no `model`; name the config of a whole training')
    cfg.launcher = args.launcher
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or os.path.join('work_dirs', Path(args.config).stem)
    if Path(cfg.work_dir).resolve() == Path(cfg.filename).resolve().parent:
        # mmengine writes the merged config into the work dir under the name of its file, and would overwrite that.
        object.__setattr__(cfg, '_filename', f'{Path(cfg.filename).with_suffix("")}_merged.py')
    return cfg


def _augment(cfg: Config) -> None:
    """Makes a test predict the views of `tta_pipeline`, and merge them by `tta_model`."""
    for key in ('tta_pipeline', 'tta_model'):
        if key not in cfg:
            raise ValueError(f'--tta needs {key} in the config: see docs/inference.md#test-time-augmentation')
    for _, dataset in loader_leaves(cfg, 'test'):
        dataset.pipeline = cfg.tta_pipeline
    # A preprocessor given to the merger would win over the model's own.
    cfg.model = ConfigDict({'data_preprocessor': None, **cfg.tta_model, 'module': model_settings(cfg)})
