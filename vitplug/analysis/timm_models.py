"""Plain models of timm under analysis, by their names: with weights of a file, or untrained."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import floordiv
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from vitplug.analysis.measures.receptive_field import FeatureMap
from vitplug.analysis.study.loaded import Loaded
from vitplug.analysis.study.places import HeldImage, ImagePlace
from vitplug.attention.grids import ceil_div
from vitplug.checkpoints.files import find_weights, local_file, read_checkpoint, some_of
from vitplug.files.fingerprint import file_hash
from vitplug.files.limits import MAX_PIXELS
from vitplug.files.picture_sources import Unreadable, read_picture
from vitplug.runs.prediction.predictor import check_device

SEED = 0


@dataclass(eq=False)
class TimmSubject:
    """A model of timm with its own preprocessing; a :class:`~vitplug.analysis.study.subject.Subject` without plugs.

    Attributes:
        label: ``'model'`` or ``'baseline'``.
        name: As timm calls it.
        checkpoint: As it was named; None for random weights.
        backbone: The model without its head.
        sha256: Of the checkpoint file; ``'random'`` without one.
        sizes: Height and width of each image as the model gets it.
    """

    label: str
    name: str
    checkpoint: str | None
    backbone: nn.Module
    sha256: str
    sizes: Sequence[tuple[int, int]] = ()

    @classmethod
    def read(cls, label: str, name: str, checkpoint: str | None, device: str | None) -> 'TimmSubject':
        """Builds a model without its head.

        Raises:
            ImportError: If timm is not installed.
            ValueError: If timm has no such model, or the checkpoint does not fit it.
        """
        model = build(name).to(check_device(device))
        sha256 = 'random'
        if checkpoint is not None:
            path = local_file(checkpoint)
            load(model, path)
            sha256 = file_hash(path)
        return cls(label, name, checkpoint, model, sha256)

    @property
    def about(self) -> str:
        """The model, in one line."""
        weights = f'weights drawn at random (seed {SEED})' if self.checkpoint is None else Path(self.checkpoint).name
        return f'timm {self.name}, {weights}'

    def load(self, path: ImagePlace) -> Loaded:
        """An image, resized, cropped and normalised as timm tests the model.

        Raises:
            Unreadable: If it cannot be read.
        """
        from timm.data import create_transform, resolve_model_data_config

        pixels = path.pixels if isinstance(path, HeldImage) else read_picture(path, _read_rgb, MAX_PIXELS)
        transform = create_transform(**resolve_model_data_config(self.backbone), is_training=False)
        try:
            image = Image.fromarray(pixels).convert('RGB')
            inputs = transform(image)[None]
        except ValueError as error:
            raise Unreadable(str(error)) from error
        inputs = inputs.to(next(self.backbone.parameters()).device)
        return Loaded(path, inputs, np.asarray(image))

    def probe(self, image: Loaded) -> None:
        """Nothing to note: these models record no intermediates."""

    def describe(self) -> dict:
        """Which model it is."""
        return dict(timm=self.name, checkpoint=self.checkpoint, sha256=self.sha256, backbone=self.about)


def build(name: str, num_classes: int = 0) -> nn.Module:
    """A model in evaluation mode, with the same random weights in every call.

    Args:
        name: As timm calls it.
        num_classes: Of its head; 0 for no head.

    Raises:
        ImportError: If timm is not installed.
        ValueError: If timm has no such model; says the closest ones.
    """
    try:
        import timm
    except ImportError as error:
        raise ImportError(f'--timm {name}: timm cannot be imported ({error}): pip install timm') from error
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=3)
        raise ValueError(
            f'--timm {name}: timm has no such model; {f"close: {close}" if close else "timm.list_models()"}'
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return timm.create_model(name, num_classes=num_classes).eval()


def load(model: nn.Module, path: Path, option: str = '--checkpoint', with_head: bool = False) -> None:
    """Loads all weights of a model from a file with timm's names.

    Args:
        model: The model.
        path: The file.
        option: The option that names it, for errors.
        with_head: Whether the model has a head; otherwise weights of heads are left out.

    Raises:
        ValueError: If some are missing, left over or of another shape.
    """
    state, _ = find_weights(read_checkpoint(path), path)
    heads = () if with_head else model.default_cfg.get('classifier') or ()
    heads = tuple(f'{head}.' for head in ((heads,) if isinstance(heads, str) else heads))
    state = {key: value for key, value in state.items() if not (heads and key.startswith(heads))}
    own = model.state_dict()
    wrong = [
        key for key in {**own, **state} if key not in own or key not in state or own[key].shape != state[key].shape
    ]
    if wrong:
        raise ValueError(
            f'{option}: {path} does not fit the model: missing, left over or of another shape: {some_of(wrong)}'
        )
    model.load_state_dict(state)


def feature_map(model: nn.Module) -> FeatureMap:
    """The map ``(1, D, h, w)`` that a model's ``forward_features`` gives, prefix tokens dropped.

    It raises a ValueError if the model gives no map.
    """

    def features(image: Tensor) -> Tensor:
        maps = model.forward_features(image)
        if not isinstance(maps, Tensor) or maps.ndim not in (3, 4):
            raise _no_map(model, f'gives {tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__}')
        if maps.ndim == 4:
            return maps.permute(0, 3, 1, 2) if getattr(model, 'output_fmt', 'NCHW') == 'NHWC' else maps
        patches = maps[:, getattr(model, 'num_prefix_tokens', 0) :]
        return patches.transpose(1, 2).unflatten(2, _grid(model, patches.shape[1], image.shape[-2:]))

    return features


def describe_feature_map(model: nn.Module) -> str:
    """Which tokens :func:`feature_map` gives, in words."""
    after_pooling = isinstance(getattr(model, 'norm', None), nn.Identity)
    return "timm's forward_features" + (', not normalised: its norm follows the pooling' if after_pooling else '')


def _grid(model: nn.Module, count: int, image_size: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of patches.

    Raises:
        ValueError: If patches of the model's size do not make up this many tokens.
    """
    # MLP-Mixer calls it stem.
    embed = getattr(model, 'patch_embed', getattr(model, 'stem', None))
    patch = getattr(embed, 'patch_size', None)
    if patch is None:
        raise _no_map(model, f'gives {count} tokens, and has no patch_embed that tells their grid')
    sides = list(zip(image_size, _pair(patch), strict=True))
    for divided in (ceil_div, floordiv):  # an embedding that does not pad leaves the rest of an image out
        rows, columns = (divided(side, step) for side, step in sides)
        if rows * columns == count:
            return rows, columns
    raise _no_map(model, f'gives {count} tokens, which are no grid of patches of {patch} pixels')


def _no_map(model: nn.Module, why: str) -> ValueError:
    return ValueError(
        f'{type(model).__name__}: forward_features {why}: expected a map, (B, D, h, w), (B, h, w, D) or (B, N, D); '
        'choose another model'
    )


def _pair(value) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _read_rgb(path: str | Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert('RGB'))
