"""Every config parses and builds, and an ablation changes its baseline's backbone and nothing else."""

import re
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, MODELS, init_default_scope

CONFIGS = Path(__file__).resolve().parents[1] / 'configs'
ALL = sorted(path for path in CONFIGS.rglob('*.py') if '_base_' not in path.parts)
ABLATIONS = [path for path in ALL if re.search(r"^_base_ = '[^/]+'$", path.read_text(), re.MULTILINE)]


def names(paths):
    return [path.stem for path in paths]


def test_there_are_configs_and_ablations():
    assert len(ALL) >= 6 and len(ABLATIONS) >= 3


@pytest.mark.parametrize('path', ALL, ids=names(ALL))
def test_model_and_optimizer_build_and_decay_spares_scalars_and_tables(path):
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    decayed = {id(p) for group in optimizer.param_groups if group['weight_decay'] for p in group['params']}
    backbone = dict(model.backbone.named_parameters())
    spared = {name for name, p in backbone.items() if id(p) not in decayed}
    tables = {name for name in backbone if re.search('pos_embed|cls_token|bias_table', name)}
    assert spared == {name for name, p in backbone.items() if p.ndim <= 1} | tables


@pytest.mark.parametrize('path', ALL, ids=names(ALL))
def test_pipelines_build_and_never_flip(path):
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    for split in ('train', 'val', 'test'):
        # Evaluators and image files wait until the first use.
        DATASETS.build({**cfg[f'{split}_dataloader'].dataset, 'lazy_init': True})
    assert 'Flip' not in str(cfg.train_dataloader)


@pytest.mark.parametrize('path', ALL, ids=names(ALL))
def test_runs_repeat_and_say_how_to_get_the_data(path):
    cfg = Config.fromfile(path)
    assert cfg.randomness.seed == 0
    assert cfg.data_help.startswith('python tools/')
    assert (CONFIGS.parent / cfg.data_help.split()[1]).is_file()


@pytest.mark.parametrize('path', ALL, ids=names(ALL))
def test_header_gives_the_command(path):
    assert f'python tools/train.py configs/{path.relative_to(CONFIGS)}' in path.read_text()


@pytest.mark.parametrize('path', ALL, ids=names(ALL))
def test_name_says_batch_and_schedule(path):
    cfg = Config.fromfile(path)
    batch, schedule = re.search(r'_1xb(\d+)-(\d+[ei])_', path.stem).groups()
    assert cfg.train_dataloader.batch_size == int(batch)
    assert schedule == (
        f'{cfg.train_cfg.max_epochs}e' if cfg.train_cfg.get('by_epoch') else f'{cfg.train_cfg.max_iters}i'
    )


@pytest.mark.parametrize('path', ABLATIONS, ids=names(ABLATIONS))
def test_ablation_changes_the_plugs_only(path):
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith('#')]
    child = Config.fromfile(path)
    baseline = Config.fromfile(path.parent / re.search(r"_base_ = '(.+)'", path.read_text())[1])
    assert child.model.backbone.pop('plugs')
    assert child.to_dict() == baseline.to_dict()
    assert 2 <= len(lines) <= 6 and '_delete_' not in path.read_text()
