"""Files of foundation models: every tensor is used or named, outputs are those of the other library, and back."""

import re

import pytest
import timm
import torch
from cases import randomize
from foundation_models import HUGGING_FACE, MODELS, ODD, TRAINED, images, transformers
from safetensors.torch import save_file
from timm.models import eva, vision_transformer

from vitplug.backbones.foundation import network_settings
from vitplug.checkpoints import convert, load_pretrained

ALL = {**MODELS, **HUGGING_FACE}


def skip_without_library(name: str) -> None:
    if name in HUGGING_FACE and transformers() is None:
        pytest.skip('transformers is not installed: see tests/helpers/foundation_models.py')


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
    assert f'({model.source})' in coverage.source
    assert coverage.missing == [] and coverage.resized == []
    # What a backbone has no place for: the tokens and norms of pre-training, heads, pooling by attention.
    free = ('mask_token', 'local_cls_norm', 'fc_norm', 'ln2', 'head', 'attention_pool', 'pooler')
    assert all(any(name in key for name in free) for key in coverage.unused), coverage.unused
    assert len(coverage.loaded) == len(host.state_dict())


@pytest.mark.parametrize('name', MODELS)
def test_the_default_output_takes_the_files(name, tmp_path):
    """The hosts of the other tests give tokens."""
    model, path = MODELS[name], tmp_path / 'a.pth'
    torch.save(model.build(model.host())[0], path)
    form = network_settings(model.arch).get('out_type', 'cls_token')
    assert not load_pretrained(model.host(out_type=form), path).missing


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
    if model.is_rotary:  # timm rounds coordinates of such grids to float32
        batch = images(ODD[0], host)
        torch.testing.assert_close(host(batch)[0], theirs(batch)[0], rtol=1e-5, atol=1e-5)


def test_names_of_the_modules_of_dinov3():
    """Those of its `state_dict()`; `save_pretrained` writes others."""
    skip_without_library('Hugging Face DINOv3')
    state, _ = ALL['Hugging Face DINOv3'].build(ALL['Hugging Face DINOv3'].host())
    for prefix in ('', 'model.', 'encoder.'):
        ours = convert({prefix + re.sub(r'^layer\.', 'model.layer.', key): t for key, t in state.items()})
        torch.testing.assert_close(ours.state, convert(state).state, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize('name', ['timm EVA-02-S', 'timm EVA-02-B'])
def test_mean_of_patches_behind_their_norm(name, tmp_path):
    """EVA-02's only norm comes after the mean."""
    host = ALL[name].host(out_type='avg_featmap')
    state, tokens = ALL[name].build(host)
    save_file({key: value.contiguous() for key, value in state.items()}, tmp_path / 'weights.safetensors')
    coverage = load_pretrained(host, tmp_path / 'weights.safetensors')
    assert coverage.unused == []
    batch = images((8, 2), host)
    mean = tokens(batch)[0][:, 1:].mean(1)
    weights = state['fc_norm.weight'], state['fc_norm.bias']
    torch.testing.assert_close(host(batch)[0], torch.nn.functional.layer_norm(mean, (32,), *weights, eps=1e-6))


@pytest.mark.parametrize(
    'name, part',
    [
        ('Meta DINOv3-S+', 'mlp.w2.bias'),  # behind the part that is there
        ('timm EVA-02-S', 'attn.q_bias'),  # before it
        ('timm EVA-02-B', 'attn.k_proj.weight'),  # a bias of keys may be missing, their weights may not
    ],
)
def test_a_missing_part_is_no_zero(name, part):
    model = ALL[name]
    state, _ = model.build(model.host())
    del state[f'blocks.0.{part}']
    with pytest.raises(ValueError, match=rf'the file has .* and lacks blocks\.0\.{re.escape(part)}: get a whole copy'):
        convert(state)


@pytest.mark.parametrize(('name', 'rotary'), [('timm DINOv3', 'dinov3'), ('timm EVA-02-S', 'eva02')])
def test_rotations_that_no_tensor_shows(name, rotary, tmp_path):
    """A host without them would load every tensor and give other outputs."""
    model = ALL[name]
    state, _ = model.build(model.host())
    save_file({key: value.contiguous() for key, value in state.items()}, tmp_path / 'weights.safetensors')
    with pytest.raises(ValueError, match=f"its positions are rotated, .* set rotary='{rotary}'"):
        load_pretrained(model.host(rotary=None), tmp_path / 'weights.safetensors')


# Formats of authors that timm reads by code of its own: a network of timm, its names there, and that code.
READ_BY_TIMM = {
    'OpenAI CLIP': (
        'vit_base_patch16_clip_224',
        {
            'blocks': 'transformer.resblocks',
            'attn.qkv.': 'attn.in_proj_',
            'attn.proj': 'attn.out_proj',
            'mlp.fc1': 'mlp.c_fc',
            'mlp.fc2': 'mlp.c_proj',
            'norm1': 'ln_1',
            'norm2': 'ln_2',
            'norm_pre': 'ln_pre',
            'patch_embed.proj': 'conv1',
            'cls_token': 'class_embedding',
            'pos_embed': 'positional_embedding',
        },
        lambda state, model: vision_transformer._convert_openai_clip(state, model, prefix=''),
    ),
    'timm EVA-02 or original': (
        'eva02_base_patch14_224',
        {'q_proj.bias': 'q_bias', 'v_proj.bias': 'v_bias', 'fc1_g': 'w1', 'fc1_x': 'w2', 'fc2': 'w3'}
        | {'mlp.norm': 'mlp.ffn_ln'},
        eva.checkpoint_filter_fn,
    ),
}


@pytest.mark.parametrize('name', READ_BY_TIMM)
def test_timm_reads_the_same_from_files_of_the_authors(name):
    network, names, read = READ_BY_TIMM[name]
    model = timm.create_model(network, embed_dim=32, num_heads=2, depth=2, img_size=56, num_classes=0)
    stock = randomize(model).state_dict()
    theirs = dict(stock)
    for ours, other in names.items():
        theirs = {key.replace(ours, other): value for key, value in theirs.items()}
    if name == 'OpenAI CLIP':
        theirs = {re.sub(r'^norm\.', 'ln_post.', key): value for key, value in theirs.items()}
        theirs |= dict(
            class_embedding=theirs['class_embedding'][0, 0], positional_embedding=theirs['positional_embedding'][0]
        )
    read_by_timm, converted, expected = read(theirs, model), convert(theirs), convert(stock).state
    assert converted.source.name == name
    assert read_by_timm.keys() == stock.keys() and converted.state.keys() == expected.keys()
    assert all(torch.equal(value, stock[key]) for key, value in read_by_timm.items())
    assert all(torch.equal(value, expected[key]) for key, value in converted.state.items())
