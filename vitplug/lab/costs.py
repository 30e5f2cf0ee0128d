"""Parameters and multiply-accumulates (MACs) of a model, its parts and its plugs: the command ``vitplug flops``.

Models are built and run on torch's meta device, which has shapes but no numbers: it needs no memory and little time for
any size. Convolutions and matrix products are counted by torch, including those of attention in its plain form: fused
and plain forms give the same result, and which one runs depends on the machine. Papers call the same quantity FLOPs.
Elementwise operations, all that Context Broadcasting has, are not counted.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pickle import UnpicklingError
from typing import NamedTuple

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from vitplug.attention import fused_attention
from vitplug.config.image_size import read_image_size
from vitplug.config.options import add_options, add_shape, config_parser
from vitplug.config.reading import read_config
from vitplug.hosting import PluggedModel
from vitplug.tables import format_table
from vitplug.tasks.libraries import TASKS, check_scope
from vitplug.tasks.networks import Network


class Cost(NamedTuple):
    """Parameters and, for one image, multiply-accumulates."""

    parameters: int
    macs: int


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


def count_costs(model: nn.Module, scope: str, chw: tuple[int, int, int]) -> dict[str, Cost]:
    """Costs of a model on the meta device, in evaluation mode, for one image.

    Args:
        model: The model.
        scope: The library, which decides what is run; see :meth:`vitplug.tasks.libraries.Task.run_inference`.
        chw: Channels, height and width of the image.

    Returns:
        Those of each part (``backbone``), of each plug (``backbone.plugs.cb``), which are in it, and the ``total``.

    Raises:
        ValueError: If the model cannot be run on images of this size, or on the meta device.
    """
    counter = FlopCounterMode(display=False)
    try:
        with quiet(), torch.no_grad(), fused_attention(False), counter:
            Network(model, TASKS[scope].run_inference)(torch.empty(1, *chw, device='meta'))
    except (ValueError, RuntimeError, TypeError, AttributeError, AssertionError) as error:
        raise ValueError(f'the model cannot be run on images of {chw[1]}x{chw[2]}: {error}') from error
    counts = counter.get_flop_counts()

    def macs_of(name: str, module: nn.Module) -> int:
        """A module that is not called, such as a cascade's list of heads, has those of its children."""
        if called := counts.get(f'Network.model.{name}'):  # as torch names it, from the class on
            return sum(called.values()) // 2  # a multiply-accumulate is two floating point operations
        return sum(macs_of(f'{name}.{child}', part) for child, part in module.named_children())

    parts = {name: {name: part} for name, part in model.named_children() if count_parameters(part)}
    costs = {}
    for title, modules in (parts | plugs_of(model)).items():
        parameters = count_parameters(nn.ModuleList(modules.values()))
        costs[title] = Cost(parameters, sum(macs_of(*module) for module in modules.items()))
    return costs | {'total': Cost(count_parameters(model), counter.get_total_flops() // 2)}


def count_parameters(model: nn.Module) -> int:
    """Number of parameters; shared ones are counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def plugs_of(model: nn.Module) -> dict[str, dict[str, nn.Module]]:
    """The sockets of each plug of a model's backbone, by their names in the model."""
    backbone = getattr(model, 'backbone', None)
    found: dict[str, dict[str, nn.Module]] = {}
    if isinstance(backbone, PluggedModel):
        names = {module: name for name, module in model.named_modules()}
        for plugs in (backbone.plugs, *(block.plugs for block in backbone.plugged_blocks())):
            for plug, sockets in plugs.items():
                found.setdefault(f'backbone.plugs.{plug}', {}).update({names[one]: one for one in sockets.values()})
    return found


def get_flops(argv: Sequence[str] | None = None) -> None:
    """Prints parameters and MACs of a config's model, of its parts and plugs, with an explanation of the counts.

    Raises:
        ValueError or ImportError: If the model cannot be built, or cannot be run on images of this size.
    """
    about = 'Count the parameters and multiply-accumulates (MACs; papers call them FLOPs) of a model.'
    parser = config_parser('flops', about)
    add_shape(parser)
    add_options(parser, 'settings that override the config')
    args = parser.parse_args(argv)
    cfg = read_config(args.config, args.cfg_options)
    check_scope(cfg)
    chw = read_image_size(cfg, args.shape)
    costs = count_costs(build_model(cfg), cfg.default_scope, chw)
    rows = [(part, f'{cost.parameters:,}', f'{cost.macs:,}') for part, cost in costs.items()]
    print(format_table([('part', 'parameters', 'MACs'), *rows], numeric=(1, 2)))
    parameters, macs = costs['total']
    print(f'\n{parameters / 1e6:.3f} M parameters, {macs / 1e9:.3f} G MACs of an image of {chw[1]}x{chw[2]}')
    print(f'counted: {TASKS[cfg.default_scope].counted}')
    print('a MAC is a multiply-accumulate of a convolution or matrix product, attention (in its plain form) included;')
    print("elementwise operations are not counted; the costs of plugs are part of the backbone's")
