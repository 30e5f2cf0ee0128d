"""Checks the installed packages and vitplug, and prints how to repair them.

Run ``python -m vitplug.doctor``; with ``--quick`` only the imports are checked. The exit status is 1 if a check fails.
Nothing is downloaded or written.
"""

import argparse
import importlib
import importlib.metadata
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vitplug import threads
from vitplug.engine.config_paths import LIBRARIES, configs_folder

# Distributions of each import name. Two of them in one environment overwrite each other's files.
DISTRIBUTIONS = {
    'mmengine': ('onedl-mmengine', 'mmengine', 'mmengine-lite'),
    'mmcv': ('onedl-mmcv', 'mmcv', 'mmcv-lite', 'mmcv-full', 'onedl-mmcv-lite'),
    'mmdet': ('onedl-mmdetection', 'mmdet'),
    'mmseg': ('onedl-mmsegmentation', 'mmsegmentation'),
    'mmpretrain': ('onedl-mmpretrain', 'mmpretrain', 'mmcls'),
}
# OpenMMLab's wheels of mmcv, by the build of torch, such as 'cu121', and its release, such as '2.1'.
MMCV_WHEELS = 'https://download.openmmlab.com/mmcv/dist/{kind}/torch{release}/index.html'
OPENCV = ('opencv-python', 'opencv-python-headless', 'opencv-contrib-python', 'opencv-contrib-python-headless')


# --- the stacks ---


def installed(names: Sequence[str]) -> dict[str, str]:
    """Versions of the installed distributions among ``names``."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Stack:
    """A tested set of packages; `make setup STACK=name` installs it.

    Attributes:
        name: The value of STACK.
        extra: The extra of setup.py with the packages beside torch.
        mmcv: The distribution of mmcv.
        versions: The versions of torch and mmcv.
        wheels: Builds of torch for which OpenMMLab has wheels of this mmcv, on x86-64 for Python up to 3.11.
    """

    name: str
    extra: str
    mmcv: str
    versions: tuple[str, str]
    wheels: tuple[str, ...] = ()


STACKS = (
    Stack('onedl', 'onedl', 'onedl-mmcv', ('2.12.1', '2.3.6')),
    Stack('openmmlab', 'openmmlab', 'mmcv', ('2.1.2', '2.1.0'), wheels=('cpu', 'cu118', 'cu121')),
    Stack('openmmlab-new', 'openmmlab', 'mmcv', ('2.5.1', '2.1.0')),
)
# Minor version of the first torch 2.x that onedl's packages support.
FIRST_TORCH_OF_ONEDL = 4
UPSTREAM = ('mmengine', 'mmcv', 'mmcv-lite', 'mmdet', 'mmsegmentation', 'mmpretrain')


def nearest_stack() -> Stack:
    """The stack closest to the installed packages, by their names and the torch release."""
    onedl, old, new = STACKS
    match = re.match(r'2\.(\d+)', installed(('torch',)).get('torch', ''))
    minor = int(match[1]) if match else None
    if minor is not None and minor < FIRST_TORCH_OF_ONEDL:
        return old
    if not installed(UPSTREAM):
        return onedl
    return old if minor is None else new


def stack_here() -> str:
    """The name of the nearest stack, and the differences from it."""
    stack = nearest_stack()
    found = installed(('torch', stack.mmcv))
    differs = [
        f'{name} is {found.get(name, "missing")}, not {tested}'
        for name, tested in zip(('torch', stack.mmcv), stack.versions, strict=True)
        if found.get(name, '').partition('+')[0] != tested
    ]
    return f'{stack.name}, as tested' if not differs else f'{stack.name} is the nearest: {", ".join(differs)}'


# --- remedies: shell commands ---


def mmcv_wheels() -> str:
    """The address of wheels of the nearest stack's mmcv for the installed torch, or '' if there are none."""
    stack = nearest_stack()
    match = re.fullmatch(r'(2\.\d+)\.\d+(?:\+(\w+))?', installed(('torch',)).get('torch', ''))
    if match is None or sys.version_info >= (3, 12) or platform.machine() not in ('x86_64', 'AMD64'):
        return ''
    # PyPI's builds have no label: torch 2.1 is built for CUDA 12.1 on Linux, and for CPUs on other systems.
    release, kind = match[1], match[2] or ('cu121' if sys.platform == 'linux' else 'cpu')
    is_for_release = stack.versions[0].startswith(f'{release}.')
    return MMCV_WHEELS.format(kind=kind, release=release) if is_for_release and kind in stack.wheels else ''


def build_ops() -> str:
    """Command that installs mmcv with its ops, from a wheel if there is one for the installed torch.

    It keeps the installed distribution name and version: under another name mmcv would be installed twice.
    """
    stack = nearest_stack()
    name, number = next(iter(installed(DISTRIBUTIONS['mmcv']).items()), (stack.mmcv, ''))
    full = name.removesuffix('-lite')
    drop = '' if name == full else f'pip uninstall -y {name} && '
    wanted = f'--no-deps --force-reinstall {full}=={number}' if number else f'{full}=={stack.versions[1]}'
    address = mmcv_wheels() if (full, number or stack.versions[1]) == (stack.mmcv, stack.versions[1]) else ''
    if address:
        return f'{drop}pip install --only-binary {full} --find-links {address} {wanted}'
    build = 'pip install --no-build-isolation --no-cache-dir'
    return f'{drop}{build} {wanted}  # compiles ops for the installed torch, ten minutes'


def fit_torchvision() -> str:
    """Command that installs the torchvision of the installed torch: 0.20 for 2.5, 0.21 for 2.6 and so on."""
    number = installed(('torch',)).get('torch', '')
    if not number:
        return 'pip install torch torchvision'
    match = re.fullmatch(r'2\.(\d+)\.(\d+)(?:\+(\w+))?', number)
    if match is None:
        return f'install the torchvision that was built for torch {number}'
    minor, patch, kind = match.groups()
    index = f' --index-url https://download.pytorch.org/whl/{kind}' if kind else ''
    return f'pip install --no-deps --force-reinstall torchvision==0.{int(minor) + 15}.{patch}{index}'


def install_packages() -> str:
    """Command that installs the nearest stack's packages beside torch."""
    return f"pip install --no-build-isolation -e '.[{nearest_stack().extra}]'  # in the folder of vitplug"


NUMPY = "pip install --force-reinstall 'numpy<2'  # works with every torch; torch before 2.3 needs it"
# vitplug is at fault only if the stack is in order.
REPORT = 'the stack is in order, so this is a mistake in vitplug: report it with this output'
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


class Broken(ValueError):
    """A failed check with its own remedy."""

    def __init__(self, message: str, remedy: str):
        super().__init__(message)
        self.remedy = remedy


NEEDS = (
    Need('torch', 'everything', 'pip install torch torchvision'),
    Need('torchvision', 'images', fit_torchvision()),
    Need('mmengine', 'configs, runners', install_packages()),
    Need('mmcv', 'images, layers', build_ops()),
    Need('mmcv.ops', 'detection and segmentation', build_ops()),
    Need('mmdet', 'detection', install_packages()),
    Need('mmseg', 'segmentation', install_packages()),
    Need('mmpretrain', 'classification', install_packages()),
    Need('vitplug.backbones', 'the backbones', install_packages()),
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
    """Runs a compiled operator of mmcv: an mmcv built for another torch may import, but fail at run time.

    Raises:
        RuntimeError or ImportError: If it does not run.
    """
    import mmcv
    import torch
    from mmcv.ops import nms

    _check_nms(lambda boxes, scores: nms(boxes, scores, 0.5)[1], torch)
    return f'mmcv {mmcv.__version__}'


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
    twice = {name: found for name, names in DISTRIBUTIONS.items() if len(found := installed(names)) > 1}
    if twice:
        message = '; '.join(f'{name} comes from {_listed(found)}' for name, found in twice.items())
        raise Broken(message, _install_anew(name for found in twice.values() for name in found))
    opencv = installed(OPENCV)
    if len(set(opencv.values())) > 1:
        raise Broken(f'cv2 comes from builds of different versions: {_listed(opencv)}', _install_anew(opencv))
    return ', '.join(name for names in DISTRIBUTIONS.values() for name in installed(names))


def _install_anew(names: Iterable[str]) -> str:
    return f'pip uninstall -y {" ".join(names)} && {install_packages()}'


def _listed(found: dict[str, str]) -> str:
    return ' and '.join(f'{name} {number}' for name, number in found.items())


def setuptools_has_pkg_resources() -> str:
    """Imports `pkg_resources`, which setuptools 82 removed.

    Raises:
        ModuleNotFoundError: If it is missing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # its deprecation
        importlib.import_module('pkg_resources')
    return f'setuptools {importlib.metadata.version("setuptools")}'


def folder_of_configs(library: str) -> str:
    """The folder of the configs `library::...`, or the reason why there is none."""
    try:
        return str(configs_folder(library))
    except FileNotFoundError as error:
        return str(error)


STACK = (
    Check('stack', 'bug reports', install_packages(), stack_here),
    Check('numpy and torch', 'everything', NUMPY, numpy_beside_torch),
    Check('torchvision ops', 'images, detection', fit_torchvision(), torchvision_beside_torch),
    Check('mmcv ops', 'detection and segmentation', build_ops(), mmcv_ops_work),
    Check('distribution names', 'packages that are installed twice', install_packages(), one_distribution_each),
    Check(
        'setuptools',
        "building mmcv, and configs based on 'mmdet::...' with upstream's mmengine",
        "pip install 'setuptools>=80,<82'",
        setuptools_has_pkg_resources,
    ),
)
CONFIGS = tuple(
    Check(f'configs {library}::...', 'bases by name', install_packages(), partial(folder_of_configs, library))
    for library in LIBRARIES
)


# --- the backbones with the plugs ---

VIT = dict(
    arch=dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=32),
    img_size=32,
    patch_size=8,
    out_type='featmap',
)
TOYS = {
    'VisionTransformer': VIT,
    'DistilledVisionTransformer': VIT,
    'SwinTransformer': dict(
        arch=dict(embed_dims=24, depths=[2, 2], num_heads=[3, 6]), img_size=32, window_size=4, out_indices=(0, 1)
    ),
}
# Plugs that another plug needs, by backbone.
COMPANIONS = {
    'GaussianAttentionBias': {'VisionTransformer': 'RelPosBias', 'DistilledVisionTransformer': 'RelPosBias'},
}


def plug_in_backbone(backbone: str, plug: str) -> str:
    """Builds a small backbone with a plug and runs forward and backward on one image.

    Raises:
        Exception: Any error of vitplug or of a broken package.
    """
    import torch

    from vitplug.registry import MODELS

    plugs = [dict(type=name) for name in (COMPANIONS.get(plug, {}).get(backbone), plug) if name]
    try:
        model = MODELS.build(dict(type=backbone, plugs=plugs, **TOYS[backbone]))
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


def backbone_checks() -> Iterator[Check]:
    """One check per registered backbone and plug; a single failing check if these cannot be imported."""
    try:
        from vitplug.registry import PLUGS

        PLUGS.import_from_location()
        backbones = importlib.import_module('vitplug.backbones').__all__
    except Exception as error:  # a broken binary package can raise anything
        yield Check('backbones with plugs', 'everything', REPORT, partial(_raise, error))
        return
    for backbone in backbones:
        for plug in PLUGS.module_dict:
            yield Check(f'{backbone} with {plug}', 'this plug', REPORT, partial(plug_in_backbone, backbone, plug))


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
PROPOSALS = dict(nms_pre=20, max_per_img=10, nms=dict(type='nms', iou_threshold=0.7), min_bbox_size=0)
DETECTOR = dict(
    type='FasterRCNN',
    data_preprocessor=dict(type='DetDataPreprocessor', pad_size_divisor=32),
    backbone=dict(type='vitplug.SwinTransformer', plugs=[dict(type='ContextBroadcast')], **TOYS['SwinTransformer']),
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
    roi_head=dict(
        type='StandardRoIHead',
        bbox_roi_extractor=dict(
            type='SingleRoIExtractor',
            roi_layer=dict(type='RoIAlign', output_size=3, sampling_ratio=0),
            out_channels=8,
            featmap_strides=[4, 8],
        ),
        bbox_head=dict(
            type='Shared2FCBBoxHead',
            in_channels=8,
            fc_out_channels=8,
            roi_feat_size=3,
            num_classes=3,
            bbox_coder=dict(type='DeltaXYWHBBoxCoder'),
            loss_cls=dict(type='CrossEntropyLoss'),
            loss_bbox=dict(type='L1Loss'),
        ),
    ),
    train_cfg=dict(rpn=ASSIGNMENT, rpn_proposal=PROPOSALS, rcnn=ASSIGNMENT),
    test_cfg=dict(rpn=PROPOSALS, rcnn=dict(score_thr=0.0, nms=dict(type='nms', iou_threshold=0.5), max_per_img=5)),
)


def labelled_class():
    """A sample of mmpretrain."""
    from mmpretrain.structures import DataSample

    return DataSample().set_gt_label(1)


def labelled_map():
    """A sample of mmseg."""
    import torch
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    sample = SegDataSample(metainfo=dict(img_shape=(32, 32), ori_shape=(32, 32)))
    return sample.set_data(dict(gt_sem_seg=PixelData(data=torch.ones(1, 32, 32, dtype=torch.long)))) or sample


def labelled_boxes():
    """A sample of mmdet."""
    import torch
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData

    sample = DetDataSample(metainfo=dict(img_shape=(32, 32), ori_shape=(32, 32), scale_factor=(1.0, 1.0)))
    sample.gt_instances = InstanceData(bboxes=torch.tensor([[4.0, 4.0, 20.0, 24.0]]), labels=torch.tensor([1]))
    return sample


def training_step(scope: str, model: dict, sample: Callable) -> str:
    """Trains a small model for one step on noise.

    Raises:
        Exception: Any error of vitplug or of a broken package.
    """
    import torch
    from mmengine.config import ConfigDict
    from mmengine.optim import OptimWrapper
    from mmengine.registry import MODELS

    torch.manual_seed(0)
    model = MODELS.build(ConfigDict(_scope_=scope, **model))
    optimizer = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=1e-3))
    images = [torch.randint(0, 255, (3, 32, 32), dtype=torch.uint8) for _ in range(2)]
    inputs = torch.stack(images).float() if scope == 'mmpretrain' else images
    losses = model.train_step(dict(inputs=inputs, data_samples=[sample() for _ in images]), optimizer)
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        raise FloatingPointError('the step leaves weights that are not finite')
    return f'loss {losses["loss"].item():.3f}'


TASKS = (
    Check(
        'a step of classification', 'training classifiers', REPORT,
        partial(training_step, 'mmpretrain', CLASSIFIER, labelled_class),
    ),
    Check(
        'a step of segmentation', 'training segmentors', REPORT,
        partial(training_step, 'mmseg', SEGMENTOR, labelled_map),
    ),
    Check(
        'a step of detection', 'training detectors', REPORT,
        partial(training_step, 'mmdet', DETECTOR, labelled_boxes),
    ),
)  # fmt: skip


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
        except Exception as error:  # a broken binary package can raise anything
            remedies.append(getattr(error, 'remedy', item.remedy))
            message = str(error) if isinstance(error, ImportError | Broken) else f'{type(error).__name__}: {error}'
            print(f'  BROKEN  {item.name:45} (for {item.purpose}) {" ".join(message.split())}')
            print(f'          repair it: {remedies[-1]}', flush=True)
    return remedies


def main(argv: Sequence[str] = ()) -> int:
    """Prints one line for each check and returns the exit status."""
    parser = argparse.ArgumentParser(description='Check the installed packages and vitplug; print how to repair them.')
    parser.add_argument('--quick', action='store_true', help='check only the imports')
    parser.add_argument(
        '--wheels', action='store_true', help='print only the address of mmcv wheels for the installed torch, if any'
    )
    args = parser.parse_args(argv)
    if args.wheels:
        print(mmcv_wheels())
        return 0
    # Import warnings of the packages are misleading; the report has the errors.
    warnings.simplefilter('ignore')
    remedies = report(import_checks())
    if not args.quick:
        remedies += report((*STACK, *CONFIGS))
        _quieten()
        # Also run on a broken stack, to show which models still work.
        remedy = STACK_FIRST if remedies else REPORT
        remedies += report(replace(item, remedy=remedy) for item in (*TASKS, *backbone_checks()))
    if not remedies:
        print('the stack is in order')
        return 0
    broken = 'vitplug' if set(remedies) == {REPORT} else 'the stack'
    print(f'{broken} is not in order ({len(remedies)} failed); to repair it, with the pip of {sys.executable}:')
    print('\n'.join(f'  {remedy}' for remedy in dict.fromkeys(remedies) if remedy != STACK_FIRST))
    return 1


def _quieten() -> None:
    """Keeps the log lines of model building out of the report."""
    try:
        from mmengine.logging import MMLogger
    except Exception:  # reported above
        return
    MMLogger.get_current_instance().setLevel('ERROR')


if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    sys.exit(main(sys.argv[1:]))
