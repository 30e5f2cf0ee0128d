"""Settings for other classes than those of the data."""

import json

import numpy as np

from bad_inputs.folder import coco_file
from bad_inputs.making import both, categories, child, encoded, picture, remove, without_classes, write
from bad_inputs.table import rows

COLOURS = both(*(picture(f'ade/maps/{number}.png', np.zeros((16, 20, 3), np.uint8)) for number in '01'))
EVALUATED = both(
    write(
        'evaluated.py',
        "_base_ = 'mask.py'\nval_evaluator = dict(_delete_=True, type='CocoMetric', ann_file='coco/val.json')\n"
        'val_dataloader = dict(_delete_=True, dataset={{_base_.train_dataloader.dataset}})\n',
    ),
    write('coco/val.json', json.dumps(coco_file())),
)

# fmt: off
ROWS = rows({
    'train.py tiny.py --cfg-options {}': {
        'head for other classes': ('model.head.num_classes=80', r'model\.head\.num_classes = 80: set it to 2'),
        'annotations behind an address where nobody answers':
            ('train_dataloader.dataset.ann_file=http://127.0.0.1:9/a.txt',
             r'http://127\.0\.0\.1:9/a\.txt cannot be read: .*refused'),
    },
    'test.py {}': {
        'head for other classes, in a test':
            ('tiny.py good.pth --cfg-options model.head.num_classes=80',
             r"2 classes \(test_dataloader\..*'cat', 'dog'\): model\.head\.num_classes = 80: set it to 2"),
    },
    ('check_dataset.py {}', 1): {
        'head for other classes, checked':
            ('tiny.py --splits train --cfg-options model.head.num_classes=80',
             r'settings for other classes than the 2 of the data\n.*model\.head\.num_classes \(= 80: set it to 2'),
        'COCO file without metainfo, checked':
            ('child.py --splits train', r"has the categories 'cat', 'dog', and 78 of the 80 classes", without_classes),
        'label maps of colours':
            ('segment.py --splits train', r'2 x label map of several channels: expected one channel .*\n.*3 channels',
             COLOURS),
        'annotations behind an address where nobody answers, checked':
            ('detect.py --splits train --cfg-options train_dataloader.dataset.ann_file=http://127.0.0.1:9/a.json',
             r'http://127\.0\.0\.1:9/a\.json cannot be read: .*refused'),
    },
    'train.py child.py': {
        'several counts left over from another data set':
            (r'data_preprocessor\.num_classes = 1000: set it to 2; .*num_classes = 1000: set it to 2; '
             r'val_evaluator\.topk',
             child(
                 'model = dict(data_preprocessor=dict(num_classes=1000), head=dict(num_classes=1000))\n'
                 "val_evaluator = dict(type='Accuracy', topk=(1, 5))"
             )),
        'class weights of another data set':
            (r'model\.head\.loss\.class_weight has 11 entries: give it 2',
             child("model = dict(head=dict(loss=dict(type='CrossEntropyLoss', class_weight=[1.0] * 11)))")),
        'classes without a comma':
            (r"metainfo\.classes = 'cat': expected a list of names.*\('cat',\)",
             child("train_dataloader = dict(dataset=dict(metainfo=dict(classes=('cat'))))")),
        'COCO file without metainfo':
            (r"coco/train\.json has the categories 'cat', 'dog', .*set train_dataloader\.dataset\.metainfo = "
             r"dict\(classes=\('cat', 'dog'\)\)", without_classes),
    },
    'train.py {}': {
        'detection heads for other classes':
            ('mask.py --cfg-options model.roi_head.bbox_head.num_classes=80',
             r'model\.roi_head\.bbox_head\.num_classes = 80: set it to 2$'),
    },
    'train.py tiny.py': {
        'folder that is none of a class':
            (r"data/train has 3 folders for 2 classes .*no class for '\.ipynb_checkpoints'",
             lambda folder: (folder / 'data/train/.ipynb_checkpoints').mkdir()),
        'validation folders of other classes':
            (r"val_dataloader\.dataset has other classes: label 1 is 'eel' here and 'dog' in train_dataloader",
             lambda folder: (folder / 'data/val/dog').rename(folder / 'data/val/eel')),
    },
    'train.py mask.py': {
        'category with a slip in its name':
            (r"'dog' not among the categories of coco/train\.json: did you mean 'dgo'", categories('cat', 'dgo')),
        'categories in another order than the classes':
            (r"another order.*set train_dataloader\.dataset\.metainfo = dict\(classes=\('dog', 'cat'\)\)",
             categories('dog', 'cat')),
        'COCO file with a byte order mark':
            (r'not valid JSON: .*coco/train\.json \(it begins with a byte order mark', encoded('utf-8-sig')),
        'missing data of your own in a config that inherits the digits':
            (r'no such data folder: .*coco/train$', remove('coco/train')),
    },
    ('check_dataset.py detect.py --splits train', 1): {
        'category with a slip in its name, checked':
            (r"did you mean 'dgo' in place of 'dog'", categories('cat', 'dgo')),
        'COCO file in UTF-16': (r'not valid JSON: .*coco/train\.json \(it is not in UTF-8', encoded('utf-16')),
        'COCO file that is a number': (r'file holds a int, expected a dict', write('coco/train.json', '7')),
    },
    ('check_dataset.py {}', 0): {
        'categories that are left out on purpose':
            ('detect.py --splits train',
             r"1 x left out\n.*categories 'eel' are no classes of the data set and are left out",
             categories('cat', 'eel', 'dog')),
    },
    ('train.py {}', 0): {
        'categories that are left out on purpose, in a training':
            ('mask.py', r"categories 'eel' are no classes of the data set and are left out",
             categories('cat', 'eel', 'dog')),
        'schedule longer than the training':
            ('child.py',
             r'param_scheduler\.0 \(LinearLR\) ends after 20 epochs, the training after 1: set param_scheduler',
             child("param_scheduler = [dict(type='LinearLR', by_epoch=True, end=20)]")),
    },
    'train.py evaluated.py': {
        'renamed categories in what a metric reads':
            (r"coco/val\.json has the categories 'katze', 'hund', and 2 of the 2 classes",
             both(EVALUATED, categories('katze', 'hund', name='coco/val.json'))),
        'category that is missing in what a metric reads':
            (r"'dog' not among the categories of coco/val\.json",
             both(EVALUATED, categories('cat', name='coco/val.json'))),
    },
})
# fmt: on
