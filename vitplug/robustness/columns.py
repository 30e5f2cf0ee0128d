"""The models that are compared: a column each, with its test pipeline."""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.dataset import BaseDataset, Compose
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import Tensor, nn
from torch.utils.data import Subset

from vitplug.analysis import timm_models
from vitplug.analysis.image_size import read_image_size
from vitplug.analysis.study.loaded import turns_channels
from vitplug.checkpoints.files import local_file
from vitplug.config.parts import registered
from vitplug.files.fingerprint import file_hash
from vitplug.files.named import check_weights
from vitplug.runs.checks.data import check_data
from vitplug.runs.checks.model import model_config
from vitplug.runs.prediction.predictor import check_device, load_model
from vitplug.tasks import TASKS

from .attacks import Attack

# Pixels of an image in 8 bit.
WHITE = 255.0


@dataclass(eq=False)
class Column:
    """A trained model.

    Attributes:
        label: Short name, different from the others'.
        cfg: Config with its test pipeline.
        model: With its weights, in evaluation mode.
        checkpoint: As it was named.
        sha256: Of the checkpoint file.
        about: The model, in one line.
    """

    label: str
    cfg: Config
    model: nn.Module
    checkpoint: str
    sha256: str
    about: str

    @property
    def library(self) -> str:
        """Name of its library, by which tasks are told apart."""
        return self.cfg.default_scope

    @property
    def pipeline(self) -> list[dict]:
        """The steps of its test pipeline."""
        return copy.deepcopy(list(self.cfg.test_dataloader.dataset.pipeline))

    @cached_property
    def dataset(self) -> BaseDataset:
        """Its test data set."""
        return self._built(dict(self.cfg.test_dataloader.dataset), self.pipeline)

    def in_folder(self, folder: Path, pipeline: Sequence[dict]) -> BaseDataset:
        """Other images, in a folder for each class, behind a pipeline."""
        return self._built(dict(type='mmpretrain.CustomDataset', data_root=str(folder)), pipeline)

    def _built(self, settings: dict, pipeline: Sequence[dict]) -> BaseDataset:
        return DATASETS.build(copy.deepcopy(settings) | dict(pipeline=pipeline, lazy_init=False, test_mode=True))

    def changed(self, pipeline: Sequence[dict]) -> BaseDataset:
        """Its test data set behind another pipeline; the list of images is shared."""
        dataset = copy.copy(self.dataset)
        dataset.pipeline = Compose(pipeline)
        return dataset

    def batches(self, dataset: BaseDataset, images: Sequence[int]) -> Iterator[dict]:
        """Batches of some images, in their order."""
        loader = copy.deepcopy(dict(self.cfg.test_dataloader))
        loader.pop('batch_sampler', None)
        if not loader.get('num_workers'):
            loader = {
                key: value for key, value in loader.items() if key not in ('persistent_workers', 'prefetch_factor')
            }
        order = dict(type='mmengine.DefaultSampler', shuffle=False)
        return iter(Runner.build_dataloader(loader | dict(dataset=Subset(dataset, images), sampler=order)))

    @cached_property
    def fill(self) -> list[float]:
        """The values that the data preprocessor makes zero, in the channel order of the pipeline's images."""
        mean = getattr(self.model.data_preprocessor, 'mean', None)
        if mean is None:
            return [0.0]
        values = mean.flatten().tolist()
        return values[::-1] if self.turns_channels and len(values) == 3 else values

    @property
    def turns_channels(self) -> bool:
        """Whether its data preprocessor turns the order of the channels, as of images that are blue first."""
        return turns_channels(self.model.data_preprocessor)

    @cached_property
    def size(self) -> int:
        """Side of the square image that it is tested with, in pixels.

        Raises:
            ValueError: If the config has none, or the image is no square.
        """
        image_size = read_image_size(self.cfg)
        if image_size.height != image_size.width:
            raise ValueError(f'{self.label}: its images are {image_size}: expected squares')
        return image_size.height

    def predict(self, batch: Mapping, attack: Attack | None) -> list[BaseDataElement]:
        """Predictions and annotations of a batch.

        Args:
            batch: Of :meth:`batches`.
            attack: Applied to the pixels before; None for none.
        """
        if attack is None:
            return self.model.test_step(batch)
        samples = batch['data_samples']
        pixels, labels = self.attackable(batch)
        numbers = [sample.get('sample_idx', index) for index, sample in enumerate(samples)]
        attacked = attack(self.logits, pixels, labels, numbers)
        return self.model.test_step(dict(inputs=attacked * WHITE, data_samples=samples))

    def attackable(self, batch: Mapping) -> tuple[Tensor, Tensor]:
        """Pixels ``(B, C, H, W)`` from 0 to 1 and classes ``(B,)`` of a batch of a classifier."""
        inputs = batch['inputs']
        inputs = inputs if isinstance(inputs, Tensor) else torch.stack(list(inputs))
        device = next(self.model.parameters()).device
        labels = torch.cat([sample.gt_label for sample in batch['data_samples']])
        return inputs.to(device).float() / WHITE, labels.to(device)

    def logits(self, pixels: Tensor) -> Tensor:
        """Logits ``(B, classes)`` of pixels from 0 to 1; the normalisation is inside."""
        inputs = self.model.data_preprocessor(dict(inputs=pixels * WHITE), training=False)['inputs']
        return self.model(inputs, mode='tensor')


def read_columns(
    pairs: Sequence[tuple[str, str]],
    timm: Sequence[tuple[str, str]],
    settings: Mapping | None,
    device: str | None,
    allow_changes: bool,
) -> list[Column]:
    """The columns of a call, in its order; no image is read.

    Args:
        pairs: Configs and checkpoints.
        timm: Names of timm's models, and files with their weights.
        settings: Settings that win over those of the configs.
        device: Where they run; None for an accelerator where there is one.
        allow_changes: Whether a checkpoint may be of other settings.

    Raises:
        ValueError: If the columns are of different tasks, or a setting is wrong.
        FileNotFoundError: If a file is missing.
        CheckpointNotRead: If a checkpoint is broken or does not fit.
    """
    device = check_device(device)
    configs = [model_config(config, checkpoint, 'CHECKPOINT', settings) for config, checkpoint in pairs]
    _check_tasks(configs)
    for cfg in configs:
        _check_test_data(cfg)
    for _, weights in timm:
        check_weights(weights, '--timm')
    labels = iter(_labels([Path(config).stem for config, _ in pairs] + [name for name, _ in timm]))
    columns = []
    for cfg, (_, checkpoint) in zip(configs, pairs, strict=True):
        init_default_scope(cfg.default_scope)
        path = local_file(checkpoint)
        model, _ = load_model(cfg, path, allow_changes)
        backbone = getattr(model, 'backbone', model)
        about = f'{type(backbone).__name__}: {getattr(backbone, "plug_summary", "no plugs")}'
        columns.append(_column(next(labels), cfg, model, checkpoint, file_hash(Path(path)), about, device))
    for name, weights in timm:
        columns.append(_timm_column(next(labels), name, weights, configs[0], device))
    return columns


def _column(label, cfg, model, checkpoint, sha256, about, device) -> Column:
    # Attacks need the gradient of the pixels alone.
    return Column(label, cfg, model.to(device).eval().requires_grad_(False), checkpoint, sha256, about)


def _labels(names: Sequence[str]) -> list[str]:
    """Names that also serve as names of files; repeated ones are numbered."""
    names = [re.sub(r'[^\w.-]', '_', name) for name in names]
    return [
        f'{name}-{names[: index + 1].count(name)}' if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]


def _check_tasks(configs: Sequence[Config]) -> None:
    scopes = {cfg.filename: cfg.default_scope for cfg in configs}
    if len(set(scopes.values())) > 1:
        shown = ', '.join(f'{Path(name).name}: {TASKS[scope].name}' for name, scope in scopes.items())
        raise ValueError(f'CONFIG: models of one task are compared, and these are of several: {shown}')


def _check_test_data(cfg: Config) -> None:
    """Checks that the test data are one data set with a pipeline, and that their files are there."""
    dataset = (cfg.get('test_dataloader') or {}).get('dataset')
    if not isinstance(dataset, dict) or 'pipeline' not in dataset:
        raise ValueError(
            f'{cfg.filename}: test_dataloader.dataset = {dataset and dataset.get("type")!r}: expected one data set '
            'with a pipeline, not a wrapper of some'
        )
    kind = registered(DATASETS, dataset.get('type'), cfg.default_scope)
    if kind is None:
        raise ValueError(f'{cfg.filename}: test_dataloader.dataset.type = {dataset.get("type")!r}: there is none')
    check_data(cfg, ('test',))


def _timm_column(label: str, name: str, weights: str, data: Config, device: str) -> Column:
    """A model of timm in its own test pipeline, on the test data of a config.

    Raises:
        ImportError: If timm is missing.
        ValueError: If the data are of another task, timm has no such model, tests it in another way, or the file does
            not fit.
    """
    task = TASKS[data.default_scope].name
    if task != 'classification':
        raise ValueError(f'--timm {name}: timm classifies, and {data.filename} is of {task}')
    init_default_scope('mmpretrain')
    classes = (data.model.get('head') or {}).get('num_classes', 1000)
    timm_models.build(name, classes)  # names what is wrong with the name
    from timm.data import resolve_data_config
    from timm.models import get_pretrained_cfg

    stock = resolve_data_config(pretrained_cfg=get_pretrained_cfg(name).to_dict())
    height, width = stock['input_size'][-2:]
    if height != width or stock['crop_mode'] != 'center':
        raise ValueError(
            f'--timm {name}: tested with crop_mode {stock["crop_mode"]}, {height} x {width}: only squares from the '
            'centre'
        )
    loading = [step for step in data.test_dataloader.dataset.pipeline if 'LoadImageFromFile' in str(step['type'])]
    cfg = Config(
        dict(
            default_scope='mmpretrain',
            model=dict(
                type='TimmClassifier',
                model_name=name,
                num_classes=classes,
                data_preprocessor=dict(
                    mean=[WHITE * value for value in stock['mean']], std=[WHITE * value for value in stock['std']]
                ),
            ),
            test_dataloader=copy.deepcopy(data.test_dataloader.to_dict()),
        )
    )
    cfg.test_dataloader.dataset.pipeline = [
        *(dict(step, imdecode_backend='pillow') for step in loading),
        dict(type='NumpyToPIL', to_rgb=bool(loading)),  # images in memory are red first
        dict(type='torchvision/Resize', size=floor(height / stock['crop_pct']), interpolation=stock['interpolation']),
        dict(type='torchvision/CenterCrop', size=height),
        dict(type='PackInputs'),
    ]
    model = MODELS.build(copy.deepcopy(cfg.model))
    path = Path(local_file(weights))
    timm_models.load(model.model, path, '--timm', with_head=True)
    return _column(label, cfg, model, weights, file_hash(path), f'timm {name}, {Path(weights).name}', device)
