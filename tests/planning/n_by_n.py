"""How often a block writes a tensor of all pairs of tokens, by plug, in the forms of a GPU.

    PYTHONPATH=. python tests/planning/n_by_n.py [--side 32]

Models of three and of four blocks of DeiT-S are traced; the difference is what a block writes. A tensor counts when two
of its axes have all tokens, and as much as its entries are of B x H x N x N.
"""

import argparse
from contextlib import nullcontext

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from vitplug.analysis.costs import silence_logs
from vitplug.backbones import VisionTransformer
from vitplug.planning.gpu_forms import as_on_a_gpu
from vitplug.planning.trace import Trace
from vitplug.plugs.text import SHORT_NAMES
from vitplug.tables import markdown_table

BATCH = 2
HEADS = 6
FORMS = ('refiner(expansion=0)', 'residual(low_memory=True)', 'gab(share_layers=True)')
# Fewer tokens than this may be added to those of the image, as padding, registers or a sink.
MORE = 64
PHASES = ('forward', 'backward')


class Pairs(Trace):
    """Counts what operations write for pairs of tokens, in tensors of B x H x N x N entries, by phase."""

    def __init__(self, tokens: int):
        super().__init__()
        self.tokens, self.phase = tokens, 'forward'
        self.written = dict.fromkeys(PHASES, 0.0)

    def holds_pairs(self, shape: torch.Size) -> bool:
        """Two axes of all tokens, whose number may be rounded up or have a few more, or one of all pairs."""
        of_tokens = sum(self.tokens <= side < self.tokens + MORE for side in shape)
        return (
            of_tokens > 1
            or (of_tokens == 1 and shape.numel() >= BATCH * self.tokens**2)
            or max(shape, default=0) >= self.tokens**2
        )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        out = super().__torch_dispatch__(func, types, args, kwargs)
        name = func.overloadpacket.__name__
        for tensor in tree_leaves(out):
            if not isinstance(tensor, torch.Tensor) or name.startswith(('empty', 'new_empty')):
                continue
            is_new = tensor.untyped_storage()._cdata not in known or func._schema.is_mutable
            if is_new and self.holds_pairs(tensor.shape):
                self.written[self.phase] += tensor.numel() / (BATCH * HEADS * self.tokens**2)
        return out


def written(plugs, layers: int, side: int, half: bool) -> dict[str, float]:
    arch = dict(embed_dims=64 * HEADS, num_layers=layers, num_heads=HEADS, feedforward_channels=64)
    with silence_logs(), torch.device('meta'):
        model = VisionTransformer(arch=arch, img_size=16 * side, plugs=plugs, out_type='featmap', with_cls_token=False)
    pairs = Pairs(side * side)
    autocast = torch.autocast('cpu', torch.bfloat16) if half else nullcontext()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = model.to_empty(device='cpu').train()
        images = torch.empty(BATCH, 3, 16 * side, 16 * side)
        with as_on_a_gpu(), pairs:
            with autocast:
                loss = sum(out.sum() for out in model(images))
            pairs.phase = 'backward'
            loss.backward()
    return pairs.written


def row(name: str, plugs, side: int) -> tuple[str, ...]:
    cells = []
    for half in (False, True):
        few, many = (written(plugs, layers, side, half) for layers in (3, 4))
        cells += [f'{many[phase] - few[phase]:.1f}' for phase in PHASES]
    return name, *cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--side', type=int, default=32, help='patches along an image; default 32')
    side = parser.parse_args().side
    rows = [('plug', 'float32 forward', 'float32 backward', 'bfloat16 forward', 'bfloat16 backward')]
    for name in ('none', *SHORT_NAMES, *FORMS):
        try:
            rows.append(row(name, name, side))
            print(rows[-1], flush=True)
        except Exception as error:  # each is a finding
            print(name, repr(error)[:300], flush=True)
    print(markdown_table(rows, numeric=range(1, 5)))


if __name__ == '__main__':
    main()
