"""The sets of packages that vitplug is tested on, and the commands that install or repair them."""

import importlib.metadata
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

# Distributions of each import name: two of them overwrite each other's files, and the last one installed wins.
DISTRIBUTIONS = {
    'mmengine': ('onedl-mmengine', 'mmengine', 'mmengine-lite'),
    'mmcv': ('onedl-mmcv', 'mmcv', 'mmcv-lite', 'mmcv-full', 'onedl-mmcv-lite'),
    'mmdet': ('onedl-mmdetection', 'mmdet'),
    'mmseg': ('onedl-mmsegmentation', 'mmsegmentation'),
    'mmpretrain': ('onedl-mmpretrain', 'mmpretrain', 'mmcls'),
}
# Where OpenMMLab keeps wheels of mmcv, for a kind of torch such as 'cu121' and a release such as '2.1'.
MMCV_WHEELS = 'https://download.openmmlab.com/mmcv/dist/{kind}/torch{release}/index.html'


def installed(names: Sequence[str]) -> dict[str, str]:
    """The installed ones among some distributions, with their versions."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Stack:
    """Packages that vitplug is tested on together; `make setup STACK=name` installs them.

    Attributes:
        name: The value of STACK.
        extra: The extra of setup.py with the packages beside torch.
        mmcv: The distribution of mmcv.
        versions: The versions of torch and mmcv.
        wheels: Kinds of torch for which OpenMMLab has this mmcv prebuilt, on x86-64 for Python up to 3.11.
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
# The first minor release of torch 2 that onedl's packages take.
FIRST_TORCH_OF_ONEDL = 4
UPSTREAM = ('mmengine', 'mmcv', 'mmcv-lite', 'mmdet', 'mmsegmentation', 'mmpretrain')


def nearest_stack() -> Stack:
    """The stack that is closest to the installed packages, by their names and the torch release."""
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


def mmcv_wheels() -> str:
    """The address of prebuilt wheels of the nearest stack's mmcv for the installed torch; '' if there are none."""
    stack = nearest_stack()
    match = re.fullmatch(r'(2\.\d+)\.\d+(?:\+(\w+))?', installed(('torch',)).get('torch', ''))
    if match is None or sys.version_info >= (3, 12) or platform.machine() not in ('x86_64', 'AMD64'):
        return ''
    # PyPI's builds have no label: those of torch 2.1 are for CUDA 12.1 on Linux, and for CPUs elsewhere.
    release, kind = match[1], match[2] or ('cu121' if sys.platform == 'linux' else 'cpu')
    is_for_release = stack.versions[0].startswith(f'{release}.')
    return MMCV_WHEELS.format(kind=kind, release=release) if is_for_release and kind in stack.wheels else ''


def build_ops() -> str:
    """The command that installs mmcv with its ops, under the installed name, since another name would install it twice.

    It takes a prebuilt wheel if there is one for the installed torch.
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
    return f'{drop}{build} {wanted}  # compiles ops for the torch here, ten minutes'


def fit_torchvision() -> str:
    """The command that installs the torchvision of the installed torch: 0.20 goes with 2.5, 0.21 with 2.6 and so on."""
    number = installed(('torch',)).get('torch', '')
    if not number:
        return 'pip install torch torchvision'
    match = re.fullmatch(r'2\.(\d+)\.(\d+)(?:\+(\w+))?', number)
    if match is None:
        return f'install the torchvision that was built beside torch {number}'
    minor, patch, kind = match.groups()
    index = f' --index-url https://download.pytorch.org/whl/{kind}' if kind else ''
    return f'pip install --no-deps --force-reinstall torchvision==0.{int(minor) + 15}.{patch}{index}'


def install_packages() -> str:
    """The command that installs the packages of the nearest stack beside torch."""
    return f"pip install --no-build-isolation -e '.[{nearest_stack().extra}]'  # in the folder of vitplug"
