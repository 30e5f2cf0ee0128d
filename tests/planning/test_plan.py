"""Strategies, bands and schedules against numbers worked out by hand."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from mmengine.config import Config

from vitplug.config.parts import averaging_hooks
from vitplug.planning.cards import CARDS, GB, GIB, Card
from vitplug.planning.measure_step import Step, Variant
from vitplug.planning.memory_model import largest_batch, memory_of, usable
from vitplug.planning.plan import Place, Plan, variant_of, variants
from vitplug.planning.schedule import read_schedule
from vitplug.planning.time_model import BEST, WORST, Band, Cluster, communication_seconds, step_seconds, together
from vitplug.planning.trace import Operation

CARD = Card('one', 10 * GIB, bandwidth=100.0, half=1000.0, tf32=500.0, single=200.0, link=10.0)
STEP = Step(
    batch=4,
    weights=100,
    gradients=100,
    optimizer=200,
    activations=1000,
    peak=1350,
    largest_block=10,
    operations=Counter(),
    parameters=25,
)


def test_ddp_holds_gradients_twice_and_fsdp2_a_share():
    alone = memory_of(STEP, 'ddp', 1, False)
    assert alone.peak == STEP.peak  # whatever is how much of it
    assert memory_of(STEP, 'ddp', 8, True).peak == STEP.peak + STEP.gradients + STEP.weights
    shared = memory_of(STEP, 'fsdp2', 4, True)
    assert (shared.weights, shared.gradients, shared.optimizer, shared.average) == (25 + 20, 25 + 10, 50, 25)
    assert shared.activations == STEP.activations
    assert memory_of(STEP, 'fsdp2', 1, False) == alone


def test_largest_batch_is_the_last_that_fits():
    # 100 bytes, and 50 an image.
    points = (2, 200.0), (4, 300.0)
    assert [largest_batch(*points, room) for room in (99, 149, 150, 1099, 1100)] == [0, 0, 1, 19, 20]
    with pytest.raises(ValueError, match='no more memory'):
        largest_batch((2, 200.0), (4, 200.0), 1000)


@pytest.mark.parametrize(
    ('operation', 'seconds'),
    [
        (Operation('mm', 2000, 10, torch.float32), 10.0),
        (Operation('mm', 2000, 10, torch.float16), 2.0),
        (Operation('convolution', 2000, 10, torch.float32), 4.0),
        (Operation('add', 0, 700, torch.float32), 7.0),
        (Operation('mm', 200, 900, torch.float32), 9.0),  # bytes take longer
    ],
)
def test_an_operation_takes_the_longer_of_products_and_bytes(operation, seconds):
    band = step_seconds({operation: 3}, CARD)
    # One share of the data sheet at each end, whichever decides.
    assert 3 * seconds / band.low in (pytest.approx(BEST.products), pytest.approx(BEST.bandwidth))
    assert 3 * seconds / band.high in (pytest.approx(WORST.products), pytest.approx(WORST.bandwidth))


def test_many_small_kernels_take_the_time_to_start_them():
    band = step_seconds({Operation('add', 0, 1, torch.float32): 1000}, CARDS['h200'])
    assert band == Band(1000 * BEST.start, 1000 * WORST.start)


def test_small_batches_take_at_least_the_kernels_starts():
    def step(batch: int, each: int) -> Step:
        return replace(STEP, batch=batch, operations=Counter({Operation('mm', each, 1, torch.float32): 10}))

    place = Place(CARD, Cluster(1, 8, 1.0), 'ddp', False)
    plan = Plan(Variant(None, False), step(32, 40_000), step(64, 100_000), place)
    small, large = (step_seconds(one.operations, CARD) for one in (plan.small, plan.step))
    assert (plan.compute_of(32), plan.compute_of(64)) == (small, large)
    assert plan.compute_of(16).low == pytest.approx(small.low / 2)  # the line gives 10 / 40 of it
    assert plan.compute_of(1e-9) == Band(10 * BEST.start, 10 * WORST.start)


@pytest.mark.parametrize('place', ['default_hooks', 'custom_hooks'])
def test_a_moving_average_counts_wherever_its_hook_stands(place):
    hooks = [dict(type='IterTimerHook'), dict(type='mmpretrain.EMAHook', momentum=1e-4)]
    kinds = dict(default_hooks=dict(timer=hooks[0], ema=hooks[1]), custom_hooks=hooks)
    assert averaging_hooks(Config({place: kinds[place]})) == hooks[1:]
    assert averaging_hooks(Config({place: None})) == []


def test_rings_send_as_their_equations_say():
    gradients = 800.0
    # Two passes of 7 / 8 on links of 10 bytes a second.
    inside = communication_seconds('ddp', gradients, Cluster(1, 8, 1.0), CARD)
    assert inside.low * BEST.link == pytest.approx(2 * gradients * 7 / 8 / 10)
    # Between nodes the network of 1 byte a second is slower.
    between = communication_seconds('ddp', gradients, Cluster(4, 8, 1.0), CARD)
    assert between.high * WORST.link == pytest.approx(2 * gradients * 3 / 4 / 1)
    sharded = communication_seconds('fsdp2', gradients, Cluster(4, 8, 1.0), CARD)
    assert sharded.low == pytest.approx(1.5 * between.low)
    assert communication_seconds('ddp', gradients, Cluster(1, 1, 1.0), CARD) == Band(0, 0)


def test_communication_is_hidden_at_best_and_beside_at_worst():
    assert together(Band(3, 5), Band(1, 2)) == Band(3, 7)
    assert together(Band(3, 5), Band(4, 9)) == Band(4, 14)


def test_schedules_count_steps():
    epochs = Config(
        dict(
            train_cfg=dict(max_epochs=300),
            train_dataloader=dict(dataset=dict(type='RepeatDataset', dataset=dict(type='ImageNet'))),
        )
    )
    assert read_schedule(epochs, 1024).steps == 1252 * 300
    assert read_schedule(epochs, 10, images=25).steps == 3 * 300
    iterations = Config(dict(train_cfg=dict(type='IterBasedTrainLoop', max_iters=160_000)))
    assert read_schedule(iterations, 16).steps == 160_000
    epochs.train_dataloader.dataset.times = 10
    assert read_schedule(epochs, 1024).steps == 12512 * 300
    own = dict(type='CocoDataset', ann_file='annotations/train.json')
    coco = dict(type='CocoDataset', ann_file='annotations/instances_train2017.json')
    epochs.train_dataloader.dataset = dict(type='ConcatDataset', datasets=[coco, coco])
    assert read_schedule(epochs, 2).steps == 117_266 * 300
    for inner in (own, dict(type='ClassBalancedDataset', dataset=coco), dict(type='Owls')):
        epochs.train_dataloader.dataset = dict(type='RepeatDataset', dataset=inner)
        with pytest.raises(ValueError, match=rf'images of {inner["type"]}.*--images'):
            read_schedule(epochs, 10)


@pytest.mark.parametrize(
    ('wrapper', 'with_cp', 'text'),
    [
        (dict(type='OptimWrapper'), False, 'float32'),
        (dict(type='AmpOptimWrapper'), False, 'float16'),
        (dict(type='mmengine.AmpOptimWrapper', dtype='bfloat16'), True, 'bfloat16, with_cp'),
    ],
)
def test_variant_of_a_config(wrapper, with_cp, text):
    variant = variant_of(Config(dict(optim_wrapper=wrapper, model=dict(backbone=dict(with_cp=with_cp)))))
    assert str(variant) == text and variant in variants(Config(dict(optim_wrapper=wrapper)))


def test_cards_leave_room_for_cuda_and_a_margin():
    assert all(0.8 < usable(card) / card.memory < 0.85 for card in CARDS.values())
    assert CARDS['h200'].bandwidth == 4800 * GB
