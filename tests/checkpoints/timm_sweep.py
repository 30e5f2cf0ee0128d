"""Sweeps the ViTs, Swins, PiTs, MViTs and Mixers of timm: equal outputs, or a refusal by name.

    python tests/checkpoints/timm_sweep.py [--match vit_base] [--out sweep.jsonl] [--table]

Every network is built by its name with its own depth, heads and parts, and narrow, with random weights in double
precision. They are loaded into vitplug's host, first with the sizes of the network and what no key shows (heads,
activation, epsilon of the norms, windows) alone, then with the arguments that the refusal names, until it is loaded or
no argument is left. Results go to `--out`, a line for each name; names that are there are not run again. The exit
status is 1 if a network is loaded and its outputs are not timm's, but for those of `UNSEEN`.
"""

import argparse
import json
import logging
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import timm
import torch
from timm.models import mlp_mixer, mvitv2
from timm.models._registry import _model_entrypoints
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'helpers'))

from cases import randomize

from vitplug import backbones
from vitplug.checkpoints import load_pretrained

NARROW = 8  # channels of a head
TOLERANCE = 1e-6  # Swin V2 computes the logarithms of offsets in single precision, all others are below 1e-9
# Norms after the branches under the names of norms before them, and rotary positions: no key and no shape shows them.
UNSEEN = re.compile(r'.*_rpn_.*|vit_pe_spatial_.*')
ACTIVATIONS = {
    'QuickGELU': dict(type='mmpretrain.QuickGELU'),
    'GELUTanh': dict(type='GELU', approximate='tanh'),
}
HOSTS = {host.__name__: host for host in (backbones.VisionTransformer, backbones.DistilledVisionTransformer)}
VITS = ('vision_transformer', 'vision_transformer_hybrid', 'vision_transformer_relpos', 'vision_transformer_sam')
VITS += ('deit', 'eva', 'beit')


# --- timm's networks, narrow ---


def build_vit(name: str) -> nn.Module:
    whole = on_meta(name)
    heads = heads_of(whole)
    side = whole.patch_embed.patch_size[0] * 4
    sizes = dict(embed_dim=heads * NARROW)
    for settings in (dict(sizes, img_size=side), sizes, dict(img_size=side), {}):
        try:
            return timm.create_model(name, num_classes=5, **settings)
        except Exception as error:
            last = error
    raise last


def build_swin(name: str) -> nn.Module:
    stages = on_meta(name).layers
    return timm.create_model(name, num_classes=5, embed_dim=stages[0].blocks[0].attn.num_heads * NARROW)


def build_pit(name: str) -> nn.Module:
    return timm.create_model(name, num_classes=5, base_dims=(8, 8, 8))


def build_mixer(name: str) -> nn.Module:
    def narrow(variant: str, pretrained: bool, **settings) -> nn.Module:
        known = {key: value for key, value in settings.items() if not key.startswith(('pretrained_', 'cache_dir'))}
        return mlp_mixer.MlpMixer(**{**known, 'embed_dim': 32, 'num_classes': 5})

    with patch.object(mlp_mixer, '_create_mixer', narrow):  # timm lets no one set the width
        return timm.create_model(name)


def build_mvit(name: str) -> nn.Module:
    cfg = mvitv2.model_cfgs[name]
    narrow = replace(cfg, embed_dim=tuple(heads * NARROW for heads in cfg.num_heads))
    return mvitv2.MultiScaleVit(narrow, img_size=64, num_classes=5)


def on_meta(name: str) -> nn.Module:
    with torch.device('meta'):
        return timm.create_model(name)


def heads_of(model: nn.Module) -> int:
    blocks = list(getattr(model, 'blocks', ()))
    attentions = (getattr(block, 'attn', None) for block in blocks)
    return next((heads for attn in attentions if (heads := getattr(attn, 'num_heads', None))), 4)


# --- vitplug's hosts ---


def vit(model: nn.Module) -> dict:
    mlp = model.blocks[0].mlp if hasattr(model.blocks[0], 'mlp') else None
    hidden = mlp.fc2.in_features if isinstance(getattr(mlp, 'fc2', None), nn.Linear) else 4 * model.embed_dim
    arch = dict(num_layers=len(model.blocks), num_heads=heads_of(model), feedforward_channels=hidden)
    settings = dict(arch=dict(arch, embed_dims=model.embed_dim), norm_cfg=norm_of(model))
    settings |= dict(img_size=image_of(model), patch_size=model.patch_embed.patch_size[0])
    activation = type(getattr(mlp, 'act', None)).__name__
    if activation in ACTIVATIONS:
        settings['layer_cfgs'] = dict(act_cfg=ACTIVATIONS[activation])
    out_types = dict(avg='avg_featmap', map='featmap')
    return dict(settings, out_type=out_types.get(getattr(model, 'global_pool', ''), 'cls_token'))


def swin(model: nn.Module, version: int = 1) -> dict:
    stages = model.layers
    windows = [stage.blocks[0].window_size[0] for stage in stages]
    arch = dict(depths=[len(stage.blocks) for stage in stages], embed_dims=model.embed_dim)
    arch['num_heads'] = [stage.blocks[0].attn.num_heads for stage in stages]
    settings = dict(arch=arch, img_size=image_of(model), norm_cfg=dict(type='LN', eps=model.norm.eps))
    if version == 1:
        return dict(settings, stage_cfgs=[dict(window_size=window) for window in windows])
    arch['extra_norm_every_n_blocks'] = 0
    pretrained = [stage.blocks[0].attn.pretrained_window_size[0] for stage in stages]
    return dict(settings, window_size=windows, pretrained_window_sizes=pretrained)


def pit(model: nn.Module) -> dict:
    stages = model.transformers
    arch = dict(depths=[len(stage.blocks) for stage in stages], patch_size=model.patch_embed.conv.kernel_size[0])
    arch['embed_dims'] = [stage.blocks[0].norm1.normalized_shape[0] for stage in stages]
    arch |= dict(num_heads=[stage.blocks[0].attn.num_heads for stage in stages])
    arch['stride'] = model.patch_embed.conv.stride[0]
    return dict(arch=arch, img_size=224, mlp_ratio=4, distilled=model.cls_token.shape[1] == 2)


def mvit(model: nn.Module) -> dict:
    depths = [len(stage.blocks) for stage in model.stages]
    starts = [sum(depths[:stage]) for stage in range(1, len(depths))]
    first = model.stages[0].blocks[0]
    arch = dict(embed_dims=first.norm1.normalized_shape[0], num_layers=sum(depths), num_heads=first.attn.num_heads)
    in_mlp = any('.shortcut_proj_mlp.' in key for key in model.state_dict())
    settings = dict(arch=dict(arch, downscale_indices=starts), img_size=64, dim_mul_in_attention=not in_mlp)
    has_token = model.cls_token is not None
    return dict(settings, with_cls_token=has_token, out_type='cls_token' if has_token else 'featmap')


def mixer(model: nn.Module) -> dict:
    block = model.blocks[0]
    arch = dict(embed_dims=model.embed_dim, num_layers=len(model.blocks))
    for name in ('tokens', 'channels'):
        part = getattr(block, f'mlp_{name}', None)
        arch[f'{name}_mlp_dims'] = part.fc1.out_features if hasattr(part, 'fc1') else 8
    return dict(arch=arch, img_size=image_of(model), patch_size=model.stem.patch_size[0], norm_cfg=norm_of(model))


def norm_of(model: nn.Module) -> dict:
    eps = next((module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)), 1e-6)
    return dict(type='LN', eps=eps)


def image_of(model: nn.Module) -> int:
    embed = getattr(model, 'patch_embed', None) or model.stem
    return (getattr(embed, 'img_size', None) or (embed.patch_size[0] * 16,))[0]


# Modules of timm: how its networks are built, the host, and the host's settings.
FAMILIES = {
    **dict.fromkeys(VITS, (build_vit, backbones.VisionTransformer, vit)),
    'swin_transformer': (build_swin, backbones.SwinTransformer, swin),
    'swin_transformer_v2': (build_swin, backbones.SwinTransformerV2, partial(swin, version=2)),
    'pit': (
        lambda name: timm.create_model(name, num_classes=5, base_dims=(8, 8, 8)),
        backbones.PoolingVisionTransformer,
        pit,
    ),
    'mvitv2': (build_mvit, backbones.MViT, mvit),
    'mlp_mixer': (build_mixer, backbones.MlpMixer, mixer),
}


def names() -> dict[str, str]:
    """timm's names, and the module of each."""
    modules = {name: _model_entrypoints[name].__module__.rpartition('.')[2] for name in timm.list_models()}
    return {name: module for name, module in modules.items() if module in FAMILIES}


# --- one network ---


def sweep(name: str, module: str, folder: Path) -> dict:
    """How a network fits: the first answer, the last one, and the arguments that led there."""
    build, host, choose = FAMILIES[module]
    try:
        model = randomize(build(name).double())
        model.eval()
        settings = choose(model)
    except Exception as error:
        return dict(name=name, module=module, first=f'not built: {short(error)}', last='not built', named={})
    path = folder / 'timm.pth'
    torch.save(model.state_dict(), path)
    named: dict[str, object] = {}
    answers = []
    for _ in range(6):
        answer = attempt(model, path, host, {**settings, **named})
        answers.append(answer)
        more = {key: value for key, value in advice(answer).items() if named.get(key, settings.get(key)) != value}
        if not more:
            break
        host = HOSTS.get(str(more.pop('type', '')).removeprefix('vitplug.'), host)
        named |= more
        if named.get('with_cls_token') is False and {**settings, **named}['out_type'] == 'cls_token':
            named['out_type'] = 'avg_featmap'
    return dict(name=name, module=module, first=answers[0], last=answers[-1], named=named, host=host.__name__)


def attempt(model: nn.Module, path: Path, host: type, settings: Mapping) -> str:
    """`equal`, `UNEQUAL` with the error, or the refusal."""
    try:
        ours = host(**settings).double().eval()
        load_pretrained(ours, path)
        side = settings['img_size']
        x = torch.randn(1, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            expected, got = features(model, x), output(ours, x)
    except ValueError as error:
        return f'refused: {short(error)}'
    if got.shape != expected.shape:
        return f'UNEQUAL: {tuple(got.shape)}, timm has {tuple(expected.shape)}'
    error = float((got - expected).abs().max() / expected.abs().max())
    return 'equal' if error <= TOLERANCE else f'UNEQUAL: {error:.1e}'


def features(model: nn.Module, x: Tensor) -> Tensor:
    """timm's features before the classifier, ``(B, D)``."""
    found = model.forward_features(x)
    if isinstance(found, tuple):  # distilled PiT
        return torch.cat(found, dim=-1)
    if getattr(model, 'head_dist', None) is not None:
        return found[:, :2].flatten(1)
    if getattr(model, 'attn_pool', None) is not None:  # a head, which pools by attention, and is not used
        return found[:, model.num_prefix_tokens :].mean(dim=1)
    return model.forward_head(found, pre_logits=True).flatten(1)


def output(host: nn.Module, x: Tensor) -> Tensor:
    """The same of a host."""
    out = host(x)[-1]
    if isinstance(out, tuple):
        return torch.cat(out, dim=-1)
    if out.ndim == 4:
        return out.mean(dim=(2, 3))
    return out.mean(dim=-1) if isinstance(host, backbones.MlpMixer) else out


def advice(answer: str) -> dict:
    """The arguments that a refusal names."""
    found = re.search(r'For the same network, set (.*?)\.(?: To start|$)', answer)
    pairs = (item.partition('=') for item in found[1].split('; ')) if found else ()
    values = {key: value.partition(' or ')[2] or value for key, mark, value in pairs if mark and key.isidentifier()}
    return {key: eval(value, {'dict': dict}) for key, value in values.items()}


def short(error: Exception) -> str:
    return re.sub(r'^\S*timm\.pth:? ', '', ' '.join(f'{error}'.split())) or type(error).__name__


# --- all ---


def table(lines: list[dict]) -> str:
    """The results by reason, as a Markdown table."""
    groups: dict[tuple, list[str]] = {}
    for line in lines:
        arguments = ', '.join(f'`{key}={value!r}`' for key, value in line['named'].items())
        groups.setdefault((line['module'], reason(line['last']), arguments), []).append(line['name'])
    rows = [
        f'| {module} | {len(found)} | {why} | {named} | {found[0]} |' for (module, why, named), found in groups.items()
    ]
    return '\n'.join(['| timm | names | result | with | such as |', '|---|---|---|---|---|', *sorted(rows)])


def reason(answer: str) -> str:
    """The answer without what differs from network to network."""
    odd = re.search(r'(?:backbone needs|tensors? of it): ([\w.]+)', answer)
    place = odd or re.search(r'fit this model: (\S+) has shape', answer)
    return f'refused: `{re.sub(r"[.][0-9]+", ".N", place[1]).rstrip(".")}`' if place else answer[:60]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--match', default='', help='only names with this in them')
    parser.add_argument('--out', type=Path, default=Path('sweep.jsonl'))
    parser.add_argument('--table', action='store_true', help='print what is there as a table')
    args = parser.parse_args()
    done = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    logging.disable(logging.INFO)
    warnings.simplefilter('ignore')
    wanted = {name: module for name, module in names().items() if args.match in name} if not args.table else {}
    finished = {line['name'] for line in done}
    for name in [name for name in wanted if name not in finished]:
        with tempfile.TemporaryDirectory() as folder:
            line = sweep(name, wanted[name], Path(folder))
        done.append(line)
        with args.out.open('a') as file:
            file.write(json.dumps(line) + '\n')
        print(f'{name}: {line["last"][:150]}', flush=True)
    print(table(done))
    print(Counter(line['last'].split(':')[0] for line in done))
    return int(any('UNEQUAL' in line['first'] + line['last'] for line in done if not UNSEEN.fullmatch(line['name'])))


if __name__ == '__main__':
    sys.exit(main())
