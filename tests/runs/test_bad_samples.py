"""One broken sample among many is replaced, noted and counted; many, or one where that is asked for, end a training."""

import json
from unittest import mock

import pytest
import torch
from mmengine.dataset import BaseDataset, ConcatDataset, RepeatDataset
from mmengine.registry import METRICS
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from mmpretrain.datasets.samplers import SequentialSampler
from mmpretrain.structures import DataSample
from mmseg.structures import SegDataSample
from PIL import Image
from toy_training import SAMPLES, ToyMetric, final_state, run_training, toy_config

from vitplug.errors.stops import BadSample
from vitplug.runs.data.bad_samples import BadSamples, check_evaluated_sample, check_sample
from vitplug.runs.data.stream import EachOnce, TolerantDataset, check_sources
from vitplug.runs.hooks import BadSampleHook
from vitplug.runs.hooks import bad_samples as hook_module

SINGLE = {
    f'{split}_dataloader.{name}': value
    for split in ('train', 'val')
    for name, value in (('num_workers', 0), ('persistent_workers', False))
}


def train(work_dir, **settings):
    cfg = toy_config(work_dir, 'iterations')
    cfg.merge_from_dict(settings)
    return run_training(cfg)


def noted(work_dir):
    return [json.loads(line) for line in (work_dir / 'bad_samples.jsonl').read_text().splitlines()]


@pytest.mark.integration
@pytest.mark.parametrize('workers', [SINGLE, {}], ids=['no workers', 'workers'])
def test_a_broken_training_sample_is_replaced(tmp_path, mm_log, workers):
    runner = train(tmp_path, **workers, **{'train_dataloader.dataset.broken': [5]})
    assert runner.iter == 22
    assert {(line['split'], line['index'], line['path']) for line in noted(tmp_path)} == {('train', 5, 'point_5.png')}
    assert 'OSError: image file is truncated' in noted(tmp_path)[0]['error']
    [hook] = [hook for hook in runner.hooks if isinstance(hook, BadSampleHook)]
    assert 4 <= hook.training.count.value <= 6  # four passes over the points, and what the workers fetch ahead


@pytest.mark.integration
def test_replacements_do_not_depend_on_the_workers(tmp_path):
    broken = {'train_dataloader.dataset.broken': [5, 6, 7]}
    train(tmp_path / 'a', **SINGLE, **broken)
    train(tmp_path / 'b', **broken)
    ours, theirs = (final_state(tmp_path / name)['state_dict'] for name in 'ab')
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_long_paths_are_shortened_on_the_terminal_and_whole_in_the_file(tmp_path):
    class Distant(BaseDataset):
        def load_data_list(self):
            return [dict(img_path='x' * 4000 + '.png')]

    samples = BadSamples(tmp_path / 'bad.jsonl', 'val', strict=True)
    with pytest.raises(BadSample) as refusal:
        samples.note(Distant(), 0, OSError('File name too long: ' + 'x' * 4000))
    assert len(str(refusal.value)) < 1200 and '.png: OSError: File name too long' in str(refusal.value)
    assert len(json.loads((tmp_path / 'bad.jsonl').read_text())['path']) == 4004


@pytest.mark.integration
def test_strictness_names_the_first(tmp_path):
    settings = {'train_dataloader.dataset.broken': [5], 'default_hooks.bad_samples.strict': True}
    with pytest.raises(BadSample, match=r'point_5\.png: OSError: image file is truncated'):
        train(tmp_path, **SINGLE, **settings)


@pytest.mark.integration
def test_nothing_but_broken_ones_end_the_training(tmp_path):
    with pytest.raises(BadSample, match=r'20 samples drawn in a row.*truncated.*check_dataset\.py'):
        train(tmp_path, **SINGLE, **{'train_dataloader.dataset.broken': list(range(SAMPLES))})


@pytest.mark.integration
@pytest.mark.parametrize('workers', [SINGLE, {}], ids=['no workers', 'workers'])
def test_broken_validation_images_are_left_out_and_told(tmp_path, monkeypatch, workers):
    counts = []

    class CountingMetric(ToyMetric):
        def compute_metrics(self, results):
            counts.append(len(results))
            return super().compute_metrics(results)

    monkeypatch.setitem(METRICS._module_dict, 'ToyMetric', CountingMetric)
    broken = [0, 1, 2, 3, 9]  # the whole first batch
    train(tmp_path, **workers, **{'val_dataloader.dataset.broken': broken})
    assert counts == [SAMPLES - 5] * 3
    assert {line['index'] for line in noted(tmp_path) if line['split'] == 'val'} == set(broken)


@pytest.mark.integration
@pytest.mark.parametrize('workers', [SINGLE, {}], ids=['no workers', 'workers'])
def test_no_validation_image_left_ends_the_training(tmp_path, workers):
    with pytest.raises(BadSample, match=rf'none of the {SAMPLES} val images can be read.*{tmp_path}/bad_samples'):
        train(tmp_path, **workers, **{'val_dataloader.dataset.broken': list(range(SAMPLES))})


@pytest.mark.integration
def test_validation_is_strict_where_processes_share_the_model(tmp_path, monkeypatch):
    """Another number of batches in one process would leave the others waiting."""
    monkeypatch.setattr(hook_module, '_runs_alone', lambda model: False)
    with pytest.raises(BadSample, match=r'cannot use point_5\.png'):
        train(tmp_path, **SINGLE, **{'val_dataloader.dataset.broken': [5]})
    monkeypatch.undo()
    assert hook_module._runs_alone(torch.nn.Linear(1, 1))
    monkeypatch.setattr(hook_module.dist, 'get_world_size', lambda: 2)
    assert not hook_module._runs_alone(torch.nn.Linear(1, 1))


@pytest.mark.parametrize(('size', 'world'), [(1, 3), (5, 2), (6, 2), (7, 4), (8, 3)])
@pytest.mark.parametrize('kind', [{}, dict(subsample_type='sequential')], ids=['in turns', 'in a row'])
def test_every_sample_is_drawn_by_one_process(size, world, kind):
    shares = []
    for rank in range(world):
        with mock.patch('mmengine.dataset.sampler.get_dist_info', return_value=(rank, world)):
            sampler = SequentialSampler(dataset=range(size), seed=0, **kind)
        share = EachOnce(sampler)
        assert len(share) == len(list(share)) and set(share) <= set(sampler)
        shares += share
    assert sorted(shares) == list(range(size))


@pytest.mark.parametrize('wrap', [lambda data: data, lambda data: RepeatDataset(data, 2), lambda data: concat(data)])
def test_sources_are_checked_inside_of_wrappers(tmp_path, wrap):
    """Also where a transform asks the data set inside for more images, and after a change of the pipeline."""
    Image.new('RGB', (20, 16)).save(tmp_path / 'a.png')
    inner = BaseDataset(metainfo=dict(classes=('a',)), lazy_init=True)
    inner.load_data_list = lambda: [dict(img_path=str(tmp_path / 'a.png'))]
    inner.full_init()
    dataset = wrap(inner)
    check_sources(dataset, 320)
    inner.pipeline = lambda info: info['img_path']
    assert dataset[0] == str(tmp_path / 'a.png')
    check_sources(dataset, 319)
    with pytest.raises(ValueError, match='320 pixels: allowed are 319'):
        dataset[0]


def concat(dataset):
    return ConcatDataset([dataset])


@pytest.mark.integration
def test_earlier_notes_stay(tmp_path):
    (tmp_path / 'bad_samples.jsonl').write_text('{"split": "train"}\n')
    train(tmp_path, **SINGLE, **{'train_dataloader.dataset.broken': [5]})
    assert len(noted(tmp_path)) == 2


def test_proxy_passes_attributes_on(tmp_path):
    class Data:
        pipeline = 'a'

        def __len__(self):
            return 3

    dataset = TolerantDataset(Data(), BadSamples(tmp_path / 'x', 'train'))
    dataset.pipeline = 'b'
    assert dataset.dataset.pipeline == dataset.pipeline == 'b' and len(dataset) == 3
    with pytest.raises(AttributeError, match='nothing'):
        _ = dataset.nothing


def sample(**labels):
    return dict(inputs=torch.zeros(3, 4, 6), data_samples=BaseDataElement(**labels))


GOOD = [
    sample(gt_label=torch.tensor([1])),
    sample(gt_label=torch.tensor([0.5, 0.5])),
    sample(gt_sem_seg=PixelData(data=torch.tensor([0, 1, 255]).repeat(1, 4, 2))),
    sample(gt_instances=InstanceData(labels=torch.tensor([0, 1]))),
    sample(token_labels=torch.tensor([[0.9, 0.1], [1.0, 0.0]]).view(2, 2, 1, 1)),
    sample(gt_instances=InstanceData(labels=torch.zeros(0, dtype=torch.long))),
    dict(inputs=torch.zeros(3, 4, 6)),
    'anything else',
]
BAD = [
    (sample(gt_label=torch.tensor([2])), r'labels \[2\] are outside of the 2 classes'),
    (sample(gt_label=torch.tensor([-1])), r'labels \[-1\] are outside'),
    (sample(gt_sem_seg=PixelData(data=torch.full((1, 4, 6), 9))), r'labels \[9\] are outside'),
    (sample(gt_sem_seg=PixelData(data=torch.zeros(1, 6, 4))), r'label map has size \(6, 4\), the image \(4, 6\)'),
    (
        sample(gt_sem_seg=PixelData(data=torch.zeros(4, 6, 3))),
        r'label map has 3 channels: expected one channel of class',
    ),
    (sample(gt_instances=InstanceData(labels=torch.tensor([0, 5]))), r'labels \[5\] are outside'),
    (sample(token_labels=torch.tensor([[0.9, 0.1], [1.0, 7.0]]).view(2, 2, 1, 1)), r'labels \[7\.0\] are outside'),
]


@pytest.mark.parametrize('good', GOOD)
def test_good_samples_pass(good):
    check_sample(good, 2)


@pytest.mark.parametrize(('bad', 'message'), BAD)
def test_bad_samples_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        check_sample(bad, 2)


@pytest.mark.parametrize('name', ['max_in_a_row', 'max_pixels', 'interval'])
def test_limits_must_be_positive(name):
    with pytest.raises(ValueError, match=f'{name} = 0: must be at least 1'):
        BadSampleHook(**{name: 0})


def evaluated(size, ori_shape):
    sample = SegDataSample(metainfo=dict(ori_shape=ori_shape))
    sample.gt_sem_seg = PixelData(data=torch.zeros(1, *size, dtype=torch.long))
    # The image was resized for the model, its label map was not.
    return dict(inputs=torch.zeros(3, 32, 48), data_samples=sample)


def test_label_map_of_an_evaluated_image_has_the_size_before_the_pipeline():
    check_evaluated_sample(evaluated((16, 24), (16, 24)), 2)
    with pytest.raises(ValueError, match=r'the label map has size \(24, 16\), the image \(16, 24\)'):
        check_evaluated_sample(evaluated((24, 16), (16, 24)), 2)
    other = evaluated((16, 24), (16, 24))
    other['data_samples'].gt_sem_seg.data[0, 3, 3] = 255
    check_evaluated_sample(other, 2)
    other['data_samples'].gt_sem_seg.data[0, 3, 3] = 3
    with pytest.raises(ValueError, match=r'labels \[3\] are outside of the 2 classes'):
        check_evaluated_sample(other, 2)


@pytest.mark.parametrize('num_classes', [None, 2])
def test_class_of_an_evaluated_image(num_classes):
    def sample(label):
        return dict(inputs=torch.zeros(3, 8, 8), data_samples=DataSample().set_gt_label(label))

    check_evaluated_sample(sample(1), num_classes)
    with pytest.raises(ValueError, match=r'labels \[-1\] are outside of the'):
        check_evaluated_sample(sample(-1), num_classes)
