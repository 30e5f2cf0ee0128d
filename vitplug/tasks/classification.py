"""Classification with mmpretrain."""

from .class_counts import ENTRIES, METRICS_OF_IMAGES, UP_TO, ClassCounts, Place
from .experiments.own_data import read_classification, without_names
from .networks import BACKBONE, SCORES
from .targets import ClassLogit
from .task import Experiment, Task


def _reports_accuracy(part) -> bool:
    return part.is_a('ClsHead') and bool(part.get('cal_acc'))


def _accuracy(cfg, data, split) -> dict:
    return dict(type='Accuracy', topk=(1, 5) if len(data.classes) > 5 else (1,))


class Classification(Task):
    """One class for each image."""

    library = 'mmpretrain'
    name = 'classification'
    tta_model = dict(type='AverageClsScoreTTA')
    class_counts = ClassCounts(
        model=(
            Place('num_classes'),
            Place('class_weight', ENTRIES),
            Place('topk', UP_TO, applies=_reports_accuracy),
        ),
        metrics=METRICS_OF_IMAGES,
        # Each task of several has its own classes, and necks count the entries of a code book or of an embedding.
        apart=frozenset(('task_heads', 'neck', 'text_neck', 'vision_neck')),
    )
    experiment = Experiment('CustomDataset', without_names(read_classification), _accuracy)
    target = ClassLogit
    parts = dict(scores=SCORES, backbone=BACKBONE)

    def show_predictions(self, cfg, hook, folder) -> None:
        if 'module' in cfg.get('model', {}):
            raise ValueError('--show and --show-dir: mmpretrain cannot draw what --tta merges: leave one of them out')
        cfg.default_hooks.visualization.update(hook, enable=True, interval=1, out_dir=folder)

    def run_inference(self, model, images) -> None:
        model(images, mode='tensor')

    def made_sample(self, size):
        from mmpretrain.structures import DataSample

        return DataSample().set_gt_label(0)

    def training_losses(self, model, images):
        from .step_losses import of_classifier

        return of_classifier(model, images, self.made_samples(images))

    def describe_inference(self, model) -> str:
        return 'backbone, neck and head'

    def predictions(self, cfg, model, classes, palette, score_thr):
        from .predictions import ClassPredictions

        return ClassPredictions(cfg, model, classes, palette, score_thr)

    def draw_panels(self, panels, image, sample, metainfo) -> None:
        from .panels import draw_classes

        draw_classes(panels, image, sample, metainfo)
