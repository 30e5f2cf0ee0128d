"""Bad checkpoints, and checkpoints of other trainings."""

import os

import numpy as np
import torch

from bad_inputs.harmful import UNSOUND, UNTRUSTED, lying_header
from bad_inputs.making import (
    VIT_KEY,
    both,
    changed,
    child,
    cut,
    saved,
    starting,
    tensor,
    trained_with,
    weights,
    wide_images,
    write,
)
from bad_inputs.table import Row, rows

# What reads a checkpoint, and the status that it ends with where it refuses one.
READING = (
    ('test.py tiny.py bad.pth', 66),
    ('convert.py bad.pth new.pth', 2),
    ('train.py tiny.py --resume bad.pth', 66),
    ('train.py tiny.py --cfg-options load_from=bad.pth', 66),
    ('publish_model.py bad.pth new.pth', 2),
)
NORMED = child("model = dict(neck=dict(type='LinearNeck', in_channels=8, out_channels=8, gap_dim=0, "
               "norm_cfg=dict(type='BN1d'), act_cfg=None))", 'normed.py')  # fmt: skip

# fmt: off
ROWS = rows({
    ('test.py tiny.py bad.pth', 66): {
        'checkpoint of 0 bytes': (r'bad\.pth is empty \(0 bytes\)', write('bad.pth', '')),
        'test of a checkpoint of another model':
            (r'bad\.pth does not fit .* of its \d+ parameters.*backbone',
             saved(dict(state_dict={'a': torch.zeros(1)}))),
        'test of a checkpoint of another width':
            (r'bad\.pth does not fit .* 6 of its \d+ parameters .*layers\.0\.ffn',
             weights(**{'model.backbone.arch.feedforward_channels': 24})),
        'test without a plug of the checkpoint':
            (r'bad\.pth does not fit .* no place, e\.g\. backbone\.layers\.0\.plugs\.rel_pos_bias',
             weights(**{'model.backbone.plugs': [dict(type='RelPosBias')]})),
        'test without a plug that has no weights':
            (r"model\.backbone\.plugs\.ContextBroadcast was \{'type': 'ContextBroadcast'\}, is not set",
             trained_with('img_size=16', "img_size=16, plugs=[dict(type='ContextBroadcast')]")),
        'NaN in weights': (r'bad\.pth has .* not finite .* head\.fc\.weight', tensor(lambda t: t * np.nan)),
        'complex weights': (r'bad\.pth: .*head\.fc\.weight is a complex', tensor(lambda t: t + 1j)),
    },
    ('train.py tiny.py --resume bad.pth', 66): {
        'checkpoint cut short': (r'bad\.pth is truncated', both(changed(lambda c: None), cut('bad.pth', 2000))),
        'resume from weights alone':
            (r'bad\.pth has no optimizer, message_hub, so no training',
             changed(lambda c: {k: c[k] for k in ('meta', 'state_dict')})),
        'resume from a checkpoint without a position':
            (r'bad\.pth has no meta\.iter', changed(lambda c: c['meta'].pop('iter') and None)),
    },
    ('train.py tiny.py --cfg-options load_from=bad.pth', 66): {
        'web page with the name of a checkpoint':
            (r'bad\.pth is truncated or no checkpoint', write('bad.pth', '<html>404</html>')),
        'quantized weights':
            (r'bad\.pth: .*head\.fc\.weight is a quantized tensor',
             tensor(lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8))),
        'start from a checkpoint of another model':
            (r'bad\.pth does not fit', saved(dict(state_dict={'a': torch.zeros(1)}))),
    },
    'convert.py {}': {
        'safetensors file that says it has 4 TB':
            ('bad.safetensors new.pth', r'bad\.safetensors is truncated', lying_header([10**12], 4 * 10**12)),
        'network that timm lacks':
            ('bad.pth new.pth --to timm', r'bad\.pth: timm has no T2T-ViT: expected one of ViT, Swin, ',
             saved({VIT_KEY: torch.zeros(1), 'tokens_to_token.project.weight': torch.zeros(1)})),
        'plugs that mmpretrain lacks':
            ('bad.pth new.pth --to mmpretrain',
             r'bad\.pth: mmpretrain ViT has no keys for '
             r'backbone\.plugs\.residual_attention\.start\.alpha\.residual_alpha',
             saved({VIT_KEY: torch.zeros(1), 'alpha': torch.zeros(1)})),
    },
    'publish_model.py {}': {
        'safetensors file that says another shape':
            ('bad.safetensors new.safetensors', r'bad\.safetensors is truncated', lying_header([3], 8)),
    },
    'convert.py bad.pth new.pth': {
        'file without weights': (r'bad\.pth holds no weights: its keys are lr', saved(dict(lr=0.1))),
        'weights of no known model': (r'bad\.pth: the keys \(a\) match no known network', saved({'a': torch.zeros(1)})),
        'weights of two networks':
            (r"bad\.pth: several networks in one file: choose one with --prefix 'a\.' \(timm ViT\) or --prefix 'b\.'",
             saved({f'a.{VIT_KEY}': torch.zeros(1), f'b.transformers.0.{VIT_KEY}': torch.zeros(1)})),
        'Refined-ViT whose first block refines':
            (r'bad\.pth: Refined-ViT: blocks \[0\] of 1 refine a map: expected every second one, from block 1 on',
             saved(
                 {
                     VIT_KEY: torch.zeros(1),
                     'pos_embed': torch.zeros(1, 2, 1),
                     'blocks.0.norm1.weight': torch.zeros(1),
                     'blocks.0.attn.adapt_bn.weight': torch.zeros(1),
                 }
             )),
        'MViT of videos':
            (r'bad\.pth: original MViT has no blocks\.0\.attn\.rel_pos_t \(1 of 3 tensors\)',
             saved(
                 {
                     'patch_embed.proj.weight': torch.zeros(1),
                     'blocks.0.attn.pool_k.weight': torch.zeros(1),
                     'blocks.0.attn.rel_pos_t': torch.zeros(1),
                 }
             )),
        'weights without numbers': (r'bad\.pth: .*head\.fc\.weight is a meta tensor', tensor(lambda t: t.to('meta'))),
        'sparse weights': (r'bad\.pth: .*head\.fc\.weight is a sparse tensor', tensor(torch.Tensor.to_sparse)),
        'key with a number of stages without end':
            (r'bad\.pth: a key names stage 99999999999: expected at most 64',
             saved(
                 {
                     'layers.0.downsample.reduction.weight': torch.zeros(2, 8),
                     'layers.99999999999.blocks.0.norm1.weight': torch.zeros(2),
                 }
             )),
        'key that clears the terminal':
            (r"bad\.pth: the key '\\x1b\[2Jw' has unprintable characters", saved({'\x1b[2Jw': torch.zeros(2)})),
        'pipe with the name of a checkpoint':
            (r'bad\.pth is a pipe or a device: expected a regular file', lambda folder: os.mkfifo(folder / 'bad.pth')),
    },
    'publish_model.py bad.pth new.pth': {
        'file with a list': (r'bad\.pth holds a list: expected a state dict', saved([1])),
        'meta that is no dict': (r'bad\.pth: its meta is a str', changed(lambda c: c.update(meta='x'))),
        'infinity in weights to be published':
            (r'bad\.pth has .* not finite .* head\.fc\.weight', tensor(lambda t: t / 0)),
    },
    ('test.py {}', 66): {
        'test of a Swin with other heads':
            ('swin.py bad.pth', r'bad\.pth does not fit .* e\.g\. .*relative_position_bias_table',
             weights('swin.py', **{'model.backbone.arch.num_heads': [4, 4]})),
        'test of a position table of another grid with as many entries':
            ("tiny.py bad.pth --cfg-options 'model.backbone.img_size=(64,16)'",
             r'bad\.pth was trained on images of 16x64, .*pos_embed .* a 2x8 grid, not of 8x2', changed(wide_images)),
        'test without the statistics of a batch norm':
            ('normed.py bad.pth', r'bad\.pth does not fit .* 1 of its \d+ parameters and buffers .*norm\.running_var',
             both(NORMED, weights('normed.py', lambda state: state.pop('neck.norm.running_var')))),
        'test with other heads':
            ('tiny.py good.pth --cfg-options model.backbone.arch.num_heads=1',
             r'good\.pth was trained with other settings .*num_heads was 2, is 1: .*--allow-changes'),
    },
    ('train.py tiny.py --cfg-options {}', 66): {
        'start from a position table of another grid with as many entries':
            ('load_from=bad.pth model.backbone.img_size=(64,16)',
             r'bad\.pth was trained on images of 16x64, .*pos_embed .* a 2x8 grid, not of 8x2', changed(wide_images)),
        'checkpoint in a bucket':
            ('load_from=s3://bucket/a.pth', r"checkpoint='s3://bucket/a\.pth': expected a path or an address"),
    },
    ('test.py {}', 0): {
        'test with other heads, allowed':
            ('tiny.py good.pth --allow-changes --cfg-options model.backbone.arch.num_heads=1',
             r'good\.pth was trained with other settings .*num_heads was 2, is 1'),
        'test of weights without a config':
            ('tiny.py bad.pth', r'bad\.pth holds no config to compare', weights()),
    },
    ('train.py tiny.py --resume {}', 66): {
        'resume with another learning rate':
            ('bad.pth --cfg-options optim_wrapper.optimizer.lr=0.1',
             r'bad\.pth was trained with .*optimizer\.lr was 0\.01, is 0\.1',
             changed(lambda content: None)),
    },
    ('train.py {}', 66): {
        'resume with averaging that the checkpoint has not':
            ('child.py --resume good.pth',
             r"good\.pth was trained with .*averaging was \[\], is \[\{'type': 'EMAHook'\}\]",
             child("custom_hooks = [dict(type='EMAHook')]")),
    },
    'get_flops.py {}': {
        'model that begins with a file of timm that runs code':
            ('child.py', r'child\.py: the model cannot be built: .*(posix\.mkdir|non-allowlisted pickle globals)',
             both(
                 UNTRUSTED['a pickle that would make a folder'],
                 child(
                     "model = dict(backbone=dict(_delete_=True, type='TIMMBackbone', model_name='resnet10t', "
                     "checkpoint_path='bad.pth'))"
                 ),
             )),
    },
    'train.py child.py': {
        'init_cfg with a checkpoint of another width':
            (r'good\.pth: \d+ tensors do not fit this model: pos_embed has shape',
             starting('good.pth', wider='arch=dict(embed_dims=16)')),
        'init_cfg with a missing checkpoint':
            (r'no such checkpoint: god\.pth \(did you mean good\.pth', starting('god.pth')),
        'init_cfg with a checkpoint of another depth':
            (r'good\.pth .* is of another network: .* set an arch with \d blocks in layers, not 3',
             starting('good.pth', wider='arch=dict(num_layers=3)')),
    },
})
# fmt: on

ROWS += tuple(
    Row(title, command, r'bad\.pth (is|has .* bytes and would fill|would run|holds more)', make, status)
    for (title, make), (command, status) in zip({**UNTRUSTED, **UNSOUND}.items(), READING * 3, strict=True)
)
