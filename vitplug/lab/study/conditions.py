"""How a model is tested: other pixels, images or weights, an attack, edits. A condition makes a run of a run.

A condition by name is a function here or in :mod:`.pixels` of the words after its name, or a ``module:function`` of
one's own; it gives one :class:`Condition` or several.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.structures import BaseDataElement
from torch import Tensor

from vitplug.hosting import Edits

from .edits import random_control, reset_copy, zero
from .runs import Run
from .store import digest

IMAGENET_CLASSES, IMAGENET_A_CLASSES = 1000, 200
# Sizes of an attack between which a calibration searches, of pixels from 0 to 1, and its halvings.
LOWEST, HIGHEST, HALVINGS = 1 / 16 / 255, 64 / 255, 16

#: Changed pixels ``(H, W, C)`` of pixels from 0 to 255, and of what the pipeline knows of the image.
Change = Callable[[np.ndarray, dict], np.ndarray]


@dataclass(frozen=True)
class Condition:
    """One test.

    Attributes:
        name: Of the row.
        change: Makes the changed run.
        family, strength, unit: Conditions of one family are a curve over their strength.
        own_images: Whether it brings its own images or labels: then there is no drop from the clean ones.
        repeat: Number of the draw, of what is drawn; repeats share the name of the row.
        code: What its numbers depend on besides: classes, the source of a user's own condition.
        of_first: Makes the condition itself, of the first model of a study.
    """

    name: str
    change: Callable[[Run], Run] = lambda run: run
    family: str = ''
    strength: float = 0.0
    unit: str = ''
    own_images: bool = False
    repeat: int | None = None
    code: str = ''
    of_first: 'Callable[[Run], Condition] | None' = None

    @property
    def key(self) -> str:
        """Hash of all that its numbers depend on besides the run."""
        return digest(self.name, repr(self.strength), repr(self.repeat), self.code)


CLEAN = Condition('clean')


def at_input(change: Change) -> Callable[[Run], Run]:
    """A step before the packing, on what the model gets.

    What is known of the image has ``fill``, too, the pixel that is zero after the normalisation.
    """

    def changed(run: Run) -> Run:
        def step(results: dict) -> dict:
            pixels = np.asarray(results['img'])
            image = change(pixels if pixels.ndim == 3 else pixels[..., None], results | dict(fill=run.mean_pixel))
            return results | dict(img=image, img_shape=image.shape[:2])

        return run.changed(pipeline=[*run.pipeline[:-1], step, run.pipeline[-1]])

    return changed


def number(text: str, least: float = 0, most: float = np.inf) -> float:
    """A number in words, between two others."""
    if not least <= float(text) <= most:
        raise ValueError(f'{text}: expected a number from {least:g} to {most:g}')
    return float(text)


# --- attack ---


def signed(run: Run, images: Tensor, labels: Tensor, size: float) -> Tensor:
    """Pixels from 0 to 1 after one step of the sign of the cross entropy's gradient; NaN of an image without one."""
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        loss = F.cross_entropy(run.logits(images), labels, reduction='sum')
        signs = torch.autograd.grad(loss, images)[0].sign()
    attacked = (images.detach() + size * signs).clamp(0, 1)
    attacked[~signs.flatten(1).any(1)] = torch.nan
    return attacked


def fgsm(epsilon: str, target: str = '') -> Condition:
    """One step of the gradient's sign: ``fgsm:1/255``, or ``fgsm:calibrate:27.2`` for the top-1 of the first model.

    Goodfellow et al. 2015; CB, Table 8. Pixels from 0 to 1, clipped, the normalisation inside the model. Images whose
    gradient is zero everywhere are left out: nothing would attack them.
    """
    if epsilon == 'calibrate':
        return Condition(f'FGSM, calibrated to {target}', of_first=partial(_calibrated, target=float(target)))
    size = float(Fraction(epsilon))
    if not 0 < size <= 1:
        raise ValueError(f'fgsm:{epsilon}: expected above 0 and at most 1, such as 4/255: pixels are from 0 to 1')

    def change(run: Run) -> Run:
        _check_classifier(run)
        return run.changed(attack=partial(signed, size=size))

    name = f'FGSM, epsilon {255 * size:.6g}/255'
    return Condition(name, change, 'FGSM', 255 * size, 'epsilon, in 1/255')


def _check_classifier(run: Run) -> None:
    if run.library != 'mmpretrain':
        raise ValueError(f'fgsm: {run.label} is no classifier')


def _calibrated(run: Run, target: float) -> Condition:
    """FGSM of the size at which a model has a top-1 accuracy, found by bisection."""
    _check_classifier(run)
    accuracy = cache(partial(_accuracy, run))
    tried = [0.0, LOWEST]
    while tried[-1] <= HIGHEST and accuracy(tried[-1]) > target:
        tried.append(2 * tried[-1])
    low, high = tried[-2:]
    if accuracy(0.0) < target or high > HIGHEST:
        raise ValueError(
            f'fgsm:calibrate:{target:g}: {run.label} has {accuracy(0.0):.2f} without an attack and '
            f'{accuracy(low):.2f} at {255 * low:g}/255: choose an accuracy between them'
        )
    for _ in range(HALVINGS):
        if target in map(accuracy, tried):
            break
        tried.append((low + high) / 2)
        low, high = (tried[-1], high) if accuracy(tried[-1]) > target else (low, tried[-1])
    best = min(tried, key=lambda size: (abs(accuracy(size) - target), size))
    return replace(fgsm(str(best)), name=f'FGSM, calibrated to {target:g}: epsilon {255 * best:.4g}/255', family='')


def _accuracy(run: Run, size: float) -> float:
    """Top-1 under FGSM of a size; images without a gradient are left out."""
    right, count, images = 0, 0, run.images
    for first in range(0, len(images), run.batch_size):
        pixels, labels = run.attackable(run.batch(images[first : first + run.batch_size]))
        attacked = signed(run, pixels, labels, size)
        counts = ~attacked.flatten(1).isnan().any(1)
        with torch.no_grad():
            hits = run.logits(attacked).argmax(1) == labels
        right, count = right + int((hits & counts).sum()), count + int(counts.sum())
    return 100 * right / max(count, 1)


# --- weights and intermediates ---


def reset(kind: str) -> Condition:
    """Positions drawn again on a copy: ``reset:ape``. GAB, Figure 4; kinds: see :data:`.edits.RESETS`."""
    return Condition(f'reset {kind}', lambda run: run.changed(model=reset_copy(run.model, kind)[0]))


def edit(place: str, block: str, which: str, kind: str = 'zero', control: str = '') -> Condition:
    """Zero in place of a head, or of a token of a block's output, by its number: ``edit:head:3:0:zero``.

    The class token is token 0. A sixth word, ``control``, makes a change of the same size in a random direction.
    Michel et al. 2019 for heads.
    """
    name = dict(head='heads', token='block').get(place)
    if name is None or kind != 'zero' or control not in ('', 'control'):
        raise ValueError('expected head or token, zero, and control or nothing')
    layer, made = int(block), zero(**{f'{place}s': [int(which)]})

    def edits(run: Run, index: int) -> Edits:
        seed = int(digest(run.image_key(index), block, which), 16) % 2**31
        return {name: {layer: random_control(made, seed) if control else made}}

    title = f'{place} {which} of block {block}: {kind}' + (', control' if control else '')
    return Condition(title, lambda run: run.changed(edits=edits), f'{place} {which}, {kind}', layer, 'block')


# --- other images and labels ---


def imagenet_a(*folder: str) -> list[Condition]:
    """ImageNet-A, and the clean images of its 200 classes: ``imagenet-a:DIR``. CB, Table 8."""
    return _folders('ImageNet-A', folder)


def imagenet_v2(*folder: str) -> list[Condition]:
    """A set of ImageNet-V2: ``imagenet-v2:DIR``. CB, Table 6."""
    return _folders('ImageNet-V2', folder)


def _folders(title: str, parts: Sequence[str]) -> list[Condition]:
    """A folder, whose name may have colons, of folders of classes, by number or by synset.

    With some of the classes alone, these are told apart, of the clean images, too.
    """
    folder = Path(':'.join(parts))
    numbers = {
        name: number
        for number, synset in enumerate(_timm_file('imagenet_synsets.txt').split())
        for name in (synset, str(number))
    }
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())  # as the data set counts them
    if unknown := [name for name in names if name not in numbers]:
        raise ValueError(f'{folder}: {unknown[0]} is no class of ImageNet by number or synset')
    classes = [numbers[name] for name in names]
    if title == 'ImageNet-A' and len(classes) != IMAGENET_A_CLASSES:
        title = f'{title}, {len(classes)} of {IMAGENET_A_CLASSES} classes'
    new = dict(
        source=dict(type='mmpretrain.CustomDataset', data_root=str(folder)),
        right=lambda sample: [classes[int(sample.gt_label)]],
    )
    if len(classes) == IMAGENET_CLASSES:
        return [_of_imagenet(f'{title}, {folder.name}', **new)]
    code = digest(*names)
    clean = _of_imagenet(f'clean, the {len(classes)} classes of {title}', code, among=classes)
    return [clean, _of_imagenet(title, code, among=classes, **new)]


def real() -> Condition:
    """ImageNet-ReaL, labels for the validation images: ``real``. CB, Table 6; Refiner, Table 7.

    Images without a label are left out; a prediction is right if it is one of the labels.
    """
    labels = json.loads(_timm_file('imagenet_real_labels.json'))
    sets = {f'ILSVRC2012_val_{number:08d}.JPEG': label for number, label in enumerate(labels, 1)}

    def right(sample: BaseDataElement) -> list[int]:
        name = Path(sample.img_path).name
        if name not in sets:
            raise ValueError(f'real: {name} is no validation image of ImageNet, such as {next(iter(sets))}')
        return sets[name]

    return _of_imagenet('ImageNet-ReaL', right=right)


def _of_imagenet(name: str, code: str = '', **parts: Any) -> Condition:
    """Other images or labels for models of ImageNet's 1000 classes."""

    def change(run: Run) -> Run:
        classes = len(run.dataset.metainfo.get('classes') or ())
        if run.library != 'mmpretrain' or classes != IMAGENET_CLASSES:
            raise ValueError(f"it needs a model of ImageNet's 1000 classes, and {run.label} has {classes}")
        return run.changed(**parts)

    return Condition(name, change, own_images=True, code=code)


def _timm_file(name: str) -> str:
    return (files('timm.data') / '_info' / name).read_text()
