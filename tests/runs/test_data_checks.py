"""What of a data set is kept and lost is counted; files, classes and metrics that do not go together are refused.

Each refusal names its remedy, and the test does what it says: it has to pass then.
"""

import json

import numpy as np
import pytest
from mmengine.config import ConfigDict
from mmseg.evaluation import IoUMetric
from PIL import Image

from vitplug.runs.checks import check_data
from vitplug.runs.checks.accounts import IMAGES, OBJECTS, account_coco


def picture(path, size=(40, 30), **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((size[1], size[0], 3), np.uint8)).save(path, **options)


# --- detection ---

BOX = dict(image_id=1, category_id=1, bbox=[4, 4, 8, 8], area=64, iscrowd=0)


def content(*annotations, **more):
    objects = [dict(BOX, id=number, **one) for number, one in enumerate(annotations or [{}], start=1)]
    images = [dict(id=1, file_name='a.png', width=40, height=30)]
    categories = [dict(id=1, name='cat'), dict(id=2, name='dog')]
    return dict(images=images, annotations=objects, categories=categories) | more


@pytest.fixture
def coco(tmp_path):
    """Checks a COCO file as data and as what a metric reads; gives the remarks."""
    picture(tmp_path / 'images' / 'a.png')

    def check(data, metric=None, load=(), steps=(), **settings):
        for split, one in dict(train=data, val=metric or data).items():
            (tmp_path / f'{split}.json').write_text(one if isinstance(one, str) else json.dumps(one))
        dataset = dict(
            type='CocoDataset',
            data_root=str(tmp_path),
            ann_file='train.json',
            data_prefix=dict(img='images/'),
            metainfo=dict(classes=('cat', 'dog')),
            pipeline=[dict(type='LoadImageFromFile', **dict(load)), *steps],
            **settings,
        )
        evaluator = dict(type='CocoMetric', ann_file=str(tmp_path / 'val.json'))
        cfg = ConfigDict(default_scope='mmdet', val_dataloader=dict(dataset=dataset), val_evaluator=evaluator)
        return check_data(cfg, ('val',))

    return check


LOST = {
    'marked iscrowd': dict(iscrowd=1),
    'marked ignore': dict(ignore=True),
    'with an area of zero or less': dict(area=0),
    'with a box in 0..1, where pixels are expected': dict(bbox=[0.1, 0.1, 0.2, 0.2]),
    'narrower than a pixel': dict(bbox=[4, 4, 0.5, 8]),
    'outside of the image': dict(bbox=[60, 4, 8, 8]),
    'of a category that is no class': dict(category_id=9),
    'of an image that is not in the file': dict(image_id=9),
}


@pytest.mark.parametrize('reason', LOST)
def test_lost_objects_are_counted_by_reason(coco, reason):
    """Before: left out in silence; a training on no objects ended with status 0."""
    assert coco(content()) == []
    [remark] = coco(content({}, LOST[reason]))
    assert '1 objects, 1 images kept; left out: 1 objects ' + reason in remark and 'e.g. annotation 2' in remark
    with pytest.raises(ValueError, match=rf'no objects are left\. .*1 objects {reason}'):
        coco(content(LOST[reason]))


def test_objects_without_masks_are_refused_where_masks_are_loaded(coco):
    """Before: KeyError 'mask' in the middle of an epoch."""
    outlined, masks = dict(segmentation=[[4, 4, 12, 4, 12, 12]]), [dict(type='LoadAnnotations', with_mask=True)]
    assert coco(content(outlined, {})) == coco(content(outlined, outlined), steps=masks) == []
    for bare in ({}, dict(iscrowd=1)):
        with pytest.raises(ValueError, match='annotation 2 has no segmentation: give each object one'):
            coco(content(outlined, bare), steps=masks)
    assert len(coco(content(outlined, LOST['marked ignore']), steps=masks)) == 1
    runs = content(outlined, dict(segmentation=dict(size=[30, 40], counts=[0, 9])))
    [remark] = coco(runs, steps=[dict(masks[0], poly2mask=False)])  # for which mmdet ignores them
    assert 'left out: 1 objects with a mask as run lengths' in remark


def test_counts_are_those_of_mmdet(tmp_path):
    """The same file, through mmdet's own class."""
    from mmdet.datasets import CocoDataset

    images = [dict(id=n, file_name='a.png', width=size, height=size) for n, size in ((1, 40), (2, 8), (3, 40), (4, 40))]
    data = content(*LOST.values(), {}, dict(image_id=2), dict(image_id=4, category_id=2), images=images)
    (tmp_path / 'ann.json').write_text(json.dumps(data))
    loaded = CocoDataset(
        ann_file=str(tmp_path / 'ann.json'),
        metainfo=dict(classes=('cat', 'dog')),
        filter_cfg=dict(filter_empty_gt=True, min_size=32),
        data_prefix=dict(img=''),
        pipeline=[],
        lazy_init=True,
    )
    account = account_coco(data, loaded)
    loaded.data_list = loaded.load_data_list()
    kept = [one for info in loaded.data_list for one in info['instances'] if not one['ignore_flag']]
    assert account.kept[OBJECTS] == len(kept) and account.kept[IMAGES] == len(loaded.filter_data()) == 2


def test_lost_images_are_counted(coco):
    images = [dict(id=n, file_name='a.png', width=40, height=30) for n in (1, 2)]
    [remark] = coco(content(images=images), filter_cfg=dict(filter_empty_gt=True))
    assert '1 images without objects' in remark
    with pytest.raises(ValueError, match=r'no images are left\. .* with a side below 32 pixels'):
        coco(content(), filter_cfg=dict(min_size=32))


def renumbered(data, key='annotations', name='id', to=1):
    data[key][0][name] = to
    return data


def without(key, field):
    data = content({}, {})
    data[key][-1].pop(field)
    return data


THREE = [dict(id=1, name='cat'), dict(id=2, name='dog'), dict(id=3, name='dog')]
# A broken file, what is said, and the file that is mended as it is said.
BROKEN = {
    'no JSON': ('{"images": [', r'train\.json is no JSON in UTF-8', content()),
    'a list': ([1, 2], r'train\.json has no images: expected a COCO file', content()),
    **{f'no {key}': (content(**{key: []}), rf'json has no {key}', content()) for key in ('images', 'categories')},
    # Before: AttributeError or KeyError without file and annotation; NaN was kept.
    **{
        f'{key} without {field}': (without(key, field), rf'json: {key}\[\d\] lacks {field}: {{', content({}, {}))
        for key, field in (
            *(('annotations', field) for field in ('id', 'area', 'image_id', 'category_id', 'bbox')),
            *(('images', field) for field in ('width', 'file_name')),
        )
    },
    **{
        f'bbox {box}': (content({}, dict(bbox=box)), r'annotations\[1\]\.bbox = .*: expected four', content({}, {}))
        for box in ([4, 4, 8], [4, 4, 8, float('nan')], [4, float('inf'), 8, 8], ['4', 4, 8, 8], None)
    },
    'a width that is a text': (
        content(images=[dict(id=1, file_name='a.png', width='40', height=30)]),
        r"images\[0\]\.width = '40': expected a finite number",
        content(),
    ),
    # Before: perfect predictions scored 0.626 instead of 1.000.
    'annotation id 0': (
        renumbered(content({}, {}), to=0),
        r'annotation id 0: .*\(0 counts as no match\).*from 1',
        content({}, {}),
    ),
    # Before: half of the objects became background, or a traceback at the first validation.
    **{
        f'{name} of {key} is a text': (
            renumbered(content({}, {}), key, name, '1'),
            "= '1': expected a whole number",
            content({}, {}),
        )
        for key, name in (('annotations', 'id'), ('annotations', 'image_id'), ('images', 'id'))
    },
    'an id twice': (
        renumbered(content({}, {}), to=2),
        'the id 2 of annotations occurs 2 times: give each its own',
        content({}, {}),
    ),
    # Before: the label of the second one was beyond the classes.
    'two categories of one name': (
        content(categories=THREE),
        "the name 'dog' of categories occurs 2 times: give each its own",
        content(categories=THREE[:2]),
    ),
}


@pytest.mark.parametrize('case', BROKEN)
def test_broken_coco_files_and_their_remedies(coco, case):
    broken, said, mended = BROKEN[case]
    with pytest.raises(ValueError, match=said):
        coco(broken)
    assert coco(mended) == []


def test_loader_and_metric_with_other_images_of_the_same_ids(coco):
    """Before: perfect predictions scored 0.000, and images that only the metric has counted as missed."""
    other = content(images=[dict(id=1, file_name='b.png', width=40, height=30)])
    more = content(images=[dict(id=n, file_name='a.png', width=40, height=30) for n in (1, 2)])
    for differing in (other, more):
        with pytest.raises(ValueError, match=r'val_evaluator\.ann_file = .*val\.json. has other images, .* the loader'):
            coco(content(), metric=differing)


def test_images_of_another_size_than_annotated(coco, tmp_path):
    """Before: only check_dataset saw it."""
    picture(tmp_path / 'images' / 'a.png', (80, 60))
    with pytest.raises(ValueError, match=r'80 x 60 pixels .* 40 x 30: annotate the images that are loaded$'):
        coco(content())


@pytest.mark.parametrize('turns', [True, False])
def test_annotations_of_turned_and_of_stored_pixels(coco, tmp_path, turns):
    """The loader decides which; the remedy that is named is the other one."""
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(tmp_path / 'images' / 'a.png', (30, 40) if turns else (40, 30), exif=exif)
    flags = ['color_ignore_orientation', 'color']
    right, wrong = (dict(color_type=flags[turns is one]) for one in (True, False))
    assert coco(content(), load=right) == []
    with pytest.raises(ValueError, match=rf"30 x 40 pixels .* 40 x 30: .* EXIF .*'{right['color_type']}'"):
        coco(content(), load=wrong)


def test_a_broken_image_is_left_to_the_loader_of_the_training(coco, tmp_path):
    (tmp_path / 'images' / 'a.png').write_bytes(b'no image')
    assert coco(content()) == []


# --- segmentation ---


@pytest.fixture
def maps(tmp_path):
    """Checks images and label maps of some endings."""
    for name in ('a', 'b'):
        picture(tmp_path / 'images' / f'{name}.png')
        label_map(tmp_path / 'maps' / f'{name}.png')

    def check(head=255, metric=255, kind='IoUMetric', **settings):
        dataset = dict(
            type='BaseSegDataset',
            data_root=str(tmp_path),
            data_prefix=dict(img_path='images', seg_map_path='maps'),
            metainfo=dict(classes=('a', 'b')),
            pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')],
            **dict(dict(img_suffix='.png'), **settings),
        )
        cfg = ConfigDict(
            default_scope='mmseg',
            model=dict(decode_head=dict(type='FCNHead', num_classes=2, ignore_index=head)),
            val_dataloader=dict(dataset=dataset),
            val_evaluator=dict(type=kind, ignore_index=metric),
        )
        return check_data(cfg, ('val',))

    return check


def label_map(path, values=(0, 1, 255), size=(40, 30), kind=np.uint8):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.resize(np.array(values, kind), size[::-1])).save(path)


def test_endings_in_capitals_are_counted(maps, tmp_path):
    """Before: half of the pairs were lost in silence."""
    (tmp_path / 'images' / '._a.png').write_text('')  # left by macOS, and overlooked by data sets
    assert maps() == []
    for folder in ('images', 'maps'):
        (tmp_path / folder / 'b.png').rename(tmp_path / folder / 'b.PNG')
    [remark] = maps()
    assert '1 images kept; left out: 1 files of another place or ending' in remark and 'e.g. b.PNG' in remark
    with pytest.raises(ValueError, match=r'no images are left.* files of another place'):
        maps(img_suffix='.jpg')


def test_label_maps_without_an_image_are_counted(maps, tmp_path):
    (tmp_path / 'images' / 'b.png').unlink()
    [remark] = maps()
    assert '1 label maps without an image, e.g. b.png' in remark
    (tmp_path / 'maps' / 'a.png').unlink()
    with pytest.raises(ValueError, match=r'1 of 1 images have no label map, such as .*a\.png: add'):
        maps()


def test_label_maps_of_a_lossy_format(maps, tmp_path):
    """Before: 12 drawn classes became 15."""
    picture(tmp_path / 'maps' / 'a.jpg')
    with pytest.raises(ValueError, match=r'\.jpg: JPEG changes the labels'):
        maps(seg_map_suffix='.jpg')


@pytest.mark.parametrize(
    ('make', 'said'),
    [
        (lambda path: label_map(path, size=(30, 40)), '30 x 40'),
        (picture, r'a\.png: label map of shape \(30, 40, 3\) .* expected one channel of class indices'),
        (lambda path: label_map(path, (0, 2, 255)), r'labels outside of the 2 classes: \[2\]'),
        (lambda path: label_map(path, (0, 300), kind=np.uint16), 'with values to 300: .* 8 bits'),
    ],
)
def test_label_maps_that_cannot_be_learnt(maps, tmp_path, make, said):
    make(tmp_path / 'maps' / 'a.png')
    with pytest.raises(ValueError, match=said):
        maps()


class OwnMetric(IoUMetric):
    pass


@pytest.mark.parametrize(
    'settings', [dict(head=0), dict(metric=0), dict(ignore_index=0), dict(metric=0, kind=OwnMetric)]
)
def test_head_metric_and_data_ignore_one_label(maps, settings):
    with pytest.raises(
        ValueError, match=r'ignore_index = (0|255, and the data ignores 0).*: set both to that of the maps'
    ):
        maps(**settings)


# --- classification ---


def of_train(root, scope='mmpretrain', **settings):
    dataset = dict(type='CustomDataset', data_root=str(root)) | settings
    return ConfigDict(default_scope=scope, train_dataloader=dict(dataset=dataset))


@pytest.fixture
def folders(tmp_path):
    """Checks class folders of some names."""

    def check(names, classes=None):
        for name in names:
            picture(tmp_path / 'train' / name / 'a.png')
        metainfo = dict(metainfo=dict(classes=classes)) if classes else {}
        return check_data(of_train(tmp_path, data_prefix='train', **metainfo), ('train',))

    return check


def test_class_folders_that_are_numbers(folders, tmp_path):
    """Before: 100 % in the validation, and the names of other classes in predictions."""
    numbers, names = list(map(str, range(12))), [f'class {number}' for number in range(12)]
    assert folders(numbers) == folders(numbers, sorted(numbers)) == []
    with pytest.raises(ValueError, match=r"sorts .* as texts, so that label 2 is '10' and named 'class 2': rename"):
        folders(numbers, names)
    for name in numbers:
        (tmp_path / 'train' / name).rename(tmp_path / 'train' / f'{int(name):02}')
    assert folders([], names) == []


def test_hidden_folders_are_no_classes(folders, tmp_path):
    with pytest.raises(ValueError, match=r'takes the hidden folder \.ipynb_checkpoints for a class: remove'):
        folders(['cat', 'dog', '.ipynb_checkpoints'])
    (tmp_path / 'train' / '.ipynb_checkpoints' / 'a.png').unlink()
    (tmp_path / 'train' / '.ipynb_checkpoints').rmdir()
    assert folders([]) == []


def test_classes_are_a_list(folders):
    """Before: 'ab' became the classes a and b."""
    with pytest.raises(ValueError, match=r"dataset\.metainfo\.classes = 'ab': .* a comma makes it one"):
        folders(['a', 'b'], 'ab')
    assert folders(['a', 'b'], ('a', 'b')) == []


@pytest.mark.parametrize('label', [7, -1])
def test_labels_of_lists_are_those_of_classes(tmp_path, label):
    picture(tmp_path / 'cat/a.png')
    (tmp_path / 'list.txt').write_text(f'cat/a.png 0\ncat/a.png {label}\n')
    with pytest.raises(ValueError, match=rf'list\.txt, line 2: label {label} is none of the 2 classes'):
        check_data(of_train(tmp_path, ann_file='list.txt', metainfo=dict(classes=('a', 'b'))), ('train',))


# --- files and folders ---


def test_missing_folders_name_their_path_and_the_command_that_makes_them(tmp_path):
    cfg = of_train(tmp_path, data_prefix='train')
    for settings, said in (
        ({}, '$'),
        (dict(data_help=dict(root=str(tmp_path), command='python make.py')), '; make the data with: python make.py'),
        (dict(data_help=dict(root=str(tmp_path / 'digits'), command='python make.py')), '$'),  # of other data
        (dict(data_help=dict(root=str(tmp_path)[:-1], command='python make.py')), '$'),
    ):
        with pytest.raises(FileNotFoundError, match=f'no such data folder: {tmp_path}/train{said}'):
            check_data(ConfigDict(cfg, **settings), ('train',))
    (tmp_path / 'train' / 'class').mkdir(parents=True)
    with pytest.raises(ValueError, match=r'CustomDataset cannot read its files: Found 0 files'):
        check_data(cfg, ('train',))
    picture(tmp_path / 'train' / 'class' / 'a.png')
    assert check_data(ConfigDict(cfg, test_dataloader=of_train('nowhere').train_dataloader), ('train',)) == []
