"""Measures the table of docs/plugs/further.md, and prints it: PYTHONPATH=tests python docs/tools/further.py

Runs the tests that compare a plug with its oracle and notes the largest differences, in float64.
"""

import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from mmengine.logging import MMLogger
from torch import Tensor

from vitplug.backbones import VisionTransformer
from vitplug.doctor import backbone_checks

TESTS = Path(__file__).parents[2] / 'tests' / 'plugs'
FILES = ('test_further', 'test_further_equations', 'test_registers_at_test_time')
# Oracle and tests of a plug; texts whose start leaves the host.
ORACLES = {
    'attn-scale': ('equation', ('test_attention_scale[',), 'attn-scale'),
    'diff': ("timm's `DiffAttention`, which has float32 in it", ('test_differential_attention_is_timms',), ''),
    'entmax': ('package `entmax`', ('test_entmax_is_that_of_its_authors',), 'entmax(alpha=1)'),
    'feat-scale': ('equation', ('test_feature_scale',), 'feat-scale'),
    'gate': ("timm's `Attention`", ('test_gated_attention_is_timms',), 'gate(start="identity")'),
    'head-scale': ('equation', ('test_head_scale',), 'head-scale'),
    'lsa': ('equation', ('test_locality',), 'lsa(diagonal=True)'),
    'neutreno': ('equation', ('test_neutreno',), 'neutreno(strength=0)'),
    'peg': ('sums of shifted maps', ('test_conditional_positions',), 'peg'),
    'qk-norm': ('equation', ('test_qk_norm',), ''),
    're-attention': ('equation', ('test_re_attention',), ''),
    'registers': ('sequence extended by hand', ('test_activations_move', 'test_registers_extend'), ''),
    'rope': ("timm's three modules, which are in float32", ('rotation_is_timms', 'rotation_of_dinov3_is_timms'), ''),
    'sigmoid': ('equation', ('test_sigmoid',), ''),
    'sink': ('equation', ('test_sink',), ''),
    'talking-heads': ("timm's `TalkingHeadAttn`", ('test_talking_heads_are_timms',), 'talking-heads'),
    'value-residual': (
        'equation, loop by loop',
        ('test_value_residual_is_its_equation',),
        'value-residual(learnable=True, start="identity")',
    ),
    'xsa': ('equation', ('test_exclusive_self_attention',), ''),
}
HOSTS = {
    'VisionTransformer': 'ViT',
    'SwinTransformer': 'Swin',
    'SwinTransformerV2': 'Swin V2',
    'T2T_ViT': 'T2T',
    'PoolingVisionTransformer': 'PiT',
    'LVT': 'LVT',
    'MViT': 'MViT',
    'MlpMixer': 'Mixer',
}
ARCH = dict(embed_dims=32, num_layers=2, num_heads=4, feedforward_channels=8)


class Differences:
    """A plugin of pytest that notes the largest difference of all comparisons: values, which have a graph, and others.

    Attributes:
        found: By test, the largest difference of values and that of gradients.
    """

    def __init__(self):
        self.found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self.test = ''

    def pytest_collection_modifyitems(self, items) -> None:
        for module in {item.module for item in items}:
            module.assert_close = self.assert_close

    def pytest_runtest_setup(self, item) -> None:
        self.test = item.name

    def assert_close(self, ours, theirs, **tolerances) -> None:
        torch.testing.assert_close(ours, theirs, **tolerances)
        pairs = [(ours, theirs)] if isinstance(ours, Tensor) else zip(ours, theirs, strict=True)
        for one, other in pairs:
            if isinstance(one, Tensor) and one.numel():
                is_gradient = not (one.requires_grad or other.requires_grad)
                largest = self.found[self.test][is_gradient]
                self.found[self.test][is_gradient] = max(largest, float((one - other).detach().abs().max()))


def taken_by(name: str) -> str:
    """The hosts that take a plug in all of their blocks."""
    checks = backbone_checks()
    return ', '.join(text for host, text in HOSTS.items() if not checks[host][name].run())


def start_difference(text: str) -> str:
    """The largest difference to the plain host, in float32, of a start that is to leave it."""
    if not text:
        return 'none'
    plugged, plain = (VisionTransformer(ARCH, img_size=16, patch_size=4, plugs=plugs) for plugs in (text, 'none'))
    plugged.init_weights()
    plain.load_state_dict(plugged.state_dict(), strict=False)
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    difference = max(float((a - b).detach().abs().max()) for a, b in zip(plugged(x), plain(x), strict=True))
    return f'{difference:.0e}' if difference else '0'


def is_fused(text: str) -> str:
    """How a model with the plug says that it computes attention."""
    summary = VisionTransformer(ARCH, img_size=16, patch_size=4, plugs=text).plug_summary
    return 'yes' if 'attention: fused;' in f'{summary};' else 'exact fast form' if 'fast form' in summary else 'no'


def main() -> int:
    MMLogger.get_current_instance().setLevel('ERROR')
    differences = Differences()
    chosen = ' or '.join(test.strip('[') for _, tests, _ in ORACLES.values() for test in tests)
    paths = [str(TESTS / f'{name}.py') for name in FILES]
    status = pytest.main(['-q', '-p', 'no:cacheprovider', '-k', chosen, *paths], plugins=[differences])
    if status:
        return int(status)
    print('| plug | oracle | values | gradients | hosts | fused | identity start |')
    print('|---|---|---:|---:|---|---|---:|')
    for name, (oracle, tests, start) in ORACLES.items():
        of_tests = [pair for test, pair in differences.found.items() if any(part in test for part in tests)]
        values, gradients = (f'{max(numbers):.0e}' for numbers in zip(*of_tests, strict=True))
        cells = (oracle, values, gradients, taken_by(name), is_fused(name), start_difference(start))
        print(f'| `{name}` | {" | ".join(cells)} |')
    return 0


if __name__ == '__main__':
    sys.exit(main())
