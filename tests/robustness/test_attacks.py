"""Attacks: closed forms on a linear model, foolbox as a second opinion, checks, gradients through fast forms."""

import cases
import numpy as np
import pytest
import torch
from torch import nn

from vitplug.attention import fused_attention, tuning
from vitplug.robustness.attacks import FGSM, PGD, StandardAutoAttack, black_box_wins, check_model, gradient

SIZE = (3, 4, 5)
IMAGES = [4, 9, 2]


@pytest.fixture
def problem():
    """A linear model of two classes, images well inside the range, their classes and the weight of the difference."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(60, 2)).double().eval()
    nn.init.normal_(model[1].weight, generator=generator)
    pixels = 0.3 + 0.4 * torch.rand(3, *SIZE, dtype=torch.float64, generator=generator)
    weight = model[1].weight.detach()
    return model, pixels, torch.tensor([0, 1, 1]), (weight[1] - weight[0]).view(SIZE)


def margins(model, pixels, labels):
    logits = model(pixels)
    rows = torch.arange(len(labels))
    return logits[rows, labels] - logits[rows, 1 - labels]


@pytest.mark.parametrize('attack', [FGSM(0.1), PGD(0.1, steps=8)], ids=['fgsm', 'pgd'])
def test_linear_model_loses_epsilon_times_the_1_norm(problem, attack):
    model, pixels, labels, weight = problem
    found = attack(model, pixels, labels, IMAGES)
    signs = torch.where(labels == 0, 1.0, -1.0).view(3, 1, 1, 1)
    torch.testing.assert_close(found, pixels + 0.1 * signs * weight.sign())
    lost = margins(model, pixels, labels) - margins(model, found, labels)
    torch.testing.assert_close(lost, (0.1 * weight.abs().sum()).expand(3))


def test_gradient_is_the_softmaxs(problem):
    model, pixels, labels, _ = problem
    errors = model(pixels).softmax(1) - torch.eye(2, dtype=torch.float64)[labels]
    expected = (errors @ model[1].weight).view(3, *SIZE)
    torch.testing.assert_close(gradient(model, pixels, labels), expected)
    assert model[1].weight.grad is None


@pytest.mark.parametrize('attack', [FGSM(0.4), PGD(0.4, steps=3, step=0.3)], ids=['fgsm', 'pgd'])
def test_attacked_pixels_stay_in_the_ball_and_the_range(problem, attack):
    model, pixels, labels, _ = problem
    found = attack(model, pixels, labels, IMAGES)
    assert (found - pixels).abs().max() <= 0.4 + 1e-12
    assert found.min() == 0 and found.max() == 1
    assert not found.requires_grad


def test_random_starts_depend_on_seed_and_image_alone(problem):
    model, pixels, labels, _ = problem
    flat = lambda x: 0 * model(x)  # noqa: E731 (no gradient: the start stays)
    whole = PGD(0.1, steps=2)(flat, pixels, labels, IMAGES)
    alone = PGD(0.1, steps=2)(flat, pixels[1:2], labels[1:2], IMAGES[1:2])
    torch.testing.assert_close(whole[1:2], alone)
    assert (whole != pixels).any() and (PGD(0.1, steps=2, seed=1)(flat, pixels, labels, IMAGES) != whole).any()


def test_pgd_is_stronger_than_fgsm_on_a_curved_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(60, 40), nn.Tanh(), nn.Linear(40, 5)).eval()
    pixels, labels = torch.rand(64, *SIZE), torch.randint(5, (64,))
    loss = nn.CrossEntropyLoss()
    fgsm, pgd = (loss(model(a(model, pixels, labels, range(64))), labels) for a in (FGSM(0.1), PGD(0.1)))
    assert pgd > fgsm > loss(model(pixels), labels)


@pytest.mark.parametrize('epsilon', [1 / 255, 8 / 255])
def test_foolbox_finds_the_same(epsilon):
    foolbox = pytest.importorskip('foolbox')
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Flatten(), nn.Linear(48, 7)).eval()
    pixels, labels = torch.rand(8, *SIZE), torch.randint(7, (8,))
    judge = foolbox.PyTorchModel(model, bounds=(0, 1), device='cpu')
    fgsm = foolbox.attacks.LinfFastGradientAttack().run(judge, pixels, labels, epsilon=epsilon)
    torch.testing.assert_close(FGSM(epsilon)(model, pixels, labels, range(8)), fgsm)
    attack = foolbox.attacks.LinfProjectedGradientDescentAttack(abs_stepsize=epsilon / 4, steps=5, random_start=False)
    theirs = attack.run(judge, pixels, labels, epsilon=epsilon)
    own = PGD(epsilon, steps=5, step=epsilon / 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('vitplug.robustness.attacks.uniform', lambda pixels, seed, images: torch.zeros_like(pixels))
        torch.testing.assert_close(own(model, pixels, labels, range(8)), theirs)


# --- the five checks ---


class Optimises(nn.Module):
    """Takes a gradient when it predicts."""

    def forward(self, pixels):
        with torch.enable_grad():
            moved = pixels.detach().requires_grad_()
            return torch.autograd.grad(moved.square().sum(), moved)[0].flatten(1)


@pytest.mark.parametrize(
    ('model', 'words'),
    [
        (nn.Sequential(nn.Flatten(), nn.Dropout(0.5)), 'other outputs for the same images'),
        (nn.Sequential(nn.Flatten(), nn.Softmax(1)), 'gives probabilities: expected logits'),
        (nn.Sequential(nn.Hardtanh(2.0, 3.0), nn.Flatten()), 'the gradient of 3 of 3 images is zero everywhere'),
        (Optimises(), 'takes gradients when it predicts'),
    ],
)
def test_model_that_an_attack_cannot_be_trusted_on_is_named(problem, model, words):
    _, pixels, labels, _ = problem
    with pytest.raises(ValueError, match=words):
        check_model(model, pixels, labels)


def test_model_in_order_passes(problem):
    model, pixels, labels, _ = problem
    check_model(model, pixels, labels)
    assert black_box_wins(model, FGSM(0.1), pixels, labels, IMAGES) == ''


class Idle:
    """Leaves the images as they are."""

    epsilon = 1e-6

    def __call__(self, logits, pixels, labels, images):
        return pixels


def test_black_box_that_beats_the_attack_is_named(problem):
    model, pixels, *_ = problem

    def turns(x):
        """Gives the other class for every image that was touched."""
        touched = (x != pixels).flatten(1).any(1, keepdim=True)
        return torch.where(touched, -1.0, 1.0) * model(x)

    said = black_box_wins(turns, Idle(), pixels, model(pixels).argmax(1), IMAGES)
    assert said == 'random steps fool 3 of 3 images and the attack 0: the gradients mislead it'


@pytest.mark.parametrize('epsilon', [0.0, -1.0, 4.0, float('nan')])
def test_wrong_sizes_are_named(epsilon):
    for attack in (FGSM, PGD):
        with pytest.raises(ValueError, match=r'expected above 0 and at most 1, such as 4/255'):
            attack(epsilon)
    with pytest.raises(ValueError, match='steps = 0'):
        PGD(0.1, steps=0)


@pytest.mark.slow
def test_autoattack_is_at_least_as_strong_as_pgd_and_depends_on_the_image_alone():
    pytest.importorskip('pyautoattack')
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(60, 32), nn.Tanh(), nn.Linear(32, 10)).eval()
    pixels = torch.rand(4, *SIZE)
    labels = model(pixels).argmax(1)
    attack = StandardAutoAttack(0.03)
    found = attack(model, pixels, labels, range(4))
    assert (found - pixels).abs().max() <= 0.03 + 1e-6 and found.min() >= 0 and found.max() <= 1
    by_pgd = PGD(0.03)(model, pixels, labels, range(4))
    kept, kept_by_pgd = (model(x).argmax(1) == labels for x in (found, by_pgd))
    assert (kept <= kept_by_pgd).all()
    torch.testing.assert_close(attack(model, pixels[2:3], labels[2:3], [2]), found[2:3])


def test_autoattack_of_few_classes_is_refused(problem):
    pytest.importorskip('pyautoattack')
    model, pixels, labels, _ = problem
    with pytest.raises(ValueError, match='need 10 classes, and the model has 2'):
        StandardAutoAttack(0.1)(model, pixels, labels, IMAGES)


# --- gradients through fast forms ---


@pytest.mark.parametrize(
    'plugs', [name for name in cases.PLUGS if name in ('none', 'cb', 'gab', 'residual', 'refiner')]
)
@pytest.mark.parametrize('host', ['vit', 'swin'])
def test_gradient_through_fused_forms_and_tiles_is_the_plain_forms(plugs, host, monkeypatch):
    torch.manual_seed(0)
    backbone = cases.HOSTS[host](plugs=cases.PLUGS[plugs]).double().eval()
    for parameter in backbone.parameters():
        nn.init.normal_(parameter, std=0.3)
    backbone.requires_grad_(False)
    pixels = torch.rand(2, 3, 32, 40 if host == 'vit' else 32, dtype=torch.float64)
    labels = torch.tensor([1, 0])

    def logits(x):
        return backbone(x)[-1].mean((2, 3))[:, :6]

    with fused_attention(False):
        plain = gradient(logits, pixels, labels)
    assert plain.abs().amax((1, 2, 3)).min() > 1e-9
    torch.testing.assert_close(gradient(logits, pixels, labels), plain)
    with tuning.tuned_for('cuda'):
        torch.testing.assert_close(gradient(logits, pixels, labels), plain)
    for name, value in (('TILES_FROM', 0), ('TILES_TO_SAVE_FROM', 0), ('TILE', 7)):
        monkeypatch.setattr(tuning, name, value)
    torch.testing.assert_close(gradient(logits, pixels, labels), plain)


def test_step_of_the_sign_is_the_same_in_every_form():
    torch.manual_seed(0)
    backbone = cases.HOSTS['vit'](plugs=[dict(type='ContextBroadcast')]).double().eval()
    pixels, labels = torch.rand(2, 3, 32, 40, dtype=torch.float64), torch.tensor([1, 0])
    found = []
    for enabled in (True, False):
        with fused_attention(enabled):
            found.append(FGSM(4 / 255)(lambda x: backbone(x)[-1].mean((2, 3)), pixels, labels, [0, 1]))
    np.testing.assert_array_equal(*found)
