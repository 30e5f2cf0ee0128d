"""Hosts of foundation models: rotary positions, storage tokens, key biases without effect, and plugs."""

from types import SimpleNamespace

import pytest
import torch
from cases import PLUGS, PREFIX_PLUGS, VIT_ARCH, images, randomize
from mmpretrain.models import LoRAModel

from vitplug.attention import GlobalLayout, WindowLayout, fused_attention
from vitplug.backbones import VisionTransformer
from vitplug.backbones.rotary import RotaryTable
from vitplug.runs.checkpoint_fit import CheckpointFitHook

ALL_PLUGS = {**PLUGS, **PREFIX_PLUGS}


def dinov3(**settings) -> VisionTransformer:
    """All parts at once, narrow."""
    defaults = dict(arch={**VIT_ARCH, 'embed_dims': 24}, img_size=(32, 40), patch_size=8, out_type='raw')
    defaults |= dict(rotary=dict(mode='dinov3', rescale=2.0), num_storage_tokens=2)
    defaults |= dict(
        use_abs_pos_embed=False, layer_scale_init_value=0.1, layer_cfgs=dict(key_bias=False, ffn_type='swiglu')
    )
    return randomize(VisionTransformer(**{**defaults, **settings})).double().eval()


@pytest.mark.sampled(4)
@pytest.mark.parametrize('plugs', ALL_PLUGS)
def test_every_plug(plugs):
    """Fused and explicit attention agree, in value and gradient, on another grid than the configured one."""
    host = dinov3(plugs=ALL_PLUGS[plugs])
    batch = images(48, 32)
    results = []
    for enabled in (True, False):
        host.zero_grad()
        with fused_attention(enabled):
            (out,) = host(batch)
            out.square().mean().backward()
        results.append((out.detach(), host.layers[0].attn.qkv.weight.grad.clone()))
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    with_cp = dinov3(plugs=ALL_PLUGS[plugs], with_cp=True)
    torch.testing.assert_close(with_cp(batch)[0], results[0][0])


def test_key_bias_has_no_effect_and_no_gradient():
    host, seen = dinov3(), []
    batch = images(32, 40)
    qkv, keys = host.layers[1].attn.qkv, slice(24, 48)
    qkv.register_forward_hook(lambda *call: seen.append(call[2].shape[-1]))
    (before,) = host(batch)
    before.sum().backward()
    assert seen == [72]
    assert not qkv.bias.grad[keys].any() and qkv.bias.grad[:24].any()
    with torch.no_grad():
        qkv.bias[keys] += 3
    assert torch.equal(host(batch)[0], before)


def test_key_bias_of_padded_windows():
    """A zero token projects to the bias, which the padding of windows takes without projecting."""
    settings = dict(with_cls_token=False, num_storage_tokens=0, window_size=3, global_blocks=[3])
    host = dinov3(**settings)
    (before,) = host(images(32, 40))
    with torch.no_grad():
        host.layers[0].attn.qkv.bias[24:48] += 3
    assert torch.equal(host(images(32, 40))[0], before)


def test_inside_mmpretrains_lora():
    settings = dict(arch=VIT_ARCH, img_size=(32, 40), patch_size=8, window_size=3, with_cls_token=False)
    settings |= dict(out_type='featmap', layer_cfgs=dict(key_bias=False), plugs='gab')
    targets = [dict(type='qkv'), dict(type='proj')]
    lora = LoRAModel(module=dict(type='vitplug.VisionTransformer', **settings), rank=2, targets=targets)
    assert lora(images(32, 40).float())[0].shape[-2:] == (4, 5)
    lora.load_state_dict(lora.state_dict())
    with pytest.raises(ValueError, match=r'LoRAModel freezes plugs .* module\.layers\.0\.plugs'):
        CheckpointFitHook().before_train(SimpleNamespace(model=lora))


def test_maps_of_a_storage_token_on_the_image():
    host = dinov3()
    _, found = host.forward_intermediates(images(32, 40), ('maps',), [2])
    of_token = host.maps_to_image(found, 2, (32, 40), query='storage_token_1', name='maps')
    expected = found['maps'][2][:, 0, :, 2, 3:].unflatten(2, (4, 5))
    torch.testing.assert_close(of_token[:, :, 4::8, 4::8], expected)


@pytest.mark.parametrize('mode', ['dinov3', 'eva02'])
def test_angles_of_windows_differ_from_those_of_the_map_by_a_shift(mode):
    """Scores depend on offsets alone, so a window needs no place of its own."""
    table = RotaryTable(8, mode)
    whole, part = (table(layout, torch.float64) for layout in (GlobalLayout(6, 4), WindowLayout(6, 4, 2)))
    angles = [torch.atan2(turn.sin, turn.cos)[0] for turn in (whole, part)]
    rows_and_columns = [0, 1, 4, 5], [0, 1, 2, 3]
    steps = [of[list(places)] - of[places[0]] for of, places in zip(angles, rows_and_columns, strict=True)]
    torch.testing.assert_close(torch.exp(1j * steps[0]), torch.exp(1j * steps[1]))


def test_augmentation_moves_angles_in_training_only():
    table = RotaryTable(8, 'dinov3', rescale=2.0)
    layout = GlobalLayout(3, 3, 1)
    table.eval()
    assert torch.equal(table(layout, torch.float32).sin, table(layout, torch.float32).sin)
    table.train()
    first, second = (table(layout, torch.float32).sin for _ in range(2))
    assert not torch.equal(first, second)
    assert (first[:, 0] == 0).all()
