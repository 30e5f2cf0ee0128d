"""A trained model, and what a condition may replace of it: pipeline, weights, data, attack, edits, what is right."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from vitplug.adapters import host_of, plug_in
from vitplug.checkpoints.files import find_weights, local_file, read_checkpoint, some_of
from vitplug.compat import replace
from vitplug.config.parts import loader_leaves, pipeline_of
from vitplug.files.folders import IMAGE_SUFFIXES, files_below
from vitplug.files.named import check_weights
from vitplug.hosting import Edits, PluggedModel
from vitplug.plugs.text import NONE
from vitplug.runs.checks.data import check_data
from vitplug.runs.checks.model import model_config
from vitplug.runs.prediction.predictor import check_device, load_model
from vitplug.statistics.images import evenly_spaced

from .layers import NamedLayers
from .quantities.places import Place
from .store import digest

SPLITS = ('train', 'val', 'test')
TIMM = 'timm:'
# Pixels of an image in 8 bit.
WHITE = 255.0


# Names of the same switch: mmpretrain's, mmseg's, and that of mmengine, mmdet and OneDL's mmseg.
CHANNEL_SWITCHES = ('to_rgb', 'channel_conversion', '_channel_conversion')


def turns_channels(preprocessor: nn.Module) -> bool:
    """True if a data preprocessor turns the order of the channels, as of images that are blue first."""
    return any(getattr(preprocessor, name, False) for name in CHANNEL_SWITCHES)


class Folder:
    """Images of a folder, without labels, as a data set.

    Args:
        root: An image, or a folder with images at any depth.
        metainfo: Names of the classes of the model.

    Raises:
        FileNotFoundError: If there is no image.
    """

    def __init__(self, root: Path, metainfo: Mapping):
        self.metainfo, self.pipeline = dict(metainfo), None
        files = [root] if root.is_file() else [Path(f, name) for f, names in files_below(root) for name in names]
        self.files = sorted(file for file in files if file.suffix.lower() in IMAGE_SUFFIXES)
        if not self.files:
            raise FileNotFoundError(f'--images: {root} has no image in it, of {", ".join(IMAGE_SUFFIXES)}')

    def __len__(self) -> int:
        return len(self.files)

    def get_data_info(self, index: int) -> dict:
        return dict(img_path=str(self.files[index]), img_id=index, sample_idx=index)

    def __getitem__(self, index: int) -> dict:
        return self.pipeline(self.get_data_info(index))


@dataclass(frozen=True)
class Truth:
    """What counts as right in classification.

    Attributes:
        class_of: The class of each label of the data set; None where they are the same.
        among: The classes that are told apart, all others being left out: images and logits; None for all.
        sets: By name of the image file, the classes that are right; images with an empty set are left out. None for the
            class of the label.
    """

    class_of: Sequence[int] | None = None
    among: Sequence[int] | None = None
    sets: Mapping[str, Sequence[int]] | None = field(default=None, repr=False)

    def right(self, sample: BaseDataElement, k: int = 1) -> float:
        """1 if one of the best k classes is right, 0 if not, NaN if the image does not count."""
        label = int(sample.gt_label)
        expected = [label if self.class_of is None else self.class_of[label]]
        if self.sets is not None:
            expected = self.sets[Path(sample.img_path).name]
        scores = sample.pred_score
        if self.among is not None:
            expected = [self.among.index(one) for one in expected if one in self.among]
            scores = scores[list(self.among)]
        best = scores.topk(min(k, len(scores))).indices.tolist()
        return float(any(one in expected for one in best)) if expected else np.nan


#: Attacked pixels ``(B, C, H, W)`` from 0 to 1, of a run, pixels and classes.
Attack = Callable[['Run', Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Run:
    """A model under a condition.

    Attributes:
        label: Name of the model; several seeds of one variant share it.
        cfg: Its config.
        model: The whole model, in evaluation mode.
        content: Hash of its weights, its settings and those of its data.
        source: Settings of the data set, or a folder of images without labels.
        pipeline: Steps from an image to the model.
        seed: Of the training, where runs are paired by seed.
        attack: Changes pixels before the model.
        edits: Edits of intermediates for an image.
        truth: What is right in classification.
        base: The run before a condition changed it.
        num: How many of the images; None for all.
        cache: What is computed once for this run.
    """

    label: str
    cfg: Config
    model: nn.Module
    content: str
    source: Mapping | Path
    pipeline: Sequence[dict]
    seed: int = 0
    attack: Attack | None = None
    edits: Callable[['Run', int], Edits] | None = None
    truth: Truth = field(default_factory=Truth)
    base: 'Run | None' = None
    num: int | None = None
    cache: dict = field(default_factory=dict, repr=False)

    def changed(self, **parts) -> 'Run':
        """This run with other parts."""
        return replace(self, base=self.base or self, cache={}, **parts)

    # --- data ---

    @property
    def dataset(self):
        if 'dataset' not in self.cache:
            self.cache['dataset'] = self._dataset()
        return self.cache['dataset']

    def _dataset(self):
        init_default_scope(self.cfg.default_scope)
        if isinstance(self.source, Path):
            dataset = Folder(self.source, self._metainfo())
            steps = [step for step in self.pipeline if 'Annotations' not in str(step['type'])]
        else:
            settings = copy.deepcopy(dict(self.source)) | dict(pipeline=[], test_mode=True, lazy_init=False)
            dataset, steps = DATASETS.build(settings), list(self.pipeline)
        dataset.pipeline = Compose(copy.deepcopy(steps))
        if not len(dataset):
            raise ValueError(f'--images: {self.label}: the data have no images')
        return dataset

    def _metainfo(self) -> Mapping:
        return self.cfg.test_dataloader.dataset.get('metainfo') or {}

    @property
    def images(self) -> list[int]:
        """Numbers of the images in the data set, evenly spaced: the same ones in every call."""
        return evenly_spaced(len(self.dataset), self.num or len(self.dataset))

    def image_key(self, index: int) -> str:
        """Number and content of an image: its bytes, its label, its annotations."""
        keys = self.cache.setdefault('keys', {})
        if index not in keys:
            info = dict(self.dataset.get_data_info(index))
            parts = [f'{index}']
            for name in sorted(info):
                value = info[name]
                if isinstance(value, np.ndarray):
                    parts += [name, repr((value.dtype.str, value.shape)), np.ascontiguousarray(value).tobytes()]
                elif name in ('img_path', 'seg_map_path') and value and Path(value).is_file():
                    parts += [name, Path(value).read_bytes()]
                elif name not in ('img_path', 'seg_map_path', 'img_id', 'sample_idx'):
                    parts += [name, repr(value)]
            keys[index] = f'{index:06}-{digest(*parts)}'
        return keys[index]

    def batch(self, indices: Sequence[int]) -> dict:
        """Images as the pipeline packs them."""
        return pseudo_collate([self.dataset[index] for index in indices])

    @property
    def batch_size(self) -> int:
        return int(self.cfg.test_dataloader.get('batch_size') or 1)

    # --- the model ---

    @property
    def library(self) -> str:
        return self.cfg.default_scope

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def backbone(self) -> PluggedModel | NamedLayers:
        """What records intermediates: a backbone of vitplug, a model of timm with sockets, or named layers.

        Raises:
            ValueError: If there are none; says why.
        """
        if 'backbone' not in self.cache:
            own = self.base.cache if self.base and self.base.model is self.model else self.cache
            if 'backbone' not in own:
                own['backbone'] = _recorded(self.model)
            self.cache['backbone'] = own['backbone']
        return self.cache['backbone']

    @property
    def blocks(self) -> int:
        return len(self.backbone.plugged_blocks())

    @property
    def is_plugged(self) -> bool:
        """Whether its blocks tell of attention, not of outputs alone."""
        return isinstance(self.backbone, PluggedModel)

    @property
    def has_class_token(self) -> bool:
        return tuple(self.backbone.prefix_names[:1]) == ('cls_token',)

    def place(self, layer: int, size: tuple[int, int]) -> Place:
        """Where the tokens of a block lie in an image of a size; kept for the last size."""
        places = self.cache.get('places')
        if places is None or places[0] != size:
            places = self.cache['places'] = (size, {})
        if layer not in places[1]:
            places[1][layer] = Place.of(self.backbone, layer, size)
        return places[1][layer]

    def inputs(self, batch: Mapping) -> Tensor:
        """Normalised and padded images ``(B, C, H, W)``, as the backbone gets them."""
        return self.model.data_preprocessor(copy.deepcopy(batch), False)['inputs']

    def logits(self, pixels: Tensor) -> Tensor:
        """Logits ``(B, classes)`` of pixels from 0 to 1; the normalisation is inside."""
        inputs = self.model.data_preprocessor(dict(inputs=pixels * WHITE), training=False)['inputs']
        return self.model(inputs, mode='tensor')

    def attackable(self, batch: Mapping) -> tuple[Tensor, Tensor]:
        """Pixels ``(B, C, H, W)`` from 0 to 1 and classes ``(B,)`` of a batch of a classifier."""
        pixels = torch.stack(list(batch['inputs'])).to(self.device).float() / WHITE
        return pixels, torch.cat([sample.gt_label for sample in batch['data_samples']]).to(self.device)

    @torch.no_grad()
    def predict(self, batch: Mapping, indices: Sequence[int]) -> list[BaseDataElement]:
        """Predictions with annotations."""
        if self.attack is not None:
            pixels, labels = self.attackable(batch)
            batch = dict(batch, inputs=self.attack(self, pixels, labels) * WHITE)
        with self.editing(indices[0]):
            return [sample.cpu() for sample in self.model.test_step(copy.copy(batch))]

    def editing(self, index: int):
        """The context in which the model's intermediates are edited for an image."""
        return self.backbone.edited(self.edits(self, index)) if self.edits else nullcontext()


def _recorded(model: nn.Module) -> PluggedModel | NamedLayers:
    backbone = getattr(model, 'backbone', None)
    if isinstance(backbone, PluggedModel):
        return backbone
    if backbone is None and isinstance(getattr(model, 'model', None), nn.Module):  # timm's in mmpretrain
        try:
            return host_of(plug_in(model.model, []))
        except (ValueError, TypeError):  # no transformer
            return NamedLayers(model.model)
    return NamedLayers(model if backbone is None else backbone)


# --- reading ---


def read_runs(
    names: Sequence[str], images: str = 'test', num: int | None = None, device: str | None = None, **settings
) -> list[Run]:
    """The models of a command line.

    Args:
        names: ``CONFIG[:CHECKPOINT][=LABEL]``, ``timm:NAME[:FILE][=LABEL]``, or folders of ablations.
        images: A split of the config, or a folder or file of images.
        num: How many of them, evenly spaced.
        device: Where they run.
        settings: ``allow_changes`` and ``options`` for configs.

    Raises:
        ValueError: If a name is none of these, or models are of several tasks.
    """
    runs: list[Run] = []
    for name in names:
        source, _, label = name.partition('=') if '=' in name.rpartition('/')[2] else (name, '', '')
        for run in _read(source, label, images, device, runs, settings):
            if any((run.label, run.seed) == (other.label, other.seed) for other in runs):
                raise ValueError(f'RUN: two models are called {run.label!r}: name them, such as {name}=second')
            runs.append(replace(run, num=num))
    scopes = {run.library for run in runs}
    if len(scopes) > 1:
        raise ValueError(f'RUN: models of one task are compared, and these are of {", ".join(sorted(scopes))}')
    _check_same_images(runs)
    return runs


def _read(name: str, label: str, images: str, device, before: Sequence[Run], settings: Mapping) -> Iterator[Run]:
    if name.startswith(TIMM):
        configs = [run.cfg for run in before if run.cfg.filename]
        yield timm_run(name.removeprefix(TIMM), label, images, device, configs[0] if configs else None)
    elif Path(name).is_dir():
        yield from _of_ablation(Path(name), label, images, device, settings)
    else:
        config, _, checkpoint = name.partition('.py:')
        config += '.py' if checkpoint else ''
        yield read_run(config, checkpoint or None, label, images, device, **settings)


def read_run(
    config: str,
    checkpoint: str | None,
    label: str = '',
    images: str = 'test',
    device: str | None = None,
    allow_changes: bool = False,
    options: Mapping | None = None,
    seed: int = 0,
) -> Run:
    """A model of a config, with the weights of a checkpoint or with initial ones, drawn with seed 0.

    Raises:
        FileNotFoundError, ValueError: If a file is missing, or they do not belong together.
    """
    from vitplug.config.reading import read_config

    cfg = model_config(config, checkpoint, 'RUN', options) if checkpoint else read_config(config, options)
    if images in SPLITS:
        check_data(cfg, (images,))
    init_default_scope(cfg.default_scope)
    if checkpoint:
        model, _ = load_model(cfg, local_file(checkpoint), allow_changes)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = MODELS.build(copy.deepcopy(cfg.model))
            model.init_weights()
    return _run(label or Path(config).stem, cfg, model, images, device, seed)


def _run(label: str, cfg: Config, model: nn.Module, images: str, device: str | None, seed: int = 0) -> Run:
    model = model.to(check_device(device))
    model.eval()
    model.requires_grad_(False)
    pipeline = list(pipeline_of(cfg.test_dataloader)[1])
    source = source_of(cfg, images)
    settings = [cfg.model, pipeline, cfg.get('test_evaluator'), source]
    content = digest(*map(repr, map(_plain, settings)), *_weights(model))
    return Run(label, cfg, model, content, source, pipeline, seed)


def _plain(settings: Any) -> Any:
    return settings.to_dict() if hasattr(settings, 'to_dict') else settings


def _weights(model: nn.Module) -> Iterator[bytes | str]:
    for name, value in sorted(model.state_dict().items()):
        value = value.detach().cpu().contiguous()
        yield f'{name} {value.dtype} {tuple(value.shape)}'
        yield value.reshape(-1).view(torch.uint8).numpy().tobytes()


def source_of(cfg: Config, images: str) -> Mapping | Path:
    """The data of a split, or a folder.

    Raises:
        FileNotFoundError, ValueError: If there is none; says which there are.
    """
    there = [split for split in SPLITS if cfg.get(f'{split}_dataloader')]
    if images not in SPLITS:
        if not Path(images).exists():
            raise FileNotFoundError(f'--images {images}: no such file or folder; or name a split, {", ".join(there)}')
        return Path(images)
    if images not in there:
        raise ValueError(
            f'--images {images}: {cfg.filename} has no {images}_dataloader: name one of {", ".join(there)}'
        )
    leaves = list(loader_leaves(cfg, images))
    if len(leaves) != 1:
        raise ValueError(
            f'--images {images}: {images}_dataloader has {len(leaves)} data sets: expected one, no wrapper'
        )
    return {key: value for key, value in dict(leaves[0][1]).items() if key != 'pipeline'}


def _of_ablation(folder: Path, label: str, images: str, device, settings: Mapping) -> Iterator[Run]:
    """The finished cells of an ablation, paired by seed."""
    from vitplug.lab.ablate.cells import read_cell

    cells = [read_cell(path.parent) for path in sorted(folder.glob('cells/*/cell.json'))]
    finished = [cell for cell in cells if cell.is_done and cell.checkpoint]
    if not finished:
        raise ValueError(
            f'RUN {folder}: {len(cells)} cells of an ablation, none with a finished training and a checkpoint: name '
            'the folder of an ablation, or CONFIG:CHECKPOINT'
        )
    # The variant without plugs first: others are compared with it.
    for cell in sorted(finished, key=lambda cell: (cell.label.split(', ')[0] != NONE, cell.label, cell.seed)):
        name = f'{label}, {cell.label}' if label else cell.label
        yield read_run(str(cell.config), str(cell.checkpoint), name, images, device, seed=cell.seed, **settings)


def timm_run(name: str, label: str, images: str, device: str | None, data: Config | None) -> Run:
    """A model of timm, tested as timm tests it, on the data of a config or a folder of images.

    Args:
        name: ``NAME`` for weights drawn with seed 0, or ``NAME:FILE``.
        label: Its label; the name by default.
        images: Split or folder.
        device: Where it runs.
        data: The config of the data; None where ``images`` is a folder.

    Raises:
        ImportError, ValueError: If timm is missing or has no such model, or the file does not fit.
    """
    import timm
    from timm.data import resolve_data_config

    name, _, file = name.partition(':')
    if not timm.is_model(name):
        close = timm.list_models(f'*{name.split("_")[0]}*')[:3]
        raise ValueError(f'timm:{name}: timm has no such model; close: {close}')
    if data is None and images in SPLITS:
        raise ValueError(f'--images {images}: timm:{name} has no data set: name a folder, or a CONFIG before it')
    init_default_scope('mmpretrain')
    classes = (data.model.get('head') or {}).get('num_classes', 1000) if data is not None else 1000
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = timm.create_model(name, num_classes=classes).eval()
    stock = resolve_data_config(pretrained_cfg=made.pretrained_cfg)
    height, width = stock['input_size'][-2:]
    if height != width or stock['crop_mode'] != 'center':
        raise ValueError(f'timm:{name}: tested with crop_mode {stock["crop_mode"]}, {height} x {width}: only squares')
    in_memory = data is not None and images in SPLITS and not _loads(data)
    steps = [
        *([] if in_memory else [dict(type='LoadImageFromFile', imdecode_backend='pillow')]),
        dict(type='NumpyToPIL', to_rgb=not in_memory),  # images in memory are red first
        dict(type='torchvision/Resize', size=floor(height / stock['crop_pct']), interpolation=stock['interpolation']),
        dict(type='torchvision/CenterCrop', size=height),
        dict(type='PackInputs'),
    ]
    preprocessor = {key: [WHITE * value for value in stock[key]] for key in ('mean', 'std')}
    settings = dict(type='TimmClassifier', model_name=name, num_classes=classes, data_preprocessor=preprocessor)
    loaders = (
        {f'{split}_dataloader': copy.deepcopy(data.get(f'{split}_dataloader')) for split in SPLITS} if data else {}
    )
    cfg = Config(dict(default_scope='mmpretrain', model=settings, test_dataloader=dict(dataset={})) | loaders)
    cfg.test_dataloader.dataset['pipeline'] = steps
    model = MODELS.build(copy.deepcopy(settings))
    model.model.load_state_dict(made.state_dict())
    if file:
        check_weights(file, 'RUN')
        _load(model.model, Path(local_file(file)))
    return _run(label or name, cfg, model, images, device)


def _loads(cfg: Config) -> bool:
    return any('LoadImageFromFile' in str(step['type']) for step in pipeline_of(cfg.test_dataloader)[1])


def _load(model: nn.Module, path: Path) -> None:
    state, _ = find_weights(read_checkpoint(path), path)
    own = model.state_dict()
    wrong = [
        key
        for key in own.keys() | state.keys()
        if key not in own or key not in state or own[key].shape != state[key].shape
    ]
    if wrong:
        raise ValueError(
            f'timm: {path} does not fit the model: missing, left over or of another shape: {some_of(wrong)}'
        )
    model.load_state_dict(state)


def _check_same_images(runs: Sequence[Run]) -> None:
    """Checks that all runs see the same images.

    Raises:
        ValueError: If they do not; names a run.
    """
    first, *others = runs
    for run in others:
        keys = [[one.image_key(index) for index in one.images] for one in (first, run)]
        if keys[0] != keys[1]:
            raise ValueError(
                f'{run.label}: its images ({len(run.dataset)}) are not those of {first.label} ({len(first.dataset)}): '
                'give configs with the same data, or a folder with --images'
            )
