"""Wrong inputs of each kind end in one line that names the culprit; nothing that was there is overwritten."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from bad_inputs import child, run, snapshot, starting, write


@dataclass(frozen=True)
class Row:
    """What a user types, without `python tools/...`, the message, what makes the input bad, and the exit status."""

    command: str
    error: str
    make: Callable[[Path], object] = lambda folder: None
    status: int = 2


def options(*settings: str) -> str:
    return f'train.py tiny.py --cfg-options {" ".join(settings)}'


ROWS = {
    'missing config': Row('train.py tinny.py', r"no such config: tinny\.py; did you mean 'tiny\.py'\?"),
    'broken config': Row('train.py bad.py', r'bad\.py is no config \(SyntaxError', write('bad.py', 'model = dict(')),
    'no scope': Row('train.py bad.py', r'default_scope = None: set it to one of', write('bad.py', 'model = dict()')),
    'unknown scope': Row('get_flops.py tiny.py --cfg-options default_scope=mmnothing', 'mmnothing'),
    'no setting': Row('print_config.py tiny.py --cfg-options model', 'KEY=VALUE'),
    'no model': Row('train.py bad.py', r'no `?model', write('bad.py', "default_scope = 'mmpretrain'")),
    'slip in a key': Row(options('train_dataloder.batch_size=2'), r"did you mean 'train_dataloader'"),
    'slip in a class': Row(
        options('model.backbone.type=vitplug.VisionTransfomer'), r'vitplug\.VisionTransfomer is not in the '
    ),
    'slip in an argument': Row(
        'get_flops.py child.py',
        r"VisionTransformer\.__init__\(\) got an unexpected keyword argument 'drop_path_rat'",
        child('model = dict(backbone=dict(drop_path_rat=0.1))'),
    ),
    'unknown optimizer': Row(
        options('optim_wrapper.optimizer.type=Adamw'), r"type = 'Adamw': unknown; did you mean 'Adam"
    ),
    'unknown plug': Row('get_flops.py tiny.py --plugs Nothing', r"type='Nothing' is no plug; choose from .*'Refiner'"),
    'backbone without a host': Row(
        'get_flops.py child.py --plugs gab',
        r"'ResNet' takes no plugs, and vitplug has no host",
        child("model = dict(backbone=dict(_delete_=True, type='ResNet', depth=18))"),
    ),
    'head for another width': Row(
        'get_flops.py tiny.py --cfg-options model.head.in_channels=9', r'cannot be run on images of 16x16: .*8\] X \[9'
    ),
    'other classes': Row(options('model.head.num_classes=80'), r'model\.head\.num_classes = 80: set it to 2'),
    'missing data': Row(options('train_dataloader.dataset.data_root=nowhere'), r'no such data folder: .*nowhere'),
    'results over a file': Row(
        'test.py tiny.py good.pth --out a.pkl', r'--out: a\.pkl exists and is not overwritten', write('a.pkl', 'kept')
    ),
    'missing picture': Row('predict.py tiny.py good.pth nowhere.jpg --out a', r'no such image, .*nowhere\.jpg'),
    'missing checkpoint': Row('test.py tiny.py god.pth', r'CHECKPOINT: no such checkpoint: god\.pth; .*good\.pth'),
    'no checkpoint': Row('test.py tiny.py bad.pth', r'bad\.pth .*no checkpoint', write('bad.pth', '<html>404</html>')),
    'checkpoint of another model': Row(
        'test.py tiny.py bad.pth',
        r'bad\.pth does not fit',
        lambda folder: torch.save(dict(state_dict={'a': torch.zeros(1)}), folder / 'bad.pth'),
    ),
    'weights of another width': Row(
        'train.py child.py',
        r'good\.pth: .*size mismatch for pos_embed',
        starting('good.pth', 'arch=dict(embed_dims=16)'),
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize('title', ROWS)
def test_wrong_input_ends_in_one_line(title, folder):
    row = ROWS[title]
    row.make(folder)
    before = snapshot(folder)
    outcome = run(row.command, folder)
    assert re.search(row.error, outcome.text), outcome.text[-2000:]
    assert outcome.status == row.status and 'Traceback' not in outcome.text
    assert title != 'missing data' or not (folder / 'work').exists()
    after = snapshot(folder)
    assert all(after.get(path) == content for path, content in before.items())
    assert len(re.findall(r'^(?:[\w /.]+: )?error: | - ERROR - ', outcome.text, re.M)) == 1


@pytest.mark.integration
def test_sound_input_passes(folder):
    """Otherwise any message would do."""
    for command in ('train.py tiny.py', 'test.py tiny.py good.pth', 'get_flops.py tiny.py'):
        assert run(command, folder).status == 0
    assert run('check_dataset.py tiny.py', folder).out.endswith('0 errors\n')
