"""Checks the installed packages and vitplug, and prints how to repair them.

Run ``python -m vitplug.doctor``; with ``--quick`` only the imports are checked. The exit status is 1 if a check fails.
Nothing is downloaded or written.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vitplug import stacks
from vitplug.commands import command_parser
from vitplug.config.paths import LIBRARIES, config_file, configs_folder
from vitplug.process import prepare

OPENCV = ('opencv-python', 'opencv-python-headless', 'opencv-contrib-python', 'opencv-contrib-python-headless')
# vitplug is at fault only if the packages are in order.
REPORT = 'the packages are in order, so this is a mistake in vitplug: report it with this output'
PACKAGES_FIRST = 'repair the errors above, then run this again'


@dataclass(frozen=True)
class Check:
    """A check of the report.

    Attributes:
        name: Name in the report.
        remedy: How to repair it; an error with an attribute `remedy` brings its own.
        run: Runs the check. Returns the text beside the name; raises an error if the check fails.
    """

    name: str
    remedy: str
    run: Callable[[], str]


class Broken(ValueError):
    """A failed check with its own remedy."""

    def __init__(self, message: str, remedy: str):
        super().__init__(message)
        self.remedy = remedy


# --- imports and versions ---


def import_module(name: str) -> str:
    """Imports a module; returns its version, '' if it has none.

    Raises:
        Exception: Any error of a broken package.
    """
    try:
        return getattr(importlib.import_module(name), '__version__', '')
    except ImportError as error:
        if 'transformers' in str(error):
            raise Broken(str(error), "pip install 'transformers<5'  # or uninstall it: see docs/plug_in.md") from error
        raise


def imports() -> list[Check]:
    """The imports that the three tasks need."""
    packages = stacks.install_packages()
    remedies = {
        'torch': 'pip install torch torchvision',
        'torchvision': stacks.fit_torchvision(),
        'mmengine': packages,
        'mmcv': packages,
        'mmcv.ops': stacks.build_ops(),
        'mmdet': packages,
        'mmseg': packages,
        'mmpretrain': packages,
        'mmpretrain.models': packages,
        'vitplug.backbones': packages,
    }
    return [Check(name, remedy, partial(import_module, name)) for name, remedy in remedies.items()]


# --- packages that must fit each other ---


def torchvision_beside_torch() -> str:
    """Runs an operator of torchvision.

    Raises:
        RuntimeError: If torchvision was built for another torch.
    """
    from torchvision.ops import nms

    _check_nms(lambda boxes, scores: nms(boxes, scores, 0.5))
    return ''


def mmcv_ops_work() -> str:
    """Runs an operator of mmcv: an mmcv built for another torch may import, but fail at run time.

    Raises:
        RuntimeError or ImportError: If it does not run.
    """
    from mmcv.ops import nms

    _check_nms(lambda boxes, scores: nms(boxes, scores, 0.5)[1])
    is_compiled = Path(sys.modules['mmcv._ext'].__file__).suffix != '.py'
    return 'compiled' if is_compiled else "not compiled: torchvision's, by vitplug.ops"


def _check_nms(nms: Callable) -> None:
    import torch

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
    opencv = stacks.installed(OPENCV)
    if len(set(opencv.values())) > 1:
        twice['cv2'] = opencv
    if twice:
        listed = {name: ' and '.join(map(' '.join, found.items())) for name, found in twice.items()}
        names = ' '.join(distribution for found in twice.values() for distribution in found)
        raise Broken(
            '; '.join(f'{name} comes from {text}' for name, text in listed.items()),
            f'pip uninstall -y {names} && {stacks.install_packages()}',
        )
    return ', '.join(name for names in stacks.DISTRIBUTIONS.values() for name in stacks.installed(names))


def folders_of_configs() -> str:
    """Looks for the configs `library::...` of all libraries.

    Raises:
        FileNotFoundError: If one came without; says which.
    """
    for library in LIBRARIES:
        configs_folder(library)
    return ', '.join(f'{library}::' for library in LIBRARIES)


PACKAGES = (
    Check('vitplug', '', lambda: str(Path(__file__).parent)),
    Check('torchvision beside torch', stacks.fit_torchvision(), torchvision_beside_torch),
    Check("mmcv's ops", stacks.build_ops(), mmcv_ops_work),
    Check('distributions', '', one_distribution_each),
    Check('configs by name', stacks.install_packages(), folders_of_configs),
)


# --- one training step per task ---


def training_step(scope: str, config: str) -> str:
    """Trains the model of a config for one step on noise.

    Args:
        scope: The library of the task.
        config: File under `configs/digits`.

    Raises:
        Exception: Any error of vitplug or of a broken package.
    """
    import torch
    from mmengine.config import Config
    from mmengine.optim import OptimWrapper
    from mmengine.registry import MODELS, init_default_scope

    from vitplug.tasks import TASKS as DESCRIPTIONS

    init_default_scope(scope)
    cfg = Config.fromfile(config_file(f'vitplug::digits/{config}'))
    torch.manual_seed(0)
    model = MODELS.build(dict(data_preprocessor=cfg.get('data_preprocessor')) | cfg.model)
    optimizer = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=1e-3))
    channels, size = cfg.model.backbone.in_channels, cfg.model.backbone.img_size
    images = list(torch.randint(0, 255, (2, channels, size, size), dtype=torch.uint8))
    samples = [DESCRIPTIONS[scope].made_sample((size, size)) for _ in images]
    losses = model.train_step(dict(inputs=images, data_samples=samples), optimizer)
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        raise FloatingPointError('the step leaves weights that are not finite')
    return f'loss {losses["loss"].item():.3f}'


STEPS = {
    'classification': ('mmpretrain', 'vit-mini-p4-cb_1xb32-7e_digits-32x32.py'),
    'segmentation': ('mmseg', 'vit-mini-p8-cb_upernet_1xb8-1000i_digits-128x128.py'),
    'detection': ('mmdet', 'swin-mini-p4-w4-cb_mask-rcnn_1xb8-250i_digits-128x128.py'),
}
TASKS = tuple(Check(f'a step of {task}', REPORT, partial(training_step, *step)) for task, step in STEPS.items())


# --- the report ---


def report(checks: Iterable[Check]) -> list[str]:
    """Runs checks, prints one line for each, and returns the remedies of the failed ones."""
    remedies = []
    for item in checks:
        try:
            print(f'  ok      {item.name:26} {item.run()}'.rstrip(), flush=True)
        except Exception as error:  # a broken binary package can raise anything
            remedy = getattr(error, 'remedy', item.remedy)
            message = str(error) if isinstance(error, Broken) else f'{type(error).__name__}: {error}'
            print(f'  BROKEN  {item.name:26} {" ".join(message.split())}')
            print(f'          repair it: {remedy}', flush=True)
            remedies.append(remedy)
    return remedies


def main(argv: Sequence[str] = ()) -> int:
    """Prints one line for each check and returns the exit status."""
    parser = command_parser('doctor', 'Check the installed packages and vitplug; print how to repair them.')
    parser.add_argument('--quick', action='store_true', help='check only the imports')
    args = parser.parse_args(argv)
    # Import warnings of the packages are misleading; the report has the errors.
    warnings.simplefilter('ignore')
    remedies = report(imports())
    if not args.quick:
        remedies += report(PACKAGES)
        _quieten()
        # Also run on broken packages, to show which tasks still work.
        remedies += report(replace(item, remedy=PACKAGES_FIRST if remedies else REPORT) for item in TASKS)
    if not remedies:
        print('all is in order')
        return 0
    broken = 'vitplug is' if set(remedies) == {REPORT} else 'the packages are'
    print(f'{broken} not in order ({len(remedies)} failed); to repair it, with the pip of {sys.executable}:')
    print('\n'.join(f'  {remedy}' for remedy in dict.fromkeys(remedies) if remedy != PACKAGES_FIRST))
    return 1


def _quieten() -> None:
    """Keeps the log lines of model building out of the report."""
    try:
        from mmengine.logging import MMLogger
    except Exception:  # reported above
        return
    MMLogger.get_current_instance().setLevel('ERROR')


if __name__ == '__main__':
    prepare()
    sys.exit(main(sys.argv[1:]))
