"""Real detectors and segmentors whose data preprocessor tells the backbone what is padding."""

from pathlib import Path

import pytest
import torch
from mmdet.testing import demo_mm_inputs
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from torch.testing import assert_close

from vitplug.hosting import padding

CONFIGS = Path(__file__).parents[2] / 'configs' / 'digits'
DETECTOR = 'swin-mini-p4-w4-cb_mask-rcnn_1xb8-400i_digits-128x128.py'
SEGMENTOR = 'vit-mini-p8-cb_upernet_1xb8-1200i_digits-128x128.py'
SIZES = [(100, 77), (128, 150)]


def read(config, own=True, **preprocessor):
    """The model of a config, with vitplug's data preprocessor or the library's own of the same name."""
    cfg = Config.fromfile(CONFIGS / config)
    init_default_scope(cfg.default_scope)
    kind = cfg.model.data_preprocessor.type
    cfg.model.data_preprocessor.update(type=f'vitplug.{kind}' if own else kind, **preprocessor)
    return cfg.model


def build(config, own=True):
    torch.manual_seed(0)
    model = MODELS.build(read(config, own))
    model.init_weights()
    return model


def preprocessor(*args, **settings):
    return MODELS.build(read(*args, **settings).data_preprocessor)


def detection_batch(sizes=SIZES):
    return demo_mm_inputs(len(sizes), [(1, *size) for size in sizes], with_mask=True)


def segmentation_batch(sizes=SIZES):
    samples = [SegDataSample(metainfo=dict(img_shape=size, ori_shape=size)) for size in sizes]
    for sample, size in zip(samples, sizes, strict=True):
        sample.gt_sem_seg = PixelData(data=torch.ones(1, *size, dtype=torch.int64))
    return dict(inputs=detection_batch(sizes)['inputs'], data_samples=samples)


def collect_contexts(model):
    """A list that takes the tokens every broadcast of a forward is given, and twice the context it adds."""
    seen = []

    def keep(module, args, out):
        seen.append((args[0].detach(), 2 * out.detach() - args[0].detach()))

    for block in model.backbone.plugged_blocks():
        for module in block.plugs.at('mlp_end'):
            module.register_forward_hook(keep)
    return seen


def assert_own_means(tokens, context, columns, cell, sizes):
    """Every context is the mean of the image's own tokens."""
    for b, (height, width) in enumerate(sizes):
        own = tokens[b].unflatten(0, (-1, columns))[: -(-height // cell), : -(-width // cell)].flatten(0, 1)
        assert_close(context[b], own.mean(0).expand_as(context[b]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('training', [False, True])
def test_images_of_a_mask_rcnn_have_means_of_their_own(training):
    """The real path: data preprocessor, detector, backbone, plug."""
    model = build(DETECTOR).train(training)
    seen = collect_contexts(model)
    if training:
        losses = model(**model.data_preprocessor(detection_batch(), True), mode='loss')
        model.parse_losses(losses)[0].backward()
    else:
        model.test_step(detection_batch())
    assert len(seen) == 6
    for index, (tokens, context) in enumerate(seen):
        cell = 4 * 2 ** (index // 2)
        assert_own_means(tokens, context, 160 // cell, cell, SIZES)


def test_segmentor_in_testing():
    """Whole images know what is padding; crops of sliding windows do not, and count all of their tokens."""
    model = build(SEGMENTOR).eval()
    seen = collect_contexts(model)
    model.test_step(segmentation_batch(SIZES[:1]))
    assert_own_means(*seen[0], 96 // 8, 8, SIZES[:1])
    model.test_cfg.update(mode='slide', crop_size=(64, 64), stride=(64, 64))
    model.test_step(segmentation_batch(SIZES[:1]))
    assert_own_means(*seen[-1], 8, 8, [(64, 64)])


@pytest.mark.parametrize('config', [DETECTOR, SEGMENTOR])
def test_a_batch_without_padding_is_that_of_the_library(config):
    sizes = [(128, 128)] * 2
    make = detection_batch if config is DETECTOR else segmentation_batch
    inputs = [preprocessor(config, own)(make(sizes), True)['inputs'] for own in (True, False)]
    assert torch.equal(*inputs) and not vars(inputs[0])


def test_padding_to_a_fixed_size():
    """By a batch augmentation, after the images were padded to one another."""
    augments = [dict(type='BatchFixedSizePad', size=(192, 192), pad_mask=True)]
    inputs = preprocessor(DETECTOR, batch_augments=augments)(detection_batch(), True)['inputs']
    assert inputs.shape[2:] == (192, 192)
    assert padding.valid_sizes(inputs).tolist() == [[100, 77], [128, 150]]


def test_data_samples_without_sizes():
    batch = detection_batch()
    del batch['data_samples'][1].img_shape
    with pytest.raises(ValueError, match=r'vitplug.DetDataPreprocessor: a data sample has no img_shape.*meta_keys'):
        preprocessor(DETECTOR)(batch)
