"""A model under analysis: what it is made from, and what its blocks can tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from mmengine.config import Config
from torch import nn

from vitplug.analysis.measures.places import Place
from vitplug.attention.intermediates import MAPS
from vitplug.checkpoints.downloads import file_hash
from vitplug.checkpoints.files import local_file
from vitplug.hosting import PluggedModel
from vitplug.runs.checks.data import max_pixels
from vitplug.runs.prediction import Predictor

from .images import Loaded, load_image
from .layers import NamedLayers, proposed

MODEL, BASELINE = 'model', 'baseline'
# Intermediates that tell which blocks have attention and which have a bias.
PROBED = (*MAPS, 'heads', 'attn', 'mlp', 'block')


@dataclass(eq=False)
class Subject:
    """The model, or its baseline.

    Attributes:
        label: ``'model'`` or ``'baseline'``.
        cfg: Config of its training.
        checkpoint: As it was named.
        predictor: The model with its pipeline.
        sha256: Of the checkpoint file.
        backbone: What is measured: a backbone of vitplug, or the named layers of another one.
        recorded: Shapes of the intermediates of the first image, by name and block; see :meth:`probe`.
        sizes: Height and width of each image as the backbone gets it.
        paths: The images.
        kept: What measures of this model share.
    """

    label: str
    cfg: Config
    checkpoint: str
    predictor: Predictor
    sha256: str
    backbone: PluggedModel | NamedLayers
    recorded: Mapping[str, Mapping[int, tuple[int, ...]]] = field(default_factory=dict)
    sizes: Sequence[tuple[int, int]] = ()
    paths: Sequence[Path] = ()
    kept: dict = field(default_factory=dict)
    _places: dict = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        label: str,
        cfg: Config,
        checkpoint: str,
        device: str | None,
        allow_changes: bool,
        blocks: str | None = None,
    ) -> 'Subject':
        """Builds a model of a config with the weights of a checkpoint.

        Args:
            label: ``'model'`` or ``'baseline'``.
            cfg: The config.
            checkpoint: The checkpoint.
            device: Where it runs; None for an accelerator where there is one.
            allow_changes: Whether the checkpoint may be of other settings.
            blocks: Names of the blocks of a backbone that is none of vitplug's, see :class:`NamedLayers`;
                None where a command cannot take such a backbone.

        Raises:
            ValueError: If its backbone is none of vitplug's, and ``blocks`` names none of its blocks.
            Exception: As :class:`~vitplug.runs.prediction.Predictor` does.
        """
        path = local_file(checkpoint)
        predictor = Predictor(cfg, path, device, allow_changes=allow_changes)
        backbone = _measured(getattr(predictor.model, 'backbone', None), blocks, cfg.filename)
        return cls(label, cfg, str(checkpoint), predictor, file_hash(Path(path)), backbone)

    @property
    def model(self) -> nn.Module:
        return self.predictor.model

    @property
    def num_layers(self) -> int:
        return len(self.backbone.plugged_blocks())

    @property
    def changes_maps(self) -> bool:
        """Whether a plug changes the maps of some block, so that there are maps before and after it."""
        return self.is_plugged and any(block.plugs.at('map') for block in self.backbone.plugged_blocks())

    @property
    def has_class_token(self) -> bool:
        return self.backbone.prefix_names[:1] == ('cls_token',)

    @property
    def about(self) -> str:
        """Host and plugs, in one line."""
        return f'{type(self.model.backbone).__name__}: {self.backbone.plug_summary}'

    @property
    def is_plugged(self) -> bool:
        """Whether the backbone is one of vitplug's."""
        return isinstance(self.backbone, PluggedModel)

    def load(self, path: Path) -> Loaded:
        """An image through the model's own test pipeline.

        Raises:
            Unreadable: If it cannot be read.
        """
        return load_image(self.predictor, path, max_pixels(self.cfg))

    def place(self, layer: int, size: tuple[int, int]) -> Place:
        """Where the tokens of a block lie in an image of a size; kept for the last size."""
        if self._places.get('size') != size:
            self._places = dict(size=size)
        if layer not in self._places:
            self._places[layer] = Place.of(self.backbone, layer, size)
        return self._places[layer]

    @torch.no_grad()
    def probe(self, image: Loaded) -> None:
        """Notes which intermediates which blocks have."""
        _, self.recorded = self.backbone.forward_intermediates(
            image.inputs, PROBED, reduce=lambda name, tensor, site: tuple(tensor.shape)
        )

    def layers_with(self, name: str) -> list[int]:
        """The blocks that have an intermediate."""
        return sorted(self.recorded.get(name, ()))


def _measured(backbone: nn.Module | None, blocks: str | None, config: str) -> PluggedModel | NamedLayers:
    """The backbone as it is measured.

    Raises:
        ValueError: If it is none of vitplug's, and no blocks are named.
    """
    if isinstance(backbone, PluggedModel):
        return backbone
    if backbone is not None and blocks:
        return NamedLayers(backbone, blocks)
    wanted = (
        "expected one of vitplug's, such as vitplug.VisionTransformer or vitplug.SwinTransformer, which have the same "
        'arguments and weights'
    )
    if backbone is not None and blocks is not None:
        wanted += f'; or name its blocks to compare their outputs: --blocks with {proposed(backbone)}'
    raise ValueError(
        f'{config}: model.backbone is a {type(backbone).__name__}, which records no intermediates: {wanted}'
    )
