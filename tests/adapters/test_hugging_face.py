"""Plugs in models of Hugging Face: nothing changes without plugs, padding is honoured, and its tools go on.

transformers 5 and mmpretrain cannot be imported together, so these run in an environment with the extra `huggingface`.
"""

import copy

import pytest
import torch

transformers = pytest.importorskip('transformers')

from adapters.foreign import (  # noqa: E402
    HUGGING_FACE,
    PLUGS,
    TEXT,
    TOGETHER,
    assert_same,
    gradients,
    hugging_face_model,
    inputs_of,
    plugged,
    scatter,
)

import vitplug  # noqa: E402
from vitplug.plugs.plug_set import is_plug  # noqa: E402

NO_PREFIX = TOGETHER.replace('+registers', '')
VIT, BERT = 'ViTForImageClassification', 'BertForSequenceClassification'


def plugs_of(name):
    return NO_PREFIX if name in TEXT or name.startswith(('Beit', 'Swin')) else TOGETHER


# Eager attention of image models takes its softmax in single precision, so only text models are compared in it.
EAGER = [(name, 'eager') for name in TEXT]


@pytest.mark.parametrize(('name', 'implementation'), [*((name, 'sdpa') for name in HUGGING_FACE), *EAGER])
def test_without_plugs_nothing_changes(name, implementation):
    model, inputs = hugging_face_model(name), inputs_of(name)
    model.set_attn_implementation(implementation)
    expected, keys = model(**inputs)[0], list(model.state_dict())
    grads = gradients(model, lambda: model(**inputs)[0])
    assert vitplug.plug_in(model, []) is model
    torch.testing.assert_close(model(**inputs)[0], expected, atol=1e-12, rtol=1e-12)
    assert_same(gradients(model, lambda: model(**inputs)[0]), grads, atol=1e-11)
    assert list(model.state_dict()) == keys


@pytest.mark.parametrize('name', HUGGING_FACE)
def test_unplug_gives_the_model_back_bit_for_bit(name):
    model, inputs = hugging_face_model(name), inputs_of(name)
    expected, state, config = model(**inputs)[0], copy.deepcopy(model.state_dict()), model.config.to_dict()
    kinds = [type(module) for module in model.modules()]
    plugged(model, plugs_of(name))
    assert [key for key in model.state_dict() if not is_plug(key)] == list(state)
    assert not torch.allclose(model(**inputs)[0], expected)
    vitplug.unplug(model)
    assert torch.equal(model(**inputs)[0], expected)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert [type(module) for module in model.modules()] == kinds
    assert model.config.to_dict() == config


# The table of RelPosBias is resized to the length, and SigmoidAttention counts all keys.
LENGTH = ('RelPosBias', 'SigmoidAttention')
PLACED = [plug for plug in PLUGS if plug not in (*LENGTH, 'Registers', 'UniformHead')]


@pytest.mark.parametrize('implementation', ['sdpa', 'eager'])
@pytest.mark.parametrize('name', TEXT)
@pytest.mark.parametrize('plugs', [[], NO_PREFIX, *PLACED])
def test_a_padded_sentence_is_the_sentence_alone(name, plugs, implementation):
    model, inputs = hugging_face_model(name), inputs_of(name)
    model.set_attn_implementation(implementation)
    try:
        plugged(model, [PLUGS[plugs]] if isinstance(plugs, str) and plugs in PLUGS else plugs)
    except ValueError as error:
        pytest.skip(str(error))
    together = model(**inputs)[0]
    alone = model(input_ids=inputs['input_ids'][1:, :7])[0]
    torch.testing.assert_close(together[1:], alone, atol=1e-10, rtol=1e-9)
    unmasked = model(input_ids=inputs['input_ids'])[0]
    assert not torch.allclose(unmasked[1], together[1])


@pytest.mark.parametrize('name', [VIT, BERT, 'DINOv3ViTModel', 'CLIPVisionModel'])
def test_gradient_checkpointing(name):
    model, inputs = plugged(hugging_face_model(name), plugs_of(name)).train(), inputs_of(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    expected = gradients(model, lambda: model(**inputs)[0])
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=False))
    assert_same(gradients(model, lambda: model(**inputs)[0]), expected, atol=1e-10)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=True))
    with pytest.raises(RuntimeError, match='use_reentrant=False'):
        model(**inputs)


def test_two_forwards_before_one_backward():
    model, inputs = plugged(hugging_face_model(VIT)), inputs_of(VIT)['pixel_values']
    first, second = (gradients(model, lambda part=part: model(part)[0]) for part in inputs.chunk(2))
    both = gradients(model, lambda: torch.cat([model(part)[0] for part in inputs.chunk(2)]))
    assert_same(both, {key: first[key] + second[key] for key in first}, atol=1e-11)


@pytest.mark.parametrize('name', [VIT, BERT])
def test_save_pretrained_and_from_pretrained(name, tmp_path):
    model, inputs = plugged(hugging_face_model(name), plugs_of(name)), inputs_of(name)
    model.save_pretrained(tmp_path)
    plain = type(model).from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert plain.config.plugs == vitplug.plugs.text.label_of(plugs_of(name))
    new = vitplug.load_plugs(vitplug.plug_in(plain, plain.config.plugs), tmp_path)
    torch.testing.assert_close(new(**inputs)[0], model(**inputs)[0], atol=0, rtol=0)


def test_hidden_states_are_the_library_s():
    model, inputs = plugged(hugging_face_model(VIT)), inputs_of(VIT)
    found = model(**inputs, output_hidden_states=True).hidden_states
    assert [tuple(t.shape) for t in found] == [(2, 17, 32)] * 4
    _, recorded = vitplug.intermediates(model, inputs, names=('block', 'probs'))
    assert torch.equal(recorded['block'][0][:, :1], found[1][:, :1])
    assert sorted(recorded['probs']) == [0, 1, 2]


def test_attention_maps_are_those_of_eager_attention():
    model, inputs = hugging_face_model(BERT), inputs_of(BERT)
    model.set_attn_implementation('eager')
    expected = model(**inputs, output_attentions=True).attentions
    model.set_attn_implementation('sdpa')
    _, found = vitplug.intermediates(vitplug.plug_in(model, []), inputs)
    for index, maps in enumerate(expected):
        torch.testing.assert_close(found['probs'][index][:, 0], maps, atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match=r'output_attentions: vitplug.intermediates'):
        model(**inputs, output_attentions=True)


def test_lora_beside_a_plug(tmp_path):
    peft = pytest.importorskip('peft')
    model, inputs = hugging_face_model(VIT), inputs_of(VIT)
    settings = peft.LoraConfig(target_modules=['q_proj', 'v_proj'], r=2, init_lora_weights=False)
    model = peft.get_peft_model(model, settings).double().eval()
    before = model(**inputs)[0]
    vitplug.plug_in(model, 'gab+residual')
    learned = {key for key, p in model.named_parameters() if p.requires_grad}
    assert all(is_plug(key) or 'lora_' in key for key in learned) and any(map(is_plug, learned))
    scatter(model, only_plugs=True)
    grads = gradients(model, lambda: model(**inputs)[0])
    assert grads.keys() == learned
    assert all(grads[key].any() for key in learned if 'lora_' in key)
    assert any(grads[key].any() for key in learned if is_plug(key))
    vitplug.unplug(model)
    assert torch.equal(model(**inputs)[0], before)
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(**inputs)[0], before, atol=1e-12, rtol=1e-12)


def test_trainer_trains_and_saves_plugs(tmp_path, monkeypatch):
    pytest.importorskip('accelerate')
    # It takes the folder tests/datasets for the package of this name.
    monkeypatch.setattr(transformers.trainer, 'is_datasets_available', lambda: False)
    pixels, labels = inputs_of(VIT)['pixel_values'].float().repeat(8, 1, 1, 1), [0, 1] * 8
    data = [dict(pixel_values=image, labels=label) for image, label in zip(pixels, labels, strict=True)]

    def train():
        model = scatter(plugged(hugging_face_model(VIT))).float()
        args = transformers.TrainingArguments(
            tmp_path,
            num_train_epochs=1,
            save_strategy='epoch',
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs=dict(use_reentrant=False),
        )
        start = copy.deepcopy(model.state_dict())
        transformers.Trainer(model, args, train_dataset=data).train()
        return start, model.state_dict()

    start, trained = train()
    # At random weights some values of plugs lie where their limits leave no gradient.
    assert any(not torch.equal(trained[key], start[key]) for key in trained if is_plug(key))
    new = vitplug.load_plugs(plugged(hugging_face_model(VIT)).float(), tmp_path / 'checkpoint-2').state_dict()
    assert all(torch.equal(new[key], trained[key]) for key in trained if is_plug(key))


@pytest.mark.slow
@pytest.mark.parametrize('name', [VIT, BERT])
def test_compiled(name):
    model, inputs = plugged(hugging_face_model(name), plugs_of(name)), inputs_of(name)
    expected = model(**inputs)[0]
    torch.testing.assert_close(torch.compile(model, backend='aot_eager')(**inputs)[0], expected)


@pytest.mark.parametrize(
    ('name', 'changes', 'message'),
    [
        (BERT, dict(is_decoder=True), 'is a decoder'),
        (BERT, dict(is_decoder=True, add_cross_attention=True), 'is a decoder'),
        ('BeitForImageClassification', dict(use_shared_relative_position_bias=True), 'share one position bias'),
    ],
)
def test_refused_by_name(name, changes, message):
    kind, settings = HUGGING_FACE[name]
    model = getattr(transformers, name)(getattr(transformers, kind)(**{**settings, **changes}))
    with pytest.raises(ValueError, match=message):
        vitplug.plug_in(model, 'gab')


def test_swin_is_refused():
    sizes = dict(image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4)
    with pytest.raises(ValueError, match=r'SwinModel has no map of names. Known are .*modeling_vit.ViTModel'):
        vitplug.plug_in(transformers.SwinModel(transformers.SwinConfig(**sizes)), 'gab')
