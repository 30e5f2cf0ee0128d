"""Writes the tables of docs/plan.md and docs/scale.md: python docs/tools/plan_table.py [--configs PART ...]

Every config is traced once for each variant; the tables then follow for all kinds of GPUs. Nothing is measured.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace

from vitplug.analysis.image_size import read_image_size
from vitplug.config.reading import read_config
from vitplug.planning.cards import CARDS, GB, GIB
from vitplug.planning.cli import NODES, scaling_row
from vitplug.planning.plan import Place, Plan, make_plans
from vitplug.planning.schedule import read_schedule
from vitplug.planning.time_model import PASSES, Band, Cluster
from vitplug.tables import markdown_table

MAIN = (
    'context_broadcast/deit-s-p16-cb_8xb128-300e_in1k',
    'context_broadcast/deit-s-p16-cb_upernet_8xb2-160k_ade20k-512x512',
    'gaussian_bias/vit-relpos-s-p16-gab_8xb288-400e_in1k',
    'gaussian_bias/swin-s-p4-w7-gab_upernet_8xb2-160k_ade20k-512x512',
    'gaussian_bias/swin-s-p4-w7-gab_mask-rcnn_8xb2-ms-crop-36e_coco',
    'residual_attention/vit-b-p16-residual_32xb128-300e_in1k',
    'residual_attention/swin-t-p4-w7-residual_cascade-mask-rcnn_8xb2-ms-crop-36e_coco',
    'residual_attention/mvitv2-t-residual_8xb256-300e_in1k',
    'broad_attention/deit-s-p16-broad_8xb64-300e_in1k',
    'refiner/convstem-vit-s-p16-refiner_8xb64-300e_in1k',
    'vitdet/vit-b-p16-w14-gab_mask-rcnn_16xb4-lsj-100e_coco',
    'foundation/dinov3-b-p16-gab_upernet_8xb2-40k_ade20k-512x512',
)
SHOWN = ('l4', 'a100-40', 'a100-80')
TIMED = 'a100-80'
NETWORK = 400 * GB / 8
HOUR = 3600


def plans_of(name: str) -> list[Plan]:
    """The plans of a config on 8 GPUs, float32 and half precision, without and with checkpointing."""
    cfg = read_config(f'configs/{name}.py')
    place = Place(CARDS[TIMED], Cluster(1, 8, NETWORK), 'ddp')
    return list(make_plans(cfg, read_image_size(cfg).chw, cfg.train_dataloader.batch_size, place))


def row(name: str, plans: list[Plan]) -> tuple[str, ...]:
    """One row of the table of docs/plan.md."""
    cfg = read_config(f'configs/{name}.py')
    size = read_image_size(cfg)
    single, half, _, half_cp = plans
    batches = [
        ' / '.join(
            str(replace(plan, place=replace(plan.place, card=CARDS[card])).largest_batch) for plan in (half, half_cp)
        )
        for card in SHOWN
    ]
    steps = read_schedule(cfg, half.step.batch * 8).steps
    return (
        name.partition('/')[2],
        f'{half.step.batch} of {size.height}x{size.width}',
        *(f'{plan.memory(plan.step).peak / GIB:.1f}' for plan in (single, half, half_cp)),
        *batches,
        _range(half.seconds * 1000, '.0f'),
        _range(half.seconds * (steps / HOUR), '.0f'),
    )


def _range(band: Band, form: str) -> str:
    return f'{band.low:{form}} to {band.high:{form}}'


def scaling(name: str, plans: list[Plan]) -> Iterator[tuple[str, ...]]:
    """Rows of the table of docs/scale.md: the config's total batch on more and more nodes, in half precision."""
    half = plans[1]
    total = half.step.batch * half.place.cluster.processes
    for strategy in PASSES:
        for nodes in NODES:
            cells = scaling_row(half, strategy, nodes, total)
            if cells:
                yield (name.partition('/')[2], *cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--configs', nargs='+', default=(), metavar='PART', help='parts of names; default: all twelve')
    parser.add_argument('--scaling', nargs='+', default=(), metavar='PART', help='configs on 1 to 16 nodes as well')
    args = parser.parse_args()
    head = ('config', 'images of a GPU', 'float32, GiB', 'half, GiB', 'half with_cp, GiB')
    rows = [(*head, *(f'largest batch, {card}' for card in SHOWN), 'ms a step', 'hours')]
    scaled = [('config', 'strategy', 'nodes', 'images a GPU', 'GiB', 'compute, ms', 'sending, ms', 'share')]
    for name in MAIN:
        if args.configs and not any(part in name for part in args.configs):
            continue
        plans = plans_of(name)
        rows.append(row(name, plans))
        print('|', ' | '.join(rows[-1]), '|', flush=True)
        if any(part in name for part in args.scaling):
            scaled += scaling(name, plans)
    print(markdown_table(rows, numeric=range(2, 10)))
    if len(scaled) > 1:
        print(markdown_table(scaled, numeric=range(2, 8)))


if __name__ == '__main__':
    main()
