"""The contract's clause on ``torch.compile``, the dearest one, on the hosts whose graphs differ."""

import copy
import os

import pytest
import torch
from cases import HOSTS, PLUGS, REFUSED, SWIN_ARCH, VIT_ARCH, images, randomize
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import WindowLayout
from vitplug.hosting.padding import shrink

SIZE = (32, 48)
SMALL = {'vit': VIT_ARCH | dict(num_layers=2), **dict.fromkeys(('swin', 'swin-v2'), SWIN_ARCH | dict(depths=[2, 1]))}


@pytest.mark.integration
@pytest.mark.sampled(4)
@pytest.mark.parametrize('host', ['vit', 'vit-windows', 'swin'])
@pytest.mark.parametrize('plugs', PLUGS)
def test_compiles_to_one_graph_once(host, plugs):
    model = randomize(HOSTS[host](plugs=copy.deepcopy(PLUGS[plugs]))).double().eval()
    compiled = torch.compile(model, fullgraph=True, backend='eager')
    x = images(*SIZE)
    assert_close(compiled(x), model(x), rtol=1e-10, atol=1e-10)
    with torch._dynamo.config.patch(error_on_recompile=True):
        x = images(*SIZE, seed=2)
        assert_close(compiled(x), model(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('host', ['vit', 'swin'])
def test_checkpointed_blocks_are_one_graph(host):
    model, x = randomize(HOSTS[host](plugs='gab+refiner', with_cp=True)).double().train(), images(*SIZE)
    outs = [one(x)[-1] for one in (torch.compile(model, fullgraph=True, backend='eager'), model)]
    assert_close(*(torch.autograd.grad(out.square().sum(), [*model.parameters()], allow_unused=True) for out in outs))


def test_a_bias_beside_residual_is_one_graph():
    model, x = randomize(HOSTS['vit'](plugs='gab+residual')).double().eval(), images(*SIZE)
    assert_close(torch.compile(model, fullgraph=True, backend='eager')(x), model(x), rtol=1e-10, atol=1e-10)


# Inductor compiles C++, a minute a model where the machine is busy: VITPLUG_COMPILED_EXAMPLES=100 looks at more.
EXAMPLES = int(os.environ.get('VITPLUG_COMPILED_EXAMPLES', 2))
layouts = st.builds(
    WindowLayout, height=st.integers(1, 9), width=st.integers(1, 9), window=st.just(4), shift=st.sampled_from([0, 2])
)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(layout=layouts, trains=st.booleans())
@example(layout=WindowLayout(6, 5, window=4, shift=2), trains=False)
def test_windows_compile_with_inductor(layout, trains):
    """Its code generator bounds every index by the range of what it is computed from."""

    def there_and_back(x):
        windows = 2 * layout.to_windows(x)
        return layout.from_windows(windows if layout.mask(x.device) is None else windows + layout.mask(x.device).sum())

    x = torch.randn(2, layout.height * layout.width, 8, requires_grad=trains)
    torch._dynamo.reset()
    with torch.set_grad_enabled(trains):
        got, expected = torch.compile(there_and_back, fullgraph=True)(x), there_and_back(x)
    assert_close(got, expected)
    if trains:
        assert_close(*(torch.autograd.grad(out.square().sum(), x) for out in (got, expected)))


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(
    host=st.sampled_from(list(SMALL)),
    plugs=st.sampled_from([name for name in PLUGS if not any('layers' in plug for plug in PLUGS[name])]),
    size=st.sampled_from([(32, 32), (40, 56)]),
    trains=st.booleans(),
)
def test_models_compile_with_inductor(host, plugs, size, trains):
    model = randomize(HOSTS[host](plugs=copy.deepcopy(PLUGS[plugs]), arch=SMALL[host])).float().train(trains)
    x = images(*size, dtype=torch.float32)

    def run(forward):
        with torch.set_grad_enabled(trains):
            outs = forward(x)
        if not trains:
            return outs
        return outs, torch.autograd.grad(sum(out.square().mean() for out in outs), list(model.parameters()))

    torch._dynamo.reset()
    assert_close(run(torch.compile(model, fullgraph=True)), run(model), rtol=1e-3, atol=1e-4)


# Batch, height and width. MViT's pooling needs graphs of its own for sides of other remainders.
OTHERS = ((2, 48, 56), (3, 64, 48), (2, 56, 72), (2, 40, 96))
SIZES = {'vit': OTHERS, 'swin': OTHERS, 'mvit': ((2, 64, 96), (3, 96, 64), (3, 64, 128), (2, 128, 160))}


@pytest.mark.slow
@pytest.mark.parametrize('plugs', ['none', 'gab', 'rel-pos-bias', 'entmax'])
@pytest.mark.parametrize('host', SIZES)
@pytest.mark.parametrize('trains', [False, True])
def test_one_graph_serves_other_sizes(host, plugs, trains):
    """All but the configured size, at which tables of positions stay as they are."""
    if plugs in REFUSED.get(host, ()):
        pytest.skip(f'{host} refuses it')
    arch = dict(arch=SMALL[host]) if host in SMALL else {}
    model = randomize(HOSTS[host](plugs=copy.deepcopy(PLUGS[plugs]), **arch)).double().train(trains)
    torch._dynamo.reset()
    compiled = torch.compile(model, dynamic=True, fullgraph=True, backend='eager')
    first, *others = SIZES[host]
    with torch.set_grad_enabled(trains):
        compiled(images(*first[1:], first[0]))
        with torch._dynamo.config.patch(error_on_recompile=True):
            for batch, height, width in others:
                x = images(height, width, batch)
                assert_close(compiled(x), model(x), rtol=1e-10, atol=1e-10)


# --- export, of which `lab/export` tests the files ---


def test_quotients_have_no_negative_numbers():
    """ONNX rounds the quotient of a negative number towards zero."""
    graph = torch.export.export(Merged(), (torch.tensor([[7, 8], [1, 2]]),)).graph
    assert not [node for node in graph.nodes if 'neg' in str(node.target)]


class Merged(torch.nn.Module):
    def forward(self, sizes):
        return shrink(sizes, (2, 2))
