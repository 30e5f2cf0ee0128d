"""The microscope on a model that vitplug does not own, from Python: without a config, a checkpoint or OpenMMLab."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitplug.adapters import AdaptedModel, intermediates
from vitplug.files.named import check_new_file
from vitplug.files.whole import write_whole
from vitplug.lab.microscope.loaded import Loaded, as_picture
from vitplug.lab.microscope.observed import BASELINE, MODEL, Observed, Ran
from vitplug.lab.study.adapted import image_batches, image_host_of, in_inference
from vitplug.lab.study.quantities.fields import effective_receptive_field
from vitplug.lab.study.quantities.grad_cam import GradCam, grad_cams
from vitplug.lab.study.quantities.gradients import frozen
from vitplug.tasks.kept import Kept, kept_class
from vitplug.tasks.outcomes import ClassOutcome, NoOutcome, Outcome
from vitplug.tasks.targets import ClassLogit

from .data import observe
from .report import MAX_MB, Facts, check_max_mb, render, versions_of
from .tiles import OverBudget

PACKAGES = ('vitplug', 'torch', 'numpy', 'timm', 'transformers')
NO_LOGITS = 'the model gives no logits of classes'


def microscope(
    model: nn.Module,
    images: Tensor | Iterable[Tensor],
    out: str | PathLike = 'report.html',
    baseline: nn.Module | None = None,
    classes: Sequence[str] | None = None,
    edits: bool = False,
    max_mb: float = MAX_MB,
) -> Path:
    """Writes the :doc:`microscope's page <microscope>` of a model of timm, Hugging Face or your own::

        model = vitplug.plug_in(timm.create_model('deit_tiny_patch16_224', pretrained=True), [])
        vitplug.microscope(model, images, 'report.html')

    The prediction and Grad-CAM are those of a classifier, whose output is logits ``(B, classes)`` or has them as
    ``logits``; without, the page leaves both out, and says so.

    Args:
        model: A model with plugs; ``plug_in(model, [])`` will do. It runs in inference mode.
        images: About four images ``(B, C, H, W)`` as the model takes them, red first, or batches of such images.
        out: The file, which must not exist yet.
        baseline: A model to compare with, such as one without plugs; it takes the same images.
        classes: Names of the classes; by default, those of the config of a model of Hugging Face.
        edits: Whether to run the models without each head, too: two runs for each head and image.
        max_mb: Largest size of the file, in millions of bytes; fewer queries and keys are kept until it fits.

    Returns:
        The file.

    Raises:
        ValueError: If a model has no plugs or takes text, one of two models gives no logits, there are no images, they
            have no size of the models, or they do not fit into the file.
        FileExistsError: If there is a file of this name.
    """
    path = Path(out)
    check_new_file(path, 'out', ('.html',))
    check_max_mb(max_mb, 'max_mb')
    path.parent.mkdir(parents=True, exist_ok=True)
    given = [image[None] for batch in image_batches(images) for image in batch]
    named, limit = {Path(f'image {index}'): image for index, image in enumerate(given)}, int(max_mb * 1e6)
    models = {MODEL: model} if baseline is None else {BASELINE: baseline, MODEL: model}
    subjects = [Adapted(label, getattr(one, '_orig_mod', one), named, classes) for label, one in models.items()]
    with in_inference(*models.values()):
        facts = Facts(
            'classification' if _classify(subjects) else 'features',
            'vitplug.microscope',
            versions_of(PACKAGES),
            to_compare='baseline=another_model',
            to_edit='edits=True',
            to_measure='`vitplug.measure` takes many images',
        )
        try:
            page = render(observe(subjects, list(named), limit, edits=edits), facts, limit)
        except OverBudget as error:
            raise ValueError(f'max_mb {max_mb:g}: {error}') from error
    write_whole(path, lambda part: part.write_text(page, encoding='utf-8'))
    return path


def logits_of(model: nn.Module, images: Tensor) -> Tensor | None:
    """Logits ``(B, classes)`` of a classifier; None of another model."""
    return _logits_in(model, model(images))


def _logits_in(model: nn.Module, output: Any) -> Tensor | None:
    logits = getattr(output, 'logits', output)
    # timm's models without a head give features of the same shape.
    has_no_head = getattr(model, 'num_classes', None) == 0
    return None if has_no_head or not isinstance(logits, Tensor) or logits.ndim != 2 else logits


@dataclass(frozen=True)
class Prediction:
    """Scores of the classes ``(classes,)``, as a sample of mmpretrain has them; None for none."""

    pred_score: Tensor | None


@dataclass(eq=False)
class Adapted(Observed):
    """A model of another library under analysis.

    Attributes:
        label: ``'model'`` or ``'baseline'``.
        model: The model with plugs, in inference mode.
        images: Images ``(1, C, H, W)`` by name.
        classes: Names of its classes; None for those of the model's config, or numbers.
        recorded: Shapes of the intermediates of the first image, by name and block.
    """

    label: str
    model: nn.Module
    images: Mapping[Path, Tensor]
    classes: Sequence[str] | None = None
    recorded: Mapping[str, Mapping[int, tuple[int, ...]]] = field(default_factory=dict)
    _places: dict = field(default_factory=dict)

    def __post_init__(self):
        names = getattr(getattr(self.model, 'config', None), 'id2label', None)
        if self.classes is None and names:
            # A config in JSON has its keys as text, sorted as text.
            self.classes = [names[key] for key in sorted(names, key=int)]

    @cached_property
    def backbone(self) -> AdaptedModel:
        return image_host_of(self.model, 'microscope')

    @property
    def name(self) -> str:
        return type(self.model).__name__

    @property
    def about(self) -> str:
        return f'{self.name}: {self.backbone.plug_summary}'

    @property
    def made_of(self) -> str:
        kind, count = type(self.model), sum(p.numel() for p in self.model.parameters())
        return f'{kind.__module__}.{kind.__qualname__}, {count:,} parameters, weights as they were in memory'

    def load(self, path: Path) -> Loaded:
        image = self.images[path]
        return Loaded(path, image, as_picture(image[0].flip(0), tuple(image.shape[-2:])))

    def batch(self, path: Path) -> Tensor:
        return self.images[path]

    @torch.no_grad()
    def run(self, batch: Tensor) -> Ran:
        """The prediction, and the tokens that leave the last block."""
        last = self.num_layers - 1
        output, recorded = intermediates(self.model, batch, ('block',), [last])
        logits = _logits_in(self.model, output)
        scores = None if logits is None else logits[0].float().softmax(-1).cpu()
        return Ran(Prediction(scores), (recorded['block'][last],))

    def outcome(self, sample: Prediction, size: tuple[int, int]) -> Outcome:
        if sample.pred_score is None:
            return NoOutcome.because(NO_LOGITS)
        return ClassOutcome.read(sample, self.classes)

    def keeps(self, before: Prediction, after: Prediction) -> Kept:
        if before.pred_score is None:
            return Kept(float('nan'), float('nan'))
        return kept_class(before, after)

    def grad_cams(self, inputs: Tensor) -> dict[int, GradCam]:
        return grad_cams(self.model, inputs, ClassLogit(logits=logits_of))

    def receptive_field(self, inputs: Iterable[Tensor]) -> Tensor:
        with frozen(self.model):
            return effective_receptive_field(lambda image: self.backbone.forward_features(image, None)[-1], inputs)


def _classify(subjects: Sequence[Adapted]) -> bool:
    """True if the models are classifiers.

    Raises:
        ValueError: If one is and the other is not, they have other classes than those that are named, or do not run.
    """
    scores = {one.label: _first_scores(one) for one in subjects}
    without = [label for label, logits in scores.items() if logits is None]
    if without and len(without) < len(scores):
        raise ValueError(f'{without[0]}: {NO_LOGITS}, and the other does; give two classifiers, or two without')
    for one in subjects:
        count = 0 if scores[one.label] is None else len(scores[one.label])
        if count and one.classes is not None and len(one.classes) != count:
            raise ValueError(f'classes: {len(one.classes)} names, but the {one.label} has {count} classes')
    return not without


def _first_scores(subject: Adapted) -> Tensor | None:
    """The scores of the first image: a model that does not run on it is found before anything is measured."""
    image = next(iter(subject.images.values()))
    host = subject.backbone
    try:
        return subject.run(image).sample.pred_score
    except Exception as error:  # of any kind, by any library
        part = '' if host.model is subject.model else f', or its part that does, a {type(host.model).__name__}'
        raise ValueError(
            f'{subject.label}: {subject.name} does not run on an image {tuple(image.shape)} of {image.dtype}: {error}; '
            f'give images as the model takes them, and a model that takes images alone{part}'
        ) from error
