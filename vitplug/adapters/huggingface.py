"""Names in models of Hugging Face's transformers, which is imported only where a part calls its functions."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitplug.attention import DenseBias, PairBias, Site, WindowLayout

from .arguments import Extras, check_asked
from .maps import QKV, AttentionMap, BlockMap, Branch, MlpMap, ModelMap, Run, StageMap, find, no_prefix, register
from .parts import continuous_bias, cosines, table_bias, turned

# --- attention ---

_STOCK = AttentionMap(
    'q_proj k_proj v_proj', 'num_attention_heads', scale='scaling', proj='o_proj', dropout='attention_dropout'
)
_IN_TOWER = replace(_STOCK, heads='num_heads', scale='scale', proj='out_proj', dropout='dropout')
_OF_SELF = AttentionMap(
    'self.query self.key self.value',
    'self.num_attention_heads',
    scale='self.scaling',
    proj='output.dense',
    dropout='self.dropout',
)


def _rotate(module: nn.Module, qkv: QKV, site: Site, extras: Extras) -> QKV:
    """Rotates by the model's sines."""
    cos, sin = extras['position_embeddings']

    def turn(t: Tensor) -> Tensor:
        left, right = t.chunk(2, dim=-1)
        return t * cos + torch.cat((-right, left), dim=-1) * sin

    return turned(qkv, site, turn)


def _beit_bias(block: nn.Module, q: Tensor, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    if block.relative_position_bias is None:
        return ()
    window = tuple(side // block.patch_size for side in extras['resolution'])
    tokens = site.layout.grid.num_tokens
    bias = block.relative_position_bias(window, extras.get('interpolate_pos_encoding', False), dim_size=tokens)
    return (DenseBias(bias if bias.ndim == 5 else bias.reshape(1, 1, *bias.shape[-3:])),)


# --- MLP ---


def _gated(module: nn.Module, x: Tensor) -> Tensor:
    return module.act_fn(module.gate_proj(x)) * module.up_proj(x)


_PLAIN = {'MLP': MlpMap('fc1 activation_fn', 'fc2', last='fc2')}
_GATED = MlpMap(_gated, 'down_proj', last='down_proj')
_UP = {'MLP': MlpMap('up_proj act_fn', 'down_proj', last='down_proj'), 'GatedMLP': _GATED}
_OWN = MlpMap('intermediate.dense intermediate.intermediate_act_fn', 'output.dense', last='output.dense')

# --- blocks ---


def _pre_norm(attention: str, norms: str, *after: str) -> BlockMap:
    """A block of pre-norm, of the names of its norms, and of what follows the branches."""
    branches = (Branch(*names) for names in zip(norms.split(), after, strict=True))
    return BlockMap(attention, 'mlp', *branches, arguments=('attention_mask',))


_VIT_NORMS = 'layernorm_before layernorm_after'
_VIT = _pre_norm('attention', _VIT_NORMS, 'dropout', 'dropout')
_DINO = _pre_norm('attention', 'norm1 norm2', 'layer_scale1 drop_path', 'layer_scale2 drop_path')
_BEIT = _pre_norm('attention', _VIT_NORMS, 'dropout lambda_1 drop_path', 'dropout lambda_2 drop_path')
_CLIP = _pre_norm('self_attn', 'layer_norm1 layer_norm2', '', '')
_BERT = BlockMap(
    'attention',
    '',
    Branch(after='attention.output.dropout', sum='attention.output.LayerNorm'),
    Branch(after='output.dropout', sum='output.LayerNorm'),
    arguments=('attention_mask', 'encoder_hidden_states', 'encoder_attention_mask', 'cache'),
)


def _windows(block: nn.Module, hw: tuple[int, int]) -> WindowLayout:
    """The layout of a block of Swin; a map as small as a window is not shifted."""
    side = block.attention.relative_position_bias.window_size[0]
    if min(hw) < side:
        raise ValueError(
            f'windows of {side} x {side} tokens on a map of {hw[0]} x {hw[1]}, for which transformers has no position '
            'bias; choose larger images, or a smaller config.window_size'
        )
    return WindowLayout(*hw, side, 0 if min(hw) == side else block.shift_size)


class _TwiceMasked(WindowLayout):
    """Windows whose mask is added twice, as Swin V2 of transformers does."""

    def mask(self, device: torch.device) -> Tensor | None:
        mask = super().mask(device)
        return None if mask is None else 2 * mask


def _windows_v2(block: nn.Module, hw: tuple[int, int]) -> WindowLayout:
    return _TwiceMasked(*hw, block.window_size, block.shift_size)


_SWIN = replace(_pre_norm('attention', _VIT_NORMS, 'dropout drop_path', 'dropout'), arguments=(), layout=_windows)
_SWIN_V2 = BlockMap(
    'attention',
    '',
    Branch(after='layernorm_before drop_path'),
    Branch(after='output.dropout layernorm_after drop_path'),
    layout=_windows_v2,
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


def _prefix(names: tuple[str, ...], model: nn.Module) -> tuple[str, ...]:
    """Names of prefix tokens, with as many registers as the config says."""
    registers = find(model.config, 'num_register_tokens?') or 0
    return names + tuple(f'register_token_{i}' for i in range(registers))


def _shares_bias(model: nn.Module) -> str | None:
    if model.config.use_shared_relative_position_bias:
        return 'its blocks share one position bias (config.use_shared_relative_position_bias), which comes as a mask'
    return None


def _decodes(model: nn.Module) -> str | None:
    asked = [name for name in ('is_decoder', 'add_cross_attention') if find(model.config, f'{name}?')]
    return f'it is a decoder or has cross-attention (config.{asked[0]})' if asked else None


_CLS = partial(_prefix, ('cls_token',))


def _register(
    family: str,
    name: str,
    attention: AttentionMap,
    block: BlockMap,
    mlps: dict[str, MlpMap],
    blocks: str,
    prefix: Callable[[nn.Module], tuple[str, ...]] = _CLS,
    patch: str | None = 'embeddings.patch_embeddings.projection',
    resolution: Callable[[nn.Module], tuple[int, int]] = _resolution,
    **model: Any,
) -> None:
    """The maps of one family: its classes are named after it."""
    module = f'transformers.models.{family}.modeling_{family}.{name}'
    is_tower = block is _CLIP
    register(f'{module}Attention', attention)
    register(f'{module}EncoderLayer' if is_tower else f'{module}Layer', block)
    for mlp, mlp_map in mlps.items():
        register(f'{module}{mlp}', mlp_map)
    names = ModelMap(blocks, prefix, resolution, patch, _features, **model)
    register(f'{module}VisionModel' if is_tower else f'{module}Model', names)


_TWO_TOKENS = partial(_prefix, ('cls_token', 'distillation_token'))
_register('vit', 'ViT', _STOCK, _VIT, _PLAIN, 'layers')
_register('deit', 'DeiT', _STOCK, _VIT, _PLAIN, 'layers', _TWO_TOKENS)
for _family, _name in (('dinov2', 'Dinov2'), ('dinov2_with_registers', 'Dinov2WithRegisters')):
    _register(_family, _name, _STOCK, _DINO, {**_PLAIN, 'SwiGLUFFN': _GATED}, 'encoder.layer')
_BIASED = replace(_STOCK, biases=_beit_bias)
_register('beit', 'Beit', _BIASED, _BEIT, _PLAIN, 'layers', keeps_prefix=False, lacks=_shares_bias)
_ROTATED = replace(_IN_TOWER, scale='scaling', proj='o_proj', change_qkv=_rotate)
_register('dinov3_vit', 'DINOv3ViT', _ROTATED, _DINO, _UP, 'model.layer', patch='embeddings.patch_embeddings')
for _family, _name, _tokens in (('clip', 'CLIP', _CLS), ('siglip', 'Siglip', no_prefix)):
    _register(_family, _name, _IN_TOWER, _CLIP, _PLAIN, 'encoder.layers', _tokens, 'embeddings.patch_embedding')
_WORDS = dict(patch=None, resolution=_length, keeps_prefix=False, lacks=_decodes)
for _family, _name in (('bert', 'Bert'), ('roberta', 'Roberta'), ('electra', 'Electra')):
    _register(_family, _name, _OF_SELF, _BERT, {'Layer': _OWN}, 'encoder.layer', **_WORDS)

# --- models in stages ---


def _swin_stage(
    stage: nn.Module,
    run: Run,
    hidden_states: Tensor,
    input_dimensions: tuple[int, int],
    always_partition: bool = False,
    output_hidden_states_before_downsampling: bool = False,
    **asked: Any,
) -> tuple[Tensor, Tensor, None]:
    is_one_window = min(input_dimensions) <= stage.config.window_size  # which the library does not shift otherwise
    check_asked('SwinStage', dict(asked, always_partition=always_partition and is_one_window))
    before, _ = run(hidden_states, tuple(input_dimensions))
    after = before if stage.downsample is None else stage.downsample(before, input_dimensions)
    maps = stage.get_reshaped_hidden_states(after, before, *input_dimensions, output_hidden_states_before_downsampling)
    return after, maps, None


def _swin_v2_stage(
    stage: nn.Module,
    run: Run,
    hidden_states: Tensor,
    input_dimensions: tuple[int, int],
    output_attentions: bool | None = False,
) -> tuple[Tensor, Tensor, tuple[int, int, int, int]]:
    check_asked('Swinv2Stage', dict(output_attentions=output_attentions))
    before, _ = run(hidden_states, tuple(input_dimensions))
    if stage.downsample is None:
        return before, before, (*input_dimensions, *input_dimensions)
    half = ((side + 1) // 2 for side in input_dimensions)
    return stage.downsample(before, input_dimensions), before, (*input_dimensions, *half)


_TABLE_BIAS = partial(table_bias, 'attention.relative_position_bias.relative_position_bias_table')
_IN_WINDOWS = replace(_STOCK, biases=_TABLE_BIAS)
_OF_COSINES = replace(
    _OF_SELF,
    scale=1.0,
    after_proj='output.dropout',
    change_qkv=partial(cosines, 'self.logit_scale'),
    biases=partial(continuous_bias, 'attention.self', 'continuous_position_bias_mlp'),
)
_STAGED = dict(blocks='encoder.layers', prefix=no_prefix, keeps_prefix=False)
_STAGE, _STAGE_V2 = StageMap('blocks', _swin_stage, reads=('downsample',)), StageMap('blocks', _swin_v2_stage)
_register('swin', 'Swin', _IN_WINDOWS, _SWIN, _PLAIN, stage=_STAGE, **_STAGED)
_register('swinv2', 'Swinv2', _OF_COSINES, _SWIN_V2, {'Layer': _OWN}, stage=_STAGE_V2, **_STAGED)
