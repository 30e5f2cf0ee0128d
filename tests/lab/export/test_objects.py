"""Detectors as one graph: the objects of mmdet's own prediction, or a refusal by name."""

import copy
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from torch.testing import assert_close

from vitplug.lab.export import Request
from vitplug.tasks.objects import OBJECTS, Objects, replace_objects

mmdet = pytest.importorskip('mmdet')
pytest.importorskip('mmcv.ops')

CONFIG = Path(__file__).parents[3] / 'configs' / 'digits' / 'swin-mini-p4-w4-gab_mask-rcnn_1xb8-400i_digits-128x128.py'
# Heads whose scores and boxes differ between anchors as those of a trained model do.
SPREAD = ('rpn_cls', 'rpn_reg', 'fc_cls', 'fc_reg', 'conv_logits')


def detector(**roi_head) -> torch.nn.Module:
    """A Mask R-CNN on a small Swin, which finds objects everywhere."""
    cfg = Config.fromfile(CONFIG).model
    cfg.backbone.arch = dict(embed_dims=12, depths=[1, 1, 1], num_heads=[2, 2, 2])
    cfg.backbone.plugs = []
    cfg.neck.in_channels = [12, 24, 48]
    for name, settings in roi_head.items():
        cfg.roi_head[name].update(settings)
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg).eval()
    model.init_weights()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(head in name for head in SPREAD):
                parameter.normal_(std=0.3)
    return model


def samples(*sizes, scale: float = 1.0) -> list:
    from mmdet.structures import DetDataSample

    scaled = [dict(ori_shape=(round(h / scale), round(w / scale)), scale_factor=(scale, scale)) for h, w in sizes]
    return [DetDataSample(metainfo=dict(img_shape=size, **meta)) for size, meta in zip(sizes, scaled, strict=True)]


@pytest.mark.parametrize('agnostic', [True, False])
def test_objects_are_those_of_mmdet(agnostic):
    model = detector(bbox_head=dict(reg_class_agnostic=agnostic), mask_head=dict(class_agnostic=agnostic))
    images = torch.randn(2, 1, 128, 160)
    with torch.no_grad():
        wanted = model.predict(images, samples((128, 160), (128, 160), scale=2.0))
        network = Objects(model)
        replaced = copy.deepcopy(model)
        replace_objects(replaced, network)
        given = replaced.predict(images, samples((128, 160), (128, 160), scale=2.0))
    for one, other in zip(given, wanted, strict=True):
        one, other = one.pred_instances, other.pred_instances
        assert 5 < len(other) <= model.test_cfg.rcnn.max_per_img
        assert_close(one.bboxes, other.bboxes, atol=1e-3, rtol=1e-5)  # pixels
        assert_close(one.scores, other.scores)
        assert_close(one.labels, other.labels)
        assert (one.masks != other.masks).float().mean() < 1e-4


def test_absent_objects_are_marked():
    model = detector()
    model.test_cfg.rcnn.score_thr = 2.0
    with torch.no_grad():
        boxes, scores, labels, masks = Objects(model)(torch.zeros(1, 1, 64, 64))
    most = model.test_cfg.rcnn.max_per_img
    assert boxes.shape == (1, most, 4) and masks.shape[:2] == (1, most)
    assert (labels == -1).all() and (scores == -1).all()


def test_padded_images_are_refused():
    model = detector()
    replace_objects(model, Objects(model))
    with pytest.raises(ValueError, match=r'the image of \(60, 64\) pixels is padded to \(64, 64\)'):
        model.predict(torch.zeros(1, 1, 64, 64), samples((60, 64)))


def test_other_detectors_are_refused_by_name():
    model = detector()
    model.test_cfg.rcnn.nms = dict(type='soft_nms', iou_threshold=0.5)
    with pytest.raises(ValueError, match=r"test_cfg\.rcnn\.nms is {'type': 'soft_nms'"):
        Objects(model)
    model = detector()
    model.rpn_head = torch.nn.Identity()
    with pytest.raises(ValueError, match='rpn_head is Identity; it takes RPNHead alone; export the features'):
        Objects(model)
    with pytest.raises(ValueError, match='rpn_head is missing'):
        Objects(torch.nn.Module())


def test_batches_are_refused(tmp_path):
    with pytest.raises(ValueError, match='--dynamic batch: --part objects takes one image at a time'):
        Request(
            Config.fromfile(CONFIG), 'a.pth', tmp_path / 'a.pt2', 'torch', part='objects', dynamic=['batch']
        ).check()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch.compiler, 'is_exporting'), reason='this torch cannot say that it exports')
def test_objects_in_onnx(tmp_path):
    """At sizes that were not traced, and where there are none."""
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    from vitplug.lab.export.formats import FORMATS
    from vitplug.lab.export.trace import trace
    from vitplug.lab.export.verify import check, compare

    network, path = OBJECTS.network(detector()), tmp_path / 'a.onnx'
    program = trace(network, torch.randn(1, 1, 128, 160), ('height', 'width'))
    FORMATS['onnx'].write(program, path, ['boxes', 'scores', 'labels', 'masks'], {})
    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])

    def run(images):
        return [torch.from_numpy(output) for output in session.run(None, {'images': images.numpy()})]

    images = [torch.randn(1, 1, 96, 192), torch.randn(1, 1, 64, 64)]
    check(compare(network, run, [(str(tuple(one.shape)), one) for one in images]))
