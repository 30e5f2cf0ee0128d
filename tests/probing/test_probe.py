"""`tools/probe.py` on tiny models and images, in one process."""

import csv
import json
import shutil
from unittest import mock

import bad_inputs
import numpy as np
import pytest
import torch
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, MODELS, DefaultScope
from PIL import Image

from vitplug.analysis.study.store import Store
from vitplug.config.reading import read_config
from vitplug.probing.cache import Cache, Record
from vitplug.probing.extractors import Frozen, Pixels, batches
from vitplug.probing.images import Images
from vitplug.probing.kinds import KINDS, Classification
from vitplug.probing.probes import NearestNeighbours
from vitplug.probing.run import split_held_out

pytestmark = pytest.mark.integration

SEGMENTOR = f"""
default_scope = 'mmseg'
_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(32, 32)),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
_info = dict(classes=('cat', 'dog'))
_data = dict(type='BaseSegDataset', data_root='roads', img_suffix='.png', metainfo=_info, pipeline=_pipeline)
train_dataloader = dict(dataset=dict(**_data, data_prefix=dict(img_path='train', seg_map_path='train_maps')))
test_dataloader = dict(dataset=dict(**_data, data_prefix=dict(img_path='test', seg_map_path='test_maps')))
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor', mean=[127.5] * 3, std=[64.0] * 3, seg_pad_val=255, test_cfg=dict(size_divisor=24)
    ),
    backbone=dict({bad_inputs.VIT}, img_size=32, out_type='featmap'),
)
"""
PROBE = 'probe.py --task classification --device cpu --cache cache tiny.py'


def draw(folder, count, rng):
    """Photographs of reddish cats and bluish dogs, with noise."""
    for kind, channel in (('cat', 0), ('dog', 2)):
        (folder / kind).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 200, (16, 16, 3), np.uint8)
            pixels[..., channel] += rng.integers(0, 56, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / kind / f'{number}.png')


def draw_maps(folder, split, count, rng):
    """Images whose bright half is a dog."""
    (folder / split).mkdir(parents=True)
    (folder / f'{split}_maps').mkdir()
    for number in range(count):
        edge = rng.integers(8, 33)
        pixels = rng.integers(0, 100, (40, 40, 3), np.uint8)
        pixels[:, edge:] += 120
        labels = np.zeros((40, 40), np.uint8)
        labels[:, edge:] = 1
        labels[:3] = 255
        Image.fromarray(pixels).save(folder / split / f'{number}.png')
        Image.fromarray(labels).save(folder / f'{split}_maps' / f'{number}.png')


def save_weights(config, path, seed):
    cfg = read_config(str(config))
    torch.manual_seed(seed)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(cfg.model)
    model.init_weights()
    torch.save(dict(meta=dict(cfg=cfg.pretty_text), state_dict=model.state_dict()), path)


@pytest.fixture(scope='module')
def template(tmp_path_factory):
    folder = bad_inputs.prepare(tmp_path_factory.mktemp('probing') / 'a')
    rng = np.random.default_rng(0)
    shutil.rmtree(folder / 'data')
    draw(folder / 'data/train', 12, rng)
    draw(folder / 'data/test', 5, rng)
    shutil.copytree(folder / 'data/test', folder / 'data/val')
    draw_maps(folder / 'roads', 'train', 6, rng)
    draw_maps(folder / 'roads', 'test', 3, rng)
    (folder / 'tiny.py').write_text(
        bad_inputs.CLASSIFIER.replace(
            'test_dataloader = val_dataloader',
            "test_dataloader = dict(**_loader, sampler=_ordered, dataset=dict(**_settings, data_prefix='test'))",
        )
    )
    (folder / 'roads.py').write_text(SEGMENTOR)
    save_weights(folder / 'tiny.py', folder / 'first.pth', 1)
    save_weights(folder / 'tiny.py', folder / 'second.pth', 2)
    return folder


@pytest.fixture
def folder(template, tmp_path, monkeypatch):
    found = shutil.copytree(template, tmp_path / 'b', copy_function=shutil.copy2)
    monkeypatch.chdir(found)
    return found


def probe(folder, arguments, status=0, command=PROBE):
    outcome = bad_inputs.run(f'{command} {arguments}', folder)
    assert outcome.status == status, outcome.text[-3000:]
    return outcome


def models_in(folder):
    """The models of a result, without what takes time."""
    found = json.loads((folder / 'results.json').read_text())['models']
    for model in found.values():
        model.pop('seconds')
    return found


# --- results ---


@pytest.mark.parametrize(
    ('name', 'options'),
    [
        ('knn', '--k 1 5'),
        pytest.param('logistic', '', marks=pytest.mark.slow),
        pytest.param('linear', '--iterations 20 --layers 2', marks=pytest.mark.slow),
    ],
)
def test_models_are_compared_over_seeds(folder, name, options):
    command = f'first.pth --probe {name} {options} --seeds 3 --baseline tiny.py second.pth --controls random pixels'
    outcome = probe(folder, f'{command} --out out')
    found = models_in(folder / 'out')
    assert list(found) == ['model', 'baseline', 'random', 'pixels']
    assert found['baseline']['comparison'] is None and found['model']['comparison']['verdict']
    assert found['model']['images'] == dict(train=24, test=10)
    values = {label: model['values']['top-1']['seeds'] for label, model in found.items()}
    difference = np.mean([values['model'][seed] - values['baseline'][seed] for seed in '012'])
    assert found['model']['comparison']['difference'] == pytest.approx(difference)
    with open(folder / 'out/results.csv') as file:
        rows = list(csv.DictReader(file))
    assert {(row['model'], row['seed'], row['value']) for row in rows} == {
        (label, seed, value) for label in found for seed in '012' for value in ('top-1', 'mean per class')
    }
    assert 'top-1 - baseline' in outcome.out and 'reference' in outcome.out
    for picture in ('values.png', 'predictions.png'):
        assert Image.open(folder / 'out' / picture).size > (100, 100)


def test_maps_of_patches(folder):
    command = 'probe.py --task segmentation --device cpu --cache cache roads.py'
    probe(folder, '--controls pixels --seeds 2 --iterations 60 --layers 2 --out out', command=command)
    found = models_in(folder / 'out')
    assert found['model']['values']['mIoU']['mean'] > 50 and set(found['model']['values']) == {'mIoU', 'mAcc', 'aAcc'}
    assert found['model']['comparison']['verdict'] == 'too few seeds'
    assert Image.open(folder / 'out/predictions.png').size > (100, 100)


def test_more_models_and_seeds_go_on_with_the_features(folder):
    probe(folder, 'first.pth --probe knn --k 3 --seeds 1 --out out')
    first = models_in(folder / 'out')
    with mock.patch.object(Frozen, '__call__', side_effect=AssertionError):
        probe(folder, 'first.pth --probe knn --k 3 --seeds 3 --out out')
    again = models_in(folder / 'out')
    assert again['model']['values']['top-1']['seeds']['0'] == first['model']['values']['top-1']['seeds']['0']
    probe(folder, 'first.pth --probe knn --k 3 --also other-2 tiny.py second.pth --out further')
    assert list(models_in(folder / 'further')) == ['model', 'other-2']


# --- what a probe sees ---


class Spy(NearestNeighbours):
    """Keeps what it was given."""

    seen: list = []

    def fit(self, samples, held_out, score, seed):
        self.seen.append((samples.features_ND.numpy(), held_out.features_ND.numpy(), seed))
        return super().fit(samples, held_out, score, seed)


def test_no_test_image_is_seen_and_a_tenth_is_held_out(folder):
    with mock.patch('vitplug.probing.probe_command.NearestNeighbours', Spy):
        probe(folder, '--probe knn --k 1 --seeds 2 --out out')
    rows = lambda array: {row.tobytes() for row in array}  # noqa: E731
    cache = next((folder / 'cache').iterdir())
    train, test = (rows(np.load(cache / f'{split}.00000.npz')['features']) for split in ('train', 'test'))
    held = []
    for fitted, held_out, _ in Spy.seen:
        assert (len(fitted), len(held_out)) == (22, 2)
        assert rows(fitted) | rows(held_out) == train and not rows(fitted) & rows(held_out)
        assert not (rows(fitted) | rows(held_out)) & test
        held.append(rows(held_out))
    assert [seed for *_, seed in Spy.seen] == [0, 1] and held[0] != held[1]


@pytest.mark.parametrize(
    ('name', 'options'),
    [
        ('knn', '--k 1 3 9'),
        pytest.param('logistic', '', marks=pytest.mark.slow),
        ('linear', '--iterations 15'),
    ],
)
def test_choices_do_not_depend_on_the_test_set(folder, name, options):
    """With the test classes swapped, the same heads are chosen: right predictions become wrong."""
    command = f'first.pth --probe {name} {options} --seeds 3'
    probe(folder, f'{command} --out before')
    for source, target in (('cat', 'bird'), ('dog', 'cat'), ('bird', 'dog')):
        (folder / 'data/test' / source).rename(folder / 'data/test' / target)
    probe(folder, f'{command} --out after')
    before, after = (models_in(folder / name)['model'] for name in ('before', 'after'))
    assert before['chosen'] == after['chosen'] and before['held_out'] == after['held_out']
    for seed, value in before['values']['top-1']['seeds'].items():
        assert after['values']['top-1']['seeds'][seed] == pytest.approx(100 - value)


def test_images_in_both_splits_are_refused(folder):
    (folder / 'both.py').write_text("_base_ = 'tiny.py'\ntest_dataloader = dict(dataset=dict(data_prefix='train'))")
    outcome = probe(folder, '--out out', status=2, command=PROBE.replace('tiny.py', 'both.py'))
    assert '24 images are in train_dataloader and in test_dataloader' in outcome.err


@DATASETS.register_module()
class RedInMemory(BaseDataset):
    """A red image in memory, red first as mmpretrain's CIFAR10 has them; its label may be no class."""

    METAINFO = dict(classes=('cat', 'dog'))

    def __init__(self, label=0, **settings):
        self.label = label
        super().__init__(**settings)

    def load_data_list(self):
        return [dict(img=np.full((8, 8, 3), (200, 10, 20), np.uint8), gt_label=self.label)]


def in_memory(**settings):
    cfg = read_config('tiny.py')
    cfg.test_dataloader.dataset = dict(type='RedInMemory', pipeline=[dict(type='mmpretrain.PackInputs')], **settings)
    return Images(cfg, 'test', None, cfg)


def test_pictures_are_red_first(folder):
    held = in_memory()
    assert held.picture(0, held[0]['inputs'])[0, 0].tolist() == [200, 10, 20]
    cfg = read_config('tiny.py')
    filed = Images(cfg, 'test', 1, cfg)
    red, _, blue = filed.picture(0, filed[0]['inputs']).mean((0, 1))  # a reddish cat, in a file
    assert red > blue + 10


@pytest.mark.parametrize('label', [-1, 2])
def test_labels_that_are_no_classes_are_named(folder, label):
    sample = in_memory(label=label)[0]['data_samples']
    with pytest.raises(ValueError, match=rf'image 0 in memory has the label {label}: expected 0 to 1'):
        KINDS['classification'].label(sample, 2)
    path = folder / 'roads/train_maps/0.png'
    labels = np.array(Image.open(path))
    labels[5, 5] = label % 256 - (label < 0)  # 255 is void
    Image.fromarray(labels).save(path)
    roads = PROBE.replace('classification', 'segmentation').replace('tiny.py', 'roads.py')
    outcome = probe(folder, '--probe knn --k 1 --seeds 1 --out out', status=2, command=roads)
    assert f'train/0.png has the label {labels[5, 5]}: expected 0 to 1' in outcome.err


def test_a_seed_holds_out_the_same_images_for_all():
    held = [split_held_out(50, seed) for seed in (0, 0, 1)]
    assert held[0].sum() == 5 and (held[0] == held[1]).all() and (held[0] != held[2]).any()


# --- stopped and continued ---


def test_a_stopped_run_goes_on_and_gives_the_same(folder):
    command = 'first.pth --probe linear --iterations 15 --seeds 3 --controls random'
    with mock.patch.object(Classification, 'chunk', 4):
        probe(folder, f'{command} --out whole')
        stopped = f'{command} --out parts --cache other'
        calls = []

        def stop(*arguments, **settings):
            calls.append(arguments)
            if len(calls) in (3, 9):
                raise KeyboardInterrupt
            return original(*arguments, **settings)

        original = Frozen.__call__
        with mock.patch.object(Frozen, '__call__', lambda *arguments: stop(*arguments)):
            outcome = probe(folder, stopped, status=75)
            assert 'the same command goes on' in outcome.err
            assert len(list((folder / 'other').rglob('train.*.npz'))) == 2
            probe(folder, stopped, status=75)
        original, calls = Store.add, []
        with mock.patch.object(Store, 'add', lambda *arguments: stop(*arguments)):
            probe(folder, stopped, status=75)
        probe(folder, stopped)
    assert models_in(folder / 'parts') == models_in(folder / 'whole')


def test_another_call_in_the_folder_is_refused(folder):
    probe(folder, 'first.pth --probe knn --k 1 --seeds 1 --out out')
    outcome = probe(folder, 'second.pth --probe knn --k 2 --seeds 1 --out out', status=2)
    assert '--out: out is of another analysis (settings: ' in outcome.err and 'models: ' in outcome.err


# --- the cache ---


def two_caches(folder):
    """Folders of the features of two models."""
    for name in ('first', 'second'):
        probe(folder, f'{name}.pth --probe knn --k 1 --seeds 1 --out {name}')
    found = {name: models_in(folder / name)['model']['features'] for name in ('first', 'second')}
    return folder / 'cache' / found['first'], folder / 'cache' / found['second']


def refused(folder, *words):
    outcome = probe(folder, 'first.pth --probe knn --k 1 --seeds 1 --out again', status=2)
    assert all(word in outcome.err for word in words), outcome.err
    assert not (folder / 'again/results.json').exists()


def test_features_of_another_model_are_refused(folder):
    mine, other = two_caches(folder)
    assert mine != other
    shutil.copy(other / 'test.00000.npz', mine / 'test.00000.npz')
    refused(folder, f'{mine.name}/test.00000.npz was changed, or holds features of other weights, data or pixels')


def test_a_whole_folder_of_another_model_is_refused(folder):
    mine, other = two_caches(folder)
    shutil.rmtree(mine)
    shutil.copytree(other, mine)
    refused(folder, f'{mine.name} holds features of other weights', 'remove the folder')


def test_a_changed_number_is_refused(folder):
    mine, _ = two_caches(folder)
    path = mine / 'train.00000.npz'
    with np.load(path) as content:
        arrays = dict(content)
    arrays['features'][0, 0] += 1e-3
    np.savez(path, **arrays)
    refused(folder, f'{mine.name}/train.00000.npz was changed')


def test_a_cut_file_is_refused(folder):
    mine, _ = two_caches(folder)
    path = mine / 'train.00000.npz'
    path.write_bytes(path.read_bytes()[:-100])
    refused(folder, f'{mine.name}/train.00000.npz cannot be read', 'remove it')


@pytest.mark.parametrize(
    'change',
    [
        lambda folder: (folder / 'data/train/cat/0.png').write_bytes((folder / 'data/train/cat/1.png').read_bytes()),
        lambda folder: bad_inputs.child('model = dict(data_preprocessor=dict(std=[60.0] * 3))', 'tiny2.py')(folder),
        lambda folder: bad_inputs.child(
            "model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))", 'tiny2.py'
        )(folder),
    ],
    ids=['data', 'pixels', 'plugs'],
)
def test_other_data_pixels_and_plugs_have_other_features(folder, change):
    probe(folder, '--probe knn --k 1 --seeds 1 --out before')
    change(folder)
    config = 'tiny2.py' if (folder / 'tiny2.py').exists() else 'tiny.py'
    probe(folder, '--probe knn --k 1 --seeds 1 --out after', command=PROBE.replace('tiny.py', config))
    before, after = (models_in(folder / name)['model']['features'] for name in ('before', 'after'))
    assert before != after


def test_too_many_features_are_refused_before_they_are_computed(folder):
    with mock.patch.object(Classification, 'chunk', 4):
        outcome = probe(folder, '--probe knn --cache-gib 1e-6 --out out', status=2)
    assert '--cache-gib 1e-06: cache has 0.00 GiB, and ' in outcome.err and 'fewer --layers' in outcome.err
    assert not list((folder / 'cache').rglob('*.npz'))


def test_records_come_back_as_they_were(tmp_path):
    rng = np.random.default_rng(0)
    records = [
        Record(rng.normal(size=(6, 3)).astype(np.float32), rng.integers(0, 3, size, np.uint8), (2, 3), (4, 6), size)
        for size in ((4, 5), (3, 6), (2, 2))
    ]
    cache = Cache(tmp_path, dict(a=1), 2)
    with cache.opened():
        cache.fill('train', 3, lambda wanted: [records[index] for index in wanted], 1)
    for found, record in zip(Cache(tmp_path, dict(a=1), 2).records('train', 3), records, strict=True):
        assert np.array_equal(found.features, record.features) and np.array_equal(found.label, record.label)
        assert (found.grid, found.padded, found.shape) == (record.grid, record.padded, record.shape)


# --- features ---


def frozen(folder, text, layers=1, dense=False, pool='cls+mean', base='tiny.py'):
    (folder / 'host.py').write_text(f"_base_ = '{base}'\nmodel = dict(backbone=dict(_delete_=True, {text}))")
    return Frozen(read_config('host.py'), None, dense, layers, pool, 'cpu')


VIT = 'arch=dict(embed_dims=8, num_layers=3, num_heads=2, feedforward_channels=16), img_size=32, patch_size=8'
HOSTS = {
    'vit': (f"type='vitplug.VisionTransformer', {VIT}", 2, 2 * 16, 2 * 8),
    'stock vit': (f"type='mmpretrain.VisionTransformer', {VIT}", 2, 2 * 16, 2 * 8),
    'registers': (f"type='vitplug.VisionTransformer', {VIT}, plugs=[dict(type='Registers')]", 1, 16, 8),
    'resnet': ("type='mmpretrain.ResNet', depth=18, base_channels=4, stem_channels=4", 2, 16 + 32, 16 + 32),
    'swin': (
        "type='mmpretrain.SwinTransformer', arch=dict(embed_dims=8, depths=[1, 1], num_heads=[2, 2]), img_size=32, "
        'window_size=4, out_indices=(1,)',
        2,
        8 + 16,
        8 + 16,
    ),
}


@pytest.mark.parametrize('name', HOSTS)
def test_any_backbone_can_be_probed(folder, name):
    text, layers, width, dense_width = HOSTS[name]
    images = torch.randn(2, 3, 32, 32)
    features, grid = frozen(folder, text, layers)(images)
    assert features.shape == (2, 1, width) and grid == (1, 1)
    features, grid = frozen(folder, text, layers, dense=True, base='roads.py')(images)
    assert features.shape == (2, grid[0] * grid[1], dense_width) and grid >= (2, 2)


@pytest.mark.parametrize(('pool', 'slices'), [('cls', 1), ('mean', 2), ('cls+mean', 3)])
def test_features_of_a_transformer(folder, pool, slices):
    images = torch.randn(2, 3, 32, 32)
    text = f"type='mmpretrain.VisionTransformer', {VIT}"
    found, _ = frozen(folder, text, 2, pool=pool)(images)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = frozen(folder, f"{text}, out_type='raw', out_indices=[1, 2]").backbone
    expected = []
    for tokens in model(images):
        expected += [tokens[:, 0]] * (pool != 'mean') + [tokens[:, 1:].mean(1)] * (pool != 'cls')
    torch.testing.assert_close(found[:, 0], torch.cat(expected, -1))


def test_pixels_of_patches_are_those_of_the_image():
    images = torch.arange(2 * 3 * 16 * 24.0).reshape(2, 3, 16, 24)
    features, grid = Pixels(dense=True)(images)
    assert grid == (2, 3)
    assert torch.equal(features[1, 4].reshape(3, 8, 8), images[1, :, 8:16, 8:16])


def test_images_of_several_sizes_are_not_padded():
    images = [torch.zeros(3, *size) for size in ((4, 4), (4, 4), (4, 4), (4, 5), (4, 4))]
    assert batches(images, 2) == [[0, 1], [2], [3], [4]]


def test_stock_backbones_take_weights_of_the_same_names_only(folder):
    text = "type='mmpretrain.ResNet', depth=18, base_channels=4, stem_channels=4"
    made = frozen(folder, text)
    weights = {f'backbone.{name}': value + 1.0 for name, value in made.backbone.state_dict().items()}
    torch.save(dict(state_dict=weights), folder / 'resnet.pth')
    loaded = Frozen(read_config('host.py'), 'resnet.pth', False, 1, 'cls', 'cpu').backbone.state_dict()
    assert all(torch.equal(loaded[name.removeprefix('backbone.')], value) for name, value in weights.items())
    with pytest.raises(ValueError, match=r'first.pth is of another network than ResNet: it lacks .*; it has besides'):
        Frozen(read_config('host.py'), 'first.pth', False, 1, 'cls', 'cpu')


# --- bad settings ---


REFUSED = {
    'task': (PROBE.replace('classification', 'segmentation'), '--task segmentation: tiny.py is of classification'),
    'detection': (PROBE.replace('tiny.py', 'mask.py'), 'is of detection (mmdet), which is not probed'),
    'no checkpoint': (f'{PROBE} nowhere.pth', 'nowhere.pth'),
    'layers': (f'{PROBE} --layers 3', '--layers 3: the backbone of tiny.py has 2 outputs'),
    'no layers': (f'{PROBE} --layers 0', '--layers 0: expected at least 1'),
    'seeds': (f'{PROBE} --seeds 0', '--seeds 0: expected at least 1'),
    'train images': (f'{PROBE} --num-train 1', '--num-train 1: expected at least 2'),
    'k of another probe': (f'{PROBE} --k 3', '--k: is for --probe knn, not for linear'),
    'k': (f'{PROBE} --probe knn --k 0', '--k 0: expected at least 1 neighbour'),
    'temperature': (f'{PROBE} --probe knn --temperature 0', '--temperature 0: expected a positive number'),
    'iterations': (f'{PROBE} --probe knn --iterations 3', '--iterations: is for --probe linear, not for knn'),
    'patches of images': (f'{PROBE} --patches 3', '--patches: is for --task segmentation, not for classification'),
    'pool of patches': (
        f'{PROBE.replace("classification", "segmentation").replace("tiny.py", "roads.py")} --pool cls',
        '--pool: is for --task classification, not for segmentation',
    ),
    'random twice': (f'{PROBE} --controls random', '--controls random: the model itself has initial weights'),
    'name': (f'{PROBE} --also model tiny.py', '--also model: expected a name'),
    'no config': (f'{PROBE} --also other', '--also other: expected NAME CONFIG [CHECKPOINT]'),
    'baseline': (f'{PROBE} --baseline a b c', '--baseline: expected CONFIG [CHECKPOINT], got 3'),
    'baseline of another task': (f'{PROBE} --baseline roads.py', 'roads.py is of segmentation'),
    'other network': (
        f'{PROBE} first.pth --cfg-options model.backbone.arch.num_layers=1',
        'another network',
    ),
    'limit': (f'{PROBE} --cache-gib 0', '--cache-gib 0: expected a positive number'),
    'folder': (f'{PROBE.replace("--cache", "--out data --cache")}', '--out: data holds other files'),
    'device': (f'{PROBE} --device cuda:77', '--device cuda:77'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_bad_settings_are_refused_before_an_image_is_read(folder, name):
    command, words = REFUSED[name]
    if '--out' not in command:
        command += ' --out out'
    with mock.patch('vitplug.probing.images.Images.__getitem__', side_effect=AssertionError('an image is read')):
        outcome = bad_inputs.run(command, folder)
    assert outcome.status == 2 and 'an image is read' not in outcome.text
    assert words in outcome.err, outcome.err
    assert not (folder / 'out').exists() and not (folder / 'cache').exists()


def test_detection_is_no_choice(folder):
    outcome = probe(folder, '--out out', status=2, command=PROBE.replace('classification', 'detection'))
    assert "invalid choice: 'detection'" in outcome.err


def test_every_probed_task_has_its_library():
    assert {kind.library for kind in KINDS.values()} == {'mmpretrain', 'mmseg'}
