"""Parameters and multiply-accumulates (MACs) of a model, part by part.

Models are built and run on torch's meta device, which has shapes but no numbers: it needs no memory and little time for
any size. Convolutions and matrix products are counted by torch, including those of attention in its plain form: fused
and plain forms give the same result, and which one runs depends on the machine. Papers call the same quantity FLOPs.

Elementwise operations are counted only for plugs, separately from MACs; Context Broadcasting has no matrix products at
all. They are one per output element of a product, quotient, exponential or similar. Additions belong to the product
before them; means, softmax, copies, casts and comparisons are not counted either.
"""

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pickle import UnpicklingError

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from vitplug.attention import fused_attention
from vitplug.errors import failing_part
from vitplug.hosting import PluggedModel
from vitplug.tasks.libraries import TASKS

REST = 'rest'
PLUGS = 'backbone.plugs.'
MACS, ELEMENTWISE = 'macs', 'elementwise'
# The parts that the hosts' blocks have under these names.
BRANCHES = {
    'attn': 'backbone.attention',
    'token_mix': 'backbone.token_mix',
    **dict.fromkeys(('ffn', 'mlp', 'channel_mix'), 'backbone.mlp'),
}
# Operators that torch's counter leaves out, and how often they are counted.
NAMES = (
    'mul mul_ div div_ lerp lerp_ addcmul addcmul_ addcdiv pow sqrt rsqrt reciprocal exp exp_ log log1p '
    'sin cos sigmoid tanh erf gelu silu softplus hardtanh sign'
)
COUNTED = {
    getattr(torch.ops.aten, name): lambda *shapes, out_shape, **settings: prod(out_shape) for name in NAMES.split()
}


@dataclass(frozen=True)
class Costs:
    """Costs of a model.

    Attributes:
        parameters: Number of parameters, by part.
        macs: Multiply-accumulates, by part that was run.
        elements: Elementwise operations, by plug that was run and has some.
    """

    parameters: Mapping[str, int]
    macs: Mapping[str, int]
    elements: Mapping[str, int]

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
    with quiet(), torch.device('meta'), LinspaceOnCpu():
        init_default_scope(cfg.default_scope)
        try:
            return MODELS.build(cfg.model).eval()
        except (KeyError, TypeError, AttributeError, RuntimeError, AssertionError, UnpicklingError) as error:
            raise ValueError(f'{cfg.filename}: the model cannot be built: {error}') from error


class LinspaceOnCpu(TorchFunctionMode):
    """Keeps ``torch.linspace`` on the CPU, because stock backbones compute their stochastic depth rates with it."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        return func(*args, **({'device': 'cpu', **kwargs} if func is torch.linspace else kwargs))


@contextmanager
def quiet() -> Iterator[None]:
    """No log lines and warnings, of building a model or of torch's exporter: errors say what is needed."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        logging.disable(before)


def count_costs(model: nn.Module, scope: str, chw: tuple[int, int, int]) -> Costs:
    """Parameters and MACs of a model on the meta device, in evaluation mode, for one image.

    Args:
        model: The model.
        scope: The library, which decides what is run; see :meth:`vitplug.tasks.libraries.Task.run_inference`.
        chw: Channels, height and width of the image.

    Raises:
        ValueError: If the model cannot be run on images of this size, or on the meta device.
    """
    labels = label_parts(model)
    images = torch.empty(1, *chw, device='meta')
    try:
        with quiet():
            counts = count_operations(labels, lambda: TASKS[scope].run_inference(model, images))
    except (ValueError, RuntimeError, TypeError, AttributeError, AssertionError) as error:
        part = failing_part(error, model)
        raise ValueError(
            f'the {type(model).__name__} cannot be run on images of {chw[1]}x{chw[2]}: {part}{error}; supported are '
            'classifiers, segmentors with decode heads, and detectors with dense or RoI heads'
        ) from error
    macs = {part: found[MACS] for part, found in counts.items() if found[MACS]}
    own = {part: found[ELEMENTWISE] for part, found in counts.items() if part.startswith(PLUGS) and found[ELEMENTWISE]}
    return Costs(count_parameters(model, labels), macs, own)


def count_operations(labels: Mapping[nn.Module, str], forward: Callable[[], object]) -> dict[str, Counter[str]]:
    """MACs and elementwise operations of a forward pass, by the innermost labelled module."""
    counter = FlopCounterMode(display=False, custom_mapping=COUNTED)
    counts: dict[str, Counter[str]] = {}
    running = [REST]
    booked: Counter = Counter()

    def book() -> None:
        nonlocal booked
        now = Counter(counter.get_flop_counts().get('Global', {}))
        own = counts.setdefault(running[-1], Counter())
        for op, count in (now - booked).items():
            # A multiply-accumulate is two floating point operations.
            own.update({ELEMENTWISE: count} if op in COUNTED else {MACS: count // 2})
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
        with counter:
            forward()
            book()
    return counts


def count_parameters(model: nn.Module, labels: Mapping[nn.Module, str]) -> Counter[str]:
    """Parameters by the innermost labelled module; shared parameters are counted once."""
    places = {name: labels[module] for name, module in model.named_modules() if module in labels}
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        modules = accumulate(name.split('.'), '{}.{}'.format)
        counts[[REST, *(places[module] for module in modules if module in places)][-1]] += parameter.numel()
    return counts


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
