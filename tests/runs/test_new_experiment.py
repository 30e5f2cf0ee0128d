"""From a folder of one's own data to a config that the tools take unchanged."""

import json
import re

import bad_inputs
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from PIL import Image

from vitplug.config.parts import difference
from vitplug.config.reading import read_config
from vitplug.config.text import text
from vitplug.runs.new_experiment import READERS, change_model, main, read_classification, read_detection, set_schedule

RNG = np.random.default_rng(0)
SIZE = (40, 32)

# --- data sets of one's own, in the layouts of exports and tutorials ---


def image(path, size=SIZE):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 255, (*size[::-1], 3), np.uint8)).save(path)


def flowers(root):
    """Folders of classes."""
    for split in ('train', 'val'):
        for kind in ('rose', 'tulip', 'daisy'):
            for number in '01':
                image(root / split / kind / f'{number}.jpg')


def coco(folder, names, split, masks=True, parent=True):
    """The content of a COCO file for two images in a folder, which it writes."""
    outline = [[4, 4, 24, 4, 24, 24, 4, 24]] if masks else []
    entries = dict(images=[], annotations=[], categories=[])
    if parent:  # as Roboflow writes it
        entries['categories'].append(dict(id=0, name='things', supercategory='none'))
    entries['categories'] += [dict(id=i, name=name, supercategory='things') for i, name in enumerate(names, start=1)]
    for number in range(2):
        image(folder / f'{split}_{number}.jpg')
        entries['images'].append(dict(id=number, file_name=f'{split}_{number}.jpg', width=SIZE[0], height=SIZE[1]))
        for label in range(1, len(names) + 1):
            box = dict(bbox=[4, 4, 20, 20], area=400, iscrowd=0, segmentation=outline)
            entries['annotations'].append(
                dict(box, id=1 + len(entries['annotations']), image_id=number, category_id=label)
            )
    return entries


def screws(root, masks=True):
    """As Roboflow exports: a file beside the images, and a category that holds the others."""
    for split in ('train', 'valid'):
        content = coco(root / split, ('bolt', 'nut'), split, masks)
        (root / split / '_annotations.coco.json').write_text(json.dumps(content))


def roads(root):
    """`images` and `masks`, with a test."""
    for split in ('train', 'val', 'test'):
        for number in ('1', '10'):
            image(root / 'images' / split / f'{number}.jpg')
            path = root / 'masks' / split / f'{number}_mask.png'
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.resize(np.array((0, 1, 2, 255), np.uint8), SIZE[::-1])).save(path)


# --- from the data to a test ---

STOCK = {
    'classification': 'mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py',
    'detection': 'mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py',
    'segmentation': 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py',
}
# Small enough to train here.
SMALL = """
_base_ = 'vitplug::digits/{}'
train_dataloader = dict(num_workers=0, persistent_workers=False)
val_dataloader = dict(num_workers=0, persistent_workers=False)
test_dataloader = val_dataloader
"""
DIGITS = {
    'classification': 'vit-mini-p4_1xb32-14e_digits-32x32.py',
    'detection': 'swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py',
    'segmentation': 'vit-mini-p8_upernet_1xb8-1200i_digits-128x128.py',
}
DATA = {'classification': flowers, 'detection': screws, 'segmentation': roads}
METRICS = {'classification': 'accuracy/top1', 'detection': 'coco/segm_mAP', 'segmentation': 'mIoU'}
CLASSES = {
    'classification': ('daisy', 'rose', 'tulip'),
    'detection': ('bolt', 'nut'),
    'segmentation': ('road', 'sky', 'other'),
}


def new_experiment(folder, task, base, more='', data='data', out='my.py'):
    more += f' --classes {",".join(CLASSES[task])}' if task == 'segmentation' else ''
    command = f'new_experiment.py --data {data} --base {base} --out {out} {more}'
    return bad_inputs.run(command, folder)


def passed(command, folder):
    outcome = bad_inputs.run(command, folder)
    assert outcome.status == 0, outcome.text[-3000:]
    return outcome.text


@pytest.mark.integration
@pytest.mark.parametrize(
    'task',
    ['classification', *(pytest.param(task, marks=pytest.mark.slow) for task in STOCK if task != 'classification')],
)
def test_from_data_to_a_picture(task, tmp_path):
    """The config is not changed between the tools."""
    DATA[task](tmp_path / 'data')
    (tmp_path / 'base.py').write_text(SMALL.format(DIGITS[task]))
    made = new_experiment(tmp_path, task, 'base.py', '--plugs gab,cb --epochs 2')
    assert made.status == 0, made.text[-3000:]
    assert ', '.join(CLASSES[task]) in made.out
    config = (tmp_path / 'my.py').read_bytes()
    checked = passed('check_dataset.py my.py --splits train val test', tmp_path)
    assert re.search(r'(^|\n)0 errors\n$', checked)
    trained = passed('train.py my.py --work-dir work', tmp_path)
    checkpoint = (tmp_path / 'work' / 'last_checkpoint').read_text().strip()
    tested = passed(f'test.py my.py {checkpoint} --work-dir test', tmp_path)
    for said in (trained, tested):
        assert f'{METRICS[task]}: ' in said
    some = next(path for path in sorted((tmp_path / 'data').rglob('*')) if path.suffix in ('.jpg', '.png'))
    passed(f'predict.py my.py {checkpoint} {some.relative_to(tmp_path)} --out seen', tmp_path)
    assert len(list((tmp_path / 'seen' / 'pictures').rglob('*.*'))) == 1
    assert (tmp_path / 'my.py').read_bytes() == config
    # A second one starts where the first has ended.
    trained = torch.load(checkpoint, weights_only=False)['state_dict']
    assert (
        new_experiment(tmp_path, task, 'my.py', f'--plugs gab,cb --pretrained {checkpoint}', out='two.py').status == 0
    )
    cfg = read_config(str(tmp_path / 'two.py'))
    init_default_scope(cfg.default_scope)
    backbone = MODELS.build(cfg.model.backbone)
    backbone.init_weights()
    name = next(name for name in backbone.state_dict() if name.endswith('qkv.weight'))
    assert torch.equal(backbone.state_dict()[name], trained[f'backbone.{name}'])


@pytest.mark.parametrize('task', STOCK)
def test_settings_of_the_data(task, tmp_path):
    DATA[task](tmp_path / 'data')
    assert new_experiment(tmp_path, task, STOCK[task], '--plugs residual,ContextBroadcast').status == 0
    cfg = read_config(str(tmp_path / 'my.py'))
    assert cfg.model.backbone.type == 'vitplug.SwinTransformer'
    assert [plug.type for plug in cfg.model.backbone.plugs] == ['ResidualAttention', 'ContextBroadcast']
    assert cfg.train_dataloader.dataset.metainfo.classes == CLASSES[task]
    assert cfg.train_cfg.max_epochs == cfg.param_scheduler[-1].end == 50
    assert cfg.train_dataloader.sampler.type == 'DefaultSampler'
    assert cfg.default_hooks.interruption.type == 'vitplug.InterruptionHook'
    test = cfg.test_dataloader.dataset
    folder = {'classification': 'val', 'detection': 'valid/', 'segmentation': 'images/test'}[task]
    assert folder in (test.data_prefix, *(test.data_prefix.values() if isinstance(test.data_prefix, dict) else ()))
    steps = [step for split in ('train', 'val', 'test') for step in cfg[f'{split}_dataloader'].dataset.pipeline]
    assert not any(step.get('reduce_zero_label') for step in steps)


OWN_PLUG = """
from vitplug.plugs import HeadScale
from vitplug.registry import PLUGS


@PLUGS.register_module()
class Mine(HeadScale):
    name = 'mine'
"""


def test_own_plug_is_named_by_its_path(tmp_path, monkeypatch):
    DATA['classification'](tmp_path / 'data')
    (tmp_path / 'own_module_of_plugs.py').write_text(OWN_PLUG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    options = ['--data', 'data', '--base', STOCK['classification'], '--out', 'my.py']
    main([*options, '--plugs', "own_module_of_plugs.Mine(layers='upper')+cb"])
    backbone = read_config('my.py').model.backbone
    assert backbone.plugs[0] == dict(type='own_module_of_plugs.Mine', layers='upper')
    init_default_scope('mmpretrain')
    assert any('.mine.' in name for name in MODELS.build(backbone).state_dict())


def test_small_data_is_trained_in_many_steps(tmp_path):
    """72 images: no step of 64 images that is an epoch, and not the checkpoints of 50 epochs."""
    for split, number in (('train', 24), ('val', 1)):
        for kind in ('rose', 'tulip', 'daisy'):
            for index in range(number):
                image(tmp_path / 'data' / split / kind / f'{index}.jpg', size=(8, 8))
    assert new_experiment(tmp_path, 'classification', STOCK['classification']).status == 0
    cfg = read_config(str(tmp_path / 'my.py'))
    warm_up, cosine = cfg.param_scheduler
    assert (cfg.train_dataloader.batch_size, warm_up.end, cosine.end) == (7, 55, 50)
    assert cfg.auto_scale_lr == dict(enable=True, base_batch_size=1024)
    assert (cfg.default_hooks.checkpoint.max_keep_ckpts, cfg.default_hooks.checkpoint.save_best) == (2, 'auto')


def test_base_is_inherited_from_another_folder(tmp_path):
    flowers(tmp_path / 'data')
    (base := tmp_path / 'base.py').write_text(SMALL.format(DIGITS['classification']))
    assert new_experiment(tmp_path, 'classification', 'base.py', out='data/my.py').status == 0
    base.write_text(base.read_text() + 'optim_wrapper = dict(optimizer=dict(lr=0.5))')
    assert read_config(str(tmp_path / 'data/my.py')).optim_wrapper.optimizer.lr == 0.5


@pytest.mark.parametrize(('steps', 'epochs'), [(1, 1), (10, 2), (300, 50)])
def test_schedules_of_any_data(steps, epochs):
    base = Config(dict(train_dataloader={}))
    set_schedule(base, steps, epochs)
    warm_up, cosine = base.param_scheduler
    assert 1 < warm_up['end'] <= max(2, epochs * steps // 10) and cosine['end'] == 'max_epochs'


def test_boxes_without_masks_take_the_mask_head_out(tmp_path):
    screws(tmp_path / 'data', masks=False)
    assert new_experiment(tmp_path, 'detection', STOCK['detection'], '--plugs gab --epochs 1').status == 0
    cfg = read_config(str(tmp_path / 'my.py'))
    steps = [step for split in ('train', 'val') for step in cfg[f'{split}_dataloader'].dataset.pipeline]
    assert cfg.model.roi_head.mask_head is None and cfg.val_evaluator.metric == 'bbox'
    assert not any(step.get('with_mask') for step in steps)


# --- layouts ---


def test_layouts_of_detection(tmp_path):
    screws(tmp_path / 'a', masks=False)
    found = read_detection(tmp_path / 'a', ())
    assert found.classes == ['bolt', 'nut'] and not found.has_masks and found.images == 2
    val = found.splits['val']
    assert (val['ann_file'], val['data_prefix']['img']) == ('valid/_annotations.coco.json', 'valid/')
    # As COCO: `annotations` beside folders with a year, and a test without annotations.
    (tmp_path / 'b' / 'annotations').mkdir(parents=True)
    for split in ('train', 'val'):
        content = coco(tmp_path / 'b' / f'{split}2017', ('bolt', 'nut'), split, parent=False)
        (tmp_path / 'b' / 'annotations' / f'instances_{split}2017.json').write_text(json.dumps(content))
    image(tmp_path / 'b' / 'test2017' / '1.jpg')
    found = read_detection(tmp_path / 'b', ())
    assert found.has_masks and set(found.splits) == {'train', 'val'}
    train = found.splits['train']
    assert (train['ann_file'], train['data_prefix']['img']) == ('annotations/instances_train2017.json', 'train2017/')


def test_test_images_without_classes_are_left_out(tmp_path):
    flowers(tmp_path)
    image(tmp_path / 'test' / '1.jpg')
    assert set(read_classification(tmp_path, ()).splits) == {'train', 'val'}
    image(tmp_path / 'test' / 'rose' / '1.jpg')
    with pytest.raises(FileNotFoundError, match='test has 1 class folders: expected two or more'):
        read_classification(tmp_path, ())


@pytest.mark.parametrize('task', STOCK)
def test_hidden_files_are_overlooked(task, tmp_path):
    """As by data sets: file managers leave them beside every file."""
    DATA[task](tmp_path)
    read = READERS[STOCK[task].partition('::')[0]]
    found = read(tmp_path, ())
    for path in [path for path in tmp_path.rglob('*') if path.is_file()]:
        path.with_name(f'._{path.name}').write_bytes(b'hidden')
    assert read(tmp_path, ()) == found


# --- what cannot be read ---


def test_a_test_of_other_classes_is_refused(tmp_path):
    """Its labels would be shifted: folders are numbered in each split."""
    flowers(tmp_path)
    for name in ('aster', 'rose', 'tulip'):
        image(tmp_path / 'test' / name / '1.jpg')
    options = ['--data', str(tmp_path), '--base', STOCK['classification'], '--out', str(tmp_path / 'new.py')]
    with pytest.raises(ValueError, match=r"test_dataloader.dataset has other classes: label 0 is 'aster' here"):
        main(options)


@pytest.mark.parametrize('split', ['train', 'val'])
def test_only_a_test_may_have_no_classes(tmp_path, split):
    """Before: AttributeError or NameError of a config without the split."""
    flowers(tmp_path)
    (tmp_path / split).rename(tmp_path / 'flowers')
    image(tmp_path / split / '1.jpg')
    with pytest.raises(FileNotFoundError, match=f'{split} has 0 class folders: expected two or more'):
        read_classification(tmp_path, ())


def test_some_objects_without_masks_are_refused(tmp_path):
    """Before: KeyError 'mask' in the middle of an epoch."""
    screws(tmp_path / 'data')
    path = tmp_path / 'data' / 'valid' / '_annotations.coco.json'
    content = json.loads(path.read_text())
    content['annotations'][1]['segmentation'] = []
    path.write_text(json.dumps(content))
    refused(new_experiment(tmp_path, 'detection', STOCK['detection']), tmp_path, 'annotation 2 has no segmentation: ')


def test_one_image_is_no_batch(tmp_path):
    """Before: an epoch without an iteration, for the last batch is left out."""
    roads(tmp_path / 'data')
    for path in (tmp_path / 'data').glob('*/train/10*'):
        path.unlink()
    made = new_experiment(tmp_path, 'segmentation', STOCK['segmentation'])
    refused(made, tmp_path, '--data data: 1 training images are no batch: add some')


def test_a_folder_without_splits_is_refused(tmp_path):
    flowers(tmp_path / 'data')
    (tmp_path / 'data/train').rename(tmp_path / 'data/rose')
    made = new_experiment(tmp_path, 'classification', STOCK['classification'])
    refused(made, tmp_path, r'data: expected one folder for train, train\*, and found rose, val')


def test_a_config_that_does_not_fit_the_data_is_not_left(tmp_path):
    roads(tmp_path / 'data')
    (tmp_path / 'data/masks/train/10_mask.png').unlink()
    refused(new_experiment(tmp_path, 'segmentation', STOCK['segmentation']), tmp_path, '1 of 2 images have no label')


def test_options_that_do_not_fit_are_refused(tmp_path):
    screws(tmp_path / 'data')
    (tmp_path / 'base.py').write_text("default_scope = 'mmdet'\nmodel = dict(backbone=dict(type='SwinTransformer'))\n")
    refused(new_experiment(tmp_path, 'detection', 'base.py'), tmp_path, 'has no train_dataloader, val_dataloader:')
    named = new_experiment(tmp_path, 'detection', 'base.py', '--classes cat,dog')
    refused(named, tmp_path, r'--classes cat,dog: label maps, and they alone, need names')
    refused(new_experiment(tmp_path, 'detection', 'base.py', '--plugs gabb'), tmp_path, "error: --plugs: 'gabb' in")
    (tmp_path / 'base.py').write_text("default_scope = 'mmengine'\nmodel = dict(backbone=dict(type='vitplug.ViT'))\n")
    made = new_experiment(tmp_path, 'detection', 'base.py')
    refused(made, tmp_path, "default_scope = 'mmengine': expected one of mm")


def refused(outcome, folder, message):
    assert outcome.status == 2 and 'Traceback' not in outcome.text
    (line,) = [line for line in outcome.err.splitlines() if 'error: ' in line]
    assert re.search(message, line), line
    assert not (folder / 'my.py').exists()


def test_detector_that_needs_masks_is_refused_without_them(tmp_path):
    screws(tmp_path / 'data', masks=False)
    base = 'mmdet::mask2former/mask2former_swin-t-p4-w7-224_8xb2-lsj-50e_coco.py'
    refused(new_experiment(tmp_path, 'detection', base), tmp_path, 'needs masks, and no object has one')


# --- parts ---


def test_numbers_of_classes_wherever_they_stand():
    model = dict(
        backbone=dict(type='vitplug.SwinTransformer', num_classes=-1),
        rpn_head=dict(num_classes=1),
        head=dict(num_classes=80, loss=dict(class_weight=[1.0] * 80 + [0.1])),
        heads=[dict(type='A', num_classes=80), dict(type='B', num_classes=80)],
        decoders=[dict(num_classes=80, loss=dict(class_weight=[1.0, 2.0, 3.0])), dict(type='C')],
        fusion=dict(num_things_classes=80, num_stuff_classes=0),
        semantic_head=dict(num_classes=183),
        mask_head=dict(type='FCNMaskHead'),
        neck=dict(in_channels=[1, 2]),
    )
    cfg = Config(dict(default_scope='mmdet', model=model))
    change_model(cfg, None, False)
    assert eval(text(difference(model, cfg.model.to_dict())), dict(num_classes=2)) == dict(
        head=dict(num_classes=2, loss=dict(class_weight=[1.0, 1.0, 0.1])),
        heads=[dict(type='A', num_classes=2), dict(type='B', num_classes=2)],
        decoders=[dict(num_classes=2, loss=dict(class_weight=None)), dict(type='C')],
        fusion=dict(num_things_classes=2),
        mask_head=dict(num_classes=2),
    )


def test_difference_is_merged_to_the_whole():
    old = dict(a=dict(b=1, c=2), d=[1, dict(e=2)], f=dict(g=1), h=None)
    new = dict(a=dict(b=1, c=3), d=[1], f=dict(i=1), h=dict(j=1))
    assert Config._merge_a_into_b(difference(old, new), old) == new


@pytest.mark.parametrize(
    'value', [(1,), (), [], {}, dict(a=[(1, 'x'), None]), [float('inf'), 1e-5], [dict(name='y' * 60)] * 3, 'a"\'b']
)
def test_text_is_the_value(value):
    assert eval(text(value)) == value
    assert all(len(line) <= 120 for line in text(value).splitlines())
