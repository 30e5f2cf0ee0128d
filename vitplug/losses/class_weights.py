"""Cross-entropy with class weights and ignored pixels."""

from mmseg.models.losses import CrossEntropyLoss
from torch import Tensor


class SegCrossEntropyLoss(CrossEntropyLoss):
    """mmseg's cross-entropy, with class weights that also work together with ignored pixels in mmseg 1.2.2.

    The mean is weighted, over the pixels that are not ignored. mmseg 1.2.2 also looks up the weights of ignored pixels,
    such as class 255, and raises an IndexError.
    """

    def forward(
        self,
        cls_score: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
        ignore_index: int = -100,
        **kwargs,
    ) -> Tensor:
        """The loss for logits ``(B, classes, H, W)`` and classes ``(B, H, W)``."""
        is_mean = (reduction_override or self.reduction) == 'mean'
        if self.class_weight is not None and avg_factor is None and is_mean:
            # Not by an index of the pixels that count, whose number a GPU would have to tell first.
            counts = label != ignore_index
            avg_factor = (cls_score.new_tensor(self.class_weight)[label.where(counts, 0)] * counts).sum()
        return super().forward(
            cls_score, label, weight, avg_factor, reduction_override, ignore_index=ignore_index, **kwargs
        )
