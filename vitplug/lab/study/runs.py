"""A trained model, and what a condition may replace of it: pipeline, weights, data, attack, edits, what is right."""

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.device import get_device
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from vitplug.adapters import host_of, plug_in
from vitplug.attention import GlobalLayout, Site
from vitplug.checkpoints.files import find_weights, local_file, read_checkpoint
from vitplug.config.parts import loader_leaves, model_settings, pipeline_of
from vitplug.config.reading import read_config
from vitplug.files.folders import IMAGE_SUFFIXES
from vitplug.hosting import Edits, PixelGrid, PluggedModel
from vitplug.lab.cells import CELL, CONFIG, GRID, own_code, read_cell
from vitplug.runs.checks import check_data, model_config
from vitplug.runs.prediction import load_model
from vitplug.statistics.images import evenly_spaced

from .store import digest

SPLITS = ('train', 'val', 'test')
# Pixels of an image in 8 bit.
WHITE = 255.0


def turns_channels(preprocessor: nn.Module) -> bool:
    """True if a data preprocessor turns the order of the channels, as of images that are blue first."""
    # mmpretrain's switch, mmseg's, and that of mmengine, mmdet and OneDL's mmseg.
    return any(getattr(preprocessor, name, False) for name in ('to_rgb', 'channel_conversion', '_channel_conversion'))


class ResidualBlocks:
    """A ResNet of mmpretrain or timm, with the methods of :class:`vitplug.hosting.PluggedModel` for blocks' outputs.

    Maps ``(B, C, H, W)`` are recorded as tokens ``(B, H * W, C)``.
    """

    def __init__(self, network: nn.Module):
        self.network = network
        self.blocks = [module for module in network.modules() if type(module).__name__ in ('BasicBlock', 'Bottleneck')]
        if not self.blocks:
            raise ValueError(f'{type(network).__name__} has neither sockets nor the blocks of a ResNet')
        self._layouts: dict[int, GlobalLayout] = {}

    def plugged_blocks(self) -> list[nn.Module]:
        return self.blocks

    def place_maps(self, index: int, image_size: tuple[int, int]) -> tuple:
        """Where the tokens of a block's last output lie."""
        layout = self._layouts[index]
        return ((layout, PixelGrid(layout.hw)),) * 2

    def forward_intermediates(
        self, images: Tensor, names: Iterable[str], reduce: Callable[[str, Tensor, Site], Any]
    ) -> None:
        """Gives the blocks' outputs to ``reduce``."""

        def keep(index: int, block: nn.Module, inputs: Any, maps_BCHW: Tensor) -> None:
            self._layouts[index] = GlobalLayout(*maps_BCHW.shape[2:])
            reduce('block', maps_BCHW.flatten(2).mT, Site(self._layouts[index], index=index))

        with ExitStack() as hooks:
            for index, block in enumerate(self.blocks):
                hooks.enter_context(block.register_forward_hook(partial(keep, index)))
            self.network(images)


@dataclass(frozen=True, eq=False)
class Run:
    """A model under a condition.

    Attributes:
        label: Name of the model; several seeds of one variant share it.
        cfg: Its config.
        model: The whole model, in evaluation mode.
        content: Hash of its weights, its settings and those of its data.
        source: Settings of the data set.
        pipeline: Steps from an image to the model: settings, or functions.
        seed: Of a cell of an ablation: these are paired by seed. None for others, paired with a single model alone.
        attack: From this run, pixels ``(B, C, H, W)`` from 0 to 1 and classes to attacked pixels.
        edits: Edits of intermediates for an image.
        right: The right classes of a sample in classification; an image without any is left out.
        among: The classes that are told apart; None for all.
        base: The run before a condition changed it.
        num: How many of the images, evenly spaced; None for all.
        cache: What is computed once for this run.
    """

    label: str
    cfg: Config
    model: nn.Module
    content: str
    source: Mapping
    pipeline: Sequence[Any]
    seed: int | None = None
    attack: Callable[['Run', Tensor, Tensor], Tensor] | None = None
    edits: Callable[['Run', int], Edits] | None = None
    right: Callable[[BaseDataElement], Sequence[int]] = lambda sample: [int(sample.gt_label)]
    among: Sequence[int] | None = None
    base: 'Run | None' = None
    num: int | None = None
    cache: dict = field(default_factory=dict, repr=False)

    def changed(self, **parts) -> 'Run':
        return replace(self, base=self.base or self, cache={}, **parts)

    # --- data ---

    @cached_property
    def dataset(self):
        init_default_scope(self.cfg.default_scope)
        steps = [step for step in self.pipeline if self.has_labels or callable(step) or 'Annot' not in step['type']]
        # Unfiltered, as test_mode makes it, which some data sets do not take, and which chooses the split of MNIST.
        source = {name: value for name, value in self.source.items() if name != 'filter_cfg'}
        dataset = DATASETS.build(copy.deepcopy(source) | dict(pipeline=[], lazy_init=True))
        dataset.full_init()
        dataset.test_mode = True
        dataset.pipeline = Compose(copy.deepcopy(steps))
        return dataset

    @property
    def has_labels(self) -> bool:
        """False of a folder of images."""
        return self.source.get('with_label', True)

    @property
    def images(self) -> list[int]:
        """Numbers of the images in the data set, the same ones in every call."""
        return evenly_spaced(len(self.dataset), self.num or len(self.dataset))

    def image_key(self, index: int) -> str:
        """Number and content of an image: its bytes, its label, its annotations, and its ids in COCO's file."""
        if ('key', index) not in self.cache:
            ids = self.dataset.get_data_info(index).get('img_id'), getattr(self.dataset, 'cat_ids', None)
            self.cache['key', index] = f'{index:06}-{digest(self.content_of(index), repr(ids))}'
        return self.cache['key', index]

    def content_of(self, index: int) -> str:
        """Hash of an image and what is known of it, wherever it is in the data set; names of files do not count."""
        parts: list[bytes | str] = []
        for name, value in sorted(self.dataset.get_data_info(index).items()):
            if isinstance(value, np.ndarray):
                parts += [name, repr((value.dtype.str, value.shape)), np.ascontiguousarray(value).tobytes()]
            elif name not in ('img_path', 'seg_map_path', 'img_id', 'sample_idx'):
                parts += [name, repr(value)]
            elif name.endswith('_path') and value and Path(value).is_file():
                parts += [name, Path(value).read_bytes()]
        return digest(*parts)

    def batch(self, indices: Sequence[int]) -> dict:
        return pseudo_collate([self.dataset[index] for index in indices])

    @property
    def turns_channels(self) -> bool:
        return turns_channels(self.model.data_preprocessor)

    @property
    def mean_pixel(self) -> list[float]:
        """The values that the data preprocessor makes zero, in the channel order of the pipeline's images."""
        mean = getattr(self.model.data_preprocessor, 'mean', None)
        values = [0.0] if mean is None else mean.flatten().tolist()
        return values[::-1] if self.turns_channels and len(values) == 3 else values

    # --- the model ---

    @property
    def library(self) -> str:
        return self.cfg.default_scope

    @cached_property
    def backbone(self) -> PluggedModel | ResidualBlocks:
        """What records intermediates: a backbone of vitplug, a model of timm with sockets, or a ResNet."""
        if self.base is not None and self.base.model is self.model:
            return self.base.backbone
        network = next(filter(None, (getattr(self.model, name, None) for name in ('backbone', 'model'))), self.model)
        with suppress(ValueError):
            return host_of(network)
        try:
            return host_of(plug_in(network, []))
        except (ValueError, TypeError):  # no transformer of a known library
            return ResidualBlocks(network)

    @property
    def blocks(self) -> int:
        return len(self.backbone.plugged_blocks())

    @property
    def is_plugged(self) -> bool:
        """Whether its blocks tell of attention, not of outputs alone."""
        return isinstance(self.backbone, PluggedModel)

    @property
    def changes_maps(self) -> bool:
        """Whether a plug changes the maps of some block, so that there are maps before and after it."""
        return self.is_plugged and any(block.plugs.at('map') for block in self.backbone.plugged_blocks())

    @property
    def has_class_token(self) -> bool:
        return self.is_plugged and tuple(self.backbone.prefix_names[:1]) == ('cls_token',)

    def inputs(self, batch: Mapping) -> Tensor:
        """Normalised and padded images ``(B, C, H, W)``, as the backbone gets them."""
        return self.model.data_preprocessor(copy.deepcopy(batch), False)['inputs']

    def logits(self, pixels: Tensor) -> Tensor:
        """Logits ``(B, classes)`` of pixels from 0 to 1; the normalisation is inside."""
        inputs = self.model.data_preprocessor(dict(inputs=pixels * WHITE), training=False)['inputs']
        return self.model(inputs, mode='tensor')

    def attackable(self, batch: Mapping) -> tuple[Tensor, Tensor]:
        """Pixels ``(B, C, H, W)`` from 0 to 1 and classes ``(B,)`` of a batch of a classifier."""
        device = next(self.model.parameters()).device
        pixels = torch.stack(list(batch['inputs'])).to(device).float() / WHITE
        return pixels, torch.cat([sample.gt_label for sample in batch['data_samples']]).to(device)

    def attacked(self, batch: Mapping) -> dict:
        """The batch with attacked pixels, on the CPU as they are read."""
        with torch.enable_grad():
            return dict(batch, inputs=(self.attack(self, *self.attackable(batch)).detach() * WHITE).cpu())

    @torch.no_grad()
    def predict(self, batch: Mapping) -> list[BaseDataElement]:
        """Predictions with annotations."""
        return [sample.cpu() for sample in self.model.test_step(copy.copy(batch))]

    def editing(self, index: int) -> AbstractContextManager[None]:
        """The context in which the model's intermediates are edited for an image."""
        return self.backbone.edited(self.edits(self, index)) if self.edits else nullcontext()


# --- reading ---


def read_runs(
    names: Sequence[str], images: str = 'test', num: int | None = None, device: str | None = None, **settings
) -> list[Run]:
    """The models of a command line, on the same images, else a ValueError.

    Args:
        names: ``CONFIG[:CHECKPOINT][=LABEL]``, ``timm:NAME[:FILE][=LABEL]``, or folders of ablations.
        images: A split of the config, or a folder of images.
        num: How many of them, evenly spaced; None for all.
        device, settings: See :func:`read_run`.
    """
    runs: list[Run] = []
    settings |= dict(images=images, device=device)
    for name in names:
        source, _, label = name.rpartition('=') if '=' in name.rpartition('/')[2] else (name, '', '')
        if source.startswith('timm:'):
            found = [timm_run(source.removeprefix('timm:'), label, runs[0].cfg if runs else None, images, device)]
        elif Path(source).is_dir():
            found = _of_ablation(Path(source), label, **settings)
        else:
            config, _, checkpoint = source.partition('.py:')
            found = [read_run(f'{config}.py' if checkpoint else config, checkpoint or None, label, **settings)]
        runs += [replace(run, num=num) for run in found]
    first, *others = runs
    [((label, _), count)] = Counter((run.label, run.seed) for run in runs).most_common(1)
    if count > 1:
        raise ValueError(f'RUN: two models are called {label!r}: name them, such as CONFIG:CHECKPOINT=second')
    for run in others:
        if [run.image_key(index) for index in run.images] != [first.image_key(index) for index in first.images]:
            raise ValueError(f'{run.label}: its images are not those of {first.label}: give a folder with --images')
    return runs


def _of_ablation(folder: Path, label: str, **settings: Any) -> Iterator[Run]:
    """The finished cells of an ablation, paired by seed."""
    note = json.loads((folder / GRID).read_text('utf-8')) if (folder / GRID).is_file() else dict(cells=[])
    cells = [read_cell(folder / 'cells' / name) for name in note['cells'] if (folder / 'cells' / name / CELL).is_file()]
    finished = [cell for cell in cells if cell.is_done and cell.checkpoint]
    if not finished:
        raise ValueError(f'RUN {folder}: {len(cells)} cells of an ablation, none finished and with a checkpoint')
    for cell in sorted(finished, key=lambda cell: (note['labels'].index(cell.label), cell.seed)):
        name = f'{label}, {cell.label}' if label else cell.label
        yield read_run(str(cell.folder / CONFIG), str(cell.checkpoint), name, seed=cell.seed, **settings)


def read_run(
    config: str,
    checkpoint: str | None,
    label: str = '',
    images: str = 'test',
    device: str | None = None,
    options: Mapping | None = None,
    seed: int | None = None,
) -> Run:
    """A model of a config, with the weights of a checkpoint or with initial ones, drawn with seed 0."""
    cfg = model_config(config, checkpoint, 'RUN', options) if checkpoint else read_config(config, options)
    if images in SPLITS:
        check_data(cfg, (images,))
    init_default_scope(cfg.default_scope)
    model = load_model(cfg, local_file(checkpoint))[0] if checkpoint else _drawn(cfg)
    return _run(label or Path(config).stem, cfg, model, images, device, seed)


def timm_run(name: str, label: str, data: Config | None, images: str, device: str | None) -> Run:
    """A model of timm, tested as timm tests it: ``NAME`` with weights drawn with seed 0, or ``NAME:FILE``.

    Its data are those of a config, or ``images`` is a folder.
    """
    import timm
    from timm.data import resolve_data_config

    name, _, file = name.partition(':')
    if data is None and images in SPLITS:
        raise ValueError(f'--images {images}: timm:{name} has no data set: name a folder, or a CONFIG before it')
    stock = resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(name, allow_unregistered=False).to_dict())
    height, width = stock['input_size'][-2:]
    if height != width or stock['crop_mode'] != 'center':
        raise ValueError(f'timm:{name}: tested with crop_mode {stock["crop_mode"]}, {height} x {width}: only squares')
    cfg = copy.deepcopy(data) or Config(dict(test_dataloader=dict(dataset={})))
    classes = cfg.get('model', {}).get('head', {}).get('num_classes', 1000)
    preprocessor = {key: [WHITE * value for value in stock[key]] for key in ('mean', 'std')}
    cfg.default_scope = 'mmpretrain'
    cfg.model = dict(type='TimmClassifier', model_name=name, num_classes=classes, data_preprocessor=preprocessor)
    cfg.test_dataloader.dataset.pipeline = [
        dict(type='LoadImageFromFile', imdecode_backend='pillow'),
        dict(type='NumpyToPIL', to_rgb=True),
        dict(type='torchvision/Resize', size=floor(height / stock['crop_pct']), interpolation=stock['interpolation']),
        dict(type='torchvision/CenterCrop', size=height),
        dict(type='PackInputs'),
    ]
    model = _drawn(cfg)
    if file:
        path = local_file(file)
        model.model.load_state_dict(find_weights(read_checkpoint(path), path)[0])  # strict: names what does not fit
    return _run(label or name, cfg, model, images, device)


def _drawn(cfg: Config) -> nn.Module:
    """A model with initial weights; timm draws its own as it builds."""
    init_default_scope(cfg.default_scope)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MODELS.build(model_settings(cfg))
        if cfg.model.type != 'TimmClassifier':
            model.init_weights()
    return model


def _run(label: str, cfg: Config, model: nn.Module, images: str, device: str | None, seed: int | None = None) -> Run:
    model = model.to(device or get_device()).eval().requires_grad_(False)
    pipeline, source = list(pipeline_of(cfg.test_dataloader)[1]), source_of(cfg, images)
    content: list[str | bytes] = [*map(repr, (model_settings(cfg), pipeline, cfg.get('test_evaluator'), source))]
    content += [f'{module} {held}' for module, held in own_code(cfg).items()]
    for name, value in sorted(model.state_dict().items()):
        value = value.detach().cpu().contiguous()
        content.append(f'{name} {value.dtype} {tuple(value.shape)}')
        content.append(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return Run(label, cfg, model, digest(*content), source, pipeline, seed)


def source_of(cfg: Config, images: str) -> Mapping:
    """The data of a split, or of a folder of images at any depth."""
    if images not in SPLITS:
        if not Path(images).is_dir():
            raise FileNotFoundError(f'--images {images}: no such folder; or name a split, {", ".join(SPLITS)}')
        metainfo = dict(cfg.test_dataloader.dataset.get('metainfo') or {})
        folder = dict(type='mmpretrain.CustomDataset', data_root=images, with_label=False, metainfo=metainfo)
        return folder | dict(extensions=tuple(IMAGE_SUFFIXES))
    leaves = list(loader_leaves(cfg, images))
    if len(leaves) != 1:
        raise ValueError(f'--images {images}: {cfg.filename} has {len(leaves)} data sets there: expected one')
    return {key: value for key, value in dict(leaves[0][1]).items() if key != 'pipeline'}
