"""The command: what it writes, says that it leaves out, and refuses."""

import pytest
import timm
import torch
from cases import vit

from vitplug.checkpoints import convert, read_checkpoint
from vitplug.checkpoints.checkpoint_commands import convert_main


def test_weights_and_meta_in_a_new_file(tmp_path, capsys):
    state = timm.create_model('test_vit').state_dict()
    given = {f'teacher.{key}': value for key, value in state.items()} | {'student.head.bias': torch.zeros(1)}
    given['teacher.gauge.bias'] = torch.zeros(1)
    torch.save(dict(state_dict=given, meta=dict(epoch=1)), tmp_path / 'timm.pth')
    capsys.readouterr()
    convert_main([str(tmp_path / 'timm.pth'), str(tmp_path / 'new.pth'), '--prefix', 'teacher'])
    origin = f'from {len(given)} of timm ViT in state_dict; left out: student.head.bias'
    kept = 'no such network has these, kept all the same: backbone.gauge.bias'
    assert f'new.pth: {len(given) - 1} tensors, {origin}; {kept}' in capsys.readouterr().out
    state['gauge.bias'] = given['teacher.gauge.bias']
    written, expected = read_checkpoint(tmp_path / 'new.pth'), convert(state).state
    assert (
        written['meta'] == dict(epoch=1, converted_from='timm ViT') and written['state_dict'].keys() == expected.keys()
    )
    assert all(torch.equal(value, expected[key]) for key, value in written['state_dict'].items())


def test_convert_refuses(tmp_path):
    torch.save(vit().state_dict(), tmp_path / 'stock.pth')
    torch.save({'conv.weight': torch.zeros(1)}, tmp_path / 'resnet.pth')
    (tmp_path / 'there.pth').write_text('precious')
    for source, target, message in (
        ('stock.pth', 'there.pth', r'there\.pth exists and is not overwritten'),
        ('resnet.pth', 'new.pth', r'resnet\.pth: the keys'),
        ('none.pth', 'new.pth', 'no such checkpoint'),
        ('stock.pth', 'new.onnx', r'new\.onnx must end in \.pth or'),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            convert_main([str(tmp_path / source), str(tmp_path / target)])
    assert (tmp_path / 'there.pth').read_text() == 'precious' and not (tmp_path / 'new.pth').exists()
