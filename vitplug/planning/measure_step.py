"""Traces one training step of a config's model: its memory, and its operations."""

import copy
from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

import torch
from mmengine.config import Config, ConfigDict
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from vitplug.analysis.costs import build_model, silence_logs
from vitplug.errors.traceback_part import failing_part
from vitplug.tasks import TASKS

from .gpu_forms import as_on_a_gpu, without_roi_kernels
from .trace import GRAIN, Operation, Trace

WORD = 4


@dataclass(frozen=True)
class Variant:
    """How a step is run.

    Args:
        half: Type of autocast; None for float32.
        with_cp: Whether the backbone computes its activations again in the backward pass.
    """

    half: torch.dtype | None = None
    with_cp: bool = False

    def __str__(self) -> str:
        name = 'float32' if self.half is None else str(self.half).removeprefix('torch.')
        return f'{name}, with_cp' if self.with_cp else name


@dataclass(frozen=True)
class Step:
    """One traced training step; memory in bytes.

    Args:
        batch: Images.
        weights: Parameters and buffers.
        gradients: Gradients of the trained parameters.
        optimizer: State of the optimizer.
        activations: Most bytes at one time beside weights, gradients and the optimizer's state.
        peak: Most bytes at one time of one process.
        largest_block: Bytes of the largest block's weights.
        operations: How many times each operation ran.
        parameters: Number of the trained parameters.
    """

    batch: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    peak: int
    largest_block: int
    operations: Counter[Operation]
    parameters: int


def trace_step(
    cfg: Config, chw: tuple[int, int, int], batch: int, variant: Variant = Variant(), on_gpu: bool = True
) -> Step:
    """One training step of a config's model after the first one, on fake tensors.

    Args:
        cfg: The config of a training.
        chw: Channels, height and width of the images.
        batch: Number of images.
        variant: Precision and checkpointing.
        on_gpu: Whether the forms of a GPU run; else those of this CPU.

    Raises:
        ValueError: If the model cannot be built, or has a part that cannot run on fake tensors.
    """
    cfg = copy.deepcopy(cfg)
    if variant.with_cp or cfg.model.backbone.get('with_cp'):  # not every backbone has the setting
        cfg.model.backbone.with_cp = variant.with_cp
    model = revert_sync_batchnorm(build_model(cfg))  # the other one runs on no CPU
    tries_algorithms = on_gpu and bool((cfg.get('env_cfg') or {}).get('cudnn_benchmark'))
    trace = Trace(GRAIN if on_gpu else 1, tries_algorithms)
    with ExitStack() as stack:
        stack.enter_context(silence_logs())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        model = model.to_empty(device='cpu').train()
        optimizer, clip = make_optimizer(cfg, model, on_gpu)
        stack.enter_context(as_on_a_gpu() if on_gpu else without_roi_kernels())
        stack.enter_context(trace)
        weights = trace.follow([*model.parameters(), *model.buffers()])
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        trace.follow_gradients(model)
        state = _fill_state(trace, optimizer, trained)
        images = torch.empty(batch, *chw)
        trace.restart()
        before = trace.current
        try:
            with _autocast(variant):
                loss = sum(TASKS[cfg.default_scope].training_losses(model, images))
            loss.backward()
        except (RuntimeError, TypeError, AttributeError, NotImplementedError) as error:
            part = failing_part(error, model)
            raise ValueError(f'{cfg.filename}: a step cannot be traced without values: {part}{error}') from error
        gradients = trace.gradients
        activations = trace.peak_without_gradients - before
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(trained, **clip)
        optimizer.step()
    return Step(
        batch=batch,
        weights=weights,
        gradients=gradients,
        optimizer=state,
        activations=activations,
        peak=trace.peak,
        largest_block=_largest_block(model),
        operations=Counter(trace.operations),
        parameters=sum(parameter.numel() for parameter in trained),
    )


def _autocast(variant: Variant):
    return torch.autocast('cpu', variant.half) if variant.half else nullcontext()


def make_optimizer(cfg: Config, model: nn.Module, on_gpu: bool) -> tuple[torch.optim.Optimizer, dict | None]:
    """The optimizer, in the form that torch takes on the device, and the settings by which gradients are clipped."""
    settings = {key: value for key, value in cfg.optim_wrapper.items() if key not in ('dtype', 'loss_scale')}
    wrapper = build_optim_wrapper(model, ConfigDict({**settings, 'type': 'OptimWrapper'}))
    for group in wrapper.optimizer.param_groups:
        if 'foreach' in group:
            group['foreach'] = on_gpu
    return wrapper.optimizer, cfg.optim_wrapper.get('clip_grad')


def _fill_state(trace: Trace, optimizer: torch.optim.Optimizer, trained: list[nn.Parameter]) -> int:
    """Bytes of the optimizer's state, which its first step makes."""
    before = trace.current
    for parameter in trained:
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return trace.current - before


def _largest_block(model: nn.Module) -> int:
    blocks = [part for module in model.modules() if isinstance(module, nn.ModuleList) for part in module]
    sizes = [sum(parameter.numel() for parameter in block.parameters()) for block in blocks]
    return WORD * max(sizes, default=0)
