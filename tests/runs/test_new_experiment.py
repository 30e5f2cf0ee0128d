"""From a folder of one's own data to a config that the tools take unchanged."""

import json
import re
from pathlib import Path

import bad_inputs
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from PIL import Image

from vitplug.backbones.base import PluggedBackbone
from vitplug.config.reading import read_config
from vitplug.config.text import text
from vitplug.runs.new_experiment import (
    READERS,
    change_model,
    difference,
    main,
    read_classification,
    read_detection,
    scale_rate,
    set_schedule,
)

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
        for number in '01':
            image(root / 'images' / split / f'{number}.jpg')
            path = root / 'masks' / split / f'{number}_mask.png'
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.resize(np.array((0, 1, 2, 255), np.uint8), SIZE[::-1])).save(path)


# --- from the data to a test ---

ROOT = Path(__file__).parents[2]
# Stock configs, made so small that they train here; backbones, heads and lists are those of the libraries.
SMALL_LOADERS = """
train_dataloader = dict(num_workers=0, persistent_workers=False, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(num_workers=0, persistent_workers=False, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
"""
SWIN = 'embed_dims=12, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2), window_size=4, init_cfg=None'
BASES = {
    'classification': f"""
_base_ = 'mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py'
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=12, depths=[1, 1], num_heads=[1, 2]),
        img_size=32,
        window_size=4,
        out_indices=(1,),
    ),
    head=dict(in_channels=24),
)
_small = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=32), dict(type='PackInputs')]
train_pipeline = test_pipeline = _small
{SMALL_LOADERS}
""",
    'detection': f"""
_base_ = 'mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py'
model = dict(
    backbone=dict({SWIN}),
    neck=dict(in_channels=[12, 24, 48, 96], out_channels=16),
    rpn_head=dict(in_channels=16, feat_channels=16),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=16),
        bbox_head=dict(in_channels=16, fc_out_channels=16),
        mask_roi_extractor=dict(out_channels=16),
        mask_head=dict(in_channels=16, conv_out_channels=16, num_convs=1),
    ),
)
_objects = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
_load = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(64, 64)), _objects]
train_pipeline = [dict(type='LoadImageFromFile'), _objects, dict(type='Resize', scale=(64, 64))]
train_pipeline = [*train_pipeline, dict(type='PackDetInputs')]
_meta = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')
test_pipeline = [*_load, dict(type='PackDetInputs', meta_keys=_meta)]
{SMALL_LOADERS}
""",
    'segmentation': f"""
_base_ = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'
data_preprocessor = dict(size=(64, 64))
model = dict(
    data_preprocessor=dict(size=(64, 64)),
    backbone=dict({SWIN}),
    decode_head=dict(in_channels=[12, 24, 48, 96], channels=16),
    auxiliary_head=dict(in_channels=48, channels=16),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomCrop', crop_size=(64, 64), cat_max_ratio=0.75),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
{SMALL_LOADERS}
""",
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
    command = f'new_experiment.py --task {task} --data {data} --base {base} --out {out} {more}'
    return bad_inputs.run(command, folder)


def passed(command, folder):
    outcome = bad_inputs.run(command, folder)
    assert outcome.status == 0, outcome.text[-3000:]
    return outcome.text


@pytest.mark.integration
@pytest.mark.parametrize(
    'task',
    ['classification', *(pytest.param(task, marks=pytest.mark.slow) for task in BASES if task != 'classification')],
)
def test_from_data_to_a_picture(task, tmp_path):
    """The config is not changed between the tools."""
    DATA[task](tmp_path / 'data')
    (tmp_path / 'base.py').write_text(BASES[task])
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
    name = 'stages.0.blocks.0.attn.w_msa.qkv.weight'
    assert torch.equal(backbone.state_dict()[name], trained[f'backbone.{name}'])


@pytest.mark.parametrize('task', BASES)
def test_settings_of_the_data(task, tmp_path):
    DATA[task](tmp_path / 'data')
    (tmp_path / 'base.py').write_text(BASES[task])
    assert new_experiment(tmp_path, task, 'base.py', '--plugs residual,ContextBroadcast').status == 0
    cfg = read_config(str(tmp_path / 'my.py'))
    assert cfg.model.backbone.type == 'vitplug.SwinTransformer'
    assert [plug.type for plug in cfg.model.backbone.plugs] == ['ResidualAttention', 'ContextBroadcast']
    assert cfg.train_dataloader.dataset.metainfo.classes == CLASSES[task]
    assert counted(cfg.model) | counted(cfg.get('data_preprocessor') or {}) == {len(CLASSES[task])}
    assert cfg.train_cfg.get('max_epochs') == 50 or cfg.train_cfg.max_iters == cfg.param_scheduler[-1].end == 50
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
    (tmp_path / 'base.py').write_text(BASES['classification'])
    (tmp_path / 'own_module_of_plugs.py').write_text(OWN_PLUG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    options = ['--task', 'classification', '--data', 'data', '--base', 'base.py', '--out', 'my.py']
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
    (tmp_path / 'base.py').write_text(BASES['classification'])
    assert new_experiment(tmp_path, 'classification', 'base.py').status == 0
    cfg = read_config(str(tmp_path / 'my.py'))
    warm_up, cosine = cfg.param_scheduler
    assert (cfg.train_dataloader.batch_size, warm_up.end, cosine.end) == (7, 55, 50)
    assert cfg.optim_wrapper.optimizer.lr == pytest.approx(1e-3 * (7 / 1024) ** 0.5, rel=1e-2)  # the base's for 1024
    assert cfg.auto_scale_lr == dict(enable=True, base_batch_size=7)
    assert (cfg.default_hooks.checkpoint.max_keep_ckpts, cfg.default_hooks.checkpoint.save_best) == (2, 'auto')


@pytest.mark.parametrize('by_epoch', [True, False])
@pytest.mark.parametrize(('steps', 'epochs'), [(1, 1), (10, 2), (300, 50)])
def test_schedules_of_any_data(steps, epochs, by_epoch):
    base = base_of(8, by_epoch)
    set_schedule(base, steps, epochs)
    *warm_up, _ = base.param_scheduler
    assert all(1 < rising['end'] < epochs * steps for rising in warm_up)
    assert bool(warm_up) == (epochs * steps >= 20)


def base_of(batch, by_epoch=True, optimizer='AdamW', of_batch=1024, **rate):
    loop = dict(max_epochs=1) if by_epoch else dict(max_iters=1)
    scaled = dict(auto_scale_lr=dict(base_batch_size=of_batch)) if of_batch else {}
    wrapper = dict(optimizer=dict(type=optimizer, **(rate or dict(lr=0.1))))
    return Config(dict(train_dataloader=dict(batch_size=batch), train_cfg=loop, optim_wrapper=wrapper, **scaled))


@pytest.mark.parametrize(
    ('base', 'lr'),
    [
        (dict(optimizer='SGD', of_batch=128), 0.1 / 16),
        (dict(optimizer='mmpretrain.Lamb', of_batch=32), 0.05),
        (dict(of_batch=None), 0.1),
        (dict(momentum=0.9), None),
    ],
)
def test_learning_rates(base, lr):
    cfg = base_of(8, **base)
    scale_rate(cfg, 8)
    assert cfg.optim_wrapper.optimizer.get('lr') == lr


def counted(node):
    """All numbers of classes in a part of a config, but for those of proposals."""
    found = set()
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if key == 'num_classes':
            found.add(value)
        elif isinstance(value, dict | list | tuple) and key != 'rpn_head':
            found |= counted(value)
    return found


STOCK = {
    'mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py': flowers,
    'mmpretrain::swin_transformer_v2/swinv2-tiny-w8_16xb64_in1k-256px.py': flowers,
    'mmdet::swin/retinanet_swin-t-p4-w7_fpn_1x_coco.py': screws,
    'vitplug::residual_attention/swin-t-p4-w7_cascade-mask-rcnn_8xb2-ms-crop-36e_coco.py': screws,
    'mmseg::vit/vit_deit-s16_upernet_8xb2-160k_ade20k-512x512.py': roads,
}
TASKS = {flowers: 'classification', screws: 'detection', roads: 'segmentation'}


@pytest.mark.slow
@pytest.mark.parametrize('base', STOCK)
def test_bases_of_the_libraries(base, tmp_path):
    """Whole models are built, and the data sets read."""
    make = STOCK[base]
    make(tmp_path / 'data')
    made = new_experiment(tmp_path, TASKS[make], base, '--plugs gab,cb --pretrained none')
    assert made.status == 0, made.text[-3000:]
    cfg = read_config(str(tmp_path / 'my.py'))
    classes = {'detection': 2}.get(TASKS[make], 3)
    assert counted(cfg.model) | counted(cfg.get('data_preprocessor') or {}) == {classes}
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model)
    assert isinstance(model.backbone, PluggedBackbone) and all(block.plugs for block in model.backbone.plugged_blocks())
    assert bad_inputs.run('check_dataset.py my.py', tmp_path).out.endswith('\n0 errors\n')
    if 'retinanet' in base:  # the data has masks, the detector has none
        assert cfg.val_evaluator.metric == 'bbox'


@pytest.mark.slow
def test_boxes_without_masks_take_the_mask_head_out(tmp_path):
    screws(tmp_path / 'data', masks=False)
    (tmp_path / 'base.py').write_text(BASES['detection'])
    assert new_experiment(tmp_path, 'detection', 'base.py', '--plugs gab --epochs 1').status == 0
    trained = passed('train.py my.py --work-dir work', tmp_path)
    assert 'coco/bbox_mAP: ' in trained and 'segm_mAP' not in trained and 'loss_mask' not in trained


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


@pytest.mark.parametrize('task', READERS)
def test_hidden_files_are_overlooked(task, tmp_path):
    """As by data sets: file managers leave them beside every file."""
    DATA[task](tmp_path)
    found = READERS[task](tmp_path, ())
    for path in [path for path in tmp_path.rglob('*') if path.is_file()]:
        path.with_name(f'._{path.name}').write_bytes(b'hidden')
    assert READERS[task](tmp_path, ()) == found


# --- what cannot be read ---


def both(*makes):
    def make(folder):
        for one in makes:
            one(folder)

    return make


def renamed(folder, old, new):
    path = folder / 'valid' / '_annotations.coco.json'
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def third_object(folder, **changes):
    path = folder / 'train' / '_annotations.coco.json'
    content = json.loads(path.read_text())
    content['annotations'][2] |= changes
    path.write_text(json.dumps(content))


REFUSED = {
    'no splits': (
        'classification',
        lambda folder: image(folder / 'rose' / '1.jpg'),
        r'data: expected one folder for train, train\*, and found rose',
    ),
    'two folders for a split': (
        'classification',
        both(flowers, lambda folder: (folder / 'validation').mkdir()),
        r'expected one folder for val, val\*, and found val, validation',
    ),
    'other class folders in val': (
        'classification',
        both(flowers, lambda folder: (folder / 'val/rose').rename(folder / 'val/pink')),
        r"val_dataloader\.dataset has other classes: label 1 is 'pink' here and 'rose'",
    ),
    'object without a mask': (
        'detection',
        both(screws, lambda folder: third_object(folder, segmentation=[])),
        r'annotation 3 has no segmentation, and 7 of 8 objects have one: give it one, or remove all of them',
    ),
    'other categories in val': (
        'detection',
        both(screws, lambda folder: renamed(folder, '"nut"', '"screw"')),
        r"'nut' is not among the categories of data/valid/",
    ),
    'image without a mask': (
        'segmentation',
        both(roads, lambda folder: (folder / 'masks/train/1_mask.png').unlink()),
        r'1 of 2 images have no label map, such as .*1_mask\.png',
    ),
}


@pytest.mark.parametrize('case', REFUSED)
def test_what_cannot_be_read_is_refused_by_name(case, tmp_path):
    task, make, message = REFUSED[case]
    make(tmp_path / 'data')
    (tmp_path / 'base.py').write_text(BASES[task])
    refused(new_experiment(tmp_path, task, 'base.py'), tmp_path, message)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ('--classes cat,dog', r'--classes cat,dog: label maps, and they alone, need names'),
    ],
)
def test_options_without_an_effect_are_refused(options, message, tmp_path):
    screws(tmp_path / 'data')
    (tmp_path / 'base.py').write_text(BASES['detection'])
    refused(new_experiment(tmp_path, 'detection', 'base.py', options), tmp_path, message)


def test_a_base_that_is_no_whole_config_is_refused(tmp_path):
    screws(tmp_path / 'data')
    (tmp_path / 'base.py').write_text("default_scope = 'mmdet'\nmodel = dict(type='MaskRCNN')\n")
    refused(new_experiment(tmp_path, 'detection', 'base.py'), tmp_path, 'has no train_dataloader, val_datal')


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
        rpn_head=dict(num_classes=1),
        head=dict(num_classes=80, loss=dict(class_weight=[1.0] * 80 + [0.1])),
        heads=[dict(type='A', num_classes=80), dict(type='B', num_classes=80)],
        decoders=[dict(num_classes=80, loss=dict(class_weight=[1.0, 2.0, 3.0])), dict(type='C')],
        fusion=dict(num_things_classes=80, num_stuff_classes=53),
        semantic_head=dict(num_classes=183),
        neck=dict(in_channels=[1, 2]),
    )
    model |= dict(backbone=dict(type='vitplug.SwinTransformer', plugs=[]))
    loader = dict(dataset=dict(pipeline=[]))
    cfg = Config(dict(default_scope='mmdet', model=model, train_dataloader=loader))
    change_model(cfg, [], None, True)
    assert eval(text(difference(model, cfg.model.to_dict())), dict(num_classes=2)) == dict(
        head=dict(num_classes=2, loss=dict(class_weight=[1.0, 1.0, 0.1])),
        heads=[dict(type='A', num_classes=2), dict(type='B', num_classes=2)],
        decoders=[dict(num_classes=2, loss=dict(class_weight=None)), dict(type='C')],
        fusion=dict(num_things_classes=2, num_stuff_classes=0),
    )


def test_difference_is_merged_to_the_whole():
    old = dict(a=dict(b=1, c=2), d=[1, dict(e=2)], f=dict(g=1), h=None)
    new = dict(a=dict(b=1, c=3), d=[1], f=dict(i=1), h=dict(j=1))
    changes = difference(old, new)
    assert changes['a'] == dict(c=3) and Config._merge_a_into_b(changes, old) == new


@pytest.mark.parametrize(
    'value', [(1,), (), [], {}, dict(a=[(1, 'x'), None]), [float('inf'), 1e-5], [dict(name='y' * 60)] * 3, 'a"\'b']
)
def test_text_is_the_value(value):
    assert eval(text(value)) == value
    assert all(len(line) <= 120 for line in text(value).splitlines())
