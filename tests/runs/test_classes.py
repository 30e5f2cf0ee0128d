"""The classes of a config are those of its files, in their order, and every setting counts them, in each library."""

import functools
import operator
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS

from vitplug.config.parts import loader_leaves, registered
from vitplug.config.reading import read_config
from vitplug.runs.checks.classes import check_categories, check_folders, class_complaints
from vitplug.runs.checks.sources import Source

CONFIGS = Path(__file__).parents[2] / 'configs'
PATH = 'train_dataloader.dataset'
CLASSIFICATION, SEGMENTATION, DETECTION = (
    str(next((CONFIGS / 'digits').glob(f'{name}_1x*.py')))
    for name in ('vit-mini-p4', 'vit-mini-p8_upernet', 'swin*w4_mask-rcnn')
)
CASCADE = str(next(CONFIGS.glob('*/*cascade-mask-rcnn*coco*.py')))


def named(*names, path=PATH, folders=()):
    return Source(path, None, names, folders)


def numbered(count, path=PATH):
    return named(*map(str, range(count)), path=path)


def complaints(cfg, count):
    """Settings and reasons, where the training data has so many classes."""
    return dict(one.split(maxsplit=1) for one in class_complaints(cfg, [numbered(count)]))


# --- names in files ---


@pytest.mark.parametrize(
    ('names', 'categories', 'message'),
    [
        (['cat', 'dgo'], ['cat', 'dog'], "label 1 is 'dgo' here and no class in a.json: set it to ['cat', 'dog']"),
        (['dog', 'cat'], ['cat', 'dog'], "label 0 is 'dog' here and 'cat' in a.json: set it to ['cat', 'dog']"),
    ],
)
def test_categories_that_do_not_fit_are_refused(names, categories, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_categories(PATH, names, dict(categories=[dict(name=name) for name in categories]), 'a.json')


def test_folders_are_counted_in_alphabetical_order():
    check_folders(PATH, ('Katze', 'Hund'), ('cat', 'dog'))
    with pytest.raises(ValueError, match=r"sorted as texts: set it to \('cat', 'dog'\)"):
        check_folders(PATH, ('dog', 'cat'), ('cat', 'dog'))


# --- numbers ---


def stock(library, path):
    return Path(find_spec(library).origin).parent / '.mim' / 'configs' / path


STOCK = [
    ('mmpretrain', 'resnet/resnet50_8xb16-mixup_cifar10.py'),
    ('mmpretrain', 'cae/cae_beit-base-p16_8xb256-amp-coslr-300e_in1k.py'),
    ('mmseg', 'mask2former/mask2former_swin-t_8xb2-160k_ade20k-512x512.py'),
    ('mmseg', 'san/san-vit-b16_voc12aug-640x640.py'),
    ('mmseg', 'stdc/stdc1_4xb12-80k_cityscapes-512x1024.py'),
    ('mmdet', 'mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic.py'),
    ('mmdet', 'mask2former/mask2former_r50_8xb2-lsj-50e_coco.py'),
    ('mmdet', 'htc/htc_r50_fpn_1x_coco.py'),
    ('mmdet', 'seesaw_loss/mask-rcnn_r50_fpn_seesaw-loss_random-ms-2x_lvis-v1.py'),
    ('mmdet', 'grounding_dino/odinw/grounding_dino_swin-t_pretrain_odinw13.py'),
]


@pytest.mark.parametrize(('library', 'path'), STOCK, ids=[path for _, path in STOCK])
def test_stock_configs_fit_their_data_sets(library, path):
    cfg = Config.fromfile(stock(library, path))
    cfg.setdefault('default_scope', library)
    found = []
    for split in ('train', 'val', 'test'):
        for place, settings in loader_leaves(cfg, split):
            known = getattr(registered(DATASETS, settings.type, library), 'METAINFO', {})
            metainfo = known | settings.get('metainfo', {})
            if metainfo.get('classes') and 'stuff_classes' not in metainfo:
                found.append(named(*metainfo['classes'], path=place))
    assert bool(found) == ('panoptic' not in path) and class_complaints(cfg, found) == []


@pytest.mark.parametrize(
    ('path', 'right', 'settings'),
    [
        (CLASSIFICATION, 10, ['model.head.num_classes', 'model.data_preprocessor.num_classes']),
        (SEGMENTATION, 11, ['model.decode_head.num_classes']),
        (DETECTION, 10, [f'model.roi_head.{kind}_head.num_classes' for kind in ('bbox', 'mask')]),
        (
            CASCADE,
            80,
            [f'model.roi_head.{part}.num_classes' for part in (*(f'bbox_head.{i}' for i in '012'), 'mask_head')],
        ),
    ],
    ids=['classify', 'segment', 'detect', 'cascade'],
)
def test_every_count_is_found_and_what_is_said_mends_it(path, right, settings):
    cfg = read_config(path)
    assert complaints(cfg, right) == {}
    found = complaints(cfg, 12)
    assert sorted(found) == sorted(settings)
    assert all('12' in reason for reason in found.values())
    cfg.merge_from_dict(dict.fromkeys(settings, 12))
    assert complaints(cfg, 12) == {}


PLACES = [
    (
        CLASSIFICATION,
        dict(model__train_cfg=dict(augments=[dict(type='CutMix', alpha=1.0, num_classes=10)])),
        'model.train_cfg.augments.0.num_classes',
        'set it to 3',
    ),
    (
        DETECTION,
        dict(model__roi_head__bbox_head=dict(type='Shared2FCBBoxHead')),
        'model.roi_head.bbox_head.num_classes',
        '= 80: set it to 3',
    ),
    (
        DETECTION,
        dict(model__roi_head__mask_head=dict(type='FCNMaskHead')),
        'model.roi_head.mask_head.num_classes',
        '= 80: set it to 3',
    ),
    (
        SEGMENTATION,
        dict(model__auxiliary_head=[dict(type='FCNHead', num_classes=150)]),
        'model.auxiliary_head.0.num_classes',
        '= 150: set it to 3',
    ),
]


@pytest.mark.parametrize(('base', 'options', 'setting', 'advice'), PLACES)
def test_places(base, options, setting, advice):
    cfg = read_config(base)
    for key, value in options.items():
        *outer, last = key.split('__')
        functools.reduce(operator.getitem, outer, cfg)[last] = value
    assert complaints(cfg, 3)[setting].endswith(advice)


def test_the_preprocessor_of_the_config_counts():
    cfg = read_config(CLASSIFICATION)
    cfg.data_preprocessor = dict(num_classes=1000)
    del cfg.model['data_preprocessor']
    assert complaints(cfg, 10) == {'data_preprocessor.num_classes': '= 1000: set it to 10'}


def test_labels_mean_the_same_in_every_data_set():
    """Differing data sets come before settings: which count is right is not known while they differ."""
    val, cfg = 'val_dataloader.dataset', read_config(CLASSIFICATION)

    def found(one, other, folders=((), ())):
        return class_complaints(cfg, [named(*one, folders=folders[0]), named(*other, path=val, folders=folders[1])])

    assert found('0123456789', '0123456789') == []
    assert found(('cat', 'dog'), ('cat', 'eel')) == [
        f"{val} has other classes: label 1 is 'eel' here and 'dog' in {PATH}"
    ]
    assert "label 1 is no class here and 'dog' in" in found(('cat', 'dog'), ('cat',))[0]
    # Folders count, whatever names they are given.
    assert "'dog' here and 'cat'" in found('ab', 'ab', (('cat', 'dog'), ('dog', 'eel')))[0]
