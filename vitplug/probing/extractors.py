"""From images to the features that are probed: a frozen backbone, or the pixels themselves.

Shape suffixes: B images, T patches, D width.
"""

import copy
import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from vitplug.checkpoints import find_weights, load_pretrained, read_checkpoint
from vitplug.checkpoints.files import local_file, some_of
from vitplug.checkpoints.pretrained import loads_checkpoint
from vitplug.config.parts import registered
from vitplug.hosting import PluggedModel

POOLS = ('cls+mean', 'cls', 'mean')
# What a library takes for a model that names no data preprocessor.
PREPROCESSORS = dict(mmpretrain='ClsDataPreprocessor', mmseg='SegDataPreProcessor')
PREFIX = 'backbone.'
# Pixels of one side of an image, and of a patch, as raw features.
IMAGE_SIDE, PATCH_SIDE = 32, 8


class Extractor(ABC):
    """Makes features of images.

    Attributes:
        about: What it is, in a line.
        dense: True for features of patches, False for those of whole images.
    """

    about: str
    dense: bool

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """What its features depend on besides the pixels."""

    @abstractmethod
    def __call__(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images ``(B, C, H, W)`` to features ``(B, T, D)`` and the grid of the patches, ``(1, 1)`` for none."""


class Pixels(Extractor):
    """The pixels: of an image, averaged to at most 32 x 32; of patches of 8 x 8, all.

    Args:
        dense: Whether features of patches are wanted.
    """

    def __init__(self, dense: bool):
        self.dense = dense
        self.about = (
            f'pixels of patches of {PATCH_SIDE} x {PATCH_SIDE}' if dense else f'{IMAGE_SIDE} x {IMAGE_SIDE} pixels'
        )

    @property
    def identity(self):
        return dict(features=self.about)

    def __call__(self, images):
        height, width = images.shape[-2:]
        if not self.dense:
            return F.adaptive_avg_pool2d(images, (min(height, IMAGE_SIDE), min(width, IMAGE_SIDE))).flatten(1)[
                :, None
            ], (1, 1)
        grid = -(-height // PATCH_SIDE), -(-width // PATCH_SIDE)
        maps = F.adaptive_avg_pool2d(images, [side * PATCH_SIDE for side in grid])
        return F.pixel_unshuffle(maps, PATCH_SIDE).flatten(2).transpose(1, 2), grid


class Frozen(Extractor):
    """The last outputs of a backbone, side by side.

    Of an image: the class token, the mean of the patches, or both, of each output; a map has its mean. Of patches:
    their vectors; maps of several sizes are resized to the largest.

    Args:
        cfg: The config of the model.
        checkpoint: Its weights; None for initial weights, drawn from a seed of 0.
        dense: Whether features of patches are wanted.
        layers: Number of outputs: blocks of a plain transformer, stages of other backbones.
        pool: Of :data:`POOLS`.
        device: Where it runs.

    Raises:
        ValueError: If there are fewer outputs, or the checkpoint is of another network; names what differs.
    """

    def __init__(self, cfg: Config, checkpoint: str | None, dense: bool, layers: int, pool: str, device: str):
        init_default_scope(cfg.default_scope)
        self.dense, self.layers, self.pool = dense, layers, pool
        self.checkpoint, self.config = checkpoint, Path(cfg.filename)
        self.settings = _settings(cfg)
        self.backbone = _built(self.settings, layers, dense, self.config)
        if checkpoint is not None:
            _load(self.backbone, checkpoint)
        self.backbone.eval()  # mmpretrain's returns None
        self.backbone.requires_grad_(False).to(device)

    @property
    def about(self):
        plugs = f', {self.backbone.plug_summary}' if isinstance(self.backbone, PluggedModel) else ''
        return f'{type(self.backbone).__name__}{plugs}, {self.checkpoint or "initial weights"}'

    @property
    def identity(self):
        weights = hashlib.sha256()
        for name, value in sorted(self.backbone.state_dict().items()):
            weights.update(f'{name}\0{value.dtype}\0{tuple(value.shape)}'.encode())
            weights.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        settings = {name: value for name, value in self.settings.items() if name != 'init_cfg'}
        return dict(
            features=f'{type(self.backbone).__module__}.{type(self.backbone).__name__}',
            weights=weights.hexdigest()[:16],
            backbone=repr(settings),
            layers=self.layers,
            pool=None if self.dense else self.pool,
        )

    @torch.no_grad()
    def __call__(self, images):
        outputs = self.backbone(images)
        outputs = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
        outputs = outputs[-self.layers :]
        for output in outputs:
            _check_output(output, self.backbone, self.dense)
        if not self.dense:
            return torch.cat([self._pooled(output) for output in outputs], -1)[:, None], (1, 1)
        size = max(tuple(output.shape[-2:]) for output in outputs)
        maps = [
            output
            if tuple(output.shape[-2:]) == size
            else F.interpolate(output, size, mode='bilinear', align_corners=False)
            for output in outputs
        ]
        return torch.cat(maps, 1).flatten(2).transpose(1, 2), size

    def _pooled(self, output: Tensor) -> Tensor:
        """``(B, D)``, or ``(B, 2 D)`` for class token and mean."""
        if output.ndim == 2:
            return output
        if output.ndim == 4:
            return output.mean((2, 3))
        width = getattr(self.backbone, 'embed_dims', None)
        if output.shape[1] == width != output.shape[2]:  # mmpretrain's MlpMixer: (B, D, T)
            output = output.transpose(1, 2)
        prefix = _num_prefix(self.backbone)
        mean_BD = output[:, prefix:].mean(1)
        parts = dict(cls=[output[:, 0]], mean=[mean_BD])
        wanted = self.pool.split('+') if prefix else ['mean']
        return torch.cat([part for name in wanted for part in parts[name]], -1)


def _settings(cfg: Config) -> dict:
    """The settings of the backbone, without weights that it would load."""
    settings = copy.deepcopy(dict(cfg.model['backbone']))
    settings.pop('pretrained', None)
    if loads_checkpoint(settings.get('init_cfg')):
        settings.pop('init_cfg')
    return settings


def _built(settings: Mapping, layers: int, dense: bool, config: Path) -> nn.Module:
    """The backbone with its last outputs, with initial weights from a seed of 0.

    Raises:
        ValueError: If it has fewer outputs.
    """
    settings = dict(settings)
    with torch.random.fork_rng(devices=[]):
        if layers > 1:
            settings['out_indices'] = _indices(settings, layers, config)
        if dense and 'out_type' in _arguments(settings):
            settings['out_type'] = 'featmap'
        torch.manual_seed(0)
        backbone = revert_sync_batchnorm(MODELS.build(copy.deepcopy(settings)))
        backbone.init_weights()
    if not dense and getattr(backbone, 'out_type', None) == 'cls_token' and 'raw' in getattr(backbone, 'OUT_TYPES', ()):
        backbone.out_type = 'raw'  # read by the forward pass; the patches are wanted as well
    return backbone


def _indices(settings: Mapping, layers: int, config: Path) -> list[int]:
    """Indices of the last outputs."""
    known = getattr(MODELS.build(copy.deepcopy(dict(settings))), 'out_indices', None)
    last = max(known) if isinstance(known, list | tuple) and known else None
    if last is None or last + 1 < layers:
        count = 'one output' if last is None else f'{last + 1} outputs, blocks or stages, up to its last one'
        raise ValueError(f'--layers {layers}: the backbone of {config} has {count}; choose fewer')
    return list(range(last - layers + 1, last + 1))


def _arguments(settings: Mapping) -> set[str]:
    """Names of the arguments of a class and of its base classes."""
    kind = registered(MODELS, settings['type'], None)
    return {name for base in kind.__mro__ for name in inspect.signature(base.__init__).parameters}


def _num_prefix(backbone: nn.Module) -> int:
    """Tokens before the patches in an output of all tokens."""
    if isinstance(backbone, PluggedModel):
        return backbone.num_output_prefix
    return getattr(backbone, 'num_extra_tokens', 0)


def _check_output(output: Any, backbone: nn.Module, dense: bool) -> None:
    """Checks the form of an output.

    Raises:
        ValueError: If it has no known one.
    """
    wanted = (4,) if dense else (2, 3, 4)
    if not isinstance(output, Tensor) or output.ndim not in wanted:
        given = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        expected = 'maps (B, C, H, W)' if dense else 'vectors (B, D), tokens (B, T, D) or maps (B, C, H, W)'
        raise ValueError(
            f'model.backbone.type = {type(backbone).__name__}: its output is {given}, expected {expected}; set its '
            "out_type to 'featmap', or choose another backbone"
        )


def _load(backbone: nn.Module, checkpoint: str) -> None:
    """Loads a checkpoint: of any known format into vitplug's backbones, by the same names into others.

    Raises:
        FileNotFoundError, ValueError: If there is no such file, or it is of another network.
    """
    if isinstance(backbone, PluggedModel):
        load_pretrained(backbone, checkpoint)
        return
    path = local_file(checkpoint)
    weights, _ = find_weights(read_checkpoint(path), path)
    below = {name.removeprefix(PREFIX): value for name, value in weights.items() if name.startswith(PREFIX)}
    weights = below or weights
    wanted = backbone.state_dict()
    missing, unknown = (sorted(a - b) for a, b in ((wanted.keys(), weights.keys()), (weights.keys(), wanted.keys())))
    unlike = [name for name in wanted.keys() & weights.keys() if wanted[name].shape != weights[name].shape]
    if missing or unknown or unlike:
        parts = (('lacks', missing), ('has besides', unknown), ('has in another shape', unlike))
        said = '; '.join(f'it {verb} {some_of(names)}' for verb, names in parts if names)
        raise ValueError(f'{path} is of another network than {type(backbone).__name__}: {said}')
    backbone.load_state_dict(weights)


def preprocessor(cfg: Config, device: str) -> nn.Module:
    """The data preprocessor of the config's model."""
    init_default_scope(cfg.default_scope)
    settings = copy.deepcopy(dict(cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor') or {}))
    settings.setdefault('type', PREPROCESSORS[cfg.default_scope])
    return MODELS.build(settings).to(device)


def batches(images: Sequence[Tensor], most: int) -> list[list[int]]:
    """Indices of neighbours of one size, at most so many: padding to a common size would change features."""
    groups: list[list[int]] = []
    for index, image in enumerate(images):
        if groups and len(groups[-1]) < most and images[groups[-1][0]].shape == image.shape:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
