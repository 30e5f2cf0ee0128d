"""Bad images, label maps, annotations, and lists of them."""

import json
import pickle

import numpy as np

from bad_inputs.folder import IMAGES, coco_file
from bad_inputs.harmful import Malicious
from bad_inputs.making import (
    annotation,
    both,
    child,
    class_weight,
    cut,
    empty,
    huge_image,
    link,
    picture,
    remove,
    splits_of_coco,
    splits_of_maps,
    write,
)
from bad_inputs.table import rows

SMALL = np.zeros((4, 4), np.uint8)
FAR = [1, 1, 1e9, 1, 9, 9]

# fmt: off
ROWS = rows({
    'train.py tiny.py': {
        'image folder is missing': (r'no such data folder: .*data/train', remove('data/train')),
        'image folder is empty': (r'the data folder is empty: .*data/train', empty('data/train')),
        'folder that contains itself':
            (r'data/train/cat/again leads to .*data/train again: remove links', link('data/train/cat/again', '..')),
    },
    ('check_dataset.py tiny.py --splits train', 1): {
        'image of 0 bytes': (r'image is empty\n.*data/train/cat/0\.png', cut('data/train/cat/0.png', 0)),
        'image cut short': (r'image is damaged\n.*data/train/cat/0\.png', cut('data/train/cat/0.png', 300)),
        'text with the name of an image':
            (r'of no known format\n.*cat/0\.png', write('data/train/cat/0.png', '<html>404</html>')),
        'small file with an image of 900 million pixels':
            (r'image is damaged\n.*cat/0\.png \(DecompressionBombError',
             huge_image),
    },
    ('check_dataset.py tiny.py --splits train', 0): {
        'grey image': (r'1 x image with grey.*\n.*cat/0\.png', picture('data/train/cat/0.png', SMALL)),
        'image of 16 bit':
            (r'1 x image with 16 bit.*\n.*cat/0\.png', picture('data/train/cat/0.png', np.zeros((4, 4), np.uint16))),
    },
    ('check_dataset.py segment.py --splits train', 1): {
        'label map is missing': (r'1\.png and so 1 of 2 images have no label map', remove('ade/maps/1.png')),
        'label map of another size':
            (r'another size than its image\n.*ade/maps/1\.png \(20 x 16 as loaded, annotated as 4 x 4',
             picture('ade/maps/1.png', SMALL)),
        'label map with labels that are no classes':
            (r'labels outside of the 2 classes\n.*maps/1\.png \(\[9\]\)',
             picture('ade/maps/1.png', np.full((16, 20), 9, np.uint8))),
    },
    ('check_dataset.py detect.py --splits train', 1): {
        'COCO file is missing': (r'no such annotation file: .*coco/train\.json', remove('coco/train.json')),
        'COCO file of 0 bytes': (r'annotation file is empty: .*coco/train\.json', cut('coco/train.json', 0)),
        'COCO file cut short': (r'not valid JSON: .*coco/train\.json', cut('coco/train.json', 90)),
        'COCO file with a list in it':
            (r'coco/train\.json holds a list: expected a dict', write('coco/train.json', '[1, 2]')),
        'COCO file without annotations':
            (r'has no annotations: .*coco/train\.json',
             write('coco/train.json', json.dumps(coco_file() | dict(annotations=[])))),
        'box of three numbers': (r'annotation 1: bbox \[1, 1, 4\]: expected four', annotation(bbox=[1, 1, 4])),
        'box that is not finite': (r'annotation 1: bbox .*: expected four', annotation(bbox=[1, 1, float('nan'), 4])),
        'two annotations of one id': (r'id 3 occurs more than once in annotations', annotation(id=3)),
        'COCO file of lists in lists without an end':
            (r'nested too deeply: .*coco/train\.json', write('coco/train.json', '[' * 100_000)),
    },
    ('check_dataset.py detect.py --splits train', 0): {
        'box without width': (r'1 objects narrower than a pixel, e\.g\. annotation 1', annotation(bbox=[1, 1, 0, 4])),
        'box outside of its image':
            (r'left out: 1 objects outside of the image, e\.g\. annotation 1', annotation(bbox=[90, 1, 4, 4])),
    },
    'train.py tiny.py --cfg-options {}': {
        'annotations in a pickle':
            ('train_dataloader.dataset.ann_file=list.pkl', r"ann_file = 'list\.pkl'.*pickle.*--unsafe-unpickle",
             write('data/list.pkl', pickle.dumps(Malicious()))),
    },
    ('check_dataset.py tiny.py --splits train --cfg-options train_dataloader.dataset.ann_file=list.txt', 1): {
        'line of an image list without a label':
            (r'data/list\.txt, line 2 is not a path and a label', write('data/list.txt', 'cat/0.png 0\ncat/1.png\n')),
        'label of an image list that is no class':
            (r'data/list\.txt, line 2: label 7 is none of the 2 classes',
             write('data/list.txt', 'cat/0.png 0\ncat/1.png 7\n')),
    },
    'train.py tiny.py --cfg-options train_dataloader.dataset.ann_file=list.txt': {
        'line of an image list without a label, in a training':
            (r'data/list\.txt, line 2 is not a path and a label',
             write('data/list.txt', 'cat/0.png 0\ncat/1.png\n')),
    },
    ('train.py tiny.py', 0): {
        'damaged image in a training':
            (r'cannot use data/train/cat/0\.png: .*; another sample takes its place',
             cut('data/train/cat/0.png', 0)),
    },
    ('train.py tiny.py', 65): {
        'nothing but damaged images':
            (r'20 samples in a row cannot be used, the last: cannot use data/train/',
             both(*(cut(name, 0) for name in IMAGES if 'data/train' in name))),
    },
    ('test.py {}', 65): {
        'damaged image in a test':
            ('tiny.py good.pth', r'cannot use data/val/cat/0\.png: .*repair or remove it',
             cut('data/val/cat/0.png', 0)),
    },
    'train.py child.py': {
        'class weights in a pickle':
            (r"class_weight = 'w\.pkl': a pickle or YAML file can run code.*--unsafe-unpickle",
             both(write('w.pkl', pickle.dumps(Malicious())), class_weight('w.pkl'))),
        'class weights in pickled objects of numpy':
            (r'w\.npy is or holds a pickle, which can run code.*--unsafe-unpickle',
             both(lambda folder: np.save(folder / 'w.npy', np.array([Malicious()])), class_weight('w.npy'))),
        'images in pickles':
            (r"decode_backend = 'pickle': read as a pickle, which can run code",
             child(
                 "train_dataloader = dict(dataset=dict(pipeline=[dict(type='mmseg.LoadBiomedicalImageFromFile', "
                 "decode_backend='pickle')]))"
             )),
    },
    'get_flops.py {}': {
        'class weights in a pickle, counted':
            ('child.py', r"class_weight = 'w\.pkl': a pickle or YAML file can run code",
             both(write('w.pkl', pickle.dumps(Malicious())), class_weight('w.pkl'))),
    },
    ('train.py {}', 70): {
        'loss that is not finite':
            ('tiny.py --cfg-options optim_wrapper.optimizer.lr=1e30 default_hooks.non_finite.max_consecutive=1',
             r'the gradients of iteration 2 are not finite.*loss = nan; images: data/train/'),
    },
    'new_experiment.py {}': {
        'own data without folders of splits':
            ('--task classification --base tiny.py --out my.py --data data/train',
             r'data/train has no folder for train and val: .*found cat, dog'),
    },
    'new_experiment.py --task classification --base tiny.py --out my.py --data data': {
        'own class folder without images': (r'class folders without images in data/val: dog', empty('data/val/dog')),
        'own classes that val lacks':
            (r'data/val and data/train differ in the class folders dog', remove('data/val/dog')),
    },
    'new_experiment.py --task detection --data coco --base detect.py --out my.py': {
        'own images without annotations':
            (r'no annotations for val: expected a COCO file such as coco/annotations/instances_val\.json',
             both(splits_of_coco, remove('coco/val.json'))),
        'own images with two COCO files':
            (r'two COCO files for val: coco/person_val\.json and coco/val\.json',
             both(splits_of_coco, write('coco/person_val.json', '{}'))),
        'own annotations that are no COCO file':
            (r'coco/val\.json is no COCO file: expected lists of images, annotations and categories',
             both(splits_of_coco, write('coco/val.json', '[1]'))),
    },
    'new_experiment.py --task segmentation --data town --base segment.py --out my.py': {
        'own masks with colours':
            (r'town/masks/val/0\.png has colours \(RGB\): expected a label map',
             both(splits_of_maps, picture('town/masks/val/0.png', np.zeros((16, 20, 3), np.uint8)))),
        'own masks of 0 and 255':
            (r'masks have the labels 0 \(255 is ignored\).*number the classes 0, 1, 2',
             both(
                 splits_of_maps,
                 *(
                     picture(f'town/masks/{split}/{name}.png', np.full((16, 20), 255 * int(name), np.uint8))
                     for split in ('train', 'val')
                     for name in '01'
                 ),
             )),
    },
})
# fmt: on
