"""The Lite Vision Transformer against its equations, and the authors' names, shapes and counts."""

import pytest
import torch
from cases import LVT_ARCH, PLUGS, images, lvt, randomize
from lvt_oracle import Oracle, Plugs
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from mmpretrain.structures import DataSample
from torch.testing import assert_close

from vitplug.analysis.costs import build_model, count_costs
from vitplug.attention import fused_attention
from vitplug.backbones import LVT
from vitplug.hosting import mark_padding
from vitplug.models.token_labels import Box

SIZES = [(32, 48), (37, 51), (70, 21), (5, 3)]
VARIANTS = {
    'default': {},
    'plain queries': dict(atrous_rates=[]),
    'one rate': dict(atrous_rates=[2]),
    'no recursion': dict(recursions=1),
    'three recursions': dict(recursions=3),
}


def oracle_of(model, plugs=None, atrous_rates=(1, 3, 5), recursions=2):
    arch = LVT_ARCH
    sizes = (arch['depths'], arch['num_heads'], arch['sr_ratios'])
    return Oracle(dict(model.named_parameters()), *sizes, plugs or Plugs(), atrous_rates, recursions)


def build(**settings):
    return randomize(lvt(**settings)).double().eval()


def gradients(outs, model):
    """Of a scalar that every output element moves by another amount."""
    weights = [torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out) for out in outs]
    return torch.autograd.grad(outs, list(model.parameters()), weights, retain_graph=True)


def assert_same_with_gradients(got, expected, model):
    assert_close(got, expected, rtol=1e-9, atol=1e-9)
    names = [name for name, _ in model.named_parameters()]
    grads = (dict(zip(names, gradients(outs, model), strict=True)) for outs in (got, expected))
    assert_close(*grads, rtol=1e-9, atol=1e-9)


def normed_maps(oracle, x):
    maps = oracle.stages(x)
    return tuple(
        oracle.norm(f'downstream_norms.{stage}', out).permute(0, 3, 1, 2)
        for stage, out in enumerate(maps)
        if f'downstream_norms.{stage}.weight' in oracle.state
    )


@pytest.mark.parametrize('size', SIZES, ids=str)
def test_maps(size):
    model, x = build(), images(*size)
    assert_same_with_gradients(model(x), normed_maps(oracle_of(model), x), model)


@pytest.mark.parametrize('variant', VARIANTS)
def test_variants(variant):
    model, x = build(**VARIANTS[variant]), images(32, 40)
    expected = normed_maps(oracle_of(model, **VARIANTS[variant]), x)
    for fused in (True, False):
        with fused_attention(fused):
            assert_same_with_gradients(model(x), expected, model)


def test_outputs_of_classifiers():
    x = images(37, 51)
    model = build(out_type='avg_featmap', out_indices=-1)
    oracle = oracle_of(model)
    expected = oracle.norm('norm', oracle.stages(x)[-1]).mean((1, 2))
    assert_same_with_gradients(model(x), (expected,), model)

    model = build(out_type='raw', out_indices=-1)
    oracle = oracle_of(model)
    expected = oracle.class_attention(oracle.stages(x)[-1], LVT_ARCH['num_heads'][-1])
    assert_same_with_gradients(model(x), (expected,), model)
    with fused_attention(False):
        assert_close(model(x), (expected,))
    cls_only = lvt(out_type='cls_token', out_indices=-1).double().eval()
    cls_only.load_state_dict(model.state_dict())
    assert_close(cls_only(x), (expected[:, 0],))


def test_outputs_may_lack_norms():
    model, x = build(norm_cfg=None, out_indices=(0, 2)), images(32, 40)
    first, _, last = oracle_of(model).stages(x)
    assert_close(model(x), (first.permute(0, 3, 1, 2), last.permute(0, 3, 1, 2)))


# --- the authors' model ---


def authors_shapes(stage, block, dims, hidden, heads, stride):
    """Names and shapes of a block."""
    prefix, square = f'backbone.{stage}.1.{block}', (dims, dims)
    norms = {f'{prefix}.{norm}.{part}': (dims,) for norm in ('norm1', 'norm2') for part in ('weight', 'bias')}
    layers = {'attn.proj.weight': square, 'attn.proj.bias': (dims,), 'mlp.fc1.bias': (hidden,), 'mlp.fc2.bias': (dims,)}
    if stage == 0:
        layers |= {'attn.attn.weight': (81 * heads, dims), 'attn.attn.bias': (81 * heads,)}
        layers |= {'attn.weight.weight': (9 * dims, dims, 1, 1)}
        layers |= {'mlp.fc1.weight': (hidden, dims), 'mlp.fc2.weight': (dims, hidden)}
        return norms | {f'{prefix}.{name}': shape for name, shape in layers.items()}
    layers |= {'attn.q.weight': square, 'attn.kv.weight': (2 * dims, dims), 'attn.ds.weight': (dims, 1, 3, 3)}
    if stride > 1:
        layers |= {'attn.sr.weight': (*square, stride, stride), 'attn.sr.bias': (dims,)}
        layers |= {'attn.norm.weight': (dims,), 'attn.norm.bias': (dims,)}
    layers |= {'mlp.fc1.weight': (hidden, dims, 1, 1), 'mlp.fc2.weight': (dims, hidden, 1, 1)}
    layers |= {'mlp.depconv.weight': (hidden, 1, 3, 3), 'mlp.depconv.bias': (hidden,)}
    return norms | {f'{prefix}.{name}': shape for name, shape in layers.items()}


def authors_class_block(block, dims):
    shapes = {'attn.q.weight': (dims, dims), 'attn.kv.weight': (2 * dims, dims), 'mlp.fc1.weight': (4 * dims, dims)}
    shapes |= {'attn.proj.weight': (dims, dims), 'mlp.fc2.weight': (dims, 4 * dims), 'mlp.fc1.bias': (4 * dims,)}
    one = ('norm1.weight', 'norm1.bias', 'norm2.weight', 'norm2.bias', 'attn.proj.bias', 'mlp.fc2.bias')
    shapes |= dict.fromkeys(one, (dims,))
    return {f'backbone.post_network.{block}.{name}': shape for name, shape in shapes.items()}


def authors_model():
    """The released classifier's names and shapes, as a classifier has them; the heads are left out."""
    wanted, before = {}, 3
    for stage, (dims, ratio, heads, stride) in enumerate(
        zip([64, 64, 160, 256], [4, 8, 4, 4], [2, 2, 5, 8], [8, 4, 2, 1], strict=True)
    ):
        side = 7 if stage == 0 else 3
        wanted[f'backbone.{stage}.0.proj.weight'] = (dims, before, side, side)
        wanted |= {f'backbone.{stage}.0.{name}': (dims,) for name in ('proj.bias', 'norm.weight', 'norm.bias')}
        for block in range(2):
            wanted |= authors_shapes(stage, block, dims, ratio * dims, heads, stride)
        before = dims
    wanted |= {**authors_class_block(0, 256), **authors_class_block(1, 256), 'backbone.cls_token': (1, 1, 256)}
    return wanted | {'backbone.norm.weight': (256,), 'backbone.norm.bias': (256,)}


def classifier(head, **backbone):
    return Config(dict(model=dict(type='ImageClassifier', backbone=dict(type='vitplug.LVT', **backbone), **head)))


HEADS = {
    'raw': dict(head=dict(type='vitplug.TokenLabelHead', num_classes=1000, in_channels=256)),
    'cls_token': dict(head=dict(type='LinearClsHead', num_classes=1000, in_channels=256)),
    'avg_featmap': dict(head=dict(type='LinearClsHead', num_classes=1000, in_channels=256)),
    'featmap': dict(
        neck=dict(type='GlobalAveragePooling'), head=dict(type='LinearClsHead', num_classes=1000, in_channels=256)
    ),
}
COSTS = {
    'raw': (5_521_844, '0.889'),
    'cls_token': (5_521_844 - 257_000, '0.876'),
    'avg_featmap': (3_686_604, '0.862'),
    'featmap': (3_686_604, '0.862'),
}


@pytest.mark.parametrize('out_type', HEADS)
def test_names_shapes_and_counts(out_type):
    cfg = classifier(HEADS[out_type], out_type=out_type)
    cfg.default_scope = 'mmpretrain'
    model = build_model(cfg)
    names = {name: tuple(p.shape) for name, p in model.state_dict().items() if not name.startswith('head.')}
    if out_type == 'raw':
        assert names == authors_model()
    costs = count_costs(model, 'mmpretrain', (3, 224, 224))
    assert (costs.total_parameters, f'{costs.total_macs / 1e9:.3f}') == COSTS[out_type]


def test_weights_start_as_the_authors_do():
    torch.manual_seed(0)
    model = LVT(out_type='raw')
    stds = {name: p.std().item() for name, p in model.named_parameters() if p.ndim > 1}
    expected = {
        '1.1.0.attn.q.weight': 0.02,
        'post_network.0.mlp.fc1.weight': 0.02,
        'cls_token': 0.02,
        '0.0.proj.weight': (2 / (49 * 64)) ** 0.5,
        '3.0.proj.weight': (2 / (9 * 256)) ** 0.5,
        '1.1.0.attn.sr.weight': (2 / (16 * 64)) ** 0.5,
        '0.1.0.attn.weight.weight': (2 / (9 * 64)) ** 0.5,
        # Uniform, and the bound of uniform numbers is sqrt(3) of their standard deviation.
        '1.1.0.attn.ds.weight': (2 / 9) ** 0.5,
        '1.1.0.mlp.fc1.weight': (1 / (3 * 64)) ** 0.5,
    }
    for name, std in expected.items():
        assert stds[name] == pytest.approx(std, rel=0.1), name
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m.bias is not None]
    assert not any(m.bias.any() for m in linear)


# --- plugs ---


class Changed(Plugs):
    """Context Broadcasting at both ends, a Gaussian bias, residual and broad attention.

    Every recursion blends with the scores of the block before; those of the last one are handed on.
    """

    def __init__(self, alpha, gaussians, chain):
        self.alpha, self.gaussians, self.chain = alpha, gaussians, chain
        self.before = self.handed = None
        self.tapped = {}

    def enter(self, block):
        self.before = self.handed if block in self.chain[1:] else None

    def logits(self, block, is_last, scores):
        if self.before is not None:
            scores = self.alpha * scores + (1 - self.alpha) * self.before
        if is_last:
            self.handed = scores
        return scores + self.gaussians[block]

    def tap(self, block, q, k, v):
        self.tapped[block] = (q, k, v)

    def msa(self, x):
        return (x + x.mean((1, 2), keepdim=True)) / 2

    mlp_end = msa

    def finish(self, x):
        """Of blocks 2 and 3, the last ones of stages 1 and 2, whose keys lie on one grid."""
        hw, dims, heads = x.shape[1:3], x.shape[3], LVT_ARCH['num_heads'][-1]
        of_heads = []  # q, k and v: the channels of both blocks side by side in every head
        for tensors in zip(self.tapped[2], self.tapped[3], strict=True):
            pooled = (t if t.shape[1:3] == hw else pool(t) for t in tensors)
            parts = [t.flatten(1, 2).reshape(len(t), -1, heads, t.shape[3] // heads) for t in pooled]
            of_heads.append(torch.cat(parts, dim=-1))
        q, k, v = of_heads
        probs = (dims**-0.5 * torch.einsum('bihc,bjhc->bhij', q, k)).softmax(-1)
        channels = torch.einsum('bhij,bjhc->bihc', probs, v).flatten(2)
        return x + torch.nn.functional.adaptive_avg_pool1d(channels, dims).reshape(x.shape)


def pool(t):
    """The largest of 2 x 2, channel by channel."""
    return torch.stack([t[:, y::2, c::2] for y in (0, 1) for c in (0, 1)]).amax(0)


def gaussian(queries, keys, amplitude, sigma):
    """Of all pairs; positions in tokens of the queries, which lie closer."""
    sides = zip((*queries, *queries), (*queries, *keys), strict=True)
    centres = [[(i + 0.5) * unit / side for i in range(side)] for unit, side in sides]
    ys, xs, key_ys, key_xs = (torch.tensor(c, dtype=torch.float64) for c in centres)
    squares = (ys[:, None, None, None] - key_ys[:, None]) ** 2 + (xs[:, None, None] - key_xs) ** 2
    return (amplitude**2 * torch.exp(-squares / (2 * sigma**2))).flatten(2).flatten(0, 1)


@pytest.mark.parametrize('fused', [True, False])
def test_plugs_act_in_every_recursion_and_hand_on_from_the_last(fused):
    plugs = [
        dict(type='ContextBroadcast', position=['msa', 'mlp_end']),
        dict(type='GaussianAttentionBias', sigma=2.0, layers=[1, 2, 3]),
        dict(type='ResidualAttention', stage_transition='reset', layers=[1, 2, 3]),
        dict(type='BroadAttention'),
    ]
    model, x = build(plugs=plugs), images(32, 48)
    parameters = dict(model.named_parameters())
    grids = {1: ((4, 6), (2, 3)), 2: ((4, 6), (2, 3)), 3: ((2, 3), (2, 3))}
    gaussians = {
        block: gaussian(*grids[block], *(parameters[f'{name}.plugs.gab.bias.gab_{p}'] for p in ('amplitude', 'sigma')))
        for block, name in {1: '1.1.0', 2: '1.1.1', 3: '2.1.0'}.items()
    }
    alpha = parameters['plugs.residual_attention.start.alpha.residual_alpha'].clamp(0, 1)
    changed = Changed(alpha, gaussians, (1, 2))
    expected = normed_maps(oracle_of(model, changed), x)
    with fused_attention(fused):
        assert_same_with_gradients(model(x), expected, model)
        _, found = model.forward_intermediates(x, ('q', 'k', 'v'))
    for block, tensors in changed.tapped.items():  # of the last recursion
        for name, t in zip('qkv', tensors, strict=True):
            assert_close(found[name][block].squeeze(1).transpose(1, 2).flatten(2), t.flatten(1, 2))


def test_every_block_gets_the_mask_of_its_queries_and_keys():
    x = mark_padding(images(32, 48), [(9, 48), (32, 17)])
    _, found = build().forward_intermediates(x, 'site')
    sites, grids = found['site'], {0: (8, 12), 1: (4, 6), 2: (4, 6), 3: (2, 3)}
    assert {block: site.layout.hw for block, site in sites.items()} == grids
    assert {block: site.key_layout.hw for block, site in sites.items()} == {**grids, 1: (2, 3), 2: (2, 3)}
    # Rounded up: rows and columns of valid tokens of both images.
    valid = {0: [(3, 12), (8, 5)], 1: [(2, 6), (4, 3)], 2: [(2, 6), (4, 3)], 3: [(1, 3), (2, 2)]}
    for block, site in sites.items():
        assert_close(site.valid, masks(grids[block], valid[block]))
        of_keys = (valid[3], grids[3]) if block in (1, 2) else (valid[block], grids[block])
        assert_close(site.valid_keys, masks(*of_keys[::-1]).unsqueeze(1))


def masks(hw, valid):
    return torch.tensor(
        [[y < rows and x < columns for y in range(hw[0]) for x in range(hw[1])] for rows, columns in valid]
    )


def test_the_first_token_of_every_stage_is_centred_on_the_first_pixel():
    model = lvt()
    for block, (stride, hw) in {0: (4, (10, 13)), 1: (8, (5, 7)), 2: (8, (5, 7)), 3: (16, (3, 4))}.items():
        layout, pixels = model.place_block(block, (37, 51))
        assert (layout.hw, pixels.hw, pixels.stride) == (hw, hw, (stride, stride))
        assert [start + stride / 2 for start in pixels.start] == [0.5, 0.5]


def test_keys_lie_in_the_middle_of_their_tokens():
    """By the gradient of each key to the tokens that enter the block, where no square is cut off."""
    model, size, block = build(), (64, 96), 1
    (_, tokens), (_, keys) = model.place_block(block, size), model.place_keys(block, size)
    x = torch.randn(1, tokens.hw[0] * tokens.hw[1], 12, dtype=torch.float64, requires_grad=True)
    k, _ = model.plugged_blocks()[block].attn._keys_and_values(x, tokens.hw)
    assert k.shape[3] == keys.hw[0] * keys.hw[1]
    for index in range(k.shape[3]):
        (grad,) = torch.autograd.grad(k[:, :, :, index].sum(), x, retain_graph=True)
        seen = grad[0].abs().sum(-1).unflatten(0, tokens.hw).nonzero().double()
        for axis, place in enumerate(divmod(index, keys.hw[1])):
            expected = tokens.start[axis] + tokens.stride[axis] * (seen[:, axis].mean() + 0.5)
            assert keys.start[axis] + keys.stride[axis] * (place + 0.5) == expected.item()


def test_the_first_stage_has_no_maps():
    with pytest.raises(ValueError, match=r"gab takes the socket 'bias', which block 0 does not offer"):
        LVT(LVT_ARCH, plugs=PLUGS['gab'])
    message = (
        r"residual_attention takes the socket 'scores', which block 0 .*; layers=\[1, 2, 3\] are the blocks that do"
    )
    with pytest.raises(ValueError, match=message):
        LVT(LVT_ARCH, plugs=PLUGS['residual'])
    with pytest.raises(ValueError, match='Refiner: block 0 has no attention map to refine'):
        LVT(LVT_ARCH, plugs=PLUGS['refiner'])
    with pytest.raises(ValueError, match='UniformHead: block 0 has no attention'):
        LVT(LVT_ARCH, plugs=[dict(type='UniformHead', mode='append')])


@pytest.mark.parametrize('mode', ['replace', 'append'])
def test_uniform_heads_and_stock_weights(mode):
    """Of the authors' projections, the rows of the heads that are left are loaded."""
    stock = randomize(lvt())
    model = lvt(plugs=[dict(type='UniformHead', mode=mode, layers=[1, 3])])
    missing, unexpected = model.load_state_dict(stock.state_dict(), strict=False)
    assert not missing and not unexpected
    own, theirs = model.plugged_blocks()[1].attn, stock.plugged_blocks()[1].attn
    heads, dims = (2 if mode == 'append' else 1), 6
    assert_close(own.q.weight, theirs.q.weight[: heads * dims])
    assert_close(own.ds.weight, theirs.ds.weight[: heads * dims])
    k, v = own.kv.weight.split([heads * dims, len(own.kv.weight) - heads * dims])
    assert_close((k, v[:12]), (theirs.kv.weight[: heads * dims], theirs.kv.weight[12:]))
    outs = model.double()(images(32, 40))
    sum(out.sum() for out in outs).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]


def test_shared_maps_need_no_queries():
    model = lvt(plugs=[dict(type='Refiner', share=1, layers=[1, 2])])
    first, second = model.plugged_blocks()[1:3]
    assert first.attn.q is not None and second.attn.q is None and second.attn.ds is None
    _, unexpected = model.load_state_dict(lvt().state_dict(), strict=False)
    assert not unexpected
    with pytest.raises(ValueError, match=r'Refiner: block 3 cannot reuse the map of block 2'):
        lvt(plugs=[dict(type='Refiner', share=1, layers=[2, 3])])


# --- in mmpretrain ---


def test_token_labels_and_mixed_tokens():
    """MixToken swaps pieces of 4 x 4 tokens of the first stage here, one for each token of the third and last."""
    cfg = classifier(
        dict(head=dict(type='vitplug.TokenLabelHead', num_classes=5, in_channels=24)), arch=LVT_ARCH, out_type='raw'
    )
    cfg.model.type = 'vitplug.TokenLabelClassifier'
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model)
    x = images(32, 48, dtype=torch.float32)
    labels = torch.stack((torch.rand(5, 2, 3), torch.arange(5.0).view(-1, 1, 1).expand(-1, 2, 3)))
    places = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 4), torch.linspace(-1, 1, 6), indexing='ij'), -1).flip(-1)
    samples = [DataSample() for _ in x]
    for sample in samples:
        sample.token_labels, sample.token_places = labels, places
    sum(model.loss(x, samples).values()).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]
    assert model.predict(x)[0].pred_score.shape == (5,)

    box = Box(0, 1, 1, 3)
    tokens, hw = model.backbone.embed(x)
    mixed, _ = model.backbone.embed(x, mix=box.swap)
    expected = tokens.unflatten(1, hw).clone()
    expected[:, 0:4, 4:12] = tokens.unflatten(1, hw).flip(0)[:, 0:4, 4:12]
    assert_close(mixed, expected.flatten(1, 2))
    with pytest.raises(ValueError, match=r'MixToken: the map of \(9, 12\) tokens .* multiple of 16 pixels'):
        model.backbone.embed(images(36, 48, dtype=torch.float32), mix=box.swap)


BAD = {
    'unknown arch': (dict(arch='tiny'), r"arch='tiny': unknown; choose from \['lvt'\]"),
    'arch lacks keys': (dict(arch=dict(depths=[1])), r'arch=.*expected a name or a dict with the keys .*sr_ratios'),
    'lengths': (dict(arch={**LVT_ARCH, 'depths': [1, 1]}), r'arch: .* differ in length'),
    'heads': (dict(arch={**LVT_ARCH, 'num_heads': [5, 2, 4]}), r'embed_dims=12 is no multiple of num_heads=5'),
    'img_size': (dict(img_size='224'), r"img_size='224': expected a positive integer, or a pair"),
    'rates': (dict(atrous_rates=[0]), r'atrous_rates=\[0\]: expected a list of positive integers'),
    'recursions': (dict(recursions=0), r'recursions=0: expected an integer of at least 1'),
    'class blocks': (dict(class_depth=0), r'class_depth=0: expected an integer of at least 1'),
    'attn_drop_rate': (dict(attn_drop_rate=2), r'attn_drop_rate=2: expected a number at least 0'),
    'out_type': (dict(out_type='tokens'), r"out_type='tokens': expected one of .*'raw'"),
    'out_indices': (dict(out_indices=(3,)), r'out_indices=\[3\]: \[3\] outside; .* 0 to 2'),
    'outputs of classifiers': (
        dict(out_type='raw', out_indices=(0, 2)),
        r"out_indices=\(0, 2\): out_type='raw' is of the last stage alone; leave out_indices out",
    ),
    'frozen_stages': (dict(frozen_stages=3), r'frozen_stages=3: expected an integer from -1 \(none\) to 2'),
}


@pytest.mark.parametrize('settings, message', BAD.values(), ids=BAD)
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        lvt(**settings)


def test_unknown_arguments():
    with pytest.raises(TypeError, match=r"LVT has no argument \['window_size'\]; it takes .*'recursions'"):
        LVT(window_size=7)
