"""How a model is tested: other pixels, images or weights, an attack, edits. A condition makes a run of a run.

A new condition is one function here, or a ``module:function`` of one's own that returns one :class:`Condition` or
several.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.hosting import Edits

from . import edits as editing
from . import pixels
from .measures.tokens import token_norms
from .reset import reset_copy
from .runs import Run
from .store import digest

IMAGENET_CLASSES = 1000
# Steps of a test pipeline that a calibrated receptive field replaces.
RESIZES = re.compile(r'(.*[./])?(Resize|ResizeEdge|CenterCrop)')
# Epsilons of a calibration, of pixels from 0 to 1, and its halvings.
LOWEST, HIGHEST, HALVINGS = 1 / 16 / 255, 64 / 255, 16


@dataclass(frozen=True)
class Condition:
    """One test.

    Attributes:
        name: Of the row.
        change: Makes the changed run.
        family, strength, unit: Conditions of one family are a curve over their strength.
        own_images: Whether it brings its own images or labels: then there is no drop from the clean ones.
        repeat: Number of the draw, of what is drawn; repeats share the name of the row.
        content: What its numbers depend on besides the name and the strength: the source of a user's own condition.
    """

    name: str
    change: Callable[[Run], Run] = lambda run: run
    family: str = ''
    strength: float = 0.0
    unit: str = ''
    own_images: bool = False
    repeat: int | None = None
    content: str = ''

    @property
    def key(self) -> str:
        """Hash of all that its numbers depend on besides the run."""
        found = getattr(self.change, 'epsilon', None)  # of a calibration
        return digest(self.name, repr(self.strength), repr(self.repeat), repr(found), self.content)


CLEAN = Condition('clean')


def clean() -> Condition:
    """The images as they are."""
    return CLEAN


# --- pixels ---


def at_input(change: pixels.Change, **values: Any) -> Callable[[Run], Run]:
    """A step before the packing, on what the model gets.

    Args:
        change: Gives changed pixels ``(H, W, C)`` for pixels, what the pipeline knows of the image, and ``values``; see
            :mod:`.pixels`.
        values: Its further arguments. ``fill='mean'`` is zero after the normalisation.
    """

    def changed(run: Run) -> Run:
        filled = dict(fill=run.mean_pixel) if values.get('fill') == 'mean' else {}
        return run.changed(pipeline=[*run.pipeline[:-1], pixels.step_of(change, **values | filled), run.pipeline[-1]])

    return changed


def _number(text: str, least: float = 0, most: float = np.inf) -> float:
    if not least <= float(text) <= most:
        raise ValueError(f'{text}: expected a number from {least:g} to {most:g}')
    return float(text)


def shift(direction: str, percent: str) -> Condition:
    """The image moves by a share of its side: ``shift:right:15``. ReViT, Tables 4 and 5."""
    if direction not in pixels.DIRECTIONS:
        raise ValueError(f'direction {direction!r}: expected one of {", ".join(pixels.DIRECTIONS)}')
    share = _number(percent, most=100)
    change = at_input(pixels.shift, fraction=share / 100, direction=direction, fill='mean')
    return Condition(f'shift {direction} {percent} %', change, f'shift {direction}', share, 'shift, % of the side')


def shrink(percent: str) -> Condition:
    """The image loses a share of both sides, and is padded: ``shrink:30``. ReViT, Table 6."""
    share = _number(percent, most=100)
    change = at_input(pixels.shrink, fraction=share / 100, fill='mean')
    return Condition(f'smaller by {percent} %', change, 'smaller image', share, 'loss of each side, %')


def occlude(percent: str = '50') -> Condition:
    """The centre is occluded: ``occlude:50`` for half of each side. CB, Table 8."""
    share = _number(percent, most=100)
    change = at_input(pixels.occlude, fraction=share / 100, fill='mean')
    return Condition(f'centre occluded, {percent} %', change, 'occlusion', share, '% of each side')


def noise(sigma: str, seed: str = '0') -> Condition:
    """Gaussian noise in grey levels: ``noise:5``. CB, Table 12."""
    name, strength, draw = f'Gaussian noise, sigma {sigma}', _number(sigma), int(seed)
    change = at_input(pixels.gaussian_noise, sigma=strength, seed=draw)
    return Condition(name, change, 'Gaussian noise', strength, 'sigma, grey levels', repeat=draw)


def shot(photons: str = '1', seed: str = '0') -> Condition:
    """Shot noise of so many photons a grey level: ``shot:1``. CB, Table 12."""
    name, strength, draw = f'shot noise, {photons} photons', _number(photons, least=1e-6), int(seed)
    change = at_input(pixels.shot_noise, photons=strength, seed=draw)
    return Condition(name, change, 'shot noise', strength, 'photons a grey level', repeat=draw)


def blur(sigma: str) -> Condition:
    """Gaussian blur in pixels: ``blur:2``. CB, Table 12."""
    strength = _number(sigma)
    change = at_input(pixels.blur, sigma=strength)
    return Condition(f'Gaussian blur, sigma {sigma}', change, 'Gaussian blur', strength, 'sigma, pixels')


def corruption(name: str, severity: str, seed: str = '0') -> Condition:
    """A corruption of ``imagecorruptions``: ``corruption:fog:3``. Computed in memory: not ImageNet-C's files."""
    from imagecorruptions import get_corruption_names

    if name not in (names := get_corruption_names('all')):
        raise ValueError(f'{name}: expected one of {", ".join(names)}')
    values = dict(name=name, severity=int(_number(severity, most=5)), seed=int(seed))

    def change(run: Run) -> Run:
        if run.library == 'mmpretrain':
            return at_input(pixels.corrupt, **values)(run)
        # Scenes are corrupted as they are in the file, before they are resized.
        at = next((i for i, one in enumerate(run.pipeline, 1) if 'LoadImageFromFile' in str(one['type'])), 0)
        return run.changed(pipeline=[*run.pipeline[:at], pixels.step_of(pixels.corrupt, **values), *run.pipeline[at:]])

    strength = float(values['severity'])
    return Condition(f'{name}, severity {severity}', change, name, strength, 'severity', repeat=int(seed))


def field(ratio: str) -> Condition:
    """Receptive field calibration: ``field:1.12``. Refiner, Table 5; the crop is ``ratio`` of the short side."""
    share = _number(ratio, least=0.01)

    def change(run: Run) -> Run:
        kept = [step for step in run.pipeline if not RESIZES.fullmatch(str(step['type']))]
        if len(kept) == len(run.pipeline):
            raise ValueError(f'field:{ratio}: {run.label} has no resize or crop in its test pipeline to replace')
        height, width = run.inputs(run.batch(run.images[:1])).shape[-2:]
        if height != width:
            raise ValueError(f'field:{ratio}: the images of {run.label} are {height} x {width}: expected squares')
        return at_input(pixels.calibrate_field, ratio=share, size=height)(run.changed(pipeline=kept))

    unit = 'ratio of the crop to the resized short side'
    return Condition(f'field calibrated, ratio {ratio}', change, 'calibrated field', share, unit)


# --- attack ---


def gradient_sign(run: Run, images: Tensor, labels: Tensor) -> Tensor:
    """The sign of the gradient of the cross entropy with respect to pixels from 0 to 1."""
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        loss = F.cross_entropy(run.logits(images), labels, reduction='sum')
        return torch.autograd.grad(loss, images)[0].sign()


def fgsm(epsilon: str, target: str = '') -> Condition:
    """One step of the gradient's sign: ``fgsm:1/255``, or ``fgsm:calibrate:27.2`` for the top-1 of the first model.

    Goodfellow et al. 2015; CB, Table 8. Pixels from 0 to 1, clipped, the normalisation inside the model. A calibrated
    size is found by bisection on the first model, and used for all. Images whose gradient is zero everywhere are left
    out: nothing would attack them.
    """
    if epsilon == 'calibrate':
        return Condition(f'FGSM, calibrated to {target}', Calibrated(float(target)))
    size = float(Fraction(epsilon))
    if not 0 < size <= 1:
        raise ValueError(f'fgsm:{epsilon}: expected above 0 and at most 1, such as 4/255: pixels are from 0 to 1')
    name = f'FGSM, epsilon {255 * size:.6g}/255'
    return Condition(name, lambda run: _attacked(run, size), 'FGSM', 255 * size, 'epsilon, in 1/255')


def _classifier(run: Run) -> Run:
    if run.library != 'mmpretrain':
        raise ValueError(f'fgsm: {run.label} is no classifier')
    return run


def _attacked(run: Run, epsilon: float) -> Run:
    def attack(run: Run, images: Tensor, labels: Tensor) -> Tensor:
        signs = gradient_sign(run, images, labels)
        if not signs.flatten(1).any(1).all():
            raise ValueError(f'fgsm: {run.label}: the gradient is zero everywhere')
        return (images + epsilon * signs).clamp(0, 1)

    return _classifier(run).changed(attack=attack)


class Calibrated:
    """FGSM of the size at which the first model that it meets has a top-1 accuracy.

    Attributes:
        epsilon: The size, of pixels from 0 to 1; None before.
        reached: The accuracy there.
    """

    def __init__(self, target: float):
        self.target, self.epsilon, self.reached = target, None, None

    def __call__(self, run: Run) -> Run:
        _classifier(run)
        if self.epsilon is None:
            self.epsilon, self.reached = self._bisected(run)
        return _attacked(run, self.epsilon)

    def _bisected(self, run: Run) -> tuple[float, float]:
        accuracy = cache(partial(_accuracy, run))
        tried = [0.0, LOWEST]
        while tried[-1] <= HIGHEST and accuracy(tried[-1]) > self.target:
            tried.append(2 * tried[-1])
        low, high = tried[-2:]
        if accuracy(0.0) < self.target or high > HIGHEST:
            raise ValueError(
                f'fgsm:calibrate:{self.target:g}: {run.label} has {accuracy(0.0):.2f} without an attack and '
                f'{accuracy(low):.2f} at {255 * low:g}/255: choose an accuracy between them'
            )
        for _ in range(HALVINGS):
            if self.target in map(accuracy, tried):
                break
            tried.append((low + high) / 2)
            low, high = (tried[-1], high) if accuracy(tried[-1]) > self.target else (low, tried[-1])
        best = min(tried, key=lambda size: (abs(accuracy(size) - self.target), size))
        return best, accuracy(best)


def _accuracy(run: Run, epsilon: float) -> float:
    """Top-1 under FGSM of a size; images without a gradient are left out."""
    right, count, images = 0, 0, run.images
    for first in range(0, len(images), run.batch_size):
        pixels, labels = run.attackable(run.batch(images[first : first + run.batch_size]))
        signs = gradient_sign(run, pixels, labels)
        counts = signs.flatten(1).any(1)
        with torch.no_grad():
            hits = run.logits((pixels + epsilon * signs).clamp(0, 1)).argmax(1) == labels
        right, count = right + int((hits & counts).sum()), count + int(counts.sum())
    return 100 * right / max(count, 1)


# --- weights and intermediates ---


def reset(kind: str) -> Condition:
    """Positions drawn again on a copy: ``reset:ape``. GAB, Figure 4; kinds: see :data:`.reset.RESETS`."""
    return Condition(f'reset {kind}', lambda run: run.changed(model=reset_copy(run.model, kind)[0]))


def edit(place: str, block: str, which: str, kind: str = 'zero', control: str = '') -> Condition:
    """Zero in place of an intermediate: ``edit:head:3:0:zero``, ``edit:token:3:class``, ``edit:branch:3:mlp:zero``.

    Places: ``head`` (by number), ``token`` (``class``, ``longest`` or ``random`` patch of a block's output) and
    ``branch`` (``attn``, ``mlp``). A fifth part, ``control``, makes a change of the same size in a random direction.
    Michel et al. 2019 for heads without output.
    """
    name = dict(head='heads', token='block', branch=which).get(place)
    if name is None or kind != 'zero' or control not in ('', 'control'):
        raise ValueError('expected a place of head, token, branch, zero, and control or nothing')
    layer = int(block)

    def edits(run: Run, index: int) -> Edits:
        heads = [int(which)] if place == 'head' else None
        made = editing.zero(heads, [_token(run, index, layer, which)] if place == 'token' else None)
        seed = int(digest(run.image_key(index), block, which), 16) % 2**31
        return {name: {layer: editing.random_control(made, seed) if control else made}}

    title = f'{place} {which} of block {block}: {kind}' + (', control' if control else '')
    return Condition(title, lambda run: run.changed(edits=edits), f'{place} {which}, {kind}', layer, 'block')


@torch.no_grad()
def _token(run: Run, index: int, layer: int, which: str) -> int:
    """The number of an edited token of a block's output."""
    if which == 'class' and run.has_class_token:
        return 0
    if which not in ('longest', 'random'):
        raise ValueError(f'edit:token:{layer}:{which}: {run.label} has no such token: expected class, longest, random')
    inputs = run.inputs(run.batch([index]))
    _, found = run.backbone.forward_intermediates(inputs, ('block', 'site'), layers=[layer])
    prefix = found['site'][layer].layout.num_prefix
    norms_N = token_norms(found['block'][layer][:, prefix:])[0]
    random = int(digest(run.image_key(index), str(layer)), 16) % len(norms_N)
    return prefix + (int(norms_N.argmax()) if which == 'longest' else random)


# --- other images and labels ---


def imagenet_a(*folder: str) -> list[Condition]:
    """ImageNet-A, and the clean images of its 200 classes: ``imagenet-a:DIR``. CB, Table 8."""
    classes = [int(index) for index in _timm_file('imagenet_a_indices.txt').split()]
    source = _class_folders(folder, _timm_file('imagenet_a_synsets.txt').split())
    other = dict(source=source, right=lambda sample: [classes[int(sample.gt_label)]])
    clean = _of_imagenet('clean, the 200 classes of ImageNet-A', among=classes)
    return [clean, _of_imagenet('ImageNet-A', among=classes, **other)]


def imagenet_v2(*folder: str) -> Condition:
    """A set of ImageNet-V2: ``imagenet-v2:DIR``. CB, Table 6."""
    order = sorted(map(str, range(IMAGENET_CLASSES)))  # folders are classes by number, sorted as text
    source = _class_folders(folder, order)
    name = f'ImageNet-V2, {Path(source["data_root"]).name}'
    return _of_imagenet(name, source=source, right=lambda sample: [int(order[int(sample.gt_label)])])


def real() -> Condition:
    """ImageNet-ReaL, labels for the validation images: ``real``. CB, Table 6; Refiner, Table 7.

    Images without a label are left out; a prediction is right if it is one of the labels.
    """
    labels = json.loads(_timm_file('imagenet_real_labels.json'))
    sets = {f'ILSVRC2012_val_{number:08d}.JPEG': label for number, label in enumerate(labels, 1)}
    condition = _of_imagenet('ImageNet-ReaL', right=lambda sample: sets[Path(sample.img_path).name])

    def change(run: Run) -> Run:
        changed = condition.change(run)
        for info in map(run.dataset.get_data_info, run.images):
            if (name := Path(info.get('img_path', 'none')).name) not in sets:
                raise ValueError(f'real: labels the validation images of ImageNet, and the data have {name}')
        return changed

    return replace(condition, change=change)


def _of_imagenet(name: str, **parts: Any) -> Condition:
    """Other images or labels for models of ImageNet's 1000 classes."""

    def change(run: Run) -> Run:
        classes = len(run.dataset.metainfo.get('classes') or ())
        if run.library != 'mmpretrain' or classes != IMAGENET_CLASSES:
            raise ValueError(f"it needs a model of ImageNet's 1000 classes, and {run.label} has {classes}")
        return run.changed(**parts)

    return Condition(name, change, own_images=True)


def _timm_file(name: str) -> str:
    return (files('timm.data') / '_info' / name).read_text()


def _class_folders(parts: Sequence[str], expected: Sequence[str]) -> dict:
    """The data set of a folder that has exactly the folders of some classes; its name may have colons."""
    folder = Path(':'.join(parts))
    if wrong := sorted({path.name for path in folder.iterdir() if path.is_dir()} ^ set(expected)):
        raise ValueError(f'{folder}: {len(wrong)} folders of classes are missing or unknown, such as {wrong[0]}')
    return dict(type='mmpretrain.CustomDataset', data_root=str(folder))


FUNCTIONS = (clean, shift, shrink, occlude, noise, shot, blur, corruption, field, fgsm, reset, edit)
CONDITIONS: Mapping[str, Callable[..., Condition | list[Condition]]] = {
    function.__name__.replace('_', '-'): function for function in (*FUNCTIONS, imagenet_a, imagenet_v2, real)
}
