"""The keys and shapes of the weights that the authors of the papers released, and their networks.

The networks are written out from the papers and from descriptions of the authors' code: in float64, on the released
keys, without anything of vitplug.
"""

import lvt_oracle
import mvit_oracle
import torch
import torch.nn.functional as F
from torch import Tensor

State = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]


def randoms(shapes: Shapes, seed: int = 0) -> State:
    """Random tensors by name: weights and variances of norms around 1, all others around 0."""
    generator = torch.Generator().manual_seed(seed)

    def draw(name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith('num_batches_tracked'):
            return torch.tensor(7)
        if name == 'alpha':
            return torch.tensor([0.37], dtype=torch.float64)
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name.endswith('running_var'):
            return 0.5 + noise.abs()
        if name.endswith(('norm.weight', 'norm1.weight', 'norm2.weight')) or '.bn' in name or '_bn' in name:
            return 1 + 0.2 * noise if name.endswith('weight') else 0.2 * noise
        # Of such a size that attention is neither flat nor saturated, whatever the number of summands.
        fan = torch.Size(shape[1:]).numel() if len(shape) > 1 else 1
        return noise * (2 / fan) ** 0.5 if len(shape) > 1 and fan > 1 else 0.3 * noise

    return {name: draw(name, shape) for name, shape in shapes.items()}


def linear(name: str, out: int, inside: int, bias: bool = True) -> Shapes:
    return {f'{name}.weight': (out, inside), **({f'{name}.bias': (out,)} if bias else {})}


def norm(name: str, dims: int) -> Shapes:
    return {f'{name}.weight': (dims,), f'{name}.bias': (dims,)}


def batch_norm(name: str, dims: int) -> Shapes:
    return {
        **norm(name, dims),
        f'{name}.running_mean': (dims,),
        f'{name}.running_var': (dims,),
        f'{name}.num_batches_tracked': (),
    }


def conv(name: str, out: int, inside: int, side: int, bias: bool = True) -> Shapes:
    return {f'{name}.weight': (out, inside, side, side), **({f'{name}.bias': (out,)} if bias else {})}


# --- the layers ---


class Net:
    """The layers of a state dict, by name."""

    def __init__(self, state: State):
        self.state = state

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.state[f'{name}.weight'], self.state.get(f'{name}.bias'))

    def norm(self, name: str, x: Tensor, eps: float) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.state[f'{name}.weight'], self.state[f'{name}.bias'], eps)

    def batch_norm(self, name: str, x: Tensor) -> Tensor:
        """By the stored statistics, as in evaluation."""
        names = ('running_mean', 'running_var', 'weight', 'bias')
        return F.batch_norm(x, *(self.state[f'{name}.{key}'] for key in names))

    def conv(self, name: str, x: Tensor, **settings) -> Tensor:
        return F.conv2d(x, self.state[f'{name}.weight'], self.state.get(f'{name}.bias'), **settings)

    def mlp(self, first: str, second: str, x: Tensor) -> Tensor:
        return self.linear(second, F.gelu(self.linear(first, x)))


def to_heads(x: Tensor, heads: int) -> Tensor:
    """Tokens ``(B, N, H d)`` to ``(B, H, N, d)``."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def from_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


# --- Refined-ViT ---


def refined_vit(dims=24, depth=4, heads=3, classes=5, image=64, patch=16, dense=False, scaled=True) -> Shapes:
    """Refined-ViT; with ``dense``, the head of all tokens, without ``scaled``, no scales of the MLPs' channels."""
    maps, hidden, tokens = 3 * heads, 3 * dims, (image // patch) ** 2 + 1
    shapes = {'cls_token': (1, 1, dims), 'pos_embed': (1, tokens, dims)}
    for i, (inside, out, side) in enumerate(((3, 32, 7), (32, 64, 3), (64, 128, 3)), 1):
        shapes |= conv(f'patch_embed.conv{i}', out, inside, side, bias=False) | batch_norm(f'patch_embed.bn{i}', out)
    shapes |= conv('patch_embed.proj', dims, 128, patch // 2)
    for i in range(depth):
        block = f'blocks.{i}'
        shapes |= norm(f'{block}.norm1', dims)
        if i % 2:
            shapes |= conv(f'{block}.attn.DLA.conv_exp', maps, heads, 1, bias=False)
            shapes |= batch_norm(f'{block}.attn.DLA.bn1', maps)
            shapes |= conv(f'{block}.attn.DLA.depth_sep_conv', maps, 1, 3, bias=False)
            shapes |= batch_norm(f'{block}.attn.DLA.bn2', maps)
            shapes |= conv(f'{block}.attn.DLA.conv_pro', heads, maps, 1, bias=False)
            shapes |= batch_norm(f'{block}.attn.DLA.bn3', heads) | batch_norm(f'{block}.attn.adapt_bn', heads)
        shapes |= linear(f'{block}.attn.qkv', dims if i % 2 else 3 * dims, dims)
        shapes |= linear(f'{block}.attn.proj', dims, dims) | norm(f'{block}.norm2', dims)
        shapes |= {f'{block}.mlp.scale_channel': (dims,)} if scaled else {}
        shapes |= linear(f'{block}.mlp.fc1', hidden, dims) | linear(f'{block}.mlp.fc2', dims, hidden)
    shapes |= norm('norm', dims) | linear('head', classes, dims)
    return shapes | (linear('aux_head', classes, dims) if dense else {})


def run_refined_vit(state: State, images: Tensor, heads: int = 3) -> Tensor:
    """Scores: pairs of blocks share a map, to which the last pair's is added; the second block refines it."""
    net = Net(state)
    x = images
    for i in (1, 2, 3):
        settings = dict(stride=2, padding=3) if i == 1 else dict(padding=1)
        x = net.batch_norm(f'patch_embed.bn{i}', net.conv(f'patch_embed.conv{i}', x, **settings)).relu()
    x = net.conv('patch_embed.proj', x, stride=state['patch_embed.proj.weight'].shape[-1]).flatten(2).transpose(1, 2)
    x = torch.cat((state['cls_token'].expand(len(x), -1, -1), x), 1) + state['pos_embed']
    scale = (x.shape[-1] // heads) ** -0.5
    shared = None
    for i in range(sum(key.endswith('.attn.proj.weight') for key in state)):
        block = f'blocks.{i}'
        qkv = net.linear(f'{block}.attn.qkv', net.norm(f'{block}.norm1', 0.5 * x, eps=1e-6))
        if i % 2:
            v, maps = qkv, shared
            inner = net.batch_norm(f'{block}.attn.DLA.bn1', net.conv(f'{block}.attn.DLA.conv_exp', maps)).clamp(0, 6)
            local = net.conv(f'{block}.attn.DLA.depth_sep_conv', inner, padding=1, groups=inner.shape[1])
            inner = net.batch_norm(f'{block}.attn.DLA.bn2', local).clamp(0, 6)
            inner = net.batch_norm(f'{block}.attn.DLA.bn3', net.conv(f'{block}.attn.DLA.conv_pro', inner))
            maps = net.batch_norm(f'{block}.attn.adapt_bn', inner + maps) * scale
        else:
            q, k, v = qkv.chunk(3, dim=-1)
            own = (scale * to_heads(q, heads) @ to_heads(k, heads).transpose(-2, -1)).softmax(-1)
            maps = shared = own if shared is None else own + scale * shared
        x = x + net.linear(f'{block}.attn.proj', from_heads(maps @ to_heads(v, heads))) / 0.5
        hidden = net.mlp(f'{block}.mlp.fc1', f'{block}.mlp.fc2', net.norm(f'{block}.norm2', 0.5 * x, eps=1e-6))
        x = x + state.get(f'{block}.mlp.scale_channel', 1) * hidden / 0.5
    x = net.norm('norm', x, eps=1e-6)
    scores = net.linear('head', x[:, 0])
    return scores + 0.5 * net.linear('aux_head', x[:, 1:]).amax(1) if 'aux_head.weight' in state else scores


# --- ReViT ---


def revit(dims=24, depth=4, classes=5, image=32, patch=8) -> Shapes:
    tokens = (image // patch) ** 2
    shapes = {'alpha': (1,), 'pos_embed': (1, tokens, dims)} | conv('patch_embed.proj', dims, 3, patch)
    for i in range(depth):
        block = f'blocks.{i}'
        shapes |= norm(f'{block}.norm1', dims) | norm(f'{block}.norm2', dims)
        shapes |= linear(f'{block}.attn.qkv', 3 * dims, dims) | linear(f'{block}.attn.proj', dims, dims)
        shapes |= linear(f'{block}.mlp.fc1', 4 * dims, dims) | linear(f'{block}.mlp.fc2', dims, 4 * dims)
    return shapes | norm('norm', dims) | linear('head.projection', classes, dims)


def run_revit(state: State, images: Tensor, heads: int = 3) -> Tensor:
    """Scores of the mean token; the scores of each block are blended with those of the block before."""
    net, alpha = Net(state), state['alpha']
    x = net.conv('patch_embed.proj', images, stride=state['patch_embed.proj.weight'].shape[-1])
    x = x.flatten(2).transpose(1, 2) + state['pos_embed']
    before = None
    for i in range(sum(key.endswith('.attn.proj.weight') for key in state)):
        block = f'blocks.{i}'
        qkv = net.linear(f'{block}.attn.qkv', net.norm(f'{block}.norm1', x, eps=1e-6))
        q, k, v = (to_heads(t, heads) for t in qkv.chunk(3, dim=-1))
        scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
        before = scores if before is None else alpha * scores + (1 - alpha) * before
        x = x + net.linear(f'{block}.attn.proj', from_heads(before.softmax(-1) @ v))
        x = x + net.mlp(f'{block}.mlp.fc1', f'{block}.mlp.fc2', net.norm(f'{block}.norm2', x, eps=1e-6))
    return net.linear('head.projection', net.norm('norm', x, eps=1e-6).mean(1))


# --- ReSwin ---


def reswin(dims=12, depths=(2, 2, 2), heads=(2, 4, 4), classes=5, window=4, patch=4) -> Shapes:
    shapes = conv('patch_embed.proj', dims, 3, patch) | norm('patch_embed.norm', dims)
    for stage, (depth, number) in enumerate(zip(depths, heads, strict=True)):
        width = dims * 2**stage
        for i in range(depth):
            block = f'layers.{stage}.blocks.{i}'
            shapes |= norm(f'{block}.norm1', width) | norm(f'{block}.norm2', width)
            shapes |= {f'{block}.attn.relative_position_bias_table': ((2 * window - 1) ** 2, number)}
            shapes |= linear(f'{block}.attn.qkv', 3 * width, width) | linear(f'{block}.attn.proj', width, width)
            shapes |= linear(f'{block}.mlp.fc1', 4 * width, width) | linear(f'{block}.mlp.fc2', width, 4 * width)
        if stage < len(depths) - 1:
            merging = f'layers.{stage}.downsample'
            shapes |= norm(f'{merging}.norm', 4 * width) | linear(f'{merging}.reduction', 2 * width, 4 * width, False)
    return shapes | norm('norm', width) | linear('head', classes, width)


def windows_of(x: Tensor, side: int) -> Tensor:
    """A map ``(B, h, w, D)`` in windows, ``(B, windows, side^2, D)``."""
    return x.unflatten(2, (-1, side)).unflatten(1, (-1, side)).transpose(2, 3).flatten(3, 4).flatten(1, 2)


def map_of(x: Tensor, hw: tuple[int, int], side: int) -> Tensor:
    """The inverse of :func:`windows_of`."""
    x = x.unflatten(1, (hw[0] // side, hw[1] // side)).unflatten(3, (side, side))
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def bias_of(table: Tensor, side: int) -> Tensor:
    """The bias ``(H, N, N)`` of all pairs of a window's tokens, from a table of offsets, query minus key."""
    places = [(y, x) for y in range(side) for x in range(side)]
    rows = [[(y - v + side - 1) * (2 * side - 1) + x - u + side - 1 for v, u in places] for y, x in places]
    return table[torch.tensor(rows)].permute(2, 0, 1)


def shift_mask(hw: tuple[int, int], side: int, shift: int) -> Tensor:
    """-100 for pairs of tokens ``(windows, N, N)`` that lie together in a shifted window only by the roll."""
    region = torch.zeros(1, *hw, 1)
    for axis, length in zip((1, 2), hw, strict=True):
        part = torch.zeros(length)
        part[length - side : length - shift] = 1
        part[length - shift :] = 2
        region = region * 3 + part.view([-1 if a == axis else 1 for a in range(4)])
    region = windows_of(region, side)[0, :, :, 0]
    return -100.0 * (region[:, :, None] != region[:, None, :])


def run_reswin(state: State, images: Tensor, heads=(2, 4, 4), side: int = 4) -> Tensor:
    """Scores: those of the windows are averaged with the block before's, whose windows and heads are in one row."""
    net = Net(state)
    x = net.conv('patch_embed.proj', images, stride=state['patch_embed.proj.weight'].shape[-1]).permute(0, 2, 3, 1)
    x = net.norm('patch_embed.norm', x, eps=1e-5)
    before = None
    for stage, number in enumerate(heads):
        hw = tuple(x.shape[1:3])
        for i in range(sum(key.startswith(f'layers.{stage}.') and key.endswith('.attn.proj.weight') for key in state)):
            block = f'layers.{stage}.blocks.{i}'
            shift = side // 2 if i % 2 and min(hw) > side else 0
            rolled = net.norm(f'{block}.norm1', x, eps=1e-5).roll((-shift, -shift), (1, 2))
            qkv = net.linear(f'{block}.attn.qkv', windows_of(rolled, side)).unflatten(-1, (3, number, -1))
            q, k, v = qkv.permute(3, 0, 1, 4, 2, 5)
            scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
            scores = scores + bias_of(state[f'{block}.attn.relative_position_bias_table'], side)
            if before is not None:
                # (B, windows x heads, N, N), the nearest entries for another number of them.
                count = scores.shape[1] * scores.shape[2]
                row = before.flatten(1, 2)
                nearest = torch.tensor([j * row.shape[1] // count for j in range(count)])
                scores = 0.5 * scores + 0.5 * row[:, nearest].view_as(scores)
            before = scores
            masked = scores + shift_mask(hw, side, shift)[:, None] if shift else scores
            out = (masked.softmax(-1) @ v).transpose(2, 3).flatten(3)
            x = x + map_of(net.linear(f'{block}.attn.proj', out), hw, side).roll((shift, shift), (1, 2))
            x = x + net.mlp(f'{block}.mlp.fc1', f'{block}.mlp.fc2', net.norm(f'{block}.norm2', x, eps=1e-5))
        merging = f'layers.{stage}.downsample'
        if f'{merging}.reduction.weight' in state:
            merged = torch.cat([x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)], -1)
            x = net.linear(f'{merging}.reduction', net.norm(f'{merging}.norm', merged, eps=1e-5))
    return net.linear('head', net.norm('norm', x, eps=1e-5).mean((1, 2)))


# --- BViT ---


def bvit(dims=24, depth=4, classes=5, image=64, patch=8) -> Shapes:
    hidden, tokens = 4 * dims, (image // patch) ** 2 + 1
    shapes = conv('conv', 3, 3, 7) | linear('to_patch_embedding.1', dims, 3 * patch * patch)
    shapes |= {'cls_token': (1, 1, dims), 'pos_embedding': (1, tokens, dims)}
    for i in range(depth):
        layer = f'transformer.layers.{i}'
        shapes |= norm(f'{layer}.0.norm', dims) | linear(f'{layer}.0.fn.to_qkv', 3 * dims, dims, bias=False)
        shapes |= linear(f'{layer}.0.fn.to_out.0', dims, dims) | norm(f'{layer}.1.norm', dims)
        shapes |= linear(f'{layer}.1.fn.net.0', hidden, dims) | linear(f'{layer}.1.fn.net.3', dims, hidden)
    return shapes | norm('mlp_head.0', dims) | linear('mlp_head.1', classes, dims)


def run_bvit(state: State, images: Tensor, heads: int = 3) -> Tensor:
    """Scores of the class token, to which 0.4 of the broad attention was added."""
    net = Net(state)
    side = int((state['to_patch_embedding.1.weight'].shape[1] / 3) ** 0.5)
    x = net.conv('conv', images, stride=2, padding=3)
    x = x.unflatten(3, (-1, side)).unflatten(2, (-1, side)).permute(0, 2, 4, 3, 5, 1)  # rows, columns, y, x, channel
    x = net.linear('to_patch_embedding.1', x.flatten(3).flatten(1, 2))
    x = torch.cat((state['cls_token'].expand(len(x), -1, -1), x), 1)
    x = x + state['pos_embedding'][:, : x.shape[1]]
    taken = []
    for i in range(sum(key.endswith('.to_qkv.weight') for key in state)):
        layer = f'transformer.layers.{i}'
        qkv = net.linear(f'{layer}.0.fn.to_qkv', net.norm(f'{layer}.0.norm', x, eps=1e-5))
        q, k, v = (to_heads(t, heads) for t in qkv.chunk(3, dim=-1))
        taken.append((q, k, v))
        maps = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + net.linear(f'{layer}.0.fn.to_out.0', from_heads(maps @ v))
        x = x + net.mlp(f'{layer}.1.fn.net.0', f'{layer}.1.fn.net.3', net.norm(f'{layer}.1.norm', x, eps=1e-5))
    queries, keys, values = (torch.cat(parts, -1) for parts in zip(*taken, strict=True))
    maps = (queries @ keys.transpose(-2, -1) / taken[0][0].shape[-1] ** 0.5).softmax(-1)
    broad = from_heads(maps @ values)  # (B, N, H L d), each L neighbours averaged
    x = x + 0.4 * broad.unflatten(-1, (x.shape[-1], -1)).mean(-1)
    return net.linear('mlp_head.1', net.norm('mlp_head.0', x[:, 0], eps=1e-5))


# --- MViTv2 and ReMViTv2 ---

TINY_MVIT = dict(dims=8, heads=1, depth=4, wider=(1, 3), image=32)


def mvit(dims=96, heads=1, depth=10, wider=(1, 3, 8), classes=1000, image=224) -> Shapes:
    """MViTv2, whose width and heads double, and whose map is halved, in the blocks ``wider``."""
    shapes = conv('patch_embed.proj', dims, 3, 7)
    side, stride_kv = image // 4, 4
    for i in range(depth):
        block, inside, stride_q = f'blocks.{i}', dims, 1
        if i in wider:
            dims, heads, stride_q, stride_kv = 2 * dims, 2 * heads, 2, max(stride_kv // 2, 1)
            shapes |= linear(f'{block}.proj', dims, inside)
        width, offsets = dims // heads, 2 * max(side // stride_q, side // stride_kv) - 1
        shapes |= norm(f'{block}.norm1', inside) | norm(f'{block}.norm2', dims)
        shapes |= linear(f'{block}.attn.qkv', 3 * dims, inside) | linear(f'{block}.attn.proj', dims, dims)
        for name in 'qkv':
            shapes |= conv(f'{block}.attn.pool_{name}', width, 1, 3, bias=False)
            shapes |= norm(f'{block}.attn.norm_{name}', width)
        shapes |= {f'{block}.attn.rel_pos_{axis}': (offsets, width) for axis in 'hw'}
        shapes |= linear(f'{block}.mlp.fc1', 4 * dims, dims) | linear(f'{block}.mlp.fc2', dims, 4 * dims)
        side //= stride_q
    return shapes | norm('norm', dims) | linear('head.projection', classes, dims)


def run_mvit(state: State, images: Tensor) -> Tensor:
    """Scores of the tiny network; with ``alpha``, those of ReMViTv2."""
    weights = {name.replace('patch_embed.proj.', 'patch_embed.projection.'): value for name, value in state.items()}
    oracle = mvit_oracle.Oracle(weights, (1, 2, 2, 4), ((1, 4), (2, 2), (1, 2), (2, 1)), state.get('alpha'))
    x = oracle.norm('norm.', oracle(images)[-1]).mean((1, 2))
    return oracle.linear('head.projection.', x)


# --- T2T-ViT ---


def t2t_vit(dims=24, depth=3, ratio=2, inner=8, performer=True, image=32, classes=5) -> Shapes:
    """T2T-ViT; ``inner`` is the width in the token stage, ``performer`` what its two blocks are."""
    shapes = {'cls_token': (1, 1, dims), 'pos_embed': (1, (image // 16) ** 2 + 1, dims)}
    for number, joined in ((1, 3 * 7 * 7), (2, inner * 3 * 3)):
        block = f'tokens_to_token.attention{number}'
        shapes |= norm(f'{block}.norm1', joined) | norm(f'{block}.norm2', inner)
        if performer:
            shapes |= linear(f'{block}.kqv', 3 * inner, joined) | linear(f'{block}.proj', inner, inner)
            shapes |= linear(f'{block}.mlp.0', inner, inner) | linear(f'{block}.mlp.2', inner, inner)
            shapes |= {f'{block}.w': (inner // 2, inner)}
        else:
            shapes |= linear(f'{block}.attn.qkv', 3 * inner, joined, bias=False)
            shapes |= linear(f'{block}.attn.proj', inner, inner)
            shapes |= linear(f'{block}.mlp.fc1', inner, inner) | linear(f'{block}.mlp.fc2', inner, inner)
    shapes |= linear('tokens_to_token.project', dims, inner * 3 * 3)
    for i in range(depth):
        block = f'blocks.{i}'
        shapes |= norm(f'{block}.norm1', dims) | norm(f'{block}.norm2', dims)
        shapes |= linear(f'{block}.attn.qkv', 3 * dims, dims, bias=False) | linear(f'{block}.attn.proj', dims, dims)
        shapes |= linear(f'{block}.mlp.fc1', ratio * dims, dims) | linear(f'{block}.mlp.fc2', dims, ratio * dims)
    return shapes | norm('norm', dims) | linear('head', classes, dims)


def run_t2t_vit(state: State, images: Tensor, heads: int = 3) -> Tensor:
    """Scores; the released weights' dot products are divided by the root of the whole width."""
    net, x = Net(state), images
    for number, (side, stride) in enumerate(((7, 4), (3, 2)), 1):
        block = f'tokens_to_token.attention{number}'
        joined = F.unfold(x, side, padding=side // 3, stride=stride)
        edge = int(joined.shape[-1] ** 0.5)
        x = joined.transpose(1, 2)
        normed = net.norm(f'{block}.norm1', x, eps=1e-5)
        if f'{block}.w' in state:
            k, q, v = net.linear(f'{block}.kqv', normed).chunk(3, -1)
            w = state[f'{block}.w']
            # One positive feature for each row of w; a map is their product, normalised by rows.
            of_q, of_k = ((t @ w.T - (t * t).sum(-1, keepdim=True) / 2).exp() / len(w) ** 0.5 for t in (q, k))
            maps = of_q @ of_k.transpose(1, 2)
            maps = maps / (maps.sum(-1, keepdim=True) + 1e-8)
            names = (f'{block}.mlp.0', f'{block}.mlp.2')
            x = v + net.linear(f'{block}.proj', maps @ v)
        else:
            q, k, v = net.linear(f'{block}.attn.qkv', normed).chunk(3, -1)
            maps = (q @ k.transpose(1, 2) / normed.shape[-1] ** 0.5).softmax(-1)
            names = (f'{block}.mlp.fc1', f'{block}.mlp.fc2')
            x = v + net.linear(f'{block}.attn.proj', maps @ v)
        x = x + net.mlp(*names, net.norm(f'{block}.norm2', x, eps=1e-5))
        x = x.transpose(1, 2).unflatten(2, (edge, edge))
    x = net.linear('tokens_to_token.project', F.unfold(x, 3, padding=1, stride=2).transpose(1, 2))
    x = torch.cat((state['cls_token'].expand(len(x), -1, -1), x), 1) + state['pos_embed']
    for i in range(sum(key.startswith('blocks.') and key.endswith('.attn.proj.weight') for key in state)):
        block = f'blocks.{i}'
        q, k, v = net.linear(f'{block}.attn.qkv', net.norm(f'{block}.norm1', x, eps=1e-5)).chunk(3, -1)
        maps = (to_heads(q, heads) @ to_heads(k, heads).transpose(-2, -1) / x.shape[-1] ** 0.5).softmax(-1)
        x = x + net.linear(f'{block}.attn.proj', from_heads(maps @ to_heads(v, heads)))
        x = x + net.mlp(f'{block}.mlp.fc1', f'{block}.mlp.fc2', net.norm(f'{block}.norm2', x, eps=1e-5))
    return net.linear('head', net.norm('norm', x, eps=1e-5)[:, 0])


# --- LVT ---

TINY_LVT = dict(dims=(8, 8, 16), depths=(1, 2, 1), heads=(2, 2, 4), ratios=(4, 8, 4), strides=(8, 4, 2), classes=5)


def lvt(
    dims=(64, 64, 160, 256),
    depths=(2, 2, 2, 2),
    heads=(2, 2, 5, 8),
    ratios=(4, 8, 4, 4),
    strides=(8, 4, 2, 1),
    classes=1000,
    with_class_attention=True,
) -> Shapes:
    shapes, inside = {}, 3
    for stage, (width, ratio, stride) in enumerate(zip(dims, ratios, strides, strict=True)):
        embed, hidden = f'backbone.{stage}.0', ratio * width
        shapes |= conv(f'{embed}.proj', width, inside, 3 if stage else 7) | norm(f'{embed}.norm', width)
        for i in range(depths[stage]):
            block = f'backbone.{stage}.1.{i}'
            shapes |= norm(f'{block}.norm1', width) | norm(f'{block}.norm2', width)
            shapes |= linear(f'{block}.attn.proj', width, width)
            if stage == 0:
                shapes |= linear(f'{block}.attn.attn', 81 * heads[0], width)
                shapes |= conv(f'{block}.attn.weight', 9 * width, width, 1, bias=False)
                shapes |= linear(f'{block}.mlp.fc1', hidden, width) | linear(f'{block}.mlp.fc2', width, hidden)
                continue
            shapes |= linear(f'{block}.attn.q', width, width, bias=False)
            shapes |= linear(f'{block}.attn.kv', 2 * width, width, bias=False)
            shapes |= conv(f'{block}.attn.ds', width, 1, 3, bias=False)
            if stride > 1:
                shapes |= conv(f'{block}.attn.sr', width, width, stride) | norm(f'{block}.attn.norm', width)
            shapes |= conv(f'{block}.mlp.fc1', hidden, width, 1) | conv(f'{block}.mlp.depconv', hidden, 1, 3)
            shapes |= conv(f'{block}.mlp.fc2', width, hidden, 1)
        inside = width
    shapes |= norm('norm', inside) | linear('head', classes, inside)
    if not with_class_attention:
        return shapes
    for i in range(2):
        block, hidden = f'post_network.{i}', ratios[-1] * inside
        shapes |= norm(f'{block}.norm1', inside) | norm(f'{block}.norm2', inside)
        shapes |= linear(f'{block}.attn.q', inside, inside, bias=False)
        shapes |= linear(f'{block}.attn.kv', 2 * inside, inside, bias=False)
        shapes |= linear(f'{block}.attn.proj', inside, inside)
        shapes |= linear(f'{block}.mlp.fc1', hidden, inside) | linear(f'{block}.mlp.fc2', inside, hidden)
    return shapes | {'cls_token': (1, 1, inside)} | linear('aux_head', classes, inside)


def run_lvt(state: State, images: Tensor) -> Tensor:
    """Scores of the tiny network, of the class token and all others with class attention, of the mean without it."""
    names = {name.removeprefix('backbone.'): value for name, value in state.items()}
    depths, heads, strides = (TINY_LVT[name] for name in ('depths', 'heads', 'strides'))
    oracle = lvt_oracle.Oracle(names, depths, heads, strides)
    x = oracle.stages(images)[-1]
    if 'cls_token' not in state:
        return oracle.linear('head', oracle.norm('norm', x).mean((1, 2)))
    x = oracle.class_attention(x, heads[-1])
    return oracle.linear('head', x[:, 0]) + 0.5 * oracle.linear('aux_head', x[:, 1:]).amax(1)
