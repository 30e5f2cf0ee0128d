"""What a plug does before it learns: nothing, bit for bit or to rounding, unless the summary says so."""

import pytest
import torch
from cases import HOSTS, images, randomize, vit

from vitplug.attention import fused_attention
from vitplug.plugs.plug_set import CHANGES
from vitplug.registry import PLUGS

EXACT = [
    *("cb(scaled=True, position='msa')", "cb(scaled=True, position=['mlp_front', 'mlp_mid', 'mlp_end'])"),
    *('residual(alpha=1)', 'residual(alpha=1, learnable=False)'),
    *('broad(gamma=0)', "broad(gamma=0, use_qk=False, pool_layout='head_dim_layer')", 'broad(gamma=0, use_v=False)'),
]
TO_ROUNDING = [
    *('refiner', 'refiner(expansion=1)', 'refiner(expansion=4, kernel_size=5)', 'refiner(expansion=0)'),
    *("refiner(constraint='spatial')", "refiner(constraint='rowcol')", 'refiner(reduction=False)'),
]


def pair(make, plugs, **settings):
    """The host without a plug and with it, with the weights of a stock checkpoint."""
    plain, plugged = randomize(make(**settings)).eval(), make(plugs=plugs, **settings).eval()
    plugged.load_state_dict(plain.state_dict(), strict=False)
    return plain, plugged


@pytest.mark.sampled(4)
@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('plugs', [*EXACT, *TO_ROUNDING])
def test_off_is_the_plain_host(host, plugs):
    if host == 'lvt' and 'broad' not in plugs and 'cb' not in plugs:
        pytest.skip('its first block has no attention maps')
    plain, plugged = pair(HOSTS[host], plugs)
    x = images(37, 51, dtype=torch.float32)
    with fused_attention('residual' not in plugs):
        pairs = list(zip(plain(x), plugged(x), strict=True))
    for expected, got in pairs:
        if plugs in EXACT:
            assert torch.equal(got, expected)
        assert (got - expected).abs().max() < 2e-6 * expected.abs().max()


STARTS = [
    *(f"{name}(start='{start}')" for name in ('gate', 'peg') for start in ('identity', 'paper')),
    *("value-residual(start='identity', learnable=True)", 'cb(scaled=True, scale_init_value=1.0)', 'residual(alpha=0)'),
    *("refiner(init='default')", 'refiner(share=1)', "refiner(mode='none', share=1)"),
    *('neutreno(strength=0)', 'lsa(diagonal=True)', 'entmax(alpha=1)'),
]


@pytest.mark.parametrize('plugs', [*PLUGS.module_dict, *STARTS, *EXACT, *TO_ROUNDING])
def test_summary_says_which_plugs_change_outputs_at_their_start(plugs):
    plain, plugged = pair(vit, plugs, arch=dict(embed_dims=32, num_layers=4, num_heads=4, feedforward_channels=64))
    x = images(32, 40, dtype=torch.float32)
    is_same = torch.allclose(plugged(x)[0], plain(x)[0], rtol=1e-4, atol=1e-4)
    assert is_same is (CHANGES not in plugged.plug_summary)
