"""Files of foundation models: every tensor is used or named, outputs are those of the other library, and back."""

import pytest
import torch
from foundation_models import HUGGING_FACE, MODELS, TRAINED, images, transformers
from safetensors.torch import save_file

from vitplug.checkpoints import convert, load_pretrained

ALL = {**MODELS, **HUGGING_FACE}


def skip_without_library(name: str) -> None:
    if name in HUGGING_FACE and transformers() is None:
        pytest.skip('transformers is not installed: see tests/foundation_models.py')


@pytest.fixture(scope='module', params=ALL)
def loaded(request, tmp_path_factory):
    """A model of others, its tensors, its function and the host that its file was loaded into."""
    skip_without_library(request.param)
    model = ALL[request.param]
    host = model.host()
    state, tokens = model.build(host)
    path = tmp_path_factory.mktemp('files') / 'weights.safetensors'
    save_file({key: value.contiguous() for key, value in state.items()}, path)
    return model, state, tokens, host, load_pretrained(host, path)


def test_every_tensor_is_used_or_named(loaded):
    model, _, _, host, coverage = loaded
    assert f'({model.source},' in coverage.source
    assert coverage.missing == [] and coverage.resized == []
    # What a backbone has no place for: the tokens and norms of pre-training, heads, pooling by attention.
    free = ('mask_token', 'local_cls_norm', 'fc_norm', 'ln2', 'head', 'attention_pool', 'pooler')
    unused = [*coverage.unused, *coverage.beside]
    assert all(any(name in key for name in free) for key in unused), unused
    assert len(coverage.loaded) == len(host.state_dict()) - len(coverage.zeros)


@torch.no_grad()
def test_tokens_are_those_of_the_other_library(loaded):
    model, _, theirs, host, _ = loaded
    for grid in (TRAINED, *model.grids()):
        batch = images(grid, host)
        expected, blocks = theirs(batch)
        (got,), found = host.forward_intermediates(batch, ('block',))
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
        for index, block in enumerate(blocks):
            torch.testing.assert_close(found['block'][index], block, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_rotary_positions_of_odd_grids(loaded):
    """timm rounds coordinates of these grids to float32."""
    model, _, theirs, host, _ = loaded
    if not model.is_rotary:
        pytest.skip('the other grids of this network are compared to 1e-9')
    batch = images((5, 7), host)
    torch.testing.assert_close(host(batch)[0], theirs(batch)[0], rtol=1e-5, atol=1e-5)


def test_back(loaded):
    model, state, _, _, _ = loaded
    if model.target is None:
        pytest.skip('no format to convert to')
    back, _, _ = convert(state, model.target)
    assert back.keys() == state.keys()
    for key, value in back.items():
        assert torch.equal(value, state[key]), key
