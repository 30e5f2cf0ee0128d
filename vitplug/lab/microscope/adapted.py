"""The microscope on a model that vitplug does not own, from Python: without a config, a checkpoint or OpenMMLab."""

from collections.abc import Iterable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from vitplug.files.named import check_new_file
from vitplug.files.whole import write_whole
from vitplug.lab.study.adapted import image_batches, image_host_of, in_inference
from vitplug.lab.study.measures.grad_cam import grad_cams
from vitplug.tasks.targets import ClassLogit

from .classes import logits_of, named_scores
from .look import Model, Prediction, View, as_picture
from .writing import MAX_MB, facts_of, write_page


def microscope(
    model: nn.Module,
    images: Tensor | Iterable[Tensor],
    out: str | PathLike = 'report.html',
    baseline: nn.Module | None = None,
    classes: Sequence[str] | None = None,
    max_mb: float = MAX_MB,
) -> Path:
    """Writes the :doc:`microscope's page <microscope>` of a model of timm, Hugging Face or your own::

        model = vitplug.plug_in(timm.create_model('deit_tiny_patch16_224', pretrained=True), [])
        vitplug.microscope(model, images, 'report.html')

    The prediction and Grad-CAM are those of a classifier, whose output is logits ``(B, classes)`` or has them as
    ``logits``; without, the page says so.

    Args:
        model: A model with plugs; ``plug_in(model, [])`` will do. It runs in inference mode.
        images: About four images ``(B, C, H, W)`` as the model takes them, red first, or batches of such images.
        out: The file, which must not exist yet.
        baseline: A model to compare with, such as one without plugs; it takes the same images.
        classes: Names of the classes; by default, those of the config of a model of Hugging Face.
        max_mb: Largest size of the file, in millions of bytes; fewer queries are kept until it fits.

    Returns:
        The file.

    Raises:
        ValueError: If a model has no plugs, takes text or does not run on the images, there are no images, classes are
            as many as a model's, or one query does not fit into the file.
        FileExistsError: If there is a file of this name.
    """
    path = Path(out)
    check_new_file(path, 'out', ('.html',))
    given = {'Baseline': baseline, 'Model': model} if baseline is not None else {'Model': model}
    networks = {title: getattr(one, '_orig_mod', one) for title, one in given.items()}
    with in_inference(*networks.values()):
        inputs = [image[None] for batch in image_batches(images) for image in batch]
        models = [_model(title, network) for title, network in networks.items()]
        views = [
            View(
                ', '.join(filter(None, (f'image {index}', note))),
                picture,
                [x] * len(models),
                [_predicted(network, x, classes) for network in networks.values()],
            )
            for index, x in enumerate(inputs)
            for picture, note in [as_picture(x[0], tuple(x.shape[-2:]))]
        ]
        page = write_page(models, views, facts_of(models, [view.name for view in views], 'vitplug.microscope'), max_mb)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_bytes(page))
    return path


def _model(title: str, network: nn.Module) -> Model:
    backbone, kind = image_host_of(network, 'microscope'), type(network)
    count = sum(parameter.numel() for parameter in network.parameters())
    return Model(
        title,
        kind.__name__,
        f'{kind.__name__}: {backbone.plug_summary}',
        f'{kind.__module__}.{kind.__qualname__}, {count:,} parameters, weights as they were in memory',
        backbone,
        partial(grad_cams, network, target=ClassLogit(logits=lambda model, x: logits_of(model, model(x)))),
    )


@torch.no_grad()
def _predicted(network: nn.Module, x: Tensor, classes: Sequence[str] | None) -> Prediction:
    """The classes with the highest scores.

    Raises:
        ValueError: If the model does not run on the image, or has other classes than those that are named.
    """
    try:
        logits = logits_of(network, network(x))
    except Exception as error:  # of any kind, by any library
        raise ValueError(
            f'{type(network).__name__} does not run on an image {tuple(x.shape)} of {x.dtype}: {error}; give images as '
            'the model takes them, and a model that takes images alone'
        ) from error
    if logits is None:
        return Prediction('no prediction: the model gives no logits of classes')
    names = getattr(getattr(network, 'config', None), 'id2label', None)
    if classes is None and names:  # a config in JSON has its keys as text, sorted as text
        classes = [names[key] for key in sorted(names, key=int)]
    if classes is not None and len(classes) != logits.shape[1]:
        raise ValueError(f'classes: {len(classes)} names, but {type(network).__name__} has {logits.shape[1]} classes')
    return Prediction(named_scores(logits[0].float().softmax(-1), classes))
