"""A dead worker of a loader is told with its sample, by the real tool."""

import ctypes
import os
import re
import signal

import bad_inputs
import pytest
from bad_inputs import child, prepare, run
from mmcv.transforms import TRANSFORMS

from vitplug.errors.stops import BadSample, WorkerDied
from vitplug.runs.data.workers import explained

WAYS = {'crash': lambda: ctypes.string_at(0), 'kill': lambda: os.kill(os.getpid(), signal.SIGKILL)}


@pytest.fixture
def folder(tmp_path):
    @TRANSFORMS.register_module(force=True)
    class DyingOn:
        def __init__(self, path, way):
            self.path, self.way = path, WAYS[way]

        def __call__(self, results):
            if results['img_path'].endswith(self.path):
                self.way()
            return results

    yield prepare(tmp_path / 'row')
    del TRANSFORMS._module_dict['DyingOn']


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize(
    ('way', 'split', 'status', 'message'),
    [
        ('crash', 'train', 65, r'died (SIGSEGV) of data/train/dog/1.png: repair or remove this image'),
        ('kill', 'train', 71, r'died (SIGKILL) while it read data/train/dog/1.png: most likely memory ran out'),
        ('crash', 'val', 65, r'died (SIGSEGV) of data/val/dog/1.png'),
    ],
)
def test_dead_worker_is_told_with_its_image(way, split, status, message, folder):
    pipeline = bad_inputs.PIPELINE.replace('[', f"[dict(type='DyingOn', path='dog/1.png', way='{way}'), ", 1)
    child(f'{split}_dataloader = dict(num_workers=2, dataset=dict(pipeline={pipeline}))')(folder)
    outcome = run('train.py child.py', folder)
    assert outcome.status == status, outcome.text
    [line] = [line for line in outcome.err.splitlines() if line.startswith('error: ')]
    assert message in line and 'backbone' not in line and 'Traceback' not in outcome.text


@pytest.mark.parametrize(
    ('number', 'path', 'kind', 'message'),
    [
        (signal.SIGABRT, 'a.png', BadSample, r'SIGABRT.* of a\.png'),
        (signal.SIGSEGV, None, WorkerDied, r'process 7\) died \(SIGSEGV\): look'),
        (signal.SIGTERM, 'a.png', WorkerDied, r'SIGTERM.*while it read a\.png: look'),
        (None, 'a.png', WorkerDied, r'died while it read a\.png: look'),
    ],
)
def test_an_image_is_blamed_for_crashes_only(number, path, kind, message):
    stop = explained(7, number, path)
    assert type(stop) is kind and re.search(message, str(stop))
