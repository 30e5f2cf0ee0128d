"""tools/analysis_tools/robustness.py on tiny models: numbers by hand, models side by side, interruptions, bad input."""

import contextlib
import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import bad_inputs
import numpy as np
import pytest
import torch
from mmcv.transforms import LoadImageFromFile
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from PIL import Image

from vitplug.config.reading import read_config
from vitplug.robustness import columns, suites
from vitplug.robustness import run as running
from vitplug.robustness.columns import Column, read_columns
from vitplug.robustness.results import JSON
from vitplug.robustness.suites import Options

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
CB = "model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))"
BOTH = 'tiny.py trained.pth cb.py cb.pth'
COMMAND = f'robustness.py {BOTH} --device cpu --out {{}} --suite'


@pytest.fixture(scope='module')
def template(tmp_path_factory):
    """A classifier of 44 images, trained for some steps without and with CB."""
    folder = bad_inputs.prepare(tmp_path_factory.mktemp('robust') / 'a')
    random = np.random.default_rng(0)
    for kind, colour in (('cat', (90, 120, 150)), ('dog', (150, 120, 90))):
        for number in range(20):
            pixels = random.normal(colour, 60, (20, 24, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f'data/val/{kind}/{number:02}.png')
    bad_inputs.child(CB, 'cb.py')(folder)
    with contextlib.chdir(folder):
        for config, path in (('tiny.py', 'trained.pth'), ('cb.py', 'cb.pth')):
            train(config, path)
    return folder


@pytest.fixture
def folder(template, monkeypatch):
    monkeypatch.chdir(template)
    return template


def train(config, path):
    """Some steps of gradient descent on the test images, so that there is accuracy to lose."""
    from mmengine.registry import DATASETS, MODELS, init_default_scope

    cfg = Config.fromfile(config)
    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    model, data = MODELS.build(cfg.model), DATASETS.build(cfg.test_dataloader.dataset)
    model.init_weights()
    batch = pseudo_collate([data[index] for index in range(len(data))])
    descent = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(12):
        descent.zero_grad()
        model(**model.data_preprocessor(batch, True), mode='loss')['loss'].backward()
        descent.step()
    torch.save(dict(meta=dict(cfg=cfg.pretty_text), state_dict=model.state_dict()), path)


def robustness(folder, suite, out, status=0, models=BOTH):
    outcome = bad_inputs.run(f'robustness.py {models} --device cpu --out {out} --suite {suite}', folder)
    assert outcome.status == status, outcome.text[-3000:]
    return outcome


def found_in(out):
    return json.loads((out / JSON).read_text())


def value_of(found, suite, condition, model, quantity='score', value='top-1'):
    return found['suites'][suite]['conditions'][condition]['values'][value][model][quantity]['mean']


# --- numbers ---


def accuracy_by_hand(change, config='tiny.py', checkpoint='trained.pth'):
    """Top-1 of the test images, after a change of the normalised images ``(3, 16, 16)``."""
    [column] = read_columns([(config, checkpoint)], [], None, 'cpu', False)
    right = []
    for index in range(len(column.dataset)):
        packed = column.dataset[index]
        image = (packed['inputs'].float() - 127.5) / 64
        right.append(column.model(change(image)[None], mode='tensor').argmax() == packed['data_samples'].gt_label)
    return 100 * float(torch.cat(right).float().mean())


def shifted(image):
    moved = torch.zeros_like(image)
    moved[:, :, 7:] = image[:, :, :-7]  # 45 % of 16 are 7.2 pixels
    return moved


def occluded(image):
    image = image.clone()
    image[:, 4:12, 4:12] = 0
    return image


@pytest.mark.slow
def test_suites_of_a_classifier_by_hand(folder, tmp_path):
    out = tmp_path / 'out'
    said = robustness(
        folder, 'cb-table8 revit-table4 revit-table5 revit-table6 refiner-table5 --epsilon 4/255', out
    ).out
    found = found_in(out)
    assert found['images'] == 44
    clean = accuracy_by_hand(lambda image: image)
    assert clean > 60
    for model in ('tiny', 'cb'):
        pair = (f'{model}.py', 'trained.pth' if model == 'tiny' else 'cb.pth')
        for suite, condition, change in (
            ('revit-table4', 'clean', lambda image: image),
            ('revit-table4', 'shift right 45 %', shifted),
            ('revit-table5', 'shift down 45 %', lambda image: shifted(image.mT).mT),
            ('cb-table8', 'centre occluded', occluded),
        ):
            assert value_of(found, suite, condition, model) == pytest.approx(accuracy_by_hand(change, *pair)), condition
    # Drops and differences belong to the scores.
    for suite, condition in (('revit-table6', 'smaller by 30 %'), ('cb-table8', 'FGSM, epsilon 4/255')):
        scores = {model: value_of(found, suite, condition, model) for model in ('tiny', 'cb')}
        before = {model: value_of(found, suite, 'clean', model) for model in ('tiny', 'cb')}
        drops = {model: value_of(found, suite, condition, model, 'drop') for model in ('tiny', 'cb')}
        assert drops == pytest.approx({model: before[model] - scores[model] for model in scores})
        assert value_of(found, suite, condition, 'cb', 'difference') == pytest.approx(scores['cb'] - scores['tiny'])
        of_drops = value_of(found, suite, condition, 'cb', 'difference of drops')
        assert of_drops == pytest.approx(drops['cb'] - drops['tiny'])
    check_files(out, found, said)


def check_files(out, found, said):
    """The CSV file has the numbers of the JSON file; the tables have the papers' figures and what these leave open."""
    with open(out / 'results.csv') as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        conditions = found['suites'][row['suite']]['conditions']
        numbers = conditions[row['condition']]['values'][row['value']][row['model']][row['quantity']]
        assert [float(row[end]) if row[end] else None for end in ('mean', 'low', 'high')] == [
            numbers[end] for end in ('mean', 'low', 'high')
        ]
    assert len(rows) == sum(
        len(by_model)
        for suite in found['suites'].values()
        for condition in suite['conditions'].values()
        for models in condition['values'].values()
        for by_model in models.values()
    )
    assert "CB's ViT-S 73.0, with CB 74.0" in said and 'choice: the paper names no direction' in said
    names = {'examples', 'revit-table4.top-1', 'revit-table5.top-1', 'revit-table6.top-1', 'refiner-table5.top-1'}
    assert {path.stem for path in out.glob('*.png')} == names


def test_attack_is_the_gradients_of_the_pixels(folder, tmp_path):
    """FGSM by hand, with the normalisation written out; PGD does at least as much."""
    out = tmp_path / 'out'
    robustness(folder, 'cb-table8 --epsilon 6/255 --pgd 5', out)
    found = found_in(out)
    [column] = read_columns([('tiny.py', 'trained.pth')], [], None, 'cpu', False)
    right = 0
    for index in range(44):
        packed = column.dataset[index]
        pixels = (packed['inputs'].float() / 255).requires_grad_()
        label = packed['data_samples'].gt_label
        loss = torch.nn.functional.cross_entropy(column.model((pixels[None] * 255 - 127.5) / 64, mode='tensor'), label)
        [slope] = torch.autograd.grad(loss, pixels)
        attacked = (pixels + 6 / 255 * slope.sign()).clamp(0, 1).detach()
        right += int(column.model((attacked[None] * 255 - 127.5) / 64, mode='tensor').argmax() == label)
    fgsm = value_of(found, 'cb-table8', 'FGSM, epsilon 6/255', 'tiny')
    assert fgsm == pytest.approx(100 * right / 44) and fgsm < value_of(found, 'cb-table8', 'clean', 'tiny')
    assert value_of(found, 'cb-table8', 'PGD, 5 steps, epsilon 6/255', 'tiny') <= fgsm


def test_calibrated_attack_has_the_accuracy_that_was_asked_for(folder, tmp_path):
    out = tmp_path / 'out'
    said = robustness(folder, 'cb-table8 --calibrate 88', out).out
    [attacked] = [name for name in found_in(out)['suites']['cb-table8']['conditions'] if name.startswith('FGSM')]
    assert value_of(found_in(out), 'cb-table8', attacked, 'tiny') == pytest.approx(88, abs=2.3)
    assert '(asked: 88) under FGSM of epsilon' in said
    outcome = robustness(folder, 'cb-table8 --calibrate 99.9', tmp_path / 'other', 2)
    assert '--calibrate 99.9: tiny has' in outcome.err and 'choose an accuracy between them' in outcome.err


def test_noise_is_repeated_and_depends_on_the_seed(folder, tmp_path):
    found = []
    for name, more in (('a', ''), ('b', ''), ('c', '--seed 7')):
        robustness(folder, f'cb-table12 --repeats 2 --num 6 {more}', tmp_path / name)
        found.append(found_in(tmp_path / name)['suites'])
    assert found[0] == found[1] != found[2]
    noise = found[0]['cb-table12']['conditions']['Gaussian noise, sigma 10']['values']['top-1']['cb']
    assert noise['score over repeats']['n'] == 2 and noise['score']['n'] == 6
    blur = found[0]['cb-table12']['conditions']['Gaussian blur, sigma 2']['values']['top-1']['cb']
    assert 'score over repeats' not in blur


# --- corruptions ---


def test_corruptions_and_their_means(folder, tmp_path, monkeypatch):
    """On images of 32 pixels; the severity 0 is the clean row."""
    out = tmp_path / 'out'
    monkeypatch.setattr(suites, 'corruption_names', lambda subset: ['gaussian_noise', 'brightness', 'saturate'])
    larger = (
        "pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(32, 32)), dict(type='PackInputs')]\n"
    )
    larger += 'test_dataloader = dict(dataset=dict(pipeline=pipeline))\nmodel = dict(backbone=dict(img_size=32))'
    bad_inputs.child(larger, 'larger.py')(folder)
    train('larger.py', 'larger.pth')
    severities = 'corruptions --severities 0 3 5 --num 10'
    said = robustness(folder, severities, out, models='larger.py larger.pth').out
    found = found_in(out)
    rows = [value_of(found, 'corruptions', f'{name}, severity {severity}', 'larger')
            for name in ('gaussian_noise', 'brightness') for severity in (3, 5)]  # fmt: skip
    mean = value_of(found, 'corruptions', 'mean over severities 3, 5, the 15 corruptions', 'larger')
    assert mean == pytest.approx(np.mean(rows))
    milder = value_of(found, 'corruptions', 'mean over severities 3, 5, noise up to severity 3', 'larger')
    assert milder == pytest.approx(np.mean([rows[0], *rows[2:]]))
    clean = value_of(found, 'corruptions', 'clean', 'larger')
    ratio = value_of(found, 'corruptions', 'mean over severities 3, 5 / P, in %', 'larger')
    assert ratio == pytest.approx(100 * mean / clean)
    assert 'Common corruptions, computed in memory: not ImageNet-C' in said


# --- models of timm ---


def test_model_of_timm_is_tested_as_timm_does(folder, tmp_path):
    timm = pytest.importorskip('timm')
    torch.manual_seed(1)
    model = timm.create_model('test_vit', num_classes=2).eval()
    torch.save(model.state_dict(), tmp_path / 'timm.pth')
    timms = ('test_vit', str(tmp_path / 'timm.pth'))
    _, column = read_columns([('tiny.py', 'trained.pth')], [timms], None, 'cpu', False)
    from timm.data import create_transform, resolve_model_data_config

    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    for index in (0, 43):
        path = column.dataset.get_data_info(index)['img_path']
        expected = model(transform(Image.open(path).convert('RGB'))[None]).softmax(1)
        [found] = column.predict(pseudo_collate([column.dataset[index]]), None)
        torch.testing.assert_close(found.pred_score, expected[0], rtol=1e-4, atol=1e-5)
    in_memory = read_config('tiny.py')
    in_memory.test_dataloader.dataset.pipeline = [dict(type='PackInputs')]
    column = columns._timm_column('timm', *timms, in_memory, 'cpu')
    red = np.full((200, 200, 3), (200, 10, 20), np.uint8)  # data sets keep images red first
    assert Compose(column.pipeline)(dict(img=red))['inputs'][:, 0, 0].tolist() == [200, 10, 20]
    out = tmp_path / 'out'
    robustness(folder, f'revit-table4 refiner-table5 --num 6 --timm {" ".join(timms)}', out)
    found = found_in(out)
    for suite in ('revit-table4', 'refiner-table5'):
        models = {tuple(row['values']['top-1']) for row in found['suites'][suite]['conditions'].values()}
        assert models == {('tiny', 'cb', 'test_vit')}


@pytest.mark.parametrize('name', ['to_rgb', 'channel_conversion', '_channel_conversion'])
def test_preprocessors_of_every_library_turn_channels(name):
    """mmpretrain's, mmseg's of OpenMMLab, and mmdet's and OneDL's."""
    preprocessor = SimpleNamespace(mean=torch.tensor([1.0, 2.0, 3.0]), **{name: True})
    column = Column('a', None, SimpleNamespace(data_preprocessor=preprocessor), 'a.pth', '', '')
    assert column.turns_channels and column.fill == [3, 2, 1]


# --- ImageNet's further sets ---


@pytest.fixture
def thousand(folder):
    """A column with a model of 1000 classes, whose data are six images with ImageNet's names."""
    for name in range(6):
        path = folder / f'in1k/n{name:08}/ILSVRC2012_val_{name + 1:08}.JPEG'
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((16, 16, 3), 40 * name, np.uint8)).save(path)
    lines = [f'n{name:08}/ILSVRC2012_val_{name + 1:08}.JPEG {name}' for name in range(6)]
    (folder / 'in1k/val.txt').write_text('\n'.join(lines))
    data = "data_root='in1k', data_prefix='', ann_file='val.txt', metainfo=dict(classes=[str(i) for i in range(1000)])"
    text = f'test_dataloader = dict(dataset=dict({data}))\n'
    bad_inputs.child(
        text + 'model = dict(data_preprocessor=dict(num_classes=1000), head=dict(num_classes=1000))', 'thousand.py'
    )(folder)
    cfg = Config.fromfile('thousand.py')
    from mmengine.registry import MODELS, init_default_scope

    init_default_scope('mmpretrain')
    torch.save(dict(meta=dict(cfg=cfg.pretty_text), state_dict=MODELS.build(cfg.model).state_dict()), 'thousand.pth')
    return folder


def made_folders(root, names, pictured):
    for name in names:
        (root / name).mkdir(parents=True)
    for name in pictured:
        Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(root / name / 'a.png')


def conditions(name, column, **options):
    return {one.name: one for one in suites.SUITES[name].conditions([column], Options(epsilons=(0.01,), **options))}


def test_sets_of_imagenet_have_its_classes(thousand, tmp_path):
    pytest.importorskip('timm')
    [column] = read_columns([('thousand.py', 'thousand.pth')], [], None, 'cpu', True)
    synsets = suites._timm_list('imagenet_a_synsets.txt')
    made_folders(tmp_path / 'a', synsets, synsets[1:3])
    made_folders(tmp_path / 'v2', map(str, range(1000)), ['2', '10', '999'])
    a = conditions('cb-table8', column, imagenet_a=tmp_path / 'a')['ImageNet-A']
    found = conditions('cb-table6', column, imagenet_v2=[tmp_path / 'v2'])
    v2 = found['ImageNet-V2, v2']
    # timm's list has 6, 11 and 13 first; folders of V2 are classes by number.
    for condition, expected in ((a, [11, 13]), (v2, [10, 2, 999])):
        data = running.data_of(column, condition, 0)
        assert [condition.truth.class_of[data.get_data_info(i)['gt_label']] for i in range(len(data))] == expected
    sets = found['ImageNet-ReaL'].truth.sets
    assert sets['ILSVRC2012_val_00000002.JPEG'] == [970, 795] and sets['ILSVRC2012_val_00000001.JPEG'] == []
    assert sum(map(bool, sets.values())) == 46_837
    arrays = running.evaluate(column, found['ImageNet-ReaL'], range(6), 0)['images/top-1']
    assert np.isnan(arrays[0]) and np.isfinite(arrays[1:5]).all()


def test_folders_that_are_not_imagenets_are_named(thousand, tmp_path):
    [column] = read_columns([('thousand.py', 'thousand.pth')], [], None, 'cpu', True)
    with pytest.raises(FileNotFoundError, match='--imagenet-a: no such folder'):
        conditions('cb-table8', column, imagenet_a=tmp_path / 'none')
    made_folders(tmp_path / 'v2', map(str, range(999)), [])
    with pytest.raises(FileNotFoundError, match='v2 lacks 1 folders of classes, such as 999'):
        conditions('cb-table6', column, imagenet_v2=[tmp_path / 'v2'])
    made_folders(tmp_path / 'v2', ['999', 'extra'], [])
    with pytest.raises(ValueError, match='v2 has 1 folders that are no classes, such as extra'):
        conditions('cb-table6', column, imagenet_v2=[tmp_path / 'v2'])
    with pytest.raises(FileNotFoundError, match='--imagenet-c: no such folder'):
        conditions('corruptions', column, imagenet_c=tmp_path)


@pytest.mark.parametrize('side', [32, 256])
def test_files_of_imagenet_c_are_cropped_and_not_resized(thousand, tmp_path, monkeypatch, side):
    """A crop that is larger than the files resizes them."""
    pytest.importorskip('timm')
    monkeypatch.setattr(suites, 'ALEXNET', dict(fog=0.8))
    synsets = suites._timm_list('imagenet_synsets.txt')
    made_folders(tmp_path / 'fog/3', synsets, [])
    pixels = np.random.default_rng(0).integers(0, 256, (48, 48, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / 'fog/3' / synsets[0] / 'a.png')
    [column] = read_columns([('thousand.py', 'thousand.pth')], [], None, 'cpu', True)
    resize = dict(type='ResizeEdge', scale=side + 8, edge='short')
    steps = [dict(type='LoadImageFromFile'), resize, dict(type='CenterCrop', crop_size=side), dict(type='PackInputs')]
    column.cfg.test_dataloader.dataset.pipeline = steps
    [condition] = conditions('corruptions', column, imagenet_c=tmp_path, severities=[3]).values()
    found = running.data_of(column, condition, 0)[0]['inputs'].permute(1, 2, 0).numpy()
    assert found.shape == (side, side, 3)
    if side < 48:
        np.testing.assert_array_equal(found, pixels[8:-8, 8:-8, ::-1])


# --- interruptions ---


def test_interrupted_run_goes_on_and_ends_equal(folder, tmp_path, monkeypatch):
    suite = 'revit-table4 cb-table12 --repeats 2 --num 12'
    robustness(folder, suite, tmp_path / 'whole')
    evaluate, calls = running.evaluate, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return evaluate(*arguments)

    monkeypatch.setattr(running, 'evaluate', interrupted)
    outcome = robustness(folder, suite, tmp_path / 'part', 75)
    assert 'finished tests are kept' in outcome.err and not (tmp_path / 'part' / JSON).exists()
    robustness(folder, suite, tmp_path / 'part')
    total = 2 * (5 + 2 + 3 * 2)
    assert len(calls) == total + 1  # the interrupted one is done again, no other
    assert found_in(tmp_path / 'part')['suites'] == found_in(tmp_path / 'whole')['suites']
    assert (tmp_path / 'part/results.csv').read_bytes() == (tmp_path / 'whole/results.csv').read_bytes()
    pictures = {path.name: path.read_bytes() for path in (tmp_path / 'whole').glob('*.png')}
    assert pictures == {path.name: path.read_bytes() for path in (tmp_path / 'part').glob('*.png')}


@pytest.mark.slow
def test_killed_run_goes_on_and_ends_equal(folder, tmp_path):
    def started(out):
        tool = ROOT / 'tools/analysis_tools/robustness.py'
        arguments = [*BOTH.split(), '--device', 'cpu', '--suite', 'revit-table4', 'revit-table5', '--out', str(out)]
        return subprocess.Popen([sys.executable, str(tool), *arguments], stdout=subprocess.DEVNULL)

    process = started(tmp_path / 'part')
    end = time.monotonic() + 120
    while len(list((tmp_path / 'part').glob('arrays/*.npz'))) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / 'part').glob('arrays/*.npz')}
    assert 3 <= len(kept) < 18 and not (tmp_path / 'part' / JSON).exists()
    assert started(tmp_path / 'part').wait() == 0 and started(tmp_path / 'whole').wait() == 0
    assert all((tmp_path / 'part/arrays' / name).stat().st_mtime_ns == when for name, when in kept.items())
    assert found_in(tmp_path / 'part')['suites'] == found_in(tmp_path / 'whole')['suites']


def test_other_runs_do_not_share_a_folder(folder, tmp_path):
    robustness(folder, 'revit-table4 --num 4', tmp_path / 'out')
    outcome = robustness(folder, 'revit-table4 --num 5', tmp_path / 'out', 2)
    assert 'is of another analysis (images: ' in outcome.err
    robustness(folder, 'revit-table5 --num 4', tmp_path / 'out')


# --- bad input ---


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        ('tiny.py --suite revit-table4', 'CONFIG CHECKPOINT: 1 files: expected a checkpoint after each config'),
        ('tiny.py none.pth --suite revit-table4', 'none.pth'),
        (f'{BOTH} --suite cb-table8', 'the paper does not state the size of its FGSM: give --epsilon'),
        (f'{BOTH} --suite all', 'the paper does not state the size of its FGSM: give --epsilon'),
        (f'{BOTH} --suite cb-table8 --epsilon 4', 'epsilon = 4.0: expected above 0 and at most 1, such as 4/255'),
        (f'{BOTH} --suite cb-table8 --epsilon a/b', '--epsilon a/b: expected a number or a fraction'),
        (f'{BOTH} --suite revit-table4 --epsilon 1/255', '--epsilon: is for --suite cb-table8, not for revit-table4'),
        (f'{BOTH} --suite revit-table4 --imagenet-a data', '--imagenet-a: is for --suite cb-table8, not for revit-tab'),
        (f'{BOTH} --suite cb-table8 --epsilon 0.1 --imagenet-v2 data', '--imagenet-v2: is for --suite cb-table6, not'),
        (f'{BOTH} --suite revit-table4 revit-table6 --photons 3', 'cb-table12, not for revit-table4 revit-table6: lea'),
        (f'{BOTH} --suite revit-table6 --directions both', '--directions: is for --suite revit-table4 or revit-table5'),
        (f'{BOTH} --suite revit-table4 --severities 3', '--severities: is for --suite corruptions, not for revit-tab'),
        (f'{BOTH} --suite cb-table8 --calibrate 0.3e3', '--calibrate 300: expected a top-1 accuracy in points'),
        (f'{BOTH} --suite corruptions --severities 6', r'--severities = 6: expected 0 \(the image as it is\) to 5'),
        (f'{BOTH} --suite cb-table12 --repeats 1', '--repeats 1: expected at least 2'),
        (f'{BOTH} --suite cb-table12 --photons 0', '--photons 0.0: expected a number above 0'),
        (f'{BOTH} --suite cb-table6', "cb-table6: needs a model of ImageNet's 1000 classes, and tiny has 2"),
        (f'{BOTH} --suite cb-table8 --epsilon 1/255 --imagenet-a data', "ImageNet-A: needs a model of ImageNet's 1000"),
        (f'{BOTH} --suite corruptions --imagenet-c data', "--imagenet-c: needs a model of ImageNet's 1000 classes"),
        ('cb.py trained.pth --suite revit-table4', 'trained.pth'),
        ('tiny.py trained.pth other.py trained.pth --suite revit-table4', r'other: its test data \(4 images\) are'),
        (f'{BOTH} --suite revit-table4 --timm resnot50 trained.pth', '--timm resnot50: timm has no such model'),
        (f'{BOTH} --suite revit-table4 --timm test_vit trained.pth', '--timm: trained.pth does not fit the model'),
        (f'{BOTH} --suite revit-table4 --cfg-options test_dataloader.dataset.data_prefix=none', 'none'),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_an_image_is_read(folder, tmp_path, arguments, words, monkeypatch):
    import re

    bad_inputs.child("test_dataloader = dict(dataset=dict(data_prefix='train'))", 'other.py')(folder)

    def read(self, results):
        raise AssertionError('an image was read')

    monkeypatch.setattr(LoadImageFromFile, 'transform', read)
    outcome = bad_inputs.run(f'robustness.py {arguments} --device cpu --out {tmp_path / "out"}', folder)
    assert outcome.status in (2, 66) and re.search(words, outcome.err), outcome.text
    assert outcome.err.count('error:') == 1 and not (tmp_path / 'out').exists()


def test_suite_of_another_task_is_named(folder, monkeypatch):
    [column] = read_columns([('tiny.py', 'trained.pth')], [], None, 'cpu', False)
    monkeypatch.setattr(type(column), 'library', 'mmseg')
    with pytest.raises(
        ValueError, match=r'--suite revit-table4: is for classifiers.* here cb-table12, corruptions can'
    ):
        suites.choose_suites(['revit-table4'], [column], Options())
    found = suites.choose_suites(['all'], [column], Options(severities=[1]))
    assert list(found) == ['clean', 'cb-table12', 'corruptions']
