"""Classification with mmpretrain."""

from .networks import BACKBONE, SCORES
from .targets import ClassLogit
from .task import Task


class Classification(Task):
    """One class for each image."""

    library = 'mmpretrain'
    name = 'classification'
    tta_model = dict(type='AverageClsScoreTTA')
    target = ClassLogit
    parts = dict(scores=SCORES, backbone=BACKBONE)

    def show_predictions(self, cfg, hook, folder) -> None:
        if 'module' in cfg.get('model', {}):
            raise ValueError('--show and --show-dir: mmpretrain cannot draw what --tta merges: leave one of them out')
        cfg.default_hooks.visualization.update(hook, enable=True, interval=1, out_dir=folder)

    def run_inference(self, model, images) -> None:
        model(images, mode='tensor')

    def describe_inference(self, model) -> str:
        return 'backbone, neck and head'

    def made_sample(self, size):
        from mmpretrain.structures import DataSample

        return DataSample().set_gt_label(0)
