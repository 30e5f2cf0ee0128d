"""The linear head of segmentation on frozen features, as *DINOv2* and *DINOv3* evaluate them."""

from collections.abc import Sequence

from mmcv.cnn import build_norm_layer
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import Tensor, nn


class LinearSegHead(BaseDecodeHead):
    """Batch norm, dropout and a 1 x 1 convolution on maps side by side; the loss resizes the logits.

    Args:
        in_channels: Channels of the maps, or of the only one.
        in_index: Which of the backbone's outputs they are, in the same order.
        norm_cfg: The norm; None for none.
        settings: Further arguments of mmseg's ``BaseDecodeHead``, ``num_classes`` among them.
    """

    def __init__(
        self,
        in_channels: int | Sequence[int] = 768,
        in_index: int | Sequence[int] = 0,
        norm_cfg: dict | None = dict(type='BN'),
        **settings,
    ):
        in_channels, in_index = ([n] if isinstance(n, int) else list(n) for n in (in_channels, in_index))
        super().__init__(
            in_channels=in_channels,
            in_index=in_index,
            channels=sum(in_channels),
            input_transform='resize_concat',
            norm_cfg=norm_cfg,
            **settings,
        )
        self.norm = nn.Identity() if norm_cfg is None else build_norm_layer(norm_cfg, self.channels)[1]

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Maps ``(B, D, h, w)`` to logits ``(B, classes, h, w)``; further maps are resized to the first."""
        return self.cls_seg(self.norm(self._transform_inputs(inputs)))
