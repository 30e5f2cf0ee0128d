"""A model with plugs: the loop over its blocks, its intermediates, and its maps on images."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitplug.attention import Carry, GlobalLayout, LayerRecord, Layout, Recorder, Site, fused_attention
from vitplug.attention.core import BIASES
from vitplug.attention.intermediates import Reduce
from vitplug.attention.site import Valid
from vitplug.plugs import INTERMEDIATES, NETWORK_SOCKETS, BlockShape, LayerPlan, LayerPlugs, PlugModules, PlugSet

from .edits import Edits, edited
from .maps import MapsOnImages
from .padding import TokenMap
from .pixels import PixelGrid
from .plan import made_together, plan_of

# An output for each of a model's out_indices; a class token with a distillation token is a pair.
Outputs = tuple[Tensor | tuple[Tensor, ...], ...]


@dataclass(frozen=True)
class Section:
    """Some blocks in a row, after which a host may give an output.

    Args:
        blocks: The blocks.
        embed_dims: Width of their tokens, ``D``.
        stage: Stage of a hierarchical backbone, 0 elsewhere.
        merge: What makes the next stage's tokens of these, see :class:`Merge`; None for nothing.
    """

    blocks: Sequence['Block']
    embed_dims: int
    stage: int = 0
    merge: 'Merge | None' = None


class Block(Protocol):
    """A block of a model; see :class:`PluggedModel`."""

    shape: BlockShape
    plugs: LayerPlugs
    with_cp: bool

    @property
    def sockets(self) -> tuple[str, ...]:
        """The sockets that it offers."""

    def __call__(self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""


class Merge(Protocol):
    """From the tokens of one stage to those of the next: merging of patches, a convolution with a stride, pooling."""

    #: Rows and columns of tokens that become one.
    stride: tuple[int, int]

    def __call__(self, x_BND: Tensor, hw: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """Tokens ``(B, N, D)``, the host's prefix tokens first, and the grid of the others, in and out."""

    def place(self, pixels: PixelGrid) -> PixelGrid:
        """Where the new tokens lie in the image, of where the old ones do."""


class PluggedModel(MapsOnImages):
    """A model whose blocks take plugs. It runs them and records intermediates by name; analysis asks for nothing else.

    A model is an embedding (:meth:`embed`), blocks (:meth:`sections`), the layouts of their attention (:meth:`layout`),
    the format of its outputs (:meth:`format_output`), and the images that it takes (:meth:`check_images`,
    :meth:`pixels`, :attr:`image_stride`). A block has ``shape``, ``sockets``, ``plugs`` and ``with_cp`` and is called
    as ``block(tokens, site, carry, record) -> (tokens, carry)``. One that changes the width of its tokens has
    ``widths``: socket -> width, where it is not the section's; one that pools its queries, and knows the tokens that
    belong to them, has ``has_query_tokens``, and one that uses its queries outside of the attention map has
    ``reuses_queries``. The constructor ends with :meth:`attach`.
    """

    #: Names of the tokens before those of the grid, such as ``'cls_token'``.
    prefix_names: tuple[str, ...] = ()
    #: Sockets for the whole network that the host offers.
    network_sockets: tuple[str, ...] = NETWORK_SOCKETS
    #: Rows and columns of tokens at the configured image size.
    patch_resolution: tuple[int, int]
    #: Sections whose output is returned.
    out_indices: Sequence[int]

    # --- implemented by models ---

    #: Pixels from one row, and from one column, of the first block's tokens to the next.
    image_stride: tuple[int, int]

    def check_images(self, images: Tensor) -> None:
        """Checks an image batch before its first convolution.

        Raises:
            ValueError: If the images have other channels, another type, or are too small.
        """

    def pixels(self, image_size: tuple[int, int]) -> PixelGrid:
        """Where the tokens of the first block lie in an image of ``(height, width)``."""
        raise NotImplementedError

    def embed(self, images: Tensor, **settings: Any) -> tuple[Tensor, tuple[int, int]]:
        """Images ``(B, C, H, W)`` to tokens ``(B, N, D)``, the host's prefix tokens first, and their grid."""
        raise NotImplementedError

    def sections(self) -> list[Section]:
        """The blocks in order, cut where an output may be taken."""
        raise NotImplementedError

    def strides(self, index: int) -> tuple[int, int]:
        """Rows, and columns, from one query and from one key of block ``index`` to the next, in tokens that enter it.

        A block whose queries are further apart than its tokens hands on as many tokens as it has queries.
        """
        return 1, 1

    def key_pixels(self, index: int, entering: PixelGrid) -> PixelGrid:
        """Where the keys of block ``index`` lie in the image, of where the tokens that enter it do."""
        return entering.every(self.strides(index)[1])

    def layout(self, index: int, hw: tuple[int, int]) -> Layout:
        """How the queries of block ``index`` lie in windows, for a map of ``hw`` queries."""
        return GlobalLayout(*hw, self.num_prefix)

    def key_layout(self, index: int, hw: tuple[int, int]) -> Layout:
        """How the keys of block ``index`` lie in windows, for a map of ``hw`` keys, where they are not the queries."""
        return GlobalLayout(*hw, self.num_prefix)

    def planned_layout(self, index: int, hw: tuple[int, int]) -> Layout:
        """The same at the configured image size, for plugs."""
        return self.layout(index, hw)

    def format_output(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor | tuple[Tensor, ...]:
        """The output after a section."""
        raise NotImplementedError

    #: Whether outputs are those after the merging of patches.
    out_after_downsample = False
    #: The only height and width of images that the host takes; None for any.
    fixed_size: tuple[int, int] | None = None

    def reset_parameters(self) -> None:
        """Gives the model's own parameters, not those of its modules, the start of the constructor: 0."""
        for parameter in self.parameters(recurse=False):
            nn.init.zeros_(parameter)

    # --- plugs ---

    @property
    def num_extra_tokens(self) -> int:
        """The host's own tokens before those of the grid."""
        return len(self.prefix_names)

    @property
    def num_placed_tokens(self) -> int:
        """How many of them, the first ones, have a position in the host's table."""
        return self.num_extra_tokens

    #: Tokens before those of the grid, those of plugs included.
    num_prefix = 0

    @property
    def num_output_prefix(self) -> int:
        """The host's own tokens before those of the grid in an output of all tokens."""
        return self.num_extra_tokens

    def plugged_blocks(self) -> list[Block]:
        """The blocks of all stages in order."""
        return [block for section in self.sections() for block in section.blocks]

    def attach(self, plug_set: PlugSet) -> None:
        """Builds the plugs into the network and its blocks.

        Raises:
            ValueError: If they cannot work together on this host.
        """
        self.num_prefix = self.num_extra_tokens + plug_set.num_prefix
        self.__dict__.pop('_kept_plans', None)
        self.plugs, layers = plug_set.build(self._plans(), self.network_sockets)
        #: Names of the plugs, in the order in which their modules are built.
        self.plug_names = [plug.name for plug in plug_set.indices]
        for block, layer in zip(self.plugged_blocks(), layers, strict=True):
            block.plugs = layer
        #: Which plugs, on which blocks, and whether attention stays fused at the configured size.
        self.plug_summary = plug_set.summarize(layers)

    def plug_modules(self) -> list[PlugModules]:
        """The modules of plugs: of the blocks in order, then of the network."""
        return [modules for modules in self.modules() if isinstance(modules, PlugModules)]

    def _plans(self) -> list[LayerPlan]:
        sections = self.sections()
        return [
            LayerPlan(
                index=index,
                num_layers=len(self.plugged_blocks()),
                embed_dims=section.embed_dims,
                shape=block.shape,
                site=self.site(self.planned_layout, index, TokenMap(entering.hw)),
                stage=section.stage,
                num_stages=sections[-1].stage + 1,
                sockets=block.sockets,
                prefix_names=self.prefix_names,
                widths=getattr(block, 'widths', {}),
                has_query_tokens=getattr(block, 'has_query_tokens', self.strides(index)[0] == 1),
            )
            for index, (block, section, entering) in enumerate(self._placed(self._configured_grid()))
        ]

    def _configured_grid(self) -> PixelGrid:
        rows, columns = self.patch_resolution
        return PixelGrid((rows, columns))

    def _placed(self, entering: PixelGrid) -> Iterator[tuple[Block, Section, PixelGrid]]:
        """Every block, its section, and where the tokens that enter it lie in the image."""
        index = 0
        for section in self.sections():
            for block in section.blocks:
                yield block, section, entering
                entering = entering.every(self.strides(index)[0])
                index += 1
            if section.merge is not None:
                entering = section.merge.place(entering)

    def site(self, layout: Callable[[int, tuple[int, int]], Layout], index: int, tokens: TokenMap) -> Site:
        """The site of a block.

        Args:
            layout: Makes the layout of the queries, as :meth:`layout`.
            index: Block index.
            tokens: The tokens that enter the block.
        """
        of_queries, of_keys = self.strides(index)
        entering = None if of_queries == 1 else tokens.hw
        keys = None if of_keys == of_queries else self.key_layout(index, tokens.every(of_keys).hw)
        valid, valid_keys = self.valid(index, tokens)
        queries = layout(index, tokens.every(of_queries).hw)
        return Site(queries, keys, index, valid=valid, valid_keys=valid_keys, entering=entering)

    def valid(self, index: int, tokens: TokenMap) -> tuple[Valid, Valid]:
        """What makes the masks of valid queries ``(B, N)``, and of valid keys by window where they are others."""
        if tokens.sizes_B2 is None:
            return None, None
        of_queries, of_keys = self.strides(index)
        queries, keys = tokens.every(of_queries), tokens.every(of_keys)
        if of_keys == of_queries:
            return queries.valid, None
        return queries.valid, partial(_by_window, self.key_layout(index, keys.hw), keys)

    def learned_values(self) -> dict[str, dict[int | None, Tensor]]:
        """The values worth watching that the plugs have learned, as they act: alpha, A, sigma, Lambda.

        Returns:
            ``{'gab.sigma': {block index: tensor}}``; the index is None for values of the whole network.
        """
        values: dict[str, dict[int | None, Tensor]] = {}
        for index, plugs in ((None, self.plugs), *enumerate(block.plugs for block in self.plugged_blocks())):
            for name, value in plugs.learned_values().items():
                values.setdefault(name, {})[index] = value
        return values

    # --- forward ---

    def forward(self, x: Tensor, **settings: Any) -> Outputs:
        """Features of an image batch ``(B, C, H, W)``, one for each of ``out_indices``.

        If image sizes are attached to a padded batch (:func:`vitplug.hosting.padding.mark_padding`), plugs that
        average over tokens leave padding out.

        Args:
            x: The images.
            settings: Further arguments of the host's :meth:`embed`.

        Raises:
            ValueError: If the images have other channels, another type, or are too small.
        """
        self.check_images(x)
        return self.forward_features(x, None, **settings)

    def forward_intermediates(
        self,
        x: Tensor,
        names: Iterable[str] = ('block',),
        layers: Literal['all'] | Sequence[int] = 'all',
        reduce: Reduce | None = None,
        with_grad: bool = False,
        **settings: Any,
    ) -> tuple[Outputs, dict[str, dict[int, Tensor]]]:
        """The features, and intermediates by name and block.

        Attention maps can be asked for although fused attention never forms them: they are then
        computed from q and k besides it. They lie on the way from input to output, and so have
        gradients with respect to the output, only under ``fused_attention(False)`` or with ``with_grad``.

        Args:
            x: Images ``(B, C, H, W)``.
            names: Any of :data:`vitplug.attention.intermediates.NAMES`, where their shapes are given: ``'q'``, ``'k'``,
                ``'v'``, ``'scores'``, ``'bias'``, ``'logits'``, ``'probs'``, ``'maps'``, ``'heads'``, ``'attn'``,
                ``'mlp'``, ``'block'`` and ``'site'``, whose layout makes images of windows' maps; or those of plugs
                (:data:`vitplug.plugs.INTERMEDIATES`).
            layers: Block indices through all stages, or ``'all'``.
            reduce: Called as ``reduce(name, tensor, site)`` as soon as an intermediate exists; its result is kept in
                place of the tensor, so that the maps of large images need not be held for all blocks.
            with_grad: Whether the tensors keep their gradient: after a backward from the features it is in ``.grad``.
                Attention is then computed in its plain form.
            settings: Further arguments of the host's :meth:`embed`.

        Returns:
            What ``forward`` returns, and ``{name: {block index: tensor}}``.

        Raises:
            ValueError: If a name or a layer is unknown.
        """
        recorder = self.recorder(names, layers, reduce, with_grad)
        self.check_images(x)
        with fused_attention(False) if with_grad else nullcontext():
            return self.forward_features(x, recorder, **settings), recorder.collect()

    @contextmanager
    def recording(self, recorder: Recorder) -> Iterator[None]:
        """Gives the intermediates of one forward inside a ``with`` block to a recorder, whoever calls the model.

        Raises:
            ValueError: If the model is called twice.
        """
        calls = count()

        def forward(x: Tensor, **settings: Any) -> Outputs:
            if next(calls):
                raise ValueError('the model runs its backbone more than once for a prediction; expected once')
            self.check_images(x)
            return self.forward_features(x, recorder, **settings)

        self.__dict__['forward'] = forward  # before the class's
        try:
            yield
        finally:
            del self.__dict__['forward']

    def edited(self, edits: Edits) -> AbstractContextManager[None]:
        """Edits intermediates of every forward inside a ``with`` block, whoever calls the model.

        An edit is called as ``edit(tensor, site)`` and gives a tensor of the same shape, which takes its place.
        Attention forms its maps in blocks whose maps are edited, and stays fused in all others. Edits of one name and
        block may be nested: the inner one comes last.

        Args:
            edits: ``{name: {block index: edit}}``, the names of :data:`vitplug.hosting.edits.EDITABLE`: ``'q'``,
                ``'k'``, ``'v'``, ``'maps'``, ``'heads'``, ``'attn'``, ``'mlp'`` and ``'block'``, with the shapes of
                :meth:`forward_intermediates`. Where a block runs its attention several times, an edit acts each time.
                Edited blocks compute no activations again in the backward pass.

        Raises:
            ValueError: If there is no such intermediate or block, the block lacks it, or an edit gives another shape.
        """
        return edited(self.plugged_blocks(), edits)

    def forward_edited(self, x: Tensor, edits: Edits, **settings: Any) -> Outputs:
        """The features of an image batch with edited intermediates; see :meth:`edited`."""
        with self.edited(edits):
            return self.forward(x, **settings)

    def recorder(
        self,
        names: Iterable[str],
        layers: Literal['all'] | Sequence[int] = 'all',
        reduce: Reduce | None = None,
        with_grad: bool = False,
    ) -> Recorder:
        """Takes the intermediates of one forward; see :meth:`forward_intermediates`.

        Raises:
            ValueError: If a name or a layer is unknown.
        """
        num_layers = len(self.plugged_blocks())
        names = (names,) if isinstance(names, str) else tuple(names)
        indices = range(num_layers) if layers == 'all' else tuple(layers)
        return Recorder(names, indices, num_layers, reduce, with_grad, further=INTERMEDIATES)

    def forward_features(self, images: Tensor, recorder: Recorder | None, **settings: Any) -> Outputs:
        """Outputs of images ``(B, C, H, W)``; intermediates go to the recorder."""
        x_BND, hw = self.embed(images, **settings)
        x_BND, sections = self.plugs.add_prefix(x_BND, self.num_extra_tokens), self.sections()
        plan = plan_of(self, sections, hw, images)
        blocks = [block for section in sections for block in section.blocks]
        carry, biases = self.start(self.plugs.start(), plan.sites, x_BND), made_together(blocks, plan.sites)
        outs: list[Tensor | tuple[Tensor, ...]] = []
        index, last = 0, len(sections) - 1
        for number, section in enumerate(sections):
            for block in section.blocks:
                if biases:  # each block is handed its own alone
                    carry = {**carry, BIASES: biases.get(index)}
                x_BND, carry = self.run_block(block, x_BND, plan.sites[index], carry, recorder)
                index += 1
            if number == last:
                x_BND = self._finish(x_BND, plan.last, carry, recorder)
            out, (tokens, merged) = x_BND, plan.ends[number]
            if section.merge is not None:
                x_BND, _ = section.merge(x_BND, tokens.hw)
            if number not in self.out_indices:
                continue
            if self.out_after_downsample:
                outs.append(self.format_output(number, x_BND, merged.hw))
            else:
                out = self.plugs.drop_prefix(out, self.num_extra_tokens)
                outs.append(self.format_output(number, out, tokens.hw))
        return tuple(outs)

    def start(self, carry: Carry, sites: Sequence[Site], x_BND: Tensor) -> Carry:
        """The carry of a new forward with what the host itself hands to its blocks."""
        return carry

    def _finish(self, x_BND: Tensor, site: Site, carry: Carry, recorder: Recorder | None) -> Tensor:
        record = recorder.at(site.index) if recorder else None
        if record is not None:
            record.site = site
        return self.plugs.finish(x_BND, site, carry, record)

    def run_block(
        self, block: Block, x_BND: Tensor, site: Site, carry: Carry, recorder: Recorder | None
    ) -> tuple[Tensor, Carry]:
        """One block, by activation checkpointing where ``block.with_cp`` says so, unless it is recorded."""
        if recorder is not None and (record := recorder.at(site.index)) is not None:
            record.enter(site.in_windows(x_BND.device))
            return _run(block, x_BND, site, carry, record)
        if block.with_cp and torch.is_grad_enabled():
            return checkpoint(_run, block, x_BND, site, carry, None, use_reentrant=False)
        return _run(block, x_BND, site, carry, None)

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != '_kept_plans'}


def _by_window(layout: Layout, tokens: TokenMap) -> Tensor | None:
    valid_BN = tokens.valid()
    return None if valid_BN is None else layout.to_windows(valid_BN.unsqueeze(-1)).squeeze(-1)


def _run(block: Block, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None) -> tuple[Tensor, Carry]:
    """A block between its two sockets of the stream of tokens."""
    plugs = block.plugs.bind()
    if plugs.block_in:
        x_BND, carry = plugs.stream('block_in', x_BND, site, carry)
    x_BND, carry = block(x_BND, site, carry, record)
    if plugs.block_out:
        x_BND, carry = plugs.stream('block_out', x_BND, site, carry)
    if record is not None:
        record.add(block=x_BND)
    return x_BND, carry
