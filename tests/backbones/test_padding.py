"""Valid tokens of padded batches: the masks pixel by pixel, and images that do not feel what they are padded with."""

import copy

import pytest
import torch
import torch.distributed as dist
from attention_oracle import gradients
from cases import HOSTS, ONE_GRID_HOSTS, SWIN_ARCH, images, randomize, swin
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from vitplug.hosting import mark_padding, padding

BATCH = (72, 96)
CB = dict(type='ContextBroadcast')
PLUGS = {
    'cb-everywhere': [CB | dict(position=['mlp_front', 'mlp_mid', 'mlp_end', 'msa'])],
    'cb-scaled': [CB | dict(scaled=True, scale_init_value=0.3)],
    'cb-max': [CB | dict(mode='max')],
    'cb-cls': [CB | dict(mode='cls', cls_fallback='mean')],
    'cb-gate': [CB | dict(mode='gate', cls_fallback='mean')],
    'cb-hybrid': [CB | dict(mode='hybrid', cls_fallback='mean', position='mlp_front')],
    'se': [dict(type='SqueezeExcite', reduction=4)],
    'uniform': [dict(type='UniformHead')],
    'uniform-wide': [dict(type='UniformHead', mode='append', extra_head_dim=12)],
    'broad': [dict(type='BroadAttention')],
    'broad-v': [dict(type='BroadAttention', use_qk=False, pool_layout='head_dim_layer')],
}


def build(host, plugs, **settings):
    settings |= dict(plugs=copy.deepcopy(PLUGS[plugs]))
    settings |= {} if host.startswith(('t2t', 'lvt', 'pit')) else dict(use_abs_pos_embed=False)
    if plugs == 'uniform-wide':
        settings |= dict(arch=dict(SWIN_ARCH, num_heads=[2, 2])) if host.startswith('swin') else {}
        settings['plugs'][0]['extra_head_dim'] = 12 if host.startswith('swin') else 16
    return randomize(HOSTS[host](**settings)).double().eval()


def padded(pictures: list[Tensor], size=BATCH) -> Tensor:
    """Pictures ``(1, C, h, w)`` padded with zeros to one batch, which is not marked."""
    batch = pictures[0].new_zeros(len(pictures), pictures[0].shape[1], *size)
    for image, picture in zip(batch, pictures, strict=True):
        image[:, : picture.shape[2], : picture.shape[3]] = picture[0]
    return batch


# --- which tokens are valid ---


def mask_oracle(pixels: Tensor, cell: tuple[int, int]) -> Tensor:
    """Cells ``(h, w)`` of which one entry of ``(H, W)`` at least is True, where cells begin; entry by entry."""
    height, width = (-(-side // step) for side, step in zip(pixels.shape, cell, strict=True))
    rows = [
        [bool(pixels[y * cell[0] : (y + 1) * cell[0], x * cell[1] : (x + 1) * cell[1]].any()) for x in range(width)]
        for y in range(height)
    ]
    return torch.tensor(rows)


@st.composite
def batches(draw):
    """The size of a batch, those of its images, and the stride of its patches."""
    batch = draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    sizes = draw(st.lists(st.tuples(*(st.integers(1, side) for side in batch)), min_size=1, max_size=3))
    return batch, sizes, draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))


@given(case=batches(), prefix=st.integers(0, 2))
def test_masks_pixel_by_pixel(case, prefix):
    batch, sizes, stride = case
    valid = padding.valid_sizes(mark_padding(torch.zeros(len(sizes), 1, *batch), sizes))
    if all(size == batch for size in sizes):
        assert valid is padding.shrink(valid, stride) is padding.TokenMap((3, 3), valid).every(2).valid() is None
        return
    expected = [torch.zeros(batch, dtype=torch.bool) for _ in sizes]
    for mask, (height, width) in zip(expected, sizes, strict=True):
        mask[:height, :width] = True
    tokens = padding.TokenMap(batch, valid, prefix)
    for cell in (stride, (2, 2), (2, 2)):
        expected = [mask_oracle(mask, cell) for mask in expected]
        hw = tuple(expected[0].shape)
        tokens = tokens.merged(hw, cell) if cell == stride else tokens.every(2)
        assert tokens.hw == hw
        assert tokens.valid()[:, :prefix].all()
        assert torch.equal(tokens.valid()[:, prefix:], torch.stack(expected).flatten(1))


def test_sizes_are_those_of_the_images_and_new_tensors_know_nothing():
    """A crop has sizes of its own."""
    for sizes in ([(8, 8)], [(8, 8), (65, 8)], [(8, 8), (8, 0)]):
        with pytest.raises(ValueError, match=r'sizes=.*expected height and width of each|from 1 to these'):
            mark_padding(images(64, 96), sizes)
    batch = mark_padding(images(64, 96), [(32, 32), (64, 96)])
    assert padding.valid_sizes(batch).tolist() == [[32, 32], [64, 96]]
    assert padding.valid_sizes(mark_padding(batch, [(64, 96)] * 2)) is None
    mark_padding(batch, [(32, 32), (64, 96)])
    for other in (batch[:, :, :32], batch * 1, batch.half(), batch.flip(-1)):
        assert padding.valid_sizes(other) is None


# --- what reaches the sockets ---


@pytest.mark.parametrize('host', HOSTS)
def test_no_padding_no_mask(host):
    """The path, and every bit, is that of a batch of which nothing is known."""
    model = randomize(HOSTS[host](plugs=[CB, dict(type='UniformHead')])).eval()
    x, seen = images(40, 56, dtype=torch.float32), []
    for block in model.plugged_blocks():
        block.register_forward_pre_hook(lambda block, args: seen.append(args[1].valid))
    expected = model(x)
    assert_close(model(mark_padding(x, [(40, 56), (40, 56)])), expected, rtol=0, atol=0)
    assert seen == [None] * 8


# --- an image alone and in a batch ---


def silence(model):
    """Keeps heads with a map from the output: besides the plugs, no token sees another then."""
    for block in model.plugged_blocks():
        attention = getattr(block.attn, 'w_msa', block.attn)
        with torch.no_grad():
            attention.proj.weight[:, : attention.shape.map_heads * attention.shape.head_dims] = 0
    return model


def own_part(model, out, index, size):
    """What belongs to one image in a map ``(B, D, h, w)`` of a batch."""
    cell = [-(-BATCH[0] // out.shape[2]), -(-BATCH[1] // out.shape[3])]
    height, width = (-(-side // step) for side, step in zip(size, cell, strict=True))
    return out[index : index + 1, :, :height, :width]


# T2T-ViT's token stage mixes padding in, and its positions depend on the size of the batch.
@pytest.mark.sampled(2)
@pytest.mark.parametrize('host', [host for host in ONE_GRID_HOSTS if host != 't2t'])
@pytest.mark.parametrize('plugs', PLUGS)
def test_an_image_alone_and_in_a_batch(host, plugs):
    """Values and gradients. A patch is padded with zeros in both, so sizes need not divide it.

    Swin's sizes make an even number of tokens in each direction, for it merges odd ones with what is beside them;
    under uniform heads they fill all windows, for the host fills windows up with tokens that are no padding of a batch.
    """
    model = silence(build(host, plugs))
    fills = {'vit-windows': 24, 'swin': 64, 'swin-pad-small': 32, 'swin-v2': 64} if plugs.startswith('uniform') else {}
    side = fills.get(host, 8 if host.startswith('swin') else 1)
    sizes = [(-(-h // side) * side - cut, -(-w // side) * side - cut) for h, w, cut in ((37, 51, 0), (61, 31, 1))]
    pictures = [images(*size, batch=1, seed=i) for i, size in enumerate(sizes)]
    alone = [model(picture) for picture in pictures]
    outs = model(mark_padding(padded(pictures), sizes))
    together = [[own_part(model, out, i, size) for out in outs] for i, size in enumerate(sizes)]
    assert_close(together, [list(out) for out in alone], rtol=1e-10, atol=1e-10)

    # Not of the attention's projection, which sees what attention makes of padding.
    parameters = [p for name, p in model.named_parameters() if not name.endswith('proj.weight')]
    grads = (gradients([out for each in outs for out in each], parameters) for outs in (together, alone))
    assert_close(*grads, rtol=1e-8, atol=1e-8)

    # A class token is no padding, and padding is seldom the largest.
    if plugs in ('cb-max', 'cb-cls', 'cb-gate'):
        return
    paper = model(padded(pictures))
    assert not torch.allclose(own_part(model, paper[-1], 0, sizes[0]), alone[0][-1], rtol=1e-3)


# --- the contract, of a padded batch ---


def marked(seed=1):
    return mark_padding(images(*BATCH, seed=seed), [(37, 51), (64, 7)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ('host', 'plugs'), [('vit', ['ContextBroadcast', 'UniformHead']), ('swin', ['ContextBroadcast', 'BroadAttention'])]
)
def test_compiles_to_one_graph_for_all_sizes(host, plugs):
    model = randomize(HOSTS[host](plugs=[dict(type=plug) for plug in plugs])).double().eval()
    compiled = torch.compile(model, fullgraph=True, backend='eager')
    assert_close(compiled(marked()), model(marked()), rtol=1e-10, atol=1e-10)
    with torch._dynamo.config.patch(error_on_recompile=True):
        x = mark_padding(images(*BATCH, seed=2), [(1, 96), (50, 50)])
        assert_close(compiled(x), model(x), rtol=1e-10, atol=1e-10)
    # A batch without padding is another graph, and the first one when padding comes back.
    x = images(*BATCH)
    assert_close(compiled(x), model(x), rtol=1e-10, atol=1e-10)


def test_distributed_data_parallel_passes_the_sizes_on(tmp_path):
    model, x = randomize(swin(plugs=[CB])).double(), marked()
    expected = model(x)
    dist.init_process_group('gloo', init_method=f'file://{tmp_path}/store', rank=0, world_size=1)
    try:
        assert_close(DistributedDataParallel(model)(x), expected)
    finally:
        dist.destroy_process_group()
