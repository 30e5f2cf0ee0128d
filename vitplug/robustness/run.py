"""Runs models under conditions; what is finished is kept, so that an interrupted run goes on."""

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from mmengine.dataset import BaseDataset
from tqdm import tqdm

from vitplug.analysis.study.store import Store
from vitplug.stacks import installed
from vitplug.statistics.images import Arrays, evenly_spaced

from .attacks import black_box_wins, check_model, correct, gradient
from .columns import Column
from .conditions import Condition
from .scores import SCORERS
from .suites import Options

CALIBRATION = 'calibration'
# Epsilons of a calibration, of pixels from 0 to 1, and its halvings.
LOWEST, HIGHEST, HALVINGS = 1 / 16 / 255, 64 / 255, 16


def choose_images(count: int, num: int | None) -> list[int]:
    """Numbers of evenly spaced images; all for None."""
    return evenly_spaced(count, num or count)


def named_images(column: Column, images: Sequence[int]) -> list[str]:
    """Images of a column's data by their files, or numbers, and classes."""
    infos = {index: column.dataset.get_data_info(index) for index in images}
    return [f'{Path(info.get("img_path", str(i))).name} {info.get("gt_label", "")}' for i, info in infos.items()]


def check_same_images(columns: Sequence[Column], num: int | None) -> list[int]:
    """The images of a run, which must be the same for all columns; only their names are looked at.

    Raises:
        ValueError: If the data are empty or differ; names a column.
    """
    first, *others = columns
    if not len(first.dataset):
        raise ValueError(f'{first.label}: the test data have no images')
    images = choose_images(len(first.dataset), num)
    expected = named_images(first, images)
    for other in others:
        if len(other.dataset) != len(first.dataset) or named_images(other, images) != expected:
            raise ValueError(
                f'{other.label}: its test data ({len(other.dataset)} images) are not those of {first.label} '
                f'({len(first.dataset)}): give configs with the same test_dataloader.dataset'
            )
    return images


def identity(columns: Sequence[Column], images: Sequence[int], seed: int, options: Options) -> dict:
    """What the numbers depend on besides the condition."""
    names = sha256(os.fsencode('\n'.join(named_images(columns[0], images)))).hexdigest()[:16]
    models = {
        column.label: dict(
            settings=sha256(column.cfg.pretty_text.encode()).hexdigest()[:16], checkpoint=column.sha256[:16]
        )
        for column in columns
    }
    version = installed(['vitplug']).get('vitplug')
    folders = [options.imagenet_a, *options.imagenet_v2, options.imagenet_c]
    return dict(
        vitplug=version,
        models=models,
        images=dict(number=len(images), names=names),
        folders=[str(folder.resolve()) for folder in folders if folder],
        seed=seed,
    )


def run(
    columns: Sequence[Column],
    conditions: Sequence[Condition],
    images: Sequence[int],
    seed: int,
    repeats: int,
    store: Store,
) -> None:
    """Does what is left to do, with a progress bar.

    Args:
        columns: The models.
        conditions: The tests.
        images: Numbers of the images of the configs' data.
        seed: Of what is drawn; repeats count on from it.
        repeats: Of conditions that are drawn.
        store: Where results are kept, by column, condition and repeat.
    """
    todo = [
        (condition, column, repeat)
        for condition in conditions
        for column in columns
        for repeat in range(repeats if condition.drawn else 1)
        if repeat not in store.units(column.label, condition.key)
    ]
    for condition, column, repeat in tqdm(todo, desc='testing', unit='test', mininterval=1.0, disable=None):
        store.add(column.label, condition.key, repeat, evaluate(column, condition, images, seed + repeat))
        store.save()


def evaluate(column: Column, condition: Condition, images: Sequence[int], seed: int) -> Arrays:
    """One test of one model."""
    dataset = data_of(column, condition, seed)
    if condition.folder is not None:
        images = choose_images(len(dataset), len(images))
    scorer = SCORERS[column.library](column, dataset, condition.truth)
    for batch in column.batches(dataset, images):
        scorer.add(column.predict(batch, condition.attack))
    return scorer.arrays()


def data_of(column: Column, condition: Condition, seed: int) -> BaseDataset:
    """The images of a condition, as a model gets them before an attack."""
    pipeline = condition.edit(column.pipeline, column, seed) if condition.edit else column.pipeline
    if condition.folder is not None:
        return column.in_folder(condition.folder, pipeline)
    return column.changed(pipeline) if condition.edit else column.dataset


def check_attacks(columns: Sequence[Column], conditions: Sequence[Condition], images: Sequence[int]) -> list[str]:
    """The five checks of the attacks, on the first batch.

    Returns:
        Remarks on attacks that random steps beat.

    Raises:
        ValueError: If a model cannot be attacked by its gradient; says why.
    """
    attacks = {condition.name: condition.attack for condition in conditions if condition.attack}
    remarks = []
    for column in columns if attacks else ():
        batch = next(column.batches(column.dataset, images))
        pixels, labels = column.attackable(batch)
        try:
            check_model(column.logits, pixels, labels)
        except ValueError as error:
            raise ValueError(f'{column.label}: {error}') from error
        for name, attack in attacks.items():
            if said := black_box_wins(column.logits, attack, pixels, labels, images[: len(labels)]):
                remarks.append(f'{column.label}, {name}: {said}')
    return remarks


def calibrate(column: Column, images: Sequence[int], target: float, store: Store) -> tuple[float, float]:
    """The epsilon of FGSM at which a model has a given top-1 accuracy; kept like a test.

    Args:
        column: The reference model.
        images: Numbers of the images.
        target: The accuracy, in points.
        store: Where it is kept.

    Returns:
        Epsilon, of pixels from 0 to 1, and the accuracy at it.

    Raises:
        ValueError: If no epsilon up to 64/255 gives it.
    """
    name = f'{CALIBRATION}-{target:g}'
    kept = store.units(column.label, name)
    if 0 not in kept:
        epsilon, accuracy = _bisect(column, images, target)
        store.add(column.label, name, 0, dict(epsilon=np.array(epsilon), accuracy=np.array(accuracy)))
        store.save()
    return float(kept[0]['epsilon']), float(kept[0]['accuracy'])


def _bisect(column: Column, images: Sequence[int], target: float) -> tuple[float, float]:
    epsilons = [LOWEST]
    while epsilons[-1] < HIGHEST:
        epsilons.append(2 * epsilons[-1])
    accuracies = _accuracies(column, images, [0.0, *epsilons])
    clean, *after = accuracies
    below = next((i for i, accuracy in enumerate(after) if accuracy <= target), None)
    if clean < target or below is None:
        raise ValueError(
            f'--calibrate {target:g}: {column.label} has {clean:.2f} without an attack and at least {min(after):.2f} '
            f'up to epsilon {255 * HIGHEST:g}/255: choose an accuracy between them'
        )
    low, high = ([0.0, *epsilons][below], epsilons[below])
    best = min(
        (abs(after[below] - target), high, after[below]), (abs(accuracies[below] - target), low, accuracies[below])
    )
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        [accuracy] = _accuracies(column, images, [middle])
        best = min(best, (abs(accuracy - target), middle, accuracy))
        low, high = (middle, high) if accuracy > target else (low, middle)
        if best[0] == 0:
            break
    return best[1:]


def _accuracies(column: Column, images: Sequence[int], epsilons: Sequence[float]) -> list[float]:
    """Top-1 accuracy under FGSM of some sizes; one gradient for each image serves all."""
    right, count = np.zeros(len(epsilons)), 0
    for batch in column.batches(column.dataset, images):
        pixels, labels = column.attackable(batch)
        sign = gradient(column.logits, pixels, labels).sign()
        for index, epsilon in enumerate(epsilons):
            right[index] += int(correct(column.logits, (pixels + epsilon * sign).clamp(0, 1), labels).sum())
        count += len(labels)
    return (100 * right / count).tolist()


def kept_repeats(store: Store, column: Column, condition: Condition, repeats: int) -> list[Arrays]:
    """The results of a condition, repeat by repeat."""
    kept: Mapping[int, Arrays] = store.units(column.label, condition.key)
    return [kept[repeat] for repeat in range(repeats if condition.drawn else 1)]
