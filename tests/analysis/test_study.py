"""tools/analysis_tools/analyze.py on tiny models of the three tasks, on ViT and Swin, in one process."""

import csv
import json
import re
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import bad_inputs
import numpy as np
import pytest
import torch
from cases import lvt
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats
from small_models import DETECTION, SEGMENTATION, save_noise, save_untrained, small_digits

from vitplug.analysis.measures.interventions import relative_change, zero
from vitplug.analysis.study import drawing
from vitplug.analysis.study import run as study_run
from vitplug.analysis.study.edits import CONTROL, EDITS
from vitplug.analysis.study.estimators import ESTIMATORS, OfBatches
from vitplug.analysis.study.features import CKA, EvolvingSpeed, OfGroups
from vitplug.analysis.study.figures import FIGURES, papers_blocks
from vitplug.analysis.study.measure import Measure, by_block
from vitplug.analysis.study.measures_by_name import MEASURES
from vitplug.analysis.study.subject import Subject
from vitplug.config.reading import read_config

pytestmark = pytest.mark.integration

PLAIN = 'model = dict(backbone=dict(with_cls_token=True))'
BIAS = "plugs=[dict(type='GaussianAttentionBias')]"
GAB = "model = dict(backbone=dict(plugs=[dict(type='GaussianAttentionBias')]))"
REFINER = "model = dict(backbone=dict(with_cls_token=True, plugs=[dict(type='Refiner')]))"


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    return small_digits(tmp_path_factory, (10, 10), (2, 6))


@pytest.fixture(scope='module')
def template(tmp_path_factory):
    """Tiny configs and checkpoints: a plain classifier, one with Refiner, one without attention."""
    folder = bad_inputs.prepare(tmp_path_factory.mktemp('study') / 'a')
    mixer = f'model = dict(backbone=dict(_delete_=True, {bad_inputs.MIXER}, arch=dict(embed_dims=8, num_layers=2, '
    mixer += "tokens_mlp_dims=4, channels_mlp_dims=8), out_type='featmap'), neck=dict(type='GlobalAveragePooling'))"
    for name, text in dict(plain=PLAIN, refiner=REFINER, mixer=mixer, gab=GAB).items():
        (folder / f'{name}.py').write_text(f"_base_ = 'tiny.py'\n{text}\n")
        save_untrained(folder / f'{name}.py', folder / f'{name}.pth')
    as_they_are = "pipeline=[dict(type='LoadImageFromFile'), dict(type='PackInputs')]"
    bad_inputs.child(f'test_dataloader = dict(dataset=dict({as_they_are}))', 'sizes.py')(folder)
    save_noise(folder / 'data/val/dog', 9)
    return folder


@pytest.fixture
def folder(template, monkeypatch):
    monkeypatch.chdir(template)
    return template


def analyze(folder, arguments, status=0):
    return bad_inputs.run_to(status, f'analyze.py {arguments} --device cpu', folder)


def results_in(folder):
    return json.loads((folder / 'results.json').read_text())


def array(found, name='mean'):
    return np.array(found[name], dtype=float)


def test_every_measure_of_a_classifier_beside_its_baseline(folder, tmp_path):
    out = tmp_path / 'out'
    said = analyze(folder, f'refiner.py refiner.pth --baseline plain.py plain.pth --num 8 --out {out}').out
    found = results_in(out)
    measures = found['measures']
    taken = {name for name, measure in MEASURES.items() if measure.by_default}
    assert set(measures) == taken - set(found['left_out']), found['left_out']
    # Files that belong together.
    assert found['images']['number'] == 8 and len(found['images']['files']) == 8
    assert {path.stem for path in out.glob('*.png')} == set(measures) - {'learned'}
    for name in measures:
        assert name in said or not measures[name]['values']['model']
    check_csv(out, measures)
    # The maps of Refiner, before and after it; the baseline has none.
    for name in ('distance', 'relative_distance', 'non_locality'):
        ours, theirs = (measures[name]['values'][label] for label in ('model', 'baseline'))
        assert sum('after the plug' in value for value in ours) == 2
        assert not any('after the plug' in value for value in theirs)
    assert not any('after the plug' in value for value in measures['entropy']['values']['model'])
    check_entropy(folder, found)
    check_intervals(out, measures)
    check_differences(out, measures, said)


def check_csv(out, measures):
    """The same numbers as in the JSON file."""
    with open(out / 'results.csv') as file:
        rows = list(csv.DictReader(file))
    assert {row['measure'] for row in rows} == {name for name in measures if any(measures[name]['values'].values())}
    for row in rows:
        place = [int(row[axis]) for axis in ('layer', 'head', 'other layer') if row[axis]]
        numbers = measures[row['measure']]['values'][row['model']][row['value']]
        for name in ('mean', 'low', 'high'):
            number = numbers[name]
            for index in place:
                number = number[index]
            assert (float(row[name]) if row[name] else None) == number


def check_entropy(folder, found):
    """From recorded maps, in float64, image by image."""
    cfg = read_config('refiner.py')
    subject = Subject.read('model', cfg, 'refiner.pth', 'cpu', False)
    entropies = []
    for path in found['images']['files']:
        _, recorded = subject.backbone.forward_intermediates(subject.load(Path(path)).inputs, 'probs')
        maps = torch.stack([recorded['probs'][layer][0, 0] for layer in range(2)]).double().detach().numpy()
        rows = -(maps * np.log(maps)).sum(-1)  # (layer, head, query), the class token first
        entropies.append((rows.mean(-1), rows[..., 0]))
    for value, images in zip(('all queries', 'class token'), zip(*entropies, strict=True), strict=True):
        numbers = found['measures']['entropy']['values']['model'][value]
        images = np.stack(images)
        low, high = stats.t.interval(0.95, 7, images.mean(0), stats.sem(images, 0))
        for name, expected in dict(mean=images.mean(0), low=low, high=high).items():
            assert np.allclose(array(numbers, name), expected, rtol=1e-5), (value, name)
        assert np.array(numbers['n']).tolist() == [[8, 8], [8, 8]]


def check_intervals(out, measures):
    """Stored arrays of images give the intervals beside the numbers."""
    with np.load(out / 'arrays/baseline.feature_similarity.npz') as stored:
        images = np.stack([stored[f'{number:05}/similarity'] for number in range(8)])
    numbers = measures['feature_similarity']['values']['baseline']['similarity']
    expected = stats.t.interval(0.95, 7, images.mean(0, dtype=float), stats.sem(images.astype(float), 0))
    assert np.allclose((array(numbers, 'low'), array(numbers, 'high')), expected, rtol=1e-6)


def check_differences(out, measures, said):
    """Paired over images: from the stored arrays of both models, and, for CKA, with each image left out of both."""
    stored = [np.load(out / f'arrays/{label}.feature_similarity.npz') for label in ('model', 'baseline')]
    images = [np.stack([one[f'{number:05}/similarity'] for number in range(8)]).astype(float) for one in stored]
    images = images[0] - images[1]
    numbers = measures['feature_similarity']['values']['difference']['similarity']
    expected = stats.t.interval(0.95, 7, images.mean(0), stats.sem(images, 0))
    assert np.allclose((array(numbers, 'low'), array(numbers, 'high')), expected, rtol=1e-6)
    assert 'difference' in said
    by_label = measures['cka']['values']
    numbers = [array(by_label[label][CKA.NEXT]) for label in ('model', 'baseline', 'difference')]
    assert np.allclose(numbers[0] - numbers[1], numbers[2], equal_nan=True)
    half = (array(by_label['difference'][CKA.NEXT], 'high') - numbers[2])[0]
    units = [np.load(out / f'arrays/{label}.cka.npz') for label in ('model', 'baseline')]
    left = []
    for unit in units:
        kept = [np.delete(unit['00000/model'], image, 1) for image in range(8)]
        left.append([CKA().estimate([{'model': features}], 7)[CKA.NEXT].mean[0] for features in kept])
    left = np.subtract(*left)
    assert half == pytest.approx(stats.t.ppf(0.975, 7) * np.sqrt(7 / 8 * ((left - left.mean()) ** 2).sum()), rel=1e-4)
    # What is of both models together has no difference.
    assert list(measures['cka_baseline']['values']) == ['model and baseline']


def test_no_row_twice(folder, tmp_path):
    """Without a class token, all queries are the patches; a single number is its own least and largest."""
    gab = "plugs=[dict(type='ContextBroadcast', scaled=False), dict(type='ResidualAttention')]"
    bad_inputs.child(f'model = dict(backbone=dict({gab}))', 'plugged.py')(folder)
    save_untrained(folder / 'plugged.py', folder / 'plugged.pth')
    said = analyze(folder, f'plugged.py plugged.pth --num 5 --out {tmp_path}/out').out
    assert 'left out: entropy of the model: class token: the model has none; all queries: they are the patch' in said
    lines = [re.split('  +', line) for line in said.splitlines()]
    # Without a sink, there is none of any class.
    numbers = [(line[0], *line[-4:]) for line in lines if len(line) == 8 and line[0] != 'sinks']
    assert len(numbers) == len(set(numbers)) > 5, said


def test_pictures_as_pdf(folder, tmp_path):
    command = f'plain.py plain.pth --measures token_norms --num 3 --out {tmp_path}/out --format'
    analyze(folder, f'{command} pdf')
    picture = (tmp_path / 'out/token_norms.pdf').read_bytes()
    assert picture.startswith(b'%PDF') and not (tmp_path / 'out/token_norms.png').exists()
    analyze(folder, f'{command} pdf')
    assert (tmp_path / 'out/token_norms.pdf').read_bytes() == picture


@pytest.mark.slow
def test_segmentor_and_detector(digits, tmp_path, monkeypatch):
    """Windows, shifts, several stages; on images of a folder."""
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
    save_untrained(SEGMENTATION, tmp_path / 'vit.pth')
    save_untrained(DETECTION, tmp_path / 'swin.pth')
    analyze(tmp_path, f'{SEGMENTATION} vit.pth --num 5 --out vit')
    said = analyze(tmp_path, f'{DETECTION} swin.pth --num 5 --images {digits}/coco/val --out swin').out
    vit, swin = (results_in(tmp_path / name)['measures'] for name in ('vit', 'swin'))
    assert 'left out: rollout of the model: blocks have tokens on several grids' in said and 'rollout' not in swin
    for measures in (vit, swin):
        for name in set(measures) - {'rollout', 'grad_cam', 'learned'}:
            for value, numbers in measures[name]['values']['model'].items():
                assert np.isfinite(array(numbers)).any(), (name, value)
    heads = array(swin['distance']['values']['model']['mean distance'])
    assert np.isfinite(heads).sum(1).tolist() == [2, 2, 4, 4, 8, 8] and (heads[np.isfinite(heads)] > 0).all()


@pytest.mark.slow
def test_map_scores_of_a_segmentor(digits, tmp_path, monkeypatch):
    """Scores of the drawn maps against the label maps of the data, from the stored arrays."""
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))

    def without_background(module):
        if type(module).__name__ == 'Conv2d' and module.out_channels == 11:
            module.weight.normal_()
            module.bias.zero_()

    save_untrained(SEGMENTATION, tmp_path / 'vit.pth', without_background)
    out = tmp_path / 'out'
    analyze(tmp_path, f'{SEGMENTATION} vit.pth --measures map_scores,sinks,sink_map --num 4 --out {out}')
    found = results_in(out)
    values = found['measures']['map_scores']['values']['model']
    with np.load(out / 'arrays/model.map_scores.npz') as stored:
        arrays = {key: stored[key] for key in stored.files}
    scored = 0
    for number, path in enumerate(found['images']['files']):
        labels = np.asarray(Image.open(path.replace('images', 'annotations')))
        present, counts = np.unique(labels, return_counts=True)
        mask = labels == present[np.argsort(-counts, kind='stable')[1]]
        for name in ('attention', 'rollout', 'random'):
            heat = arrays.get(f'{number:05}/{name} ')
            mass = arrays[f'{number:05}/{name}: relevance mass']
            if heat is None:  # the class is predicted nowhere
                assert np.isnan(mass)
                continue
            inside = heat[: len(mask), : len(mask[0])][mask]  # below and beside it, the input is padded
            assert mass == pytest.approx(inside.sum(dtype=float) / heat.sum(dtype=float), rel=1e-5)
            left = arrays[f'{number:05}/{name}: score left by pixel flipping']
            assert 0 < left < 2
            scored += 1
    assert scored and values['share of the image in the mask']['n'] == scored // 3


def test_goes_on_where_it_stopped(folder, tmp_path, monkeypatch):
    arguments = (
        'refiner.py refiner.pth --baseline plain.py plain.pth --num 8 --measures entropy,cka,cka_baseline,rollout'
    )
    analyze(folder, f'{arguments} --out {tmp_path}/whole')
    load, loaded = Subject.load, []

    def counted(self, path):
        loaded.append((self.label, str(path)))
        if len(loaded) == stop:
            raise KeyboardInterrupt
        return load(self, path)

    monkeypatch.setattr(Subject, 'load', counted)
    monkeypatch.setattr(Figure, 'savefig', lambda figure, file, **settings: None)  # the first command has drawn them
    stop = 16 + 7  # 8 images of 2 models are read first; then three images are done and one of the models sees the 4th
    analyze(folder, f'{arguments} --out {tmp_path}/parts', status=75)
    assert not (tmp_path / 'parts/results.json').exists()
    with np.load(tmp_path / 'parts/arrays/model.entropy.npz') as stored:
        assert sorted({key.split('/')[0] for key in stored.files}) == ['00000', '00001', '00002']
    stop = None
    loaded.clear()
    analyze(folder, f'{arguments} --out {tmp_path}/parts')
    # The groups of CKA begin again; there is one.
    assert len(loaded) == 16 + 16
    whole, parts = (results_in(tmp_path / name) for name in ('whole', 'parts'))
    assert whole['measures'] == parts['measures'] and whole['images'] == parts['images']
    # A finished one computes nothing, and further measures nothing else.
    reduced = []
    monkeypatch.setattr(study_run, 'record', lambda *a, record=study_run.record: reduced.append(a[2]) or record(*a))
    analyze(folder, f'{arguments} --out {tmp_path}/parts')
    assert reduced == []
    analyze(folder, f'{arguments.replace("entropy", "distance")} --out {tmp_path}/parts')
    assert {measure.name for measures in reduced for measure in measures} == {'distance'}
    more = results_in(tmp_path / 'parts')['measures']
    assert set(more) == {*whole['measures'], 'distance'} and more['entropy'] == whole['measures']['entropy']
    # Others' folders stay as they are.
    for changed, what in [('--num 8', 'images'), ('plain.pth', 'baseline'), ('refiner.py', 'model')]:
        others = {'--num 8': '--num 7', 'plain.pth': 'other.pth', 'refiner.py': 'other.py'}
        torch.save(torch.load('plain.pth') | dict(further=1), 'other.pth')
        Path('other.py').write_text(Path('refiner.py').read_text() + 'randomness = dict(seed=1)\n')
        before = bad_inputs.snapshot(tmp_path)
        command = arguments.replace(changed, others[changed])
        said = analyze(folder, f'{command} --out {tmp_path}/parts', status=2).err
        assert f'parts is of another analysis ({what}: ' in said
        assert bad_inputs.snapshot(tmp_path) == before


@pytest.mark.slow
def test_ctrl_c_is_one_line(folder, tmp_path):
    command = f'plain.py plain.pth --num 9 --out {tmp_path}/out'
    tool = [sys.executable, str(bad_inputs.TOOLS['analyze.py']), *command.split(), '--device', 'cpu']
    # What runs in the background of a shell ignores SIGINT; the tool's own Python decides.
    listens = 'import runpy, signal, sys; signal.signal(2, signal.default_int_handler); sys.argv = sys.argv[1:]; '
    tool[1:1] = ['-c', f"{listens}runpy.run_path(sys.argv[0], run_name='__main__')"]
    with subprocess.Popen(tool, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / 'out/study.json').exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 75 and 'Traceback' not in said, said
    assert said.splitlines()[-1].startswith('error: interrupted; what is measured so far is kept')
    analyze(folder, command)
    assert results_in(tmp_path / 'out')['images']['number'] == 9


def test_measures_that_do_not_apply(folder, tmp_path):
    said = analyze(folder, f'mixer.py mixer.pth --num 5 --out {tmp_path}/a').out
    assert 'left out: entropy of the model: no block has attention maps' in said
    found = results_in(tmp_path / 'a')
    assert 'feature_similarity' in found['measures'] and 'entropy' not in found['measures']
    assert found['left_out']['rollout']['model'] == 'no block has attention maps'
    for names, reason in [
        ('feature_similarity,entropy', '--measures entropy: does not apply to the model: no block has attention maps'),
        ('cka_baseline', '--measures cka_baseline: does not apply to the model: it compares with a baseline'),
    ]:
        said = analyze(folder, f'mixer.py mixer.pth --measures {names} --num 5 --out {tmp_path}/b', status=2).err
        assert reason in said and not (tmp_path / 'b/results.json').exists()
    # Of a baseline it is only said.
    said = analyze(
        folder,
        f'plain.py plain.pth --baseline mixer.py mixer.pth --measures entropy --num 5 --out {tmp_path}/c',
    ).out
    assert 'left out: entropy of the baseline: no block has attention maps' in said
    assert list(results_in(tmp_path / 'c')['measures']['entropy']['values']) == ['model']


def test_what_a_block_cannot_have_is_left_out(folder, tmp_path):
    """A single patch has no similarity, and 2 x 2 biases have no Gaussian; the other measures are there."""
    for name, text in dict(one='patch_size=16', four=f'patch_size=8, {BIAS}').items():
        bad_inputs.child(f'model = dict(backbone=dict(with_cls_token=True, {text}))', f'{name}.py')(folder)
        save_untrained(folder / f'{name}.py', folder / f'{name}.pth')
    analyze(folder, f'one.py one.pth --measures feature_similarity,token_norms --num 3 --out {tmp_path}/one')
    found = results_in(tmp_path / 'one')
    assert found['left_out']['feature_similarity']['model'].startswith('blocks [0, 1], where an image has a single')
    assert set(found['measures']) == {'feature_similarity', 'token_norms'}
    asked = f'four.py four.pth --measures position_bias --num 3 --out {tmp_path}/four'
    said = analyze(folder, asked, status=2).err
    assert 'position_bias: does not apply to the model: no grid of keys is large enough for a Gaussian: 2 x 2' in said


def test_images_that_cannot_be_used_are_named(folder, tmp_path):
    pictures = tmp_path / 'pictures'
    pictures.mkdir()
    for number in range(3):
        Image.fromarray(np.full((16, 16, 3), 40 * number, np.uint8)).save(pictures / f'{number}.png')
    (pictures / 'broken.png').write_text('no image')
    command = f'plain.py plain.pth --images {pictures} --measures token_norms --out {tmp_path}/out'
    outcome = analyze(folder, command, status=65)
    assert f'cannot use {pictures}/broken.png: ' in outcome.err and '1 of 4 images cannot be used' in outcome.err
    images = results_in(tmp_path / 'out')['images']
    assert images['number'] == 3 and list(images['skipped']) == [f'{pictures}/broken.png']
    outcome = analyze(folder, f'plain.py plain.pth --images {pictures}/broken.png --out {tmp_path}/b', status=2)
    assert 'none of 1 images can be used' in outcome.err


def test_images_of_several_sizes(folder, tmp_path):
    """Maps and tokens do not mind; CKA and receptive fields are of the most frequent size, and say so."""
    pictures = tmp_path / 'pictures'
    pictures.mkdir()
    for number in range(8):
        size = (16 + 8 * (number in (2, 5)), 16, 3)
        Image.fromarray(np.random.default_rng(number).integers(0, 255, size, np.uint8)).save(pictures / f'{number}.png')
    said = analyze(folder, f'sizes.py good.pth --images {pictures} --out {tmp_path}/out').out
    found = results_in(tmp_path / 'out')['measures']
    for name in ('cka', 'evolving_speed', 'erf'):
        assert f'left out: {name} of the model: 2 of 8 images, which are not 16 x 16' in said
    assert np.max(found['cka']['values']['model'][CKA.ALL]['n']) == 6
    assert np.max(found['distance']['values']['model']['mean distance']['n']) == 8
    for number in '01':
        (pictures / f'{number}.png').unlink()
    said = analyze(folder, f'sizes.py good.pth --images {pictures} --measures cka --out {tmp_path}/b', status=2).err
    assert '--measures cka: does not apply to the model: it needs 5 images of one size, there are 4' in said


def test_groups_of_images_give_the_cka_of_each_image_left_out():
    features = torch.randn(7, 3, 40, generator=torch.Generator().manual_seed(0)).cumsum(1)
    measure, images = CKA(), [list(image) for image in features]
    unit = measure.join(images)
    found = measure.estimate([unit], 7)[CKA.ALL]
    left = [
        measure.estimate([measure.join([image for image in images if image is not without])], 6)[CKA.ALL].mean
        for without in images
    ]
    half = stats.t.ppf(0.975, 6) * np.sqrt(6 / 7 * ((np.stack(left) - np.mean(left, 0)) ** 2).sum(0))
    assert np.allclose(found.mean.diagonal(), 1) and np.allclose(found.mean, found.mean.T)
    assert np.allclose(found.high - found.mean, half)


def biased_cka(x, y):
    """Of features of the same images, in numpy, by the sums of the definition."""
    k, l = ((f - f.mean(0)) @ (f - f.mean(0)).T for f in (x, y))  # noqa: E741
    return (k * l).sum() / np.sqrt((k * k).sum() * (l * l).sum())


def test_estimators_of_the_papers_beside_the_default(folder, tmp_path, monkeypatch):
    """From recorded features, in float64: batches, their mean, the intervals over images; each has its own files."""
    monkeypatch.setitem(ESTIMATORS, 'paper-refiner', OfBatches('paper-refiner', 'Refiner', batch=3, batches=2))
    monkeypatch.setitem(ESTIMATORS, 'paper-bvit', OfBatches('paper-bvit', 'BViT', batch=7, batches=1))
    command = f'plain.py plain.pth --num 8 --out {tmp_path} --measures cka,evolving_speed'
    analyze(folder, command)
    before = results_in(tmp_path)['measures']
    said = analyze(folder, f'{command} --cka paper-refiner').out
    assert 'left out: cka-paper-refiner of the model: 2 of 8 images of one size, which it has no batch for' in said
    analyze(folder, f'{command} --cka paper-bvit')
    found = results_in(tmp_path)
    names = [f'{name}{estimator}' for estimator in ('', '-paper-refiner', '-paper-bvit') for name in before]
    assert set(found['measures']) == set(names) == {path.stem for path in tmp_path.glob('*.png')}
    assert {name: found['measures'][name] for name in before} == before
    assert {found['measures'][name]['unit'].rpartition(' (')[2] for name in names} == {
        f'{name})' for name in ESTIMATORS
    }

    subject = Subject.read('model', read_config('plain.py'), 'plain.pth', 'cpu', False)
    features = []  # (image, block, numbers)
    for path in found['images']['files']:
        _, recorded = subject.backbone.forward_intermediates(subject.load(Path(path)).inputs, 'block')
        features.append(np.stack([t.detach().double().flatten().numpy() for _, t in sorted(recorded['block'].items())]))
    features = np.stack(features)
    for name, size, count in (('paper-refiner', 3, 2), ('paper-bvit', 7, 1)):
        groups = ESTIMATORS[name].groups(range(8), 1)
        assert [len(group) for group in groups] == [size] * count
        assert len({image for group in groups for image in group}) == size * count

        def cka(groups):
            pairs = [[[biased_cka(features[g, i], features[g, j]) for j in (0, 1)] for i in (0, 1)] for g in groups]
            return np.mean(pairs, axis=0)

        left = [cka([[i for i in group if i != image] for group in groups]) for image in np.concatenate(groups)]
        for measure, quantity in ((CKA, lambda m: m), (EvolvingSpeed, lambda m: m[:, -1] / m[0, -1])):
            numbers = found['measures'][f'{measure.base}-{name}']['values']['model']
            numbers = numbers[CKA.ALL if measure is CKA else 'evolving speed']
            assert np.allclose(array(numbers), quantity(cka(groups)), rtol=1e-5)
            spread = np.stack([quantity(one) for one in left])
            half = np.sqrt((len(left) - 1) / len(left) * ((spread - spread.mean(0)) ** 2).sum(0))
            half *= stats.t.ppf(0.975, len(left) - 1)
            assert np.allclose(array(numbers, 'high') - array(numbers), half, rtol=1e-3, atol=1e-8)


def test_layers_of_a_resnet_beside_a_vit(folder, tmp_path, monkeypatch):
    """CKA and similarity of residual units, against a walk through ResNet's modules by hand, in float64."""
    monkeypatch.setitem(ESTIMATORS, 'paper-refiner', OfBatches('paper-refiner', 'Refiner', batch=4, batches=1))
    resnet = "type='mmpretrain.ResNet', depth=18, stem_channels=8, base_channels=8, num_stages=3, strides=(1, 2, 1), "
    resnet += 'dilations=(1, 1, 1), out_indices=(2,)'
    neck_and_head = "neck=dict(type='GlobalAveragePooling'), head=dict(in_channels=32)"
    bad_inputs.child(f'model = dict(backbone=dict(_delete_=True, {resnet}), {neck_and_head})', 'resnet.py')(folder)
    save_untrained(folder / 'resnet.py', folder / 'resnet.pth')
    command = f'plain.py plain.pth --baseline resnet.py resnet.pth --num 4 --out {tmp_path}'
    said = analyze(folder, f"{command} --cka paper-refiner --blocks 'layer*.*'").out
    assert 'left out: entropy of the baseline: no block has attention maps' in said
    found = results_in(tmp_path)['measures']

    subject = Subject.read('baseline', read_config('resnet.py'), 'resnet.pth', 'cpu', False, 'layer*.*')
    net = subject.model.backbone
    features, similarity = [], []
    for path in results_in(tmp_path)['images']['files']:
        with torch.no_grad():
            x, outputs = net.maxpool(net.relu(net.norm1(net.conv1(subject.load(Path(path)).inputs)))), []
            for stage in (net.layer1, net.layer2, net.layer3):
                for unit in stage:
                    x = unit(x)
                    outputs.append(x[0].double().numpy())
        features.append([output.ravel() for output in outputs])
        tokens = outputs[0].reshape(8, -1).T
        tokens = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
        cosines = tokens @ tokens.T
        similarity.append((cosines.sum() - np.trace(cosines)) / (cosines.size - len(cosines)))
    by_layer = [np.stack(of_layer) for of_layer in zip(*features, strict=True)]
    last = [biased_cka(layer, by_layer[-1]) for layer in by_layer]
    speed = array(found['evolving_speed-paper-refiner']['values']['baseline']['evolving speed'])
    assert np.allclose(speed, np.array(last) / last[0], rtol=1e-5)
    assert len(found['evolving_speed-paper-refiner']['values']['model']['evolving speed']['mean']) == 2
    mean = array(found['feature_similarity']['values']['baseline']['similarity'])[0]
    assert np.isclose(mean, np.mean(similarity), rtol=1e-5)

    for pattern, error in (
        ('', r"resnet.*is a ResNet.*--blocks with 'layer\*' \(3 of ResLayer\), 'layer\*\.\*' \(6 of BasicBlock\)"),
        ("--blocks 'layer9.*'", r'--blocks layer9\.\*: names 0 modules of ResNet: expected the blocks'),
    ):
        said = analyze(folder, f'resnet.py resnet.pth --num 4 --out {tmp_path}/bad {pattern}', status=2).err
        assert re.search(error, said), said


def drawn(out, name, label='model'):
    """The arrays of a figure, by image and name."""
    with np.load(out / 'arrays' / f'{label}.{name}.npz') as arrays:
        return {key: arrays[key] for key in arrays.files}


def recorded_of(found, config, number):
    """Recorded intermediates of one of the images, in float64."""
    subject = Subject.read('model', read_config(f'{config}.py'), f'{config}.pth', 'cpu', False)
    image = subject.load(Path(found['images']['files'][number])).inputs
    _, recorded = subject.backbone.forward_intermediates(image, ('probs', 'maps', 'block'))
    return {name: {i: t[0].detach().double().numpy() for i, t in by.items()} for name, by in recorded.items()}


def test_figures_show_the_papers_quantities(folder, tmp_path):
    out = tmp_path / 'out'
    names = 'cb-figure3b,cb-figure10,revit-figure3,refiner-figure5'
    said = analyze(folder, f'refiner.py refiner.pth --baseline plain.py plain.pth --figure {names} --out {out}').out
    assert '4 images; 4 pictures' in said and {path.stem for path in out.glob('*.png')} == set(names.split(','))
    found = results_in(out)
    for number in range(4):
        probs = recorded_of(found, 'refiner', number)['probs']
        for layer, kept in probs.items():
            row = drawn(out, 'cb-figure10')[f'{number:05}/block {layer}']
            assert np.allclose(row, kept[0, :, 0].mean(0), atol=1e-7)
    recorded = recorded_of(found, 'refiner', 0)
    check_maps_by_entropy(drawn(out, 'cb-figure3b'), recorded['probs'])
    tokens = recorded['block'][1][1:]
    unit = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    assert np.allclose(drawn(out, 'revit-figure3')['00000/block 1'], unit @ unit.T, atol=1e-5)
    for name in ('probs', 'maps'):
        expected = recorded[name][1][0].mean(0)[1:, 1:]
        assert np.allclose(drawn(out, 'refiner-figure5')[f'00000/{name}|block 1'], expected, atol=1e-6)
    assert not [key for key in drawn(out, 'refiner-figure5', 'baseline') if 'maps' in key]


def test_shared_maps_are_shown_in_their_blocks_beside_the_same_blocks_without(folder, tmp_path):
    shared = PLAIN.replace('True', "True, plugs=[dict(type='Refiner', share=1)]")
    (folder / 'shared.py').write_text(f"_base_ = 'tiny.py'\n{shared}\n")
    save_untrained(folder / 'shared.py', folder / 'shared.pth')
    out = tmp_path / 'out'
    analyze(folder, f'shared.py shared.pth --baseline plain.py plain.pth --figure refiner-figure5 --out {out}')
    shown = drawn(out, 'refiner-figure5')
    assert [*shown] == ['00000/probs|block 0', '00000/maps|block 0', '00000/maps|block 1 (map of block 0)']
    assert np.array_equal(shown['00000/maps|block 0'], shown['00000/maps|block 1 (map of block 0)'])
    assert [*drawn(out, 'refiner-figure5', 'baseline')] == ['00000/probs|block 0', '00000/probs|block 1']
    assert papers_blocks(32) == [0, 3, 10, 17, 22, 28, 29]


def check_maps_by_entropy(shown, probs):
    """Maps of the central patch, the lowest and the highest entropy of all blocks and heads among them."""
    rows = np.stack([kept[0, :, 1 + _centre(kept.shape[-1] - 1), 1:] for _, kept in sorted(probs.items())])
    rows = rows / rows.sum(-1, keepdims=True)
    entropies = -(rows * np.log(rows)).sum(-1)
    told = {key.partition('/')[2]: values for key, values in shown.items() if 'picture' not in key}
    for name, values in told.items():
        entropy, layer, head = re.fullmatch(r'([\d.]+) \(block (\d+), head (\d+)\)', name).groups()
        assert np.allclose(values.ravel(), rows[int(layer), int(head)], atol=1e-6)
        assert abs(entropies[int(layer), int(head)] - float(entropy)) < 0.006
    shown_entropies = sorted(float(name.split()[0]) for name in told)
    assert abs(shown_entropies[0] - entropies.min()) < 0.006 and abs(shown_entropies[-1] - entropies.max()) < 0.006


def _centre(patches: int) -> int:
    side = round(patches**0.5)
    return (side - 1) // 2 * (side + 1)


def test_biases_of_patches_trained_and_untrained(folder, tmp_path):
    checkpoint = torch.load(folder / 'gab.pth', weights_only=False)
    for name, value in checkpoint['state_dict'].items():
        if 'gab_sigma' in name:
            value.fill_(1.5)
    torch.save(checkpoint, tmp_path / 'trained.pth')
    out = tmp_path / 'out'
    analyze(folder, f'gab.py {tmp_path}/trained.pth --figure gab-figure5 --out {out}')
    arrays = drawn(out, 'gab-figure5')
    side = arrays['00000/trained, block 0|patch 0'].shape[0]
    y, x = np.mgrid[:side, :side]
    for state, sigma in dict(trained=1.5, untrained=5.0).items():
        for patch in (0, 1, 2, side**2 - 1):
            squares = (y - patch // side) ** 2 + (x - patch % side) ** 2
            bias = arrays.pop(f'00000/{state}, block 0|patch {patch}')
            assert np.allclose(bias, 4 * np.exp(-squares / (2 * sigma**2)), atol=1e-5), (state, patch)
    assert not arrays  # the first attention layer alone, as in the paper


@pytest.mark.parametrize(
    ('model', 'figure', 'reason'),
    [
        ('plain', 'refiner-figure5', 'no plug changes its maps: name a model with Refiner'),
        ('plain', 'gab-figure5', 'no block has a position bias'),
        ('gab', 'cb-figure10', 'it has no class token'),
        ('mixer', 'cb-figure3b', 'no block has attention maps'),
    ],
)
def test_figures_that_do_not_apply(model, figure, reason, folder, tmp_path):
    said = analyze(folder, f'{model}.py {model}.pth --figure {figure} --out {tmp_path}/out', status=2).err
    assert f'--figure {figure}: does not apply to the model: {reason}' in said


def test_a_paper_needs_its_number_of_images(folder, tmp_path):
    for name, least in (('paper-refiner', 320), ('paper-bvit', 1000)):
        for measures in ('all', 'cka'):
            command = f'plain.py plain.pth --num 5 --measures {measures} --cka {name} --out {tmp_path}/{name}{measures}'
            said = analyze(folder, command, status=2).err
            assert 'does not apply' in said and f'it needs {least} images of one size, there are 5; --num sets' in said


def test_a_new_measure_is_one_entry(folder, tmp_path, monkeypatch):
    class Contrast(Measure):
        name, title, definition, unit, source, needs = 'contrast', 'Contrast', 'Spread of pixels', 'levels', '', ''
        axes = ('layer',)

        def observe(self, subject, image, found):
            return dict(contrast=by_block({0: image.inputs.std().item()}, subject.num_layers))

    monkeypatch.setitem(MEASURES, 'contrast', Contrast())
    analyze(folder, f'plain.py plain.pth --measures contrast --num 3 --out {tmp_path}/out')
    numbers = results_in(tmp_path / 'out')['measures']['contrast']['values']['model']['contrast']
    assert numbers['mean'][0] > 0 and numbers['mean'][1] is None and numbers['n'] == [3, 0]


@pytest.mark.parametrize(
    ('arguments', 'error'),
    [
        ('--measures entropi', r"--measures entropi: there is no 'entropi': did you mean entropy\?"),
        ('--measures entropy,xyz', "there is no 'xyz': choose from entropy, relative_distance"),
        (
            '--measures entropy --cka paper-bvit',
            '--cka paper-bvit: none of --measures entropy is of CKA: add one of cka',
        ),
        ('--num 0', '--num 0: expected at least 1'),
        ('--figure cb-fig10', r"--figure cb-fig10: there is no 'cb-fig10': did you mean cb-figure10\?"),
        ('--figure x', "there is no 'x': choose from cb-figure3b, cb-figure10, gab-figure5"),
        ('--figure cb-figure10 --cka paper-bvit', '--cka paper-bvit: no figure is of CKA'),
        ('--edit head-zeros', r"--edit head-zeros: there is no 'head-zeros': did you mean head-zero\?"),
        ('--edit head-zero --cka paper-bvit', '--cka paper-bvit: no edit is of CKA'),
        ('--edit head-zero --figure cb-figure10', 'not allowed with argument'),
        ('--figure cb-figure10 --measures entropy', 'not allowed with argument'),
        ('--images nowhere', '--images: no such file or folder: nowhere'),
        ('--out data', '--out: data holds other files'),
        ('--baseline nowhere.py plain.pth', r'no such config: nowhere\.py'),
        ('--baseline plain.py nowhere.pth', r'--baseline: no such checkpoint: nowhere\.pth'),
        ("--blocks 'layers.*'", r"--blocks layers\.\*: is for backbones that are not vitplug's"),
        ('--cfg-options model.backbone.type=mmpretrain.VisionTransformer --allow-changes', 'records no intermediates'),
    ],
)
def test_refused(arguments, error, folder, tmp_path):
    said = analyze(folder, f'plain.py plain.pth --num 3 --out {tmp_path}/out {arguments}', status=2).err
    assert re.search(error, said), said
    lines = [line for line in said.strip().splitlines() if not line.startswith(('usage:', ' '))]
    assert len(lines) == 1 and not (tmp_path / 'out').exists()


def test_edits_of_a_classifier(folder, tmp_path):
    """Heads without output, beside a model whose projection lacks their columns; held-out means, beside hooks."""
    out = tmp_path / 'out'
    analyze(folder, f'plain.py plain.pth --edit head-zero,head-mean,block-zero,token-zero --num 5 --out {out}')
    found = results_in(out)
    subject = Subject.read('model', read_config('plain.py'), 'plain.pth', 'cpu', False)
    images = [subject.load(Path(path)).inputs for path in found['images']['files']]
    attentions = [block.attn for block in subject.backbone.plugged_blocks()]
    dims = attentions[0].head_dims

    def run(image):
        return subject.backbone(image)[-1], subject.model(image, mode='tensor').softmax(-1)[0]

    def effect(image, layer, columns, value=0.0):
        """Of inputs of the projection that are constant."""
        before, scores = run(image)

        def change(module, args):
            heads = args[0].clone()
            heads[..., columns] = value
            return heads

        hook = attentions[layer].proj.register_forward_pre_hook(change)
        after, left = run(image)
        hook.remove()
        label = scores.argmax()
        return [float((after - before).norm() / before.norm()), float(scores[label] - left[label])]

    with torch.no_grad():
        entered = [[] for _ in attentions]
        hooks = [
            a.proj.register_forward_pre_hook(lambda _, x, into=into: into.append(x[0]))
            for a, into in zip(attentions, entered, strict=True)
        ]
        for image in images:
            subject.backbone(image)
        for hook in hooks:
            hook.remove()
        for name in ('head-zero', 'head-mean'):
            expected = np.zeros((2, len(images), len(attentions), attentions[0].num_heads))
            for number, layer, head in np.ndindex(expected.shape[1:]):
                columns = slice(head * dims, (head + 1) * dims)
                others = torch.cat([x for i, x in enumerate(entered[layer]) if i != number])[..., columns]
                mean = torch.cat(
                    [others[:, :1].mean(0), others[:, 1:].mean((0, 1))[None].expand(others.shape[1] - 1, -1)]
                )
                value = 0.0 if name == 'head-zero' else mean
                expected[:, number, layer, head] = effect(images[number], layer, columns, value)
            values = found['measures'][name]['values']['model']
            for numbers, value in zip(expected, ('change of the last features', 'fall of the score'), strict=True):
                assert np.allclose(array(values[value]), numbers.mean(0), rtol=1e-3, atol=1e-6), (name, value)
                heads = array(values[f'{value}, mean of heads'])
                assert np.allclose(heads, numbers.mean((0, 2)), rtol=1e-3, atol=1e-6)
            assert np.isfinite(array(values['change of the last features, control'])).all()
    values = found['measures']['block-zero']['values']['model']
    assert {value.partition(': ')[0] for value in values} == {'attention', 'MLP', 'both branches'}
    values = found['measures']['token-zero']['values']['model']
    assert {value.partition(': ')[0] for value in values} == {'class token', 'longest patch', 'random patch'}
    # The features are the mean of the patches: nothing reads the class token of the last block.
    change = array(values['class token: change of the last features'])
    assert change[0] > 0 == change[-1] and (array(values['longest patch: change of the last features']) > 0).all()
    assert {path.stem for path in out.glob('*.png')} == {'head-zero', 'head-mean', 'block-zero', 'token-zero'}


def test_values_of_other_images_are_not_put_into_attention_that_runs_twice():
    model = lvt()
    subject = SimpleNamespace(backbone=model, layers_with=lambda name: [*range(len(model.plugged_blocks()))])
    once = [index for index, block in enumerate(model.plugged_blocks()) if getattr(block, 'recursions', 1) == 1]
    assert 0 < len(once) < len(model.plugged_blocks())
    for name in ('head-mean', 'head-donor'):
        assert EDITS[name].layers(subject) == once
    for name in ('head-zero', 'head-shuffled', 'block-mean', 'token-mean'):
        assert EDITS[name].layers(subject) == subject.layers_with('')


@pytest.mark.slow
def test_edits_of_a_segmentor_with_a_sliding_window(digits, tmp_path, monkeypatch):
    """The features of all crops count; what is of whole images is refused."""
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
    save_untrained(SEGMENTATION, tmp_path / 'vit.pth')
    slide = 'model.test_cfg.mode=slide model.test_cfg.crop_size=(96,96) model.test_cfg.stride=(32,32)'
    arguments = f'{SEGMENTATION} vit.pth --num 2 --out {tmp_path}/out --cfg-options {slide}'
    for name in ('head-donor', 'token-zero'):
        said = analyze(tmp_path, f'{arguments} --edit {name}', status=2).err
        assert f'--edit {name}: does not apply to the model: it takes tokens of whole images' in said
    analyze(tmp_path, f'{arguments} --edit head-zero')
    found = results_in(tmp_path / 'out')
    cfg = read_config(str(SEGMENTATION))
    subject = Subject.read('model', cfg, str(tmp_path / 'vit.pth'), 'cpu', False)
    expected = []
    for path in found['images']['files']:
        image = subject.load(Path(path)).inputs
        ends = [dict.fromkeys(min(start + 96, side) for start in range(0, side, 32)) for side in image.shape[-2:]]
        crops = [image[..., bottom - 96 : bottom, right - 96 : right] for bottom, right in product(*ends)]
        with torch.no_grad():
            before = [out for crop in crops for out in subject.backbone(crop)]
            edits = {'heads': {1: zero(heads=[0])}}
            after = [out for crop in crops for out in subject.backbone.forward_edited(crop, edits)]
        expected.append(relative_change(before, after).item())
    value = found['measures']['head-zero']['values']['model']['change of the last features']
    assert array(value)[1][0] == pytest.approx(np.mean(expected), rel=1e-4)


def test_models_and_their_controls_have_lines_of_their_own():
    labels = [f'{model}{control}' for model in ('model', 'baseline') for control in ('', CONTROL)]
    assert len({drawing.style_of(label)['color'] for label in labels}) == len(labels)


def test_every_measure_is_in_the_docs():
    page = (Path(__file__).parents[2] / 'docs/analyze.md').read_text()
    for measure in (*MEASURES.values(), *FIGURES.values()):
        if isinstance(measure, OfGroups):
            assert all(f'| `{name}` | {found.words} | {found.source} |' in page for name, found in ESTIMATORS.items())
        row = f'| `{measure.name}` | {measure.definition} | {measure.unit} | {measure.source} | {measure.needs} |'
        assert row in page, row


def test_every_edit_is_in_the_docs():
    page = (Path(__file__).parents[2] / 'docs/interventions.md').read_text()
    for edit in EDITS.values():
        assert f'| `{edit.name}` | {edit.definition} | {edit.unit} | {edit.source} | {edit.needs} |' in page
