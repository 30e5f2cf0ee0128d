"""Where the stacks differ: pinned, so that a later release that behaves otherwise shows up here."""

import copy
import logging
import os

import pytest
import torch
from cases import HOSTS, PLUGS, images
from mmengine.runner.checkpoint import CheckpointLoader
from stacks import STACK, has_half_on_cpu
from torch.testing import assert_close


def test_half_precision_on_a_cpu():
    assert has_half_on_cpu() == (STACK != 'openmmlab')
    ones = torch.ones(2, 2, dtype=torch.bfloat16)
    assert torch.equal(ones @ ones, 2 * ones)


@pytest.mark.parametrize('host', ['vit', 'swin'])
def test_graphs_of_a_compiled_model(host):
    """One graph of all, or of what follows the backbone: the compiler of torch 2.1 cannot go into it."""
    backbone, graphs = HOSTS[host](plugs=copy.deepcopy(PLUGS['residual'])).double().eval(), []

    def note(graph, inputs):
        graphs.append({str(node.target) for node in graph.graph.nodes})
        return graph

    def model(x):
        return [out * 2 for out in backbone(x)]

    x = images(32, 48)
    assert_close(torch.compile(model, backend=note)(x), model(x))
    [found] = graphs
    assert any('mul' in target for target in found)
    assert any('softmax' in target for target in found) == (STACK != 'openmmlab')
    if STACK == 'openmmlab':
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match=r'PluggedBackbone\.forward'):
            torch.compile(model, backend='eager', fullgraph=True)(x)


class Opens:
    """A pickle that makes a folder when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_mmengine_alone_runs_the_code_of_a_checkpoint(tmp_path, caplog):
    """In silence or after a warning, on every stack: vitplug's tools read checkpoints by themselves."""
    torch.save(dict(state_dict=Opens(tmp_path / 'made')), tmp_path / 'foreign.pth')
    caplog.set_level(logging.WARNING)
    CheckpointLoader.load_checkpoint(str(tmp_path / 'foreign.pth'), map_location='cpu')
    assert (tmp_path / 'made').is_dir()
