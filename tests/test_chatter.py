"""Known lines of libraries are left out of what the tools print, and nothing else."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from vitplug import chatter

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ('texts', 'kept'),
    [
        (['Could not import OneDL', '\n', 'mIoU', '\n'], 'mIoU\n'),
        (['creating index...\n', '\n', 'a\n'], '\na\n'),
        (['Done (t=0.07s)', '\n', 'Done (t=0.07s): 3 images', '\n'], 'Done (t=0.07s): 3 images\n'),
        (['Could not import OneDL, because', '\n'], 'Could not import OneDL, because\n'),
        (['index created!', ' twice', '\n'], ' twice\n'),
    ],
)
def test_whole_known_lines_are_left_out(texts, kept, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, 'stdout', stream)
    chatter.filter_lines()
    chatter.filter_lines()  # the second time changes nothing
    for text in texts:
        sys.stdout.write(text)
    assert stream.getvalue() == kept and sys.stdout.isatty() is False


@pytest.mark.integration
@pytest.mark.slow
def test_a_tool_without_them():
    """The libraries print them when they are imported."""
    code = 'import mmseg.datasets, mmpretrain.datasets, mmdet.datasets; print("end")'
    command = f'from vitplug import chatter; chatter.filter_lines(); {code}'
    done = subprocess.run([sys.executable, '-c', command], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, 'end\n'), done.stderr
