"""Predictions of the three libraries: their inferencers, drawn pictures and files of results."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import TRANSFORMS
from mmengine.structures import BaseDataElement, PixelData
from torch import nn

from vitplug.files.annotations import read_json
from vitplug.files.picture_sources import Picture
from vitplug.files.record_list import RecordList

from .kept import Kept, kept_class, kept_map, kept_objects
from .outcomes import NO_LABEL, ClassOutcome, MapOutcome, ObjectOutcome, Objects, Outcome

RECORDS = 'predictions.json'
TOP = 5
# Pixels. Smaller pictures are enlarged when they are drawn, so that there is room for names.
SMALLEST_SIDE, LARGEST_SIDE = 384, 1536


def holding(kind: type, model: nn.Module) -> type:
    """The class of an inferencer that takes this model and builds none, and batches of several image sizes."""
    return type(kind.__name__, (kind,), {'_init_model': lambda *_: model, '_init_collate': lambda *_: pseudo_collate})


def enlarged(image: np.ndarray) -> tuple[np.ndarray, int]:
    """An image ``(height, width, 3)`` that is large enough to be drawn on, and the factor."""
    height, width = image.shape[:2]
    factor = max(1, min(-(-SMALLEST_SIDE // min(height, width)), LARGEST_SIDE // max(height, width)))
    return mmcv.imresize(image, (factor * width, factor * height)), factor


def repeated(maps: torch.Tensor, factor: int) -> torch.Tensor:
    """Maps ``(N, height, width)``, each pixel ``factor`` times as wide and high."""
    return maps.repeat_interleave(factor, -2).repeat_interleave(factor, -1)


class Predictions(ABC):
    """Predictions by the inferencer of a library, which takes a model that is built.

    Args:
        cfg: The config, with the data set of the test as `test_dataloader.dataset`.
        model: The model, with its weights.
        classes: Names of its classes, None where they are unknown.
        palette: A colour for each.
        score_thr: Lowest score that is drawn.
    """

    inferencer: Any

    def collate(self, pictures: Sequence[np.ndarray]) -> Mapping:
        """Pictures as a batch for the model's `test_step`."""
        [batch] = self.inferencer.preprocess(list(pictures), batch_size=len(pictures))
        return batch

    @abstractmethod
    def draw(self, image: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """An RGB image ``(height, width, 3)`` with the prediction for it, enlarged if it is small."""

    @abstractmethod
    def outcome(self, sample: BaseDataElement, size: tuple[int, int]) -> Outcome:
        """A prediction in words and as labels; ``size`` is the height and width of the input."""

    @abstractmethod
    def record(self, picture: Picture, sample: BaseDataElement, out: Path) -> dict[str, list[dict]]:
        """The records of one picture by file; writes pictures of results into the folder."""

    @abstractmethod
    def kept(self, before: BaseDataElement, after: BaseDataElement) -> Kept:
        """How much of a prediction another one for the same image keeps."""

    @abstractmethod
    def truth(self, dataset, info: Mapping, sample: BaseDataElement, size: tuple[int, int]) -> Outcome | None:
        """What a data set says of a picture; None if nothing.

        Args:
            dataset: The data set.
            info: What its `get_data_info` gives for the picture.
            sample: The prediction for the picture.
            size: Height and width of the input.
        """

    def files(self, out: Path) -> dict[str, RecordList]:
        """The files of results in a folder, by the names that `record` uses."""
        return dict(predictions=RecordList(out / RECORDS))


class ClassPredictions(Predictions):
    """Five classes with the highest scores, by mmpretrain."""

    def __init__(self, cfg: Config, model: nn.Module, classes: list[str] | None, palette, score_thr: float | None):
        from mmpretrain import ImageClassificationInferencer
        from mmpretrain.visualization import UniversalVisualizer

        model._config, model._dataset_meta = cfg, dict(classes=classes)
        self.inferencer = ImageClassificationInferencer(model)
        self.visualizer = UniversalVisualizer()
        self.classes = classes
        self.score_thr = score_thr or 0.0

    def draw(self, image: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """An RGB image with the names and scores on it."""
        scores, labels = _top(sample)
        sample = sample.clone()
        sample.set_pred_label(labels[scores >= self.score_thr])
        return self.visualizer.visualize_cls(enlarged(image)[0], sample, classes=self.classes, draw_gt=False)

    def outcome(self, sample: BaseDataElement, size: tuple[int, int]) -> ClassOutcome:
        return ClassOutcome.read(sample, self.classes)

    def kept(self, before: BaseDataElement, after: BaseDataElement) -> Kept:
        return kept_class(before, after)

    def truth(self, dataset, info: Mapping, sample: BaseDataElement, size: tuple[int, int]) -> ClassOutcome | None:
        labels = np.ravel(info.get('gt_label', [])).astype(int).tolist()
        return ClassOutcome.truth(labels, dataset.metainfo.get('classes')) if labels else None

    def record(self, picture: Picture, sample: BaseDataElement, out: Path) -> dict[str, list[dict]]:
        top = [
            dict(label=label, name=self.classes[label] if self.classes else None, score=score)
            for score, label in zip(*(values.tolist() for values in _top(sample)), strict=True)
        ]
        return dict(predictions=[dict(_place(picture), top=top)])


def _top(sample: BaseDataElement) -> tuple[torch.Tensor, torch.Tensor]:
    return sample.pred_score.topk(min(TOP, len(sample.pred_score)))


def _place(picture: Picture) -> dict:
    """Which picture it is."""
    return dict(file=str(picture.source.path)) | ({} if picture.frame is None else dict(frame=picture.frame))


class MapPredictions(Predictions):
    """Label maps, by mmseg; there are no scores."""

    def __init__(self, cfg: Config, model: nn.Module, classes: list[str] | None, palette, score_thr: float | None):
        from mmseg.apis import MMSegInferencer

        if score_thr is not None:
            raise ValueError(f'--score-thr {score_thr}: a label map has no scores; leave it out')
        classes = classes or [f'class {label}' for label in range(model.num_classes)]
        if len(classes) < model.num_classes:
            raise ValueError(
                f'decode_head.num_classes = {model.num_classes}, but only {len(classes)} classes have names: set '
                'test_dataloader.dataset.metainfo.classes to all of them'
            )
        self.classes = classes
        self.palette = palette = (list(palette) * len(classes))[: len(classes)]
        model.dataset_meta = dict(classes=classes, palette=palette)
        cfg.visualizer = dict(type='SegLocalVisualizer', name='predict', classes=classes, palette=palette)
        self.inferencer = holding(MMSegInferencer, model)(cfg, classes=classes, palette=palette)

    def draw(self, image: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """An RGB image under its label map, with the names of the classes."""
        image, factor = enlarged(image)
        sample = sample.clone()
        sample.pred_sem_seg = PixelData(data=repeated(sample.pred_sem_seg.data, factor))
        [drawn] = self.inferencer.visualize([image], [sample], return_vis=True, opacity=0.6)
        return drawn

    def outcome(self, sample: BaseDataElement, size: tuple[int, int]) -> MapOutcome:
        return MapOutcome.read(sample, size, self.classes, self.palette)

    def kept(self, before: BaseDataElement, after: BaseDataElement) -> Kept:
        return kept_map(before, after)

    def truth(self, dataset, info: Mapping, sample: BaseDataElement, size: tuple[int, int]) -> MapOutcome | None:
        """The label map of a data set; None if there is none."""
        if not info.get('seg_map_path'):
            return None
        labels = _loader_of_labels(dataset, dict(type='mmseg.LoadAnnotations'))(dict(info))['gt_seg_map']
        classes = dataset.metainfo.get('classes')
        palette = _same_colours(classes, self.classes, self.palette)
        return MapOutcome.of_labels(labels, sample, size, classes, palette, ignored=NO_LABEL)

    def record(self, picture: Picture, sample: BaseDataElement, out: Path) -> dict[str, list[dict]]:
        """Writes the label map as a PNG of class indices; the record has the shares of the classes."""
        labels = sample.pred_sem_seg.data[0].numpy()
        path = Path('labels', f'{picture.name}.png')
        mmcv.imwrite(labels.astype(np.uint8 if len(self.classes) <= 256 else np.uint16), str(out / path))
        present, pixels = np.unique(labels, return_counts=True)
        shares = {self.classes[label]: count / labels.size for label, count in zip(present, pixels, strict=True)}
        return dict(predictions=[dict(_place(picture), label_map=str(path), shares=shares)])


class ObjectPredictions(Predictions):
    """Boxes and masks, by mmdet.

    Results are those of COCO, with the ids of the annotation file of the test where it lists a picture, and further
    ones for others. ``bbox.json`` and ``segm.json`` have the same objects in the same order, as COCO's tools want them.
    """

    def __init__(self, cfg: Config, model: nn.Module, classes: list[str] | None, palette, score_thr: float | None):
        from mmdet.apis import DetInferencer

        self.classes, self.palette = classes, list(palette)
        model.dataset_meta = dict(classes=classes, palette=self.palette)
        cfg.visualizer = dict(type='DetLocalVisualizer', name='predict', line_width=2)
        self.inferencer = holding(DetInferencer, model)(cfg)
        self.score_thr = 0.3 if score_thr is None else score_thr
        self.ids, self.categories = known_ids(cfg, classes)
        self.next_id = max((id for id in self.ids.values() if isinstance(id, int)), default=0) + 1

    def collate(self, pictures: Sequence[np.ndarray]) -> Mapping:
        [(_, batch)] = self.inferencer.preprocess(list(pictures), batch_size=len(pictures))
        return batch

    def draw(self, image: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """An RGB image with boxes, masks, names and scores."""
        image, factor = enlarged(image)
        sample, instances = sample.clone(), sample.pred_instances.clone()
        instances.bboxes = instances.bboxes * factor
        if 'masks' in instances:
            instances.masks = repeated(instances.masks, factor)
        sample.pred_instances = instances
        [drawn] = self.inferencer.visualize([image], [sample], return_vis=True, pred_score_thr=self.score_thr)
        return drawn

    def outcome(self, sample: BaseDataElement, size: tuple[int, int]) -> ObjectOutcome:
        return ObjectOutcome.read(sample, size, self.classes, self.palette, self.score_thr)

    def kept(self, before: BaseDataElement, after: BaseDataElement) -> Kept:
        return kept_objects(before, after, self.score_thr)

    def truth(self, dataset, info: Mapping, sample: BaseDataElement, size: tuple[int, int]) -> ObjectOutcome | None:
        """The objects of a data set; None if it has no boxes."""
        if 'instances' not in info:
            return None
        instances = [one for one in info['instances'] if not one.get('ignore_flag')]
        classes, masks = dataset.metainfo.get('classes'), None
        if instances and all(one.get('mask') for one in instances):
            loader = TRANSFORMS.build(dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True))
            shape = info['height'], info['width']
            masks = loader(dict(info, instances=instances, ori_shape=shape, img_shape=shape))['gt_masks'].masks
        labels = [int(one['bbox_label']) for one in instances]
        names = [str(classes[label]) if classes else f'class {label}' for label in labels]
        boxes = np.array([one['bbox'] for one in instances], float).reshape(-1, 4)
        palette = _same_colours(classes, self.classes, self.palette)
        return ObjectOutcome.of_objects(Objects(boxes, labels, names, masks), sample, size, classes, palette)

    def files(self, out: Path) -> dict[str, RecordList]:
        return dict(
            images=RecordList(out / 'images.json', dict(categories=self.categories), 'images'),
            bbox=RecordList(out / 'bbox.json'),
            segm=RecordList(out / 'segm.json', optional=True),
        )

    def record(self, picture: Picture, sample: BaseDataElement, out: Path) -> dict[str, list[dict]]:
        """All objects of one picture, whatever their scores."""
        from mmdet.structures.mask import encode_mask_results

        image_id = self._id_of(picture)
        height, width = picture.pixels.shape[:2]
        image = dict(id=image_id, file_name=str(picture.source.path), width=width, height=height)
        image |= {} if picture.frame is None else dict(frame=picture.frame)
        hits = sample.pred_instances.numpy()
        boxes = [
            self._result(image_id, label, score)
            | dict(bbox=[float(n) for n in (left, top, right - left, bottom - top)])
            for (left, top, right, bottom), score, label in zip(hits.bboxes, hits.scores, hits.labels, strict=True)
        ]
        records = dict(images=[image], bbox=boxes)
        if 'masks' in hits:
            scores = hits.get('mask_scores', hits.scores)
            records['segm'] = [
                self._result(image_id, label, score)
                | dict(segmentation=dict(size=mask['size'], counts=mask['counts'].decode()))
                for mask, score, label in zip(encode_mask_results(hits.masks), scores, hits.labels, strict=True)
            ]
        return records

    def _id_of(self, picture: Picture) -> int | str:
        path = picture.source.path.resolve()
        if picture.frame is None and path in self.ids:
            return self.ids[path]
        self.next_id += 1
        return self.next_id - 1

    def _result(self, image_id: int | str, label: int, score: float) -> dict:
        category = self.categories[label]['id'] if label < len(self.categories) else int(label) + 1
        return dict(image_id=image_id, category_id=category, score=float(score))


def _loader_of_labels(dataset, otherwise: dict):
    """The step of a data set's pipeline that loads annotations, or another one."""
    steps = getattr(dataset.pipeline, 'transforms', ())
    return next((step for step in steps if type(step).__name__ == 'LoadAnnotations'), None) or TRANSFORMS.build(
        otherwise
    )


def _same_colours(names: Sequence[str] | None, classes: Sequence[str] | None, palette: Sequence) -> list:
    """A colour for each class of a data set: the one of the model's class of the same name, where there is one."""
    numbers = {name: label for label, name in enumerate(classes or ())}
    return [palette[numbers.get(name, label) % len(palette)] for label, name in enumerate(names or ())] or list(palette)


def known_ids(cfg: Config, classes: list[str] | None) -> tuple[dict[Path, int], list[dict]]:
    """Ids of pictures by path, and the categories of the classes in the order of their labels.

    Both are those of the annotation file of the test, if it has one category for each class; else 1, 2 ...
    """
    dataset, names = cfg.test_dataloader.dataset, classes or []
    numbered = [dict(id=number, name=name) for number, name in enumerate(names, start=1)]
    path = Path(dataset.get('data_root') or '', dataset.get('ann_file') or '')
    content = read_json(path) if path.suffix == '.json' and path.is_file() else None
    if not isinstance(content, dict) or not all('file_name' in image for image in content.get('images', ())):
        return {}, numbered
    prefix = (dataset.get('data_prefix') or {}).get('img', '')
    folder = Path(dataset.get('data_root') or '', prefix).resolve()
    ids = {(folder / image['file_name']).resolve(): image['id'] for image in content.get('images', ())}
    ids_by_name = {name: [c['id'] for c in content.get('categories', ()) if c['name'] == name] for name in names}
    if any(len(same_name) != 1 for same_name in ids_by_name.values()):
        return {}, numbered
    return ids, [dict(id=ids_by_name[name][0], name=name) for name in names]


#: By library.
PREDICTIONS = dict(mmpretrain=ClassPredictions, mmseg=MapPredictions, mmdet=ObjectPredictions)
