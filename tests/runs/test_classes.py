"""The classes of a config are those of its files, in their order, and every setting counts them, in each library."""

import functools
import operator
from importlib.util import find_spec
from pathlib import Path

import pytest
from mmdet.datasets import CocoDataset, CocoPanopticDataset, LVISV1Dataset
from mmengine.config import Config
from mmengine.registry import DATASETS
from mmpretrain.datasets import CIFAR10, CustomDataset, ImageNet

from vitplug.config.parts import loader_leaves, registered
from vitplug.config.reading import read_config
from vitplug.errors import CheckpointNotRead
from vitplug.runs.checks.classes import (
    Classes,
    check_categories,
    check_trained,
    class_complaints,
    class_folders,
    count_of_model,
    counts_categories,
    match_folders,
    named_classes,
)

CONFIGS = Path(__file__).parents[2] / 'configs'
PATH = 'train_dataloader.dataset'
CLASSIFICATION, SEGMENTATION, DETECTION = (
    str(next((CONFIGS / 'digits').glob(f'{name}_1x*.py')))
    for name in ('vit-mini-p4', 'vit-mini-p8_upernet', 'swin*w4_mask-rcnn')
)
CASCADE = str(next(CONFIGS.glob('*/*cascade-mask-rcnn*coco*.py')))


def named(*names):
    return Classes(names, f'{PATH}.metainfo.classes')


def numbered(count):
    return named(*map(str, range(count)))


def complaints(cfg, count):
    """Settings and reasons, where the training data has so many classes."""
    return dict(class_complaints(cfg, {PATH: numbered(count)}))


# --- names ---


@pytest.mark.parametrize(
    ('settings', 'kind', 'names', 'source'),
    [
        (dict(metainfo=dict(classes=('cat', 'dog'))), CocoDataset, ('cat', 'dog'), f'{PATH}.metainfo.classes'),
        (dict(classes=['cat']), CustomDataset, ('cat',), f'{PATH}.classes'),
        (dict(), CIFAR10, CIFAR10.METAINFO['classes'], 'and CIFAR10 has its own'),
        (dict(metainfo=dict(palette=[])), CocoDataset, CocoDataset.METAINFO['classes'], 'CocoDataset has its own'),
    ],
)
def test_names_are_those_that_the_library_takes(settings, kind, names, source):
    classes = named_classes(settings, kind, PATH)
    assert classes.names == tuple(names) and source in classes.source


def test_names_may_be_unknown_or_in_a_file(tmp_path):
    assert named_classes(dict(), CustomDataset, PATH) is None
    assert named_classes(dict(), CocoPanopticDataset, PATH) is None  # some of its parts count things alone
    (tmp_path / 'names.txt').write_text('cat\ndog\n')
    metainfo = dict(classes=str(tmp_path / 'names.txt'))
    assert named_classes(dict(metainfo=metainfo), CustomDataset, PATH).names == ('cat', 'dog')


@pytest.mark.parametrize(
    ('value', 'message'),
    [
        ('cat', r"metainfo\.classes = 'cat': expected a list of names.*\('cat',\)"),
        ([], r'expected a list of names'),
        (3, r'metainfo\.classes = 3: expected a list'),
        (('cat', 'dog', 'cat'), r"'cat' occur more than once"),
    ],
)
def test_wrong_names_are_refused(value, message):
    with pytest.raises(ValueError, match=message):
        named_classes(dict(metainfo=dict(classes=value)), CocoDataset, PATH)


def test_labels_of_coco_files_are_found_by_name_where_mmdet_does_so():
    assert counts_categories(CocoDataset)
    assert not any(map(counts_categories, (CocoPanopticDataset, LVISV1Dataset, CustomDataset, None)))


def test_categories_that_are_left_out_are_said():
    assert check_categories(named('cat', 'dog'), ['cat', 'dog'], 'a.json', PATH) == ''
    remark = check_categories(named('cat', 'eel'), ['cat', 'dog', 'eel', 'fox'], 'a.json', PATH)
    assert "a.json: categories 'dog', 'fox'" in remark and 'left out' in remark


@pytest.mark.parametrize(
    ('names', 'categories', 'message'),
    [
        (['cat', 'dgo'], ['cat', 'dog'], r"'dgo' not among the categories of a\.json: did you mean 'dog'"),
        (['katze'], ['cat', 'dog'], rf"'katze' not among .*: set {PATH}\.metainfo = dict\(classes=\('cat', 'dog'\)\)"),
        (['cat', 'person'], ['cat'], r"'person' not among .*dict\(classes=\('cat',\)\)"),
        (['dog', 'cat'], ['cat', 'dog'], r"another order.*dict\(classes=\('cat', 'dog'\)\)"),
        (['x'], [f'class{number}' for number in range(200)], r"'class11', \.\.\. \(200 in all\)\)"),
    ],
)
def test_categories_that_do_not_fit_are_refused(names, categories, message):
    with pytest.raises(ValueError, match=message):
        check_categories(named(*names), categories, 'a.json', PATH)


@pytest.fixture
def folder(tmp_path):
    for name in ('dog', 'cat'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'a.png').write_bytes(b'')
    return tmp_path


def test_folders_count_in_alphabetical_order(folder):
    """As mmpretrain itself counts them."""
    folders = class_folders(dict(), CustomDataset, folder)
    assert folders == CustomDataset(data_prefix=str(folder)).metainfo['classes'] == ('cat', 'dog')
    assert match_folders(None, folders, folder, PATH).names == ('cat', 'dog')
    assert match_folders(named('Katze', 'Hund'), folders, folder, PATH).labels == ('cat', 'dog')


@pytest.mark.parametrize(
    ('settings', 'kind'),
    [
        (dict(ann_file='list.txt'), CustomDataset),
        (dict(with_label=False), CustomDataset),
        (dict(split='train'), ImageNet),
        (dict(), CocoDataset),
    ],
)
def test_folders_count_nothing_where_a_list_or_the_class_does(settings, kind, folder):
    assert class_folders(settings, kind, folder) == ()


@pytest.mark.parametrize(
    ('names', 'message'),
    [
        (('cat', 'dog', 'eel'), r"2 folders for 3 classes .*no folder for 'eel': set .*classes=\('cat', 'dog'\)"),
        (('cat',), r"no class for 'dog'"),
        (('dog', 'cat'), r"in alphabetical order: set .*classes=\('cat', 'dog'\)"),
    ],
)
def test_folders_that_do_not_fit_are_refused(names, message, folder):
    with pytest.raises(ValueError, match=message):
        match_folders(named(*names), ('cat', 'dog'), folder, PATH)


# --- numbers ---


def stock(library, path):
    return Path(find_spec(library).origin).parent / '.mim' / 'configs' / path


STOCK = [
    ('mmpretrain', 'resnet/resnet50_8xb16-mixup_cifar10.py'),
    ('mmpretrain', 'resnet/resnet50_8xb32-cutmix_in1k.py'),
    ('mmpretrain', 'cae/cae_beit-base-p16_8xb256-amp-coslr-300e_in1k.py'),
    ('mmseg', 'mask2former/mask2former_swin-t_8xb2-160k_ade20k-512x512.py'),
    ('mmseg', 'san/san-vit-b16_voc12aug-640x640.py'),
    ('mmseg', 'stdc/stdc1_4xb12-80k_cityscapes-512x1024.py'),
    ('mmseg', 'point_rend/pointrend_r101_4xb2-80k_cityscapes-512x1024.py'),
    ('mmdet', 'mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic.py'),
    ('mmdet', 'mask2former/mask2former_r50_8xb2-lsj-50e_coco.py'),
    ('mmdet', 'htc/htc_r50_fpn_1x_coco.py'),
    ('mmdet', 'queryinst/queryinst_r50_fpn_1x_coco.py'),
    ('mmdet', 'detr/detr_r50_8xb2-150e_coco.py'),
    ('mmdet', 'seesaw_loss/mask-rcnn_r50_fpn_seesaw-loss_random-ms-2x_lvis-v1.py'),
    ('mmdet', 'grounding_dino/odinw/grounding_dino_swin-t_pretrain_odinw13.py'),
]


@pytest.mark.parametrize(('library', 'path'), STOCK, ids=[path for _, path in STOCK])
def test_stock_configs_fit_their_data_sets(library, path):
    cfg = Config.fromfile(stock(library, path))
    cfg.setdefault('default_scope', library)
    found = {}
    for split in ('train', 'val', 'test'):
        for place, settings in loader_leaves(cfg, split):
            classes = named_classes(settings, registered(DATASETS, settings.type, library), place)
            found |= {place: classes} if classes else {}
    assert bool(found) == ('panoptic' not in path) and list(class_complaints(cfg, found)) == []


@pytest.mark.parametrize(
    ('path', 'right', 'settings'),
    [
        (CLASSIFICATION, 10, ['model.head.num_classes', 'model.data_preprocessor.num_classes']),
        (SEGMENTATION, 11, ['model.decode_head.num_classes', 'model.decode_head.loss_decode.class_weight']),
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
    assert complaints(cfg, right) == {} and count_of_model(cfg) == right
    found = complaints(cfg, 12)
    assert sorted(found) == sorted(settings)
    assert all('12' in reason for reason in found.values())
    cfg.merge_from_dict({setting: 12 for setting in settings if setting.endswith('num_classes')})
    assert not any(setting.endswith('num_classes') for setting in complaints(cfg, 12))


CROSS_ENTROPY, SIGMOID = dict(type='CrossEntropyLoss'), dict(type='CrossEntropyLoss', use_sigmoid=True)
WEIGHTS = [1.0] * 3
PLACES = [
    (CLASSIFICATION, dict(val_evaluator__topk=(1, 5)), 'val_evaluator.topk', 'at most 3'),
    (CLASSIFICATION, dict(val_evaluator=[dict(type='Accuracy', topk=5)]), 'val_evaluator.0.topk', 'at most 3'),
    (
        CLASSIFICATION,
        dict(val_evaluator=dict(type='ConfusionMatrix', num_classes=10)),
        'val_evaluator.num_classes',
        'set it to 3',
    ),
    (
        CLASSIFICATION,
        dict(model__train_cfg=dict(augments=[dict(type='CutMix', alpha=1.0, num_classes=10)])),
        'model.train_cfg.augments.0.num_classes',
        'set it to 3',
    ),
    (CLASSIFICATION, dict(model__head__cal_acc=True, model__head__topk=(1, 5)), 'model.head.topk', 'at most 3'),
    (
        CLASSIFICATION,
        dict(model__head__loss=dict(type='SeesawLoss')),
        'model.head.loss.num_classes',
        'is not set, and the default of SeesawLoss is 1000: set it to 3',
    ),
    (
        SEGMENTATION,
        dict(model__auxiliary_head=[dict(type='FCNHead', num_classes=150)]),
        'model.auxiliary_head.0.num_classes',
        '= 150: set it to 3',
    ),
    (
        SEGMENTATION,
        dict(model__decode_head__loss_decode=[dict(CROSS_ENTROPY, class_weight=[1.0] * 11)]),
        'model.decode_head.loss_decode.0.class_weight',
        'has 11 entries: give it 3',
    ),
    (
        SEGMENTATION,
        dict(model__decode_head__loss_cls=dict(type='mmdet.CrossEntropyLoss', class_weight=WEIGHTS)),
        'model.decode_head.loss_cls.class_weight',
        'has 3 entries: give it 4',
    ),
    (
        DETECTION,
        dict(model__roi_head__bbox_head__loss_cls=dict(CROSS_ENTROPY, class_weight=WEIGHTS)),
        'model.roi_head.bbox_head.loss_cls.class_weight',
        'has 3 entries: give it 4',
    ),
    (
        DETECTION,
        dict(model__roi_head__bbox_head__loss_cls=dict(SIGMOID, class_weight=[1.0] * 4)),
        'model.roi_head.bbox_head.loss_cls.class_weight',
        'has 4 entries: give it 3',
    ),
    (
        DETECTION,
        dict(model__bbox_head=dict(type='RetinaHead', num_classes=80)),
        'model.bbox_head.num_classes',
        '= 80: set it to 3',
    ),
]


@pytest.mark.parametrize(('base', 'options', 'setting', 'advice'), PLACES)
def test_places(base, options, setting, advice):
    cfg = read_config(base)
    for key, value in options.items():
        *outer, last = key.split('__')
        functools.reduce(operator.getitem, outer, cfg)[last] = value
    reasons = dict(class_complaints(cfg, {PATH.replace('train', 'val' if 'val' in setting else 'train'): numbered(3)}))
    assert reasons[setting].endswith(advice)


@pytest.mark.parametrize(
    'options',
    [
        dict(num_classes=-1),
        dict(num_classes=None),
        dict(loss=dict(CROSS_ENTROPY, class_weight=None)),
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


def test_labels_mean_the_same_in_every_data_set():
    """Differing data sets come before settings: which count is right is not known while they differ."""
    val, cfg = 'val_dataloader.dataset', read_config(CLASSIFICATION)

    def found(one, other):
        return dict(class_complaints(cfg, {PATH: one, val: other}))

    assert found(numbered(10), numbered(10)) == {}
    [(place, reason)] = found(named('cat', 'dog'), named('cat', 'eel')).items()
    assert place == val and reason == f"has other classes: label 1 is 'eel' here and 'dog' in {PATH}"
    assert found(named('cat', 'dog'), named('cat'))[val].startswith('has other classes: 1 classes')
    # Folders count, whatever names they are given.
    one, other = (Classes(('a', 'b'), 'x', labels=labels) for labels in (('cat', 'dog'), ('dog', 'eel')))
    assert "'dog' here and 'cat'" in found(one, other)[val]


def test_other_libraries_and_unknown_classes_are_left_alone():
    cfg = read_config(CLASSIFICATION)
    assert list(class_complaints(cfg, {})) == []
    cfg.default_scope = 'mmpose'
    assert complaints(cfg, 3) == {}


def test_labels_of_a_checkpoint_mean_the_classes_of_the_data():
    """Before: classes in another order were scored in silence."""
    assert check_trained('a.pth', ('cat', 'dog'), ['cat', 'dog']) == ''
    remark = check_trained('a.pth', ('cat', 'dog'), ('Katze', 'Hund'))
    assert remark == "a.pth: label 0 is 'cat' in training and 'Katze' in the data (2 of 2 differ)"
    with pytest.raises(CheckpointNotRead, match=r"another order; set metainfo = dict\(classes=\('cat', 'dog'\)\)"):
        check_trained('a.pth', ('cat', 'dog'), ('dog', 'cat'))
