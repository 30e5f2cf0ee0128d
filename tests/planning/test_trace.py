"""Traced memory against torch's own tracker and against a real step, and traced operations against known counts."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from mmengine.config import Config, ConfigDict
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from vitplug.planning.gpu_forms import as_on_a_gpu
from vitplug.planning.measure_step import Variant, trace_step
from vitplug.planning.trace import Trace
from vitplug.tasks import TASKS
from vitplug.tasks.step_losses import BOXES, _find_overlaps

MIB = 2**20
ARCH = dict(embed_dims=96, num_layers=3, num_heads=3, feedforward_channels=384)


def config(**backbone) -> Config:
    return Config(
        dict(
            default_scope='mmpretrain',
            model=dict(
                type='ImageClassifier',
                backbone=dict(type='vitplug.VisionTransformer', arch=ARCH, img_size=128, patch_size=8) | backbone,
                head=dict(
                    type='LinearClsHead',
                    num_classes=10,
                    in_channels=96,
                    loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
                ),
            ),
            optim_wrapper=dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-3)),
        )
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64))


def test_peak_is_that_of_torchs_tracker():
    module = pytest.importorskip('torch.distributed._tools.mem_tracker')
    peaks = []
    with FakeTensorMode():
        model, x = mlp(), torch.empty(4096, 64)
        tracker = module.MemTracker()
        tracker.track_external(model)
        with tracker:
            model(x).sum().backward()
        [device] = tracker.get_tracker_snapshot('peak').values()
        peaks.append(device['Total'])
        model.zero_grad()
        with Trace(grain=1) as trace:
            trace.follow(model.parameters())
            model(x).sum().backward()
        peaks.append(trace.peak)
    assert peaks[1] == pytest.approx(peaks[0], rel=1e-3)


def test_peak_counts_what_is_alive_at_one_time():
    with FakeTensorMode(), Trace(grain=1) as trace:
        kept = torch.empty(100, dtype=torch.uint8)
        for _ in range(3):
            torch.empty(1000, dtype=torch.uint8)
        view = kept[10:]
    assert (trace.current, trace.peak) == (100, 1100) and view.numel() == 90


def test_memory_of_a_real_step_is_within_five_per_cent():
    cfg = config(plugs='cb+gab')
    planned = trace_step(cfg, (3, 128, 128), 16, on_gpu=False)
    from mmengine.registry import MODELS

    model = MODELS.build(cfg.model).train()
    images = torch.rand(16, 3, 128, 128)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        sum(TASKS['mmpretrain'].training_losses(model, images)).backward()
    changes = [event.nbytes() for event in profiled.profiler.kineto_results.events() if event.name() == '[memory]']
    current = peak = 0
    for change in changes:
        current += change
        peak = max(peak, current)
    assert planned.activations + planned.gradients > 20 * MIB
    own = planned.peak - planned.weights - planned.optimizer
    assert own == pytest.approx(peak, rel=0.05)


@pytest.mark.integration
def test_memory_grows_linearly_and_checkpoints_and_halves_save_it():
    def peak(batch, variant=Variant()):
        return trace_step(config(), (3, 128, 128), batch, variant).activations

    small, middle, large = (peak(batch) for batch in (4, 8, 16))
    assert large - middle == pytest.approx(2 * (middle - small), rel=0.02)
    assert peak(8, Variant(with_cp=True)) < 0.7 * middle
    checkpointed = config()
    checkpointed.model.backbone.with_cp = True
    assert trace_step(checkpointed, (3, 128, 128), 8).activations == middle, 'the variant wins over the config'
    assert peak(8, Variant(torch.bfloat16)) < 0.8 * middle


def test_convolutions_of_3_x_3_take_a_workspace_where_algorithms_are_tried():
    peaks = []
    for tries_algorithms in (False, True):
        with FakeTensorMode(), Trace(grain=1, tries_algorithms=tries_algorithms) as trace, torch.no_grad():
            x = torch.empty(2, 8, 12, 12)
            nn.Conv2d(8, 4, 1)(x)
            nn.Conv2d(8, 4, 3, padding=1, bias=False)(x)
        peaks.append(trace.peak)
    # 6 x 6 numbers for each 4 x 4 of the input's 8 channels and the output's 4.
    assert peaks[1] - peaks[0] == 2 * (8 + 4) * 9 * 36 * 4


@pytest.mark.parametrize(
    ('dtype', 'width', 'floats'),
    [
        # Tiles of 64 queries and 64 keys, with 4 numbers for a lock: 2 x 1 of them.
        (torch.float32, 32, 2 * (64 * 64 + 4)),
        # One of 128 and 128, which keeps the gradients of keys and values in registers.
        (torch.float16, 128, 128 * 128 + 4),
        # 1 x 3 of 128 queries and 64 keys; in half precision the gradients of 64 keys and values come beside, twice.
        (torch.float32, 192, 3 * (128 * 64 + 4)),
        (torch.float16, 192, 3 * (128 * 64 + 4) + 2 * 64 * (256 + 128)),
    ],
)
def test_backward_of_attention_takes_a_workspace_in_float32(dtype, width, floats):
    with FakeTensorMode(), as_on_a_gpu(), Trace(grain=1) as trace:
        q, k = (torch.empty(2, 3, 100, width, dtype=dtype, requires_grad=True) for _ in range(2))
        v = torch.empty(2, 3, 100, 16, dtype=dtype, requires_grad=True)
        out = F.scaled_dot_product_attention(q, k, v)
        grad = torch.empty_like(out)
        trace.restart()
        given = torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)
        tensors = trace.current
    assert [t.shape for t in given] == [q.shape, k.shape, v.shape]
    assert trace.peak - tensors == 2 * 3 * 4 * floats


def test_overlaps_of_boxes_with_anchors_exist_for_a_moment():
    assigner = pytest.importorskip('mmdet.models.task_modules.assigners').MaxIoUAssigner(0.5, 0.5)
    head = SimpleNamespace(assigner=assigner, prior_generator=SimpleNamespace(num_base_priors=[3, 2]))
    with FakeTensorMode(), Trace(grain=1) as trace:
        scores = [torch.empty(2, 3, 16, 16), torch.empty(2, 2, 8, 8)]
        before = trace.current
        _find_overlaps(head, scores)
    pairs = 4 * BOXES * (3 * 16 * 16 + 2 * 8 * 8)
    assert trace.current == before
    # Corners and sides of the overlaps have two numbers a pair each.
    assert 6 * pairs < trace.peak - before < 12 * pairs


def test_products_are_counted_as_the_equations_say():
    with FakeTensorMode(), Trace() as trace:
        model, x = nn.Linear(32, 64, bias=False), torch.empty(128, 32, requires_grad=True)
        model(x).sum().backward()
    # Forward, and the gradients of inputs and weights.
    assert sum(operation.flops * count for operation, count in trace.operations.items()) == 3 * 2 * 128 * 32 * 64
    assert {operation.name for operation in trace.operations} >= {'mm', 'sum'}
    assert 'view' not in {operation.name for operation in trace.operations}


@pytest.mark.parametrize(
    ('dtype', 'has_bias', 'kernel'),
    [
        (torch.float16, False, '_scaled_dot_product_flash_attention'),
        (torch.float16, True, '_scaled_dot_product_efficient_attention'),
        (torch.float32, False, '_scaled_dot_product_efficient_attention'),
    ],
)
def test_attention_takes_a_kernel_of_a_gpu_in_recomputation_too(dtype, has_bias, kernel):
    with FakeTensorMode(), as_on_a_gpu(), Trace() as trace:
        x = torch.empty(2, 3, 64, 16, dtype=dtype, requires_grad=True)
        bias = torch.empty(1, 3, 64, 64, dtype=dtype) if has_bias else None
        attend = lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=bias)  # noqa: E731
        out = checkpoint(attend, x, use_reentrant=False)
        assert out.shape == x.shape
        out.sum().backward()
    counts = {operation.name: count for operation, count in trace.operations.items()}
    assert counts[kernel] == 2 and counts[f'{kernel}_backward'] == 1


def test_layer_norm_under_autocast_has_the_type_of_a_gpu():
    x = torch.rand(4, 8)
    with as_on_a_gpu(), torch.autocast('cpu', torch.bfloat16):
        half = F.linear(x, torch.rand(8, 8))
        assert half.dtype == torch.bfloat16 and F.layer_norm(half, (8,)).dtype == torch.float32
        assert half.softmax(-1).dtype == torch.float32


def test_clipping_and_settings_of_amp_are_read_from_the_config():
    cfg = config()
    cfg.optim_wrapper = ConfigDict(
        type='AmpOptimWrapper',
        dtype='bfloat16',
        loss_scale='dynamic',
        clip_grad=dict(max_norm=1.0),
        optimizer=dict(type='SGD', lr=0.1, momentum=0.9),
    )
    step = trace_step(cfg, (3, 128, 128), 2)
    # One buffer of momentum beside each parameter.
    assert step.optimizer == step.gradients
