"""Names in models of Hugging Face's transformers, which is imported only where a part calls its functions."""

from typing import Any

import torch
from torch import Tensor, nn

from vitplug.attention import DenseBias, PairBias, Site

from .maps import AttentionMap, BlockMap, Branch, Extras, MlpMap, ModelMap, chain, find, register

_MODELS = 'transformers.models'


def _module(family: str) -> str:
    return f'{_MODELS}.{family}.modeling_{family}'


# --- attention ---

_ATTENTION = dict(
    projections=('q_proj', 'k_proj', 'v_proj'),
    heads='num_attention_heads',
    scale='scaling',
    proj='o_proj',
    dropout='attention_dropout',
)
_TOWER = dict(_ATTENTION, heads='num_heads', scale='scale', proj='out_proj', dropout='dropout')
_OF_SELF = dict(
    projections=('self.query', 'self.key', 'self.value'),
    heads='self.num_attention_heads',
    scale='self.scaling',
    proj='output.dense',
    dropout='self.dropout',
)


def _rotate(module: nn.Module, q: Tensor, k: Tensor, num_prefix: int, extras: Extras) -> tuple[Tensor, Tensor]:
    """Rotates the tokens of the grid by the model's sines; those before it, plugs' included, stay."""
    cos, sin = extras['position_embeddings']

    def turned(t: Tensor) -> Tensor:
        first, grid = t[..., :num_prefix, :], t[..., num_prefix:, :]
        left, right = grid.chunk(2, dim=-1)
        return torch.cat((first, grid * cos + torch.cat((-right, left), dim=-1) * sin), dim=-2)

    return turned(q), turned(k)


def _beit_bias(block: nn.Module, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    if block.relative_position_bias is None:
        return ()
    window = tuple(side // block.patch_size for side in extras['resolution'])
    tokens = site.layout.grid.num_tokens
    bias = block.relative_position_bias(window, extras.get('interpolate_pos_encoding', False), dim_size=tokens)
    return (DenseBias(bias if bias.ndim == 5 else bias.reshape(1, 1, *bias.shape[-3:])),)


def _is_decoder(module: nn.Module) -> str | None:
    return 'it is a decoder (config.is_decoder)' if find(module, 'is_decoder') else None


# --- MLP ---


def _gated(module: nn.Module, x: Tensor) -> Tensor:
    return module.act_fn(module.gate_proj(x)) * module.up_proj(x)


_MLP = MlpMap(chain('fc1', 'activation_fn'), chain('fc2'), 'fc2')
_GATED = MlpMap(_gated, chain('down_proj'), 'down_proj')
_PLAIN_UP = MlpMap(chain('up_proj', 'act_fn'), chain('down_proj'), 'down_proj')
_OWN = MlpMap(chain('intermediate.dense', 'intermediate.intermediate_act_fn'), chain('output.dense'), 'output.dense')

# --- blocks ---

_MASK = ('attention_mask',)


def _pre_norm(attention: str, norms: tuple[str, str], *after: tuple[str, ...]) -> BlockMap:
    first, last = after if after else ((), ())
    branches = Branch(chain(norms[0]), chain(*first)), Branch(chain(norms[1]), chain(*last))
    return BlockMap(attention, 'mlp', *branches, arguments=_MASK)


_VIT_NORMS = 'layernorm_before', 'layernorm_after'
_VIT = _pre_norm('attention', _VIT_NORMS, ('dropout',), ('dropout',))
_DINO = _pre_norm('attention', ('norm1', 'norm2'), ('layer_scale1', 'drop_path'), ('layer_scale2', 'drop_path'))
_BEIT = _pre_norm('attention', _VIT_NORMS, ('dropout', 'lambda_1', 'drop_path'), ('dropout', 'lambda_2', 'drop_path'))
_CLIP = _pre_norm('self_attn', ('layer_norm1', 'layer_norm2'))
_BERT = BlockMap(
    'attention',
    '',
    Branch(after=chain('attention.output.dropout'), sum=chain('attention.output.LayerNorm')),
    Branch(after=chain('output.dropout'), sum=chain('output.LayerNorm')),
    arguments=('attention_mask', 'encoder_hidden_states', 'encoder_attention_mask', 'cache'),
    lacks=_is_decoder,
)

# --- models ---


def _resolution(model: nn.Module) -> tuple[int, int]:
    sides = (find(model.config, name) for name in ('image_size', 'patch_size'))
    sides = [side if isinstance(side, list | tuple) else (side, side) for side in sides]
    return tuple(image // patch for image, patch in zip(*sides, strict=True))


def _length(model: nn.Module) -> tuple[int, int]:
    """Words of the longest sequence, without the class token."""
    return 1, model.config.max_position_embeddings - 1


def _features(model: nn.Module, images: Tensor) -> Tensor:
    return model(pixel_values=images).last_hidden_state


def _names(*names: str):
    """Prefix tokens by name; registers by their number in the config."""
    return _Prefix(names)


class _Prefix:
    """Names of prefix tokens, with as many registers as the config says."""

    def __init__(self, names: tuple[str, ...]):
        self.names = names

    def __call__(self, model: nn.Module) -> tuple[str, ...]:
        registers = find(model.config, 'num_register_tokens') or 0
        return self.names + tuple(f'register_token_{i}' for i in range(registers))


def _shares_bias(model: nn.Module) -> str | None:
    if model.config.use_shared_relative_position_bias:
        return 'its blocks share one position bias (config.use_shared_relative_position_bias), which comes as a mask'
    return None


def _masks_padding(model: nn.Module) -> str | None:
    return _is_decoder(model.config) or (
        'it has cross-attention (config.add_cross_attention)' if find(model.config, 'add_cross_attention') else None
    )


_CLS = _names('cls_token')
_IMAGES = dict(prefix=_CLS, resolution=_resolution, features=_features)
_PATCHES, _PATCH = 'embeddings.patch_embeddings.projection', 'embeddings.patch_embedding'


def _register(
    family: str, name: str, attention: AttentionMap, block: BlockMap, mlps: dict[str, MlpMap], **model: Any
) -> None:
    """The maps of one family: its classes are named after it."""
    module = _module(family)
    register(f'{module}.{name}Attention', attention)
    register(f'{module}.{name}Layer' if block is not _CLIP else f'{module}.{name}EncoderLayer', block)
    for mlp, found in mlps.items():
        register(f'{module}.{name}{mlp}', found)
    kind = 'VisionModel' if block is _CLIP else 'Model'
    register(f'{module}.{name}{kind}', ModelMap(**model))


_STOCK = AttentionMap(**_ATTENTION)
_register('vit', 'ViT', _STOCK, _VIT, {'MLP': _MLP}, blocks='layers', patch=_PATCHES, **_IMAGES)
_register(
    'deit',
    'DeiT',
    _STOCK,
    _VIT,
    {'MLP': _MLP},
    blocks='layers',
    patch=_PATCHES,
    **{**_IMAGES, 'prefix': _names('cls_token', 'distillation_token')},
)
for _family, _name in (('dinov2', 'Dinov2'), ('dinov2_with_registers', 'Dinov2WithRegisters')):
    _mlps = {'MLP': _MLP, 'SwiGLUFFN': _GATED}
    _register(_family, _name, _STOCK, _DINO, _mlps, blocks='encoder.layer', patch=_PATCHES, **_IMAGES)
_register(
    'beit',
    'Beit',
    AttentionMap(**_ATTENTION, biases=_beit_bias),
    _BEIT,
    {'MLP': _MLP},
    blocks='layers',
    patch=_PATCHES,
    **_IMAGES,
    keeps_prefix=False,
    lacks=_shares_bias,
)
_register(
    'dinov3_vit',
    'DINOv3ViT',
    AttentionMap(**{**_TOWER, 'scale': 'scaling', 'proj': 'o_proj'}, change_qk=_rotate),
    _DINO,
    {'MLP': _PLAIN_UP, 'GatedMLP': _GATED},
    blocks='model.layer',
    patch='embeddings.patch_embeddings',
    **_IMAGES,
)
_register(
    'clip', 'CLIP', AttentionMap(**_TOWER), _CLIP, {'MLP': _MLP}, blocks='encoder.layers', patch=_PATCH, **_IMAGES
)
_register(
    'siglip',
    'Siglip',
    AttentionMap(**_TOWER),
    _CLIP,
    {'MLP': _MLP},
    blocks='encoder.layers',
    patch=_PATCH,
    **{**_IMAGES, 'prefix': _names()},
)
for _family, _name in (('bert', 'Bert'), ('roberta', 'Roberta'), ('electra', 'Electra')):
    _register(
        _family,
        _name,
        AttentionMap(**_OF_SELF),
        _BERT,
        {'Layer': _OWN},
        blocks='encoder.layer',
        patch=None,
        prefix=_CLS,
        resolution=_length,
        features=_features,
        keeps_prefix=False,
        lacks=_masks_padding,
    )
