"""Test-time augmentation: each image is predicted as it is and flipped, and the predictions are merged."""

from copy import deepcopy

from mmengine.config import Config, ConfigDict

from vitplug.config.parts import loader_leaves, model_settings
from vitplug.tasks import TASKS

VIEWS = [dict(type='RandomFlip', prob=prob, direction='horizontal') for prob in (0.0, 1.0)]
# Meta information of a view that a merger needs.
FLIP_KEYS = ('flip', 'flip_direction')


def augment_test(cfg: Config) -> None:
    """Makes a test predict several views of each image: the views of `tta_pipeline`, or the image and its mirror image.

    Args:
        cfg: The merged config; its model and the pipelines of its test data are replaced.

    Raises:
        ValueError: If there is no `tta_pipeline`, and none can be made of a pipeline of the test data.
    """
    for _, dataset in loader_leaves(cfg, 'test'):
        dataset.pipeline = cfg.get('tta_pipeline') or mirrored(dataset.pipeline)
    model = model_settings(cfg)  # a preprocessor given to the merger would win over the model's own
    merger = cfg.get('tta_model') or TASKS[cfg.default_scope].tta_model
    cfg.model = ConfigDict({'data_preprocessor': None, **merger, 'module': model})


def mirrored(pipeline: list) -> list:
    """A pipeline of two views of an image. It is flipped as soon as it is loaded, and its annotations are not.

    Raises:
        ValueError: If no step loads an image.
    """
    names = [step['type'].rpartition('.')[2] for step in pipeline]
    loads = next((i for i, name in enumerate(names) if name.startswith('Load') and 'Annotations' not in name), None)
    if loads is None:
        raise ValueError(f'--tta: no step of the test pipeline loads an image ({", ".join(names)}): set tta_pipeline')
    rest = deepcopy(pipeline[loads + 1 :])
    for step in rest:
        if 'meta_keys' in step:
            step['meta_keys'] = tuple(dict.fromkeys((*step['meta_keys'], *FLIP_KEYS)))
    return [*pipeline[: loads + 1], dict(type='TestTimeAug', transforms=[deepcopy(VIEWS), *([step] for step in rest)])]
