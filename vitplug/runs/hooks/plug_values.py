"""Records the values that plugs learn, during the training."""

from collections.abc import Iterator, Mapping

import torch
from mmengine.hooks import Hook
from torch import Tensor

from vitplug.hosting import PluggedModel
from vitplug.registry import HOOKS

from ..sharding import whole_plugs


@HOOKS.register_module()
class PlugValuesHook(Hook):
    """Records alpha, A, sigma and Lambda of every block among the scalars of a training.

    They go to all back ends of the visualizer (``scalars.json``, TensorBoard, W&B ...), not to the log's lines, under
    names such as ``gab.sigma/block_03``; of a value with several numbers, one for each head or channel, mean, least
    and largest are recorded. What the network shares is ``residual_attention.alpha/all_blocks``.

    Args:
        interval: In how many iterations they are recorded.
    """

    def __init__(self, interval: int = 50):
        self.interval = interval

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Records them."""
        if not self.every_n_train_iters(runner, self.interval):
            return
        backbones = {name: one for name, one in runner.model.named_modules() if isinstance(one, PluggedModel)}
        with whole_plugs(runner.model):
            scalars = {
                f'{place}.{name}' if len(backbones) > 1 else name: number.detach().clone()
                for place, backbone in backbones.items()
                for name, number in as_scalars(backbone.learned_values())
            }
        if scalars:  # at once: on a GPU each number by itself would wait for all work before it
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
