"""The distributions of the OpenMMLab packages, and the commands that install or repair them. Standard library only."""

import importlib.metadata
from collections.abc import Sequence

# Distributions of each import name, the maintained one first. Two in one environment overwrite each other's files.
DISTRIBUTIONS = {
    'mmengine': ('onedl-mmengine', 'mmengine', 'mmengine-lite'),
    'mmcv': ('onedl-mmcv', 'mmcv', 'mmcv-lite', 'mmcv-full', 'onedl-mmcv-lite'),
    'mmdet': ('onedl-mmdetection', 'mmdet'),
    'mmseg': ('onedl-mmsegmentation', 'mmsegmentation'),
    'mmpretrain': ('onedl-mmpretrain', 'mmpretrain', 'mmcls'),
}


def installed(names: Sequence[str]) -> dict[str, str]:
    """Versions of the installed distributions among ``names``."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


# --- remedies: shell commands ---


def build_ops() -> str:
    """Command that installs mmcv with compiled ops.

    It keeps the installed distribution name and version: under another name mmcv would be installed twice.
    """
    name, number = next(iter(installed(DISTRIBUTIONS['mmcv']).items()), ('onedl-mmcv', ''))
    full = name.removesuffix('-lite')
    drop = '' if name == full else f'pip uninstall -y {name} && '
    pinned = f'{full}=={number}' if number else full
    return f'{drop}pip install --no-build-isolation --no-cache-dir --no-deps --force-reinstall {pinned}'


def install_packages() -> str:
    """Command that installs what is missing: the maintained packages, or upstream's where those are in use."""
    upstream = [name for names in DISTRIBUTIONS.values() for name in names if not name.startswith('onedl-')]
    if installed(upstream):
        return 'pip install mmengine mmcv mmdet mmsegmentation mmpretrain  # see docs/stacks.md'
    return 'pip install -e .  # in the folder of vitplug'
