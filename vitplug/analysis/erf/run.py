"""Adds up the gradients of images, group by group; what is done is kept."""

from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from vitplug.analysis.measures.receptive_field import input_gradient
from vitplug.analysis.study.loaded import Loaded
from vitplug.analysis.study.places import ImagePlace
from vitplug.analysis.study.store import Store
from vitplug.analysis.study.subject import Subject
from vitplug.analysis.timm_models import TimmSubject
from vitplug.statistics.images import GROUPS

from .fields import Field

MEASURE = 'erf'


def groups(num_images: int) -> list[np.ndarray]:
    """Indices of the images whose sums are kept apart: what an interval over images is made of."""
    return np.array_split(np.arange(num_images), min(GROUPS, num_images))


def run(
    fields: Sequence[Field], subjects: Sequence[Subject | TimmSubject], paths: Sequence[ImagePlace], store: Store
) -> None:
    """Adds up the gradients that are still missing, with a progress bar; what is done is kept on an interruption.

    Args:
        fields: What is measured.
        subjects: The models.
        paths: The images.
        store: Where the sums of the groups of images are kept.

    Raises:
        Unreadable: If an image cannot be read any more.
    """
    todo = {field.label: _todo(store, field.label, len(paths)) for field in fields}
    total = sum(map(len, todo.values()))
    try:
        with tqdm(desc='receptive fields', total=total, unit='image', mininterval=1.0, disable=None) as bar:
            for index in sorted(set().union(*todo.values())):
                for subject in subjects:
                    wanted = [field for field in fields if field.subject is subject and index in todo[field.label]]
                    image = subject.load(paths[index]) if wanted else None
                    for field in wanted:
                        _add(store, field, todo[field.label][index], image)
                        bar.update()
                store.save_sometimes()
    finally:
        store.save()


def _todo(store: Store, label: str, num_images: int) -> dict[int, int]:
    """The images that are not in the sums, and the groups that they belong to. Groups are filled in order."""
    kept = store.units(label, MEASURE)
    return {
        int(index): number
        for number, group in enumerate(groups(num_images))
        for index in group[int(kept[number]['count']) if number in kept else 0 :]
    }


def _add(store: Store, field: Field, group: int, image: Loaded) -> None:
    gradient = input_gradient(field.features, image.inputs).double().cpu().numpy()
    kept = store.units(field.label, MEASURE).get(group, dict(total=0.0, count=0))
    unit = dict(total=kept['total'] + gradient, count=np.array(int(kept['count']) + 1))
    store.add(field.label, MEASURE, group, unit)
