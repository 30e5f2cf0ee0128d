"""Whose files a training writes and goes on from."""

import os
import time

import pytest
from mmengine.config import ConfigDict

from vitplug.files.atomic import write_beside
from vitplug.runs.saving.folders import check_unused, choose_start, last_checkpoint


def write(path, content='x'):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.mark.parametrize('name', ['epoch_1.pth', 'last_checkpoint'])
def test_fresh_training_spares_earlier_checkpoints(tmp_path, name):
    write(tmp_path / '20260101_000000' / 'run.log')
    check_unused(tmp_path)
    write(tmp_path / name)
    with pytest.raises(FileExistsError, match=f'{tmp_path}.*--resume.*--work-dir'):
        choose_start(ConfigDict(work_dir=str(tmp_path)))


def test_resume_goes_on_from_the_noted_checkpoint_or_starts(tmp_path):
    cfg = ConfigDict(work_dir=str(tmp_path), resume='auto', load_from='pretrained.pth')
    choose_start(cfg)
    assert cfg.resume is False and cfg.load_from == 'pretrained.pth'
    write(tmp_path / 'epoch_1.pth')
    write(tmp_path / 'epoch_2.pth')
    write(tmp_path / 'last_checkpoint', str(tmp_path / 'epoch_1.pth'))
    cfg.resume = 'auto'
    choose_start(cfg)
    assert cfg.resume is True and cfg.load_from == str(tmp_path / 'epoch_1.pth')


def test_a_folder_that_was_moved_has_its_checkpoint_beside_the_note(tmp_path):
    write(tmp_path / 'last_checkpoint', '/elsewhere/epoch_1.pth')
    write(tmp_path / 'epoch_1.pth')
    write(tmp_path / 'epoch_2.pth')
    assert last_checkpoint(tmp_path) == tmp_path / 'epoch_1.pth'


def test_without_a_note_the_newest_counts_but_no_best_one(tmp_path):
    assert last_checkpoint(tmp_path) is None
    now = time.time()
    for age, name in enumerate(['best_score_epoch_3.pth', 'epoch_2.pth', 'epoch_10.pth']):
        os.utime(write(tmp_path / name), (now - age, now - age))
    assert last_checkpoint(tmp_path) == tmp_path / 'epoch_2.pth'


def test_older_checkpoint_of_the_same_training_may_be_named(tmp_path):
    write(tmp_path / 'run/last_checkpoint')
    choose_start(ConfigDict(work_dir=str(tmp_path / 'run'), resume=True, load_from=str(tmp_path / 'run/epoch_1.pth')))
    with pytest.raises(FileExistsError):
        choose_start(ConfigDict(work_dir=str(tmp_path / 'run'), resume=True, load_from=str(tmp_path / 'a/epoch_1.pth')))


def test_a_text_is_written_once_and_over_nothing(tmp_path):
    path = write(tmp_path / 'a.py', 'mine')
    (tmp_path / 'a_2.py').symlink_to(tmp_path / 'nowhere')
    assert write_beside(path, 'dump') == write_beside(path, 'dump') == tmp_path / 'a_3.py'
    assert path.read_text() == 'mine' and not (tmp_path / 'nowhere').exists()
