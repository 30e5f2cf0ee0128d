"""Plugs in models of Hugging Face: nothing changes without plugs, padding is honoured, and its tools go on.

transformers 5 and mmpretrain cannot be imported together, so these run in an environment with the extra `huggingface`.
"""

import copy
from functools import partial

import pytest
import torch

transformers = pytest.importorskip('transformers')

from adapters.foreign import (  # noqa: E402
    HUGGING_FACE,
    NO_PREFIX,
    PLUGS,
    TEXT,
    assert_same,
    gradients,
    hugging_face_model,
    inputs_of,
    plugged,
    scatter,
    together,
)

import vitplug  # noqa: E402
from vitplug.plugs.plug_set import is_plug  # noqa: E402

VIT, BERT = 'ViTForImageClassification', 'BertForSequenceClassification'
SWIN, SWIN_V2 = 'SwinForImageClassification', 'Swinv2ForImageClassification'


@pytest.mark.parametrize('name', TEXT)
def test_without_plugs_eager_attention_of_text_stays(name):
    """Eager attention of image models takes its softmax in single precision."""
    model, inputs = hugging_face_model(name), inputs_of(name)
    model.set_attn_implementation('eager')
    expected = model(**inputs)[0]
    torch.testing.assert_close(vitplug.plug_in(model, [])(**inputs)[0], expected, atol=1e-12, rtol=1e-12)


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


@pytest.mark.parametrize('name', [VIT, BERT, SWIN, SWIN_V2, 'DINOv3ViTModel', 'CLIPVisionModel'])
def test_gradient_checkpointing(name):
    model, inputs = plugged(hugging_face_model(name), together(name)).train(), inputs_of(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    expected = gradients(model, lambda: model(**inputs)[0])
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=False))
    assert_same(gradients(model, lambda: model(**inputs)[0]), expected, atol=1e-10)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=True))
    with pytest.raises(RuntimeError, match='use_reentrant=False'):
        model(**inputs)


@pytest.mark.parametrize('name', ['DINOv3ViTModel', SWIN_V2])
def test_autocast(name):
    """Cosines and scales of single precision do not make queries of another type than values."""
    model, inputs = plugged(hugging_face_model(name), 'gab+residual').float().train(), inputs_of(name)
    with torch.autocast('cpu', torch.bfloat16):
        out = model(**{key: value.float() for key, value in inputs.items()})[0]
    out.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize('name', [VIT, BERT])
def test_save_pretrained_and_from_pretrained(name, tmp_path):
    model, inputs = plugged(hugging_face_model(name), together(name)), inputs_of(name)
    model.save_pretrained(tmp_path)
    plain = type(model).from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert plain.config.plugs == vitplug.plugs.text.label_of(together(name))
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


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains a small ViT with plugs by ``Trainer``, with checkpoints; gives its weights before and after."""
    pytest.importorskip('accelerate')
    # It takes the folder tests/datasets for the package of this name.
    monkeypatch.setattr(transformers.trainer, 'is_datasets_available', lambda: False)
    draws = torch.Generator().manual_seed(0)
    data = [dict(pixel_values=torch.randn(3, 32, 32, generator=draws), labels=index % 2) for index in range(16)]

    def run(epochs, resume=None, **settings):
        model = scatter(plugged(hugging_face_model(VIT))).float()
        model.save_pretrained = partial(model.save_pretrained, save_original_format=False)
        args = transformers.TrainingArguments(
            tmp_path,
            num_train_epochs=epochs,
            save_strategy='epoch',
            lr_scheduler_type='constant',
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            **settings,
        )
        start = copy.deepcopy(model.state_dict())
        transformers.Trainer(model, args, train_dataset=data).train(resume_from_checkpoint=resume)
        return start, model.state_dict()

    return run


def test_trainer_trains_and_saves_plugs(train, tmp_path):
    settings = dict(gradient_checkpointing=True, gradient_checkpointing_kwargs=dict(use_reentrant=False))
    start, trained = train(1, **settings)
    # At random weights some values of plugs lie where their limits leave no gradient.
    assert any(not torch.equal(trained[key], start[key]) for key in trained if is_plug(key))
    new = vitplug.load_plugs(plugged(hugging_face_model(VIT)).float(), tmp_path / 'checkpoint-2').state_dict()
    assert all(torch.equal(new[key], trained[key]) for key in trained if is_plug(key))


def test_trainer_resumes(train):
    train(1)
    _, resumed = train(2, resume=True)
    _, whole = train(2)
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items())


@pytest.mark.parametrize(
    ('name', 'changes', 'message'),
    [
        (BERT, dict(is_decoder=True), 'is a decoder'),
        ('BeitForImageClassification', dict(use_shared_relative_position_bias=True), 'share one position bias'),
    ],
)
def test_refused_by_name(name, changes, message):
    kind, settings = HUGGING_FACE[name]
    model = getattr(transformers, name)(getattr(transformers, kind)(**{**settings, **changes}))
    with pytest.raises(ValueError, match=message):
        vitplug.plug_in(model, 'gab')


def test_unknown_and_small_are_refused():
    with pytest.raises(ValueError, match=r'ResNetModel has no map of names. Known are .*modeling_swin.SwinModel'):
        vitplug.plug_in(transformers.ResNetModel(transformers.ResNetConfig(depths=[1], hidden_sizes=[8])), 'gab')
    _, settings = HUGGING_FACE[SWIN]
    model = transformers.SwinModel(transformers.SwinConfig(**{**settings, 'window_size': 5}))
    with pytest.raises(ValueError, match='windows of 5 x 5 tokens on a map of 4 x 4'):
        vitplug.plug_in(model, 'gab')
    model = vitplug.plug_in(transformers.SwinModel(transformers.SwinConfig(**settings)), 'gab')
    with pytest.raises(ValueError, match=r'output_attentions: vitplug\.intermediates'):
        model(torch.zeros(1, 3, 32, 32), output_attentions=True)


# --- Swin ---


@pytest.mark.parametrize('size', [(64, 64), (40, 56)])
@pytest.mark.parametrize('name', [SWIN, SWIN_V2])
def test_swin_of_other_sizes(name, size):
    """Windows are padded, and shifted on padded maps."""
    model, x = hugging_face_model(name), torch.randn(2, 3, *size, dtype=torch.float64)
    asked = dict(pixel_values=x, output_hidden_states=True)
    expected = model(**asked)
    found = vitplug.plug_in(model, [])(**asked)
    for maps in ('hidden_states', 'reshaped_hidden_states'):
        for ours, theirs in zip(found[maps], expected[maps], strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-12, rtol=1e-12)
    features, recorded = vitplug.host_of(model).forward_intermediates(x, names=('probs',))
    last = expected.reshaped_hidden_states[-1].shape
    assert features[0].shape == last and len(recorded['probs']) == 4


def test_models_of_one_config_have_notes_of_their_own():
    config = transformers.ViTConfig(**HUGGING_FACE[VIT][1])
    first, second = (transformers.ViTForImageClassification(config).eval() for _ in range(2))
    vitplug.plug_in(first, 'gab')
    vitplug.plug_in(second, 'cb')
    assert [model.config.plugs for model in (first, second)] == ['gab', 'cb'] and not hasattr(config, 'plugs')
    assert first.vit.config is first.config
    vitplug.unplug(first)
    assert not hasattr(first.config, 'plugs') and second.config.plugs == 'cb'


def test_maps_asked_for_by_the_config_are_refused():
    model = hugging_face_model(VIT)
    model.set_attn_implementation('eager')
    assert model(**inputs_of(VIT), output_attentions=True).attentions  # and its hooks are no reason to refuse it
    vitplug.plug_in(model, [])
    model.config.output_attentions = True
    with pytest.raises(ValueError, match=r'output_attentions: vitplug\.intermediates'):
        model(**inputs_of(VIT))
