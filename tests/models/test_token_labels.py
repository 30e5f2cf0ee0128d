"""Token labelling against slow oracles in float64, and the counts of the official models."""

from pathlib import Path

import numpy as np
import pytest
import torch
from attention_oracle import assert_same
from mmengine.config import Config
from mmengine.dataset import default_collate
from mmengine.registry import MODELS, init_default_scope
from mmpretrain.datasets import CustomDataset
from mmpretrain.structures import DataSample
from PIL import Image
from torch.utils.data import DataLoader

from vitplug.attention import Site
from vitplug.models.token_labels import make_targets

CONFIGS = Path(__file__).resolve().parents[2] / 'configs' / 'refiner'
CLASSES, SMOOTHING = 7, 0.1


def sample(labels, places):
    return DataSample(token_labels=labels, token_places=places)


def random_sample(generator, size=(3, 4), grid=(5, 6)):
    scores = torch.randn(3, *grid, generator=generator, dtype=torch.float64)
    classes = torch.rand(CLASSES, *grid, generator=generator).argsort(dim=0)[:3].double()
    places = 2 * torch.rand(2 * size[0], 2 * size[1], 2, generator=generator, dtype=torch.float64) - 1
    return sample(torch.stack((scores, classes)), places)


# --- targets ---


def oracle_targets(data_sample):
    """Bilinear samples of the map of all classes, one place at a time."""
    (scores, classes), places = data_sample.token_labels, data_sample.token_places
    height, width = scores.shape[1:]
    rows, columns = places.shape[:2]
    found = torch.zeros(rows, columns, CLASSES, dtype=torch.float64)
    for i in range(rows):
        for j in range(columns):
            if places[i, j].isnan().any():
                continue
            x = (float(places[i, j, 0]) + 1) / 2 * width - 0.5
            y = (float(places[i, j, 1]) + 1) / 2 * height - 0.5
            x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
            for row in range(height):
                for column in range(width):
                    weight = max(0, 1 - abs(y - row)) * max(0, 1 - abs(x - column))
                    for k in range(len(scores)):
                        found[i, j, int(classes[k, row, column])] += weight * scores[k, row, column]
    image = found.mean(dim=(0, 1)).softmax(-1)
    tokens = torch.stack([
        torch.stack([
            found[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean(dim=(0, 1)).softmax(-1) for j in range(columns // 2)
        ])
        for i in range(rows // 2)
    ])  # fmt: skip
    return ((1 - SMOOTHING) * t + SMOOTHING / CLASSES for t in (image, tokens))


def test_targets_are_the_oracles():
    generator = torch.Generator().manual_seed(0)
    samples = [random_sample(generator) for _ in range(2)]
    samples[1].token_places[:3, :2] = torch.nan
    found = make_targets(samples, CLASSES, SMOOTHING)
    expected = map(torch.stack, zip(*map(oracle_targets, samples), strict=True))
    torch.testing.assert_close(list(found), list(expected), atol=1e-12, rtol=0)


def test_images_without_labels_and_labels_of_other_classes_are_refused():
    with pytest.raises(ValueError, match=r"PackInputs\(algorithm_keys=\('token_labels', 'token_places'\)\)"):
        make_targets([DataSample()], CLASSES, 0.1)
    with pytest.raises(ValueError, match='token labels with class 6: the head has num_classes=3'):
        make_targets([sample(torch.full((2, 1, 2, 2), 6.0), torch.zeros(4, 4, 2))], 3, 0.1)


# --- the classifier ---


def model_cfg(**settings):
    arch = dict(embed_dims=16, num_layers=3, num_heads=2, feedforward_channels=32)
    backbone = dict(
        type='vitplug.VisionTransformer', arch=arch, img_size=(48, 64), patch_size=16, out_type='raw',
        plugs=[dict(type='Refiner')],
    )  # fmt: skip
    head = dict(type='vitplug.TokenLabelHead', num_classes=CLASSES, in_channels=16)
    return {**dict(type='vitplug.TokenLabelClassifier', backbone=backbone, head=head), **settings}


def build(cfg):
    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    model = MODELS.build(cfg).double()
    with torch.no_grad():
        for p in model.head.parameters():
            p.normal_(std=0.5)
    return model


def batch():
    generator = torch.Generator().manual_seed(2)
    samples = [random_sample(generator) for _ in range(2)]
    return torch.randn(2, 3, 48, 64, generator=generator, dtype=torch.float64), samples


def cross_entropy(scores, target):
    return -(target * (scores - scores.logsumexp(-1, keepdim=True))).sum(-1).mean()


def oracle_losses(model, images, samples, box):
    """The losses written out: patch tokens swapped one by one, the blocks run by hand."""
    backbone, head = model.backbone, model.head
    tokens, _ = backbone.patch_embed(images)
    tokens = tokens.unflatten(1, (3, 4)).clone()
    swapped, inside = tokens.clone(), torch.zeros(3, 4, dtype=torch.bool)
    inside[box] = True
    swapped[0, inside], swapped[1, inside] = tokens[1, inside], tokens[0, inside]
    x = torch.cat((backbone.cls_token.expand(2, -1, -1), swapped.flatten(1, 2)), dim=1) + backbone.pos_embed
    carry = backbone.plugs.start()
    for index, layer in enumerate(backbone.layers):
        x, carry = layer(x, Site(backbone.layout(index, (3, 4))), carry)
    x = backbone.ln1(x)
    targets = [tuple(oracle_targets(s)) for s in samples]
    cls = head.layers.head(x[:, 0])
    aux = head.aux_head(x[:, 1:]).unflatten(1, (3, 4))
    share = inside.sum().item() / 12
    image = torch.stack([(1 - share) * targets[i][0] + share * targets[1 - i][0] for i in (0, 1)])
    owned = [targets[i][1].clone() for i in (0, 1)]
    owned[0][inside], owned[1][inside] = targets[1][1][inside], targets[0][1][inside]
    dense = cross_entropy(aux, torch.stack(owned))
    return cross_entropy(cls, image), dense / 2


@pytest.mark.parametrize('box', [np.s_[0:0, 0:0], np.s_[1:3, 0:2], np.s_[0:3, 0:4]], ids=str)
def test_losses_and_gradients_are_the_oracles(monkeypatch, box):
    monkeypatch.setattr('vitplug.models.token_labels.draw_box', lambda hw: box)
    model = build(model_cfg()).train()
    images, samples = batch()
    losses = model.loss(images, samples)
    wanted = oracle_losses(model, images, samples, box)
    found = (losses['loss_cls'], losses['loss_tokens'])
    assert_same(found, wanted, list(model.parameters()), atol=1e-9, rtol=0)


def test_scores_add_half_of_the_best_token():
    model = build(model_cfg()).eval()
    images, _ = batch()
    (tokens,) = model.backbone(images)
    wanted = model.head.layers.head(tokens[:, 0]) + model.head.aux_head(tokens[:, 1:]).max(dim=1)[0] / 2
    torch.testing.assert_close(model(images, mode='tensor'), wanted)
    assert len(model(images, [DataSample(), DataSample()], mode='predict')) == 2


def test_a_training_step_from_files_through_the_configs_pipeline(tmp_path):
    """Images and label maps from disk, workers' collation, preprocessing, both losses and a gradient everywhere."""
    cfg = Config.fromfile(CONFIGS / 'convstem-vit-s-p16-refiner-token-labels_8xb64-300e_in1k.py')
    (tmp_path / 'train' / 'cat').mkdir(parents=True)
    (tmp_path / 'labels' / 'cat').mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(2):
        Image.fromarray(rng.integers(0, 256, (90, 120, 3), dtype=np.uint8)).save(
            tmp_path / 'train' / 'cat' / f'{i}.JPEG'
        )
        labels = torch.stack((torch.randn(5, 18, 18), torch.randint(0, 1000, (5, 18, 18)).float())).half()
        torch.save(labels, tmp_path / 'labels' / 'cat' / f'{i}.pt')
    pipeline = cfg.train_pipeline
    next(step for step in pipeline if step.type == 'vitplug.LoadTokenLabels').root = tmp_path / 'labels'
    cfg.model.backbone.arch = dict(embed_dims=384, num_layers=2, num_heads=12, feedforward_channels=8)
    init_default_scope('mmpretrain')
    dataset = CustomDataset(data_root=str(tmp_path / 'train'), pipeline=pipeline)
    model = MODELS.build(cfg.model).train()
    loader = DataLoader(dataset, batch_size=2, collate_fn=default_collate)
    batch = model.data_preprocessor(next(iter(loader)), training=True)
    loss, logged = model.parse_losses(model(**batch, mode='loss'))
    loss.backward()
    assert set(logged) == {'loss', 'loss_cls', 'loss_tokens'} and loss.isfinite()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_what_does_not_fit_token_labels_is_refused():
    with pytest.raises(ValueError, match='Mixup and CutMix do not mix token labels'):
        build(model_cfg(train_cfg=dict(augments=dict(type='Mixup', alpha=0.8))))
    model = build(model_cfg())
    model.backbone.out_type = 'cls_token'
    with pytest.raises(ValueError, match=r"labels of 3 x 4 tokens: the backbone needs out_type='raw'.* gives \(16,\)"):
        model.loss(*batch())
