"""Plugs in models of timm: nothing changes without plugs, vitplug's own hosts with them, and timm's tools go on."""

import argparse
import copy
import importlib.util
import pickle
from unittest import mock

import pytest
import torch
from adapters.foreign import NO_PREFIX, TOGETHER, assert_same, gradients, images, plugged, scatter, timm_model, together
from timm.layers import GatedMlp, set_reentrant_ckpt
from timm.models import load_checkpoint
from timm.models.mlp_mixer import SpatialGatingBlock
from timm.models.vision_transformer import Block
from timm.optim import create_optimizer_v2

import vitplug
from vitplug.adapters import host_of
from vitplug.adapters.arguments import check_asked
from vitplug.attention import fused_attention
from vitplug.plugs.plug_set import is_plug

VIT, SWIN, SWIN_V2 = 'vit_tiny_patch16_224', 'swin_tiny_patch4_window7_224', 'swinv2_tiny_window8_256'
MVIT, PIT, MIXER = 'mvitv2_small_cls', 'pit_ti_distilled_224', 'mixer_s16_224'
COMPILED = mock.patch.object(torch.compiler, 'is_compiling', lambda: True)


def test_the_summary_names_the_part_that_has_the_plugs():
    model = vitplug.plug_in(torch.nn.Sequential(timm_model(VIT), torch.nn.Linear(5, 2)), 'cb')
    assert model.plug_summary == f'0: {model[0].plug_summary}' and 'ContextBroadcast' in model.plug_summary


def own_host(name, **settings):
    """vitplug's own host of the same sizes as a tiny model of timm, with a map of tokens as output."""
    import vitplug.backbones as hosts

    settings |= dict(img_size=32)
    eps = dict(norm_cfg=dict(type='LN', eps=1e-6))
    if name == VIT:
        arch = dict(num_layers=3, num_heads=4, embed_dims=32, feedforward_channels=128)
        return hosts.VisionTransformer(arch, patch_size=8, out_type='featmap', **eps, **settings)
    if name in (SWIN, SWIN_V2):
        arch = dict(depths=[2, 2], num_heads=[2, 4], embed_dims=16)
        arch |= {} if name == SWIN else dict(extra_norm_every_n_blocks=0)
        kind = hosts.SwinTransformer if name == SWIN else hosts.SwinTransformerV2
        return kind(arch, window_size=4, out_indices=1, drop_path_rate=0.0, **settings)
    if name == MIXER:
        arch = dict(embed_dims=32, num_layers=3, tokens_mlp_dims=16, channels_mlp_dims=128)
        return hosts.MlpMixer(arch, patch_size=8, out_type='featmap', **eps, **settings)
    if name == PIT:
        arch = dict(embed_dims=[16, 32], depths=[2, 1], num_heads=[2, 4], patch_size=8, stride=4)
        return hosts.PoolingVisionTransformer(arch, distilled=True, out_type='featmap', **settings)
    arch = dict(embed_dims=16, num_layers=3, num_heads=2, downscale_indices=[1])
    return hosts.MViT(arch, adaptive_kv_stride=2, with_cls_token=True, **settings)


ALL = ['gab', 'residual', 'broad', 'refiner', 'cb', 'value-residual', NO_PREFIX]
POOLED = ['gab', 'residual', 'broad', 'refiner', 'cb', TOGETHER.replace('+value-residual', '')]


@pytest.mark.parametrize(
    ('name', 'plugs'),
    [
        *((name, plugs) for name in (VIT, SWIN, SWIN_V2) for plugs in ALL),
        *((PIT, plugs) for plugs in (*ALL[:-1], TOGETHER)),
        *((MVIT, plugs) for plugs in POOLED),
        *((MIXER, plugs) for plugs in ('cb(scaled=True)', 'peg', 'se(reduction=4)')),
    ],
)
def test_equals_the_own_host_with_the_same_weights(name, plugs, tmp_path):
    if importlib.util.find_spec('transformers'):
        pytest.skip('mmpretrain cannot be imported beside transformers 5')
    from vitplug import load_pretrained

    model, path = timm_model(name), tmp_path / 'timm.pth'
    torch.save(model.state_dict(), path)
    host = own_host(name, plugs=plugs).double().eval()
    load_pretrained(host, str(path))
    plugged(model, plugs)
    own, foreign = ([(key, p) for key, p in m.named_parameters() if is_plug(key)] for m in (host, model))
    with torch.no_grad():
        for (key, p), (other, value) in zip(own, foreign, strict=True):
            assert key.partition('plugs.')[2] == other.partition('plugs.')[2]
            p.copy_(value)
    # Swin V2 computes the logarithms of offsets in single precision.
    tolerance = 1e-6 if name == SWIN_V2 else 1e-10
    (found,), (expected,) = host_of(model)(images()), host(images())
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


# --- one forward, one carry ---


@pytest.mark.parametrize('name', [VIT, SWIN, MVIT, MIXER, 'eva02_tiny_patch14_224', 'vit_small_patch16_rope_mixed_224'])
def test_activation_checkpointing_has_the_same_gradients(name):
    model, x = plugged(timm_model(name), together(name)).train(), images()
    expected = gradients(model, lambda: model(x))
    model.set_grad_checkpointing(True)
    assert_same(gradients(model, lambda: model(x)), expected)
    assert {key for key, _ in model.named_parameters() if is_plug(key)} <= expected.keys()  # DDP wants all of them


def test_reentrant_checkpointing_is_refused():
    model = plugged(timm_model(VIT), 'residual').train()
    model.set_grad_checkpointing(True)
    set_reentrant_ckpt(True)
    try:
        with pytest.raises(RuntimeError, match='use_reentrant=False'):
            model(images().requires_grad_())
    finally:
        set_reentrant_ckpt(False)


@pytest.mark.parametrize('name', [VIT, SWIN, MVIT])
@pytest.mark.parametrize('saves', [False, True])
def test_two_forwards_before_one_backward(name, saves):
    model, x = plugged(timm_model(name), together(name)).train(), images(4)
    model.set_grad_checkpointing(saves)
    first, second = (gradients(model, lambda part=part: model(part)) for part in x.chunk(2))
    both = gradients(model, lambda: torch.cat([model(part) for part in x.chunk(2)]))
    assert_same(both, {key: first[key] + second[key] for key in first})


def test_a_block_alone_is_refused():
    model = vitplug.plug_in(timm_model(VIT), 'residual')
    with pytest.raises(RuntimeError, match='called alone'):
        model.blocks[1](torch.zeros(1, 17, 32, dtype=torch.float64))


def test_steps_are_their_blocks_to_other_code():
    model = vitplug.plug_in(timm_model(VIT), 'residual')
    for block in model.blocks:
        block.attn.fused_attn, block.note = False, 'kept'
    assert [block.note for block in model.blocks] == ['kept'] * 3 and model.blocks[2].note == 'kept'
    assert len(model.blocks) == 3
    with torch.no_grad():  # no backward needs the carries of earlier blocks
        steps = list(model.blocks)
    assert [step.walk.enter(step.index) for step in steps] and list(steps[0].walk.entered) == [2]


@pytest.mark.parametrize('name', [VIT, SWIN, MVIT, PIT, 'vit_relpos_small_patch16_224', 'eva02_tiny_patch14_224'])
def test_fused_and_plain_attention_agree(name):
    model, x = plugged(timm_model(name), together(name)), images()
    expected = model(x)
    with fused_attention(False):
        torch.testing.assert_close(model(x), expected, atol=1e-12, rtol=1e-9)


def test_dropout_is_drawn_as_without_plugs():
    drops = dict(drop_path_rate=0.5, proj_drop_rate=0.3, pos_drop_rate=0.2)
    plain, model, x = timm_model(VIT, **drops).train(), timm_model(VIT, **drops).train(), images()
    vitplug.plug_in(model, [])
    torch.manual_seed(3)
    expected = plain(x)
    torch.manual_seed(3)
    torch.testing.assert_close(model(x), expected, atol=1e-12, rtol=0)


# --- copies, files, precision ---


@pytest.mark.parametrize('name', [VIT, SWIN, MVIT, PIT, MIXER])
def test_copies_are_models_of_their_own(name):
    model, x = plugged(timm_model(name), together(name)), images()
    expected = model(x)
    twins = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    for twin in twins:
        assert torch.equal(twin(x), expected)
        assert host_of(twin).model is twin
        vitplug.unplug(twin)
        torch.testing.assert_close(twin(x), timm_model(name)(x), atol=0, rtol=0)


def test_saved_and_loaded(tmp_path):
    model, x, path = plugged(timm_model(VIT)), images(), tmp_path / 'model.pth'
    torch.save(dict(state_dict={}, state_dict_ema=model.state_dict()), path)
    new = vitplug.plug_in(timm_model(VIT, global_pool='token'), TOGETHER)
    load_checkpoint(new, str(path))
    assert torch.equal(new(x), model(x))
    only = vitplug.load_plugs(vitplug.plug_in(timm_model(VIT), TOGETHER), path)
    assert torch.equal(only(x), model(x))
    torch.save(dict(model={k: v * torch.nan for k, v in model.state_dict().items()}, args=argparse.Namespace()), path)
    with pytest.raises(ValueError, match=r"model\.pth has numbers that are not finite in \['0\."):
        vitplug.load_plugs(only, path)
    with pytest.raises(ValueError, match=r'load_plugs: .*lacks, or has besides, .*plug in the plugs'):
        vitplug.load_plugs(vitplug.plug_in(timm_model(VIT), 'rel-pos-bias'), path)


def test_bfloat16_is_near():
    model, x = plugged(timm_model(VIT)).float(), images().float()
    with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
        found = model(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), model(x), atol=0.05, rtol=0.05)


def test_plugs_take_precision_and_mode_of_the_model():
    model = vitplug.plug_in(timm_model(VIT).half().eval(), TOGETHER)
    assert {p.dtype for p in model.parameters()} == {torch.float16}
    assert not any(module.training for module in model.modules())


@pytest.mark.slow
@pytest.mark.parametrize('name', [VIT, SWIN])
def test_exported(name):
    model = plugged(timm_model(name), together(name))
    exported, x = torch.export.export(model, (images(),)).module(), images().flip(2)
    torch.testing.assert_close(exported(x), model(x), atol=1e-12, rtol=0)


# --- intermediates, analysis ---


def test_attention_maps_by_name_under_fused_attention():
    model, x = timm_model(VIT), images()
    expected, logits = model(x), []
    for block in model.blocks:
        block.attn.qkv.register_forward_hook(lambda module, args, out: logits.append(out))
    model(x)
    vitplug.plug_in(model, [])
    output, found = vitplug.intermediates(model, x, names=('probs', 'block'))
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=0)
    for index in range(3):
        q, k, _ = logits[index].unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        maps = (q @ k.transpose(-2, -1) * 8**-0.5).softmax(-1)
        torch.testing.assert_close(found['probs'][index][:, 0], maps, atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match='no such intermediates'):
        vitplug.intermediates(model, x, names=('map',))
    assert list(vitplug.intermediates(model, x, layers=[1])[1]['probs']) == [1]
    if hasattr(torch.compiler, 'set_stance'):
        model.compile(backend='eager')
        assert list(vitplug.intermediates(model, x, 'probs')[1]['probs']) == [0, 1, 2]


def test_analyses_take_it():
    model, x = plugged(timm_model(SWIN), 'gab+residual'), images()
    host = host_of(model)
    (features,), found = host.forward_intermediates(x, names=('probs', 'site'))
    torch.testing.assert_close(features, model.forward_features(x).permute(0, 3, 1, 2))
    assert len(found['probs']) == 4
    received = host.maps_to_image(found, 1, (32, 32))
    assert received.shape == (2, 2, 32, 32)
    # Every query gives one unit of attention, and every key covers the pixels of its patch.
    torch.testing.assert_close(received.sum((2, 3)), torch.full((2, 2), 64.0 * 16, dtype=torch.float64))
    assert host.grid_of(3) == (4, 4)
    with torch.no_grad():
        assert {'gab.sigma', 'gab.A'} <= host.learned_values().keys()


# --- timm's optimisers ---


def test_layer_decay_of_timm_knows_plugs():
    model = vitplug.plug_in(timm_model(VIT), 'residual+gab+gate')
    optimizer = create_optimizer_v2(model, opt='adamw', lr=1e-3, weight_decay=0.05, layer_decay=0.5)
    groups = {id(p): group for group in optimizer.param_groups for p in group['params']}
    assert set(groups) == {id(p) for p in model.parameters()}
    for index, block in enumerate(model.blocks):
        stock, own = groups[id(block.attn.qkv.weight)], groups[id(next(block.plugs.parameters()))]
        assert stock['lr_scale'] == own['lr_scale'] == 0.5 ** (3 - index)
    scalars = [p for key, p in model.named_parameters() if is_plug(key) and p.shape == (1,)]
    assert scalars and all(groups[id(p)]['weight_decay'] == 0 for p in scalars)


# --- refusals ---

GATED = dict(block_layer=SpatialGatingBlock, mlp_layer=GatedMlp, mlp_ratio=4)


@pytest.mark.parametrize(
    ('build', 'plugs', 'message'),
    [
        (lambda: torch.nn.Linear(2, 2), 'gab', 'Linear has no map of names. Known are .*adapters.register'),
        (lambda: timm_model(VIT, patch_drop_rate=0.5), 'gab', 'drops patches'),
        (lambda: timm_model(VIT, attn_layer='diff'), 'gab', 'no map of names for attn of Block, a DiffAttention'),
        (lambda: timm_model(VIT), 'uniform', 'change the heads of block 0.*own backbones'),
        (lambda: timm_model(VIT), 'gab+gab', 'more than once'),
        (lambda: timm_model(MIXER), 'gab', "takes the socket 'bias', which block 0 does not offer; it offers "),
        (lambda: timm_model(MIXER, **GATED), 'cb', 'no map of names for a block, SpatialGatingBlock'),
        (lambda: timm_model(MVIT, cfg=dict(pool_first=True)), 'cb', 'no map of names for attn of MultiScaleBlock'),
        (lambda: timm_model(MVIT, cfg=dict(kernel_qkv=(2, 2))), 'cb', r'kernels of \(2, 2\) and strides of'),
        (lambda: timm_model(SWIN), 'registers', "does not offer; it offers \\['start', 'finish'\\]"),
        (lambda: vitplug.plug_in(timm_model(VIT), 'gab'), 'cb', r'has plugs \(plugs: Gauss.*unplug\(model\) first'),
        (lambda: torch.nn.ModuleList([timm_model(VIT), timm_model(SWIN)]), 'gab', 'several parts that take plugs, '),
    ],
)
def test_refused_by_name(build, plugs, message):
    model = build()
    kinds = [type(module) for module in model.modules()]
    with pytest.raises(ValueError, match=message):
        vitplug.plug_in(model, plugs)
    assert [type(module) for module in model.modules()] == kinds


def test_what_plugs_do_not_do_is_refused():
    model, x = vitplug.plug_in(timm_model(VIT), 'gab'), images()
    with pytest.raises(ValueError, match='causal attention'):
        model(x, is_causal=True)
    with pytest.raises(ValueError, match='cross-attention'):
        check_asked('block', dict(encoder_hidden_states=x))
    with pytest.raises(ValueError, match='attention mask'):
        model(x, attn_mask=torch.zeros(3, 17, 17))
    with pytest.raises(ValueError, match=r'attention mask \(1, 1, 1, 16\): .* N = 17 with class tokens'):
        model(x, attn_mask=torch.ones(1, 1, 1, 16, dtype=torch.bool))
    with pytest.raises(ValueError, match='such as those of a position bias'):
        model(x, attn_mask=torch.full((17, 17), -0.5, dtype=x.dtype))
    with COMPILED, pytest.raises(ValueError, match='by True and False in compiled code'):
        model(x, attn_mask=torch.full((17, 17), -1e9, dtype=x.dtype))
    with pytest.raises(ValueError, match='has no plugs'):
        vitplug.unplug(timm_model(VIT))
    swin = vitplug.plug_in(timm_model(SWIN, strict_img_size=False, always_partition=True), 'gab')
    with pytest.raises(ValueError, match='windows of 4 x 4 tokens shifted by 2 and 2 on a map of 10 x 10'):
        swin(images(size=40))


@pytest.mark.parametrize('kind', ['bool', 'infinite', 'lowest'])
@pytest.mark.parametrize('hides', ['keys', 'keys of each image', 'all keys of a query'])
def test_masks_of_tokens(hides, kind):
    """A query that sees nothing gets what timm gives it."""
    model, x = timm_model(VIT), images()
    sees = torch.ones(17, 17, dtype=torch.bool) if hides == 'keys' else torch.ones(2, 1, 17, 17, dtype=torch.bool)
    hidden_pairs = (..., 3, slice(None)) if hides == 'all keys of a query' else (..., slice(9, None))
    sees[hidden_pairs] = False
    hidden = float('-inf') if kind == 'infinite' else torch.finfo(x.dtype).min
    mask = sees if kind == 'bool' else torch.zeros(sees.shape, dtype=x.dtype).masked_fill(~sees, hidden)
    expected = model.forward_features(x, attn_mask=mask)
    assert not torch.allclose(expected[1], model.forward_features(x)[1])
    vitplug.plug_in(model, [])
    torch.testing.assert_close(model.forward_features(x, attn_mask=mask), expected, atol=1e-12, rtol=1e-12)


def test_images_of_other_sizes():
    model = timm_model(VIT, dynamic_img_size=True)
    x = torch.cat((images(), images()), dim=2)[:, :, :48]
    expected = model(x)
    vitplug.plug_in(model, [])
    torch.testing.assert_close(model(x), expected, atol=1e-12, rtol=0)
    scatter(vitplug.plug_in(vitplug.unplug(model), 'gab'), only_plugs=True)
    _, found = vitplug.intermediates(model, x, names=('site',))
    assert found['site'][0].layout.hw == (6, 4)


class MergedBlock(Block):
    """As Token Merging changes a block: a class of the same parts with a forward of its own."""

    def forward(self, x, **settings):
        return super().forward(x, **settings) * 2


def replace_class(model):
    model.blocks[1].__class__ = MergedBlock


def replace_forward(model):
    attention = model.blocks[1].attn
    attention.forward = lambda x, **settings: 2 * type(attention).forward(attention, x, **settings)


def add_hook(model, part=None):
    (part or model.blocks[1].mlp).register_forward_hook(lambda module, args, out: 2 * out)


Own = type('Own', (torch.nn.Sequential,), dict(forward=lambda self, x: 2 * self[0](x)))


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (replace_class, 'MergedBlock takes no plugs: it has another forward than timm.models.vision_transformer.Block'),
        (replace_forward, 'Attention takes no plugs: its forward was replaced'),
        (add_hook, 'Mlp takes no plugs: it has hooks, which would not run'),
        (lambda model: add_hook(model, model.blocks), 'Sequential takes no plugs: it has hooks'),
        (lambda model: vars(model.blocks).update(forward=model.norm), 'Sequential takes no plugs: its forward was'),
        (lambda model: setattr(model, 'blocks', Own(*model.blocks)), 'Own takes no plugs: it has another forward than'),
        (lambda model: setattr(model.blocks, '2', model.blocks[0]), 'plugs: a block is several times in blocks'),
    ],
)
def test_a_changed_module_is_not_taken_for_the_known_one(change, message):
    model = timm_model(VIT)
    change(model)
    expected = model(images())
    with pytest.raises(ValueError, match=message):
        vitplug.plug_in(model, [])
    assert torch.equal(model(images()), expected)


@pytest.mark.filterwarnings('error:.*not run with plugs')
@pytest.mark.parametrize(('name', 'layer'), [('attn', 'attn.proj'), ('mlp', 'mlp.fc2')])
def test_what_does_not_run_is_told_of(name, layer):
    model = vitplug.plug_in(timm_model(VIT), 'cb')
    part, called = map(model.blocks[1].get_submodule, (name, layer))
    add_hook(model, model.blocks[1])
    add_hook(model, called)
    before = model(images())
    add_hook(model, part)
    for own in ('hooks, which do', 'a forward of its own, which does'):
        with pytest.warns(UserWarning, match=f'{name} of Block has {own} not run'):
            assert torch.equal(model(images()), before)
        part.forward = part.forward


class Two(torch.nn.Module):
    """Two models of one size beside each other."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (timm_model(VIT) for _ in range(2))

    def forward(self, x):
        return self.first(x) + self.second(x.flip(-1))


def test_both_parts_of_a_model_are_loaded_recorded_and_unplugged(tmp_path):
    model, x = Two(), images()
    expected = model(x)
    for seed, part in enumerate((model.first, model.second)):
        scatter(vitplug.plug_in(part, 'cb(scaled=True)'), seed, only_plugs=True)
    outputs, found = vitplug.intermediates(model, x)
    assert torch.equal(outputs, model(x))
    for part, inputs in (('first', x), ('second', x.flip(-1))):
        alone = vitplug.intermediates(getattr(model, part), inputs)[1]['probs']
        assert_same(found[f'{part}.probs'], alone)
    torch.save(model.state_dict(), tmp_path / 'two.pth')
    other = Two()
    for part in (other.first, other.second):
        vitplug.plug_in(part, 'cb(scaled=True)')
    assert torch.equal(vitplug.load_plugs(other, tmp_path / 'two.pth')(x), outputs)
    with pytest.raises(ValueError, match='Two has several parts with plugs: give one of first, second'):
        vitplug.host_of(model)
    assert torch.equal(vitplug.unplug(model)(x), expected)


def test_a_later_call_finds_no_grid_of_an_earlier_one():
    model = vitplug.plug_in(timm_model(VIT), 'gab')
    tokens = torch.randn(2, 17, 32).double()
    for context in (mock.MagicMock(), COMPILED):
        with context:
            model(images())
            with pytest.raises(ValueError, match=r'16 tokens on an unknown grid .* call, or compile, the whole model'):
                model.blocks(tokens)


def test_other_ways_to_hold_blocks_say_why_not():
    model = vitplug.plug_in(timm_model(VIT), [])
    with pytest.raises(TypeError, match=r'a step of one forward .* vitplug.unplug\(model\) gives them back'):
        torch.nn.Sequential(*model.blocks)
    for change in (
        lambda blocks: blocks.append(blocks[0]),
        lambda blocks: blocks.extend([blocks[0]]),
        lambda b: b.pop(1),
    ):
        with pytest.raises(ValueError, match=r'blocks with plugs take no others: call vitplug.unplug\(model\)'):
            change(model.blocks)
    assert len(model.blocks) == 3 and len(model.blocks[:2]) == 2 and 'OpenStep' not in repr(model)
    model.blocks[1:].requires_grad_(False)
    assert [all(p.requires_grad for p in block.parameters()) for block in model.blocks] == [True, False, False]
    with pytest.raises(RuntimeError, match='alone'):
        model.blocks[1:][0](torch.zeros(1, 17, 32))
    with pytest.raises(ValueError, match=r'gets 3 arguments behind the tokens, and its map names .*is_causal'):
        next(iter(model.blocks))(torch.zeros(1, 17, 32), None, False, torch.ones(32))


def test_edits_of_a_model_that_checkpoints_are_refused():
    """Before: a backward pass without the edits, and other gradients."""
    model = vitplug.plug_in(timm_model(VIT), [])
    model.set_grad_checkpointing(True)
    edits = {'heads': {0: lambda tensor, site: tensor * 0}}
    with pytest.raises(ValueError, match='switch its checkpointing off'), host_of(model).edited(edits):
        pass
    with torch.no_grad(), host_of(model).edited(edits):
        model(images())
