"""Whose files a training writes, removes and goes on from."""

import os
import shutil

import pytest
import torch
from bad_inputs import copied, recorded, run, snapshot
from mmengine.config import ConfigDict

from vitplug.files.atomic import add_line, write_beside
from vitplug.runs.saving.folders import check_last_checkpoint, check_run_folders, check_unused, run_folders


def write(path, content='x'):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


# --- what is checked before ---


@pytest.mark.parametrize('name', ['epoch_1.pth', 'last_checkpoint'])
def test_fresh_training_spares_earlier_checkpoints(tmp_path, name):
    write(tmp_path / name)
    with pytest.raises(FileExistsError, match=f'{tmp_path}.*--resume.*--work-dir'):
        check_unused(tmp_path)


def test_fresh_training_may_use_a_folder_with_logs_only(tmp_path):
    write(tmp_path / '20260101_000000' / 'run.log')
    check_unused(tmp_path)


def test_last_checkpoint_must_still_exist(tmp_path):
    write(tmp_path / 'last_checkpoint', str(tmp_path / 'moved.pth'))
    with pytest.raises(FileNotFoundError, match=r'moved\.pth.*--resume PATH'):
        check_last_checkpoint(tmp_path, [tmp_path])
    write(tmp_path / 'moved.pth')
    check_last_checkpoint(tmp_path, [tmp_path])


def test_nothing_to_resume_is_no_error(tmp_path):
    check_last_checkpoint(tmp_path, [tmp_path])


def test_folders_are_those_that_mmengine_writes_into(tmp_path):
    def folders(out_dir):
        return run_folders(ConfigDict(work_dir='a/run/', default_hooks=dict(checkpoint=dict(out_dir=out_dir))))

    assert folders(None) == folders(os.path.abspath('a/run')) == [tmp_path.cwd() / 'a/run']
    assert folders('out') == [tmp_path.cwd() / 'a/run', tmp_path.cwd() / 'out/run']
    assert folders('s3://bucket') == [tmp_path.cwd() / 'a/run']


def test_older_checkpoint_of_the_same_training_may_be_named(tmp_path):
    """Where its checkpoints have a folder of their own, too."""
    write(tmp_path / 'run/last_checkpoint')
    cfg = ConfigDict(work_dir=str(tmp_path / 'run'), resume=True, load_from=str(tmp_path / 'out/run/epoch_1.pth'))
    with pytest.raises(FileExistsError):
        check_run_folders(cfg)
    cfg.default_hooks = dict(checkpoint=dict(out_dir=str(tmp_path / 'out')))
    check_run_folders(cfg)


@pytest.mark.integration
def test_resume_starts_from_the_weights_of_the_config_and_goes_on_without_them(folder):
    """Jobs that a cluster starts again always say `--resume`."""
    command = 'train.py tiny.py --work-dir new --resume --cfg-options load_from=good.pth log_level=INFO'
    first = run(f'{command} train_cfg.max_epochs=1', folder)
    assert first.status == 0 and 'Load checkpoint from good.pth' in first.text and 'resumed' not in first.text
    (folder / 'good.pth').unlink()
    again = run(f'{command} train_cfg.max_epochs=2', folder)
    assert again.status == 0 and 'resumed epoch: 1' in again.text, again.text[-2000:]
    shutil.rmtree(folder / 'new')
    missing = run(f'{command} train_cfg.max_epochs=1', folder)
    assert missing.status == 2 and missing.err == 'error: load_from: no such checkpoint: good.pth\n'


# --- what a training removes ---


@pytest.mark.integration
def test_records_in_a_checkpoint_remove_nothing_but_checkpoints(folder):
    """Numbers of old checkpoints that are no numbers, and a best one that is none."""
    (folder / 'work').mkdir()
    precious = [folder / 'work' / name for name in ('epoch_notes.pth', 'epoch_-1.pth', 'epoch_True.pth', 'best.txt')]
    for path in precious:
        path.write_text('precious')
    (folder / 'work/epoch_0.pth').mkdir()
    records = dict(keep_ckpt_ids=['notes', -1, True, 0, 1], best_ckpt=str(precious[-1]), best_score=-1.0)
    recorded(**records)(folder)
    shutil.move(folder / 'bad.pth', folder / 'work/start.pth')
    hook = 'default_hooks.checkpoint'
    options = f'train_cfg.max_epochs=3 {hook}.max_keep_ckpts=1 {hook}.save_best=accuracy/top1'
    outcome = run(f'train.py tiny.py --resume work/start.pth --cfg-options {options}', folder)
    assert outcome.status == 0, outcome.text[-2000:]
    assert all(path.read_text() == 'precious' for path in precious) and (folder / 'work/epoch_0.pth').is_dir()
    assert 'epoch_1.pth' not in os.listdir(folder / 'work')  # what this training wrote is counted


@pytest.mark.integration
def test_best_checkpoint_of_another_work_dir_stays(folder):
    options = '--cfg-options default_hooks.checkpoint.save_best=accuracy/top1'
    assert run(f'train.py tiny.py --work-dir old {options}', folder).status == 0
    content = torch.load(folder / 'old/epoch_1.pth', weights_only=False)
    assert content['message_hub']['runtime_info']['best_ckpt'].startswith(str(folder / 'old/best_'))
    content['message_hub']['runtime_info']['best_score'] = -1.0  # any result is better
    torch.save(content, folder / 'old/epoch_1.pth')
    before = snapshot(folder / 'old')
    command = f'train.py tiny.py --resume old/epoch_1.pth --work-dir new {options} train_cfg.max_epochs=2'
    assert run(command, folder).status == 0
    assert snapshot(folder / 'old') == before
    assert list((folder / 'new').glob('best_*.pth'))


@pytest.mark.integration
def test_newest_checkpoint_that_is_named_can_be_resumed(folder):
    copied('work/epoch_1.pth', 'work/best_epoch_1.pth')(folder)
    weights = torch.load(folder / 'good.pth', weights_only=False)
    del weights['optimizer']
    torch.save(weights, folder / 'work/best_epoch_1.pth')
    outcome = run('train.py tiny.py --resume', folder)
    assert outcome.status == 2 and outcome.err.rstrip().endswith('work/epoch_1.pth')
    assert run(f'train.py tiny.py --resume {outcome.err.split()[-1]}', folder).status == 0


@pytest.mark.integration
def test_checkpoint_of_another_model_is_not_advised(folder):
    copied('work/epoch_1.pth', 'work/epoch_2.pth')(folder)
    outcome = run('train.py tiny.py --resume work/epoch_2.pth --cfg-options model.backbone.arch.num_layers=3', folder)
    assert outcome.status == 66 and 'newest good' not in outcome.err


@pytest.mark.integration
def test_note_that_is_no_file_is_not_waited_for(folder):
    copied('work/epoch_1.pth')(folder)
    os.mkfifo(folder / 'work/last_checkpoint')
    outcome = run('train.py tiny.py --resume', folder)
    assert outcome.status == 2 and 'last_checkpoint is missing or no file' in outcome.err


# --- what is written beside ---


def test_a_text_is_written_once_and_over_nothing(tmp_path):
    path = write(tmp_path / 'a.py', 'mine')
    (tmp_path / 'a_2.py').symlink_to(tmp_path / 'nowhere')
    assert write_beside(path, 'dump') == write_beside(path, 'dump') == tmp_path / 'a_3.py'
    assert write_beside(path, 'other') == tmp_path / 'a_4.py'
    assert path.read_text() == 'mine' and not (tmp_path / 'nowhere').exists()


@pytest.mark.parametrize('plant', ['symlink_to', 'hardlink_to', None])
def test_a_line_is_added_to_no_other_file(tmp_path, plant):
    target, path = write(tmp_path / 'target'), tmp_path / 'records.jsonl'
    getattr(path, plant)(target) if plant else os.mkfifo(path)
    with pytest.raises(FileExistsError, match=r'records\.jsonl is a link or no regular file'):
        add_line(path, 'line')
    assert target.read_text() == 'x'


def test_lines_are_added(tmp_path):
    for line in 'ab':
        add_line(tmp_path / 'records.jsonl', line)
    assert (tmp_path / 'records.jsonl').read_text() == 'a\nb\n'
