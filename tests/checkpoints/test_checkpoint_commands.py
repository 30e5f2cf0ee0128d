"""The command: what it writes, and that errors are one line and cost nothing."""

import pytest
import timm
import torch
from cases import vit

from vitplug.checkpoints import convert, read_checkpoint
from vitplug.checkpoints.checkpoint_commands import convert_main


def test_weights_and_meta_in_a_new_file(tmp_path, capsys):
    state = timm.create_model('test_vit').state_dict()
    torch.save(
        dict(state_dict={f'teacher.{k}': v for k, v in state.items()}, meta=dict(epoch=1)), tmp_path / 'timm.pth'
    )
    capsys.readouterr()
    convert_main([str(tmp_path / 'timm.pth'), str(tmp_path / 'new.pth'), '--prefix', 'teacher'])
    assert f'new.pth: {len(state)} tensors, from {len(state)} of timm ViT' in capsys.readouterr().out
    written, expected = read_checkpoint(tmp_path / 'new.pth'), convert(state).state
    assert written['meta'] == dict(epoch=1) and written['state_dict'].keys() == expected.keys()
    assert all(torch.equal(value, expected[key]) for key, value in written['state_dict'].items())


def fails(capsys, command, *argv):
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        command([str(word) for word in argv])
    assert stop.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_convert_refuses(tmp_path, capsys):
    torch.save(vit().state_dict(), tmp_path / 'stock.pth')
    torch.save({'conv.weight': torch.zeros(1)}, tmp_path / 'resnet.pth')
    (tmp_path / 'there.pth').write_text('precious')
    there = fails(capsys, convert_main, tmp_path / 'stock.pth', tmp_path / 'there.pth')
    assert there.startswith('error: ') and 'there.pth exists and is not overwritten' in there
    assert (tmp_path / 'there.pth').read_text() == 'precious'
    assert 'resnet.pth: the keys' in fails(capsys, convert_main, tmp_path / 'resnet.pth', tmp_path / 'new.pth')
    assert 'no such checkpoint' in fails(capsys, convert_main, tmp_path / 'none.pth', tmp_path / 'new.pth')
    assert 'new.onnx must end in .pth or' in fails(capsys, convert_main, tmp_path / 'stock.pth', tmp_path / 'new.onnx')
    assert not (tmp_path / 'new.pth').exists()
