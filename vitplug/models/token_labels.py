"""Token labelling: every token learns the class at its own position. Refined-ViT may have been trained with it.

After *All Tokens Matter: Token Labeling for Training Better Vision Transformers* (LV-ViT) and its official code. The
appendix of *Refiner* (A.1) refers to them.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from mmpretrain.models import VisionTransformerClsHead
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from vitplug.registry import MODELS

from .diversity import DiverseClassifier


def draw_box(hw: tuple[int, int]) -> tuple[slice, slice]:
    """Rows and columns of a random box: its share of the grid and its centre are uniform; it is clipped at borders."""
    side = np.sqrt(1.0 - np.random.uniform())
    centres = [np.random.randint(length) for length in hw]
    reaches = [int(length * side) // 2 for length in hw]
    return tuple(slice(max(c - r, 0), min(c + r, n)) for c, r, n in zip(centres, reaches, hw, strict=True))


class MixToken:
    """Swaps a random box of patch tokens ``(B, h, w, D)`` with that of the batch in reverse order.

    The box is drawn in the first call; the second one swaps the box back.
    """

    box: tuple[slice, slice] | None = None

    def __call__(self, x_BhwD: Tensor) -> Tensor:
        self.box = rows, columns = self.box or draw_box(tuple(x_BhwD.shape[1:3]))
        swapped = x_BhwD.clone()
        swapped[:, rows, columns] = x_BhwD.flip(0)[:, rows, columns]
        return swapped


def make_targets(data_samples: Sequence[DataSample], num_classes: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """The targets of images ``(B, C)`` and tokens ``(B, h, w, C)``, from label maps and the positions of tokens.

    A token's scores are the average over its positions, an image's scores the average over all positions. Both are
    passed through the softmax and label smoothing. Scores are 0 for classes that the label map does not have, and for
    positions outside the image.

    Args:
        data_samples: Each has ``token_labels`` ``(2, k, h, w)`` and ``token_places`` ``(2 h, 2 w, 2)``,
            see :mod:`vitplug.datasets.token_labels`.
        num_classes: Number of classes.
        smoothing: Label smoothing: share of a target that is uniform over all classes.

    Raises:
        ValueError: If a sample has no token labels, or labels of unknown classes.
    """
    if not all({'token_labels', 'token_places'} <= set(sample.keys()) for sample in data_samples):
        raise ValueError(
            "images without token labels: put vitplug's LoadTokenLabels and SampleTokenPlaces into the training "
            "pipeline, and PackInputs(algorithm_keys=('token_labels', 'token_places')) at its end"
        )
    places = torch.stack([sample.token_places for sample in data_samples])
    maps = torch.stack([_spread(sample.token_labels, num_classes) for sample in data_samples])
    outside = places.isnan().any(dim=-1)
    sampled = F.grid_sample(maps, places.nan_to_num(), mode='bilinear', padding_mode='border', align_corners=False)
    sampled = sampled.masked_fill(outside[:, None], 0.0)
    means = sampled.mean(dim=(2, 3)), F.avg_pool2d(sampled, 2)
    image, tokens = ((1 - smoothing) * mean.softmax(dim=1) + smoothing / num_classes for mean in means)
    return image, tokens.permute(0, 2, 3, 1)


def _spread(labels: Tensor, num_classes: int) -> Tensor:
    """The top k scores of each position as scores of all classes, ``(C, h, w)``."""
    scores, classes = labels[0], labels[1].long()
    if int(classes.max()) >= num_classes:
        raise ValueError(f'token labels with class {int(classes.max())}: the head has num_classes={num_classes}')
    return scores.new_zeros(num_classes, *scores.shape[1:]).scatter_(0, classes, scores)


@MODELS.register_module()
class TokenLabelHead(VisionTransformerClsHead):
    """A classifier of the class token, and one of all other tokens::

        loss    cls_weight * CE(class token, image's target) + dense_weight * mean_i CE(token i, its target)
        scores  head(class token) + max_i aux_head(token i) / 2

    Args:
        num_classes: Number of classes.
        in_channels: Width of a token.
        dense_weight: Weight of the tokens' loss.
        cls_weight: Weight of the class token's loss.
        smoothing: Label smoothing of all targets, from 0 to below 1.
        settings: Other arguments of mmpretrain's ``VisionTransformerClsHead``.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        dense_weight: float = 0.5,
        cls_weight: float = 1.0,
        smoothing: float = 0.1,
        **settings,
    ):
        super().__init__(num_classes, in_channels, **settings)
        self.dense_weight, self.cls_weight, self.smoothing = dense_weight, cls_weight, smoothing
        self.aux_head = nn.Linear(in_channels, num_classes)

    def pre_logits(self, feats: Sequence[Tensor]) -> Tensor:
        """The class token ``(B, D)`` before its classifier."""
        return super().pre_logits((feats[-1][:, 0],))

    def forward(self, feats: Sequence[Tensor]) -> Tensor:
        """Scores ``(B, C)`` from tokens ``(B, 1 + N, D)``, the class token first."""
        return super().forward(feats) + self.aux_head(feats[-1][:, 1:]).amax(dim=1) / 2

    def loss(self, feats: Sequence[Tensor], data_samples: Sequence[DataSample], mix: MixToken | None = None) -> dict:
        """The two losses.

        Args:
            feats: Tokens ``(B, 1 + h * w, D)``, the class token first.
            data_samples: The images' labels, see :func:`make_targets`.
            mix: What has swapped tokens before the first block.
        """
        image, target = make_targets(data_samples, self.num_classes, self.smoothing)
        hw = target.shape[1:3]
        if feats[-1].shape[1:-1] != (1 + hw.numel(),):
            raise ValueError(
                f"SampleTokenPlaces makes labels of {hw[0]} x {hw[1]} tokens: the backbone needs out_type='raw', "
                f'a class token and {hw.numel()} patches, but gives {tuple(feats[-1].shape[1:])}'
            )
        tokens = self.aux_head(feats[-1][:, 1:]).unflatten(1, hw)
        if mix is not None:
            # Swap the outputs back; the class token has seen both images.
            tokens = mix(tokens)
            share = tokens[0, ..., 0][mix.box].numel() / hw.numel()
            image = torch.lerp(image, image.flip(0), share)
        scores = super().forward(feats)
        return dict(
            loss_cls=self.cls_weight * F.cross_entropy(scores, image),
            loss_tokens=self.dense_weight * F.cross_entropy(tokens.flatten(0, 2), target.flatten(0, 2)),
        )


@MODELS.register_module()
class TokenLabelClassifier(DiverseClassifier):
    """A classifier trained with token labels and MixToken.

    MixToken swaps a box of patch tokens with that of the batch in reverse order, before the first block, and swaps the
    outputs back. A token's target is the label at its own position; the class token's target is a mixture of
    both images' targets.

    Args:
        mix_token: Whether tokens are mixed. Mixup and CutMix are refused, because they do not mix label maps.
        settings: Arguments of :class:`DiverseClassifier`. The backbone must be a ViT or LVT with ``out_type='raw'`` and
            one class token, the head a :class:`TokenLabelHead`.

    Raises:
        ValueError: If ``train_cfg`` mixes images.
    """

    def __init__(self, *, mix_token: bool = True, **settings):
        super().__init__(**{'diversity': None, **settings})
        if getattr(self.data_preprocessor, 'batch_augments', None) is not None:
            raise ValueError('train_cfg.augments: Mixup and CutMix do not mix token labels; remove them')
        self.mix_token = mix_token

    def loss(self, inputs: Tensor, data_samples: Sequence[DataSample]) -> dict[str, Tensor]:
        """The losses of images ``(B, C, H, W)``."""
        return super().loss(inputs, data_samples, MixToken() if self.mix_token else None)
