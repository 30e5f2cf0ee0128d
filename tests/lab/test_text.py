"""BERT-Small with plugs, its pre-training and GLUE on made files. Needs transformers, see `make test-huggingface`."""

import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from glue_files import FORMATS, write_glue

from vitplug.adapters import plug_in
from vitplug.lab.text import glue, pretrain
from vitplug.lab.text.glue import TASKS, classifier, read_examples
from vitplug.lab.text.pretrain import Parts, make_optimizers

# --- files: without transformers ---


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    return write_glue(tmp_path_factory.mktemp('glue'))


@pytest.mark.parametrize('name', FORMATS)
def test_made_files_of_every_task_are_read(name, made):
    task = TASKS[name]
    for split in ('train', task.dev):
        examples = read_examples(name, made, split)
        is_good = ['good' in words[0].split() or 'bad' in words[0].split() for words, _ in examples]
        # The first label of the made files is the one without the word.
        assert len({*zip(is_good, (target for _, target in examples), strict=True)}) == (3 if name == 'MNLI' else 2)
        assert {len(words) for words, _ in examples} == {len(task.columns) - 1}
        assert examples[0][0][0].endswith(' "')


def test_columns_in_another_order_lines_of_windows_and_quotation_marks(tmp_path):
    (tmp_path / 'RTE').mkdir()
    (tmp_path / 'RTE' / 'dev.tsv').write_bytes(
        b'label\tindex\tsentence2\tsentence1\r\nnot_entailment\t0\t "b\t a \r\nentailment\t1\td"\tc\r\n'
    )
    assert read_examples('RTE', tmp_path, 'dev') == [((' a ', ' "b'), 1), (('c', 'd"'), 0)]


@pytest.mark.parametrize(
    ('name', 'lines', 'left_out'),
    [
        ('CoLA', 'gj04\t2\t\tof\ngj04\t1\tof\ngj04\t1\t*\tlast good\n', 2),
        ('STS-B', '7\ta\tb\t2012\t1\tn\tn\tx\ty\t5.5\n7\ta\tb\t2012\t1\tn\tn\tx\ty\tnan\n', 2),
        ('SST-2', 'a\t1\tmore\n', 1),
    ],
)
def test_lines_that_cannot_be_read_are_left_out_and_counted(name, lines, left_out, made, tmp_path, capsys):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'dev.tsv').write_text((made / name / 'dev.tsv').read_text() + lines)
    kept = len(read_examples(name, made, 'dev')) + lines.count('\n') - left_out
    assert len(read_examples(name, tmp_path, 'dev')) == kept
    assert f'{left_out} lines left out, {kept} kept' in capsys.readouterr().out


def test_wrong_files_are_named(tmp_path):
    (tmp_path / 'SST-2').mkdir()
    (tmp_path / 'SST-2' / 'dev.tsv').write_text('text\tlabel\na\t1\n')
    with pytest.raises(ValueError, match=r"dev\.tsv has no example: expected columns \('sentence', 'label'\)"):
        read_examples('SST-2', tmp_path, 'dev')


def test_documents_are_cut_and_nine_of_ten_parts_are_in_two_segments():
    start, end = 1, 2
    parts = Parts([], type('Tokenizer', (), dict(cls_token_id=start, sep_token_id=end, __len__=lambda self: 9))(), 128)
    parts.parts = [np.full(n, 7) for n in (1, 40, 100) * 200]
    rows = [parts[index] for index in range(600)]
    assert [row['input_ids'].count(7) for row in rows] == [1, 40, 100] * 200
    assert all(row['input_ids'][0] == start and row['input_ids'][-1] == end for row in rows)
    two = [row for row in rows if row['input_ids'].count(end) == 2]
    assert 510 < len(two) < 570
    for row in two:
        after = row['input_ids'].index(end) + 1
        assert not any(row['token_type_ids'][:after]) and all(row['token_type_ids'][after:])


# --- models ---

TINY = dict(embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
SENTENCES = ['the cat sees the red house', 'a dog runs', 'the old tree of the small cat is very red', 'good bad a b c']


@pytest.fixture(scope='module')
def hf():
    """transformers, whose Trainer would take the folder tests/datasets for Hugging Face's package."""
    transformers = pytest.importorskip('transformers')
    from transformers import trainer as trainer_module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, 'is_datasets_available', lambda: False)
        yield transformers


@pytest.fixture(scope='module')
def folder(hf, tmp_path_factory):
    """A text, a vocabulary, sizes of a tiny model, GLUE, and a trained model without plugs and with Refiner."""
    folder = tmp_path_factory.mktemp('text')
    for name in ('text', 'tiny'):
        (folder / name).mkdir()
    for i in range(2):
        (folder / 'text' / f'{i}.txt').write_text('\n\n'.join(SENTENCES * 30))
    words = sorted({word for text in SENTENCES for word in text.split()})
    (folder / 'vocab.txt').write_text('\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *words]))
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


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


def history(folder, step=22):
    return json.loads((folder / f'checkpoint-{step}' / 'trainer_state.json').read_text())['log_history']


def test_bert_small_has_14_million_parameters_with_refiner_and_without(hf):
    """The paper's Table 6 has 14M for both; transformers' defaults of ELECTRA are the small model's sizes."""
    with torch.device('meta'):
        plain, refined = (plug_in(hf.ElectraForMaskedLM(hf.ElectraConfig()), plugs) for plugs in ('none', 'refiner'))
    counts = [sum(p.numel() for p in model.parameters()) for model in (plain, refined)]
    # Per block: 4 -> 12 maps, 12 kernels of 3 x 3, 12 -> 4 maps.
    assert round(counts[0] / 1e6) == 14 and counts[1] - counts[0] == 12 * (48 + 108 + 48)


def test_rates_by_layer(hf):
    model = hf.ElectraForSequenceClassification(hf.ElectraConfig(**TINY, vocab_size=20))
    groups = make_optimizers(model, 1.0, 10, 2, 0.5)[0].param_groups
    found = {id(p): (group['initial_lr'], group['weight_decay']) for group in groups for p in group['params']}
    expected = {'classifier': 1.0, 'layer.1': 0.25, 'layer.0': 0.125, 'embeddings': 0.0625}
    for name, parameter in model.named_parameters():
        [rate] = [value for part, value in expected.items() if part in name]
        assert found[id(parameter)] == (rate, 0 if re.search('bias|LayerNorm', name) else 0.01)


def test_pretraining_lowers_the_held_out_loss_with_rates_that_warm_up(folder):
    held_out = [entry['eval_loss'] for entry in history(folder / 'refiner') if 'eval_loss' in entry]
    assert len(held_out) == 3 and held_out[-1] < 2.9 < math.log(25)
    rates = {entry['step']: entry['learning_rate'] for entry in history(folder / 'none') if 'learning_rate' in entry}
    assert rates == pytest.approx({step: 5e-3 * (1 - (step - 1) / 22) for step in (8, 16)})


def test_an_interrupted_pretraining_goes_on_from_its_last_checkpoint(hf, folder, tmp_path, monkeypatch):
    steps, step = [], hf.Trainer.training_step

    def stop(*args, **settings):
        steps.append(1)
        if len(steps) == 12:
            raise KeyboardInterrupt
        return step(*args, **settings)

    monkeypatch.setattr(hf.Trainer, 'training_step', stop)
    with pytest.raises(KeyboardInterrupt):
        run_pretrain(folder, tmp_path / 'out')
    assert not (tmp_path / 'out' / 'model.safetensors').exists()
    assert run_pretrain(folder, tmp_path / 'out') == 0
    assert len(steps) == 12 + 22 - 8 and history(tmp_path / 'out')[:2] == history(tmp_path / 'out', 16)[:2]


def test_a_folder_of_other_content_is_refused_and_left_as_it_is(folder, tmp_path):
    before = contents(folder / 'refiner')
    with pytest.raises(ValueError, match='is made of other seed, plugs; choose another --out'):
        run_pretrain(folder, folder / 'refiner', 'none', '--seed 3')
    shutil.copytree(folder / 'text', tmp_path / 'text')
    (tmp_path / 'text' / '0.txt').write_text('\n\n'.join(SENTENCES[::-1] * 30))  # as many sequences, of other bytes
    for name in ('tiny', 'vocab.txt'):
        (tmp_path / name).symlink_to(folder / name)
    with pytest.raises(ValueError, match='is made of other text'):
        run_pretrain(tmp_path, folder / 'refiner')
    assert contents(folder / 'refiner') == before
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'config.json').write_text('precious')
    with pytest.raises(ValueError, match='choose another --out'):
        run_pretrain(folder, tmp_path / 'mine')
    assert [path.read_bytes() for path in (tmp_path / 'mine').iterdir()] == [b'precious']


# --- GLUE ---


def results(folder, task='*'):
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f'{task}/*_seed*.json'))]


def test_all_eight_tasks(folder, tmp_path, capsys):
    """Plain and with Refiner: results, their comparison, and a second call that trains nothing."""
    options = '--seeds 2 --epochs 1 --batch 64'
    for model in ('none', 'refiner'):
        assert run_glue(folder, tmp_path, model=model, more=options) == 0
    found = results(tmp_path)
    assert len(found) == 2 * 2 * len(TASKS)
    rows = [re.split(r'\s{2,}', line) for line in glue.table(tmp_path).splitlines()]
    assert {row[0] for row in rows[2:]} == {*TASKS}
    [plain, refined] = [row for row in rows if row[:2] == ['CoLA', 'matthews']]
    means = {
        plugs: np.mean([one['value'] for one in results(tmp_path, 'CoLA') if one['plugs'] == plugs])
        for plugs in ('none', 'refiner')
    }
    assert plain[2].startswith('none ') and plain[4] == f'{means["none"]:.1f}'
    assert refined[2].startswith('refiner ') and f'{means["refiner"] - means["none"]:.1f}' in refined
    before = contents(tmp_path)
    capsys.readouterr()
    run_glue(folder, tmp_path, more=options)
    assert contents(tmp_path) == before and ', seed ' not in capsys.readouterr().out


def test_results_of_other_content_are_refused(folder, tmp_path):
    """Another length of training, and a longer pre-training; models of other weights are beside each other."""
    out = tmp_path / 'out'
    run_glue(folder, out, 'RTE', 'none', '--epochs 1')
    with pytest.raises(ValueError, match='RTE is made of other epochs; choose another --out'):
        run_glue(folder, out, 'RTE', 'refiner', '--epochs 2')
    shutil.copytree(folder / 'glue', tmp_path / 'glue')
    for name in ('model.safetensors', pretrain.RECORD):
        shutil.copytree(folder / 'none', tmp_path / name)
        path = tmp_path / name / name
        content = path.read_bytes()
        path.write_bytes(content.replace(b': 22', b': 23') if name == pretrain.RECORD else content[:-1] + b'\x01')
    run_glue(tmp_path, out, 'RTE', 'model.safetensors', '--epochs 1')
    with pytest.raises(ValueError, match='RTE is made of other pretraining'):
        run_glue(tmp_path, out, 'RTE', pretrain.RECORD, '--epochs 1')
    assert len({one['weights'] for one in results(out)}) == len(results(out)) == 2


def test_a_seed_is_the_same_training_whatever_runs_before(folder, tmp_path):
    """Also the same head for another model: plugs at an identity start change nothing at step 0."""
    for name, more in (('two', '--seeds 2'), ('one', '--seeds 1')):
        torch.rand(len(name))
        run_glue(folder, tmp_path / name, 'STS-B', more=f'--epochs 2 --lr 1e-2 {more}')
    one, two = results(tmp_path / 'one')[0], results(tmp_path / 'two')[0]
    assert one == two
    heads = []
    for plugs in ('none', 'refiner'):
        torch.manual_seed(5)
        heads.append(classifier(str(folder / plugs), 2)[0].classifier.out_proj.weight)
    assert torch.equal(*heads)


def test_correlation_of_a_constant_is_undefined_and_not_zero(hf, tmp_path):
    assert math.isnan(glue.METRICS['spearman']([1, 2, 3], np.ones(3))) and glue.METRICS['matthews']([0, 1], [0, 0]) == 0
    for seed, value in enumerate((80.0, math.nan, 90.0)):
        path = tmp_path / 'STS-B' / f'none_seed{seed}.json'
        path.parent.mkdir(parents=True, exist_ok=True)
        one = dict(plugs='none', weights='abcdefgh', seed=seed, value=value)
        path.write_text(json.dumps(one))
    assert re.split(r'\s{2,}', glue.table(tmp_path).splitlines()[-1])[3:5] == ['2', '85.0']


def test_predictions_that_are_not_finite_are_no_result(folder, tmp_path):
    with pytest.raises(ValueError, match='RTE: predictions are not finite: set a lower --lr than 1e'):
        run_glue(folder, tmp_path, 'RTE', more='--epochs 1 --lr 1e30')
    assert not results(tmp_path)


@pytest.mark.parametrize('model', ['none', 'refiner'])
def test_trained_weights_are_those_that_are_fine_tuned(hf, folder, tmp_path, model):
    saved = hf.AutoModel.from_pretrained(folder / model).state_dict()
    found = classifier(str(folder / model), 2)[0]
    assert all(torch.equal(value, saved[key]) for key, value in found.base_model.state_dict().items() if key in saved)
    shutil.copytree(folder / 'none', tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / 'config.json').read_text())
    (tmp_path / 'config.json').write_text(json.dumps(config | dict(num_hidden_layers=3)))
    with pytest.raises(ValueError, match=r'lacks weights of the model, such as electra\.encoder\.layer\.2'):
        classifier(str(tmp_path), 2)
