"""How a model is tested: other pixels, images or weights, an attack, edits. A condition makes a run of a run.

A new condition is one function here, or a ``module:function`` of one's own that returns one :class:`Condition` or
several.
"""

import difflib
import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.compat import replace
from vitplug.hosting import Edits

from .quantities import edits as editing
from .quantities.reset import reset_copy
from .quantities.tokens import token_norms
from .runs import Run, Truth, turns_channels
from .store import digest
from .transforms import corruption_names

IMAGENET_CLASSES = 1000
# Steps of a test pipeline that a calibrated receptive field replaces.
RESIZES = re.compile(r'(.*[./])?(Resize|ResizeEdge|CenterCrop)')
# Epsilons of a calibration, of pixels from 0 to 1, and its halvings.
LOWEST, HIGHEST, HALVINGS = 1 / 16 / 255, 64 / 255, 16
# Images that a mean over other images is of, at most.
REFERENCES = 32


def _same(run: Run) -> Run:
    return run


@dataclass(frozen=True)
class Condition:
    """One test.

    Attributes:
        name: Of the row.
        change: Makes the changed run.
        family, strength, unit: Conditions of one family are a curve over their strength.
        paper: The paper's figures, labelled.
        own_images: Whether it brings its own images or labels: then there is no drop from the clean ones.
        repeat: Number of the draw, of what is drawn; repeats share the name of the row.
        content: What its numbers depend on besides the name and the strength, such as the files of a folder.
    """

    name: str
    change: Callable[[Run], Run] = _same
    family: str = ''
    strength: float = 0.0
    unit: str = ''
    paper: str = ''
    own_images: bool = False
    repeat: int | None = None
    content: str = ''

    @property
    def key(self) -> str:
        found = getattr(self.change, 'epsilon', None)  # of a calibration
        return digest(self.name, repr(self.strength), repr(self.repeat), repr(found), self.content)


CLEAN = Condition('clean')


# --- pixels ---


def at_input(**step: Any) -> Callable[[Run], Run]:
    """A step before the packing, on what the model gets. ``fill='mean'``: zero after the normalisation."""

    def change(run: Run) -> Run:
        filled = dict(fill=_fill(run)) if step.get('fill') == 'mean' else {}
        return run.changed(pipeline=[*run.pipeline[:-1], step | filled, run.pipeline[-1]])

    return change


def _fill(run: Run) -> list[float]:
    """The values that the data preprocessor makes zero, in the channel order of the pipeline's images."""
    preprocessor = run.model.data_preprocessor
    if getattr(preprocessor, 'mean', None) is None:
        return [0.0]
    values = preprocessor.mean.flatten().tolist()
    return values[::-1] if turns_channels(preprocessor) and len(values) == 3 else values


def shift(direction: str, percent: str) -> Condition:
    """The image moves by a share of its side: ``shift:right:15``. ReViT, Tables 4 and 5."""
    step = dict(type='vitplug.Shift', fraction=float(percent) / 100, direction=direction, fill='mean')
    return Condition(
        f'shift {direction} {percent} %', at_input(**step), f'shift {direction}', float(percent), 'shift, % of the side'
    )


def shrink(percent: str) -> Condition:
    """The image loses a share of both sides, and is padded: ``shrink:30``. ReViT, Table 6."""
    step = dict(type='vitplug.Shrink', fraction=float(percent) / 100, fill='mean')
    return Condition(
        f'smaller by {percent} %', at_input(**step), 'smaller image', float(percent), 'loss of each side, %'
    )


def occlude(percent: str = '50') -> Condition:
    """The centre is occluded: ``occlude:50`` for half of each side. CB, Table 8."""
    step = dict(type='vitplug.OccludeCentre', fraction=float(percent) / 100, fill='mean')
    return Condition(f'centre occluded, {percent} %', at_input(**step), 'occlusion', float(percent), '% of each side')


def noise(sigma: str, seed: str = '0') -> Condition:
    """Gaussian noise in grey levels: ``noise:5``. CB, Table 12."""
    step = dict(type='vitplug.GaussianNoise', sigma=float(sigma), seed=int(seed))
    return _drawn(f'Gaussian noise, sigma {sigma}', step, seed, 'Gaussian noise', float(sigma), 'sigma, grey levels')


def shot(photons: str = '1', seed: str = '0') -> Condition:
    """Shot noise of so many photons a grey level: ``shot:1``. CB, Table 12."""
    step = dict(type='vitplug.ShotNoise', photons=float(photons), seed=int(seed))
    return _drawn(f'shot noise, {photons} photons', step, seed, 'shot noise', float(photons), 'photons a grey level')


def _drawn(name: str, step: Mapping, seed: str, *family: Any) -> Condition:
    return Condition(name, at_input(**step), *family, repeat=int(seed))


def blur(sigma: str) -> Condition:
    """Gaussian blur in pixels: ``blur:2``. CB, Table 12."""
    step = dict(type='vitplug.GaussianBlur', sigma=float(sigma))
    return Condition(f'Gaussian blur, sigma {sigma}', at_input(**step), 'Gaussian blur', float(sigma), 'sigma, pixels')


def corruption(name: str, severity: str, seed: str = '0') -> Condition:
    """A corruption of ``imagecorruptions``: ``corruption:fog:3``. Computed in memory: not ImageNet-C's files."""
    step = dict(type='vitplug.Corruption', name=name, severity=int(severity), seed=int(seed))
    corruption_names('all')  # says how to install the package
    TRANSFORM(step)

    def change(run: Run) -> Run:
        if run.library == 'mmpretrain':
            return at_input(**step)(run)
        at = next((i for i, one in enumerate(run.pipeline, 1) if 'LoadImageFromFile' in str(one['type'])), 0)
        return run.changed(pipeline=[*run.pipeline[:at], step, *run.pipeline[at:]])

    return Condition(f'{name}, severity {severity}', change, name, float(severity), 'severity', repeat=int(seed))


def TRANSFORM(step: Mapping) -> None:
    """Builds a step, so that a wrong value is refused before anything is computed."""
    from vitplug.registry import TRANSFORMS

    TRANSFORMS.build(dict(step))


def field(ratio: str) -> Condition:
    """Receptive field calibration: ``field:1.12``. Refiner, Table 5; the crop is ``ratio`` of the short side."""

    def change(run: Run) -> Run:
        kept = [step for step in run.pipeline if not RESIZES.fullmatch(str(step['type']))]
        if len(kept) == len(run.pipeline):
            raise ValueError(f'field:{ratio}: {run.label} has no resize or crop in its test pipeline to replace')
        height, width = run.inputs(run.batch(run.images[:1])).shape[-2:]
        if height != width:
            raise ValueError(f'field:{ratio}: the images of {run.label} are {height} x {width}: expected squares')
        step = dict(type='vitplug.CalibrateReceptiveField', ratio=float(ratio), size=height)
        return run.changed(pipeline=[*kept[:-1], step, kept[-1]])

    unit = 'ratio of the crop to the resized short side'
    return Condition(f'field calibrated, ratio {ratio}', change, 'calibrated field', float(ratio), unit)


# --- attack ---


def gradient_sign(run: Run, pixels: Tensor, labels: Tensor) -> Tensor:
    """The sign of the gradient of the cross entropy with respect to the pixels.

    Raises:
        ValueError: If an image has a gradient of zero everywhere: an attack would do nothing.
    """
    with torch.enable_grad():
        pixels = pixels.detach().requires_grad_()
        loss = F.cross_entropy(run.logits(pixels), labels, reduction='sum')
        [gradient] = torch.autograd.grad(loss, pixels)
    if dead := int((~gradient.flatten(1).any(1)).sum()):
        raise ValueError(f'fgsm: {run.label}: the gradient of {dead} of {len(gradient)} images is zero everywhere')
    return gradient.sign()


def fgsm(epsilon: str, target: str = '') -> Condition:
    """One step of the gradient's sign: ``fgsm:1/255``, or ``fgsm:calibrate:27.2`` for the top-1 of the first model.

    Goodfellow et al. 2015; CB, Table 8. Pixels from 0 to 1, clipped, the normalisation inside the model. A calibrated
    size is found by bisection on the first model, and used for all.
    """
    if epsilon == 'calibrate':
        return Condition(f'FGSM, calibrated to {target}', _Calibrated(float(target)))
    size = float(Fraction(epsilon))
    if not 0 < size <= 1:
        raise ValueError(f'fgsm:{epsilon}: expected above 0 and at most 1, such as 4/255: pixels are from 0 to 1')
    name = f'FGSM, epsilon {255 * size:.6g}/255'
    return Condition(name, lambda run: _attacked(run, size), 'FGSM', 255 * size, 'epsilon, in 1/255')


def _attacked(run: Run, epsilon: float) -> Run:
    if run.library != 'mmpretrain':
        raise ValueError(f'fgsm: {run.label} is no classifier')

    def attack(run: Run, pixels: Tensor, labels: Tensor) -> Tensor:
        return (pixels + epsilon * gradient_sign(run, pixels, labels)).clamp(0, 1)

    return run.changed(attack=attack)


class _Calibrated:
    """FGSM of the size at which the first model that it meets has a top-1 accuracy."""

    def __init__(self, target: float):
        self.target, self.epsilon, self.reached = target, None, None

    def __call__(self, run: Run) -> Run:
        if self.epsilon is None:
            self.epsilon, self.reached = self._bisected(run)
        return _attacked(run, self.epsilon)

    def _bisected(self, run: Run) -> tuple[float, float]:
        epsilons = [0.0, LOWEST]
        while epsilons[-1] < HIGHEST:
            epsilons.append(2 * epsilons[-1])
        accuracies = self._accuracies(run, epsilons)
        below = next((i for i, accuracy in enumerate(accuracies[1:], 1) if accuracy <= self.target), None)
        if accuracies[0] < self.target or below is None:
            raise ValueError(
                f'fgsm:calibrate:{self.target:g}: {run.label} has {accuracies[0]:.2f} without an attack and at least '
                f'{min(accuracies[1:]):.2f} up to {255 * HIGHEST:g}/255: choose an accuracy between them'
            )
        low, high = epsilons[below - 1], epsilons[below]
        best = min((abs(accuracies[i] - self.target), epsilons[i], accuracies[i]) for i in (below, below - 1))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            [accuracy] = self._accuracies(run, [middle])
            best = min(best, (abs(accuracy - self.target), middle, accuracy))
            low, high = (middle, high) if accuracy > self.target else (low, middle)
            if best[0] == 0:
                break
        return best[1:]

    @staticmethod
    def _accuracies(run: Run, epsilons: Sequence[float]) -> list[float]:
        """Top-1 under FGSM of some sizes; one gradient of each image serves all."""
        right, images = np.zeros(len(epsilons)), run.images
        for first in range(0, len(images), run.batch_size):
            pixels, labels = run.attackable(run.batch(images[first : first + run.batch_size]))
            sign = gradient_sign(run, pixels, labels)
            for at, epsilon in enumerate(epsilons):
                with torch.no_grad():
                    logits = run.logits((pixels + epsilon * sign).clamp(0, 1))
                right[at] += int((logits.argmax(1) == labels).sum())
        return (100 * right / len(images)).tolist()


# --- weights and intermediates ---


def reset(kind: str) -> Condition:
    """Positions drawn again on a copy: ``reset:ape``. GAB, Figure 4; kinds: see :data:`.quantities.reset.RESETS`."""

    def change(run: Run) -> Run:
        model, _ = reset_copy(run.model, kind)
        return run.changed(model=model)

    return Condition(f'reset {kind}', change)


EDIT_KINDS = ('zero', 'mean', 'shuffled', 'self', 'all')


def edit(place: str, block: str, which: str, kind: str = 'zero', control: str = '') -> Condition:
    """An edit of intermediates: ``edit:head:3:0:zero``, ``edit:token:3:class:mean``, ``edit:branch:3:mlp:zero``.

    Places: ``head`` (by number), ``map`` (the attention of a head goes to ``self`` or ``all``), ``token`` (``class``,
    ``longest`` or ``random`` patch of a block's output) and ``branch`` (``attn``, ``mlp``). Kinds: ``zero``, ``mean``
    (over up to 32 other images), ``shuffled``. A fifth part, ``control``, makes a change of the same size in a random
    direction. Michel et al. 2019 for heads without output.
    """
    names = dict(head='heads', map='maps', token='block', branch=which)
    if place not in names or kind not in EDIT_KINDS or control not in ('', 'control'):
        raise ValueError(
            f'edit:{place}:{block}:{which}:{kind}: expected a place of {", ".join(names)}, a kind of '
            f'{", ".join(EDIT_KINDS)}, and "control" or nothing'
        )
    name, layer = names[place], int(block)

    def edits(run: Run, index: int) -> Edits:
        chosen: dict = {}
        if place in ('head', 'map'):
            chosen = dict(heads=[int(which)])
        elif place == 'token':
            chosen = dict(tokens=[_token(run, index, layer, which)])
        seed = int(digest(run.image_key(index), block, which), 16) % 2**31
        made = _edit(run, index, name, layer, kind, seed, chosen)
        if control:
            made = editing.random_control(made, seed, of_maps=name == 'maps')
        return {name: {layer: made}}

    title = f'{place} {which} of block {block}: {kind}' + (', control' if control else '')
    return Condition(title, lambda run: run.changed(edits=edits), f'{place} {which}, {kind}', layer, 'block')


def _edit(run: Run, index: int, name: str, layer: int, kind: str, seed: int, chosen: Mapping):
    if kind == 'zero':
        return editing.zero(**chosen)
    if kind == 'shuffled':
        return editing.shuffled(seed, chosen.get('heads'))
    if kind in (editing.SELF, editing.ALL):
        return editing.redirected(kind, chosen.get('heads'))
    return editing.mean(_means(run, index, name, layer), **chosen)


@torch.no_grad()
def _means(run: Run, index: int, name: str, layer: int) -> editing.TokenMeans:
    """The mean of an intermediate over other images."""
    kept = run.cache.setdefault(('means', name), {})
    images = run.images
    chosen = [
        images[at] for at in np.linspace(0, len(images) - 1, min(REFERENCES + 1, len(images))).round().astype(int)
    ]
    others = [other for other in chosen if other != index][:REFERENCES]
    if not others:
        raise ValueError('edit: a mean over other images needs two images or more')
    for other in others:
        if other not in kept:
            kept[other] = run.backbone.forward_intermediates(run.inputs(run.batch([other])), (name,), reduce=_mean_of)[
                1
            ]
    return editing.TokenMeans.joined(kept[other][name][layer] for other in others)


def _mean_of(name: str, tensor: Tensor, site) -> editing.TokenMeans:
    means = editing.TokenMeans()
    means.add(tensor, site)
    return means


@torch.no_grad()
def _token(run: Run, index: int, layer: int, which: str) -> int:
    """The number of an edited token of a block's output."""
    kept = run.cache.setdefault('token', {})
    inputs = run.inputs(run.batch([index]))
    prefix = run.place(layer, tuple(inputs.shape[-2:])).layout.num_prefix
    if which == 'class':
        if not run.has_class_token:
            raise ValueError(f'edit:token: {run.label} has no class token')
        return 0
    if index not in kept:
        kept[index] = run.backbone.forward_intermediates(inputs, ('block',), reduce=lambda n, t, s: token_norms(t)[0])[
            1
        ]
    norms_N = kept[index]['block'][layer][prefix:]
    if which == 'longest':
        return prefix + int(norms_N.argmax())
    return prefix + int(digest(run.image_key(index), str(layer)), 16) % len(norms_N)


# --- other images and labels ---


def imagenet_a(*folder: str) -> list[Condition]:
    """ImageNet-A, and the clean images of its 200 classes: ``imagenet-a:DIR``. CB, Table 8."""
    classes = [int(index) for index in _timm_file('imagenet_a_indices.txt').split()]
    root = _folder(folder, _timm_file('imagenet_a_synsets.txt').split(), 'imagenet-a')

    def clean(run: Run) -> Run:
        return _imagenet(run, 'imagenet-a').changed(truth=Truth(among=classes))

    def other(run: Run) -> Run:
        truth = Truth(class_of=classes, among=classes)
        return _imagenet(run, 'imagenet-a').changed(source=_class_folders(root), truth=truth)

    name = 'clean, the 200 classes of ImageNet-A'
    return [Condition(name, clean, own_images=True), Condition('ImageNet-A', other, own_images=True)]


def imagenet_v2(*folder: str) -> Condition:
    """A set of ImageNet-V2: ``imagenet-v2:DIR``. CB, Table 6."""
    order = sorted(map(str, range(IMAGENET_CLASSES)))  # folders are classes by number, sorted as text
    root = _folder(folder, order, 'imagenet-v2')

    def change(run: Run) -> Run:
        truth = Truth(class_of=[int(name) for name in order])
        return _imagenet(run, 'imagenet-v2').changed(source=_class_folders(root), truth=truth)

    return Condition(f'ImageNet-V2, {root.name}', change, own_images=True)


def real() -> Condition:
    """ImageNet-ReaL, labels for the validation images: ``real``. CB, Table 6; Refiner, Table 7.

    Images without a label are left out; a prediction is right if it is one of the labels.
    """
    labels = json.loads(_timm_file('imagenet_real_labels.json'))
    sets = {f'ILSVRC2012_val_{number:08d}.JPEG': label for number, label in enumerate(labels, 1)}

    def change(run: Run) -> Run:
        infos = map(_imagenet(run, 'real').dataset.get_data_info, run.images)
        unknown = [name for info in infos if (name := Path(info.get('img_path', 'none')).name) not in sets]
        if unknown:
            raise ValueError(f'real: labels the validation images of ImageNet, and the data have {unknown[0]}')
        return run.changed(truth=Truth(sets=sets))

    return Condition('ImageNet-ReaL', change, own_images=True)


def _imagenet(run: Run, what: str) -> Run:
    classes = len(run.dataset.metainfo.get('classes') or ())
    if run.library != 'mmpretrain' or classes != IMAGENET_CLASSES:
        raise ValueError(f"{what}: needs a model of ImageNet's 1000 classes, and {run.label} has {classes}")
    return run


def _class_folders(root: Path) -> dict:
    return dict(type='mmpretrain.CustomDataset', data_root=str(root))


def _timm_file(name: str) -> str:
    try:
        return (files('timm.data') / '_info' / name).read_text()
    except ModuleNotFoundError as error:
        raise ImportError(f'the lists of ImageNet classes are in timm ({error}): pip install timm') from error


def _folder(parts: Sequence[str], expected: Sequence[str], name: str) -> Path:
    """A folder that has exactly the folders of some classes."""
    folder = Path(':'.join(parts))
    if not parts or not folder.is_dir():
        raise FileNotFoundError(f'{name}:{folder}: no such folder; expected {name}:DIR')
    there = {path.name for path in folder.iterdir() if path.is_dir()}
    if there != set(expected):
        wrong = sorted(there ^ set(expected))
        raise ValueError(f'{name}:{folder}: {len(wrong)} folders of classes are missing or unknown, such as {wrong[0]}')
    return folder


CONDITIONS: Mapping[str, Callable[..., Condition | list[Condition]]] = {
    'clean': lambda: CLEAN,
    'shift': shift,
    'shrink': shrink,
    'occlude': occlude,
    'noise': noise,
    'shot': shot,
    'blur': blur,
    'corruption': corruption,
    'field': field,
    'fgsm': fgsm,
    'reset': reset,
    'edit': edit,
    'imagenet-a': imagenet_a,
    'imagenet-v2': imagenet_v2,
    'real': real,
}


def conditions_of(texts: Sequence[str], repeats: int = 1) -> list[Condition]:
    """The conditions of a command line, the clean images first.

    Args:
        texts: Names with values, such as ``shift:right:15``, or a ``module:function`` of one's own.
        repeats: Draws of what is drawn.

    Raises:
        ValueError: If a condition is unknown, or its values are wrong; names it.
    """
    chosen = [CLEAN]
    for text in texts:
        name, *values = text.split(':')
        if name not in CONDITIONS:
            made = own(text, '--conditions', CONDITIONS)()
            source = digest(inspect.getsource(importlib.import_module(name)))
            several = made if isinstance(made, list) else [made]
            chosen += [replace(one, content=one.content + source) for one in several]
            continue
        try:
            made = CONDITIONS[name](*values)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise ValueError(f'--conditions {text}: {error}: {inspect.getdoc(CONDITIONS[name])}') from error
        for one in made if isinstance(made, list) else [made]:
            chosen += _repeated(one, name, values, repeats)
    unique = list({(one.name, one.repeat): one for one in chosen}.values())
    return unique


def _repeated(one: Condition, name: str, values: Sequence[str], repeats: int) -> list[Condition]:
    """Draws of a condition with further seeds, where it is drawn."""
    if one.repeat is None or repeats < 2:
        return [one]
    fixed = 2 if name == 'corruption' else 1
    return [CONDITIONS[name](*list(values)[:fixed], str(one.repeat + draw)) for draw in range(repeats)]


def own(text: str, option: str, known: Mapping) -> Callable:
    """A user's ``module:function``, also of the folder of the call.

    Raises:
        ValueError: If there is none, nor a known name; says the closest one.
    """
    module, _, function = text.partition(':')
    if os.getcwd() not in sys.path:  # a script's own folder is there, that of the call is not
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        advice = advice_for(module, known)
        raise ValueError(f'{option} {text}: there is none, nor a function {text} ({error}): {advice}') from error


def advice_for(name: str, known: Iterable[str]) -> str:
    """The closest known name, or all."""
    close = difflib.get_close_matches(name, known := list(known), n=1)
    return f'did you mean {close[0]}?' if close else f'choose from {", ".join(known)}'
