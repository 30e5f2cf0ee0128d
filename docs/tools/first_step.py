"""Counts the files and functions of vitplug on the way to the first step of an optimizer.

    python docs/tools/first_step.py CONFIG [options of tools/train.py]

Hosts and plugs (`attention`, `backbones`, `hosting`, `plugs`, and the other parts of models) are counted apart.
"""

import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import torch

ROOT = str(Path(__file__).resolve().parents[2] / 'vitplug') + os.sep
MODEL = ('attention', 'backbones', 'hosting', 'plugs', 'models', 'ops')
calls: Counter = Counter()


class Done(BaseException):
    """The first step is about to be made."""


def note(frame, event, argument) -> None:
    """Counts a call of a function of vitplug."""
    code = frame.f_code
    if event == 'call' and code.co_filename.startswith(ROOT) and code.co_name != '<module>':
        calls[code.co_filename.removeprefix(ROOT), getattr(code, 'co_qualname', code.co_name)] += 1


def stop(*args, **kwargs) -> None:
    """Takes the place of the first step."""
    raise Done


def main() -> None:
    """Trains up to the first step and prints the counts."""
    from vitplug.runs.training_commands import train

    with patch.object(torch.optim.AdamW, 'step', stop), patch.object(torch.optim.SGD, 'step', stop), suppress(Done):
        sys.setprofile(note)
        try:
            train(sys.argv[1:])
        finally:
            sys.setprofile(None)
    for title, is_model in (('hosts and plugs', True), ('machinery', False)):
        chosen = {k: n for k, n in calls.items() if (k[0].split(os.sep)[0].removesuffix('.py') in MODEL) is is_model}
        files = Counter(file for file, _ in chosen)
        print(f'{title}: {len(files)} files, {len(chosen)} functions, {sum(chosen.values())} calls')
        if not is_model:
            print('\n'.join(f'    {file}: {number}' for file, number in files.most_common()))


if __name__ == '__main__':
    main()
