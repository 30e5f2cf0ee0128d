"""Records the values that plugs learn, during the training."""

from collections.abc import Iterator, Mapping

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from vitplug.commands import call
from vitplug.hosting import PluggedModel
from vitplug.registry import HOOKS

from ..sharding import whole_plugs


@HOOKS.register_module()
class PlugValuesHook(Hook):
    """Records alpha, A, sigma and Lambda of every block among the scalars of a training.

    They go to all back ends of the visualizer (``scalars.json``, TensorBoard, W&B ...), not to the log's lines, under
    names such as ``gab.sigma/block_03``; of a value with several numbers, one for each head or channel, mean, least
    and largest are recorded. What the network shares is ``residual_attention.alpha/all_blocks``. Where mmengine's
    FSDP or DeepSpeed have shared the parameters out, nothing is recorded, and the log says so.

    Args:
        interval: In how many iterations they are recorded.
    """

    def __init__(self, interval: int = 50):
        self.interval = interval
        self.backbones: dict[str, PluggedModel] = {}

    def before_train(self, runner) -> None:
        """Finds the backbones whose plugs learn something."""
        self.backbones = {
            name: module
            for name, module in runner.model.named_modules()
            if isinstance(module, PluggedModel) and module.learned_values()
        }
        if self.backbones and is_model_wrapper(runner.model) and not isinstance(runner.model, DistributedDataParallel):
            runner.logger.warning(
                f'{type(runner.model).__name__} shares parameters out: what plugs learn is not recorded; '
                f'`{call("study")} CONFIG:CHECKPOINT --measures learned` reads it from a checkpoint'
            )
            self.backbones = {}

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Records them."""
        if not self.backbones or not self.every_n_train_iters(runner, self.interval):
            return
        with whole_plugs(runner.model):
            scalars = {
                f'{prefix}.{name}' if len(self.backbones) > 1 else name: number.detach().clone()
                for prefix, backbone in self.backbones.items()
                for name, number in as_scalars(backbone.learned_values())
            }
        # At once: on a GPU each number by itself would wait for all work before it.
        numbers = torch.stack([number.float() for number in scalars.values()]).tolist()
        runner.visualizer.add_scalars(dict(zip(scalars, numbers, strict=True)), step=runner.iter + 1)


def as_scalars(values: Mapping[str, Mapping[int | None, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Names of scalars and their values, without axes, of what :meth:`PluggedModel.learned_values` gives."""
    for name, by_block in values.items():
        for index, value in by_block.items():
            block = 'all_blocks' if index is None else f'block_{index:02}'
            if value.numel() == 1:
                yield f'{name}/{block}', value.squeeze()
            else:
                for kind, number in (('mean', value.mean()), ('min', value.min()), ('max', value.max())):
                    yield f'{name}.{kind}/{block}', number
