"""The microscope on a model that vitplug does not own, from Python: without a config, a checkpoint or OpenMMLab."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from vitplug.adapters import host_of
from vitplug.files.named import check_new_file

from .look import Model, Prediction, View, named_scores
from .writing import write_page


def microscope(
    model: nn.Module,
    images: Tensor | Iterable[Tensor],
    out: str | PathLike = 'report.html',
    baseline: nn.Module | None = None,
    classes: Sequence[str] | None = None,
) -> Path:
    """Writes the :doc:`microscope's page <microscope>` of a model of timm, Hugging Face or your own::

        model = vitplug.plug_in(timm.create_model('deit_tiny_patch16_224', pretrained=True), [])
        vitplug.microscope(model, images, 'report.html')

    The prediction is that of a classifier, whose output is logits ``(B, classes)`` or has them as ``logits``; without,
    the page says so.

    Args:
        model: A model with plugs; ``plug_in(model, [])`` will do. It runs in inference mode.
        images: About four images ``(B, C, H, W)`` as the model takes them, red first, or batches of such images.
        out: The file, which must not exist yet.
        baseline: A model to compare with, such as one without plugs; it takes the same images.
        classes: Names of the classes; by default, those of the config of a model of Hugging Face.

    Returns:
        The file.

    Raises:
        ValueError: If a model has no plugs, takes text or does not run on the images, there are no images, or
            classes are not as many as the model's.
        FileExistsError: If there is a file of this name.
    """
    path = Path(out)
    check_new_file(path, 'out', ('.html',))
    given = {'Baseline': baseline, 'Model': model} if baseline is not None else {'Model': model}
    networks = {title: getattr(one, '_orig_mod', one) for title, one in given.items()}
    before = {part: part.training for network in networks.values() for part in network.modules()}
    batches, views = [images] if isinstance(images, Tensor) else images, []
    try:
        models = [_model(title, network.eval()) for title, network in networks.items()]
        for index, x in enumerate(image[None] for batch in batches for image in batch):
            predicted = [_predicted(network, x, classes) for network in networks.values()]
            views.append(View.of(f'image {index}', x[0], [x] * len(models), predicted))
        if not views:
            raise ValueError('images: there are none')
        write_page(path, models, views, [view.name for view in views], 'vitplug.microscope')
    finally:
        for part, training in before.items():
            part.training = training
    return path


def _model(title: str, network: nn.Module) -> Model:
    backbone, kind = host_of(network), type(network)
    count = sum(parameter.numel() for parameter in network.parameters())
    source = f'{kind.__module__}.{kind.__qualname__}, {count:,} parameters, weights as they were in memory'
    return Model(title, kind.__name__, f'{kind.__name__}: {backbone.plug_summary}', source, backbone)


@torch.no_grad()
def _predicted(network: nn.Module, x: Tensor, classes: Sequence[str] | None) -> Prediction:
    """The classes with the highest scores.

    Raises:
        ValueError: If the model does not run on the image, or has other classes than those that are named.
    """
    try:
        output = network(x)
    except Exception as error:  # of any kind, by any library
        raise ValueError(
            f'{type(network).__name__} does not run on an image {tuple(x.shape)} of {x.dtype}: {error}'
        ) from error
    logits = getattr(output, 'logits', output)
    # timm's models without a head give features of the shape of logits.
    if getattr(network, 'num_classes', None) == 0 or not isinstance(logits, Tensor) or logits.ndim != 2:
        return Prediction('no prediction: the model gives no logits of classes')
    names = getattr(getattr(network, 'config', None), 'id2label', None)
    if classes is None and names:  # a config in JSON has its keys as text, sorted as text
        classes = [names[key] for key in sorted(names, key=int)]
    if classes is not None and len(classes) != logits.shape[1]:
        raise ValueError(f'classes: {len(classes)} names, but {type(network).__name__} has {logits.shape[1]} classes')
    return Prediction(named_scores(logits[0].float().softmax(-1), classes))
