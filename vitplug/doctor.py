"""Checks that the stack vitplug stands on is in order, and says how to mend what is not.

Run ``python -m vitplug.doctor``; the exit status is 1 where something is missing.
"""

import importlib
import sys
from dataclasses import dataclass

MMCV_OPS = (
    'mmcv has no compiled ops that fit this torch; build it beside the torch it will run with: '
    'pip install --no-build-isolation --no-cache-dir --no-deps --force-reinstall onedl-mmcv'
)
FROM_PIP = "pip install --no-build-isolation -e '.[onedl]'"


@dataclass(frozen=True)
class Need:
    """A module that has to import, and what to do where it does not."""

    module: str
    purpose: str
    remedy: str


NEEDS = (
    Need('torch', 'everything', 'pip install torch torchvision'),
    Need(
        'torchvision',
        'images',
        'pip install a torchvision build made for this very torch build (both CPU or both CUDA)',
    ),
    Need('mmengine', 'configs, runners', FROM_PIP),
    Need('mmcv', 'images, layers', 'pip install --no-build-isolation onedl-mmcv (after torch)'),
    Need('mmcv.ops', 'detection and segmentation', MMCV_OPS),
    Need('mmdet', 'detection', FROM_PIP),
    Need('mmseg', 'segmentation', FROM_PIP),
    Need('mmpretrain', 'classification', FROM_PIP),
    Need('vitplug.backbones', 'the backbones', FROM_PIP),
)


def check(need: Need) -> str | None:
    """Imports the module; returns None, or what went wrong."""
    try:
        importlib.import_module(need.module)
    except Exception as error:  # a broken binary package can raise anything
        return f'{type(error).__name__}: {error}'
    return None


def version(module: str) -> str:
    """The module's version as it names it itself, empty where it does not."""
    return getattr(sys.modules.get(module), '__version__', '')


def main() -> int:
    """Prints one line for each need and returns the exit status."""
    failed = False
    for need in NEEDS:
        error = check(need)
        if error is None:
            print(f'  ok      {need.module:18} {version(need.module)}')
        else:
            failed = True
            print(f'  BROKEN  {need.module:18} (for {need.purpose}) {error}\n          mend it: {need.remedy}')
    print('the stack is in order' if not failed else 'the stack is not in order: see above')
    return int(failed)


if __name__ == '__main__':
    sys.exit(main())
