"""BERT-Small with plugs, its pre-training and GLUE on made files. Needs transformers, see `make test-huggingface`."""

import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from glue_files import FORMATS, write_glue

transformers = pytest.importorskip('transformers')

from transformers import trainer as trainer_module  # noqa: E402

from vitplug.lab.text import glue, pretrain, training  # noqa: E402
from vitplug.lab.text.data import TASKS  # noqa: E402
from vitplug.lab.text.models import MODELS, classifier, learn_vocabulary, masked_lm  # noqa: E402
from vitplug.statistics.seeds import compare  # noqa: E402

TINY = dict(embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
SENTENCES = ['the cat sees the red house', 'a dog runs', 'the old tree of the small cat is very red', 'good bad a b c']


@pytest.fixture(scope='module', autouse=True)
def without_datasets():
    """The folder tests/datasets has the name of Hugging Face's package, which Trainer would take it for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, 'is_datasets_available', lambda: False)
        yield


@pytest.fixture(scope='module')
def folder(without_datasets, tmp_path_factory):
    """A text, a vocabulary, sizes of a tiny model, GLUE, and a trained model without plugs and with Refiner."""
    folder = tmp_path_factory.mktemp('text')
    for name in ('text', 'tiny'):
        (folder / name).mkdir()
    for i in range(2):
        (folder / 'text' / f'{i}.txt').write_text('\n\n'.join(SENTENCES * 30))
    (folder / 'vocab.txt').write_text('\n'.join(learn_vocabulary(SENTENCES, 100)))
    sizes = dict(TINY, model_type='electra', max_position_embeddings=64)
    (folder / 'tiny' / 'config.json').write_text(json.dumps(sizes))
    write_glue(folder / 'glue', num_train=64, num_dev=24)
    for plugs in ('none', 'refiner'):
        assert run_pretrain(folder, folder / plugs, plugs) == 0
    return folder


def run_pretrain(folder, out, plugs='refiner', more=''):
    files = f'{folder}/text --model {folder}/tiny --vocab {folder}/vocab.txt --out {out} --plugs {plugs}'
    options = '--steps 22 --save-every 8 --length 16 --batch 8 --warmup 4 --lr 5e-3'
    return pretrain.main([*files.split(), *options.split(), *more.split()])


def run_glue(folder, out, task='all', model='refiner', more=''):
    options = f'--data {folder}/glue --out {out} --model {folder}/{model} --seeds 1 {more}'
    return glue.main([task, *options.split()])


def refused(capsys, call, *args, **settings):
    with pytest.raises(SystemExit) as end:
        call(*args, **settings)
    assert end.value.code == 2
    return capsys.readouterr().err


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


def test_bert_small_has_14_million_parameters_with_refiner_and_without():
    """The paper's Table 6 has 14M for both; transformers' defaults of ELECTRA are the small model's sizes."""
    with torch.device('meta'):
        plain, refined = (masked_lm('bert-small', plugs, 30522) for plugs in ('none', 'refiner'))
    counts = [sum(p.numel() for p in model.parameters()) for model in (plain, refined)]
    # Per block: 4 -> 12 maps, 12 kernels of 3 x 3, 12 -> 4 maps.
    assert round(counts[0] / 1e6) == 14 and counts[1] - counts[0] == 12 * (48 + 108 + 48)
    assert {**transformers.ElectraConfig().to_dict(), **MODELS['bert-small']} == transformers.ElectraConfig().to_dict()


def test_rates_by_layer():
    model = transformers.ElectraForSequenceClassification(transformers.ElectraConfig(**TINY, vocab_size=20))
    groups = training.make_optimizer(model, 1.0, 0.5).param_groups
    found = {id(p): (group['lr'], group['weight_decay']) for group in groups for p in group['params']}
    expected = {'classifier': 1.0, 'layer.1': 0.25, 'layer.0': 0.125, 'embeddings': 0.0625}
    for name, parameter in model.named_parameters():
        [rate] = [value for part, value in expected.items() if part in name]
        assert found[id(parameter)] == (rate, 0 if re.search('bias|LayerNorm', name) else 0.01)


# --- pre-training ---


@pytest.mark.parametrize('plugs', ['none', 'refiner'])
def test_pretraining_lowers_the_held_out_loss_with_rates_that_warm_up(folder, plugs):
    log = json.loads((folder / plugs / 'trainer_state.json').read_text())['log_history']
    held_out = [entry['eval_loss'] for entry in log if 'eval_loss' in entry]
    assert len(held_out) == 4 and held_out[-1] < held_out[0] - 0.3
    rates = {entry['step']: entry['learning_rate'] for entry in log if 'learning_rate' in entry}
    assert rates == pytest.approx({step: 5e-3 * (1 - (step - 1) / 22) for step in (8, 16)})


def test_an_interrupted_pretraining_goes_on_as_if_it_had_not_been(folder, tmp_path, monkeypatch, capsys):
    """Bit for bit, plugs included; without whole checkpoints, what is half written is passed over."""
    calls, loss = [], pretrain.masked_loss

    def stop(model, *args, **settings):
        calls.append(model.training)
        if sum(calls) == 12:
            raise KeyboardInterrupt
        return loss(model, *args, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(pretrain, 'masked_loss', stop)
        with pytest.raises(SystemExit) as end:
            run_pretrain(folder, tmp_path / 'out')
    assert end.value.code == 75 and 'the same command goes on' in capsys.readouterr().err
    assert (tmp_path / 'out' / 'checkpoint-8').is_dir()
    (tmp_path / 'out' / 'checkpoint-16').mkdir()
    assert run_pretrain(folder, tmp_path / 'out') == 0
    assert 'step 16: loss' in (told := capsys.readouterr().out) and 'step 8: loss' not in told
    name = 'model.safetensors'
    assert (tmp_path / 'out' / name).read_bytes() == (folder / 'refiner' / name).read_bytes()


def test_a_folder_of_other_content_is_refused_and_left_as_it_is(folder, tmp_path, capsys):
    before = contents(folder / 'refiner')
    assert 'seed 0, now 3; choose another --out' in refused(
        capsys, run_pretrain, folder, folder / 'refiner', more='--seed 3'
    )
    assert "plugs 'refiner', now 'none'" in refused(capsys, run_pretrain, folder, folder / 'refiner', 'none')
    shutil.copytree(folder / 'text', tmp_path / 'text')
    (tmp_path / 'text' / '0.txt').write_text('\n\n'.join(SENTENCES[::-1] * 30))  # as many sequences, of other bytes
    for name in ('tiny', 'vocab.txt'):
        (tmp_path / name).symlink_to(folder / name)
    assert 'made of something else: text ' in refused(capsys, run_pretrain, tmp_path, folder / 'refiner')
    assert contents(folder / 'refiner') == before
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'config.json').write_text('precious')
    assert 'has files that this command has not written' in refused(capsys, run_pretrain, folder, tmp_path / 'mine')
    assert contents(tmp_path / 'mine') == {
        (tmp_path / 'mine' / 'config.json').relative_to(tmp_path / 'mine'): b'precious'
    }


def test_a_loss_that_is_not_finite_ends_it_before_anything_is_saved(folder, tmp_path, capsys):
    assert 'set a lower --lr than 1e+30' in refused(capsys, run_pretrain, folder, tmp_path, more='--lr 1e30')
    assert not list(tmp_path.glob('checkpoint-*'))


# --- GLUE ---


def test_all_eight_tasks(folder, tmp_path, capsys):
    """Plain and with Refiner: results, their comparison, and a second call that trains nothing."""
    options = '--seeds 3 --epochs 1 --batch 64'
    for model in ('none', 'refiner'):
        assert run_glue(folder, tmp_path, model=model, more=options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.split(r'\s{2,}', lines[-1])[:4] == ['all eight', 'mean', 'refiner', '3']
    found = glue.collect(tmp_path)
    assert list(found) == [*FORMATS, 'all eight']
    for name, task in TASKS.items():
        assert len(found[name]) == len(task.metrics) * len(task.dev)
        assert {*found[name][task.metrics[0]]} == {'none', 'refiner'}
    firsts = [found[name][task.metrics[0]]['refiner'] for name, task in TASKS.items()]
    mean = found['all eight']['mean']['refiner']
    assert mean == {seed: pytest.approx(np.mean([first[seed] for first in firsts])) for seed in mean}
    assert lines[-1].endswith(compare(found['all eight']['mean'], 'none')['refiner'].verdict.value)
    before = contents(tmp_path)
    run_glue(folder, tmp_path, more=options)
    assert contents(tmp_path) == before and ', seed ' not in capsys.readouterr().out


def test_results_of_another_model_or_of_other_settings_are_neither_continued_nor_compared(folder, tmp_path, capsys):
    run_glue(folder, tmp_path / 'out', 'RTE', 'none', '--epochs 1')
    before = contents(tmp_path / 'out')
    assert 'epochs 1, now 2' in refused(capsys, run_glue, folder, tmp_path / 'out', 'RTE', 'none', '--epochs 2')
    # Another plug, trained for other epochs, would be compared with the first.
    assert 'epochs 1, now 2' in refused(capsys, run_glue, folder, tmp_path / 'out', 'RTE', 'refiner', '--epochs 2')
    # A model of the same name and settings with other weights, and one of a longer pre-training.
    for name, key in (('model.safetensors', 'weights'), (training.RECORD, 'pretraining')):
        shutil.copytree(folder / 'none', tmp_path / key)
        path = tmp_path / key / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b'\x01' if key == 'weights' else content.replace(b': 22', b': 23'))
        shutil.copytree(folder / 'glue', tmp_path / 'glue', dirs_exist_ok=True)
        assert f'something else: {key}' in refused(
            capsys, run_glue, tmp_path, tmp_path / 'out', 'RTE', key, '--epochs 1'
        )
    assert contents(tmp_path / 'out') == before


def test_a_seed_is_the_same_training_whatever_runs_before(folder, tmp_path):
    """Also the same head for another model: plugs at an identity start change nothing at step 0."""
    for name, more in (('two', '--seeds 2'), ('one', '--seeds 1')):
        torch.rand(len(name))
        run_glue(folder, tmp_path / name, 'STS-B', more=f'--epochs 2 --lr 1e-2 {more}')
    first = 'STS-B/refiner/seed0.json'
    assert (tmp_path / 'one' / first).read_text() == (tmp_path / 'two' / first).read_text()
    heads = []
    for plugs in ('none', 'refiner'):
        torch.manual_seed(5)
        heads.append(classifier(str(folder / plugs), None, 2)[0].classifier.out_proj.weight)
    assert torch.equal(*heads)


def test_pairs_are_read_in_both_orders_and_epochs_are_electra_s(folder, tmp_path, monkeypatch):
    steps, make = {}, training.make_trainer

    def count(*args, **options):
        trainer = make(*args, **options)
        monkeypatch.setattr(trainer, 'train', lambda: steps.update({name: trainer.args.max_steps}))
        return trainer

    monkeypatch.setattr(training, 'make_trainer', count)
    for name in TASKS:
        run_glue(folder, tmp_path, name, more='--batch 64')
    assert steps == dict(zip(FORMATS, (3, 3, 6, 20, 3, 3, 3, 10), strict=True))


def test_correlation_of_a_constant_is_undefined_and_not_zero(tmp_path):
    assert math.isnan(glue.METRICS['spearman']([1, 2, 3], np.ones(3))) and glue.METRICS['matthews']([0, 1], [0, 0]) == 0
    for seed, value in enumerate((80.0, None, 90.0)):
        path = tmp_path / 'STS-B' / 'none' / f'seed{seed}.json'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dict(spearman=value)))
    assert re.split(r'\s{2,}', glue.table(glue.collect(tmp_path)).splitlines()[-1])[3:] == ['2', '85.0']


@pytest.mark.parametrize('model', ['none', 'refiner'])
def test_trained_weights_are_those_that_are_fine_tuned(folder, tmp_path, model):
    saved = transformers.AutoModel.from_pretrained(folder / model).state_dict()
    found = classifier(str(folder / model), None, 2)[0]
    assert all(torch.equal(value, saved[key]) for key, value in found.base_model.state_dict().items() if key in saved)
    with pytest.raises(ValueError, match=r'--plugs gab: .*trained with refiner; leave --plugs out'):
        classifier(str(folder / 'refiner'), 'gab', 2)
    shutil.copytree(folder / 'none', tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / 'config.json').read_text())
    (tmp_path / 'config.json').write_text(json.dumps(config | dict(num_hidden_layers=3)))
    with pytest.raises(ValueError, match=r'lacks weights of the model, such as electra\.encoder\.layer\.2'):
        classifier(str(tmp_path), None, 2)
