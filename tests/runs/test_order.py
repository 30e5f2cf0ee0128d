"""A training that goes on with another number of processes: every image once, in the order that it had."""

from collections import Counter

import pytest
from mmdet.datasets.samplers import AspectRatioBatchSampler
from mmengine.dataset import DefaultSampler, InfiniteSampler
from torch.utils.data import BatchSampler, SequentialSampler

from vitplug.runs.data import order as module
from vitplug.runs.data.order import Share, check_order
from vitplug.runs.data.stream import PositionedBatches

SAMPLES = 50
KINDS = {'plain': BatchSampler, 'aspect': AspectRatioBatchSampler}


class Images:
    """Every third one is upright."""

    def __len__(self):
        return SAMPLES

    def get_data_info(self, index):
        return dict(width=3, height=4 if index % 3 == 0 else 2)


@pytest.fixture
def drawn(monkeypatch):
    """Batches of all processes in turn: iteration -> draws of process 0, 1 ..."""

    def draw(processes, size, batches=None, earlier=(), skip=0, kind='plain', sampler=DefaultSampler):
        streams = []
        for rank in range(processes):
            monkeypatch.setattr(module.dist, 'get_world_size', lambda: processes)
            monkeypatch.setattr(module.dist, 'get_rank', lambda rank=rank: rank)
            one = sampler(Images(), shuffle=True, seed=3)
            one.rank, one.world_size = rank, processes
            if sampler is DefaultSampler:
                one.num_samples = -(-SAMPLES // processes)
                one.total_size = one.num_samples * processes
            else:
                one.indices = one._indices_of_rank()
            positioned = PositionedBatches(KINDS[kind](one, size, drop_last=False), endless=sampler is InfiniteSampler)
            positioned.begin(0, skip, earlier)
            stream = iter(positioned)
            streams.append([next(stream) for _ in range(batches)] if batches else list(stream))
        return [[draw for batch in together for draw in batch] for together in zip(*streams, strict=True)]

    return draw


@pytest.mark.parametrize('sampler', [DefaultSampler, InfiniteSampler])
def test_batches_are_the_same_where_all_processes_have_as_many_samples(drawn, sampler):
    """4 x 2 for two iterations, then 2 x 4 for one, then 1 x 8: the batches of 4 x 2 to the end."""
    whole = drawn(4, 2, batches=6, sampler=sampler)
    two = drawn(2, 4, batches=1, earlier=[Share(4, 2, 2)], sampler=sampler)
    one = drawn(1, 8, batches=3, earlier=[Share(4, 2, 2), Share(2, 4, 1)], sampler=sampler)
    assert [sorted(batch) for batch in whole[2:]] == [sorted(batch) for batch in [*two, *one]]


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('now', [(1, 3), (2, 5), (3, 1)])
def test_no_image_is_left_out_or_comes_twice(drawn, kind, now):
    before = drawn(4, 3, kind=kind)[:2]
    after = drawn(*now, earlier=[Share(4, 3, 2)], kind=kind)
    counts = Counter(index for batch in [*before, *after] for index, _, _ in batch)
    assert set(counts) == set(range(SAMPLES))
    # Samples to fill up the last batch of all processes come twice, one less than processes at most.
    assert sum(counts.values()) - SAMPLES < now[0]
    positions = [position for batch in [*before, *after] for _, _, position in batch]
    assert len(set(positions)) == len(positions)


def test_an_endless_stream_goes_on_with_images_that_wait_for_partners(drawn):
    before = drawn(4, 3, batches=5, kind='aspect', sampler=InfiniteSampler)
    after = drawn(2, 5, batches=8, earlier=[Share(4, 3, 5)], kind='aspect', sampler=InfiniteSampler)
    positions = [position for batch in [*before, *after] for _, _, position in batch]
    assert len(set(positions)) == len(positions)
    assert set(range(100)) <= set(positions)


def test_an_unknown_order_is_refused():
    with pytest.raises(ValueError, match=r"train_dataloader\.sampler\.type = 'SequentialSampler': only with .*resume"):
        check_order(SequentialSampler(range(3)))
