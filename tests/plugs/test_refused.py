"""What plugs and hosts refuse when a model is built: settings, combinations and blocks, named with what to do.

That any wrong value is named with its argument is drawn in `test_fuzz.py`; plugs without a place in a host are in
`cases.REFUSED`.
"""

from dataclasses import replace

import pytest
from cases import LVT_ARCH, CarryProbe, mvit, swin, swin_v2, vit
from probe_plug import Probe

from vitplug.backbones import LVT
from vitplug.plugs import Plug

NO_ATTENTION = dict(layer_cfgs=[{}, dict(with_attn=False), {}, {}])
OFFICIAL = "refiner(scheme='official', mode='mbconv', init='default', share=1{})"

# Plugs as text, and what is said: one line for each check.
SETTINGS = {
    "cb(positon='msa')": r"\['positon'\]; it takes .*position",
    # shared checks of arguments
    'refiner(expansion=1.5)': 'expansion=1.5: expected an integer of at least 0',
    'refiner(kernel_size=4)': 'kernel_size=4: expected an odd integer',
    "cb(scaled='yes')": "scaled='yes': expected True or False",
    'broad(gamma=True)': 'gamma=True: expected a number',
    'sink(start=2000)': 'start=2000: expected a number',
    "broad(scale='dim')": r"scale='dim': expected one of .*embed.*head.*concat",
    # layers
    'cb(layers=[0, 4])': r'layers=\[0, 4\].*0 to 3',
    'cb(layers=[1, 1])': r'layers=\[1, 1\].*different',
    "cb(layers='lower')": "layers='lower': expected 'all', 'upper'",
    # arguments that need one another
    'cb(scale_init_value=1)': 'scale_init_value=1 goes with scaled=True only',
    "cb(position=['msa', 'msa'])": r"position=\['msa', 'msa'\]",
    'gab(amplitude=0)': 'amplitude=0: its gradient',
    "residual(constraint='sigmoid', alpha=1.0)": "constraint='sigmoid' never reaches 0 or 1",
    'residual(layers=[2])': r'layers=\[2\] changes nothing: no block of \[2\]',
    'refiner(expansion=0, reduction=False)': 'reduction=False: expansion=0',
    'refiner(rescale_by_tokens=False)': "mode='linear' needs rescale_by_tokens=None",
    "refiner(mode='mbconv')": "mode='mbconv' needs init='default'$",
    "refiner(mode='none')": "mode='none' changes nothing with share=0: .* at least 1$",
    "refiner(mode='none', share=1, expansion=2)": "mode='none' needs expansion=3$",
    "refiner(scheme='official', share=1)": "scheme='official' goes with mode='mbconv' and share=1",
    'value-residual(start="identity")': "start='identity' changes nothing without learnable=True",
    'entmax(alpha=3)': 'alpha=3: expected a number at least 1.0 and at most 2.0',
    'diff': 'DifferentialAttention: block 0 has 3 heads with maps',
    # several plugs
    "gab(layers='upper')+gab(layers=[0])": 'GaussianAttentionBias occurs more than once; give it once',
    'entmax+sigmoid': r"\['entmax_attention', 'sigmoid_attention'\] both take the 'normalise' socket of block 0",
    'sink+attn-scale': r"\['attention_sink'\] add keys that belong to no token .* \['attention_scale'\] need a place",
    'xsa+refiner(reduction=False)': 'ExclusiveSelfAttention: block 0 has no value of its own',
    'value-residual+uniform(mode="append", layers=[2])': (
        r'of block 2 have .* \(4, 8, \(4, 5\)\), .* block 0 \(3, 8, \(4, 5\)\)'
    ),
    **dict.fromkeys(('value-residual(layers=[2])', 'neutreno(layers=[2])'), 'changes nothing with one block per stage'),
    'broad+uniform(layers=[1])': r'block 1 has 2 heads with q and k and 3 with v.*layers=\[...\]',
    'gab+refiner(share=1)': r"\['gab'\] need a map of block 1 itself, .* take the block out of their layers",
    'refiner(share=2)+residual(layers=[0, 2])': r"\['residual_attention'\] need a map of block 2",
    'refiner(share=1, layers=[0, 2])': 'groups of 2 blocks in a row, but block 2 .* block 0',
    OFFICIAL.format(', layers=[0, 1, 2]'): "scheme='official' pairs blocks, and 3 are odd",
    'uniform(layers=[2, 3])+' + OFFICIAL.format(''): 'those of blocks 0 and 2 are of other tokens or heads',
    # registers that are moved
    'registers(neurons=[3, 4])': r'neurons=\[3, 4\]: expected pairs of a block and a channel',
    'registers(neurons=[[0, 40]])': r'neurons has \(0, 40\), and block 0 has 40 hidden channels',
}


@pytest.mark.parametrize('plugs', SETTINGS)
def test_settings(plugs):
    with pytest.raises(ValueError, match=SETTINGS[plugs]):
        vit(plugs=plugs)


@pytest.mark.parametrize(
    ('plugs', 'message'),
    [
        (None, 'plugs=None: expected a text such as .*, or a list such as'),
        (dict(type='ContextBroadcast'), 'plugs=.*expected a text such as .*, or a list such as'),
        ([5], 'plugs: 5 is no plug; expected a dict'),
        ([dict(scaled=True)], "'scaled': True.* is no plug"),
        ([dict(type='ContextBroadcst')], "type='ContextBroadcst'.*choose from.*ContextBroadcast"),
    ],
    ids=str,
)
def test_lists(plugs, message):
    with pytest.raises(ValueError, match=message):
        vit(plugs=plugs)


def double(weight, maps, site, carry):
    return maps * 2, carry


class OtherHeads(Plug):
    name = 'other-heads'

    def shape_block(self, shape, index, num_layers):
        return replace(shape, value_heads=shape.value_heads + 1, out_heads=shape.out_heads + 1) if index == 1 else shape


BLOCKS = {
    # windows and stages
    'a map of other windows': (swin, 'refiner(share=1)', {}, 'share=1 is not for windowed attention: .*set share=0'),
    'no block of the last stage': (swin, 'broad(layers=[0, 1])', {}, r'layers=\[0.*no block of the last stage.*add'),
    'heads that no factor repeats': (
        swin,
        'residual(head_transition="repeat")',
        dict(arch=dict(embed_dims=12, depths=[2, 2], num_heads=[2, 3])),
        r"head_transition='repeat' cannot make 3 heads \(block 2\) of 2 \(block 1\)",
    ),
    'a sum over other windows': (swin, 'residual(low_memory=True)', {}, 'low_memory=True cannot hand the scores of'),
    'tokens in windows': (swin, 'registers', {}, "registers takes the socket 'prefix', which the network does not"),
    'norms of cosines': (swin_v2, 'qk-norm', {}, 'QKNorm: block 0 has normed q and k already'),
    'a map of other keys': (mvit, 'refiner(share=1)', {}, 'block 1 cannot reuse the map of block 0: its tokens'),
    'the blocks that do': (LVT, 'gab', dict(arch=LVT_ARCH), r'block 0 .*; layers=\[1, 2, 3\] are the blocks that do$'),
    'a map of other heads': (
        vit,
        'refiner(share=1)',
        dict(layer_cfgs=[dict(num_heads=heads) for heads in (3, 4, 3, 3)]),
        'block 1 cannot reuse the map of block 0: its tokens, heads or stage',
    ),
    # no class token
    'cls': (vit, "cb(mode='cls')", dict(with_cls_token=False), "mode='cls' needs a class token.*cls_fallback='mean'"),
    # blocks without a branch
    'a bias': (vit, 'gab', NO_ATTENTION, r"\['gab'\] change the attention branch of block 1, which has none"),
    'an output': (vit, "cb(position='msa')", NO_ATTENTION, r"\['cb'\] change the attention branch of block 1, which"),
    'an MLP': (vit, 'se', dict(layer_cfgs=[dict(with_ffn=False), {}, {}, {}]), r"\['se'\] change the MLP branch of"),
    'heads': (vit, 'uniform', NO_ATTENTION, 'UniformHead: .* needs at least 2 heads and block 1 has 0'),
    'a map': (vit, 'refiner', NO_ATTENTION, 'Refiner: block 1 has no attention map to refine; leave it out of layers'),
    # plugs of others
    'heads that a plug made': (vit, ['broad', OtherHeads()], {}, 'block 1 has 3 heads with q and k and 4 with v'),
    'two probes': (
        vit,
        ['residual', CarryProbe()],
        {},
        r"\['probe', 'residual_attention'\] both take the 'scores' socket of block 0",
    ),
    'a map that is reused': (vit, ['refiner(share=1)', CarryProbe()], {}, r"\['probe'\] need a map of block 1 itself"),
    'a map after several of a head': (
        vit,
        ['refiner', Probe('a', 2, map=double)],
        {},
        r"refiner makes several outputs of a map, and \['refiner', 'a'\] change the maps of block 0 in this order",
    ),
}


@pytest.mark.parametrize('case', BLOCKS)
def test_blocks(case):
    host, plugs, settings, message = BLOCKS[case]
    with pytest.raises(ValueError, match=message):
        host(plugs=plugs, **settings)
