"""Where the stacks differ: pinned, so that a later release that behaves otherwise shows up here."""

import copy
import dataclasses
import logging
import os
import resource
import sys
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch
from cases import HOSTS, PLUGS, images
from mmengine.runner.checkpoint import CheckpointLoader
from mmengine.utils import get_installed_path
from stacks import STACK, has_half_on_cpu
from torch.testing import assert_close

from vitplug.compat import CAN_COMPILE, replace


def test_half_precision_on_a_cpu():
    assert has_half_on_cpu() == (STACK != 'openmmlab')
    ones = torch.ones(2, 2, dtype=torch.bfloat16)
    assert torch.equal(ones @ ones, 2 * ones)


@pytest.mark.integration
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


@dataclass(frozen=True)
class Pair:
    first: torch.Tensor
    second: torch.Tensor


@pytest.mark.skipif(not CAN_COMPILE, reason='the compiler of torch 2.1 does not follow the backbones anyway')
def test_compiler_follows_replaced_fields():
    """Of vitplug's own function; the library's stops the compiler of torch 2.5."""

    def doubled(replaced, x):
        return replaced(Pair(x, x), second=2 * x).second

    x = torch.ones(2)
    assert_close(torch.compile(doubled, fullgraph=True, backend='eager')(replace, x), 2 * x)
    unknown = nullcontext() if STACK == 'onedl' else pytest.raises(torch._dynamo.exc.Unsupported, match='replace')
    with unknown:
        torch.compile(doubled, fullgraph=True, backend='eager')(dataclasses.replace, x)


def test_torchs_own_hooks_of_optimizers_once_the_compiler_was_used():
    """On torch 2.1 they are gone, without a word; vitplug's hooks do not need them."""
    torch.compile(lambda x: x + 1, backend='eager')(torch.zeros(2))
    optimizer, seen = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5), []
    optimizer.register_step_pre_hook(lambda *step: seen.append(step))
    optimizer.step()
    assert len(seen) == (STACK != 'openmmlab')


def test_where_mmengine_alone_looks_for_an_editable_install(tmp_path, monkeypatch):
    """Where it is imported from, or beside its metadata: vitplug's tools find it on every stack."""
    site, clone = tmp_path / 'site', tmp_path / 'clone'
    metadata = site / 'lent-1.0.dist-info'
    for folder in (metadata, clone / 'lent'):
        folder.mkdir(parents=True)
    (metadata / 'METADATA').write_text('Metadata-Version: 2.1\nName: lent\nVersion: 1.0\n')
    (metadata / 'top_level.txt').write_text('lent\n')
    (clone / 'lent' / '__init__.py').touch()
    monkeypatch.setattr('sys.path', [str(site), str(clone), *sys.path])
    if STACK != 'onedl':
        import pkg_resources

        monkeypatch.setattr(pkg_resources, 'working_set', pkg_resources.WorkingSet([str(site)]))
    assert get_installed_path('lent') == str((clone if STACK == 'onedl' else site) / 'lent')


@pytest.mark.parametrize('as_file', [False, True])
def test_checkpoint_that_does_not_fit_onto_the_disk(as_file, tmp_path):
    """At a path, older torch loses the last bytes in silence. vitplug and mmengine write through Python's files."""
    path, limits = tmp_path / 'a.pth', resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        with open(path, 'wb') if as_file else nullcontext(path) as target:
            torch.save(torch.zeros(1), target)
        noticed = False
    except (OSError, RuntimeError):
        noticed = True
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert noticed == (as_file or STACK == 'onedl')


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
