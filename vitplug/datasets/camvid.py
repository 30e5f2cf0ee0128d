"""CamVid, 701 road scenes with 11 classes: from the forms in which it is shared to the layout that mmseg reads.

Two forms are known. SegNet's has folders ``train``, ``trainannot``, ``val``, ``valannot``, ``test`` and ``testannot``
of PNG files, with label 11 for void. The other one has ``images/SPLIT`` and ``annotations/SPLIT``, with label 255 for
void. The result has the second form, with PNG files alone.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from vitplug.files.folders import files_in

from .converting import check_empty, read_image, write_png

SPLITS = ('train', 'val', 'test')
CLASSES = 11
VOID = 255
# Folders of a split's images and label maps, and the label of pixels without a class.
FORMS = (('{}', '{}annot', CLASSES), ('images/{}', 'annotations/{}', VOID))


def convert(source: Path, out: Path, log: Callable[[str], object] = print) -> Path:
    """Writes the images and label maps of all splits; all label maps are checked before the first file is written.

    Args:
        source: Folder in one of the two forms.
        out: Folder to make.
        log: Called with a line for each split.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: If the folder has neither form.
        ValueError: If an image has no label map or the other way round, sizes differ, or a label is no class.
        FileExistsError: If the result has files.
    """
    check_empty(out)
    form = next((form for form in FORMS if all((source / form[1].format(split)).is_dir() for split in SPLITS)), None)
    if form is None:
        raise FileNotFoundError(
            f'{source}: expected the folders trainannot, valannot and testannot, or annotations/train, val and test'
        )
    pairs = {split: _pairs(source / form[0].format(split), source / form[1].format(split)) for split in SPLITS}
    for image, label in (pair for split in SPLITS for pair in pairs[split]):
        _labels(image, label, form[2])
    for split in SPLITS:
        for image, label in pairs[split]:
            write_png(out / 'images' / split / f'{image.stem}.png', read_image(image, 'RGB'))
            write_png(out / 'annotations' / split / f'{image.stem}.png', _labels(image, label, form[2]))
        log(f'{split}: {len(pairs[split])} images in {out / "images" / split}')
    return out


def _pairs(images: Path, maps: Path) -> list[tuple[Path, Path]]:
    """The images of a split with their label maps, by name."""
    pictures = {path.stem: path for path in files_in(images, '.png', '.jpg', '.jpeg')}
    labels = {path.stem: path for path in files_in(maps, '.png')}
    lonely = sorted(pictures.keys() ^ labels.keys())
    if lonely or not pictures:
        raise ValueError(
            f'{images} has {len(pictures)} images and {maps} {len(labels)} label maps'
            + (f'; without a partner: {", ".join(lonely[:3])}' if lonely else '')
        )
    return [(pictures[name], labels[name]) for name in pictures]


def _labels(image: Path, path: Path, void: int) -> np.ndarray:
    """A label map with :data:`VOID` for void, checked."""
    labels = read_image(path)
    if labels.ndim != 2 or labels.dtype != np.uint8:
        raise ValueError(f'{path}: expected a label map of one channel of 8 bit, got {labels.dtype} {labels.shape}')
    unknown = np.setdiff1d(labels, [*range(CLASSES), void])
    if len(unknown):
        raise ValueError(f'{path}: label {unknown[0]} is none of 0 to {CLASSES - 1}, nor {void} for void')
    size = read_image(image).shape[:2]
    if size != labels.shape:
        raise ValueError(f'{path} has {labels.shape[1]} x {labels.shape[0]} pixels, its image {size[1]} x {size[0]}')
    return np.where(labels == void, VOID, labels).astype(np.uint8)
