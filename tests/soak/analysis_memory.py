"""Prints the memory that the measures of attention maps need on one large image.

    python tests/soak/analysis_memory.py vit-b 512 512
    python tests/soak/analysis_memory.py swin-s 800 1216

Weights are random. The peak is that of the whole process, Python and its libraries included.
"""

import argparse
import resource
import time

import torch

from vitplug.analysis.measures.attention import (
    attention_entropy,
    mean_attention_distance,
    non_locality,
    relative_distance,
)
from vitplug.analysis.measures.places import Place
from vitplug.backbones import SwinTransformer, VisionTransformer

HOSTS = {
    'vit-b': lambda size: VisionTransformer('base', img_size=size, out_type='featmap'),
    'swin-s': lambda size: SwinTransformer('small', img_size=224),
}
MEASURES = (attention_entropy, relative_distance, mean_attention_distance, non_locality)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('host', choices=HOSTS)
    parser.add_argument('size', type=int, nargs=2, help='height and width in pixels')
    args = parser.parse_args()
    size = tuple(args.size)
    model = HOSTS[args.host](size).eval()
    start, began = peak(), time.perf_counter()

    def reduce(name, maps, site):
        place = Place.of(model, site.index, size)
        return [measure(maps, place).mean().item() for measure in MEASURES]

    with torch.no_grad():
        _, found = model.forward_intermediates(torch.randn(1, 3, *size), ('probs',), reduce=reduce)
    for layer, values in found['probs'].items():
        print(f'block {layer}: ' + ', '.join(f'{value:.4g}' for value in values))
    print(f'{time.perf_counter() - began:.1f} s, peak {peak():.2f} GiB, {start:.2f} GiB of it before the image')


def peak() -> float:
    """The most memory that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == '__main__':
    main()
