"""Hard distillation, for training the distilled DeiT models."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from mmpretrain.models import ImageClassifier
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from vitplug.checkpoints import find_weights, read_checkpoint
from vitplug.checkpoints.fit import load_state
from vitplug.registry import MODELS


@MODELS.register_module()
class DistilledClassifier(ImageClassifier):
    """A classifier with a distillation token that learns the teacher's predictions.

    *Training data-efficient image transformers & distillation through attention*, Eq. (3), hard distillation::

        loss = 1/2 CE(class token's scores, labels) + 1/2 CE(distillation token's scores, argmax of the teacher)

    At test time the two scores are averaged, as in mmpretrain's ``DeiTClsHead``. The teacher is not part of the
    model: it is not saved, counted or trained.

    Args:
        teacher: Config of the teacher, a classifier with the same classes and the same normalised images as input,
            such as ``dict(type='TimmClassifier', model_name='regnety_160')``.
        teacher_checkpoint: File or address of the teacher's weights; read only for training.
        settings: Arguments of mmpretrain's ``ImageClassifier``. The backbone must output a class and a distillation
            token, the head must be a ``DeiTClsHead``.
    """

    def __init__(self, *, teacher: Mapping, teacher_checkpoint: str | None = None, **settings):
        super().__init__(**settings)
        self.teacher_cfg = dict(teacher)
        self.teacher_checkpoint = teacher_checkpoint
        # A list hides the teacher's parameters from torch: it is no submodule.
        self._teachers: list[nn.Module] = []

    def _load_teacher(self) -> nn.Module:
        """The teacher with its weights.

        Raises:
            ValueError: If no checkpoint is given, or if it does not fit the teacher.
            OSError: If it cannot be read or downloaded.
        """
        if self.teacher_checkpoint is None:
            raise ValueError(
                'teacher_checkpoint=None: training needs the weights of the teacher '
                f'{self.teacher_cfg}; set --cfg-options model.teacher_checkpoint=PATH'
            )
        teacher = MODELS.build(self.teacher_cfg).eval().requires_grad_(False)
        weights, _ = find_weights(read_checkpoint(self.teacher_checkpoint), self.teacher_checkpoint)
        # mmpretrain wraps a timm model as `model`.
        prefixes = {name.partition('.')[0] for name in teacher.state_dict()}
        has_prefix = all(key.startswith('model.') for key in weights)
        inner = teacher.model if prefixes == {'model'} and not has_prefix else teacher
        load_state(inner, weights, self.teacher_checkpoint)
        return teacher

    def loss(self, inputs: Tensor, data_samples: Sequence[DataSample]) -> dict[str, Tensor]:
        """The two halves of the loss for images ``(B, C, H, W)``."""
        cls_token, dist_token = self.head.pre_logits(self.extract_feat(inputs))
        own = self.head._get_loss(self.head.layers.head(cls_token), data_samples)
        if not self._teachers:
            self._teachers.append(self._load_teacher())
        with torch.no_grad():
            taught = self._teachers[0].to(inputs.device)(inputs).argmax(dim=1)
        distilled = F.cross_entropy(self.head.layers.head_dist(dist_token), taught)
        return dict(loss_cls=own['loss'] / 2, loss_distillation=distilled / 2)
