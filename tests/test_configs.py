"""A walk over every config: it parses, builds, is what its name, header and metafile say, and learns in all parameters.

Parameters are counted on torch's meta device, which holds shapes and no numbers.
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

from vitplug.backbones import LVT
from vitplug.config.parts import loader_leaves, registered
from vitplug.datasets.pooled_splits import POOLS
from vitplug.models import TokenLabelClassifier
from vitplug.runs.checks.classes import class_complaints, named_classes

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / 'configs'
ALL = sorted(path for path in CONFIGS.rglob('*.py') if '_base_' not in path.parts)
SMALL_DATA = [path for path in ALL if path.parent.name in ('digits', 'fashion', 'camvid', 'cifar10', 'nuclei')]
PAPERS = [path for path in ALL if path not in SMALL_DATA]
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


# --- names and headers ---


def header(path: Path) -> str:
    return path.read_text().partition('_base_')[0]


@pytest.mark.parametrize('path', ALL, ids=names(ALL))
def test_header_gives_the_command(path):
    assert f'# python tools/train.py configs/{path.relative_to(CONFIGS)}\n' in header(path)
    assert all(line.startswith('# ') for line in header(path).splitlines())


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
    assert cfg.param_scheduler[-1].get('end', length) in (length, cfg.train_cfg.get('max_epochs'))
    if path in PAPERS:
        assert cfg.auto_scale_lr.base_batch_size == int(gpus) * int(batch)


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
    found = DIFFERS.search(' '.join(line.removeprefix('# ') for line in header(path).splitlines()))
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


# --- what the papers say ---


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
    # ViT's fine-tuning, which both papers refer to, starts a new head at zero.
    'model.head.init_cfg.type': 'Constant',
    'model.head.init_cfg.val': 0.0,
}
WARM_UP_500 = {'param_scheduler.0.end': 500, 'param_scheduler.1.begin': 500}
EMA = {'custom_hooks.0.type': 'EMAHook', 'custom_hooks.0.momentum': 4e-5}
# XCiT's UPerNets, after which CB's are trained (section 3.3), and mmseg's see tests of any size without padding: zeros
# beside the image would enter the mean of CB.
UNPADDED = {'model.data_preprocessor.test_cfg': None, 'test_dataloader.dataset.pipeline.1.keep_ratio': True}
# What else the papers say of recipes, and where: configs by a piece of their path.
RECIPES = {
    # XCiT has no model of the size of DeiT-B.
    'context_broadcast/deit-ti-*_upernet_*': {'model.backbone.drop_path_rate': 0.0} | UNPADDED,
    'context_broadcast/deit-s-*_upernet_*': {'model.backbone.drop_path_rate': 0.05} | UNPADDED,
    # Swin's recipe, which ReSwin-T follows (section 4.2).
    'residual_attention/swin-t-p4-w7*_in1k*': {
        'model.backbone.drop_path_rate': 0.2,
        'model.train_cfg.augments': [dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)],
        'model.train_cfg.probs': None,
        'optim_wrapper.clip_grad.max_norm': 5.0,
        'train_dataloader.dataset.pipeline.3.num_policies': 2,
        'train_dataloader.dataset.pipeline.4.erase_prob': 0.25,
        'test_dataloader.dataset.pipeline.1.scale': 256,
        'param_scheduler.1.eta_min': 1e-5,
    },
    # T2T-ViT's official test crop.
    'broad_attention/t2t-*_in1k*': {'test_dataloader.dataset.pipeline.1.scale': 248},
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
    # ViT's images (vit_jax/input_pipeline.py) and schedule (vit_jax/configs/common.py, augreg.py for 500 steps).
    'broad_attention/*_cifar*': VIT_CROPS | WARM_UP_500,
    'residual_attention/vit-b-*_cifar*': VIT_CROPS | WARM_UP_500,
    'residual_attention/vit-b-*-500i_*': VIT_CROPS | {'param_scheduler.0.end': 100, 'param_scheduler.1.begin': 100},
    # DeiT's optimiser, which BViT takes over with its averaged weights (section IV-A).
    'broad_attention/deit-*_in1k*': {'optim_wrapper.clip_grad': None, 'optim_wrapper.optimizer.eps': None} | EMA,
    # DeiT's command for 384 x 384 changes rate, decay, epochs and size, and nothing else of its recipe.
    'refiner/*-30e_*': {
        'optim_wrapper.optimizer.lr': 5e-6,
        'optim_wrapper.optimizer.weight_decay': 1e-8,
        'param_scheduler.0.start_factor': 0.2,
        'param_scheduler.0.end': 5,
        'param_scheduler.1.factor': 1.0,
        'train_dataloader.sampler.type': 'RepeatAugSampler',
        'train_dataloader.dataset.pipeline.4.erase_prob': 0.25,
    }
    | EMA,
}


@pytest.mark.parametrize('pattern', RECIPES)
def test_recipes(pattern):
    paths = [path for path in CONFIGS.glob(pattern) if '-official' not in path.stem]
    assert paths
    for path in paths:
        cfg = load(path)
        assert {key: setting(cfg, key) for key in RECIPES[pattern]} == RECIPES[pattern], path.stem


def setting(node, key: str):
    """A setting by its path, None where there is none."""
    for name in key.split('.'):
        node = node[int(name)] if name.lstrip('-').isdecimal() else node.get(name)
        if node is None:
            return None
    return node.to_dict() if isinstance(node, ConfigDict) else node


# Token labels bring their own mixing of images.
REFINER = [path for path in CONFIGS.glob('refiner/*-300e_*') if 'token-labels' not in path.stem]


@pytest.mark.parametrize('path', REFINER, ids=names(REFINER))
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


@pytest.mark.parametrize('path', PAPERS, ids=names(PAPERS))
def test_checkpoints_have_a_known_place(path):
    cfg = load(path)
    assert cfg.load_from is None
    for start in starts(cfg):
        folder, name = Path(start['checkpoint']).parts[:2]
        assert folder in ('checkpoints', 'work_dirs')
        if folder == 'work_dirs':
            path_before = next(other for other in PAPERS if other.stem == name)
            before = load(path_before)
            assert Path(start['checkpoint']).name == f'epoch_{before.train_cfg.max_epochs}.pth'
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


def test_every_base_is_used():
    used = {
        Path(path.parent, name).resolve()
        for path in CONFIGS.rglob('*.py')
        for name in re.findall(r"'([^']+\.py)'", path.read_text())
    }
    assert {*(CONFIGS / '_base_').rglob('*.py')} - used == set()


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
    assert sorted(metafiles()) == ALL


def test_tables_and_headers_are_those_of_the_metafiles():
    """`python docs/tools/paper_tables.py` writes them; tests/analysis/test_paper_tables.py has its own tests."""
    different = [path for path, text in generate(ROOT).items() if path.read_text() != text]
    assert different == []


def test_metafiles_have_the_known_counts():
    counts = {path.stem: metadata['Parameters'] for path, metadata in metafiles().items()}
    wrong = {name: counts[name] for name, reference in KNOWN.items() if not equals(counts[name], reference)}
    assert wrong == {}


# --- models and optimizers ---


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


TABLES = (
    'pos_embed|cls_token|dist_token|(storage|register)_tokens|bias_table|rel_pos_(table|h|w)|sink_logit|frequencies'
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize('path', list(one_of_each(ALL)))
def test_parameters_are_as_said_and_decay_spares_scalars_and_tables(path):
    cfg = load(path)
    model = build(cfg.model, cfg.default_scope, 'meta')
    assert sum(p.numel() for p in model.parameters()) == metafiles()[path]['Parameters']
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    # Without mixed precision, which needs an accelerator.
    wrapper = ConfigDict({**cfg.optim_wrapper, 'type': 'OptimWrapper'})
    wrapper.pop('dtype', None)
    groups = build_optim_wrapper(model, wrapper).optimizer.param_groups
    decayed = {id(p) for group in groups if group['weight_decay'] for p in group['params']}
    spared = {name for name, p in parameters.items() if id(p) not in decayed}
    expected = {name for name, p in parameters.items() if p.ndim <= 1 or re.search(TABLES, name)}
    if path in SMALL_DATA:
        # Neck and head of the segmentation are spared as a whole.
        expected |= {name for name in parameters if 'upernet' in path.stem and not name.startswith('backbone.')}
    elif '1xb128-200e' in path.stem:
        # The GAB paper's transfers: everything but A and sigma decays.
        expected = {name for name in parameters if re.search('gab_(amplitude|sigma)$', name)}
    elif not cfg.optim_wrapper.optimizer.weight_decay:
        expected = set(parameters)
    assert spared == expected


@pytest.mark.parametrize('name', ['deit-ti-p16', 'deit-ti-distilled-p16', 'vit-8x192-msa-p16', 'vit-8x192-mlp-p16'])
def test_deit_starts_as_deit(name):
    """Every linear layer by a normal distribution of 0.02, bias 0; mmpretrain's MLPs and heads start otherwise."""
    cfg = deepcopy(load(CONFIGS / 'context_broadcast' / f'{name}_8xb128-300e_in1k.py'))
    for key in ('teacher', 'teacher_checkpoint'):
        cfg.model.pop(key, None)
    cfg.model.type = 'ImageClassifier'
    model = build(cfg.model, 'mmpretrain', 'cpu')
    torch.manual_seed(0)
    model.init_weights()
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            assert layer.bias.abs().max() == 0
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)


# Two random images of 64 x 64 and their annotations, as a model's preprocessor leaves them.


def classification_batch(model):
    from mmpretrain.structures import DataSample

    samples = [DataSample().set_gt_label(label) for label in (0, 3)]
    if isinstance(model, TokenLabelClassifier):
        for sample in samples:
            sample.token_labels = torch.randint(0, 5, (2, 2, 3, 3)).float()
            sample.token_places = torch.rand(*[4 if isinstance(model.backbone, LVT) else 8] * 2, 2)
    return torch.randn(2, 3, 64, 64), samples


def segmentation_batch(model):
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    samples = [SegDataSample(gt_sem_seg=PixelData(data=torch.randint(0, 5, (1, 64, 64)))) for _ in range(2)]
    return torch.randn(2, 3, 64, 64), samples


def detection_batch(model):
    from mmdet.testing import demo_mm_inputs

    packed = demo_mm_inputs(2, [[3, 64, 64]] * 2, num_items=[3, 3], num_classes=5, with_mask=True)
    data = model.data_preprocessor(packed, training=True)
    return data['inputs'], data['data_samples']


BATCHES = {'mmpretrain': classification_batch, 'mmseg': segmentation_batch, 'mmdet': detection_batch}


@pytest.fixture(scope='module')
def teacher(tmp_path_factory):
    """Weights of a teacher."""
    path = tmp_path_factory.mktemp('teacher') / 'teacher.pth'
    torch.save(timm.create_model('test_resnet').state_dict(), path)
    return str(path)


def on_small_images(cfg: Config, teacher: str) -> ConfigDict:
    """The model for images of 64 x 64, from random weights and without what is drawn at random."""
    model = deepcopy(cfg.model)
    model.pop('init_cfg', None)
    model.backbone.pop('init_cfg', None)
    model.backbone.update(drop_path_rate=0.0)
    if 'pretrain_img_size' not in model.backbone and 'convert_weights' not in model.backbone:  # mmseg's and mmdet's
        model.backbone.img_size = 64
    if cfg.default_scope == 'mmpretrain':
        model.train_cfg = None
    if 'SwinTransformer' in model.backbone.type:
        model.backbone.window_size = 2
    if 'teacher' in model:
        model.teacher.model_name = 'test_resnet'
        model.teacher_checkpoint = teacher
    return model


def smallest_first(path: Path) -> int:
    return metafiles()[path]['Parameters']


KINDS = [case for case in one_of_each(sorted(PAPERS, key=smallest_first)) if not case.marks]


@pytest.mark.sampled(4)
@pytest.mark.parametrize('path', KINDS)
def test_every_parameter_learns(path, teacher):
    """A parameter without a gradient stops a training on several GPUs."""
    cfg = load(path)
    torch.manual_seed(0)
    model = build(on_small_images(cfg, teacher), cfg.default_scope, 'cpu').train()
    loss, _ = model.parse_losses(model(*BATCHES[cfg.default_scope](model), mode='loss'))
    loss.backward()
    assert loss.isfinite()
    learned = [(name, p.grad) for name, p in model.named_parameters() if p.requires_grad]
    assert [name for name, grad in learned if grad is None or not grad.isfinite().all()] == []


# --- data ---


def test_settings_count_the_classes_of_the_data():
    wrong = {}
    for path in ALL:
        cfg, found = load(path), {}
        for split in ('train', 'val', 'test'):
            for place, settings in loader_leaves(cfg, split):
                kind = registered(DATASETS, settings.type, cfg.default_scope)
                assert kind, settings.type
                classes = named_classes(settings, kind, place)
                found |= {place: classes} if classes else {}
        wrong |= {path.stem: complaints} if (complaints := [*class_complaints(cfg, found)]) else {}
    assert wrong == {}


@pytest.mark.parametrize('path', SMALL_DATA, ids=names(SMALL_DATA))
def test_small_runs_repeat_and_say_how_to_get_the_data(path):
    cfg = load(path)
    assert cfg.randomness.seed == 0
    if cfg.train_dataloader.dataset.type not in ('CIFAR10', 'FashionMNIST'):  # these are downloaded
        assert cfg.data_help.command.startswith('python tools/')
        assert (ROOT / cfg.data_help.command.split()[1]).is_file()
        assert cfg.data_help.root == cfg.train_dataloader.dataset.data_root
    # A mirrored digit is not the same digit; a mirrored garment or road is.
    assert ('Flip' in str(cfg.train_dataloader)) == (path.parent.name != 'digits')
    init_default_scope(cfg.default_scope)
    for split in ('train', 'val', 'test'):
        # Evaluators and image files wait until the first use.
        DATASETS.build({**cfg[f'{split}_dataloader'].dataset, 'lazy_init': True})


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


def each_pipeline(split: str):
    """One config of the papers for each pipeline; those of Locality Self-Attention keep the images' own size."""
    paths = [path for path in PAPERS if 'vit-9x192' not in path.stem]
    return {json.dumps(load(path)[f'{split}_dataloader'].dataset.pipeline): path for path in paths}.values()


PIPELINES = [(path, split) for split in ('train', 'test') for path in each_pipeline(split)]


@pytest.mark.parametrize(('path', 'split'), PIPELINES, ids=[f'{path.stem}-{split}' for path, split in PIPELINES])
def test_pipelines_give_images_of_the_size_of_the_model(path, split, picture):
    cfg = load(path)
    init_default_scope(cfg.default_scope)
    np.random.seed(0)
    pipeline = deepcopy(cfg[f'{split}_dataloader'].dataset.pipeline)
    for step in pipeline:
        if step.type == 'vitplug.LoadTokenLabels':
            step.root = Path(picture[cfg.default_scope]['img_path']).parents[1]
    size = 384 if split == 'test' and '384x384' in path.stem else cfg.model.backbone.get('img_size', 224)
    CHECKS[cfg.default_scope](Compose(pipeline)(picture[cfg.default_scope].copy()), size, split)


def check_image(packed, size, split):
    assert packed['inputs'].shape == (3, size, size) and packed['data_samples'].gt_label == 3


def check_segmentation(packed, size, split):
    assert packed['data_samples'].gt_sem_seg.shape == ((512, 512) if split == 'train' else (300, 420))
    assert min(packed['inputs'].shape[-2:]) == 512


def check_detection(packed, size, split):
    height, width = packed['inputs'].shape[-2:]
    assert (height, width) == (1024, 1024) if size == 1024 else max(height, width) <= 1333
    masks = packed['data_samples'].gt_instances.masks
    assert masks.masks.shape[1:] == (300, 420) if split == 'test' else masks is not None


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


GAB_TRANSFERS = sorted(CONFIGS.glob('gaussian_bias/vit-relpos-s-p16_1xb128-200e_*.py'))


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
def test_gab_transfers_see_the_images_of_the_papers_script(split, picture):
    init_default_scope('mmpretrain')
    [text] = {json.dumps(load(path)[f'{split}_dataloader'].dataset.pipeline) for path in GAB_TRANSFERS}
    pipeline = Compose(json.loads(text))
    for seed in range(3):
        torch.manual_seed(seed)
        image = by_the_papers_script(split)(Image.open(picture['mmpretrain']['img_path']).convert('RGB'))
        torch.manual_seed(seed)
        packed = pipeline(dict(img_path=picture['mmpretrain']['img_path'], gt_label=3))
        assert np.array_equal(packed['inputs'].permute(1, 2, 0).flip(-1).numpy(), np.asarray(image))


@pytest.mark.parametrize('path', GAB_TRANSFERS, ids=names(GAB_TRANSFERS))
def test_gab_transfers_use_the_pooled_lists_of_their_own_data(path):
    """Each part its own list, made by the tool that the config names, and the best validation epoch is kept."""
    cfg = load(path)
    tool, name, root = cfg.data_help.command.split()[1:]
    assert name == path.stem.split('_')[-1] and root == cfg.data_help.root
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
    for split in ('val', 'test'):
        resize, crop = cfg[f'{split}_dataloader'].dataset.pipeline[1:3]
        assert (resize.scale, resize.interpolation) == (int(224 / theirs.crop_pct), theirs.interpolation)
        assert crop.crop_size == 224
