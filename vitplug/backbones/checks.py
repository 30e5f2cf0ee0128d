"""Checks of the hosts' inputs: their arguments before anything is built, and the images."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from vitplug.checkpoints.position_tables import INTERPOLATE_MODES
from vitplug.plugs.checks import check_choice, check_flag, check_integer, check_number

from .settings import MOST

#: The errors that wrong settings raise inside of mmcv, mmengine and torch.
WRONG_SETTINGS = (
    *(ValueError, TypeError, LookupError, AttributeError),
    *(AssertionError, ArithmeticError, RuntimeError),
)


def check_settings(name: str, value: Any) -> None:
    """Checks a dict of further settings.

    Raises:
        ValueError: If it is none.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f'{name}={value!r}: expected a dict')


def check_many_settings(name: str, value: Any) -> None:
    """Checks one dict of further settings, or a list of them.

    Raises:
        ValueError: If it is something else.
    """
    is_list = isinstance(value, Sequence) and all(isinstance(entry, Mapping) for entry in value)
    if not isinstance(value, Mapping) and (not is_list or isinstance(value, str)):
        raise ValueError(f'{name}={value!r}: expected a dict, or a list of dicts')


def check_norm(name: str, value: Any) -> None:
    """Checks the settings of a norm, or None for no norm; whether it can be built shows later."""
    if value is not None:
        check_settings(name, value)


def check_init(name: str, value: Any) -> None:
    """Checks the settings of a weight initialisation, or None for the host's own."""
    if value is not None:
        check_many_settings(name, value)


def check_scale(name: str, value: Any) -> float | None:
    """The factor of the dot products, or None for the host's own.

    Raises:
        ValueError: If it is no positive number.
    """
    if value is not None and check_number(name, value, least=0.0) == 0:
        raise ValueError(f'{name}={value!r}: expected a number above 0, or None for the default')
    return value


def check_frozen(name: str, value: Any) -> None:
    """Checks what is frozen beside stages.

    Raises:
        ValueError: If it is neither None nor ``'host'``.
    """
    if value not in (None, 'host'):
        raise ValueError(f"{name}={value!r}: expected 'host', which freezes all but the plugs, or None")


def check_ratio(name: str, value: Any) -> None:
    """Checks a ratio of widths.

    Raises:
        ValueError: If it is no number above 0.
    """
    if not check_number(name, value, least=0.0):
        raise ValueError(f'{name}={value!r}: expected a number above 0')


_FLAGS = (
    *('qkv_bias', 'final_norm', 'with_cls_token', 'pre_norm', 'use_abs_pos_embed', 'with_cp'),
    *('out_after_downsample', 'norm_eval', 'pad_small_map', 'distilled'),
    *('untied_norms', 'use_rel_pos_bias', 'patch_norm', 'patch_bias', 'output_cls_token'),
    *('rel_pos_spatial', 'residual_pooling', 'dim_mul_in_attention', 'rel_pos_zero_init'),
)

#: The check of an argument, by its name. Hosts check the others, and what depends on several of them.
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    'in_channels': partial(check_integer, least=1),
    **dict.fromkeys(('embed_dims', 'num_layers'), partial(check_integer, least=1, most=MOST)),
    'qk_scale': check_scale,
    'drop_rate': partial(check_number, least=0.0, most=1.0),
    'attn_drop_rate': partial(check_number, least=0.0, most=1.0),
    # At 1 nothing is left to be scaled up.
    'drop_path_rate': partial(check_number, least=0.0, below=1.0),
    'mlp_ratio': check_ratio,
    'layer_scale_init_value': partial(check_number, least=0.0),
    'num_storage_tokens': partial(check_integer, least=0, most=MOST),
    'interpolate_mode': partial(check_choice, allowed=INTERPOLATE_MODES),
    'norm_cfg': check_norm,
    'frozen': check_frozen,
    'act_cfg': check_settings,
    'patch_cfg': check_settings,
    't2t_cfg': check_settings,
    'layer_cfgs': check_many_settings,
    'stage_cfgs': check_many_settings,
    **dict.fromkeys(('dim_mul', 'head_mul', 'adaptive_kv_stride'), partial(check_integer, least=1)),
    'init_cfg': check_init,
    **dict.fromkeys(_FLAGS, check_flag),
}


def check_values(**values: Any) -> None:
    """Checks values of arguments by name.

    Raises:
        ValueError: If one is of another type or out of range; names the argument and what is allowed.
    """
    for name, value in values.items():
        CHECKS[name](name, value)


def refuse_arguments(host: type, unknown: Mapping[str, Any]) -> None:
    """Refuses arguments that a host does not have.

    Raises:
        TypeError: If there are any; lists the arguments that the host has.
    """
    if not unknown:
        return
    known = [name for base in reversed(host.__mro__) for name in _parameters(base)]
    sizes = next(iter(getattr(host, 'arch_zoo', {}).values()), {})
    given = ', '.join(f'{name}={unknown[name]!r}' for name in sizes if name in unknown)
    # mmdet and mmseg take sizes as arguments of their own.
    hint = f'; sizes belong into arch: arch=dict({given})' if given else ''
    raise TypeError(f'{host.__name__} has no argument {list(unknown)}; it takes {list(dict.fromkeys(known))}{hint}')


def _parameters(host: type) -> list[str]:
    """Names of the arguments that a class's own ``__init__`` takes."""
    parameters = inspect.signature(host.__init__).parameters.values() if '__init__' in vars(host) else ()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in named and p.name != 'self']


def checked(init: Callable[..., None]) -> Callable[..., None]:
    """Makes a host's constructor check its arguments first: unknown ones, then values by name (:data:`CHECKS`).

    A host's ``CHECKS`` takes the place of single ones.
    """
    signature = inspect.signature(init)

    @wraps(init)
    def check_and_build(self, *args: Any, **settings: Any) -> None:
        known = signature.parameters
        refuse_arguments(type(self), {name: value for name, value in settings.items() if name not in known})
        try:
            given = signature.bind(self, *args, **settings)
        except TypeError:  # too many: Python's own message says how many there may be
            return init(self, *args, **settings)
        given.apply_defaults()
        checks = {**CHECKS, **getattr(self, 'CHECKS', {})}
        for name in checks.keys() & given.arguments.keys():
            checks[name](name, given.arguments[name])
        init(self, *args, **settings)

    return check_and_build


def check_images(images: Tensor, channels: int, dtype: torch.dtype) -> None:
    """Checks an image batch before its first convolution.

    Args:
        images: The batch.
        channels: Channels that the backbone is made for.
        dtype: Type of its weights.

    Raises:
        ValueError: If it is no batch of float images with the channels the backbone is made for.
    """
    if not isinstance(images, Tensor):
        raise ValueError(f'images: got a {type(images).__name__}; expected a tensor (B, C, H, W)')
    shape = tuple(images.shape)
    if images.ndim != 4 or 0 in shape:
        raise ValueError(f'images of shape {shape}: expected (B, C, H, W), none of them 0')
    if shape[1] != channels:
        raise ValueError(
            f'images of shape {shape}: they have {shape[1]} channels, the backbone in_channels={channels}; '
            'load them with that many, or set in_channels'
        )
    if not images.is_floating_point():
        raise ValueError(f'images of {images.dtype}: expected {dtype}; normalise them, as a data_preprocessor does')
    if images.dtype != dtype and not _casts(images.device.type):
        raise ValueError(f'images of {images.dtype}, but weights of {dtype}: convert one of them, or use autocast')


def _casts(device: str) -> bool:
    """Whether autocast is on for a kind of device."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
