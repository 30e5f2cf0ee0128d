"""Runs a command as a user types it, in this process."""

import contextlib
import functools
import io
import os
import shlex
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from unittest import mock

from mmengine.logging import MMLogger
from mmengine.runner import runner as mmengine_runner
from mmengine.runner.checkpoint import CheckpointLoader
from mmengine.utils import ManagerMixin

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


def clear_managers() -> None:
    """Forgets what mmengine keeps for a process: scopes, loggers, message hubs and visualizers."""
    kinds = [ManagerMixin]
    for kind in kinds:  # grows meanwhile
        kind._instance_dict.clear()
        kinds += kind.__subclasses__()


def run(command: str, folder: Path) -> Outcome:
    """Runs the command of a row, such as ``train.py tiny.py``, in a folder; the next one finds a process as it was."""
    tool, *arguments = shlex.split(command)
    out, err, status, before = io.StringIO(), io.StringIO(), 0, Path.cwd()
    environment = {**os.environ, 'LOCAL_RANK': '0', 'COLUMNS': '120', 'TORCH_HOME': str(folder)}
    os.chdir(folder)
    # mmengine asks compilers and, for each checkpoint, git for versions, which takes a second.
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.dict(CheckpointLoader._schemes),
        mock.patch.object(mmengine_runner, 'collect_env', dict),
        mock.patch.object(mmengine_runner, 'get_git_hash', str),
        mock.patch.object(sys, 'argv', [tool, *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            _main(tool)()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            os.chdir(before)
            for handler in (handler for logger in MMLogger._instance_dict.values() for handler in logger.handlers):
                with contextlib.suppress(OSError):  # of a full disk
                    handler.close()
            clear_managers()
    return Outcome(status, out.getvalue(), err.getvalue())


def run_to(status: int, command: str, folder: Path) -> Outcome:
    """Runs a command that is to end with an exit status."""
    outcome = run(command, folder)
    assert outcome.status == status, outcome.text[-3000:]
    return outcome


def snapshot(folder: Path) -> dict[Path, bytes]:
    """Every file of a folder."""
    return {path: path.read_bytes() for path in folder.rglob('*') if path.is_file()}
