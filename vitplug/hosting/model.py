"""A model with plugs: the loop over its blocks, and its intermediates."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vitplug.attention import Carry, LayerRecord, Recorder, Site, fused_attention
from vitplug.attention.core import BIASES, fuses
from vitplug.attention.intermediates import Reduce
from vitplug.plugs import INTERMEDIATES, Bindable, LayerPlan, PlugSet

from .edits import Edits, edited
from .padding import TokenMap
from .pixels import PixelGrid
from .places import Block, Placed
from .plan import made_together, plan_of

# An output for each of a model's out_indices; a class token with a distillation token is a pair.
Outputs = tuple[Tensor | tuple[Tensor, ...], ...]


class PluggedModel(Placed):
    """A model whose blocks take plugs. It runs them and records intermediates by name; analysis asks for nothing else.

    A model is an embedding (:meth:`embed`), blocks (:meth:`sections`), the layouts of their attention (:meth:`layout`),
    the format of its outputs (:meth:`format_output`), and the images that it takes (:meth:`check_images`,
    :meth:`pixels`, :attr:`image_stride`). A block has ``shape``, ``sockets``, ``plugs`` and ``with_cp`` and is called
    as ``block(tokens, site, carry, record) -> (tokens, carry)``. One that changes the width of its tokens has
    ``widths``: socket -> width, where it is not the section's; one that pools its queries, and knows the tokens that
    belong to them, has ``has_query_tokens``, one that uses its queries outside of the attention map has
    ``reuses_queries``, and one whose scores are scaled cosines ``has_cosines``. The constructor ends with
    :meth:`attach`.
    """

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
                has_cosines=getattr(block, 'has_cosines', False),
            )
            for index, (block, section, entering) in enumerate(self._placed(PixelGrid(self.patch_resolution)))
        ]

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
            names: Of :data:`vitplug.attention.intermediates.NAMES`, where their shapes are given, such as ``'probs'``,
                or of plugs (:data:`vitplug.plugs.INTERMEDIATES`).
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

        before = {'forward': self.__dict__['forward']} if 'forward' in self.__dict__ else {}
        self.__dict__['forward'] = forward  # before the class's
        try:
            yield
        finally:
            del self.__dict__['forward']
            self.__dict__.update(before)

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
            return run_plugged(block, block.plugs, x_BND, site, carry, record)
        if block.with_cp and torch.is_grad_enabled():
            run = run_plugged if fuses() else run_plainly
            return checkpoint(run, block, block.plugs, x_BND, site, carry, None, use_reentrant=False)
        return run_plugged(block, block.plugs, x_BND, site, carry, None)

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != '_kept_plans'}


def run_plainly(*block: Any) -> tuple[Tensor, Carry]:
    """:func:`run_plugged` in plain forms, also in a backward pass that comes after a `with fused_attention(False)`."""
    with fused_attention(False):
        return run_plugged(*block)


def run_plugged(
    block: Callable[..., tuple[Tensor, Carry]],
    plugs: Bindable,
    x_BND: Tensor,
    site: Site,
    carry: Carry,
    record: LayerRecord | None,
) -> tuple[Tensor, Carry]:
    """A block between its two sockets of the stream of tokens."""
    plugs = plugs.bind()
    if plugs.block_in:
        x_BND, carry = plugs.stream('block_in', x_BND, site, carry)
    x_BND, carry = block(x_BND, site, carry, record)
    if plugs.block_out:
        x_BND, carry = plugs.stream('block_out', x_BND, site, carry)
    if record is not None:
        record.add(block=x_BND)
    return x_BND, carry
