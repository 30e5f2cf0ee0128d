"""The demo on a trained ViT, with random weights and small pictures."""

import pytest
import torch

from vitplug.lab import pretrained_demo as pretrained

pytestmark = pytest.mark.integration


def test_the_demo_grows_plugs_draws_and_compares(digits, tmp_path, monkeypatch, capsys):
    for name, value in dict(SIDE=56, PAGE_SIDE=28, BANK=6, TESTED=4, GROWN=('attn-scale', 'gab')).items():
        monkeypatch.setattr(pretrained, name, value)
    monkeypatch.setattr(pretrained, 'make_digit_scenes', lambda root: None)
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'checkpoints').mkdir()
    torch.save(pretrained.network(None).state_dict(), tmp_path / 'checkpoints' / pretrained.WEIGHTS)
    pretrained.main([f'--work-dir={tmp_path / "demo"}'])
    out = capsys.readouterr().out
    [scaled, gab] = (next(line for line in out.splitlines() if line.startswith(plugs)) for plugs in pretrained.GROWN)
    assert ' 0.0e+00 of ' in scaled and ' 0.0e+00 of ' not in gab
    assert 'minus initial' in out and 'pip' not in out
    [page] = tmp_path.glob('demo/*/microscope.html')
    assert page.stat().st_size > 10_000 and (page.parent / 'attention.png').stat().st_size > 10_000
