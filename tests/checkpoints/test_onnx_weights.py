"""Weights out of ONNX files, as torch's exporter leaves them: transposed, cut, or without a name."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vitplug.checkpoints.files import find_weights, read_checkpoint

pytestmark = pytest.mark.filterwarnings('ignore')


class Embeddings(nn.Module):
    """A table of positions that is resized, as transformers has it."""

    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, 8))
        self.position_embeddings = nn.Parameter(torch.randn(1, 17, 8))
        self.projection = nn.Conv2d(3, 8, 4, 4)

    def forward(self, x):
        tokens = torch.cat((self.cls_token.expand(len(x), -1, -1), self.projection(x).flatten(2).transpose(1, 2)), 1)
        first, grid = self.position_embeddings[:, :1], self.position_embeddings[:, 1:]
        grid = grid.reshape(1, 4, 4, tokens.shape[-1]).permute(0, 3, 1, 2)
        grid = nn.functional.interpolate(grid, (x.shape[2] // 4, x.shape[3] // 4), mode='bicubic')
        return tokens + torch.cat((first, grid.permute(0, 2, 3, 1).view(1, -1, 8)), 1)


class Network(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.embeddings, self.norm, self.factor = Embeddings(), nn.LayerNorm(8), factor
        self.layer = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.called = nn.Sequential(nn.Sequential(nn.Linear(8, 8)), nn.GELU())

    def forward(self, x):
        x = self.called(self.norm(self.embeddings(x)))
        for layer in self.layer:
            x = layer(x)
        return x * (self.norm.weight * self.factor) if self.factor != 1 else x


def export(model, path):
    x = torch.randn(1, 3, 24, 24)
    axes = {'x': {2: 'height', 3: 'width'}}
    torch.onnx.export(model.eval(), (x,), path, dynamo=False, input_names=['x'], dynamic_axes=axes)
    return read_checkpoint(path)


def test_names_and_values_are_those_of_torch(tmp_path):
    torch.manual_seed(0)
    model = Network()
    state, _ = find_weights(export(model, tmp_path / 'a.onnx'), 'a.onnx')
    assert_close(state, dict(model.state_dict()), rtol=0, atol=0)


def test_a_tensor_that_has_lost_its_name_is_refused(tmp_path):
    with pytest.raises(OSError, match=r'a.onnx: 1 tensors have lost their names, such as onnx::Mul_\d+ of \(8,\)'):
        export(Network(factor=2.0), tmp_path / 'a.onnx')
    pytest.importorskip('onnxscript')
    torch.onnx.export(nn.Linear(8, 8), (torch.ones(1, 3, 8),), tmp_path / 'b.onnx', dynamo=True, verbose=False)
    with pytest.raises(OSError, match=r'b.onnx: 1 tensors have lost their names, such as val_\d+ of \(8, 8\)'):
        read_checkpoint(tmp_path / 'b.onnx')


def test_a_broken_file_is_refused(tmp_path):
    (tmp_path / 'a.onnx').write_bytes(b'no graph')
    with pytest.raises(ValueError, match=r'a.onnx is truncated or no checkpoint'):
        read_checkpoint(tmp_path / 'a.onnx')
