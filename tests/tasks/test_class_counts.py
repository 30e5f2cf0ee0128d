"""Every setting that counts classes is compared with the classes of the data, in each library."""

import functools
import operator
from importlib.util import find_spec
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS

from vitplug.config.parts import loader_leaves, registered
from vitplug.config.reading import read_config
from vitplug.runs.checks.classes import class_complaints, count_of_model
from vitplug.tasks import TASKS
from vitplug.tasks.classes import Classes, named_classes

CONFIGS = Path(__file__).parents[2] / 'configs'
PATH = 'train_dataloader.dataset'
CLASSIFICATION, SEGMENTATION, DETECTION = (
    str(next((CONFIGS / 'digits').glob(f'{name}_1x*.py')))
    for name in ('vit-mini-p4', 'vit-mini-p8_upernet', 'swin*w4_mask-rcnn')
)
CASCADE = str(next(CONFIGS.glob('*/*cascade-mask-rcnn*coco*.py')))


def classes(count, things=None):
    return Classes(tuple(map(str, range(count))), 'the test', things=count if things is None else things)


def complaints(cfg, count, things=None):
    """Settings and reasons, where the training data has so many classes."""
    return {c.setting: c.reason for c in class_complaints(cfg, {PATH: classes(count, things)})}


# --- the configs here, and those of the libraries ---


def stock(library, path):
    return Path(find_spec(library).origin).parent / '.mim' / 'configs' / path


STOCK = [
    ('mmpretrain', 'resnet/resnet50_8xb16-mixup_cifar10.py'),
    ('mmpretrain', 'resnet/resnet50_8xb32-cutmix_in1k.py'),
    ('mmpretrain', 'repvgg/repvgg-A0_8xb32_in1k.py'),
    ('mmpretrain', 'cae/cae_beit-base-p16_8xb256-amp-coslr-300e_in1k.py'),
    ('mmseg', 'mask2former/mask2former_swin-t_8xb2-160k_ade20k-512x512.py'),
    ('mmseg', 'san/san-vit-b16_voc12aug-640x640.py'),
    ('mmseg', 'stdc/stdc1_4xb12-80k_cityscapes-512x1024.py'),
    ('mmseg', 'pidnet/pidnet-l_2xb6-120k_1024x1024-cityscapes.py'),
    ('mmseg', 'point_rend/pointrend_r101_4xb2-80k_cityscapes-512x1024.py'),
    ('mmdet', 'mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic.py'),
    ('mmdet', 'mask2former/mask2former_r50_8xb2-lsj-50e_coco.py'),
    ('mmdet', 'panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco.py'),
    ('mmdet', 'htc/htc_r50_fpn_1x_coco.py'),
    ('mmdet', 'queryinst/queryinst_r50_fpn_1x_coco.py'),
    ('mmdet', 'detr/detr_r50_8xb2-150e_coco.py'),
    ('mmdet', 'seesaw_loss/mask-rcnn_r50_fpn_seesaw-loss_random-ms-2x_lvis-v1.py'),
    ('mmdet', 'grounding_dino/odinw/grounding_dino_swin-t_pretrain_odinw13.py'),
    ('mmdet', 'faster_rcnn/faster-rcnn_r50-caffe_fpn_ms-1x_coco-person-bicycle-car.py'),
]


@pytest.mark.parametrize(('library', 'path'), STOCK, ids=[path for _, path in STOCK])
def test_stock_configs_fit_their_data_sets(library, path):
    cfg = Config.fromfile(stock(library, path))
    cfg.setdefault('default_scope', library)
    found = {}
    for split in ('train', 'val', 'test'):
        for place, settings in loader_leaves(cfg, split):
            found[place] = named_classes(settings, registered(DATASETS, settings.type, library), place)
    assert all(found.values()) and list(class_complaints(cfg, found)) == []


@pytest.mark.parametrize(
    ('path', 'right', 'settings'),
    [
        (
            CLASSIFICATION,
            10,
            ['model.head.num_classes', 'model.data_preprocessor.num_classes'],
        ),
        (SEGMENTATION, 11, ['model.decode_head.num_classes', 'model.decode_head.loss_decode.class_weight']),
        (DETECTION, 10, [f'model.roi_head.{kind}_head.num_classes' for kind in ('bbox', 'mask')]),
        (
            CASCADE,
            80,
            [
                f'model.roi_head.{part}.num_classes'
                for part in ('bbox_head.0', 'bbox_head.1', 'bbox_head.2', 'mask_head')
            ],
        ),
    ],
    ids=['classify', 'segment', 'detect', 'cascade'],
)
def test_every_count_is_found_and_what_is_said_mends_it(path, right, settings):
    cfg = read_config(path)
    assert complaints(cfg, right) == {} and count_of_model(cfg) == right
    found = complaints(cfg, 12)
    assert sorted(set(found) - {'train_dataloader.dataset.metainfo.palette'}) == sorted(settings)
    assert all('12' in reason for reason in found.values())
    cfg.merge_from_dict({setting: 12 for setting in settings if setting.endswith('num_classes')})
    assert not any(setting.endswith('num_classes') for setting in complaints(cfg, 12))


# --- single places ---


@pytest.mark.parametrize(
    ('base', 'count', 'options', 'setting', 'advice'),
    [
        (CLASSIFICATION, 3, dict(val_evaluator__topk=(1, 5)), 'val_evaluator.topk', r'at most 3'),
        (CLASSIFICATION, 4, dict(val_evaluator=[dict(type='Accuracy', topk=5)]), 'val_evaluator.0.topk', 'at most 4'),
        (
            CLASSIFICATION,
            3,
            dict(val_evaluator=dict(type='ConfusionMatrix', num_classes=10)),
            'val_evaluator.num_classes',
            'set it to 3',
        ),
        (
            CLASSIFICATION,
            3,
            dict(model__train_cfg=dict(augments=[dict(type='CutMix', alpha=1.0, num_classes=10)])),
            'model.train_cfg.augments.0.num_classes',
            'set it to 3',
        ),
        (CLASSIFICATION, 4, dict(model__head__cal_acc=True, model__head__topk=(1, 5)), 'model.head.topk', 'at most 4'),
        (
            CLASSIFICATION,
            3,
            dict(model__head__loss=dict(type='SeesawLoss')),
            'model.head.loss.num_classes',
            'is not set, and the default of SeesawLoss is 1000: set it to 3',
        ),
        (
            CLASSIFICATION,
            3,
            dict(model__head__type='vitplug.TokenLabelHead'),
            'model.head.num_classes',
            '= 10: set it to 3',
        ),
        (
            SEGMENTATION,
            3,
            dict(model__auxiliary_head=[dict(type='FCNHead', num_classes=150)]),
            'model.auxiliary_head.0.num_classes',
            '= 150: set it to 3',
        ),
        (
            SEGMENTATION,
            3,
            dict(model__decode_head__loss_decode=[dict(type='CrossEntropyLoss', class_weight=[1.0] * 11)]),
            'model.decode_head.loss_decode.0.class_weight',
            'has 11 entries: give it 3',
        ),
        (
            SEGMENTATION,
            3,
            dict(model__decode_head__loss_cls=dict(type='mmdet.CrossEntropyLoss', class_weight=[1.0] * 3)),
            'model.decode_head.loss_cls.class_weight',
            'has 3 entries: give it 4',
        ),
        (
            SEGMENTATION,
            3,
            dict(train_dataloader__dataset__metainfo__palette=[[0, 0, 0]] * 4),
            f'{PATH}.metainfo.palette',
            'has 4 entries: give it 3',
        ),
        (
            DETECTION,
            3,
            dict(train_dataloader__dataset__metainfo__palette=[(0, 0, 0)]),
            f'{PATH}.metainfo.palette',
            'has 1 entries: give it at least 3',
        ),
        (
            DETECTION,
            3,
            dict(model__roi_head__bbox_head__loss_cls__class_weight=[1.0] * 3),
            'model.roi_head.bbox_head.loss_cls.class_weight',
            'has 3 entries: give it 4',
        ),
        (
            DETECTION,
            3,
            dict(
                model__roi_head__bbox_head__loss_cls=dict(
                    type='CrossEntropyLoss', use_sigmoid=True, class_weight=[1.0] * 4
                )
            ),
            'model.roi_head.bbox_head.loss_cls.class_weight',
            'has 4 entries: give it 3',
        ),
        (
            DETECTION,
            3,
            dict(model__roi_head__mask_head=dict(type='FCNMaskHead')),
            'model.roi_head.mask_head.num_classes',
            'is not set, and the default of FCNMaskHead is 80: set it to 3',
        ),
        (
            DETECTION,
            3,
            dict(model__bbox_head=dict(type='RetinaHead', num_classes=80)),
            'model.bbox_head.num_classes',
            '= 80: set it to 3',
        ),
    ],
)
def test_places(base, count, options, setting, advice):
    cfg = read_config(base)
    for key, value in options.items():
        *outer, last = key.split('__')
        holder = functools.reduce(operator.getitem, outer, cfg)
        holder[last] = value
    found = {'val_dataloader.dataset' if setting.startswith('val') else PATH: classes(count)}
    reasons = {c.setting: c.reason for c in class_complaints(cfg, found)}
    assert reasons[setting].endswith(advice)


@pytest.mark.parametrize(
    'options',
    [
        dict(num_classes=-1),
        dict(num_classes=None),
        dict(loss=dict(type='CrossEntropyLoss', class_weight=None)),
        dict(topk=(1, 5)),  # of an accuracy that is not reported
    ],
)
def test_what_counts_nothing_is_left_alone(options):
    cfg = read_config(CLASSIFICATION)
    cfg.model.head = dict(type='LinearClsHead', in_channels=8) | options
    cfg.model.data_preprocessor.num_classes = 3
    assert complaints(cfg, 3) == {}


def test_the_preprocessor_of_the_config_counts_where_the_model_has_none():
    cfg = read_config(CLASSIFICATION)
    cfg.data_preprocessor = dict(num_classes=1000)
    assert complaints(cfg, 10) == {}
    del cfg.model['data_preprocessor']
    assert complaints(cfg, 10) == {'data_preprocessor.num_classes': '= 1000: set it to 10'}


def test_things_and_stuff_are_told_apart():
    cfg = Config.fromfile(stock('mmdet', 'panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco.py'))
    found = complaints(cfg, 12, things=8)
    assert found['model.roi_head.bbox_head.num_classes'].endswith('set it to 8')
    assert found['model.panoptic_fusion_head.num_stuff_classes'].endswith('set it to 4')


def test_data_sets_come_before_settings():
    """Which count is right is not known while they differ."""
    cfg = read_config(CLASSIFICATION)
    found = {PATH: classes(2), 'val_dataloader.dataset': classes(3)}
    assert [complaint.setting for complaint in class_complaints(cfg, found)] == ['val_dataloader.dataset']


def test_other_libraries_and_unknown_classes_are_left_alone():
    cfg = read_config(CLASSIFICATION)
    assert list(class_complaints(cfg, {})) == []
    cfg.default_scope = 'mmpose'
    assert 'mmpose' not in TASKS and complaints(cfg, 3) == {} and count_of_model(cfg) is None
