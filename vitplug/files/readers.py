"""Files that a config names are data: tensors are read without the code that a file may hold."""

import os

# The variable that makes torch.load read tensors only, whatever its caller says, and the one that overrides it.
ONLY_TENSORS, NOT_ONLY_TENSORS = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD', 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'


def refuse_code_in_files() -> None:
    """Makes `torch.load` run no code in this process and its workers; classes of the libraries read files with it."""
    os.environ[ONLY_TENSORS] = '1'
    os.environ.pop(NOT_ONLY_TENSORS, None)
