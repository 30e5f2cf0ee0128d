"""The commands: what they write, and that errors are one line and cost nothing."""

import re

import pytest
import torch
from cases import randomize, swin, vit
from safetensors.torch import load_file

from vitplug.checkpoints import read_checkpoint
from vitplug.checkpoints.checkpoint_commands import convert_main


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[key], value) for key, value in expected.items())


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
@pytest.mark.parametrize('host', [vit, swin], ids=['vit', 'swin'])
def test_to_timm_and_back(host, suffix, tmp_path, capsys):
    settings = dict(out_indices=(1,)) if host is swin else {}
    stock = {f'backbone.{key}': value for key, value in randomize(host(**settings)).state_dict().items()}
    stock = {key: value for key, value in stock.items() if not key.endswith('relative_position_index')}
    torch.save(dict(state_dict=stock, meta=dict(epoch=1)), tmp_path / 'stock.pth')
    capsys.readouterr()
    timm, back = tmp_path / f'timm{suffix}', tmp_path / f'back{suffix}'
    convert_main([str(tmp_path / 'stock.pth'), str(timm), '--to', 'timm'])
    convert_main([str(timm), str(back)])
    printed = capsys.readouterr().out.splitlines()
    assert re.search(rf'timm{suffix}: {len(stock)} tensors, from OpenMMLab \w+ to timm', printed[0])
    assert re.search(r'from timm \w+ to vitplug', printed[1])
    written = load_file(timm) if suffix == '.safetensors' else torch.load(timm, weights_only=True)
    assert len(written) == len(stock) and not any(key.startswith('backbone.') for key in written)
    assert_same(read_checkpoint(back)['state_dict'], stock)


def test_meta_is_kept(tmp_path):
    torch.save(dict(state_dict=vit().state_dict(), meta=dict(epoch=1)), tmp_path / 'stock.pth')
    convert_main([str(tmp_path / 'stock.pth'), str(tmp_path / 'new.safetensors')])
    assert read_checkpoint(tmp_path / 'new.safetensors')['meta'] == dict(epoch=1)


def fails(capsys, command, *argv):
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        command([str(word) for word in argv])
    assert stop.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize('wrapper', ['', 'module.', '_orig_mod.'])
def test_prefix_that_leaves_task_heads_out_is_named(wrapper, tmp_path, capsys):
    source, target = tmp_path / 'segmentor.pth', tmp_path / 'timm.pth'
    state = {f'backbone.{key}': value for key, value in vit().state_dict().items()}
    state |= {'decode_head.conv_seg.weight': torch.zeros(3, 24, 1, 1)}
    torch.save({f'{wrapper}{key}': value for key, value in state.items()}, source)
    line = fails(capsys, convert_main, source, target, '--to', 'timm')
    [prefix] = re.findall(r'--prefix (\S+)\)', line)
    convert_main([str(source), str(target), '--to', 'timm', '--prefix', prefix])
    assert len(torch.load(target)) == len(state) - 1


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
