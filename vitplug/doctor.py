"""Checks the installed packages and vitplug, and prints how to repair them.

Run ``python -m vitplug.doctor``; with ``--quick`` only the imports are checked, and with ``--nodes`` only the network
between machines. The exit status is 1 if a check fails. Nothing is downloaded or written.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from vitplug import chatter, stacks, threads
from vitplug.commands import command_parser
from vitplug.config.paths import LIBRARIES, configs_folder

OPENCV = ('opencv-python', 'opencv-python-headless', 'opencv-contrib-python', 'opencv-contrib-python-headless')

NUMPY = "pip install --force-reinstall 'numpy<2'  # works with every torch; torch before 2.3 needs it"
# The first major version that lacks names which mmpretrain imports.
TRANSFORMERS_TOO_NEW = 5
# vitplug is at fault only if the stack is in order.
REPORT = 'the stack is in order, so this is a mistake in vitplug: report it with this output'
BROKEN = 'BROKEN'
STACK_FIRST = 'repair the errors above, then run this again'


@dataclass(frozen=True)
class Need:
    """A module that must be importable, and the remedy if it is not."""

    module: str
    purpose: str
    remedy: str


@dataclass(frozen=True)
class Check:
    """A check of the report.

    Attributes:
        name: Name in the report.
        purpose: Features that need it.
        remedy: How to repair it.
        run: Runs the check. Returns the text beside the name; raises an error if the check fails.
    """

    name: str
    purpose: str
    remedy: str
    run: Callable[[], str]


class Doubtful(ValueError):
    """Something that works, and may not be what the user means."""


class Broken(ValueError):
    """A failed check with its own remedy."""

    def __init__(self, message: str, remedy: str):
        super().__init__(message)
        self.remedy = remedy


NEEDS = (
    Need('torch', 'everything', 'pip install torch torchvision'),
    Need('torchvision', 'images', stacks.fit_torchvision()),
    Need('mmengine', 'configs, runners', stacks.install_packages()),
    Need('mmcv', 'images, layers', stacks.install_packages()),
    Need('mmcv.ops', 'detection and segmentation', stacks.build_ops()),
    Need('mmdet', 'detection', stacks.install_packages()),
    Need('mmseg', 'segmentation', stacks.install_packages()),
    Need('mmpretrain', 'classification', stacks.install_packages()),
    Need('vitplug.backbones', 'the backbones', stacks.install_packages()),
)


def check(need: Need) -> str | None:
    """Imports the module; returns None, or the error."""
    try:
        importlib.import_module(need.module)
    except Exception as error:  # a broken binary package can raise anything
        return f'{type(error).__name__}: {error}'
    return None


def version(module: str) -> str:
    """The module's ``__version__``, or ''."""
    return getattr(sys.modules.get(module), '__version__', '')


# --- the stack ---


def numpy_beside_torch() -> str:
    """Passes an array to torch and back.

    Raises:
        RuntimeError or ValueError: If it fails, because torch was built for another numpy.
    """
    import numpy as np
    import torch

    array = torch.from_numpy(np.arange(3.0)).add(1).numpy()
    if array.tolist() != [1, 2, 3]:
        raise ValueError(f'[0, 1, 2] + 1 gives {array.tolist()}')
    return f'numpy {np.__version__}, torch {torch.__version__}'


def torchvision_beside_torch() -> str:
    """Runs an operator of torchvision.

    Raises:
        RuntimeError: If torchvision was built for another torch.
    """
    import torch
    import torchvision

    _check_nms(lambda boxes, scores: torchvision.ops.nms(boxes, scores, 0.5), torch)
    return f'torchvision {torchvision.__version__}'


def mmcv_ops_work() -> str:
    """Runs an operator of mmcv: an mmcv built for another torch may import, but fail at run time.

    Raises:
        RuntimeError or ImportError: If it does not run.
    """
    import mmcv
    import torch
    from mmcv.ops import nms

    _check_nms(lambda boxes, scores: nms(boxes, scores, 0.5)[1], torch)
    is_compiled = Path(sys.modules['mmcv._ext'].__file__).suffix != '.py'
    return f'mmcv {mmcv.__version__}, {"compiled" if is_compiled else "not compiled: those of vitplug.ops"}'


def _check_nms(nms: Callable, torch) -> None:
    boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 9.0], [20.0, 20.0, 30.0, 30.0]])
    kept = nms(boxes, torch.tensor([0.9, 0.8, 0.7])).tolist()
    if kept != [0, 2]:
        raise RuntimeError(f'non-maximum suppression keeps boxes {kept} instead of [0, 2]')


def one_distribution_each() -> str:
    """Checks that no package is installed twice under different distribution names.

    Raises:
        Broken: If one is.
    """
    twice = {name: found for name, names in stacks.DISTRIBUTIONS.items() if len(found := stacks.installed(names)) > 1}
    if twice:
        message = '; '.join(f'{name} comes from {_listed(found)}' for name, found in twice.items())
        raise Broken(message, _install_anew(name for found in twice.values() for name in found))
    opencv = stacks.installed(OPENCV)
    if len(set(opencv.values())) > 1:
        raise Broken(f'cv2 comes from builds of different versions: {_listed(opencv)}', _install_anew(opencv))
    return ', '.join(name for names in stacks.DISTRIBUTIONS.values() for name in stacks.installed(names))


def _install_anew(names: Iterable[str]) -> str:
    return f'pip uninstall -y {" ".join(names)} && {stacks.install_packages()}'


def _listed(versions: dict[str, str]) -> str:
    return ' and '.join(f'{name} {number}' for name, number in versions.items())


def the_installed_vitplug() -> str:
    """The folder that vitplug is imported from.

    Raises:
        Doubtful: If another one is installed in this environment, whose `vitplug` command and versions are its own.
    """
    imported = Path(__file__).resolve().parent
    # Those that pip has installed: a checkout may have metadata of its own, which are found before them.
    copies = [one for one in importlib.metadata.distributions(name='vitplug') if one.read_text('RECORD') is not None]
    folders = [_folder_of(distribution) for distribution in copies]
    if folders and imported not in folders:
        install = f'{sys.executable} -m pip install -e {imported.parent} --no-deps'
        raise Doubtful(
            f'imported from {imported}, but this environment has that of {folders[0]} installed: take '
            f'{imported.parent} out of PYTHONPATH, or install it: {install}'
        )
    return f'{imported}{"" if folders else ", not installed: python -m vitplug is the command"}'


def _folder_of(distribution: importlib.metadata.Distribution) -> Path:
    """The folder of an installed vitplug, which is the checkout's in an editable install."""
    origin = json.loads(distribution.read_text('direct_url.json') or '{}')
    if origin.get('dir_info', {}).get('editable'):
        return Path(url2pathname(urlsplit(origin['url']).path), 'vitplug').resolve()
    return Path(distribution.locate_file('vitplug')).resolve()


def folder_of_configs(library: str) -> str:
    """The folder of the configs `library::...`, or the reason why there is none."""
    try:
        return str(configs_folder(library))
    except FileNotFoundError as error:
        return str(error)


def transformers_beside_mmpretrain() -> str:
    """Compares the version of transformers with what mmpretrain can import.

    Raises:
        Broken: If they do not fit.
    """
    version = stacks.installed(('transformers',)).get('transformers', '')
    if version and int(version.partition('.')[0]) >= TRANSFORMERS_TOO_NEW:
        raise Broken(
            f'transformers {version}: `import mmpretrain.models` fails beside transformers {TRANSFORMERS_TOO_NEW}',
            f"pip install 'transformers<{TRANSFORMERS_TOO_NEW}'  # or uninstall it; a folder of its own on PYTHONPATH, "
            'as make test-huggingface has it, serves programs without mmpretrain',
        )
    return f'transformers {version}' if version else 'transformers is not installed'


STACK = (
    Check('vitplug', 'everything', stacks.install_packages(), the_installed_vitplug),
    Check('numpy and torch', 'everything', NUMPY, numpy_beside_torch),
    Check('torchvision ops', 'images, detection', stacks.fit_torchvision(), torchvision_beside_torch),
    Check('mmcv ops', 'detection and segmentation', stacks.build_ops(), mmcv_ops_work),
    Check('distribution names', 'packages that are installed twice', stacks.install_packages(), one_distribution_each),
    Check('transformers', 'classification', stacks.install_packages(), transformers_beside_mmpretrain),
)
CONFIGS = tuple(
    Check(f'configs {library}::...', 'bases by name', stacks.install_packages(), partial(folder_of_configs, library))
    for library in LIBRARIES
)


# --- the backbones with the plugs ---

VIT = dict(
    arch=dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=32),
    img_size=32,
    patch_size=8,
    out_type='featmap',
)
SWIN = dict(arch=dict(embed_dims=24, depths=[2, 2], num_heads=[3, 6]), img_size=32, window_size=4, out_indices=(0, 1))
# Some plugs pair heads, or take heads of certain widths only.
EVEN_VIT = VIT | dict(arch=dict(embed_dims=32, num_layers=2, num_heads=4, feedforward_channels=32))
EVEN_SWIN = SWIN | dict(arch=dict(embed_dims=32, depths=[2, 2], num_heads=[4, 8]))
# The ViT under the names of networks, none of which is small.
NAMED = ('FoundationTransformer',)
TOYS = {
    'VisionTransformer': EVEN_VIT,
    'DistilledVisionTransformer': EVEN_VIT,
    'SwinTransformer': EVEN_SWIN,
    'SwinTransformerV2': EVEN_SWIN,
    'MViT': dict(arch=dict(embed_dims=16, num_layers=4, num_heads=2, downscale_indices=[1, 3]), img_size=32),
    'T2T_ViT': dict(
        img_size=32,
        embed_dims=32,
        num_layers=2,
        out_type='featmap',
        t2t_cfg=dict(token_dims=8, use_performer=True),
        layer_cfgs=dict(num_heads=4, feedforward_channels=32),
    ),
    'LVT': dict(
        arch=dict(embed_dims=[16, 16], depths=[1, 2], num_heads=[2, 4], mlp_ratios=[2, 2], sr_ratios=[8, 4]),
        img_size=32,
    ),
    'PoolingVisionTransformer': dict(
        arch=dict(embed_dims=[16, 32], depths=[2, 2], num_heads=[2, 4], patch_size=8, stride=4), img_size=32
    ),
    'MlpMixer': dict(
        arch=dict(embed_dims=24, num_layers=2, tokens_mlp_dims=8, channels_mlp_dims=32), img_size=32, patch_size=8
    ),
}


def plug_in_backbone(backbone: str, plug: str) -> str:
    """Builds a small backbone with a plug and runs forward and backward on one image.

    Raises:
        Exception: Any error of vitplug or of a broken package.
    """
    import torch

    from vitplug.registry import MODELS

    try:
        model = MODELS.build(dict(type=backbone, plugs=[dict(type=plug)], **TOYS[backbone]))
    except ValueError as refusal:  # an impossible combination; the message has the reason
        return f'refused: {" ".join(str(refusal).split())[:100]}'
    outputs = model(torch.rand(1, 3, 32, 32, requires_grad=True))
    _check_finite(sum(output.float().square().sum() for output in _flattened(outputs)), model)
    return ''


def _flattened(outputs) -> Iterator:
    if isinstance(outputs, (tuple, list)):
        for output in outputs:
            yield from _flattened(output)
    else:
        yield outputs


def _check_finite(loss, model) -> None:
    loss.backward()
    values = [loss, *(p.grad for p in model.parameters() if p.grad is not None)]
    if not all(value.isfinite().all() for value in values):
        raise FloatingPointError('the loss or its gradients are not finite')


def backbone_checks() -> dict[str, dict[str, Check]]:
    """The checks by registered backbone and plug, which has its short name if it has one.

    Raises:
        Exception: Any error of a broken package.
    """
    from vitplug.plugs.text import SHORT_NAMES
    from vitplug.registry import PLUGS

    PLUGS.import_from_location()
    short = {kind: name for name, kind in SHORT_NAMES.items()}
    return {
        backbone: {
            short.get(plug, plug): Check(
                f'{backbone} with {plug}', 'this plug', REPORT, partial(plug_in_backbone, backbone, plug)
            )
            for plug in PLUGS.module_dict
        }
        for backbone in importlib.import_module('vitplug.backbones').__all__
        if backbone not in NAMED
    }


def _raise(error: Exception) -> str:
    raise error


# --- one training step per task ---

CLASSIFIER = dict(
    type='ImageClassifier',
    backbone=dict(type='vitplug.VisionTransformer', plugs=[dict(type='ContextBroadcast')], **VIT)
    | dict(out_type='cls_token'),
    head=dict(type='VisionTransformerClsHead', num_classes=3, in_channels=24),
)
SEGMENTOR = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(type='SegDataPreProcessor', size=(32, 32)),
    backbone=dict(type='vitplug.VisionTransformer', plugs=[dict(type='ContextBroadcast')], **VIT),
    decode_head=dict(type='FCNHead', in_channels=24, channels=8, num_classes=3, num_convs=1),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
ASSIGNMENT = dict(
    assigner=dict(type='MaxIoUAssigner', pos_iou_thr=0.5, neg_iou_thr=0.5, min_pos_iou=0.0),
    sampler=dict(type='RandomSampler', num=16, pos_fraction=0.5, neg_pos_ub=-1),
    allowed_border=-1,
    pos_weight=-1,
    debug=False,
)
POOLING = dict(type='RoIAlign', output_size=3, sampling_ratio=0)
REGIONS = dict(type='SingleRoIExtractor', roi_layer=POOLING, out_channels=8, featmap_strides=[4, 8])
BOXES = dict(
    type='Shared2FCBBoxHead', in_channels=8, fc_out_channels=8, roi_feat_size=3, num_classes=3,
    bbox_coder=dict(type='DeltaXYWHBBoxCoder'), loss_cls=dict(type='CrossEntropyLoss'), loss_bbox=dict(type='L1Loss'),
)  # fmt: skip
PROPOSALS = dict(nms_pre=20, max_per_img=10, nms=dict(type='nms', iou_threshold=0.7), min_bbox_size=0)
DETECTOR = dict(
    type='FasterRCNN',
    data_preprocessor=dict(type='DetDataPreprocessor', pad_size_divisor=32),
    backbone=dict(type='vitplug.SwinTransformer', plugs=[dict(type='ContextBroadcast')], **SWIN),
    neck=dict(type='FPN', in_channels=[24, 48], out_channels=8, num_outs=2),
    rpn_head=dict(
        type='RPNHead',
        in_channels=8,
        feat_channels=8,
        anchor_generator=dict(type='AnchorGenerator', scales=[4], ratios=[1.0], strides=[4, 8]),
        bbox_coder=dict(type='DeltaXYWHBBoxCoder'),
        loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=True),
        loss_bbox=dict(type='L1Loss'),
    ),
    roi_head=dict(type='StandardRoIHead', bbox_roi_extractor=REGIONS, bbox_head=BOXES),
    train_cfg=dict(rpn=ASSIGNMENT, rpn_proposal=PROPOSALS, rcnn=ASSIGNMENT),
    test_cfg=dict(rpn=PROPOSALS, rcnn=dict(score_thr=0.0, nms=dict(type='nms', iou_threshold=0.5), max_per_img=5)),
)


def training_step(scope: str, model: dict) -> str:
    """Trains a small model for one step on noise.

    Raises:
        Exception: Any error of vitplug or of a broken package.
    """
    import torch
    from mmengine.config import ConfigDict
    from mmengine.optim import OptimWrapper
    from mmengine.registry import MODELS

    from vitplug.tasks import TASKS as DESCRIPTIONS

    torch.manual_seed(0)
    built = MODELS.build(ConfigDict(_scope_=scope, **model))
    optimizer = OptimWrapper(torch.optim.AdamW(built.parameters(), lr=1e-3))
    images = [torch.randint(0, 255, (3, 32, 32), dtype=torch.uint8) for _ in range(2)]
    # A preprocessor stacks the images by itself.
    inputs = images if 'data_preprocessor' in model else torch.stack(images).float()
    samples = [DESCRIPTIONS[scope].made_sample((32, 32)) for _ in images]
    losses = built.train_step(dict(inputs=inputs, data_samples=samples), optimizer)
    if not all(parameter.isfinite().all() for parameter in built.parameters()):
        raise FloatingPointError('the step leaves weights that are not finite')
    return f'loss {losses["loss"].item():.3f}'


TASKS = (
    Check('a step of classification', 'classifiers', REPORT, partial(training_step, 'mmpretrain', CLASSIFIER)),
    Check('a step of segmentation', 'segmentors', REPORT, partial(training_step, 'mmseg', SEGMENTOR)),
    Check('a step of detection', 'detectors', REPORT, partial(training_step, 'mmdet', DETECTOR)),
)


# --- the report ---


def import_checks() -> Iterator[Check]:
    """One check per module of :data:`NEEDS`."""
    for need in NEEDS:
        yield Check(need.module, need.purpose, need.remedy, partial(_import, need))


def _import(need: Need) -> str:
    error = check(need)
    if error is not None:
        raise ImportError(error)
    return version(need.module)


def report(checks: Iterable[Check]) -> list[str]:
    """Runs checks, prints one line for each, and returns the remedies of the failed ones."""
    remedies = []
    for item in checks:
        try:
            print(f'  ok      {item.name:45} {item.run()}'.rstrip(), flush=True)
        except Doubtful as doubt:
            print(f'  warning {item.name:45} {doubt}', flush=True)
        except Exception as error:  # a broken binary package can raise anything
            remedies.append(_say_broken(item, error))
    return remedies


def _say_broken(item: Check, error: Exception) -> str:
    """Prints why a check failed, and returns the remedy."""
    remedy = getattr(error, 'remedy', item.remedy)
    message = str(error) if isinstance(error, ImportError | Broken) else f'{type(error).__name__}: {error}'
    print(f'  BROKEN  {item.name:45} (for {item.purpose}) {" ".join(message.split())}')
    print(f'          repair it: {remedy}', flush=True)
    return remedy


def report_backbones(remedy: str) -> list[str]:
    """Runs the checks of backbones with plugs, prints a line for each backbone, and returns the remedies.

    Args:
        remedy: Of all that fail.
    """
    try:
        table = backbone_checks()
    except Exception as error:  # a broken binary package can raise anything
        return report([Check('backbones with plugs', 'everything', remedy, partial(_raise, error))])
    plugs = list(dict.fromkeys(plug for checks in table.values() for plug in checks))
    width, failed = max(map(len, table), default=0), []
    columns = [max(len(plug), len(BROKEN)) for plug in plugs]
    _print_row('plugs in', plugs, width, columns)
    for backbone, checks in table.items():
        cells = []
        for plug in plugs:
            try:
                cells.append('-' if checks[plug].run() else 'ok')
            except Exception as error:  # a broken binary package can raise anything
                failed.append((replace(checks[plug], remedy=remedy), error))
                cells.append(BROKEN)
        _print_row(backbone, cells, width, columns)
    print('  -: refused, because the backbone has no place for it')
    return [_say_broken(check, error) for check, error in failed]


def _print_row(name: str, cells: Sequence[str], width: int, columns: Sequence[int]) -> None:
    row = '  '.join(f'{cell:{column}}' for cell, column in zip(cells, columns, strict=True))
    print(f'  {name:{width}}  {row}'.rstrip(), flush=True)


def main(argv: Sequence[str] = ()) -> int:
    """Prints one line for each check and returns the exit status."""
    parser = command_parser('doctor', 'Check the installed packages and vitplug; print how to repair them.')
    parser.add_argument('--quick', action='store_true', help='check only the imports')
    group = parser.add_argument_group('several machines', 'Run the same on each; variables are those of dist_train.sh.')
    group.add_argument(
        '--nodes',
        nargs='?',
        type=int,
        const=0,
        metavar='N',
        help='check only that N machines meet and compute together (default $NNODES, or those of the Slurm job)',
    )
    group.add_argument(
        '--endpoint',
        metavar='HOST[:PORT]',
        help="one of the machines, and a free port of it (default $MASTER_ADDR:$PORT, or the Slurm job's first)",
    )
    group.add_argument('--processes', type=int, metavar='N', help='processes on each machine (default one per GPU)')
    group.add_argument('--wait', type=float, default=60, help='seconds to wait for the other machines (default 60)')
    args = parser.parse_args(argv)
    if args.nodes is None and (args.endpoint is not None or args.processes is not None):
        parser.error('--endpoint and --processes are for --nodes: add it, or leave them away')
    if args.nodes is not None:
        return report_nodes(parser, args)
    # Import warnings of the packages are misleading; the report has the errors.
    warnings.simplefilter('ignore')
    remedies = report(import_checks())
    if not args.quick:
        remedies += report((*STACK, *CONFIGS))
        _quieten()
        # Also run on a broken stack, to show which models still work.
        remedy = STACK_FIRST if remedies else REPORT
        remedies += report(replace(item, remedy=remedy) for item in TASKS) + report_backbones(remedy)
    if not remedies:
        print('the stack is in order')
        return 0
    broken = 'vitplug' if set(remedies) == {REPORT} else 'the stack'
    print(f'{broken} is not in order ({len(remedies)} failed); to repair it, with the pip of {sys.executable}:')
    print('\n'.join(f'  {remedy}' for remedy in dict.fromkeys(remedies) if remedy != STACK_FIRST))
    return 1


def report_nodes(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """Runs this machine's part of the check of several machines, and returns the exit status."""
    # Read when torch is loaded; where nobody answers, its stack traces would bury the reason.
    os.environ.setdefault('TORCH_CPP_LOG_LEVEL', 'FATAL')
    import torch

    from vitplug.nodes.agent import check_nodes
    from vitplug.runs.launch import first_host

    nodes = args.nodes or int(os.environ.get('NNODES') or os.environ.get('SLURM_NNODES') or 1)
    slurm = os.environ.get('SLURM_JOB_NODELIST')
    host = os.environ.get('MASTER_ADDR') or (first_host(slurm) if slurm else '127.0.0.1' if nodes == 1 else None)
    if args.endpoint is None and host is None:
        parser.error(f'--nodes {nodes} needs --endpoint HOST:PORT, one of the machines, the same on all of them')
    processes = args.processes if args.processes is not None else max(1, torch.cuda.device_count())
    for name, value in (('--nodes', nodes), ('--processes', processes), ('--wait', args.wait)):
        if value < 1:
            parser.error(f'{name} {value:g}: expected at least 1')
    return check_nodes(nodes, processes, args.endpoint or f'{host}:{os.environ.get("PORT", 29500)}', args.wait)


def _quieten() -> None:
    """Keeps the log lines of model building out of the report."""
    try:
        from mmengine.logging import MMLogger
    except Exception:  # reported above
        return
    MMLogger.get_current_instance().setLevel('ERROR')


if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()
    sys.exit(main(sys.argv[1:]))
