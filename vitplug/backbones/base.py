"""What every plugged backbone does alike."""

import inspect
from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from mmengine.logging import MMLogger, print_log
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitplug.attention import Carry, Recorder, TokenGrid, WindowLayout
from vitplug.checkpoints.pretrained import loads_checkpoint
from vitplug.compat import run_uncompiled_where_it_fails
from vitplug.plugs import LayerPlan, Plug, PlugSet
from vitplug.plugs.checks import check_integer
from vitplug.registry import PLUGS

from .checks import check_arguments, check_images
from .init_log import hide_parameter_lists
from .pixels import PixelGrid, check_fit, check_image_size, choose_maps, choose_query, put_on_image


class PluggedBackbone(BaseModule):
    """Base of the hosts: builds the plugs, runs the blocks, records intermediates by name.

    A host gives its blocks (:meth:`plugged_blocks`), a forward (:meth:`run`) that takes them one by one
    through :meth:`run_block`, and :meth:`freeze`. A block has ``plugs`` and ``with_cp`` and is called as
    ``block(tokens, layout, carry, record, valid) -> (tokens, carry)``, the layout being the host's own and
    ``valid`` the mask ``(B, N)`` of the tokens that are no padding, or None.

    Raises:
        TypeError: If a host is given an argument it has not.
        ValueError: If a value is refused; names the argument, its value and what is allowed.
    """

    #: Names of the tokens before those of the grid, such as ``'cls_token'``.
    prefix_names: tuple[str, ...] = ()

    def __new__(cls, *args, **kwargs):
        # Here, so that every host's arguments are looked at before any of them is used.
        check_arguments(cls, args, kwargs)
        return super().__new__(cls)

    @property
    def is_pretrained(self) -> bool:
        """Whether ``init_cfg`` loads a checkpoint, which no random start may overwrite."""
        return loads_checkpoint(self.init_cfg)

    def init_weights(self) -> None:
        """Initialises the weights; of mmengine's line for each parameter, scripts show none."""
        hide_parameter_lists(MMLogger.get_current_instance())
        super().init_weights()

    def attach(self, plug_set: PlugSet, plans: Sequence[LayerPlan]) -> None:
        """Builds the plugs into the network and its blocks and logs one line about them.

        Raises:
            ValueError: If they cannot work together here.
        """
        self.plugs, layers = plug_set.build(plans)
        for block, layer in zip(self.plugged_blocks(), layers, strict=True):
            block.plugs = layer
        #: Which plugs, on which blocks, and whether attention stays fused at the configured size.
        self.plug_summary = plug_set.summarize(layers)
        print_log(f'{type(self).__name__}: {self.plug_summary}', logger='current')

    def learned_values(self) -> dict[str, dict[int | None, Tensor]]:
        """What the plugs have learned that is worth watching, as it acts: alpha, A, sigma, Lambda.

        Returns:
            ``{'gab.sigma': {block index: tensor}}``; the index is None for what the whole network shares.
        """
        values: dict[str, dict[int | None, Tensor]] = {}
        for index, plugs in ((None, self.plugs), *enumerate(block.plugs for block in self.plugged_blocks())):
            for name, value in plugs.learned_values().items():
                values.setdefault(name, {})[index] = value
        return values

    def plugged_blocks(self) -> list[nn.Module]:
        """The blocks of all stages in order."""
        raise NotImplementedError

    def run(self, x: Tensor, recorder: Recorder | None) -> tuple[Tensor, ...]:
        """The host's forward."""
        raise NotImplementedError

    @run_uncompiled_where_it_fails
    def forward(self, x: Tensor, **settings) -> tuple[Tensor, ...]:
        """Features of an image batch ``(B, C, H, W)``, one for each of ``out_indices``.

        If image sizes are attached to a padded batch (:func:`vitplug.backbones.padding.mark_padding`), plugs that
        average over tokens leave padding out.

        Args:
            x: The images.
            settings: Further arguments of the host's :meth:`run`.

        Raises:
            ValueError: If the images have other channels, another type, or are too small.
        """
        check_images(self.patch_embed, x)
        return self.run(x, None, **settings)

    def forward_intermediates(
        self, x: Tensor, names: Iterable[str] = ('block',), layers: str | Sequence[int] = 'all', **settings
    ) -> tuple[tuple[Tensor, ...], dict[str, dict[int, Tensor]]]:
        """The features, and intermediates by name and block.

        Attention maps can be asked for although fused attention never forms them: they are then
        computed from q and k besides it. They lie on the way from input to output, and so have
        gradients with respect to the output, only under ``fused_attention(False)``.

        Args:
            x: Images ``(B, C, H, W)``.
            names: Any of ``'scores'``, ``'bias'``, ``'logits'``, ``'probs'``, ``'maps'`` (each
                ``(B, windows, heads, N, N)``, bias without the first two), ``'block'`` ``(B, N, D)`` and,
                at the last block, ``'broad_probs'`` ``(B, 1, heads, N, N)``.
            layers: Block indices through all stages, or ``'all'``.
            settings: Further arguments of the host's :meth:`run`.

        Returns:
            What ``forward`` returns, and ``{name: {block index: tensor}}``.

        Raises:
            ValueError: If a name or a layer is unknown.
        """
        num_layers = len(self.plugged_blocks())
        names = (names,) if isinstance(names, str) else tuple(names)
        layers = range(num_layers) if layers == 'all' else tuple(layers)
        recorder = Recorder(names, layers, num_layers)
        check_images(self.patch_embed, x)
        return self.run(x, recorder, **settings), recorder.collect()

    def place_block(self, index: int, image_size: tuple[int, int]) -> tuple[TokenGrid | WindowLayout, PixelGrid]:
        """What a block's tokens attend to, and where they lie in an image of ``(height, width)``."""
        raise NotImplementedError(f'{type(self).__name__} has no place_block, which says where its tokens lie')

    @torch.no_grad()
    def maps_to_image(
        self,
        found: Mapping[str, Mapping[int, Tensor]],
        layer: int,
        image_size: Sequence[int],
        query: Sequence[int] | str | None = None,
        name: str = 'probs',
    ) -> Tensor:
        """Attention maps of one block, laid over the image: windows, shift, padding and prefix tokens are undone.

        Args:
            found: The intermediates that :meth:`forward_intermediates` gave.
            layer: Block index.
            image_size: Height and width in pixels of the images that the backbone was given.
            query: Whose attention: that of the token at a pixel ``(y, x)``, or that of a prefix token, ``'cls_token'``.
                None sums over all tokens: the attention that each token receives. 1 is what it gets where all are
                seen alike.
            name: Which maps: ``'scores'``, ``'logits'``, ``'probs'``, ``'maps'`` or ``'broad_probs'``.

        Returns:
            ``(B, H, height, width)``, the value of each pixel's token; 0 outside of the query's window.

        Raises:
            ValueError: If there are no such maps or queries, or if the maps are not those of images of this size.
        """
        maps = choose_maps(found, name, layer)
        size = check_image_size(image_size)
        layout, pixels = self.place_block(layer, size)
        if name == 'broad_probs':  # All blocks meet on the grid of the last one, without windows.
            layout = TokenGrid(*pixels.hw, layout.grid.num_prefix)
        check_fit(maps, layout, name, size)
        return put_on_image(maps, layout, pixels, size, choose_query(query, pixels, size, self.prefix_names))

    def run_block(
        self,
        index: int,
        block: nn.Module,
        x: Tensor,
        layout,
        carry: Carry,
        recorder: Recorder | None,
        valid_BN: Tensor | None,
    ) -> tuple[Tensor, Carry]:
        """One block, by activation checkpointing where ``block.with_cp`` says so; recording goes without it."""
        record = recorder.at(index) if recorder else None
        if record is not None:
            x, carry = block(x, layout, carry, record, valid_BN)
            record.add(block=x)
            return x, carry
        if block.with_cp and torch.is_grad_enabled():
            return checkpoint(block, x, layout, carry, None, valid_BN, use_reentrant=False)
        return block(x, layout, carry, None, valid_BN)

    def finish_blocks(self, x: Tensor, grid: TokenGrid, carry: Carry, recorder: Recorder | None) -> Tensor:
        """What the plugs make of the last block's tokens."""
        record = recorder.at(len(self.plugged_blocks()) - 1) if recorder else None
        return self.plugs.finish(x, grid, carry, record)

    def train(self, mode: bool = True) -> nn.Module:
        """Sets the mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        self.freeze()
        return self

    def freeze(self) -> None:
        """Stops the gradients of the frozen parts and puts them into evaluation mode."""
        raise NotImplementedError


def freeze_module(module: nn.Module) -> None:
    """Evaluation mode, no gradients."""
    module.eval()
    module.requires_grad_(False)


def build_plugs(plugs: Sequence[Mapping]) -> list[Plug]:
    """Builds plugs from their configs.

    Raises:
        ValueError: If this is no list of dicts with a registered ``type``, or an argument is refused.
    """
    if isinstance(plugs, Mapping | str) or not isinstance(plugs, Sequence):
        raise ValueError(
            f"plugs={plugs!r}: expected a list of dicts, such as plugs=[dict(type='ContextBroadcast')]; "
            'an empty list is the plain backbone'
        )
    return [_build_plug(cfg) for cfg in plugs]


def _build_plug(cfg: Mapping) -> Plug:
    if not isinstance(cfg, Mapping) or 'type' not in cfg:
        raise ValueError(f"plugs: {cfg!r} is no plug; expected a dict such as dict(type='ContextBroadcast')")
    settings = {key: value for key, value in cfg.items() if key not in ('type', '_scope_')}
    name = cfg['type']
    try:
        plug_class = name if isinstance(name, type) else PLUGS.get(str(name))
    except RuntimeError:  # how mmengine answers to some of the names it does not know
        plug_class = None
    # The registry takes the path of anything for a name, and what is found there would be called.
    if not inspect.isclass(plug_class) or not issubclass(plug_class, Plug):
        raise ValueError(f'plugs: type={name!r} is no plug; choose from {sorted(PLUGS.module_dict)}')
    allowed = list(inspect.signature(plug_class).parameters)
    unknown = sorted(set(settings) - set(allowed))
    if unknown:
        raise ValueError(f'plugs: {plug_class.__name__} has no argument {unknown}; it takes {allowed}')
    try:
        return plug_class(**settings)
    except ValueError as error:
        raise ValueError(f'plugs: {plug_class.__name__}: {error}') from error


# Of blocks, heads and channels: a slip beyond that would fill the memory, or end in an overflow without a name.
MOST = 100_000


def choose_arch(arch: str | Mapping, zoo: Mapping[str, Mapping], keys: set[str]) -> Mapping:
    """The settings of a named or given architecture.

    Raises:
        ValueError: If the name is unknown or keys are missing.
    """
    if isinstance(arch, str):
        if arch.lower() not in zoo:
            raise ValueError(
                f'arch={arch!r}: unknown; choose from {sorted(zoo)} or give a dict with keys {sorted(keys)}'
            )
        return zoo[arch.lower()]
    if not isinstance(arch, Mapping) or not keys <= set(arch):
        raise ValueError(f'arch={arch!r}: expected a name or a dict with the keys {sorted(keys)}')
    _check_arch(arch, next(iter(zoo.values())))
    return arch


def _check_arch(arch: Mapping, known: Mapping) -> None:
    """Checks that the settings are positive integers, or lists of one length, where those of a known one are."""
    lists = {key: arch[key] for key, value in known.items() if not isinstance(value, int)}
    for key, value in lists.items():
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(f'arch: {key}={value!r}: expected a list with a positive integer for each stage')
    if len({len(value) for value in lists.values()}) > 1:
        raise ValueError(f'arch: {lists} differ in length: expected an entry for each stage')
    for key in known:
        for value in lists.get(key, [arch[key]]):
            check_integer(f'arch: {key}', value, least=1, most=MOST)


def choose_indices(indices: int | Sequence[int], count: int, name: str = 'out_indices') -> list[int]:
    """Non-negative indices of blocks or stages.

    Raises:
        ValueError: If one is outside the backbone.
    """
    given = [indices] if isinstance(indices, int) else indices
    if not isinstance(given, Sequence) or not all(type(i) is int for i in given):
        raise ValueError(f'{name}={indices!r}: expected an index or a list of them, from 0 to {count - 1}')
    indices = list(given)
    outside = [i for i in indices if not -count <= i < count]
    if outside:
        raise ValueError(f'{name}={indices}: {outside} outside; this backbone has indices 0 to {count - 1}')
    return [i % count for i in indices]


def resize_position_table(
    table: Tensor, source: tuple[int, int], target: tuple[int, int], mode: str, num_prefix: int
) -> Tensor:
    """Resizes a position table to another grid.

    Args:
        table: ``(1, prefix + h * w, D)``.
        source: Its grid ``(h, w)``.
        target: The wanted grid.
        mode: Interpolation mode.
        num_prefix: Entries before the grid's, kept as they are.

    Returns:
        ``(1, prefix + target h * target w, D)``.
    """
    if tuple(source) == tuple(target):
        return table
    prefix, grid = table[:, :num_prefix], table[:, num_prefix:]
    image = grid.transpose(1, 2).unflatten(2, tuple(source)).float()
    image = F.interpolate(image, size=tuple(target), mode=mode, align_corners=False)
    return torch.cat((prefix, image.flatten(2).transpose(1, 2).to(table.dtype)), dim=1)


def fit_position_table(
    table: Tensor,
    target: tuple[int, int],
    mode: str,
    num_prefix: int,
    name: str,
    other_prefixes: Iterable[int] = (),
) -> Tensor:
    """Makes a checkpoint's position table fit this model's grid and prefix tokens.

    Args:
        table: ``(1, prefix + h * w, D)``; its grid is square, or this model's.
        target: This model's grid ``(h, w)``.
        mode: Interpolation mode.
        num_prefix: This model's entries before the grid's.
        name: What to call the table in messages.
        other_prefixes: Numbers of such entries the checkpoint may have instead. Surplus ones at the end are
            dropped, missing ones are 0, as if the token had no position.

    Returns:
        ``(1, num_prefix + h * w, D)``.

    Raises:
        ValueError: If the table fits no square grid.
    """
    count = table.shape[1]
    for prefix in (num_prefix, *other_prefixes):
        source = _read_grid(count - prefix, target)
        if source is not None:
            break
    else:
        raise ValueError(
            f'{name}: the checkpoint has {count} entries, which are no square grid plus '
            f'{num_prefix} prefix tokens; resize it to the grid {tuple(target)} before loading'
        )
    if prefix != num_prefix:
        kept = F.pad(table[:, : min(prefix, num_prefix)], (0, 0, 0, max(0, num_prefix - prefix)))
        table = torch.cat((kept, table[:, prefix:]), dim=1)
    if source != tuple(target):
        print_log(f'resizing {name} from a {source[0]}x{source[1]} grid to {target[0]}x{target[1]}', logger='current')
    return resize_position_table(table, source, target, mode, num_prefix)


def _read_grid(entries: int, target: tuple[int, int]) -> tuple[int, int] | None:
    """The grid of so many entries: the wanted one or a square; None if it is neither."""
    if entries == target[0] * target[1]:
        return tuple(target)
    side = round(max(entries, 0) ** 0.5)
    return (side, side) if side > 0 and side * side == entries else None


def fit_bias_table(table: Tensor, wanted: Tensor, name: str) -> Tensor:
    """Resizes a checkpoint's relative position table ``((2w-1)^2, H)`` to this model's window.

    Raises:
        ValueError: If the table is that of no square window.
    """
    if table.shape == wanted.shape:
        return table
    source, target = (round(t.shape[0] ** 0.5) for t in (table, wanted))
    if source * source != table.shape[0] or source % 2 == 0:
        raise ValueError(f'{name}: the checkpoint has {table.shape[0]} entries, which belong to no square window')
    if source == target:
        return table
    print_log(f'resizing {name} from {source}x{source} offsets to {target}x{target}', logger='current')
    image = table.T.unflatten(1, (source, source))[None].float()
    image = F.interpolate(image, size=(target, target), mode='bicubic', align_corners=False)
    return image[0].flatten(1).T.to(table.dtype)


def per_item(cfgs: Mapping | Sequence[Mapping], count: int, name: str) -> Sequence[Mapping]:
    """One config for each item: those given, or one for all.

    Raises:
        ValueError: If the list is of another length.
    """
    if isinstance(cfgs, Mapping):
        return [cfgs] * count
    if len(cfgs) != count:
        raise ValueError(f'{name} has {len(cfgs)} entries: expected one dict, or a list of {count}')
    return cfgs


def choose_frozen(frozen_stages: int, most: int) -> int:
    """The last stage to freeze.

    Raises:
        ValueError: If there is no such stage.
    """
    if isinstance(frozen_stages, bool) or not isinstance(frozen_stages, int) or not -1 <= frozen_stages <= most:
        raise ValueError(f'frozen_stages={frozen_stages!r}: expected an integer from -1 (none) to {most}')
    return frozen_stages
