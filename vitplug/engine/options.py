"""From a command line to a complete mmengine config."""

import argparse
import errno
import os
import tempfile
from pathlib import Path

from mmengine.config import Config, DictAction

import vitplug.registry

from .atomic_files import write_beside
from .augmented_test import augment_test, is_augmented
from .checks import (
    check_config_file,
    check_depth,
    check_option_names,
    check_parts,
    check_pictures_folder,
    check_results_file,
    check_scope,
    check_temporary_folder,
    check_types,
)
from .config_parts import as_list
from .config_paths import config_file, packages_where_imported

CONFIG_HELP = 'config file, or the name of one in an installed package: mmpretrain::..., mmdet::..., mmseg::...'

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# The hooks that every runner of mmengine has, and leaves out where they are None.
MMENGINE_HOOKS = ('runtime_info', 'timer', 'sampler_seed', 'logger', 'param_scheduler', 'checkpoint')


class OptionsAction(DictAction):
    """`--cfg-options key=value ...`, with a usage error where mmengine's action shows a traceback."""

    def __call__(self, parser, namespace, values, option_string=None):
        try:
            super().__call__(parser, namespace, values, option_string)
        except (ValueError, RecursionError):  # the latter for a value such as dict(a=1,b=2)
            parser.error(f'{option_string} takes KEY=VALUE pairs of plain values, but got {" ".join(values)}')


def train_parser() -> argparse.ArgumentParser:
    """The command line of `tools/train.py`."""
    parser = _parser('Train a model; the config decides the task.')
    parser.add_argument('--amp', action='store_true', help='train in automatic mixed precision')
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        metavar='PATH',
        help='go on from this checkpoint; without PATH, or with "auto", from the latest one in the work dir',
    )
    parser.add_argument(
        '--auto-scale-lr', action='store_true', help='scale the learning rate to the number of processes'
    )
    return parser


def test_parser() -> argparse.ArgumentParser:
    """The command line of `tools/test.py`."""
    parser = _parser('Evaluate a checkpoint; the config decides the task.')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--out', metavar='PKL', help='write the predictions to this .pkl file')
    parser.add_argument(
        '--tta',
        action='store_true',
        help='predict each image several times, as tta_pipeline says (default: once as it is, once flipped), and merge',
    )
    parser.add_argument('--show', action='store_true', help='show each prediction in a window')
    parser.add_argument('--show-dir', metavar='DIR', help='write pictures of the predictions into this folder')
    parser.add_argument('--wait-time', type=float, default=2, help='seconds per window of --show (default 2)')
    return parser


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument('config', help=CONFIG_HELP)
    parser.add_argument('--work-dir', help='folder for logs and checkpoints (default work_dirs/<name of the config>)')
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=OptionsAction,
        metavar='KEY=VALUE',
        help='settings that win over the config',
    )
    parser.add_argument(
        '--unsafe-unpickle',
        action='store_true',
        help='let checkpoints and other files that the config names run code of their own; only if you trust them',
    )
    parser.add_argument(
        '--allow-changes',
        action='store_true',
        help='take a checkpoint that was trained with other settings than those of the config; they are listed',
    )
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none')
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
        cfg.optim_wrapper.setdefault('loss_scale', 'dynamic')
    if args.auto_scale_lr:
        if 'base_batch_size' not in cfg.get('auto_scale_lr', {}):
            raise ValueError('--auto-scale-lr needs auto_scale_lr.base_batch_size in the config')
        cfg.auto_scale_lr.enable = True
    if args.resume:
        cfg.resume = True
        cfg.load_from = None if args.resume == 'auto' else args.resume
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
        dump = dict(type=RESULT_DUMPS[cfg.default_scope], out_file_path=args.out)
        cfg.test_evaluator = [*as_list(cfg.test_evaluator), dump]
    if args.show or args.show_dir:
        if 'visualization' not in cfg.default_hooks:
            raise ValueError('--show and --show-dir need default_hooks.visualization in the config')
        folder = os.path.abspath(args.show_dir) if args.show_dir else None
        PICTURES[cfg.default_scope](cfg, dict(show=args.show, wait_time=args.wait_time), folder)
    return cfg


def _base_config(args: argparse.Namespace) -> Config:
    # Launchers that pass the local rank as an option leave the variable unset, and mmengine reads the variable.
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = RunConfig.of(read_config(args.config, args.cfg_options))
    cfg.launcher = args.launcher
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or os.path.join('work_dirs', Path(args.config).stem)
    return cfg


class RunConfig(Config):
    """A config whose dumps overwrite no file: a work dir may be the folder of the config itself."""

    @classmethod
    def of(cls, cfg: Config) -> 'RunConfig':
        """The same config."""
        own = cls.__new__(cls)
        own.__dict__.update(cfg.__dict__)
        return own

    def dump(self, file: str | Path | None = None) -> str | None:
        """Writes the config beside a file that is there and has another text."""
        if file is None:
            return super().dump()
        write_beside(Path(file), self.pretty_text if str(file).endswith('.py') else super().dump())
        return None


def read_config(path: str, options: dict | None = None) -> Config:
    """The config of a file with everything it inherits, and the settings that win over it.

    Args:
        path: The file, or its name in an installed package, such as `mmseg::vit/vit_deit-s16_...py`.
        options: Settings by their dotted names.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if it is no config, a setting does not fit it, or a part is no dict or of a foreign module.
    """
    path = config_file(path)
    check_config_file(path)
    check_temporary_folder()
    try:
        with packages_where_imported():
            cfg = Config.fromfile(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    except (Exception, SystemExit) as error:  # a config is a program, and can fail with any
        reason = str(error).partition(', the current sys.path')[0]
        raise ValueError(f'{path} is no config ({type(error).__name__}): {reason}') from error
    # mmengine marks what comes from `vitplug::...` with that scope, where the task's parts are not.
    _drop_scope(cfg._cfg_dict, vitplug.registry.MODELS.scope)
    check_option_names(cfg, options or {})
    hooks = set(cfg.get('default_hooks') or ())
    try:
        cfg.merge_from_dict(options or {})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f'--cfg-options does not fit {path}: {error}') from error
    check_depth(cfg._cfg_dict)
    check_parts(cfg)
    _switch_off_hooks(cfg, hooks)
    check_types(cfg._cfg_dict)
    return cfg


def _unreadable(path: str, error: OSError) -> Exception:
    """What to say where a config cannot be read, or not be copied: mmengine runs a copy in the temporary folder."""
    if error.errno in CANNOT_WRITE:
        return OSError(
            f'{path} cannot be read, because its copy in the folder for temporary files, {tempfile.gettempdir()}, '
            f'cannot be written: {error.strerror}; make room there or set TMPDIR to another folder'
        )
    return ValueError(f'{path} is no config ({type(error).__name__}): {error}')


def _switch_off_hooks(cfg: Config, known: set[str]) -> None:
    """Takes the hooks that are None out of `default_hooks`; mmengine does so only with its own six.

    Args:
        cfg: The config; changed in place.
        known: Names of the hooks in the config file.

    Raises:
        ValueError: if there is no hook of the name.
    """
    hooks = cfg.get('default_hooks') or {}
    for name in [name for name, hook in hooks.items() if hook is None and name not in MMENGINE_HOOKS]:
        if name not in known:
            raise ValueError(
                f'default_hooks.{name} = None: there is no such hook to switch off; '
                f'there are {", ".join(sorted({*known, *MMENGINE_HOOKS}))}'
            )
        del hooks[name]


def _drop_scope(node, scope: str) -> None:
    """Lets a config's parts be found in the default scope again, all the way down."""
    if isinstance(node, dict):
        if node.get('_scope_') == scope:
            del node['_scope_']
        for child in node.values():
            _drop_scope(child, scope)
    elif isinstance(node, list | tuple):
        for child in node:
            _drop_scope(child, scope)


# --- what differs between the three libraries ---

RESULT_DUMPS = {'mmpretrain': 'DumpResults', 'mmseg': 'DumpResults', 'mmdet': 'DumpDetResults'}


def _classification_pictures(cfg: Config, hook: dict, folder: str | None) -> None:
    if is_augmented(cfg):
        raise ValueError('--show and --show-dir: mmpretrain cannot draw what --tta merges: leave one of them out')
    cfg.default_hooks.visualization.update(hook, enable=True, interval=1, out_dir=folder)


def _segmentation_pictures(cfg: Config, hook: dict, folder: str | None) -> None:
    # Upstream's mmseg counts the interval in tests, too.
    cfg.default_hooks.visualization.update(hook, draw=True, interval=1)
    if folder:
        cfg.visualizer.save_dir = folder


def _detection_pictures(cfg: Config, hook: dict, folder: str | None) -> None:
    cfg.default_hooks.visualization.update(hook, draw=True, test_out_dir=folder)


PICTURES = {'mmpretrain': _classification_pictures, 'mmseg': _segmentation_pictures, 'mmdet': _detection_pictures}
