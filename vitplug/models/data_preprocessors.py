"""mmdet's and mmseg's data preprocessors, extended to attach the image sizes to padded batches."""

from typing import Any

from mmengine.model import BaseDataPreprocessor

from vitplug.hosting import mark_padding
from vitplug.registry import MODELS

# Functions instead of subclasses, so that mmdet and mmseg are imported only for configs that use them; they take the
# arguments of the library's class.


@MODELS.register_module('DetDataPreprocessor')
def build_det_data_preprocessor(**settings) -> BaseDataPreprocessor:
    """mmdet's ``DetDataPreprocessor``; with it, plugs exclude padding (:mod:`vitplug.hosting.padding`).

    The padding of a ``Pad`` transform in the pipeline is not excluded, because the data preprocessor does not know it.
    To pad to a fixed size, use ``batch_augments=[dict(type='BatchFixedSizePad', ...)]`` instead.
    """
    from mmdet.models import DetDataPreprocessor

    return _marking(DetDataPreprocessor(**settings))


@MODELS.register_module('SegDataPreProcessor')
def build_seg_data_preprocessor(**settings) -> BaseDataPreprocessor:
    """mmseg's ``SegDataPreProcessor``; with it, plugs exclude padding (:mod:`vitplug.hosting.padding`)."""
    from mmseg.models import SegDataPreProcessor

    return _marking(SegDataPreProcessor(**settings))


def _marking(preprocessor: BaseDataPreprocessor) -> BaseDataPreprocessor:
    preprocessor.register_forward_hook(_attach_sizes)
    return preprocessor


def _attach_sizes(preprocessor: BaseDataPreprocessor, args: tuple, batch: dict[str, Any]) -> None:
    """Attaches the sizes in the data samples to the batch; does nothing without data samples.

    Raises:
        ValueError: If a data sample has no ``img_shape``.
    """
    samples = batch.get('data_samples') or ()
    if any('img_shape' not in sample for sample in samples):
        name = type(preprocessor).__name__
        raise ValueError(
            f'vitplug.{name}: a data sample has no img_shape (the size before padding): add it to the meta_keys of the '
            f"pipeline's last step, or set data_preprocessor.type={name!r}"
        )
    if samples:
        mark_padding(batch['inputs'], [sample.img_shape[:2] for sample in samples])
