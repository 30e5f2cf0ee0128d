"""Parameters and multiply-accumulates (MACs) of a model, part by part.

Models are built and run on torch's meta device, which has shapes but no numbers: it needs no memory and little time for
any size. Convolutions and matrix products are counted by torch, including those of attention in its plain form: fused
and plain forms give the same result, and which one runs depends on the machine. Papers call the same quantity FLOPs.

Elementwise operations and reductions are counted only for plugs, separately from MACs; Context Broadcasting has no
matrix products at all. One per output element of a product, quotient, exponential or similar is elementwise, one per
input element of a mean, sum, maximum or softmax is a reduction. Additions belong to the product before them; copies,
casts and comparisons are not counted either.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pickle import UnpicklingError

import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from vitplug.attention import fused_attention
from vitplug.errors import failing_part
from vitplug.hosting import PluggedModel
from vitplug.tasks import TASKS

REST = 'rest'
PLUGS = 'backbone.plugs.'
MACS, ELEMENTWISE, REDUCTION = 'macs', 'elementwise', 'reduction'
# The parts that the hosts' blocks have under these names.
BRANCHES = {
    'attn': 'backbone.attention',
    'token_mix': 'backbone.token_mix',
    **dict.fromkeys(('ffn', 'mlp', 'channel_mix'), 'backbone.mlp'),
}
REDUCTIONS = frozenset(('amax', 'amin', 'max', 'mean', 'min', 'sum', 'var', 'var_mean', '_softmax', '_log_softmax'))
# fmt: off
FREE = frozenset((
    'add', 'add_', 'sub', 'sub_', 'rsub', 'neg', 'abs', 'clone', 'copy_', '_to_copy', 'where', 'masked_fill',
    'masked_fill_', 'clamp', 'clamp_', 'minimum', 'maximum', 'eq', 'ne', 'lt', 'le', 'gt', 'ge', 'logical_not',
    'fill', 'fill_', 'floor_divide', 'remainder', 'relu', 'relu_',
))
# fmt: on


@dataclass(frozen=True)
class Costs:
    """Costs of a model.

    Attributes:
        parameters: Number of parameters, by part.
        macs: Multiply-accumulates, by part that was run.
        elements: Elementwise operations and reductions, by plug that was run and has some.
    """

    parameters: Mapping[str, int]
    macs: Mapping[str, int]
    elements: Mapping[str, Mapping[str, int]]

    @property
    def total_parameters(self) -> int:
        return sum(self.parameters.values())

    @property
    def total_macs(self) -> int:
        return sum(self.macs.values())


def build_model(cfg: Config) -> nn.Module:
    """The model of a config on the meta device, in evaluation mode.

    Raises:
        ValueError: If the config has no model, or if the model cannot be built.
    """
    if 'model' not in cfg:
        raise ValueError(f'{cfg.filename}: the config has no `model`; name the config of a whole model')
    with silence_logs(), torch.device('meta'), LinspaceOnCpu():
        init_default_scope(cfg.default_scope)
        try:
            model = MODELS.build(cfg.model)
        except (KeyError, TypeError, AttributeError, RuntimeError, AssertionError, UnpicklingError) as error:
            raise ValueError(f'{cfg.filename}: the model cannot be built: {error}') from error
    model.eval()
    return model


class LinspaceOnCpu(TorchFunctionMode):
    """Keeps ``torch.linspace`` on the CPU, because stock backbones compute their stochastic depth rates with it."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        return func(*args, **({'device': 'cpu', **kwargs} if func is torch.linspace else kwargs))


@contextmanager
def silence_logs():
    """Silences the log lines and warnings of building a model."""
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel('ERROR')
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        logger.setLevel(level)


def count_costs(model: nn.Module, scope: str, chw: tuple[int, int, int], batch: int = 1) -> Costs:
    """Parameters and MACs of a model on the meta device.

    Args:
        model: The model in evaluation mode.
        scope: The library, which decides what is run; see :meth:`vitplug.tasks.Task.run_inference`.
        chw: Channels, height and width of the images.
        batch: Number of images.

    Raises:
        ValueError: If the model cannot be run on images of this size, or on the meta device.
    """
    labels = label_parts(model)
    plugged = any(label.startswith(PLUGS) for label in labels.values())
    images = torch.empty(batch, *chw, device='meta')

    def forward() -> None:
        TASKS[scope].run_inference(model, images)

    with silence_logs():
        try:
            macs = count_macs(labels, forward)
            counter = ElementCounter()
            elements = _count(labels, forward, counter, lambda: Counter(counter.counts)) if plugged else {}
        except (ValueError, RuntimeError, TypeError, AttributeError, AssertionError) as error:
            part = failing_part(error, model)
            raise ValueError(
                f'the {type(model).__name__} cannot be run on images of {chw[1]}x{chw[2]}: {part}{error}; supported '
                'are classifiers, segmentors with decode heads, and detectors with dense or RoI heads'
            ) from error
    of_plugs = {part: counts for part, counts in elements.items() if part.startswith(PLUGS)}
    return Costs(count_parameters(model, labels), macs, of_plugs)


def count_macs(labels: Mapping[nn.Module, str], forward: Callable[[], object]) -> Counter[str]:
    """MACs of a forward pass, by the innermost labelled module."""
    counter = FlopCounterMode(display=False)
    flops = _count(labels, forward, counter, lambda: Counter({MACS: counter.get_total_flops()}))
    # A multiply-accumulate is two floating point operations.
    return Counter({label: counts[MACS] // 2 for label, counts in flops.items()})


class ElementCounter(TorchDispatchMode):
    """Context manager that counts elementwise operations and reductions.

    Attributes:
        counts: The counts so far, ``'elementwise'`` and ``'reduction'``.
    """

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        name = func.overloadpacket.__name__
        if name in REDUCTIONS:
            self.counts[REDUCTION] += args[0].numel()
        elif torch.Tag.pointwise in func.tags and name not in FREE and isinstance(out, Tensor):
            self.counts[ELEMENTWISE] += out.numel()
        return out


def _count(
    labels: Mapping[nn.Module, str],
    forward: Callable[[], object],
    mode: AbstractContextManager,
    read: Callable[[], Counter[str]],
) -> dict[str, Counter[str]]:
    """The counts of a mode during a forward pass, by the innermost labelled module.

    Args:
        labels: Labels of modules.
        forward: Runs the model.
        mode: Context in which operations are counted.
        read: Returns the counts so far.
    """
    counts: dict[str, Counter[str]] = {}
    running = [REST]
    booked: Counter[str] = Counter()

    def book() -> None:
        nonlocal booked
        now = read()
        counts.setdefault(running[-1], Counter()).update(now - booked)
        booked = now

    def enter(module: nn.Module, inputs: tuple) -> None:
        book()
        running.append(labels[module])

    def leave(module: nn.Module, inputs: tuple, output: object) -> None:
        book()
        running.pop()

    with ExitStack() as stack:
        for module in labels:
            for handle in (module.register_forward_pre_hook(enter), module.register_forward_hook(leave)):
                stack.callback(handle.remove)
        stack.enter_context(torch.no_grad())
        stack.enter_context(fused_attention(False))
        with mode:
            forward()
            book()
    return {label: count for label, count in counts.items() if count}


def count_parameters(model: nn.Module, labels: Mapping[nn.Module, str]) -> Counter[str]:
    """Parameters by the innermost labelled module; shared parameters are counted once."""
    counts: Counter[str] = Counter()
    seen: set[nn.Parameter] = set()

    def add(module: nn.Module, label: str) -> None:
        label = labels.get(module, label)
        unseen = set(module.parameters(recurse=False)) - seen
        seen.update(unseen)
        counts[label] += sum(parameter.numel() for parameter in unseen)
        for child in module.children():
            add(child, label)

    add(model, REST)
    return +counts


# --- the parts ---


def label_parts(model: nn.Module) -> dict[nn.Module, str]:
    """Labels of the modules with separate costs: the model's parts, and attention, MLPs and plugs of its backbone."""
    labels: dict[nn.Module, str] = {}
    _label_children(labels, model, '')
    if hasattr(model, 'roi_head'):
        _label_children(labels, model.roi_head, 'roi_head.')
    backbone = getattr(model, 'backbone', None)
    if isinstance(backbone, PluggedModel):
        labels[backbone] = 'backbone.other'
        for block in backbone.plugged_blocks():
            # A block may lack a branch.
            branches = {getattr(block, name, None): label for name, label in BRANCHES.items()}
            labels |= {module: label for module, label in branches.items() if module is not None}
        for plugs in (backbone.plugs, *(block.plugs for block in backbone.plugged_blocks())):
            for name, sockets in plugs.items():
                labels |= dict.fromkeys(sockets.values(), f'{PLUGS}{name}')
    return labels


def _label_children(labels: dict[nn.Module, str], parent: nn.Module, prefix: str) -> None:
    for name, child in parent.named_children():
        # The stages of a cascade.
        parts = child if isinstance(child, nn.ModuleList) else [child]
        labels |= dict.fromkeys(parts, f'{prefix}{name}')
