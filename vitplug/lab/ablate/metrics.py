"""The metrics of validations by which trainings are compared."""

from collections.abc import Mapping

from mmengine.config import Config
from mmengine.hooks import CheckpointHook

from vitplug.config.parts import as_list

# The main metric of an evaluator, by its type.
MAIN = {'Accuracy': 'accuracy/top1', 'IoUMetric': 'mIoU'}


def choose_metric(cfg: Config, metric: str | None) -> str:
    """The metric by which variants are compared.

    Args:
        cfg: The config.
        metric: Its name, which shows at the first validation if it is wrong; None for the main one of the evaluator.

    Raises:
        ValueError: If the config has no validation, or no main metric is known.
    """
    evaluators = [one for one in as_list(cfg.get('val_evaluator')) if isinstance(one, Mapping)]
    if not evaluators or not cfg.get('val_dataloader'):
        raise ValueError(f'{cfg.filename}: has no validation (val_evaluator, val_dataloader), so there is no metric')
    kinds = [str(one.get('type')).rpartition('.')[2] for one in evaluators]
    masks = 'segm' in as_list(evaluators[0].get('metric'))
    found = metric or {**MAIN, 'CocoMetric': f'coco/{"segm" if masks else "bbox"}_mAP'}.get(kinds[0])
    if found is None:
        raise ValueError(f'--metric: the metrics of {", ".join(kinds)} are not known: name one')
    return found


def greater_is_better(metric: str) -> bool:
    """Whether larger values of a metric are better, by its name, as mmengine's best checkpoint takes it.

    Raises:
        ValueError: If the name does not say.
    """
    try:
        return CheckpointHook(save_best=metric).rules == ['greater']
    except ValueError as error:
        raise ValueError(
            f'--metric: the name {metric!r} does not say whether larger values are better: write a grid file with '
            'greater_is_better = True or False'
        ) from error
