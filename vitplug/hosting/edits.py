"""Edits of intermediates during a forward, such as a head's output set to zero.

An edit is a module without parameters, in the last place of a socket of its block, for the length of a ``with`` block.
A model without edits runs no code for them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from vitplug.attention import Site
from vitplug.plugs import Plug
from vitplug.plugs.plug_set import PlugPart
from vitplug.plugs.sockets import BRANCHES, QK_SOCKETS

#: Called with an intermediate and where its tokens are; gives what takes its place.
Edit = Callable[[Tensor, Site], Tensor]
#: Edits by name of the intermediate and block index, as ``forward_intermediates`` gives intermediates.
Edits = Mapping[str, Mapping[int, Edit]]

#: The intermediates that can be edited, with the socket whose last output they are.
EDITABLE = {
    'q': 'qkv',
    'k': 'qkv',
    'v': 'qkv',
    'maps': 'map',
    'heads': 'heads',
    'attn': 'msa_residual',
    'mlp': 'mlp_residual',
    'block': 'block_out',
}


class _Editor(nn.Module):
    """Edits in one socket of one block, by name of the intermediate: it takes and gives what the socket does."""

    needs_tokens = False

    def __init__(self, socket: str, edits: Mapping[str, Edit], index: int):
        super().__init__()
        self.socket, self.edits, self.index = socket, dict(edits), index
        self.names = [name for name, taken in EDITABLE.items() if taken == socket]

    def forward(self, *arguments: Any) -> Any:
        """What the socket gives, of its arguments: the tensors to edit come first, the carry, if any, last."""
        site = next(argument for argument in arguments if isinstance(argument, Site))
        edited = [self._change(name, tensor, site) for name, tensor in zip(self.names, arguments, strict=False)]
        return (*edited, arguments[-1]) if self.socket in ('qkv', 'map', 'block_out') else edited[0]

    def _change(self, name: str, tensor: Tensor, site: Site) -> Tensor:
        """The intermediate after its edit."""
        if name not in self.edits:
            return tensor
        # Keys that belong to no token come last in maps, and no recorded map has them.
        of_tokens = tensor[..., : site.key_layout.grid.num_tokens] if name == 'maps' else tensor
        edited = self.edits[name](of_tokens, site)
        if not isinstance(edited, Tensor) or edited.shape != of_tokens.shape:
            what = tuple(edited.shape) if isinstance(edited, Tensor) else type(edited).__name__
            raise ValueError(
                f'edit of {name!r} in block {self.index}: gave {what}, expected a tensor {tuple(of_tokens.shape)}'
            )
        if of_tokens.shape == tensor.shape:
            return edited
        return tensor.slice_scatter(edited, -1, 0, of_tokens.shape[-1])


class _EditPlug(Plug):
    """The plug that edits belong to; it is no plug of the model."""

    name = 'edits'


@contextmanager
def edited(blocks: Sequence[Any], edits: Edits) -> Iterator[None]:
    """Edits intermediates of every forward inside a ``with`` block; see :meth:`PluggedModel.edited`."""
    by_socket = _by_socket(blocks, edits)
    name = f'edits_{sum(key.startswith("edits_") for key in blocks[0].plugs)}'
    # A backward pass after the `with` block would compute activations again, without the edits.
    checkpointed = [
        block for block, found in zip(blocks, by_socket, strict=True) if found and getattr(block, 'with_cp', False)
    ]
    for block, found in zip(blocks, by_socket, strict=True):
        # In every block, so that edits inside edits have other names.
        block.plugs[name] = PlugPart(_EditPlug(), found)
    for block in checkpointed:
        block.with_cp = False
    try:
        yield
    finally:
        for block in blocks:
            del block.plugs[name]
        for block in checkpointed:
            block.with_cp = True


def _by_socket(blocks: Sequence[Any], edits: Edits) -> list[dict[str, nn.Module]]:
    """The modules of each block, by socket."""
    if unknown := [name for name in edits if name not in EDITABLE]:
        raise ValueError(f'edits of {unknown}: no such intermediates; choose from {list(EDITABLE)}')
    wanted: list[dict[str, dict[str, Any]]] = [{} for _ in blocks]
    for name, by_block in edits.items():
        for index, edit in by_block.items():
            _check(name, index, blocks)
            wanted[index].setdefault(EDITABLE[name], {})[name] = edit
    return [
        {socket: _Editor(socket, own, index) for socket, own in by_socket.items()}
        for index, by_socket in enumerate(wanted)
    ]


def _check(name: str, index: int, blocks: Sequence[Any]) -> None:
    if index not in range(len(blocks)):
        raise ValueError(f'edits of {name!r} in block {index}: this backbone has blocks 0 to {len(blocks) - 1}')
    block = blocks[index]
    if name == 'q' and getattr(block, 'reuses_queries', False):
        raise ValueError(
            f"edits of 'q' in block {index}: it adds its queries to the output, or makes position biases of them, "
            "where no edit reaches them; edit 'maps' or 'heads'"
        )
    if _has(name, block):
        return
    others = [other for other, one in enumerate(blocks) if _has(name, one)]
    raise ValueError(f'edits of {name!r} in block {index}: it has none; blocks {others} have')


def _has(name: str, block: Any) -> bool:
    socket, shape = EDITABLE[name], block.shape
    lacking = {socket for branch, sockets in BRANCHES.items() if branch not in shape.branches for socket in sockets}
    if not shape.map_heads:
        lacking |= {*QK_SOCKETS} - ({'qkv'} if name == 'v' else set())
    return socket in block.sockets and socket not in lacking
