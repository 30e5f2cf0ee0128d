"""The distributions of the OpenMMLab packages. Standard library only."""

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
