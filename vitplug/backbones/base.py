"""What all hosts share: a model with plugs as mmengine builds, initialises, freezes and decays it."""

import re
from collections.abc import Mapping, Sequence

from mmengine.logging import MMLogger, print_log
from mmengine.model import BaseModule
from torch import Tensor, nn

from vitplug.checkpoints.pretrained import loads_checkpoint
from vitplug.checkpoints.through_mmengine import read_files_of_others
from vitplug.hosting import PixelGrid, PluggedModel
from vitplug.plugs import PlugSet
from vitplug.plugs.plug_set import is_plug

from .checks import check_images, check_values
from .init_log import hide_parameter_lists
from .optimizers import spare_plugs
from .patch_embed import check_patches, pixels_of


class PluggedBackbone(PluggedModel, BaseModule):
    """Base of the hosts: a :class:`~vitplug.hosting.PluggedModel` that also says what is frozen (:meth:`freeze`) and
    how deep a parameter lies (:meth:`depth_of`).

    Args:
        init_cfg: Weight initialisation.
        frozen: ``'host'`` freezes all but the plugs.

    Raises:
        ValueError: If a value is refused; names the argument, its value and what is allowed.
    """

    #: The patch embedding.
    patch_embed: nn.Module
    #: Tensors of files that it does not read, as the library whose arguments it was built with does not.
    leaves_out: tuple[str, ...] = ()

    def __init__(
        self,
        init_cfg: Mapping | Sequence[Mapping] | None,
        *,
        frozen: str | None = None,
    ):
        check_values(init_cfg=init_cfg, frozen=frozen)
        super().__init__(init_cfg)
        self.frozen = frozen

    # --- images; for a host whose embedding is none of :func:`~vitplug.backbones.patch_embed.build_patch_embed` ---

    def check_images(self, images: Tensor) -> None:
        """Checks an image batch before its first convolution.

        Raises:
            ValueError: If the images have other channels, another type, or are too small.
        """
        embed = self.patch_embed
        check_images(images, embed.image_channels, embed.projection.weight.dtype)
        check_patches(embed, images.shape[-2:])

    @property
    def image_stride(self) -> tuple[int, int]:
        """Pixels from one row, and from one column, of the first block's tokens to the next."""
        return self.patch_embed.image_stride

    def pixels(self, image_size: tuple[int, int]) -> PixelGrid:
        """Where the tokens of the first block lie in an image of ``(height, width)``."""
        return pixels_of(self.patch_embed, image_size)

    # --- implemented by hosts ---

    def freeze(self) -> None:
        """Stops the gradients of the frozen parts and puts them into evaluation mode."""
        raise NotImplementedError

    def depth_of(self, name: str) -> int | None:
        """Depth of one of the host's parameters: 0 in the embedding, from 1 in the blocks, None after them."""
        raise NotImplementedError

    # --- plugs ---

    def attach(self, plug_set: PlugSet) -> None:
        """Builds the plugs into the network and its blocks and logs one line about them.

        Raises:
            ValueError: If they cannot work together on this host.
        """
        super().attach(plug_set)
        print_log(f'{type(self).__name__}: {self.plug_summary}', logger='current')
        self._freeze_host()

    # --- mmengine ---

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Depth of a parameter for layer-wise learning rate decay.

        Args:
            param_name: Name of the parameter.
            prefix: Prefix of the backbone's own names.

        Returns:
            The depth, from 0 (embedding) to ``blocks + 1`` (everything after them), and the number of depths.
        """
        last = len(self.plugged_blocks()) + 1
        if not param_name.startswith(prefix):
            return last, last + 1
        name = param_name.removeprefix(prefix)
        depth = 0 if re.match(r'plugs\.[^.]+\.prefix\.', name) else self.depth_of(name)
        return (last if depth is None else depth), last + 1

    @property
    def is_pretrained(self) -> bool:
        """Whether ``init_cfg`` loads a checkpoint, which no random start may overwrite."""
        return loads_checkpoint(self.init_cfg)

    def init_weights(self) -> None:
        """Initialises the weights. Scripts do not show mmengine's line for each parameter."""
        hide_parameter_lists(MMLogger.get_current_instance())
        super().init_weights()

    def train(self, mode: bool = True) -> nn.Module:
        """Sets the mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        self.freeze()
        self._freeze_host()
        return self

    def _freeze_host(self) -> None:
        """Freezes all but the plugs where ``frozen`` says so: no gradients, evaluation mode."""
        if self.frozen is None:
            return
        for name, parameter in self.named_parameters():
            if not is_plug(name):
                parameter.requires_grad_(False)
        for name, module in self.named_modules():
            if not is_plug(name):
                module.training = False


spare_plugs()
read_files_of_others()


def freeze_module(module: nn.Module) -> None:
    """Evaluation mode, no gradients."""
    module.eval()
    module.requires_grad_(False)
