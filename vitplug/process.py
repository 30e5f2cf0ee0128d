"""How a process of vitplug starts. Standard library only."""

import os

# The variable that makes torch.load read tensors only, whatever its caller says, and the one that overrides it.
ONLY_TENSORS, NOT_ONLY_TENSORS = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD', 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'


def prepare() -> None:
    """Prepares this process and those that it starts; to be called before torch is loaded.

    Files that a config names run no code, unless torch's own variable says so.

    Waiting OpenMP threads spin, 300,000 rounds by default. On a shared machine they take CPU time from the threads they
    wait for, and a step takes several times as long; after 1,000 rounds they sleep. Variables of the user are kept.
    """
    if NOT_ONLY_TENSORS not in os.environ:
        os.environ[ONLY_TENSORS] = '1'
    if 'OMP_WAIT_POLICY' not in os.environ:
        os.environ.setdefault('GOMP_SPINCOUNT', '1000')
    # mmengine gives OpenCV one thread in each data worker that is forked; spawned workers read this.
    os.environ.setdefault('OPENCV_FOR_THREADS_NUM', '1')
