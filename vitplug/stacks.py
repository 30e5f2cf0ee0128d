"""The sets of packages that vitplug is tested on, and the commands that install or repair them."""

import importlib.metadata
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

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


def installed(names: Sequence[str]) -> dict[str, str]:
    """Versions of the installed distributions among ``names``."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


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
    versions = installed(('torch', stack.mmcv))
    differs = [
        f'{name} is {versions.get(name, "missing")}, not {tested}'
        for name, tested in zip(('torch', stack.mmcv), stack.versions, strict=True)
        if versions.get(name, '').partition('+')[0] != tested
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
