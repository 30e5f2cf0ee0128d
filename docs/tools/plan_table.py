"""Writes the tables of docs/plan.md and docs/scale.md: python docs/tools/plan_table.py [--configs PART ...]

Every config is traced once for each variant; the tables then follow for all kinds of GPUs. Nothing is measured.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace

import torch

from vitplug.analysis.image_size import read_image_size
from vitplug.config.reading import read_config
from vitplug.planning.cards import CARDS, GB, GIB
from vitplug.planning.measure_step import WORD, Step, Variant, trace_step
from vitplug.planning.memory_model import memory_of
from vitplug.planning.plan import Place, Plan, make_plans
from vitplug.planning.plan_command import NODES, scaling_row
from vitplug.planning.schedule import read_schedule
from vitplug.planning.time_model import PASSES, Band, Cluster, communication_seconds, step_seconds, together
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
PLAIN = 'context_broadcast/deit-s-p16_8xb128-300e_in1k'
PLUGS = ('none', 'cb', 'gab', 'residual', 'broad', 'refiner', 'gate', 'registers', 'talking-heads')
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


def plug_rows() -> Iterator[tuple[str, ...]]:
    """Rows of the plugs of docs/scale.md: DeiT-S in bfloat16, relative to the same without plugs."""
    for side, batch in ((224, 128), (512, 16)):
        plain = None
        for text in PLUGS:
            cfg = read_config(f'configs/{PLAIN}.py', {'model.backbone.plugs': text, 'model.backbone.img_size': side})
            step = trace_step(cfg, (3, side, side), batch, Variant(torch.bfloat16))
            plain = plain or step
            memory = [memory_of(found, 'ddp', 8, False).peak for found in (step, plain)]
            more = step.parameters / plain.parameters - 1
            cells = [_relative(step, plain, Cluster(nodes, gpus, NETWORK)) for nodes, gpus in ((1, 1), (1, 8), (8, 8))]
            yield f'{text}, {side}', f'{more:+.2%}', f'{memory[0] / memory[1]:.2f}', *cells


def _relative(step: Step, plain: Step, cluster: Cluster) -> str:
    """Times of a step relative to those without plugs, at both ends of the band."""
    bands = [
        together(
            step_seconds(found.operations, CARDS[TIMED]),
            communication_seconds('ddp', WORD * found.parameters, cluster, CARDS[TIMED]),
        )
        for found in (step, plain)
    ]
    return f'{bands[0].low / bands[1].low:.2f} / {bands[0].high / bands[1].high:.2f}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--configs', nargs='+', default=(), metavar='PART', help='parts of names; default: all twelve')
    parser.add_argument('--scaling', nargs='+', default=(), metavar='PART', help='configs on 1 to 16 nodes as well')
    parser.add_argument('--plugs', action='store_true', help='the table of plugs in place of all others')
    args = parser.parse_args()
    if args.plugs:
        head = ('plug, image size', 'parameters', 'memory', 'time on 1 GPU', '8 GPUs', '64 GPUs')
        return print(markdown_table([head, *plug_rows()], numeric=range(1, 6)))
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
