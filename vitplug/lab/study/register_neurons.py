"""Register neurons of a trained model: the hidden channels that make outliers of some patches.

*Vision Transformers Don't Need Trained Registers* (Jiang et al., NeurIPS 2025), its first algorithm.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vitplug.attention import Site
from vitplug.hosting import PluggedModel
from vitplug.plugs import Plug
from vitplug.plugs.plug_set import PlugPart


class _Recorded(nn.Module):
    """Keeps the hidden tokens that it sees in the socket ``mlp_mid``."""

    def forward(self, hidden_BND: Tensor, site: Site) -> Tensor:
        self.hidden_BND = hidden_BND
        return hidden_BND


@torch.no_grad()
def find_register_neurons(
    backbone: PluggedModel, images: Iterable[Tensor], norm: float, layer: int = -1, number: int = 10
) -> list[tuple[int, int]]:
    """Blocks and channels that are most active where tokens of the grid have large norms, the most active first.

    ``Registers(neurons=found)`` moves their activations away. The score of a channel is its mean absolute activation at
    the outliers of an image, averaged over the images that have outliers.

    Args:
        backbone: The trained model, whose MLPs have one width; it is left as it was.
        images: Batches ``(B, C, H, W)``, normalised as for the model.
        norm: Tokens of a larger norm are outliers; it depends on the model. A ValueError if there are none.
        layer: Block after which the norms are taken.
        number: How many channels to give.
    """
    blocks = backbone.plugged_blocks()
    layer = range(len(blocks))[layer]
    total, counted, was_training = 0, 0, backbone.training
    recorded = [_Recorded() for _ in range(layer + 1)]
    for block, part in zip(blocks, recorded, strict=False):
        block.plugs['recorded_hidden'] = PlugPart(Plug(), {'mlp_mid': part})
    backbone.eval()
    try:
        for batch in images:
            _, found = backbone.forward_intermediates(batch, ('block', 'site'), layers=[layer])
            outliers_BN = found['block'][layer].norm(dim=-1) > norm
            outliers_BN[:, : found['site'][layer].layout.num_prefix] = False
            shares_BN = outliers_BN.double() / outliers_BN.sum(1, keepdim=True).clamp(min=1)
            of_blocks = [torch.einsum('bnd,bn->d', part.hidden_BND.abs().double(), shares_BN) for part in recorded]
            total = total + torch.stack(of_blocks)
            counted += int(outliers_BN.any(1).sum())
    finally:
        backbone.train(was_training)
        for block in blocks[: layer + 1]:
            del block.plugs['recorded_hidden']
    if not counted:
        raise ValueError(f'norm={norm}: no token is larger after block {layer}')
    return [divmod(i, total.shape[1]) for i in total.flatten().topk(number).indices.tolist()]
