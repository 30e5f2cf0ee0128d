"""Hard distillation against its equation."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mmpretrain.structures import DataSample

from vitplug.models import DistilledClassifier

ARCH = dict(embed_dims=12, num_layers=2, num_heads=2, feedforward_channels=16)
TEACHER = dict(type='mmpretrain.TimmClassifier', model_name='test_resnet', num_classes=5)


def classifier(**settings):
    backbone = dict(type='vitplug.DistilledVisionTransformer', arch=ARCH, img_size=32, patch_size=8)
    head = dict(type='mmpretrain.DeiTClsHead', num_classes=5, in_channels=12)
    torch.manual_seed(0)
    model = DistilledClassifier(**dict(backbone=backbone, head=head, teacher=TEACHER) | settings)
    model.init_weights()
    for layer in (model.head.layers.head, model.head.layers.head_dist):
        torch.nn.init.normal_(layer.weight)
    return model


def batch():
    labels = torch.tensor([0, 3, 4])
    return torch.randn(3, 3, 32, 32), labels, [DataSample().set_gt_label(label) for label in labels]


@pytest.fixture
def checkpoint(tmp_path):
    import timm

    path = tmp_path / 'teacher.pth'
    torch.manual_seed(1)
    teacher = timm.create_model('test_resnet', num_classes=5)
    torch.save(teacher.state_dict(), path)
    return path, teacher.eval()


@pytest.mark.parametrize('given', [Path.__str__, Path.as_uri])
def test_loss(checkpoint, given):
    path, teacher = checkpoint
    model = classifier(teacher_checkpoint=given(path))
    images, labels, samples = batch()
    losses = model.loss(images, samples)
    ((cls_token, dist_token),) = model.backbone(images)
    by_label = F.cross_entropy(model.head.layers.head(cls_token), labels)
    by_teacher = F.cross_entropy(model.head.layers.head_dist(dist_token), teacher(images).argmax(1))
    torch.testing.assert_close(losses, dict(loss_cls=by_label / 2, loss_distillation=by_teacher / 2))
    sum(losses.values()).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_teacher_is_no_part_of_the_model(checkpoint):
    path, _ = checkpoint
    model = classifier(teacher_checkpoint=str(path))
    before = set(model.state_dict())
    images, _, samples = batch()
    model.loss(images, samples)
    model.train()
    assert set(model.state_dict()) == before
    (teacher,) = model._teachers
    assert not teacher.training and not any(p.requires_grad for p in teacher.parameters())


def broken():
    return torch.nn.Identity().no_such_part


def test_training_needs_the_teachers_own_weights(tmp_path):
    images, _, samples = batch()
    with pytest.raises(ValueError, match='teacher_checkpoint=None: training needs the weights'):
        classifier().loss(images, samples)
    torch.save({'fc.weight': torch.zeros(2, 2)}, tmp_path / 'other.pth')
    with pytest.raises(ValueError, match=r'other\.pth does not fit the model'):
        classifier(teacher_checkpoint=str(tmp_path / 'other.pth')).loss(images, samples)
    with pytest.raises(AttributeError, match='no_such_part'):
        classifier(teacher=dict(type=broken), teacher_checkpoint='any.pth').loss(images, samples)
