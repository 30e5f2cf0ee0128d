"""A walk over every config: it parses, builds, is what its name and its metafile say, and learns in all its parameters.

Models are built on torch's meta device, which holds shapes and no numbers. For the forward and backward pass they
are made small by :func:`small`, which says what it changes; configs that come out alike are run once.
"""

import json
import re
from copy import deepcopy
from functools import cache
from itertools import chain
from pathlib import Path

import cv2
import numpy as np
import pytest
import timm
import torch
import yaml
from mmengine.config import Config, ConfigDict
from mmengine.dataset import Compose
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, MODELS, init_default_scope
from paper_tables import generate
from PIL import Image
from references import BY_CONFIG, COUNTS, equals
from torchvision import transforms

from vitplug.analysis.measures.grad_cam import grad_cams
from vitplug.backbones import LVT, MlpMixer, MViT, PoolingVisionTransformer, SwinTransformer, VisionTransformer
from vitplug.backbones.foundation import network_settings
from vitplug.classifiers import TokenLabelClassifier
from vitplug.config.parts import loader_leaves, registered
from vitplug.datasets.pooled_splits import POOLS
from vitplug.runs.checks.classes import class_complaints
from vitplug.runs.checks.strategy import check_strategy, is_sharded_run
from vitplug.tasks.classes import named_classes

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / 'configs'
ALL = sorted(path for path in CONFIGS.rglob('*.py') if '_base_' not in path.parts)
DIGITS = [path for path in ALL if path.parent.name == 'digits']
FASHION = [path for path in ALL if path.parent.name == 'fashion']
PHOTOGRAPHS = [path for path in ALL if path.parent.name in ('camvid', 'cifar10', 'nuclei')]
SMALL_DATA = [*DIGITS, *FASHION, *PHOTOGRAPHS]
PAPERS = [path for path in ALL if path not in SMALL_DATA]
FOLDERS = sorted({path.parent for path in PAPERS})
SINGLE_BASE = re.compile(r"^_base_ = '([^/'\n]+)'$", re.MULTILINE)
ABLATIONS = [path for path in ALL if SINGLE_BASE.search(path.read_text()) and 'plugs=' in path.read_text()]

# Parameters of whole models.
KNOWN = {
    **BY_CONFIG,
    'deit-s-p16-se_8xb128-300e_in1k': COUNTS['DeiT-S'] + 226_080,
    'deit-ti-h12-p16-cb_8xb128-300e_in1k': COUNTS['DeiT-Ti'],
    # DeiT-Ti without 4 of its 12 blocks, which have 444,864 parameters, with one branch of a block.
    'vit-8x192-msa-p16_8xb128-300e_in1k': COUNTS['DeiT-Ti'] - 4 * 444_864 + 148_608,
    'vit-8x192-mlp-p16_8xb128-300e_in1k': COUNTS['DeiT-Ti'] - 4 * 444_864 + 296_256,
    # With a class token and its position, which the reference is without.
    'vit-b-p16-cls-residual_32xb128-300e_in1k': COUNTS['ReViT-B'] + 2 * 768,
    'convstem-vit-s-p16-refiner_8xb32-300e_in1k': COUNTS['Refined-ViT-S'],
}


def names(paths):
    return [path.stem for path in paths]


@cache
def load(path: Path) -> Config:
    return Config.fromfile(path)


def walk(node, key=''):
    """All dicts below a config with the key each stands under."""
    if isinstance(node, dict):
        yield key, node
        for name, value in node.items():
            yield from walk(value, name)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from walk(value, key)


# --- what can be read in the files ---


def test_there_are_configs_and_ablations_of_every_paper():
    assert len(DIGITS) >= 6 and len(ABLATIONS) >= 100
    papers = {'broad_attention', 'context_broadcast', 'gaussian_bias', 'refiner', 'residual_attention'}
    papers |= {'vitdet', 'foundation', 'further'}
    assert {folder.name for folder in FOLDERS} == papers


@pytest.mark.parametrize('path', ALL, ids=names(ALL))
def test_header_gives_the_command(path):
    header = path.read_text().partition('_base_')[0]
    assert f'# python tools/train.py configs/{path.relative_to(CONFIGS)}\n' in header
    assert all(line.startswith('# ') for line in header.splitlines())


@pytest.mark.parametrize('path', ALL, ids=names(ALL))
def test_bases_are_our_own(path):
    assert '::' not in path.read_text()


@pytest.mark.sampled(3)
@pytest.mark.parametrize('path', ALL, ids=names(ALL))
def test_name_says_batch_and_schedule(path):
    cfg = load(path)
    gpus, batch, schedule = re.search(r'_(\d+)xb(\d+)-(?:.+-)?(\d+[eik])_', path.stem).groups()
    assert cfg.train_dataloader.batch_size == int(batch)
    length = cfg.train_cfg.get('max_epochs') or cfg.train_cfg.max_iters
    if schedule == '100e' and '-lsj-' in path.stem:
        # Counted in iterations of 64 images, of 118000.
        assert length == 184375
    else:
        assert length == int(schedule[:-1]) * (1000 if schedule.endswith('k') else 1)
        assert ('max_epochs' in cfg.train_cfg) == schedule.endswith('e')
    if path in PAPERS:
        assert cfg.auto_scale_lr.base_batch_size == int(gpus) * int(batch)
        assert cfg.param_scheduler[-1].get('end', length) in (length, cfg.train_cfg.get('max_epochs'))


@pytest.mark.parametrize('path', ABLATIONS, ids=names(ABLATIONS))
def test_ablation_changes_the_plugs_only(path):
    child = load(path).to_dict()
    baseline = load(path.parent / SINGLE_BASE.search(path.read_text())[1]).to_dict()
    assert child['model']['backbone'].pop('plugs') != baseline['model']['backbone'].pop('plugs', [])
    # A fine-tuning goes on from the training of the same network, whose tensors have other names to start anew.
    for start, plain in zip(starts(child), starts(baseline), strict=True):
        if start['checkpoint'].startswith('work_dirs/'):
            for key in ('checkpoint', 'reset'):
                start.pop(key, None), plain.pop(key, None)
    assert child == baseline
    assert '_delete_' not in path.read_text()


def starts(cfg: dict) -> list[dict]:
    """The settings of a config that load a checkpoint."""
    return [settings for _, settings in walk(cfg['model']) if settings.get('type') == 'vitplug.Pretrained']


# Configs whose header says in what they differ from another: "Differs from other.py in: model.backbone.arch, ...."
DIFFERS = re.compile(r'Differs from (\S+\.py) in: (.+?)\.(?: |$)')


def difference(path: Path) -> tuple[str, list[str]] | None:
    """The config that a header compares its own with, and the settings that it names."""
    header = path.read_text().partition('_base_')[0]
    found = DIFFERS.search(' '.join(line.removeprefix('# ') for line in header.splitlines()))
    return found and (found[1], found[2].split(', '))


DIFFERENT = [path for path in ALL if difference(path)]


def changed(before, after, key='') -> list[str]:
    """Keys of the settings in which two configs differ; lists are compared as a whole."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [] if before == after else [key]
    keys = [*before, *(name for name in after if name not in before)]
    parts = [changed(before.get(name), after.get(name), f'{key}.{name}'.lstrip('.')) for name in keys]
    return [*chain.from_iterable(parts)]


def test_configs_with_plugs_are_ablations_or_say_how_else_they_differ():
    with_plugs = [path for path in PAPERS if 'plugs=' in path.read_text()]
    assert set(with_plugs) <= {*ABLATIONS, *DIFFERENT}


@pytest.mark.parametrize('path', DIFFERENT, ids=names(DIFFERENT))
def test_header_names_all_differences(path):
    other, named = difference(path)
    found = changed(load(path.parent / other).to_dict(), load(path).to_dict())
    below = {name: [key for key in found if f'{key}.'.startswith(f'{name}.')] for name in named}
    assert [name for name, keys in below.items() if not keys] == []
    assert set(found) == set(chain.from_iterable(below.values()))


# Context Broadcasting, appendix A.3: DeiT's recipe, but no repeated augmentation for ViT-Ti and ViT-S with CB, and a
# warm-up of 10 epochs in place of 5 and more stochastic depth (0.2 with distillation) for ViT-B with CB. Appendix B.3:
# PiT and Mixer are trained alike with the plug and without.
CB_TRAININGS = [path for path in ALL if path.parent.name == 'context_broadcast' and path.stem.endswith('in1k')]


@pytest.mark.parametrize('path', CB_TRAININGS, ids=names(CB_TRAININGS))
def test_cb_recipes(path):
    cfg, is_other = load(path), path.stem.startswith(('pit-', 'mixer-'))
    is_base = '-b-' in path.stem and not is_other
    has_module = any(word in path.stem for word in ('-cb', '-se', '-uniform'))
    warm_up = cfg.param_scheduler[0].end
    repeats = cfg.train_dataloader.sampler.type == 'RepeatAugSampler'
    assert (warm_up, cfg.model.backbone.drop_path_rate) == ((10, 0.2) if is_base and has_module else (5, 0.1))
    assert repeats == (is_base or is_other or not has_module)


VIT_CROPS = {
    'train_dataloader.dataset.pipeline.-3.crop_ratio_range': (0.05, 1.0),
    'train_dataloader.dataset.pipeline.-2': dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    'test_dataloader.dataset.pipeline.-2.type': 'Resize',
    'test_dataloader.dataset.pipeline.-2.scale': 224,
}
WARM_UP_500 = {'param_scheduler.0.end': 500, 'param_scheduler.1.begin': 500}
# What else the papers say of recipes, and where: configs by a piece of their path.
RECIPES = {
    # XCiT's UPerNets, after which CB's are trained (section 3.3); it has no model of the size of DeiT-B.
    'context_broadcast/deit-ti-*_upernet_*': {'model.backbone.drop_path_rate': 0.0},
    'context_broadcast/deit-s-*_upernet_*': {'model.backbone.drop_path_rate': 0.05},
    # Swin's recipe, which ReSwin-T follows (section 4.2).
    'residual_attention/swin-t-p4-w7*_in1k*': {
        'model.backbone.drop_path_rate': 0.2,
        'model.train_cfg.augments': [dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)],
        'model.train_cfg.probs': None,
        'optim_wrapper.clip_grad.max_norm': 5.0,
        'train_pipeline.3.num_policies': 2,
        'train_pipeline.4.erase_prob': 0.25,
        'test_pipeline.1.scale': 256,
        'param_scheduler.1.eta_min': 1e-5,
    },
    # T2T-ViT's official test crop.
    'broad_attention/t2t-*_in1k*': {'test_pipeline.1.scale': 248},
    # ViT's fine-tuning, which both papers refer to, starts a new head at zero.
    'broad_attention/t2t-*_cifar*': {'model.head.init_cfg.type': 'Constant', 'model.head.init_cfg.val': 0.0},
    'broad_attention/deit-s-*_cifar*': {'model.head.init_cfg.type': 'Constant', 'model.head.init_cfg.val': 0.0},
    'residual_attention/vit-b-*i_*': {'model.head.init_cfg.type': 'Constant', 'model.head.init_cfg.val': 0.0},
    # ReViT's section 4.2: a linear decay. The other configs have the steps of Swin's and MViTv2's detectors.
    'residual_attention/*crop-36e_coco*': {
        'param_scheduler.1.type': 'PolyLR',
        'param_scheduler.1.power': 1.0,
        'param_scheduler.1.eta_min': 0.0,
    },
    'residual_attention/swin*-step-36e_coco*': {'param_scheduler.1.milestones': [27, 33]},
    'residual_attention/mvit*-step-36e_coco*': {'param_scheduler.1.milestones': [28, 33]},
    # detectron2's MViTv2, with which ReViT's section 4.7 compares: windows of 56 tokens, whose zeros the softmax sees.
    'residual_attention/mvitv2-t_mask-rcnn_*': {
        'model.backbone.window_size': 56,
        'model.backbone.shows_padding': True,
    },
    'residual_attention/mvitv2-t-residual_mask-rcnn_*': {
        'model.backbone.window_size': 56,
        'model.backbone.shows_padding': True,
        'model.backbone.plugs.0.window_align': 'parity',
    },
    'residual_attention/mvitv2-t*-global_mask-rcnn_*': {
        'model.backbone.window_size': None,
        'model.backbone.shows_padding': False,
    },
    # GAB's supplement trains COCO in mixed precision.
    'gaussian_bias/*_coco*': {'optim_wrapper.type': 'AmpOptimWrapper'},
    # Its images (vit_jax/input_pipeline.py) and schedule (vit_jax/configs/common.py, augreg.py for 500 steps).
    'broad_attention/*_cifar*': VIT_CROPS | WARM_UP_500,
    'residual_attention/vit-b-*_cifar*': VIT_CROPS | WARM_UP_500,
    'residual_attention/vit-b-*-500i_*': VIT_CROPS | {'param_scheduler.0.end': 100, 'param_scheduler.1.begin': 100},
    # DeiT's optimiser, which BViT takes over with its averaged weights (section IV-A).
    'broad_attention/deit-*_in1k*': {
        'optim_wrapper.clip_grad': None,
        'optim_wrapper.optimizer.eps': None,
        'custom_hooks.0.type': 'EMAHook',
        'custom_hooks.0.momentum': 4e-5,
    },
}


@pytest.mark.parametrize('pattern', RECIPES)
def test_recipes(pattern):
    paths = [path for path in CONFIGS.glob(pattern) if '-official' not in path.stem]
    assert paths
    for path in paths:
        cfg = load(path)
        assert {key: setting(cfg, key) for key in RECIPES[pattern]} == RECIPES[pattern], path.stem


STEPS = [path for path in PAPERS if '-step-36e_' in path.stem]


@pytest.mark.parametrize('path', STEPS, ids=names(STEPS))
def test_original_steps_are_all_that_differs_from_a_linear_decay(path):
    main = load(path.with_name(path.name.replace('-step-36e_', '-36e_'))).to_dict()
    assert {*changed(main, load(path).to_dict())} == {'param_scheduler'}


def setting(node, key: str):
    """A setting by its path, None where there is none."""
    for name in key.split('.'):
        node = node[int(name)] if name.lstrip('-').isdecimal() else node.get(name)
        if node is None:
            return None
    return node.to_dict() if isinstance(node, ConfigDict) else node


@pytest.mark.parametrize('path', PAPERS, ids=names(PAPERS))
def test_checkpoints_have_a_known_place(path):
    cfg = load(path)
    assert cfg.load_from is None
    for _, settings in walk(cfg.model.to_dict()):
        if settings.get('type') == 'vitplug.Pretrained':
            folder, name = Path(settings['checkpoint']).parts[:2]
            assert folder in ('checkpoints', 'work_dirs')
            if folder == 'work_dirs':
                path_before = next(other for other in PAPERS if other.stem == name)
                before = load(path_before)
                assert Path(settings['checkpoint']).name == f'epoch_{before.train_cfg.max_epochs}.pth'
                assert [plug.type for plug in before.model.backbone.get('plugs', [])] == [
                    plug.type for plug in cfg.model.backbone.get('plugs', [])
                ]
                command = f'# Pre-trained by: python tools/train.py configs/{path_before.relative_to(CONFIGS)}\n'
                assert command in path.read_text()


FINE_TUNED = [
    *CONFIGS.glob('context_broadcast/*-cb*_upernet_*'),
    *CONFIGS.glob('broad_attention/*-broad_*_cifar*'),
    *CONFIGS.glob('residual_attention/*-residual*i_*'),
    *CONFIGS.glob('residual_attention/*-residual*_coco*'),
    *CONFIGS.glob('refiner/*-30e_*'),
]


@pytest.mark.parametrize('path', FINE_TUNED, ids=names(FINE_TUNED))
def test_papers_fine_tune_the_network_with_the_plug(path):
    """ReViT 4.3 and 4.7, BViT IV-D, CB 3.3, Refiner 4.3; `host` in a name is the start from the plain host."""
    [start] = starts(load(path).to_dict())
    assert start['checkpoint'].startswith('checkpoints/' if '-host-' in path.stem else 'work_dirs/')


REFINER = [path for path in ALL if path.parent.name == 'refiner']
# Token labels bring their own mixing of images.
REFINER_TRAININGS = [path for path in REFINER if '-300e_' in path.stem and 'token-labels' not in path.stem]
REFINER_TUNINGS = [path for path in REFINER if '-30e_' in path.stem]


@pytest.mark.parametrize('path', REFINER_TRAININGS, ids=names(REFINER_TRAININGS))
def test_refiner_recipes(path):
    """Refiner, Table 8: the standard recipe at 256 images a step, the advanced one at 512; DeiT's at 1024."""
    cfg = load(path)
    arch = cfg.model.backbone.arch
    blocks = 12 if isinstance(arch, str) else arch.num_layers
    drop_path, mixup, cutmix, lr, sampler = {
        256: (0.1, 0.2, None, 5e-4, 'DefaultSampler'),
        512: (0.1 * blocks / 12, 0.8, 1.0, 5e-4, 'DefaultSampler'),
        1024: (0.1, 0.8, 1.0, 1e-3, 'RepeatAugSampler'),
    }[cfg.auto_scale_lr.base_batch_size]
    augments = {augment.type: augment.alpha for augment in cfg.model.train_cfg.augments}
    assert (augments.get('Mixup'), augments.get('CutMix')) == (mixup, cutmix)
    assert cfg.model.backbone.drop_path_rate == pytest.approx(drop_path)
    assert cfg.optim_wrapper.optimizer.lr == lr and cfg.optim_wrapper.optimizer.weight_decay == 0.05
    assert cfg.param_scheduler[0].end == 5 and cfg.train_dataloader.sampler.type == sampler
    assert cfg.train_pipeline[4].erase_prob == 0.25


@pytest.mark.parametrize('path', REFINER_TUNINGS, ids=names(REFINER_TUNINGS))
def test_refiner_is_fine_tuned_as_deit(path):
    """DeiT's command for 384 x 384 changes rate, decay, epochs and size, and nothing else of its recipe."""
    cfg = load(path)
    warm_up, flat = cfg.param_scheduler
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.lr, optimizer.weight_decay, cfg.train_cfg.max_epochs) == (5e-6, 1e-8, 30)
    assert warm_up.end == flat.begin == 5 and warm_up.start_factor * optimizer.lr == pytest.approx(1e-6)
    assert flat.factor == 1 and cfg.custom_hooks == [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
    assert cfg.train_dataloader.sampler.type == 'RepeatAugSampler' and cfg.train_pipeline[4].erase_prob == 0.25


def test_every_base_is_used():
    bases = {path.relative_to(CONFIGS) for path in (CONFIGS / '_base_').rglob('*.py')}
    used = {
        Path(path.parent, name).resolve().relative_to(CONFIGS)
        for path in CONFIGS.rglob('*.py')
        for name in re.findall(r"'([^']+\.py)'", path.read_text())
    }
    assert bases - used == set()


def test_settings_count_the_classes_of_the_data():
    wrong = {}
    for path in ALL:
        cfg, found = load(path), {}
        for split in ('train', 'val', 'test'):
            for place, settings in loader_leaves(cfg, split):
                kind = registered(DATASETS, settings.type, cfg.default_scope)
                classes = named_classes(settings, kind, place)
                found |= {place: classes} if classes else {}
        wrong |= {path.stem: complaints} if (complaints := [*map(str, class_complaints(cfg, found))]) else {}
    assert wrong == {}


@pytest.mark.parametrize('path', SMALL_DATA, ids=names(SMALL_DATA))
def test_small_runs_repeat_and_say_how_to_get_the_data(path):
    cfg = load(path)
    assert cfg.randomness.seed == 0
    assert cfg.data_help.command.startswith('python tools/')
    assert (ROOT / cfg.data_help.command.split()[1]).is_file()
    assert cfg.data_help.root == cfg.train_dataloader.dataset.data_root
    # A mirrored digit is not the same digit; a mirrored garment or road is.
    assert ('Flip' in str(cfg.train_dataloader)) == (path not in DIGITS)


# --- metafiles ---


@cache
def metafiles() -> dict[Path, dict]:
    """Every model of the metafiles that the index names, by config."""
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())
    models = {}
    for name in index['Import']:
        content = yaml.safe_load((ROOT / name).read_text())
        collections = {collection['Name'] for collection in content['Collections']}
        for collection in content['Collections']:
            assert (ROOT / collection['README']).is_file()
        for model in content['Models']:
            assert model['In Collection'] in collections
            path = ROOT / model['Config']
            assert path not in models and model['Name'] == path.stem
            models[path] = model['Metadata']
    return models


def test_metafiles_list_every_config():
    indexed = [path for path in ALL if path in PAPERS or (path.parent / 'metafile.yml').is_file()]
    assert sorted(metafiles()) == indexed


def test_tables_and_headers_are_those_of_the_metafiles():
    """`python docs/tools/paper_tables.py` writes them; tests/analysis/test_paper_tables.py has its own tests."""
    different = [path for path, text in generate(ROOT).items() if path.read_text() != text]
    assert different == []


def test_every_table_lists_the_configs_of_its_folder():
    for path in PAPERS:
        assert f'| [{path.stem}]({path.name}) | ' in path.with_name('README.md').read_text()


def test_metafiles_have_the_known_counts():
    counts = {path.stem: metadata['Parameters'] for path, metadata in metafiles().items()}
    wrong = {name: counts[name] for name, reference in KNOWN.items() if not equals(counts[name], reference)}
    assert wrong == {}


# --- models and optimizers at their true size ---


def build(model: ConfigDict, scope: str, device: str):
    init_default_scope(scope)
    with torch.device(device):
        return MODELS.build(model)


def one_of_each(paths):
    """The first config of each host and plugs, as a sample for the fast suite; the others are marked slow."""
    seen = set()
    for path in paths:
        kind = (path.parent.name, path.stem.split('_')[0], path.stem.split('_')[1].split('-')[0])
        kind = re.sub(r'-(ti|s|m|b|l|t|h\d+|\d+x384)-', '-', str(kind))
        marks = [pytest.mark.slow] if kind in seen and path in PAPERS else []
        seen.add(kind)
        yield pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.sampled(3)
@pytest.mark.parametrize('path', list(one_of_each(ALL)))
def test_parameters_are_as_said_and_decay_spares_scalars_and_tables(path):
    cfg = load(path)
    model = build(cfg.model, cfg.default_scope, 'meta')
    assert sum(p.numel() for p in model.parameters()) == metafiles()[path]['Parameters']
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    groups = build_optim_wrapper(model, plain(cfg)).optimizer.param_groups
    decayed = {id(p) for group in groups if group['weight_decay'] for p in group['params']}
    spared = {name for name, p in parameters.items() if id(p) not in decayed}
    of_tables = (
        'pos_embed|cls_token|dist_token|(storage|register)_tokens|bias_table|rel_pos_(table|h|w)|sink_logit|frequencies'
    )
    tables = {name for name in parameters if re.search(of_tables, name)}
    if path in SMALL_DATA:
        # Neck and head of the segmentation are spared as a whole.
        heads = {name for name in parameters if 'upernet' in path.stem and not name.startswith('backbone.')}
        assert spared == {name for name, p in parameters.items() if p.ndim <= 1} | tables | heads
    elif '1xb128-200e' in path.stem:
        # The GAB paper's transfers: everything but A and sigma decays.
        assert spared == {name for name in parameters if re.search('gab_(amplitude|sigma)$', name)}
    elif cfg.optim_wrapper.optimizer.weight_decay:
        assert spared == {name for name, p in parameters.items() if p.ndim <= 1} | tables
    else:
        assert spared == set(parameters)
    if 'layer_decay_rate' in cfg.optim_wrapper.get('paramwise_cfg', {}):
        check_layer_decay(cfg.optim_wrapper, parameters, groups)


@pytest.mark.parametrize('name', ['deit-ti-p16', 'deit-ti-distilled-p16', 'vit-8x192-msa-p16', 'vit-8x192-mlp-p16'])
def test_deit_starts_as_deit(name):
    """Every linear layer by a normal distribution of 0.02, bias 0; mmpretrain's MLPs and heads start otherwise."""
    cfg = deepcopy(load(CONFIGS / 'context_broadcast' / f'{name}_8xb128-300e_in1k.py'))
    arch = dict(embed_dims=192, num_layers=9 if '8x192' in name else 2, num_heads=3, feedforward_channels=768)
    cfg.model.backbone.arch = ConfigDict(arch)
    cfg.model.pop('teacher', None)
    cfg.model.pop('teacher_checkpoint', None)
    cfg.model.type = 'ImageClassifier'
    model = build(cfg.model, 'mmpretrain', 'cpu')
    torch.manual_seed(0)
    model.init_weights()
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    assert len(layers) == 4 * arch['num_layers'] - 2 * ('8x192' in name) + (2 if 'distilled' in name else 1)
    for layer in layers:
        assert layer.bias.abs().max() == 0
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)


def plain(cfg: Config) -> dict:
    """The optimizer's wrapper without mixed precision, which needs an accelerator."""
    settings = cfg.optim_wrapper.to_dict()
    settings.pop('dtype', None)
    return ConfigDict({**settings, 'type': 'OptimWrapper'})


def check_layer_decay(settings, parameters, groups):
    rates = {id(p): group['lr'] / settings.optimizer.lr for group in groups for p in group['params']}
    rate = settings.paramwise_cfg.layer_decay_rate
    for name, p in parameters.items():
        block = re.match(r'backbone\.layers\.(\d+)\.', name)
        depth = int(block[1]) + 1 if block else 0 if re.match(r'backbone\.(patch_embed|pos_embed)', name) else 13
        assert rates[id(p)] == pytest.approx(rate ** (13 - depth)), name


def test_fsdp_config_has_the_strategy_and_its_runner():
    path = next(path for path in PAPERS if '-fsdp-' in path.stem)
    cfg = load(path)
    cfg.launcher = 'pytorch'
    check_strategy(cfg)
    assert is_sharded_run(cfg)


# --- small models, forward and backward ---


NUM_CLASSES = 5


def small(cfg: Config, teacher: str) -> ConfigDict:
    """A model of the same structure, small enough to train on images of 64 x 64.

    Heads stay as many and become 4 wide, so the network is narrow; MLPs are twice as wide as the tokens. Networks
    that are not tapped inside have 4 blocks, or 2 in each stage, but where the config tells blocks apart. Windows have
    a side of 2 (Swin) or 3 (ViT, whose map of 4 x 4 they do not divide). Task heads and necks have 16 channels and 5
    classes. A teacher is timm's smallest ResNet. No other checkpoint is read, images are not mixed, and no branch is
    dropped at random.
    """
    model = deepcopy(cfg.model)
    model.pop('init_cfg', None)
    model.train_cfg = None if cfg.default_scope == 'mmpretrain' else model.get('train_cfg')
    if model.get('diversity'):
        model.diversity.layers = [0, 2]
    if 'teacher' in model:
        model.teacher.update(model_name='test_resnet', num_classes=NUM_CLASSES)
        model.teacher_checkpoint = teacher
    backbone = model.backbone
    backbone.pop('init_cfg', None)
    backbone.update(img_size=64, drop_path_rate=0.0)
    widths = SMALL.get(backbone.type, small_vit)(backbone)
    for _, settings in list(walk(model)):
        for name, value in settings.items():
            settings[name] = narrowed(name, value, widths)
    return model


def small_swin(backbone: ConfigDict) -> dict[int, int]:
    arch = SwinTransformer.arch_zoo[backbone.arch]
    before, after = arch['embed_dims'], 4 * arch['num_heads'][0]
    backbone.arch = ConfigDict(embed_dims=after, depths=[2, 2, 2, 2], num_heads=arch['num_heads'])
    backbone.window_size = 2
    return {before * 2**stage: after * 2**stage for stage in range(4)}


def small_lvt(backbone: ConfigDict) -> dict[int, int]:
    arch = LVT.arch_zoo[backbone.arch] if isinstance(backbone.arch, str) else backbone.arch
    widths = [4 * heads for heads in arch['num_heads']]
    before = arch['embed_dims']
    backbone.arch = ConfigDict(arch, embed_dims=widths, mlp_ratios=[2] * len(widths))
    return dict(zip(before, widths, strict=True))


def small_vit(backbone: ConfigDict) -> dict[int, int]:
    arch = VisionTransformer.arch_zoo[backbone.arch] if isinstance(backbone.arch, str) else backbone.arch
    width = 4 * arch['num_heads']
    tapped = 'out_indices' in backbone or 'global_blocks' in backbone or isinstance(backbone.get('layer_cfgs'), list)
    num_layers = arch['num_layers'] if tapped else 4
    backbone.arch = ConfigDict(
        embed_dims=width, num_layers=num_layers, num_heads=arch['num_heads'], feedforward_channels=2 * width
    )
    if 'window_size' in backbone:
        backbone.window_size = 3
    return {arch['embed_dims']: width}


def small_foundation(backbone: ConfigDict) -> dict[int, int]:
    """The arguments of its network, with another arch."""
    network = network_settings(backbone.pop('arch'))
    backbone.update({**network, **backbone, 'type': 'vitplug.VisionTransformer'})
    return small_vit(backbone)


def small_t2t(backbone: ConfigDict) -> dict[int, int]:
    before, after = backbone.embed_dims, 4 * backbone.layer_cfgs.num_heads
    backbone.update(embed_dims=after, num_layers=4)
    backbone.layer_cfgs.feedforward_channels = 2 * after
    backbone.t2t_cfg.token_dims = 8
    return {before: after}


def small_pit(backbone: ConfigDict) -> dict[int, int]:
    arch = PoolingVisionTransformer.arch_zoo[backbone.arch]
    widths = [4 * heads for heads in arch['num_heads']]
    backbone.arch = ConfigDict(arch, embed_dims=widths, depths=[2] * len(widths))
    backbone.mlp_ratio = 2
    return dict(zip(arch['embed_dims'], widths, strict=True))


def small_mixer(backbone: ConfigDict) -> dict[int, int]:
    before = MlpMixer.arch_zoo[backbone.arch]['embed_dims']
    backbone.arch = ConfigDict(embed_dims=16, num_layers=4, tokens_mlp_dims=8, channels_mlp_dims=32)
    return {before: 16}


def small_mvit(backbone: ConfigDict) -> dict[int, int]:
    arch = MViT.arch_zoo[backbone.arch]
    before, after = arch['embed_dims'], 4 * arch['num_heads']
    backbone.arch = ConfigDict({**arch, 'embed_dims': after})
    backbone.mlp_ratio = 2
    return {before * 2**stage: after * 2**stage for stage in range(4)}


SMALL = {
    'vitplug.FoundationTransformer': small_foundation,
    'vitplug.LVT': small_lvt,
    'vitplug.MViT': small_mvit,
    'vitplug.MlpMixer': small_mixer,
    'vitplug.PoolingVisionTransformer': small_pit,
    'vitplug.SwinTransformer': small_swin,
    'vitplug.T2T_ViT': small_t2t,
}


def narrowed(name: str, value, widths: dict[int, int]):
    if name in ('in_channels', 'embed_dim', 'extra_head_dim'):
        widths = {256: 16, **widths}
        return [widths[v] for v in value] if isinstance(value, list) else widths.get(value, value)
    if name == 'num_classes':
        return NUM_CLASSES
    return 16 if name.endswith('channels') and name != 'feedforward_channels' else value


# Two random images and their annotations, as a model's preprocessor leaves them.


def classification_batch(model):
    from mmpretrain.structures import DataSample

    samples = [DataSample().set_gt_label(label) for label in (0, 3)]
    if isinstance(model, TokenLabelClassifier):
        for sample in samples:
            sample.token_labels = torch.randint(0, NUM_CLASSES, (2, 2, 3, 3)).float()
            sample.token_places = torch.rand(*[4 if isinstance(model.backbone, LVT) else 8] * 2, 2)
    return torch.randn(2, 3, 64, 64), samples


def segmentation_batch(model):
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    samples = [SegDataSample(gt_sem_seg=PixelData(data=torch.randint(0, NUM_CLASSES, (1, 64, 64)))) for _ in range(2)]
    return torch.randn(2, 3, 64, 64), samples


def detection_batch(model):
    from mmdet.testing import demo_mm_inputs

    packed = demo_mm_inputs(2, [[3, 64, 64]] * 2, num_items=[3, 3], num_classes=NUM_CLASSES, with_mask=True)
    data = model.data_preprocessor(packed, training=True)
    return data['inputs'], data['data_samples']


BATCHES = {'mmpretrain': classification_batch, 'mmseg': segmentation_batch, 'mmdet': detection_batch}


@pytest.fixture(scope='module')
def teacher(tmp_path_factory):
    """Weights of a teacher."""
    path = tmp_path_factory.mktemp('teacher') / 'teacher.pth'
    torch.save(timm.create_model('test_resnet', num_classes=NUM_CLASSES).state_dict(), path)
    return str(path)


@pytest.mark.sampled(3)
@pytest.mark.parametrize('path', PAPERS, ids=names(PAPERS))
def test_every_parameter_learns(path, teacher):
    model = small(load(path), teacher)
    assert without_gradient(load(path).default_scope, json.dumps(model.to_dict(), sort_keys=True)) == []


@cache
def without_gradient(scope: str, model: str) -> list[str]:
    """Names of the parameters that a backward pass leaves without a gradient."""
    torch.manual_seed(0)
    model = build(ConfigDict(json.loads(model)), scope, 'cpu').train()
    loss, _ = model.parse_losses(model(*BATCHES[scope](model), mode='loss'))
    loss.backward()
    assert loss.isfinite()
    learned = [(name, p.grad) for name, p in model.named_parameters() if p.requires_grad]
    return [name for name, grad in learned if grad is None or not grad.isfinite().all()]


@pytest.mark.parametrize(
    'path', [path for path in PAPERS if path.stem.startswith('vit-b-p16-residual_')], ids=lambda path: path.stem
)
def test_last_two_blocks_of_revit_have_a_grad_cam(path, teacher):
    """ReViT, section 4.6: a classifier that reads a class token depends on no patch token of the last block."""
    model = build(small(load(path), teacher), 'mmpretrain', 'cpu').eval()
    # A head that starts at zero depends on nothing.
    torch.nn.init.normal_(model.head.fc.weight)
    assert max(grad_cams(model, torch.randn(1, 3, 64, 64))) == len(model.backbone.layers) - 1


ADE20K = {path.stem.split('_')[0].split('-')[0]: path for path in PAPERS if '_upernet_' in path.stem}


@pytest.mark.parametrize('path', ADE20K.values(), ids=ADE20K)
def test_ade20k_is_tested_on_unpadded_images_of_any_size(path, teacher):
    """As XCiT's UPerNets and mmseg's; zeros beside the image would enter the mean of CB."""
    from mmseg.structures import SegDataSample

    model, seen = build(small(load(path), teacher), 'mmseg', 'cpu').eval(), []
    model.backbone.register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape[-2:])))
    sample = SegDataSample(metainfo=dict(ori_shape=(75, 101), img_shape=(75, 101)))
    inputs = torch.randint(0, 256, (3, 75, 101), dtype=torch.uint8)
    [found] = model.test_step(dict(inputs=[inputs], data_samples=[sample]))
    assert seen == [(75, 101)] and found.pred_sem_seg.shape == (75, 101)


# --- data ---


@pytest.fixture(scope='module')
def picture(tmp_path_factory):
    """A picture, a label map and an object, as the data sets hand them to their pipelines."""
    folder = tmp_path_factory.mktemp('picture')
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (300, 420, 3), dtype=np.uint8)
    cv2.imwrite(str(folder / 'image.jpg'), image)
    cv2.imwrite(str(folder / 'map.png'), rng.integers(0, 151, (300, 420), dtype=np.uint8))
    torch.save(torch.randint(0, 9, (2, 5, 18, 18)), folder / 'image.pt')
    path = str(folder / 'image.jpg')
    outline = [[50.0, 50.0, 350.0, 50.0, 350.0, 250.0, 50.0, 250.0]]
    instance = dict(bbox=[50, 50, 350, 250], bbox_label=3, mask=outline, ignore_flag=0)
    return {
        'mmpretrain': dict(img_path=path, img=image, gt_label=3),
        'mmseg': dict(img_path=path, seg_map_path=str(folder / 'map.png'), reduce_zero_label=True, seg_fields=[]),
        'mmdet': dict(img_path=path, img_id=0, instances=[instance], height=300, width=420),
    }


# Their images are small in the files, and stay as they are.
OF_SMALL_DATA = (
    *('camvid', 'cifar10_folders', 'cifar100_bs128_32', 'digits', 'fashion', 'garments', 'nuclei', 'tiny_imagenet'),
)
DATA = sorted(
    path for path in (CONFIGS / '_base_' / 'datasets').glob('*.py') if not path.stem.startswith(OF_SMALL_DATA)
)
SCOPES = {'ade20k': 'mmseg', 'coco': 'mmdet'}


@pytest.mark.parametrize('split', ['train', 'test'])
@pytest.mark.parametrize('path', DATA, ids=names(DATA))
def test_pipelines_give_images_of_the_size_in_the_name(path, split, picture):
    scope = SCOPES.get(path.stem.split('_')[0], 'mmpretrain')
    init_default_scope(scope)
    np.random.seed(0)
    pipeline = deepcopy(load(path)[f'{split}_dataloader'].dataset.pipeline)
    for step in pipeline:
        if step.type == 'vitplug.LoadTokenLabels':
            step.root = Path(picture[scope]['img_path']).parents[1]
    packed = Compose(pipeline)(picture[scope].copy())
    CHECKS[scope](packed, path.stem, split)


def check_image(packed, name, split):
    size = int(name.rsplit('_', 1)[1])
    assert packed['inputs'].shape == (3, size, size) and packed['data_samples'].gt_label == 3


def check_segmentation(packed, name, split):
    assert packed['data_samples'].gt_sem_seg.shape == ((512, 512) if split == 'train' else (300, 420))
    assert min(packed['inputs'].shape[-2:]) == 512


def check_detection(packed, name, split):
    height, width = packed['inputs'].shape[-2:]
    assert (height, width) == (1024, 1024) if '1024' in name else height <= 800 and width <= 1333
    if split == 'test':
        assert packed['data_samples'].gt_instances.masks.masks.shape[1:] == (300, 420)
    else:
        assert packed['data_samples'].gt_instances.masks is not None


CHECKS = {'mmpretrain': check_image, 'mmseg': check_segmentation, 'mmdet': check_detection}


@pytest.mark.parametrize('path', PAPERS, ids=names(PAPERS))
def test_images_are_filled_with_the_mean_that_is_subtracted(path):
    cfg = load(path)
    if cfg.default_scope != 'mmpretrain':
        return
    normalisation = cfg.model.get('data_preprocessor') or cfg.data_preprocessor
    # In the order of the channels that images have there.
    step = -1 if normalisation.to_rgb else 1
    bgr_mean, bgr_std = list(normalisation.mean)[::step], list(normalisation.std)[::step]
    for transform in cfg.train_dataloader.dataset.pipeline:
        if transform.type == 'RandAugment':
            assert transform.hparams.pad_val == [round(channel) for channel in bgr_mean]
        if transform.type == 'RandomErasing':
            is_random = transform.get('mode') == 'rand'
            assert (transform.fill_color, transform.get('fill_std')) == (bgr_mean, bgr_std if is_random else None)


@pytest.mark.parametrize('path', SMALL_DATA, ids=names(SMALL_DATA))
def test_small_pipelines_build(path):
    cfg = load(path)
    init_default_scope(cfg.default_scope)
    for split in ('train', 'val', 'test'):
        # Evaluators and image files wait until the first use.
        DATASETS.build({**cfg[f'{split}_dataloader'].dataset, 'lazy_init': True})


TRANSFERS = sorted({path for path in DATA if '_gab_' in path.stem and 'imagenet' not in path.stem})


def by_the_papers_script(split: str):
    """The transforms of the GAB paper's script, on an image that Pillow has read."""
    if split != 'train':
        return transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(256, scale=(0.8, 1.0)),
            transforms.RandomRotation(15),
            transforms.ColorJitter(0.4, 0.4, 0.4),
            transforms.RandomHorizontalFlip(),
            transforms.CenterCrop(224),
        ]
    )


@pytest.mark.parametrize('split', ['train', 'val', 'test'])
@pytest.mark.parametrize('path', TRANSFERS, ids=names(TRANSFERS))
def test_gab_transfers_see_the_images_of_the_papers_script(path, split, picture):
    init_default_scope('mmpretrain')
    pipeline = Compose(load(path)[f'{split}_dataloader'].dataset.pipeline)
    for seed in range(3):
        torch.manual_seed(seed)
        image = by_the_papers_script(split)(Image.open(picture['mmpretrain']['img_path']).convert('RGB'))
        torch.manual_seed(seed)
        packed = pipeline(dict(img_path=picture['mmpretrain']['img_path'], gt_label=3))
        assert np.array_equal(packed['inputs'].permute(1, 2, 0).flip(-1).numpy(), np.asarray(image))


@pytest.mark.parametrize('path', TRANSFERS, ids=names(TRANSFERS))
def test_gab_transfers_use_the_pooled_lists_of_their_own_data(path):
    """Each part its own list, made by the tool that the config names, and the best validation epoch is kept."""
    cfg = load(path)
    tool, name, root = cfg.data_help.command.split()[1:]
    assert root == cfg.data_help.root
    assert (ROOT / tool).is_file() and POOLS[name].num_classes == cfg.data_preprocessor.num_classes
    for split in ('train', 'val', 'test'):
        dataset = cfg[f'{split}_dataloader'].dataset
        assert (dataset.data_root, dataset.data_prefix) == (root, POOLS[name].folder)
        assert dataset.ann_file == f'meta/pooled_{split}.txt'
        assert dataset.get('test_mode', False) == (split != 'train')
    users = [load(other) for other in PAPERS if load(other).get('data_help') == cfg.data_help]
    assert len(users) == 7
    for user in users:
        assert user.model.head.num_classes == POOLS[name].num_classes
        assert user.default_hooks.checkpoint.save_best == 'accuracy/top1' and user.train_cfg.val_interval == 1


@pytest.mark.parametrize('size', ['s', 'm', 'b'])
def test_gab_on_imagenet_normalises_and_crops_as_timm(size):
    theirs = timm.get_pretrained_cfg(f'vit_relpos_{dict(s="small", m="medium", b="base")[size]}_patch16_224')
    cfg = load(CONFIGS / 'gaussian_bias' / f'vit-relpos-{size}-p16-gab_8xb288-400e_in1k.py')
    for key in ('mean', 'std'):
        assert cfg.data_preprocessor[key] == [255 * value for value in getattr(theirs, key)]
    erasing = next(step for step in cfg.train_dataloader.dataset.pipeline if step.type == 'RandomErasing')
    assert (erasing.fill_color, erasing.fill_std) == (cfg.data_preprocessor.mean, cfg.data_preprocessor.std)
    for split in ('val', 'test'):
        resize, crop = cfg[f'{split}_dataloader'].dataset.pipeline[1:3]
        assert (resize.scale, resize.interpolation) == (int(224 / theirs.crop_pct), theirs.interpolation)
        assert crop.crop_size == 224


def test_data_sets_exist():
    """Their classes, which CIFAR and others fill from files at once, are looked up and not built."""
    types = {(load(path).default_scope, load(path).train_dataloader.dataset.type) for path in PAPERS}
    assert len(types) >= 8
    for scope, name in types:
        with DATASETS.switch_scope_and_registry(scope) as registry:
            assert registry.get(name), name
