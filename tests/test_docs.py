"""What README and docs show works: commands parse, configs build, examples run, links and pictures are in order.

Shell commands are all lines of fences named ``shell``, indented lines that begin as one, and inline code that does.
Python is a config if it has a ``model`` or a ``_base_``, and is run otherwise.
"""

import argparse
import ast
import inspect
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import bad_inputs
import matplotlib
import numpy as np
import pytest
import torch
import yaml
from launcher_programs import write_programs
from mmdet.structures import DetDataSample
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData, PixelData
from mmpretrain.structures import DataSample
from mmseg.structures import SegDataSample
from PIL import Image

from vitplug.backbones.base import PluggedBackbone
from vitplug.commands import STARTED_AS
from vitplug.config.parts import as_list
from vitplug.config.reading import read_config
from vitplug.plugs import (
    PLUG_TYPES,
)
from vitplug.registry import MODELS as OUR_MODELS
from vitplug.registry import PLUGS
from vitplug.runs import dataset_check, new_experiment

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ('README.md', 'CONTRIBUTING.md', 'CHANGELOG.md')),
    *sorted((ROOT / 'docs').rglob('*.md')),
    *sorted((ROOT / 'configs').glob('*/README.md')),
]
FENCE = re.compile(r'^```(\w*)\n(.*?)^```$', re.MULTILINE | re.DOTALL)
STARTS = r'(?:python|vitplug|make|pip|pytest|bash|tools/\S+\.sh) '


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fences(page: Path, language: str) -> list[str]:
    return [code for named, code in FENCE.findall(page.read_text()) if named == language]


# --- commands ---


def unrolled(code: str) -> list[str]:
    """The commands of a shell fence, variables filled in and loops written out once."""
    values = dict(re.findall(r'^(\w+)=(\S+)$', code, re.MULTILINE))
    values |= dict(re.findall(r'^for (\w+) in (\S+)', code, re.MULTILINE))
    commands = [line for line in code.splitlines() if not re.match(r'\w+=\S+$|for |done', line)]
    return [re.sub(r'\$(\w+)', lambda name: values[name[1]], line) for line in commands]


def commands_of(page: Path) -> list[str]:
    """The commands a page shows, without comments, synopsis brackets and broken lines."""
    text = page.read_text()
    prose = FENCE.sub('', text)
    found = [line for code in fences(page, 'shell') for line in unrolled(code.replace('\\\n', ' '))]
    for block in re.findall(r'\n\n((?:    .*\n)+)', prose.replace('\\\n', ' ')):
        found += re.findall(rf'^    ({STARTS}.*)', block, re.MULTILINE)
    found += [' '.join(code.split()) for code in re.findall(rf'`({STARTS}[^`]*)`', prose)]
    commands = (re.sub(r'[\[\]]| \.\.\.|\|\w+', '', line.partition('  #')[0]).strip() for line in found)
    return sorted({command for command in commands if command and not command.startswith('#')})


COMMANDS = sorted({command for page in PAGES for command in commands_of(page)})


class Parsed(BaseException):
    """The command line was understood; nothing after that is to be run."""


def parse(script: Path, args: list[str], monkeypatch) -> None:
    """Lets a script parse a command line with its own parser, and stops it there."""
    understand = argparse.ArgumentParser.parse_args

    def stop(parser, argv=None, namespace=None):
        understand(parser, argv, namespace)
        raise Parsed

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, 'parse_args', stop)
        patch.setattr(sys, 'argv', [str(script), *args])
        patch.syspath_prepend(script.parent)
        with pytest.raises(Parsed):
            runpy.run_path(str(script), run_name='__main__')


def parse_python(args: list[str], monkeypatch) -> None:
    if args[:2] == ['-m', 'pytest']:
        return parse_pytest(args[2:])
    if args[:2] == ['-m', 'vitplug']:
        return parse_vitplug(args[2:], monkeypatch)
    script = ROOT / (f'{args[1].replace(".", "/")}.py' if args[0] == '-m' else args[0])
    rest = args[2:] if args[0] == '-m' else args[1:]
    if 'pictures' in script.stem:
        # Takes no arguments and would draw at once.
        assert script.exists() and not rest
        return None
    return parse(script, rest, monkeypatch)


def parse_vitplug(args: list[str], monkeypatch) -> None:
    if args and args != ['--help']:
        monkeypatch.setenv(STARTED_AS, 'vitplug')  # so that what the command sets is undone
        parse(ROOT / 'vitplug' / '__main__.py', args, monkeypatch)


def parse_pytest(args: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument('-x', action='store_true')
    options.add_argument('-s', action='store_true')
    options.add_argument('-m')
    options.add_argument('--quick', action='store_true')
    options.add_argument('--plug')
    options.add_argument('--hypothesis-profile', choices=('vitplug', 'fresh'))
    options.add_argument('paths', nargs='*', type=lambda path: str((ROOT / path).resolve(strict=True)))
    options.parse_args(args)


def parse_make(args: list[str]) -> None:
    makefile = (ROOT / 'Makefile').read_text()
    for variable in (arg.partition('=')[0] for arg in args if '=' in arg):
        assert f'$({variable})' in makefile, f'the Makefile has no variable {variable}'
    env = {key: value for key, value in os.environ.items() if not key.startswith('MAKE')}
    done = subprocess.run(['make', '--dry-run', *args], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def parse_pip(args: list[str]) -> None:
    extras = re.findall(r"^        '(\w+)': ", (ROOT / 'setup.py').read_text(), re.MULTILINE)
    options = argparse.ArgumentParser()
    options.add_argument('command', choices=['install'])
    options.add_argument('-e', choices=['.', *(f'.{extra}' for extra in extras)])  # '.[timm]' has lost its brackets
    options.add_argument('--no-deps', action='store_true')
    options.add_argument('packages', nargs='*')
    options.parse_args(args)


def parse_launcher(args: list[str], monkeypatch, tmp_path) -> None:
    """Runs a shell script beside programs that print what they are called with, then parses the tool's own part."""
    env = {**os.environ, 'PATH': write_programs(tmp_path)}
    done = subprocess.run(args, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    at = next(i for i, word in enumerate(words) if word.endswith('.py'))
    parse(ROOT / words[at], words[at + 1 :], monkeypatch)


@pytest.mark.parametrize('command', COMMANDS)
def test_command_is_understood(command, monkeypatch, tmp_path):
    # Behind variables, and behind what Slurm starts it with.
    program, *args = shlex.split(re.sub(r'^(\w+=\S+ )+|^srun (--\S+ \S+ )+', '', command))
    for word in args:
        if word.startswith(('configs/', 'tests/', 'tools/')):
            assert (ROOT / word.partition('::')[0]).exists(), word
    if program in ('python', 'vitplug'):
        {'python': parse_python, 'vitplug': parse_vitplug}[program](args, monkeypatch)
    elif program in PARSERS:
        PARSERS[program](args)
    else:
        assert program == 'bash' or (ROOT / program).exists(), f'{program}: unknown to this test'
        parse_launcher([program, *args], monkeypatch, tmp_path)


PARSERS = {'make': parse_make, 'pip': parse_pip, 'pytest': parse_pytest}


def test_commands_are_found():
    assert len(COMMANDS) >= 40
    programs = {command.split()[0] for command in COMMANDS}
    assert {'python', 'make', 'pip', 'pytest', 'bash', 'tools/dist_train.sh', 'tools/slurm_train.sh'} <= programs


# --- Python ---


def is_config(code: str) -> bool:
    targets = [node for part in ast.parse(code).body for node in getattr(part, 'targets', [])]
    return bool({'_base_', 'model'} & {target.id for target in targets if isinstance(target, ast.Name)})


# tests/adapters/test_page.py runs those that put plugs into models of others.
CODE = [(page, i, code) for page in PAGES for i, code in enumerate(fences(page, 'python')) if 'plug_in(' not in code]
CONFIGS = [pytest.param(page, code, id=f'{name_of(page)}-{i}') for page, i, code in CODE if is_config(code)]
# Lines that use a backbone, not the modules of an example.
INFERS = re.compile(r'(?!""")[^(]*torch\.')
INFERENCE = [pytest.param(code, id=f'{name_of(page)}-{i}') for page, i, code in CODE if INFERS.match(code)]
PROGRAMS = [pytest.param(code, id=f'{name_of(page)}-{i}') for page, i, code in CODE if 'Predictor(' in code]
FROM_PYTHON = [pytest.param(code, id=f'{name_of(page)}-{i}') for page, i, code in CODE if 'import vitplug\n' in code]
SNIPPETS = [
    pytest.param(code, id=f'{name_of(page)}-{i}')
    for page, i, code in CODE
    if 'backbone.forward' in code and 'Predictor(' not in code
]
OWN = [pytest.param(code, id=f'{name_of(page)}-{i}') for page, i, code in CODE if 'study.conditions import' in code]
NEURONS = [pytest.param(code, id=f'{name_of(page)}-{i}') for page, i, code in CODE if 'find_register_neurons(' in code]


def modules_of(page: Path) -> list[str]:
    """The modules an example page defines."""
    return [code for code in fences(page, 'python') if code.startswith('"""')]


@pytest.fixture
def beside_examples(tmp_path, monkeypatch):
    """A folder with the examples' modules, importable; what they register is taken out again."""
    for names, page in ((['my_plugs'], 'your_plug.md'), (['my_hosts', 'my_transformer'], 'your_host.md')):
        for name, code in zip(names, modules_of(ROOT / 'docs' / page), strict=True):
            (tmp_path / f'{name}.py').write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ('my_plugs', 'my_hosts', 'my_transformer'):
        sys.modules.pop(name, None)
    PLUGS.module_dict.pop('MixedHeads', None)
    OUR_MODELS.module_dict.pop('PlainTransformer', None)


def load(code: str, folder: Path) -> Config:
    path = folder / 'my_config.py'
    path.write_text(code)
    return read_config(str(path))


def build(cfg: Config) -> torch.nn.Module:
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        return MODELS.build(cfg.model)


@pytest.mark.parametrize(('page', 'code'), CONFIGS)
def test_config_builds(page, code, beside_examples):
    model = build(load(code, beside_examples))
    assert isinstance(model.backbone, PluggedBackbone)
    plugged = [block.plugs for block in model.backbone.plugged_blocks() if block.plugs]
    # One names a config whose plugs it inherits.
    assert plugged or model.backbone.plugs or 'UniformHead' in code


def test_every_example_is_a_config_or_run():
    examples = [code for _, _, code in CODE if code.startswith('"""')]
    kinds = (CONFIGS, SNIPPETS, INFERENCE, PROGRAMS, FROM_PYTHON, NEURONS, OWN, examples)
    assert sum(map(len, kinds)) == len(CODE)
    assert len(examples) == 3 and SNIPPETS and PROGRAMS and FROM_PYTHON
    assert {code for _, _, code in CODE if "'mmseg::" in code}


@pytest.mark.parametrize('plug', [plug.__name__ for plug in PLUG_TYPES])
def test_every_plug_has_a_config_and_every_argument_a_word(plug):
    pages = [page for page in (ROOT / 'docs' / 'plugs').glob('*.md') if any(plug in c for c in fences(page, 'python'))]
    assert pages, f'no page has a config with {plug}'
    arguments = inspect.signature(PLUGS.get(plug)).parameters
    text = '\n'.join(page.read_text() for page in pages)
    assert [name for name in arguments if name not in text] == []


@pytest.mark.parametrize('code', SNIPPETS)
def test_snippet_runs(code):
    arch = dict(embed_dims=8, num_layers=12, num_heads=2, feedforward_channels=16)
    backbone = OUR_MODELS.build(dict(type='VisionTransformer', arch=arch, img_size=16, patch_size=8))
    scope = dict(backbone=backbone, images=torch.randn(1, 3, 16, 16))
    exec(code, scope)
    probs = scope['found']['probs'][11]
    assert probs.shape == (1, 1, 2, 5, 5)
    if 'with_grad' in code:
        assert probs.grad.any()
        assert list(scope['entropies']) == list(range(12)) and min(scope['entropies'].values()) > 0


@pytest.mark.parametrize('code', FROM_PYTHON)
def test_python_without_configs_runs(code, tmp_path):
    plain = OUR_MODELS.build(dict(type='VisionTransformer', arch='deit-tiny'))
    torch.save(plain.state_dict(), tmp_path / 'plain.pth')
    scope = {}
    exec(code.replace('CHECKPOINT', str(tmp_path / 'plain.pth')), scope)
    weights = scope['backbone'].state_dict()
    assert len(weights) > len(plain.state_dict())
    assert all(torch.equal(weights[name], value) for name, value in plain.state_dict().items())


@pytest.mark.parametrize('code', OWN)
def test_own_conditions_and_measures_are_made(code, monkeypatch):
    monkeypatch.setitem(sys.modules, 'foolbox', SimpleNamespace())  # of a condition for those who have it
    scope = {}
    exec(code, scope)
    for name in ('soft', 'brightness') if 'def soft' in code else ('pgd',):
        assert scope[name]().name


@pytest.mark.parametrize('code', NEURONS)
def test_found_neurons_make_a_plug(code):
    scope = {}
    exec(code, scope)
    assert len(scope['plugs'][0]['neurons']) == 3
    assert type(scope['vit'])(scope['arch'], img_size=32, patch_size=8, plugs=scope['plugs']).plug_summary


@pytest.mark.slow
@pytest.mark.parametrize('code', INFERENCE)
def test_inference_snippet_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arch = dict(embed_dims=8, num_layers=1, num_heads=2, feedforward_channels=16)
    backbone = MODELS.build(dict(type='vitplug.VisionTransformer', arch=arch, img_size=16, patch_size=8)).eval()
    scope = dict(torch=torch, backbone=backbone, images=torch.randn(2, 3, 32, 48))
    exec(code, scope)
    if 'onnx' in code:
        assert (tmp_path / 'backbone.onnx').stat().st_size > 1000
    else:
        other = scope['graph'] if 'graph' in scope else scope['compiled']
        torch.testing.assert_close(other(scope['images']), backbone(scope['images']))


@pytest.mark.parametrize('code', PROGRAMS)
def test_program_draws_a_picture(code, tmp_path):
    if 'pytorch_grad_cam' in code:
        pytest.importorskip('pytorch_grad_cam')  # of a program for those who have it
    folder = bad_inputs.prepare(tmp_path / 'run')
    code = (
        code.replace('CONFIG', 'tiny.py').replace('CHECKPOINT', 'good.pth').replace('photo.jpg', 'data/val/cat/0.png')
    )
    before = bad_inputs.snapshot(folder).keys()
    with bad_inputs.own_process(folder), matplotlib.rc_context(dict(backend='agg')):
        exec(code, {})
    [written] = bad_inputs.snapshot(folder).keys() - before
    assert written.suffix == '.png' and min(Image.open(written).size) > 100


# Both of width 16 and stride 8; the windows divide the maps of images of 32 x 32, so that nothing is masked.
HOSTS = {
    'vit': dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=16),
        img_size=32,
        patch_size=8,
        out_type='featmap',
        with_cls_token=False,
    ),
    'swin': dict(
        type='vitplug.SwinTransformer',
        arch=dict(embed_dims=8, depths=[1, 1], num_heads=[2, 2]),
        img_size=32,
        window_size=4,
        drop_path_rate=0.0,
        out_indices=(1,),
        pad_small_map=True,
    ),
}


@pytest.mark.parametrize('host', HOSTS)
def test_plug_of_ones_own_is_its_equation(host, beside_examples):
    """An identity at first; with other matrices, the sums over heads written out."""
    import my_plugs  # noqa: F401

    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    plain = MODELS.build(dict(HOSTS[host])).double().eval()
    model = MODELS.build(dict(HOSTS[host], plugs=[dict(type='MixedHeads')])).double().eval()
    model.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(model(images), plain(images))
    for name, value in model.named_parameters():
        if 'plugs.mixed_heads.' in name:
            torch.nn.init.normal_(value)
    _, found = model.forward_intermediates(images, ('scores', 'bias', 'logits', 'probs', 'maps'))
    for layer, block in enumerate(model.plugged_blocks()):
        parts, bias = block.plugs['mixed_heads'], found.get('bias', {}).get(layer, 0.0)
        logits = mixed_by_hand(parts['logits'].mix, found['scores'][layer] + bias)
        torch.testing.assert_close(found['logits'][layer], logits)
        torch.testing.assert_close(found['maps'][layer], mixed_by_hand(parts['map'].mix, found['probs'][layer]))


def mixed_by_hand(weights, maps):
    heads = range(len(weights))
    return torch.stack([sum(weights[g, h] * maps[:, :, h] for h in heads) for g in heads], dim=2)


def classifier(backbone: dict):
    head = dict(type='LinearClsHead', num_classes=2, in_channels=16)
    return 'mmpretrain', dict(
        type='ImageClassifier', backbone=backbone, neck=dict(type='GlobalAveragePooling'), head=head
    )


def segmentor(backbone: dict):
    head = dict(type='FCNHead', in_channels=16, in_index=0, channels=8, num_convs=1, num_classes=3)
    return 'mmseg', dict(type='EncoderDecoder', backbone=backbone, decode_head=head, test_cfg=dict(mode='whole'))


def detector(backbone: dict):
    anchors = dict(type='AnchorGenerator', scales=[2], ratios=[1.0], strides=[8])
    head = dict(
        type='RetinaHead', num_classes=2, in_channels=8, stacked_convs=1, feat_channels=8, anchor_generator=anchors
    )
    assigner = dict(type='MaxIoUAssigner', pos_iou_thr=0.5, neg_iou_thr=0.4, min_pos_iou=0)
    train_cfg = dict(assigner=assigner, sampler=dict(type='PseudoSampler'), allowed_border=-1, pos_weight=-1)
    test_cfg = dict(nms_pre=10, score_thr=0.0, nms=dict(type='nms', iou_threshold=0.5), max_per_img=5)
    neck = dict(type='FPN', in_channels=[16], out_channels=8, num_outs=1)
    return 'mmdet', dict(
        type='RetinaNet', backbone=backbone, neck=neck, bbox_head=head, train_cfg=train_cfg, test_cfg=test_cfg
    )


def one_sample(scope: str):
    """A sample of a task with its truth, for an image of 32 x 32."""
    sizes = dict(img_shape=(32, 32), ori_shape=(32, 32), pad_shape=(32, 32), scale_factor=(1.0, 1.0))
    if scope == 'mmpretrain':
        return DataSample(metainfo=sizes).set_gt_label(1)
    if scope == 'mmseg':
        return SegDataSample(metainfo=sizes, gt_sem_seg=PixelData(data=torch.randint(3, (1, 32, 32))))
    objects = InstanceData(bboxes=torch.tensor([[4.0, 4.0, 20.0, 20.0]]), labels=torch.tensor([1]))
    sample = DetDataSample(metainfo=dict(sizes, batch_input_shape=(32, 32)))
    sample.gt_instances = objects
    return sample


@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('task', [classifier, segmentor, detector])
def test_plug_of_ones_own_learns_in_every_task(task, host, beside_examples):
    import my_plugs  # noqa: F401

    scope, cfg = task(dict(HOSTS[host], plugs=[dict(type='MixedHeads'), dict(type='ContextBroadcast')]))
    init_default_scope(scope)
    model = MODELS.build(ConfigDict(cfg))
    model.init_weights()
    mixes = [value for name, value in model.named_parameters() if 'plugs.mixed_heads.' in name]
    assert len(mixes) == 4 and all(torch.equal(mix, torch.eye(2)) for mix in mixes)
    images, sample = torch.randn(1, 3, 32, 32), one_sample(scope)
    losses = model(images, [sample], mode='loss')
    sum(sum(as_list(loss)) for name, loss in losses.items() if 'loss' in name).backward()
    assert all(mix.grad.isfinite().all() and mix.grad.abs().sum() > 0 for mix in mixes)
    (found,) = model.eval()(images, [sample], mode='predict')
    assert any(f'pred_{kind}' in found for kind in ('label', 'sem_seg', 'instances'))


def test_host_of_ones_own_takes_every_plug(beside_examples):
    import my_hosts

    small = dict(dims=16, depth=2, num_heads=2, img_size=32, patch_size=8)
    for plugs in ([], *([dict(type=plug)] for plug in PLUG_TYPES)):
        model = my_hosts.PlainTransformer(**small, plugs=plugs)
        (out,) = model(torch.randn(1, 3, 40, 24))
        assert out.shape == (1, 16, 5, 3)
        out.square().sum().backward()
        assert [name for name, p in model.named_parameters() if p.grad is None] == []
    _, found = model.forward_intermediates(torch.randn(1, 3, 32, 32), ('probs',))
    assert found['probs'][1].shape[-2:] == (16 + model.num_prefix, 16 + model.num_prefix)
    with pytest.raises(TypeError, match=r"PlainTransformer has no argument \['widths'\]; it takes .*'dims'"):
        my_hosts.PlainTransformer(widths=3)


def test_host_of_ones_own_hands_out_its_branches(beside_examples):
    import my_hosts

    model, images = my_hosts.PlainTransformer(depth=2), torch.randn(1, 3, 32, 32)
    _, found = model.forward_intermediates(images, ('attn', 'mlp', 'block', 'probs'))
    blocks = [model.embed(images)[0], *found['block'].values()]
    for index in range(2):
        torch.testing.assert_close(blocks[index] + found['attn'][index] + found['mlp'][index], blocks[index + 1])
    assert model.maps_to_image(found, 1, (32, 32), query=(9, 20)).shape == (1, 4, 32, 32)


def test_host_of_ones_own_passes_scores_on_and_lets_plugs_finish(beside_examples):
    import my_hosts

    small, images = dict(dims=16, depth=2, num_heads=2, img_size=32, patch_size=8), torch.randn(1, 3, 32, 32)
    plain = my_hosts.PlainTransformer(**small)
    for plug in (dict(type='BroadAttention'), dict(type='ResidualAttention', learnable=False)):
        model = my_hosts.PlainTransformer(**small, plugs=[plug])
        model.load_state_dict(plain.state_dict())
        assert not torch.allclose(model(images)[0], plain(images)[0])


# --- a host of torch alone ---


def test_module_of_torch_is_as_the_page_says(beside_examples):
    import my_transformer

    model = my_transformer.Transformer(plugs='residual+cb(scaled=True)')
    features, found = model.forward_intermediates(torch.rand(1, 3, 48, 32), names=('probs',))
    assert features[0].shape == (1, 32, 6, 4)
    assert model.maps_to_image(found, 3, (48, 32), query=(20, 10)).shape == (1, 2, 48, 32)


# --- data ---


def write_images(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((48, 64, 3), 100, np.uint8)).save(folder / name)


def flowers(folder: Path) -> None:
    for split in ('train', 'val'):
        write_images(folder / 'data' / 'flowers' / split, ['rose/1.jpg', 'tulip/2.jpg'])


def screws(folder: Path) -> None:
    for split in ('train', 'val'):
        write_images(folder / 'data' / 'screws' / split, ['1.jpg'])
        box = dict(bbox=[2, 2, 20, 10], area=200, segmentation=[[2, 2, 22, 2, 22, 12, 2, 12]], iscrowd=0)
        content = dict(
            images=[dict(id=1, file_name='1.jpg', width=64, height=48)],
            annotations=[dict(box, id=i, image_id=1, category_id=i) for i in (1, 2)],
            categories=[dict(id=1, name='bolt'), dict(id=2, name='nut')],
        )
        (folder / 'data' / 'screws' / f'{split}.json').write_text(json.dumps(content))


def roads(folder: Path) -> None:
    for split in ('train', 'val'):
        write_images(folder / 'data' / 'roads' / 'images' / split, ['1.jpg'])
        labels = folder / 'data' / 'roads' / 'labels' / split
        labels.mkdir(parents=True)
        values = np.resize(np.array([0, 1, 255], np.uint8), (48, 64))
        Image.fromarray(values).save(labels / '1.png')


PAGE = ROOT / 'docs' / 'your_data.md'
WRITING = [shlex.split(line) for line in fences(PAGE, 'shell')[0].splitlines()]
DATA = list(zip((flowers, screws, roads), WRITING, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(('make_data', 'command'), DATA, ids=['folder', 'coco', 'label-maps'])
def test_command_for_ones_own_data_writes_a_config_of_it(make_data, command, tmp_path, monkeypatch, capsys):
    """On files laid out as the page says, the check of the written config finds both classes and nothing wrong."""
    monkeypatch.chdir(tmp_path)
    make_data(tmp_path)
    (tmp_path / command[command.index('--pretrained') + 1]).touch()
    new_experiment.main(command[2:])
    out = command[command.index('--out') + 1]
    cfg = read_config(out)
    assert dataset_check.main([out]) == 0
    assert '0 errors, 0 notes' in capsys.readouterr().out
    heads = [cfg.model[key] for key in ('head', 'decode_head', 'auxiliary_head') if key in cfg.model]
    heads += [cfg.model.roi_head[key] for key in ('bbox_head', 'mask_head') if 'roi_head' in cfg.model]
    assert {head.num_classes for head in heads} == {2} and cfg.model.backbone.plugs


# --- links, pictures, the site ---


@pytest.mark.parametrize('page', PAGES, ids=name_of)
def test_linked_files_exist(page):
    for target in re.findall(r'\]\(([^)#\s]+)[^)]*\)', FENCE.sub('', page.read_text())):
        assert '://' in target or (page.parent / target).exists(), target


def test_pictures_are_those_the_script_draws():
    pictures = runpy.run_path(str(ROOT / 'docs' / 'tools' / 'pictures.py'))['PICTURES']
    names = {path.stem for path in (ROOT / 'docs' / 'images').glob('*.svg')}
    assert names == {draw.__name__ for draw in pictures}
    for draw in pictures:
        assert (ROOT / 'docs' / 'images' / f'{draw.__name__}.svg').read_text() == draw(), draw.__name__


def pages_of(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in pages_of(part)]


def test_site_has_every_page():
    nav = pages_of(yaml.safe_load((ROOT / 'mkdocs.yml').read_text())['nav'])
    assert sorted(nav) == sorted(name_of(page) for page in PAGES if page.name != 'README.md' or page.parent != ROOT)


def test_reference_names_exist():
    """A name that is gone fails the site as well; here it does without building it."""
    for page in (ROOT / 'docs' / 'api').glob('*.md'):
        for name in re.findall(r'^::: (\S+)$', page.read_text(), re.MULTILINE):
            module, _, attribute = name.rpartition('.')
            found = __import__(module, fromlist=[attribute])
            assert hasattr(found, attribute), name


def test_citation_has_the_version_and_every_paper():
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
    assert f"version='{citation['version']}'" in (ROOT / 'setup.py').read_text()
    papers = {re.search(r'> \[(.+)\]', readme.read_text()) for readme in (ROOT / 'configs').glob('*/README.md')}
    titles = {match[1] for match in papers if match} - {
        'Exploring Plain Vision Transformer Backbones for Object Detection',
        'DINOv3',
    }
    assert titles == {reference['title'] for reference in citation['references']}
