"""BERT-Small with plugs, its pre-training and GLUE on made files. Needs transformers, see `make test-huggingface`."""

import argparse
import json
import re
import shutil

import numpy as np
import pytest
import torch
from glue_files import FORMATS, write_glue

transformers = pytest.importorskip('transformers')

from vitplug.plugs.plug_set import is_plug  # noqa: E402
from vitplug.statistics.seeds import compare  # noqa: E402
from vitplug.text import glue, pretrain  # noqa: E402
from vitplug.text.corpus import Corpus, make_batch, mask_words  # noqa: E402
from vitplug.text.models import MODELS, classifier, learn_vocabulary, masked_lm, read_vocabulary  # noqa: E402
from vitplug.text.tasks import TASKS  # noqa: E402
from vitplug.text.training import make_optimizer, take_step  # noqa: E402

TINY = dict(embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
SENTENCES = ['the cat sees the red house', 'a dog runs', 'the old tree of the small cat is very red', 'good bad a b c']
PRETRAIN = '--length 16 --batch 8 --warmup 4 --lr 5e-3 --device cpu'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A text, a vocabulary, sizes of a tiny model, and GLUE."""
    folder = tmp_path_factory.mktemp('text')
    (folder / 'text').mkdir()
    for i in range(2):
        (folder / 'text' / f'{i}.txt').write_text('\n\n'.join(SENTENCES * 30))
    (folder / 'vocab.txt').write_text('\n'.join(learn_vocabulary(SENTENCES, 100)))
    sizes = dict(TINY, model_type='electra', max_position_embeddings=64)
    (folder / 'tiny').mkdir()
    (folder / 'tiny' / 'config.json').write_text(json.dumps(sizes))
    write_glue(folder / 'glue', num_train=64, num_dev=24)
    return folder


@pytest.fixture(scope='module')
def tokenizer(folder):
    return read_vocabulary(folder / 'vocab.txt')


def run_pretrain(folder, out, plugs='refiner', steps=24, more=''):
    files = f'{folder}/text --model {folder}/tiny --vocab {folder}/vocab.txt --out {out}'
    options = f'--plugs {plugs} --steps {steps} --save-every 8 {PRETRAIN} {more}'
    return pretrain.main([*files.split(), *options.split()])


@pytest.fixture(scope='module')
def trained(folder):
    """Folders of a plain model and one with Refiner, of the same vocabulary."""
    for plugs in ('none', 'refiner'):
        assert run_pretrain(folder, folder / plugs, plugs) == 0
    return folder


# --- the model ---


def test_bert_small_has_14_million_parameters_with_refiner_and_without():
    """The paper's Table 6 has 14M for both; transformers' defaults of ELECTRA are the small model's sizes."""
    with torch.device('meta'):
        plain, refined = (masked_lm('bert-small', plugs, 30522) for plugs in ('none', 'refiner'))
    counts = [sum(p.numel() for p in model.parameters()) for model in (plain, refined)]
    # Per block: 4 -> 12 maps, 12 kernels of 3 x 3, 12 -> 4 maps.
    assert round(counts[0] / 1e6) == 14 and counts[1] - counts[0] == 12 * (48 + 108 + 48)
    assert {**transformers.ElectraConfig().to_dict(), **MODELS['bert-small']} == transformers.ElectraConfig().to_dict()


def test_learning_rates_by_layer():
    model = transformers.ElectraForSequenceClassification(transformers.ElectraConfig(**TINY, vocab_size=20))
    groups = make_optimizer(model, 1.0, 0.5).param_groups
    rate = {id(p): group['lr'] for group in groups for p in group['params']}
    decay = {id(p): group['weight_decay'] for group in groups for p in group['params']}
    expected = {'classifier': 1.0, 'layer.1': 0.25, 'layer.0': 0.125, 'embeddings': 0.0625}
    for name, parameter in model.named_parameters():
        [wanted] = [value for part, value in expected.items() if part in name]
        assert rate[id(parameter)] == wanted
        assert decay[id(parameter)] == (0 if re.search('bias|LayerNorm', name) else 0.01)


def test_rates_warm_up_and_decay():
    model = torch.nn.Linear(1, 1)
    model.config = argparse.Namespace(num_hidden_layers=0)
    optimizer, found = make_optimizer(model, 2.0), []
    for step in range(8):
        take_step(optimizer, model(torch.ones(1)).sum(), step, 8, 2)
        found.append(optimizer.param_groups[0]['lr'])
    assert found == [0, 0.875, 1.5, 1.25, 1.0, 0.75, 0.5, 0.25]


def test_plugs_of_a_trained_folder(trained):
    found, _ = classifier(str(trained / 'refiner'), None, 2, None)
    saved = torch.load(trained / 'refiner' / 'state.pt', weights_only=True)['model']
    plugs = [key for key in found.state_dict() if is_plug(key)]
    assert len(plugs) == 6 and all(torch.equal(found.state_dict()[key], saved[key]) for key in plugs)
    assert torch.equal(
        found.electra.embeddings.word_embeddings.weight, saved['electra.embeddings.word_embeddings.weight']
    )
    added, _ = classifier(str(trained / 'none'), 'gab', 2, None)
    assert 'GaussianAttentionBias' in added.plug_summary
    with pytest.raises(ValueError, match=r'--plugs gab: .*refiner was trained with refiner; leave --plugs out'):
        classifier(str(trained / 'refiner'), 'gab', 2, None)


def test_weights_that_are_missing_are_told(trained, tmp_path):
    shutil.copytree(trained / 'none', tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / 'config.json').read_text())
    (tmp_path / 'config.json').write_text(json.dumps(config | dict(num_hidden_layers=3)))
    with pytest.raises(ValueError, match=r'lacks weights of the model, such as electra\.encoder\.layer\.2'):
        classifier(str(tmp_path), None, 2, None)


# --- pre-training ---


def test_documents_are_cut_and_not_joined(tokenizer):
    corpus = Corpus(SENTENCES, tokenizer, 8)
    assert max(map(len, corpus)) == 5
    parts = [tokenizer.decode(ids) for ids in corpus]
    assert ' '.join(parts).replace(' ', '') == ''.join(SENTENCES).replace(' ', '')


def test_masks(tokenizer):
    """As ELECTRA: 15 % of each sequence, at least one, never special tokens; 85 % of them become [MASK]."""
    torch.manual_seed(0)
    batch = make_batch([[7] * n for n in (1, 40, 100)] * 200, tokenizer)
    ids, chosen = mask_words(batch['input_ids'], tokenizer)
    assert chosen.sum(1).tolist() == [1, 6, 15] * 200
    assert (batch['input_ids'][chosen] == 7).all() and torch.equal(ids[~chosen], batch['input_ids'][~chosen])
    share = (ids[chosen] == tokenizer.mask_token_id).double().mean()
    assert abs(share - 0.85) < 5 * (0.85 * 0.15 / chosen.sum()) ** 0.5


def test_two_segments(tokenizer):
    """Nine of ten sequences have two; the second has token type 1, and padding no attention."""
    torch.manual_seed(0)
    batch = make_batch([[7, 8, 9, 10]] * 300 + [[7]], tokenizer)
    ends, lengths = (batch['input_ids'] == tokenizer.sep_token_id).sum(1), batch['attention_mask'].sum(1)
    assert set(ends.tolist()) == {1, 2} and 250 < (ends[:300] == 2).sum() < 290
    assert torch.equal(lengths[:300] - ends[:300], torch.full((300,), 5))
    two = batch['token_type_ids'][:300][ends[:300] == 2]
    assert (two == torch.tensor([0, 0, 0, 0, 1, 1, 1])).all()
    assert not batch['token_type_ids'][:300][ends[:300] == 1].any()


@pytest.mark.parametrize('plugs', ['none', 'refiner'])
def test_pretraining_lowers_the_held_out_loss(trained, plugs):
    losses = json.loads((trained / plugs / 'losses.json').read_text())
    assert [entry['step'] for entry in losses] == [0, 8, 16, 24]
    assert losses[-1]['held_out'] < losses[0]['held_out'] - 0.5


def test_a_vocabulary_is_learned_once(trained, tmp_path):
    """tokenizers breaks ties at random, so a training that goes on must not learn another one."""
    text, options = (
        str(trained / 'text'),
        f'--model {trained}/tiny --out {tmp_path} --vocab-size 100 {PRETRAIN}'.split(),
    )
    pretrain.main([text, *options, '--steps', '6'])
    vocab = (tmp_path / 'vocab.txt').read_text().splitlines()
    assert vocab[:5] == ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'] and {'cat', 'the'} < {*vocab[5:]}
    assert vocab[5:] == sorted(vocab[5:]) and len(vocab) <= 100
    (tmp_path / 'vocab.txt').write_text('\n'.join([*vocab, 'more']))
    with pytest.raises(RuntimeError, match='size mismatch'):
        pretrain.main([text, *options, '--steps', '6'])


def test_an_interrupted_pretraining_goes_on_as_if_it_had_not_been(trained, tmp_path, monkeypatch, capsys):
    """Bit for bit: weights, and losses."""

    def stop(*args, **kwargs):
        if args[2] == 11:
            raise KeyboardInterrupt
        return take_step(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(pretrain, 'take_step', stop)
        with pytest.raises(SystemExit) as end:
            run_pretrain(trained, tmp_path / 'out')
    assert end.value.code == 75 and 'interrupted; the same command goes on' in capsys.readouterr().err
    assert run_pretrain(trained, tmp_path / 'out') == 0
    for name in ('model.safetensors', 'losses.json'):
        assert (tmp_path / 'out' / name).read_bytes() == (trained / 'refiner' / name).read_bytes()


def test_other_settings_are_refused(trained, capsys):
    with pytest.raises(SystemExit) as end:
        run_pretrain(trained, trained / 'refiner', more='--seed 3')
    assert end.value.code == 2
    assert 'has results of other settings: seed 0, now 3; choose another --out' in capsys.readouterr().err


def test_a_loss_that_is_not_finite_ends_it(trained, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run_pretrain(trained, tmp_path, more='--lr 1e30')
    assert 'set a lower --lr than 1e+30' in capsys.readouterr().err and not (tmp_path / 'state.pt').exists()


# --- GLUE ---


def run_glue(trained, out, task='all', plugs='refiner', seeds=1, more=''):
    options = f'--data {trained}/glue --out {out} --model {trained}/{plugs} --seeds {seeds} --device cpu {more}'
    return glue.main([task, *options.split()])


def test_all_eight_tasks(trained, tmp_path, capsys):
    """Plain and with Refiner: results, their comparison, and a second call that trains nothing."""
    for plugs in ('none', 'refiner'):
        assert run_glue(trained, tmp_path, plugs=plugs, seeds=3, more='--epochs 1 --batch 64') == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [re.split(r'\s{2,}', line.strip()) for line in lines[-26:]]
    assert [row[0] for row in rows] == [
        name for name in FORMATS for _ in range(4 if name in ('MRPC', 'STS-B', 'QQP', 'MNLI') else 2)
    ] + ['all eight'] * 2
    found = glue.collect(tmp_path)
    for name, task in TASKS.items():
        metrics = [f'{prefix}{metric}' for prefix in task.dev for metric in task.metrics]
        assert list(found[name]) == metrics
        for values in found[name].values():
            assert {label: list(seeds) for label, seeds in values.items()} == {'none': [0, 1, 2], 'refiner': [0, 1, 2]}
    mean = np.mean(
        [[found[name][task.metrics[0]]['refiner'][seed] for name, task in TASKS.items()] for seed in range(3)]
    )
    expected = compare(found['all eight']['mean'], 'none')['refiner']
    ends = [] if expected.low is None else [f'{expected.low:+.1f} to {expected.high:+.1f}']
    assert rows[-1][:5] == ['all eight', 'mean', 'refiner', '3', f'{mean:.1f}']
    assert rows[-1][6:] == [f'{expected.difference:+.1f}', *ends, expected.verdict.value]
    run_glue(trained, tmp_path, seeds=3, more='--epochs 1 --batch 64')
    assert capsys.readouterr().out.splitlines() == lines[-28:]


@pytest.mark.slow
@pytest.mark.parametrize(('task', 'least'), [('SST-2', 80), ('STS-B', 80), ('MNLI', 50)])
def test_it_learns(trained, tmp_path, task, least):
    """One word decides the label: of one sentence, a score of two sentences, three classes."""
    run_glue(trained, tmp_path, task, more='--epochs 15 --batch 8 --lr 5e-3 --layer-decay 1')
    [values] = [json.loads(path.read_text()) for path in tmp_path.glob('*/*/seed0.json')]
    assert all(value > least for value in values.values()), values


def test_a_seed_is_the_same_training_whatever_runs_before(trained, tmp_path):
    """Also for head and order of the data of another model: plugs at an identity start change nothing at step 0."""
    run_glue(trained, tmp_path / 'two', 'CoLA', seeds=2, more='--epochs 2 --lr 1e-2')
    (tmp_path / 'two' / 'CoLA' / 'refiner' / 'seed0.json').unlink()
    run_glue(trained, tmp_path / 'two', 'CoLA', seeds=2, more='--epochs 2 --lr 1e-2')
    run_glue(trained, tmp_path / 'one', 'CoLA', seeds=2, more='--epochs 2 --lr 1e-2')
    paths = sorted(path.relative_to(tmp_path / 'one') for path in (tmp_path / 'one').rglob('*.json'))
    assert len(paths) == 3
    assert all((tmp_path / 'one' / path).read_text() == (tmp_path / 'two' / path).read_text() for path in paths)
    heads = []
    for plugs in ('none', 'refiner'):
        torch.manual_seed(5)
        heads.append(classifier(str(trained / plugs), None, 2, None)[0].classifier.out_proj.weight)
    assert torch.equal(*heads)


def test_predictions_do_not_depend_on_the_batch(trained, tokenizer):
    """A sentence is padded to the longest of its batch, and Refiner mixes columns of the maps."""
    model, _ = classifier(str(trained / 'refiner'), None, 1, None)
    args = argparse.Namespace(length=16, device='cpu')
    texts = [('the cat', 'a dog runs of the red house'), ('good', 'bad'), ('the old tree sees', 'a b c')]
    model = model.double().eval()
    together = model(**glue.make_inputs(texts, tokenizer, args)).logits
    alone = torch.cat([model(**glue.make_inputs([text], tokenizer, args)).logits for text in texts])
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=1e-9)


def test_pairs_are_read_in_both_orders_where_order_means_nothing(trained, tmp_path, monkeypatch):
    lengths = {}
    monkeypatch.setattr(glue, 'take_step', lambda optimizer, loss, step, steps, warmup: lengths.update({name: steps}))
    for name in TASKS:
        run_glue(trained, tmp_path, name, more='--batch 64')
    assert lengths == {name: task.epochs * (2 if name in ('MRPC', 'STS-B') else 1) for name, task in TASKS.items()}
    assert [TASKS[name].epochs for name in FORMATS] == [3, 3, 3, 10, 3, 3, 3, 10]
