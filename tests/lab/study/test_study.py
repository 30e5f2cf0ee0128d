"""`vitplug study` on tiny untrained models of the digits: numbers by hand, identity, interruptions, one's own parts."""

import csv
import json
import math
import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmseg.evaluation.metrics import IoUMetric
from PIL import Image
from small_models import DETECTION, DIGITS, SEGMENTATION, save_untrained, small_digits

from vitplug.config.reading import read_config
from vitplug.lab.study import command, conditions
from vitplug.lab.study.command import MEASURES, PAPERS, conditions_of, main, measures_of
from vitplug.lab.study.edits import reset_copy, zero
from vitplug.lab.study.engine import Study
from vitplug.lab.study.measure import Seen
from vitplug.lab.study.measures import neighbours
from vitplug.lab.study.measures.attention import attention_entropy
from vitplug.lab.study.measures.features import centred_grams, cka, unbiased
from vitplug.lab.study.measures.fields import input_gradient, last_map
from vitplug.lab.study.measures.scores import coco_metric
from vitplug.lab.study.places import Place
from vitplug.lab.study.report import table
from vitplug.lab.study.rows import Row
from vitplug.lab.study.runs import Run, _drawn, _run, read_run, read_runs
from vitplug.lab.study.store import Store
from vitplug.statistics.images import student

pytestmark = pytest.mark.integration

CB, PLAIN = DIGITS / 'vit-mini-p4-cb_1xb32-14e_digits-32x32.py', DIGITS / 'vit-mini-p4_1xb32-14e_digits-32x32.py'
IMAGES = 12


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    root = small_digits(tmp_path_factory, (20, IMAGES), (6, 4))
    patch = pytest.MonkeyPatch()
    patch.setenv('VITPLUG_DIGITS', str(root))
    yield root
    patch.undo()


def loud(module):
    """Weights that are no start, so that scores and maps differ between images."""
    if isinstance(module, torch.nn.Linear | torch.nn.Conv2d):
        module.weight.normal_(std=0.4)


def train(config, path, steps):
    """Some steps of gradient descent on the test images, so that there is accuracy to lose."""
    save_untrained(config, path)
    run = read_run(str(config), str(path), device='cpu')
    data = run.model.requires_grad_(True).data_preprocessor(run.batch(run.images), False)
    descent = torch.optim.Adam(run.model.parameters(), 3e-3)
    for _ in range(steps):
        descent.zero_grad()
        run.model(**data, mode='loss')['loss'].backward()
        descent.step()
    torch.save(torch.load(path) | dict(state_dict=run.model.state_dict()), path)


@pytest.fixture(scope='module')
def names(digits, tmp_path_factory):
    """RUNs of two classifiers."""
    folder, found = tmp_path_factory.mktemp('models'), []
    for config in (CB, PLAIN):
        train(config, folder / f'{config.stem}.pth', 4 if config is CB else 10)
        found.append(f'{config}:{folder / config.stem}.pth={"cb" if config is CB else "plain"}')
    return found


@pytest.fixture(scope='module')
def runs(names):
    return read_runs(names, device='cpu')


def study(out, *arguments, status=0):
    assert main([*map(str, arguments), '--out', str(out), '--device', 'cpu']) == status
    with open(out / 'results.csv') as file:
        return list(csv.DictReader(file))


def number(found, **wanted):
    [row] = [row for row in found if all(row[key] == value for key, value in wanted.items())]
    return float(row['mean'])


def right(run, pixels_of=lambda pixels: pixels):
    """Which images are classified rightly, one at a time, without the study."""
    hits = []
    for index in run.images:
        pixels, labels = run.attackable(run.batch([index]))
        with torch.no_grad():
            hits.append(100.0 * (run.logits(pixels_of(pixels)).argmax(1) == labels).item())
    return np.array(hits)


def test_scores_drops_and_differences_are_paired_by_image(names, runs, tmp_path):
    found = study(tmp_path / 'a', *names, '--conditions', 'occlude:100')
    clean = [right(run) for run in runs]
    assert len({one.mean() for one in clean}) == 2 and all(one.mean() > 0 for one in clean)
    means = [run.model.data_preprocessor.mean.reshape(1, -1, 1, 1) / 255 for run in runs]
    occluded = [right(run, lambda p, mean=mean: mean.expand_as(p)) for run, mean in zip(runs, means, strict=True)]
    top = dict(measure='accuracy', value='top-1')
    differences = clean[1] - clean[0]
    row = next(r for r in found if (r['value'], r['quantity'], r['condition']) == ('top-1', 'difference', 'clean'))
    assert float(row['mean']) == pytest.approx(differences.mean())
    assert float(row['high']) == pytest.approx(float(student(differences).high)) and row['over'] == 'images'
    for at, label in enumerate(('cb', 'plain')):
        one = dict(**top, model=label)
        assert number(found, **one, condition='clean', quantity='value') == pytest.approx(clean[at].mean())
        drop = number(found, **one, condition='centre occluded, 100 %', quantity='drop')
        assert drop == pytest.approx((clean[at] - occluded[at]).mean())


def test_a_second_call_computes_nothing_and_a_killed_one_goes_on(names, tmp_path, monkeypatch):
    call = (names[0], '--measures', 'score', 'entropy', '--conditions', 'noise:5', '--repeats', '2')
    whole = study(tmp_path / 'whole', *call)
    taken, observe = [], MEASURES['entropy'].observe

    def killed(seen):
        if len(taken) == 5:
            raise KeyboardInterrupt
        taken.append(seen.index)
        return observe(seen)

    broken = MEASURES | {'entropy': replace(MEASURES['entropy'], observe=killed)}
    with monkeypatch.context() as patch:
        patch.setattr(command, 'MEASURES', broken)
        with pytest.raises(SystemExit):
            study(tmp_path / 'part', *call)
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(Run, 'batch', lambda run, indices, batch=Run.batch: seen.extend(indices) or batch(run, indices))
        assert study(tmp_path / 'part', *call) == whole
        # Of the clean images, the first five are not seen again by the entropy.
        assert 0 < len(seen) < 6 * IMAGES
        seen.clear()
        assert study(tmp_path / 'part', *call) == whole and not seen


def test_identity_is_content(names, digits, tmp_path, monkeypatch):
    """Other bytes under the name of an image, other weights under that of a checkpoint: computed anew."""
    out = tmp_path / 'out'
    before = study(out, names[0], '--measures', 'entropy')
    [path, *_] = sorted((digits / 'imagenet' / 'val').rglob('*.*'))
    content = path.read_bytes()
    try:
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)).save(path)
        changed = study(out, names[0], '--measures', 'entropy')
        assert changed != before and changed == study(tmp_path / 'new', names[0], '--measures', 'entropy')
    finally:
        path.write_bytes(content)
    assert study(out, names[0], '--measures', 'entropy') == before
    checkpoint = tmp_path / 'same.pth'
    train(CB, checkpoint, 4)
    name = f'{CB}:{checkpoint}=cb'
    assert study(out, name, '--measures', 'entropy') == before
    save_untrained(CB, checkpoint)
    assert study(out, name, '--measures', 'entropy') != before


class FakeData(list):
    metainfo = dict(classes=range(1000))
    get_data_info = list.__getitem__


def run_on(infos):
    run = Run('m', SimpleNamespace(default_scope='mmpretrain'), None, '', {}, [])
    vars(run)['dataset'] = FakeData(infos)
    return run


def test_the_content_of_an_image_has_its_labels_and_not_its_place():
    """Of a place, a bank of training images that has test images elsewhere would not know."""
    kept, reduced = (run_on([dict(img_path='a.png', reduce_zero_label=zero)]) for zero in (False, True))
    assert kept.image_key(0) != reduced.image_key(0)
    infos = [dict(img=np.full((4, 4), value), gt_label=1) for value in (3, 5)]
    one, other = run_on(infos), run_on(infos[::-1])
    assert one.content_of(0) == other.content_of(1) != other.content_of(0) and one.image_key(0) != other.image_key(1)
    one, other = (run_on([dict(gt_label=1, img_id=number)]) for number in (1, 2))  # by which COCO's AP is stored
    assert one.content_of(0) == other.content_of(0) and one.image_key(0) != other.image_key(0)


def test_identity_has_the_normalisation_and_the_batches_of_predictions(digits, tmp_path):
    found = []
    for mean in (3.0, 9.0):
        cfg = read_config(str(CB))
        cfg.data_preprocessor = dict(cfg.model.pop('data_preprocessor'), mean=[mean])
        found.append(_run('cb', cfg, _drawn(cfg), 'test', 'cpu'))
    assert [run.model.data_preprocessor.mean.item() for run in found] == [3.0, 9.0]
    assert found[0].content != found[1].content
    own = Study(Store(tmp_path), found, [], [], 1)
    names = []
    for size in (2, 3):
        found[0].cfg.test_dataloader.batch_size = size
        names.append([own._series(found[0], conditions.CLEAN, MEASURES[name]) for name in ('entropy', 'accuracy')])
    assert names[0][0] == names[1][0] and names[0][1] != names[1][1]


def test_folders_of_other_classes_are_other_conditions(tmp_path):
    for path in ('a/0', 'a/1', 'b/5', 'b/9'):
        (tmp_path / path).mkdir(parents=True)
    first, second = ({one.key for one in conditions.imagenet_a(str(tmp_path / name))} for name in 'ab')
    assert len(first) == 2 and not first & second


def test_right_classes_are_those_of_the_condition():
    """ImageNet-ReaL has several right classes for an image, or none; ImageNet-A tells 200 classes apart."""
    names = [f'x/ILSVRC2012_val_{number:08d}.JPEG' for number in range(1, 200)]
    run = run_on([dict(img_path=name, gt_label=0) for name in names])
    real = conditions_of(['real'])[-1].change(run)
    counts = [len(real.right(SimpleNamespace(img_path=name))) for name in names]
    assert min(counts) == 0 and max(counts) > 1
    sample = SimpleNamespace(gt_label=torch.tensor([1]), pred_score=torch.tensor([0.1, 0.2, 0.4, 0.3]))
    found = []
    for changes in (dict(), dict(right=lambda sample: [2, 0]), dict(among=[1, 0]), dict(right=lambda sample: [])):
        arrays = MEASURES['accuracy'].observe(Seen(replace(run, **changes), 0, {}, sample))
        found.append([float(arrays['top-1']), float(arrays['top-5'])])
    assert found[:3] == [[0, 100], [100, 100], [100, 100]] and np.isnan(found[3]).all()
    with pytest.raises(ValueError, match='accuracy alone knows the labels'):
        MEASURES['loss'].observe(Seen(replace(run, right=lambda sample: [2]), 0, {}, sample))


def test_foreign_folders_and_unknown_names_are_refused(names, tmp_path, capsys):
    (tmp_path / 'mine.csv').write_text('mine')
    for out, arguments, message in (
        (tmp_path, (), 'holds other files'),
        (tmp_path / 'o', ('--measures', 'entropi'), 'choose from accuracy, '),
        (tmp_path / 'o', ('--conditions', 'shift:sideways:3'), 'expected one of right, left, down, up'),
        (tmp_path / 'o', ('--conditions', 'nois:3'), 'choose from shift, '),
        (tmp_path / 'o', ('--measures', 'miou'), 'nothing can be measured'),
        (tmp_path / 'o', ('--images', 'nowhere'), 'no such folder; or name a split'),
    ):
        with pytest.raises(SystemExit) as ended:
            main([names[0], *arguments, '--out', str(out), '--device', 'cpu'])
        assert ended.value.code == 2 and message in capsys.readouterr().err, message
    assert (tmp_path / 'mine.csv').read_text() == 'mine'


def test_a_broken_image_is_named_left_out_and_counted(names, digits, tmp_path, capsys):
    [path, *_] = sorted((digits / 'imagenet' / 'val').rglob('*.*'))
    content = path.read_bytes()
    try:
        path.write_bytes(b'no image')
        chosen = ('--measures', 'score', 'feature_similarity', '--conditions', 'field:1')
        found = study(tmp_path / 'out', *names, *chosen, status=1)
    finally:
        path.write_bytes(content)
    assert path.name in capsys.readouterr().err
    assert len({row['condition'] for row in found}) == 2
    assert {row['n'] for row in found if row['quantity'] == 'value'} == {str(IMAGES - 1)}
    assert len(json.loads((tmp_path / 'out' / 'results.json').read_text())['skipped']) == 1


OWN = """
from vitplug.lab.study.conditions import Condition, at_input
from vitplug.lab.study.measure import measure


def unchanged():
    def change(run):
        return at_input(lambda pixels, results: pixels)(run)

    return Condition('as it was', change)


@measure('grey levels', 'ours')
def brightness(seen):
    'Mean of the pixels.'
    return {'mean': seen.batch['inputs'][0].float().mean().numpy()}
"""


def test_a_strangers_measure_and_condition(names, runs, tmp_path, monkeypatch):
    (tmp_path / 'stranger.py').write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    found = study(tmp_path / 'o', names[0], '--measures', 'stranger:brightness', '--conditions', 'stranger:unchanged')
    expected = np.mean([runs[0].batch([i])['inputs'][0].float().mean() for i in runs[0].images])
    for condition in ('clean', 'as it was'):
        assert number(found, condition=condition, quantity='value') == pytest.approx(expected)


def evaluated(run, names, folder, conditions=(), bank=20):
    """Arrays of all images by measure, and their estimates."""
    study = Study(Store(folder), [run], conditions_of(conditions), measures_of(names, run.library), bank)
    study.evaluate()
    assert not study.left_out
    last = {measure: study.found[measure][-1] for measure in study.measures}
    estimates = {measure.name: measure.estimate(changed, units) for measure, (changed, _, units) in last.items()}
    return estimates, {measure.name: units for measure, (*_, units) in last.items()}


def test_measures_are_those_of_the_backbone_image_by_image(runs, tmp_path):
    run = runs[1]
    names = ('entropy', 'cka', 'erf', 'feature_similarity', 'distance', 'rollout')
    found, units = evaluated(run, names, tmp_path)
    inputs = [run.inputs(run.batch([index])) for index in run.images]
    entropies, features = [], []
    for x in inputs:
        with torch.no_grad():
            _, seen = run.backbone.forward_intermediates(x, ('probs', 'block'))
        places = {layer: Place.of(run.backbone, layer, tuple(x.shape[-2:])) for layer in seen['probs']}
        entropies.append([attention_entropy(maps, places[layer])[0].numpy() for layer, maps in seen['probs'].items()])
        features.append([tokens.flatten() for tokens in seen['block'].values()])
    assert found['entropy']['patch queries'].mean == pytest.approx(np.mean(entropies, 0), rel=1e-5)
    assert (found['entropy']['queries left out'].mean == 0).all()
    layers = [torch.stack(layer) for layer in zip(*features, strict=True)]
    grams = centred_grams(layers)
    assert found['cka']['between blocks'].mean == pytest.approx(cka(unbiased(grams)), rel=1e-6)
    features = partial(last_map, run.backbone)
    field = np.mean([input_gradient(features, x).mean(0).relu().numpy() for x in inputs], 0)
    stored = np.mean([unit['field'] for unit in units['erf']], 0)
    assert stored == pytest.approx(field, rel=1e-4, abs=1e-9)


def test_the_folder_of_an_ablation_is_paired_by_seed(names, tmp_path):
    for label, name in (('none', names[1]), ('cb', names[0])):
        config, _, checkpoint = name.rpartition('=')[0].partition('.py:')
        for seed in (0, 1):
            cell = tmp_path / 'grid' / 'cells' / f'{label}_{seed}'
            cell.mkdir(parents=True)
            (cell / 'cell.json').write_text(json.dumps(dict(label=label, seed=seed, parameters=1, code='')))
            (cell / 'config.py').write_text(f"_base_ = '{config}.py'\n")
            content = torch.load(checkpoint)
            content['state_dict'] = {key: value * (1 + 0.1 * seed) for key, value in content['state_dict'].items()}
            torch.save(content, cell / 'last.pth')
            (cell / 'last_checkpoint').write_text('last.pth')
            (cell / 'done').touch() if (label, seed) != ('cb', 1) else None
    shutil.copytree(cell, tmp_path / 'grid/cells/cb_of_other_settings')
    grid = dict(labels=['none', 'cb'], cells=[f'{label}_{seed}' for label in ('none', 'cb') for seed in (0, 1)])
    (tmp_path / 'grid' / 'grid.json').write_text(json.dumps(grid))
    with pytest.raises(ValueError, match='0 cells of an ablation, none finished'):
        read_runs([str(tmp_path)], device='cpu')
    found = read_runs([str(tmp_path / 'grid')], device='cpu')
    assert [(run.label, run.seed) for run in found] == [('none', 0), ('none', 1), ('cb', 0)]
    (tmp_path / 'grid/cells/cb_1/done').touch()
    found = study(tmp_path / 'o', tmp_path / 'grid', '--measures', 'feature_similarity')
    differences = [row for row in found if row['model'] == 'cb' and row['quantity'] == 'difference']
    assert {(row['over'], row['n']) for row in differences} == {('seeds', '2')}


def test_an_edit_is_that_of_the_backbone_and_its_control_is_another(runs, tmp_path):
    run, edited = runs[0], {'heads': {1: zero(heads=[0])}}
    found, _ = evaluated(run, ['loss'], tmp_path, ['edit:head:1:0:zero'])
    control, _ = evaluated(run, ['loss'], tmp_path, ['edit:head:1:0:zero:control'])
    with run.backbone.edited(edited):
        samples = [sample for index in run.images for sample in run.predict(run.batch([index]))]
    losses = [-math.log(float(sample.pred_score[sample.gt_label])) for sample in samples]
    assert float(found['loss']['cross entropy'].mean) == pytest.approx(np.mean(losses), rel=1e-4)
    assert float(control['loss']['cross entropy'].mean) != pytest.approx(np.mean(losses), rel=1e-3)


def test_a_calibrated_attack_has_the_accuracy_that_was_asked(names, tmp_path):
    found = study(tmp_path / 'o', names[1], '--conditions', 'fgsm:calibrate:60')
    [name] = {row['condition'] for row in found} - {'clean'}
    assert name.startswith('FGSM, calibrated to 60: epsilon ')
    assert abs(number(found, condition=name, value='top-1', quantity='value') - 60) <= 100 / IMAGES


def test_an_image_without_a_gradient_is_left_out_and_counted(names, runs, tmp_path, monkeypatch, capsys):
    dead, _ = runs[0].attackable(runs[0].batch([3]))
    signed = conditions.signed

    def without(run, images, labels, size):
        attacked = signed(run, images, labels, size)
        attacked[(images == dead).flatten(1).all(1)] = torch.nan
        return attacked

    monkeypatch.setattr(conditions, 'signed', without)
    chosen = ('--measures', 'accuracy', 'feature_similarity', 'cka', '--conditions', 'fgsm:8/255', 'fgsm:calibrate:50')
    found = study(tmp_path / 'o', *names, *chosen, status=1)
    assert {row['n'] for row in found if row['quantity'] == 'value'} == {str(IMAGES - 1)}
    # Groups of clean images, which ran before it was left out, are without it, too.
    of_cka = {(row['model'], row['condition']) for row in found if row['measure'] == 'cka'}
    assert of_cka == {(row['model'], row['condition']) for row in found if row['measure'] == 'feature_similarity'}
    assert 'gradient is zero everywhere' in capsys.readouterr().err


def test_a_measure_without_enough_images_does_not_end_the_others(names, tmp_path):
    found = study(tmp_path / 'o', names[0], '--measures', 'cka', 'feature_similarity', '--num', '3')
    assert {row['measure'] for row in found} == {'feature_similarity'}


def test_neighbours_vote_as_counted_by_hand():
    generator = torch.Generator().manual_seed(0)
    bank, queries = torch.randn(40, 5, generator=generator), torch.randn(3, 5, generator=generator)
    labels = torch.randint(3, (40,), generator=generator)
    scores = neighbours.votes(bank.numpy(), F.one_hot(labels, 3).numpy()).predict(queries.numpy())
    for query, row in zip(queries, scores, strict=True):
        similarity = F.cosine_similarity(query[None], bank)
        near = sorted(range(40), key=lambda i: -float(similarity[i]))[:20]
        weights = {i: math.exp(float(similarity[i]) / 0.07) for i in near}
        for label in range(3):
            expected = sum(w for i, w in weights.items() if int(labels[i]) == label) / sum(weights.values())
            assert float(row[label]) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_probes_learn_from_training_images_alone(runs, tmp_path):
    found, units = evaluated(runs[0], ['knn', 'linear'], tmp_path)
    for name in ('knn', 'linear'):
        assert len(units[name]) == IMAGES and 0 <= float(found[name]['top-1'].mean) <= 100
    train = read_run(str(CB), None, 'same', 'train', 'cpu')
    same = Study(Store(tmp_path), [replace(train, num=12)], conditions_of([]), measures_of(['knn'], train.library), 20)
    same.evaluate()
    [reason] = same.left_out.values()
    assert '12 images are in train_dataloader and are tested' in reason


def test_a_bank_is_of_the_changed_model_and_of_clean_images(runs, tmp_path):
    run, stores = runs[0], [tmp_path / name for name in 'abcd']
    found, _ = evaluated(run, ['knn'], stores[0], ['reset:ape-random'])
    model, _ = reset_copy(run.model, 'ape-random')
    alone, _ = evaluated(replace(run, model=model, content='other', cache={}), ['knn'], stores[1])
    assert found['knn']['top-1'].samples.tolist() == alone['knn']['top-1'].samples.tolist()
    # Without the clean images before it, noise does not reach the training images.
    banks = []
    for store, chosen in ((stores[2], []), (stores[3], ['noise:60'])):
        Study(Store(store), [run], conditions_of(chosen)[-1:], measures_of(['knn'], run.library), 20).evaluate()
        [path] = (store / 'arrays').glob('*training-images*')
        banks.append(np.load(path))
    assert all(np.array_equal(banks[0][key], banks[1][key]) for key in banks[0].files)


def test_edits_and_attacks_reach_all_measures(runs, tmp_path):
    for condition, measure, value in (
        ('edit:token:1:9:zero', 'erf', 'sigma x'),
        ('edit:head:1:0:zero', 'feature_similarity', 'similarity'),
        ('fgsm:8/255', 'feature_similarity', 'similarity'),
    ):
        clean, changed = (
            evaluated(runs[0], [measure], tmp_path, conditions)[0][measure][value].mean
            for conditions in ([], [condition])
        )
        assert not np.allclose(clean, changed, rtol=1e-5), condition


def test_segmentation_scores_and_dense_neighbours(digits, tmp_path):
    path = tmp_path / 'seg.pth'
    save_untrained(SEGMENTATION, path, loud)
    run = read_run(str(SEGMENTATION), str(path), device='cpu')
    found, units = evaluated(run, ['miou', 'dense_knn', 'loss'], tmp_path / 'out')
    metric = IoUMetric()
    metric.dataset_meta = run.dataset.metainfo
    for index in run.images:
        metric.process({}, [sample.to_dict() for sample in run.predict(run.batch([index]))])
    assert float(found['miou']['mIoU'].mean) == pytest.approx(metric.compute_metrics(metric.results)['mIoU'], abs=0.01)
    assert float(found['loss']['cross entropy'].mean) > 0
    # Features that are the classes themselves: nearest neighbours of patches know them.
    areas = np.sum([unit['areas'] for unit in units['dense_knn']], 0)
    assert areas.shape == (2, len(run.dataset.metainfo['classes'])) and (areas[0] <= areas[1]).all()
    label = torch.tensor([[0, 0, 1, 255], [0, 1, 1, 255]])
    shares = neighbours.patch_shares(label, (1, 2), SimpleNamespace(dataset=run.dataset, cfg=run.cfg))
    assert shares[:, :2].tolist() == [[0.75, 0.25], [0.0, 0.5]]


def test_detection_has_cocos_precision(digits, tmp_path):
    path = tmp_path / 'det.pth'
    save_untrained(DETECTION, path)
    run = read_run(str(DETECTION), str(path), device='cpu')
    found, _ = evaluated(run, ['ap'], tmp_path / 'out')
    assert set(found['ap']) == {'bbox AP', 'segm AP'}
    train = coco_metric(read_run(str(DETECTION), str(path), images='train', device='cpu'))
    assert train._coco_api.dataset['images'][0]['file_name'].startswith('train_')
    metric = coco_metric(run)
    metric.results = []
    for index in run.images:
        metric.process({}, [sample.to_dict() for sample in run.predict(run.batch([index]))])
    expected = metric.compute_metrics(metric.results)
    for kind in ('bbox', 'segm'):
        assert float(found['ap'][f'{kind} AP'].mean) == pytest.approx(100 * expected[f'{kind}_mAP'], abs=0.06)


def test_networks_without_sockets_and_of_timm(digits, tmp_path, names):
    config = tmp_path / 'resnet.py'
    backbone = (
        "model = dict(backbone=dict(_delete_=True, type='ResNet', depth=18, in_channels=1), head=dict(in_channels=512))"
    )
    config.write_text(f"_base_ = '{PLAIN}'\n{backbone}\n")
    measures = ('--measures', 'evolving_speed', 'entropy', '--conditions', 'edit:head:1:0:zero')
    found = study(tmp_path / 'o', names[0], f'{config}=resnet', *measures, '--num', '8')
    layers = {row['layer'] for row in found if row['model'] == 'resnet' and row['measure'] == 'evolving_speed'}
    assert layers == set(map(str, range(8)))
    left_out = json.loads((tmp_path / 'o' / 'results.json').read_text())['left_out']
    left_out = [(one['condition'], one['measure']) for one in left_out if 'no sockets' in one['why']]
    assert left_out[0] == ('clean', 'entropy') and len(left_out) == 3  # an edit needs sockets for all measures
    val = digits / 'imagenet' / 'val'
    models = ('test_vit', 'test_resnet', 'test_convnext')
    arguments = ('--measures', 'erf', 'distance', '--conditions', 'reset:ape', '--images', val, '--num', '2')
    found = study(tmp_path / 't', *map('timm:{}'.format, models), *arguments)
    assert {row['model'] for row in found if row['measure'] == 'erf'} == {*models}
    assert 'test_vit' in {row['model'] for row in found if row['condition'].startswith('reset')}
    assert {row['model'] for row in found if row['measure'] == 'distance'} == {'test_vit'}


def test_every_part_of_a_paper_is_made_of_known_parts():
    for paper in PAPERS.values():
        assert measures_of(paper['measures'], 'mmpretrain')
        conditions = conditions_of([text for text in paper.get('conditions', ()) if text != 'real'])
        known = {condition.name for condition in conditions} | {'ImageNet-ReaL', 'ImageNet-V2', 'ImageNet-A'}
        assert paper.get('figures', {}).keys() <= known


def test_figures_of_papers_stand_beside_their_own_score_alone():
    numbers = dict(quantity='value', layer='', head='', mean=50.0, low=49.0, high=51.0, n=9, over='images')
    rows = [Row('accuracy', value, 'a', 'ImageNet-A', **numbers) for value in ('top-1', 'top-5')]
    top_1, top_5 = table(rows, {'ImageNet-A': '19.0'}).splitlines()[2:]
    assert '19.0' in top_1 and '19.0' not in top_5
    rows = [Row('accuracy', 'top-1', 'a', 'field calibrated, ratio 1.12', **numbers)]
    text = table(rows, {'field calibrated, ratio 1': '87.1', 'field calibrated, ratio 1.12': '88.4'})
    assert '88.4' in text and '87.1' not in text


def test_pictures_of_all_kinds_are_written(names, digits, tmp_path):
    gab = DIGITS / 'vit-mini-p4-gab_1xb32-14e_digits-32x32.py'
    chosen = ('rollout', 'grad_cam', 'erf', 'cka', 'distance', 'learned', 'position_bias', 'bias_rows', 'token_pairs')
    chosen += ('maps_by_entropy', 'refined_maps')
    study(tmp_path / 'o', f'{gab}=gab', names[1], '--measures', *chosen, '--num', '5')
    assert {path.stem for path in (tmp_path / 'o').glob('*.png')} == set(chosen)
    found = study(tmp_path / 'c', names[1], '--conditions', 'blur:1', 'blur:2', 'edit:head:99:0:zero', '--num', '3')
    assert {row['condition'].partition(',')[0] for row in found} == {'clean', 'Gaussian blur'}  # there is no block 99
    assert {path.stem for path in (tmp_path / 'c').glob('*.png')} == {'accuracy_over_strength'}
