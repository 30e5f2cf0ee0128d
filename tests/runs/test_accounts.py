"""What of a data set is kept and lost is counted, and a metric that cannot count with it is refused.

Each refusal names its remedy, and the test does what it says: it has to pass then.
"""

import json
import unicodedata

import numpy as np
import pytest
from mmengine.config import ConfigDict
from PIL import Image

from vitplug.runs.checks.accounts import IMAGES, OBJECTS, account_coco
from vitplug.runs.checks.data import check_data
from vitplug.runs.checks.settings import check_preprocessors, unexpected_batch


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
    """Checks a COCO file as data and, if asked for, as what a metric reads; gives the remarks."""
    picture(tmp_path / 'images' / 'a.png')

    def check(data, metric=None, metric_type='CocoMetric', **settings):
        files = dict(train=data, val=metric or data)
        for split, one in files.items():
            (tmp_path / f'{split}.json').write_text(json.dumps(one))
        dataset = dict(
            type='CocoDataset',
            data_root=str(tmp_path),
            ann_file='train.json',
            data_prefix=dict(img='images/'),
            metainfo=dict(classes=('cat', 'dog')),
            **settings,
        )
        evaluator = dict(type=metric_type, ann_file=str(tmp_path / 'val.json'))
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


def test_counts_are_those_of_mmdet(coco, tmp_path):
    """The same file, through mmdet's own class."""
    from mmdet.datasets import CocoDataset

    images = [dict(id=n, file_name='a.png', width=size, height=size) for n, size in ((1, 40), (2, 8), (3, 40), (4, 40))]
    data = content(*LOST.values(), {}, dict(image_id=2), dict(image_id=4, category_id=2), images=images)
    filters = dict(filter_empty_gt=True, min_size=32)
    (tmp_path / 'ann.json').write_text(json.dumps(data))
    loaded = CocoDataset(
        ann_file=str(tmp_path / 'ann.json'),
        metainfo=dict(classes=('cat', 'dog')),
        filter_cfg=filters,
        data_prefix=dict(img=''),
        pipeline=[],
        lazy_init=True,
    )
    everything = loaded.load_data_list()
    loaded.data_list = everything
    account = account_coco(data, ('cat', 'dog'), filters, tested=False)
    kept = [one for info in everything for one in info['instances'] if not one['ignore_flag']]
    assert account.kept[OBJECTS] == len(kept) and account.kept[IMAGES] == len(loaded.filter_data()) == 2


def test_lost_images_are_counted(coco):
    images = [dict(id=n, file_name='a.png', width=40, height=30) for n in (1, 2)]
    [remark] = coco(content(images=images), filter_cfg=dict(filter_empty_gt=True))
    assert '1 images without objects' in remark
    with pytest.raises(ValueError, match=r'no images are left\. .* with a side below 32 pixels'):
        coco(content(), filter_cfg=dict(min_size=32))


def test_annotation_id_0_is_never_matched_by_pycocotools(coco):
    """Before: perfect predictions scored 0.626 instead of 1.000."""
    data = content({}, {})
    data['annotations'][0]['id'] = 0
    with pytest.raises(ValueError, match=r'annotation id 0: .*\(0 counts as no match, 1 of 2 are wrong\).*from 1'):
        coco(data)
    for number, annotation in enumerate(data['annotations'], start=1):
        annotation['id'] = number
    assert coco(data) == []


def test_categories_of_one_name(coco):
    """Before: the label of the second one was beyond the classes."""
    categories = [dict(id=1, name='cat'), dict(id=2, name='dog'), dict(id=3, name='dog')]
    data = content({}, dict(category_id=3), categories=categories)
    with pytest.raises(ValueError, match=r"several categories are named 'dog'.*a name of its own"):
        coco(data)
    categories[2]['name'] = 'eel'
    assert "categories 'eel' are no classes" in coco(data)[0]


@pytest.mark.parametrize('metric_type', ['LVISMetric', 'CocoPanopticMetric'])
def test_files_of_other_metrics_have_other_entries(coco, metric_type):
    """Before: refused, for images of LVIS have no file_name, and annotations of panoptic data no box."""
    other = content(images=[dict(id=1)], annotations=[dict(image_id=1, segments_info=[])])
    assert coco(content(), other, metric_type) == []


def test_a_file_of_a_test_may_have_no_annotations(coco):
    data = content()
    del data['annotations']
    assert coco(data, test_mode=True) == []


@pytest.mark.parametrize(('key', 'name'), [('annotations', 'id'), ('annotations', 'image_id'), ('images', 'id')])
def test_ids_that_are_texts_in_some_rows(coco, key, name):
    """Before: half of the objects became background, or a traceback at the first validation."""
    data = content({}, {})
    data[key][0][name] = str(data[key][0][name])
    with pytest.raises(ValueError, match=r"'1'"):
        coco(data)
    data[key][0][name] = int(data[key][0][name])
    assert coco(data) == []


def test_loader_and_metric_with_other_images_of_the_same_ids(coco):
    """Before: perfect predictions scored 0.000."""
    other = content(images=[dict(id=1, file_name='b.png', width=40, height=30)])
    with pytest.raises(ValueError, match=r'val_evaluator\.ann_file = .*image 1 is b\.png there and a\.png in the data'):
        coco(content(), metric=other)


@pytest.mark.parametrize(
    ('size', 'said'),
    [((80, 60), r'80 x 60 pixels .* 40 x 30: .* 0\.5 times'), ((30, 40), 'width and height are swapped')],
)
def test_images_of_another_size_than_annotated(coco, tmp_path, size, said):
    """Before: only check_dataset saw it."""
    picture(tmp_path / 'images' / 'a.png', size)
    with pytest.raises(ValueError, match=said):
        coco(content())


@pytest.mark.parametrize('name', ['images\\a.png', 'A.PNG'])
def test_names_that_another_system_wrote(coco, name):
    data = content(images=[dict(id=1, file_name=name, width=40, height=30)])
    with pytest.raises(FileNotFoundError, match=r'there is a\.png \(.*\): write the name as the file has it'):
        coco(data)
    data['images'][0]['file_name'] = 'a.png'
    assert coco(data) == []


def test_names_in_another_unicode_form(coco, tmp_path):
    picture(tmp_path / 'images' / unicodedata.normalize('NFD', 'ä.png'))
    data = content(images=[dict(id=1, file_name=unicodedata.normalize('NFC', 'ä.png'), width=40, height=30)])
    with pytest.raises(FileNotFoundError, match='Unicode form'):
        coco(data)


# --- segmentation ---


@pytest.fixture
def maps(tmp_path):
    """Checks images and label maps of some endings."""
    for name in ('a', 'b'):
        picture(tmp_path / 'images' / f'{name}.png')
        picture(tmp_path / 'maps' / f'{name}.png')

    def check(head=255, metric=255, **settings):
        dataset = dict(
            type='BaseSegDataset',
            data_root=str(tmp_path),
            data_prefix=dict(img_path='images', seg_map_path='maps'),
            metainfo=dict(classes=('a', 'b')),
            **dict(dict(img_suffix='.png'), **settings),
        )
        cfg = ConfigDict(
            default_scope='mmseg',
            model=dict(decode_head=dict(type='FCNHead', num_classes=2, ignore_index=head)),
            val_dataloader=dict(dataset=dataset),
            val_evaluator=dict(type='IoUMetric', ignore_index=metric),
        )
        return check_data(cfg, ('val',))

    return check


def test_endings_in_capitals_are_counted(maps, tmp_path):
    """Before: half of the pairs were lost in silence."""
    assert maps() == []
    for folder in ('images', 'maps'):
        (tmp_path / folder / 'b.png').rename(tmp_path / folder / 'b.PNG')
    [remark] = maps()
    assert '1 images kept; left out: 1 images whose names do not end in .png, as img_suffix says, e.g. b.PNG' in remark


def test_label_maps_without_an_image_are_counted(maps, tmp_path):
    (tmp_path / 'images' / 'b.png').unlink()
    [remark] = maps()
    assert '1 label maps without an image, e.g. b.png' in remark
    (tmp_path / 'maps' / 'a.png').unlink()
    with pytest.raises(ValueError, match=r'a\.png and so 1 of 1 images have no label map'):
        maps()


def test_label_maps_of_a_lossy_format(maps, tmp_path):
    """Before: 12 drawn classes became 15."""
    picture(tmp_path / 'maps' / 'a.jpg')
    with pytest.raises(ValueError, match=r'label maps \*\.jpg .* JPEG changes the labels'):
        maps(seg_map_suffix='.jpg')


def test_label_maps_of_another_size(maps, tmp_path):
    picture(tmp_path / 'maps' / 'a.png', (30, 40))
    with pytest.raises(ValueError, match='width and height are swapped'):
        maps()


@pytest.mark.parametrize('settings', [dict(head=0), dict(metric=0), dict(ignore_index=0)])
def test_head_metric_and_data_ignore_one_label(maps, settings):
    with pytest.raises(ValueError, match=r'ignore_index = 0.*ignore different labels'):
        maps(**settings)
    assert maps(head=0, metric=0, ignore_index=0) == []


# --- classification ---


@pytest.fixture
def folders(tmp_path):
    """Checks class folders of some names."""

    def check(names, classes=None):
        for name in names:
            picture(tmp_path / 'train' / name / 'a.png')
        metainfo = dict(metainfo=dict(classes=classes)) if classes else {}
        dataset = dict(type='CustomDataset', data_root=str(tmp_path), data_prefix='train', **metainfo)
        return check_data(ConfigDict(default_scope='mmpretrain', train_dataloader=dict(dataset=dataset)), ('train',))

    return check


def test_class_folders_that_are_numbers(folders, tmp_path):
    """Before: 100 % in the validation, and the names of other classes in predictions."""
    numbers, names = list(map(str, range(12))), [f'class {number}' for number in range(12)]
    assert folders(numbers) == folders(numbers, sorted(numbers)) == []
    with pytest.raises(ValueError, match=r"label 2 is '10' and named 'class 2' by .*rename the folders"):
        folders(numbers, names)
    for name in numbers:
        (tmp_path / 'train' / name).rename(tmp_path / 'train' / f'{int(name):02}')
    assert folders([], names) == []


def test_hidden_folders_are_no_classes(folders):
    with pytest.raises(ValueError, match=r'hidden folder \.ipynb_checkpoints, .*takes for a class: remove'):
        folders(['cat', 'dog', '.ipynb_checkpoints'])


def test_files_that_mmpretrain_does_not_look_for_are_counted(folders, tmp_path):
    folders(['cat', 'dog'])
    picture(tmp_path / 'train' / 'cat' / 'b.webp')
    picture(tmp_path / 'train' / 'c.png')
    (tmp_path / 'train' / 'eel').mkdir()
    [remark] = folders([])
    assert '2 images kept' in remark and '1 images outside of the class folders' in remark and 'cat/b.webp' in remark
    assert '1 classes without an image, e.g. eel' in remark


@pytest.mark.parametrize(('line', 'said'), [('cat/a.png', 'line 2 is not a path'), ('cat/a.png 7', 'label 7')])
def test_lists_of_labels(tmp_path, line, said):
    (tmp_path / 'list.txt').write_text(f'cat/a.png 0\n{line}\n')
    dataset = dict(
        type='CustomDataset', data_root=str(tmp_path), ann_file='list.txt', metainfo=dict(classes=('a', 'b'))
    )
    with pytest.raises(ValueError, match=said):
        check_data(ConfigDict(default_scope='mmpretrain', train_dataloader=dict(dataset=dataset)), ('train',))


# --- settings ---


def test_a_preprocessor_that_is_never_read():
    model = dict(type='EncoderDecoder', data_preprocessor=dict(mean=[0.0], std=[1.0]))
    check_preprocessors(ConfigDict(model=model, data_preprocessor=dict(mean=[0.0])))
    with pytest.raises(ValueError, match=r'data_preprocessor\.mean = .* never read.*set both alike'):
        check_preprocessors(ConfigDict(model=model, data_preprocessor=dict(mean=[123.0])))


def test_scaling_the_learning_rate_counts_accumulated_steps():
    """Before: the factor of 8 accumulated steps of 16 images for a base of 128 was 0.125."""
    cfg = ConfigDict(
        launcher='none',
        train_dataloader=dict(batch_size=16),
        auto_scale_lr=dict(base_batch_size=128),
        optim_wrapper=dict(accumulative_counts=8),
    )
    assert unexpected_batch(cfg) == []
