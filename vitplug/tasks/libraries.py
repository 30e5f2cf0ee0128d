"""What mmpretrain, mmseg and mmdet differ in, beside their data: names of settings, and what their models run."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from torch import Tensor, nn

from .networks import BACKBONE, FEATURES, LOGITS, SCORES, Part, heads_of, map_logits, run_head
from .targets import ClassLogit, PixelClass, Target


@dataclass(frozen=True)
class Task:
    """One task, of one library.

    Attributes:
        library: Name of the package, and `default_scope` of its configs.
        name: Name of the task, as commands take it.
        networks: Parts of a model that an exported file can hold, by name; the first is the usual one.
        run_inference: Runs what costs are counted of: a model on images ``(B, C, H, W)``, which may be on the meta
            device.
        counted: What that is, in words.
        drawing: The setting of `default_hooks.visualization` that makes a test draw its predictions.
        pictures: The setting that names the folder of the pictures.
        target: Makes the score of a prediction that Grad-CAM explains, the most prominent one; None if there is none.
        result_dump: Type of the metric that writes predictions to a file (`tools/test.py --out`).
    """

    library: str
    name: str
    networks: Mapping[str, Part]
    run_inference: Callable[[nn.Module, Tensor], object]
    counted: str
    drawing: str
    pictures: str
    target: Callable[[], Target] | None = None
    result_dump: str = 'DumpResults'


def _run_detector(model: nn.Module, images: Tensor) -> None:
    maps = model.extract_feat(images)
    if not hasattr(model, 'roi_head'):
        run_head(model, 'bbox_head', maps)
        return
    run_head(model, 'rpn_head', maps)
    # The most regions of an image that test_cfg lets through to each kind of head.
    for kind, limits in (('bbox', model.test_cfg.rpn), ('mask', model.test_cfg.rcnn)):
        if getattr(model.roi_head, f'with_{kind}'):
            extractors = heads_of(getattr(model.roi_head, f'{kind}_roi_extractor'))
            for extractor, head in zip(extractors, heads_of(getattr(model.roi_head, f'{kind}_head')), strict=True):
                size = extractor.roi_layers[0].output_size
                head(images.new_empty(len(images) * limits.max_per_img, extractor.out_channels, *size))


CLASSIFICATION = Task(
    'mmpretrain',
    'classification',
    networks=dict(scores=SCORES, backbone=BACKBONE),
    run_inference=lambda model, images: model(images, mode='tensor'),
    counted='backbone, neck and head',
    drawing='enable',
    pictures='default_hooks.visualization.out_dir',
    target=ClassLogit,
)
SEGMENTATION = Task(
    'mmseg',
    'segmentation',
    networks=dict(logits=LOGITS, backbone=BACKBONE),
    run_inference=map_logits,
    counted='backbone, neck and decode head; an auxiliary head is for training and has parameters only',
    drawing='draw',
    pictures='visualizer.save_dir',
    target=PixelClass,
)
DETECTION = Task(
    'mmdet',
    'detection',
    networks=dict(features=FEATURES, backbone=BACKBONE),
    run_inference=_run_detector,
    counted='backbone, neck, RPN and heads, on as many regions as test_cfg has; without suppression and RoIAlign',
    drawing='draw',
    pictures='default_hooks.visualization.test_out_dir',
    result_dump='DumpDetResults',
)


class Tasks(dict[str, Task]):
    """The tasks by library, which is the `default_scope` of a config; a ValueError names another one."""

    def __missing__(self, scope: str) -> Task:
        raise ValueError(f'default_scope = {scope!r}: expected one of {KNOWN}')


TASKS = Tasks({task.library: task for task in (CLASSIFICATION, SEGMENTATION, DETECTION)})
KNOWN = ', '.join(f'{task.library} ({task.name})' for task in TASKS.values())


def task_of(model: nn.Module) -> Task:
    """The task of a model: that of the library that its class, or one of its base classes, comes from.

    Raises:
        ValueError: If it is of none.
    """
    for kind in type(model).__mro__:
        task = TASKS.get(kind.__module__.partition('.')[0])
        if task is not None:
            return task
    raise ValueError(f'{type(model).__name__}: expected a model of one of {KNOWN}')


def check_scope(cfg) -> None:
    """Checks that `default_scope` names an installed package, and imports it.

    Raises:
        ValueError: If `default_scope` is missing or unknown.
        ImportError: If the package cannot be imported.
    """
    scope = cfg.get('default_scope')
    if not isinstance(scope, str) or (scope not in TASKS and find_spec(scope) is None):
        raise ValueError(f'default_scope = {scope!r}: set it to one of {KNOWN}')
    try:
        importlib.import_module(scope)
    except ImportError as error:
        raise ImportError(f'{scope} cannot be imported ({error}): run make setup, or see docs/stacks.md') from error
