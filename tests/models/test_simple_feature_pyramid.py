"""The simple feature pyramid against its definition, and the linear head."""

import pytest
import torch
import torch.nn.functional as F
from cases import randomize

from vitplug.models import SimpleFeaturePyramid
from vitplug.models.linear_head import LinearSegHead


def norm(x, layer):
    return F.layer_norm(x.movedim(1, -1), layer.normalized_shape, layer.weight, layer.bias, 1e-6).movedim(-1, 1)


def by_hand(neck, x):
    """Level by level, from the figure."""
    four, two, one, half = neck.levels
    rescaled = [
        F.conv_transpose2d(
            F.gelu(norm(F.conv_transpose2d(x, four[0].weight, four[0].bias, stride=2), four[1])),
            four[3].weight,
            four[3].bias,
            stride=2,
        ),
        F.conv_transpose2d(x, two[0].weight, two[0].bias, stride=2),
        x,
        F.max_pool2d(x, 2),
    ]
    outs = []
    for level, out in zip((four, two, one, half), rescaled, strict=True):
        for conv in level[-2:]:
            out = norm(F.conv2d(out, conv.conv.weight, padding=conv.conv.kernel_size[0] // 2), conv.norm)
        outs.append(out)
    return [*outs, outs[-1][:, :, ::2, ::2]]


@pytest.mark.parametrize('size', [(4, 6), (5, 3)], ids=str)
def test_levels(size):
    neck = randomize(SimpleFeaturePyramid(16, out_channels=8)).double()
    x = torch.randn(2, 16, *size, dtype=torch.float64)
    outs = neck((None, x))
    torch.testing.assert_close(list(outs), by_hand(neck, x))
    assert [tuple(out.shape[-2:]) for out in outs[:3]] == [tuple(s * side for side in size) for s in (4, 2, 1)]
    with pytest.raises(ValueError, match=r'scale_factors=\[4, 3\]: expected some of'):
        SimpleFeaturePyramid(8, scale_factors=(4, 3))
    with pytest.raises(ValueError, match='num_outs=2: expected at least 4'):
        SimpleFeaturePyramid(8, num_outs=2)


def test_a_linear_head_of_one_map():
    head = LinearSegHead(in_channels=4, in_index=1, num_classes=3)
    assert head([torch.zeros(2, 5, 2, 2), torch.zeros(2, 4, 2, 2)]).shape == (2, 3, 2, 2)
