"""Runs a command as a user types it, in this process."""

import contextlib
import functools
import io
import os
import shlex
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from unittest import mock

import torch
from mmengine.logging import MMLogger
from mmengine.runner import runner as mmengine_runner
from mmengine.runner.checkpoint import CheckpointLoader
from mmengine.utils import ManagerMixin

from vitplug.runs.hooks.interruption import SIGNALS

ROOT = Path(__file__).resolve().parents[2]
TOOLS = {path.name: path for folder in ('tools', 'docs/tools') for path in (ROOT / folder).rglob('*.py')}


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit status, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@functools.cache
def _main(tool: str) -> Callable[[], object]:
    """The function behind a tool, as its file runs it."""
    spec = spec_from_file_location(Path(tool).stem, TOOLS[tool])
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    code = textwrap.dedent(TOOLS[tool].read_text().partition("if __name__ == '__main__':\n")[2])
    return functools.partial(exec, compile(code, tool, 'exec'), vars(module))


@contextlib.contextmanager
def own_process(folder: Path) -> Iterator[None]:
    """Makes a command in this process leave nothing behind: folder, readers of files, what mmengine keeps."""
    before, schemes, threads = Path.cwd(), dict(CheckpointLoader._schemes), torch.get_num_threads()
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    environment = {**os.environ, 'LOCAL_RANK': '0', 'COLUMNS': '120', 'TORCH_HOME': str(folder)}
    os.chdir(folder)
    try:
        # mmengine asks compilers and, for each checkpoint, git for versions, which takes a second.
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch.object(mmengine_runner, 'collect_env', dict),
            mock.patch.object(mmengine_runner, 'get_git_hash', str),
        ):
            yield
    finally:
        os.chdir(before)
        CheckpointLoader._schemes = schemes
        torch.set_num_threads(threads)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for handler in (handler for logger in MMLogger._instance_dict.values() for handler in logger.handlers):
            with contextlib.suppress(OSError):  # of a full disk
                handler.close()
        for manager in (ManagerMixin, *_subclasses(ManagerMixin)):
            manager._instance_dict.clear()


def _subclasses(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield from (child, *_subclasses(child))


def run(command: str, folder: Path) -> Outcome:
    """Runs the command of a row, such as ``train.py tiny.py``, in a folder."""
    tool, *arguments = shlex.split(command)
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        own_process(folder),
        mock.patch.object(sys, 'argv', [tool, *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            _main(tool)()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Outcome(status, out.getvalue(), err.getvalue())


def run_to(status: int, command: str, folder: Path) -> Outcome:
    """Runs a command that is to end with an exit status."""
    outcome = run(command, folder)
    assert outcome.status == status, outcome.text[-3000:]
    return outcome


def snapshot(folder: Path) -> dict[Path, bytes]:
    """Every file of a folder."""
    return {path: path.read_bytes() for path in folder.rglob('*') if path.is_file()}
