"""`tools/test.py --tta` against two plain tests: of the images, and of files that were mirrored beforehand."""

import pickle
import shutil
from pathlib import Path

import bad_inputs
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from PIL import Image, ImageOps
from pycocotools import mask as coco_mask
from torchvision.ops import nms

from vitplug.config.reading import read_config
from vitplug.datasets.digit_scenes import make_digit_scenes
from vitplug.runs.augmented_test import augment_test, mirrored

CONFIGS = Path(__file__).parents[2] / 'configs' / 'digits'
LOADER = 'test_dataloader.num_workers=0 test_dataloader.persistent_workers=False test_dataloader.batch_size=1'


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """A folder with the tiny digits, and one with the mirrored images."""
    plain = tmp_path_factory.mktemp('data') / 'digits'
    make_digit_scenes(plain, num_classification=(10, 10), num_scenes=(1, 1), log=lambda line: None)
    flipped = shutil.copytree(plain, plain.parent / 'flipped')
    for path in (*flipped.glob('imagenet/val/**/*.*'), *flipped.glob('coco/val/*'), *flipped.glob('ade/images/*/*')):
        ImageOps.mirror(Image.open(path)).save(path, format='PNG')
    return {'plain': plain, 'flipped': flipped, 'tta': plain}


@pytest.fixture
def predictions(folders, tmp_path, monkeypatch):
    """What the tool dumps for a config: plainly, of mirrored files, and with `--tta`."""

    def predict(name, more='--show-dir pictures'):
        [config] = CONFIGS.glob(name)
        monkeypatch.setenv('VITPLUG_DIGITS', str(folders['plain']))
        checkpoint = save_model(read_config(str(config)), tmp_path)
        found = {}
        for kind, folder in folders.items():
            monkeypatch.setenv('VITPLUG_DIGITS', str(folder))
            options = f'--tta {more}' if kind == 'tta' else ''
            files = f'{config} {checkpoint} --work-dir {kind} --out {kind}.pkl'
            outcome = bad_inputs.run(f'test.py {files} {options} --cfg-options {LOADER}', tmp_path)
            assert outcome.status == 0, outcome.text[-2000:]
            found[kind] = pickle.loads((tmp_path / f'{kind}.pkl').read_bytes())
        assert not more or list((tmp_path / 'pictures').rglob('*.png'))
        return found.values()

    return predict


def save_model(cfg: Config, folder: Path) -> Path:
    """A checkpoint as a training writes it: of the plain model, with the training's settings."""
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build({'data_preprocessor': cfg.get('data_preprocessor'), **cfg.model})
    torch.save(dict(state_dict=model.state_dict(), meta=dict(cfg=cfg.pretty_text)), folder / 'model.pth')
    return folder / 'model.pth'


@pytest.mark.integration
@pytest.mark.slow
def test_classifier_averages_its_scores(predictions):
    plain, flipped, merged = predictions('vit-mini-p4-cb_1xb32-14e_*.py', more='')
    assert len(merged) == 10
    for one, other, both in zip(plain, flipped, merged, strict=True):
        assert not torch.allclose(one['pred_score'], other['pred_score'])
        torch.testing.assert_close(both['pred_score'], (one['pred_score'] + other['pred_score']) / 2)


@pytest.mark.integration
@pytest.mark.slow
def test_segmentor_averages_its_probabilities(predictions):
    plain, flipped, merged = predictions('*p8-cb_upernet_1xb8-1200i_*.py')
    for one, other, both in zip(plain, flipped, merged, strict=True):
        mirrored_back = other['seg_logits']['data'].flip(-1)
        expected = one['seg_logits']['data'].softmax(0) + mirrored_back.softmax(0)
        same = both['pred_sem_seg']['data'].squeeze() == expected.argmax(0)
        assert same.float().mean() > 0.999  # but for ties
        assert (one['pred_sem_seg']['data'].squeeze() != expected.argmax(0)).any()


@pytest.mark.integration
@pytest.mark.slow
def test_detector_merges_boxes_with_their_masks(predictions):
    plain, flipped, merged = predictions('*-cb_mask-rcnn_1xb8-400i_*.py')
    for one, other, both in zip(plain, flipped, merged, strict=True):
        height, width = one['ori_shape']
        one, other, both = (each['pred_instances'] for each in (one, other, both))
        x1, y1, x2, y2 = other['bboxes'].unbind(1)
        boxes = torch.cat((one['bboxes'], torch.stack((width - x2, y1, width - x1, y2), 1)))
        scores, labels = (torch.cat((one[key], other[key])) for key in ('scores', 'labels'))
        decoded = [torch.from_numpy(coco_mask.decode(each['masks'])).permute(2, 0, 1) for each in (one, other, both)]
        masks = torch.cat((decoded[0], decoded[1].flip(-1)))
        # Suppression within each class, written down: classes apart by an offset larger than the image.
        kept = nms(boxes + labels[:, None] * (height + width), scores, 0.5)[:100]
        assert {int(index) >= len(one['scores']) for index in kept} == {False, True}
        torch.testing.assert_close(both['scores'], scores[kept])
        torch.testing.assert_close(both['bboxes'], boxes[kept])
        assert torch.equal(decoded[2], masks[kept])


def test_flips_come_before_annotations_and_are_told():
    pack = dict(type='PackDetInputs', meta_keys=('img_id', 'flip'))
    load, annotations = dict(type='mmcv.LoadImageFromFile'), dict(type='LoadAnnotations')
    first, second = mirrored([load, annotations, pack])
    assert first == load and second['type'] == 'TestTimeAug'
    flips, *rest = second['transforms']
    assert [flip['prob'] for flip in flips] == [0.0, 1.0]
    assert rest == [[annotations], [dict(type='PackDetInputs', meta_keys=('img_id', 'flip', 'flip_direction'))]]
    assert pack['meta_keys'] == ('img_id', 'flip')


def test_settings_of_the_config_win():
    steps = [dict(type='LoadImageFromFile'), dict(type='TestTimeAug', transforms=[])]
    dataset = dict(type='Concat', datasets=[dict(pipeline=[]), dict(pipeline=[])])
    cfg = Config(
        dict(
            default_scope='mmseg',
            model=dict(type='EncoderDecoder', data_preprocessor=dict(type='vitplug.SegDataPreProcessor')),
            data_preprocessor=dict(type='SegDataPreProcessor'),
            test_dataloader=dict(dataset=dataset),
            tta_pipeline=steps,
            tta_model=dict(type='Mine'),
        )
    )
    augment_test(cfg)
    assert [each.pipeline for each in cfg.test_dataloader.dataset.datasets] == [steps, steps]
    # mmengine would put the preprocessor at the top into the merger, and the merger into the model.
    assert cfg.model.type == 'Mine' and cfg.model.data_preprocessor is None
    assert cfg.model.module.data_preprocessor.type == 'vitplug.SegDataPreProcessor'


def test_pipeline_without_an_image_is_named():
    with pytest.raises(ValueError, match=r'--tta: no step .* loads an image \(PackInputs\): set tta_pipeline'):
        mirrored([dict(type='PackInputs')])
