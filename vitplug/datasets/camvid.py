"""CamVid, 701 road scenes with 11 classes: from the forms in which it is shared to the layout that mmseg reads.

Two forms are known. SegNet's has folders ``train``, ``trainannot``, ``val``, ``valannot``, ``test`` and ``testannot``
of PNG files, with label 11 for void. The other one has ``images/SPLIT`` and ``annotations/SPLIT``, with label 255 for
void. The result has the second form, with PNG files alone.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitplug.files.folders import files_in

from .converting import opened, write_png

SPLITS = ('train', 'val', 'test')
CLASSES = 11
VOID = 255
SUFFIXES = ('.png', '.jpg', '.jpeg')


@dataclass(frozen=True)
class Form:
    """A form in which CamVid is shared.

    Attributes:
        images: Folder of the images of a split.
        maps: Folder of its label maps.
        void: Label of pixels without a class.
    """

    images: str
    maps: str
    void: int

    def folders(self, root: Path, split: str) -> tuple[Path, Path]:
        """Folders of the images and of the label maps."""
        return root / self.images.format(split), root / self.maps.format(split)


FORMS = (Form('{}', '{}annot', 11), Form('images/{}', 'annotations/{}', VOID))
MADE = FORMS[1]


def convert(source: str | os.PathLike, out: str | os.PathLike, log: Callable[[str], object] = print) -> Path:
    """Writes the images and label maps of all splits.

    All label maps are checked before the first file is written. Files that are complete already are left alone, so a
    stopped call goes on.

    Args:
        source: Folder in one of the two forms.
        out: Folder to make.
        log: Called with a line for each split.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: If the folder has neither form; names the folders that are missing.
        ValueError: If an image has no label map or the other way round, sizes differ, or a label is no class.
        FileExistsError: If a file of the result exists with another content.
    """
    source, out = Path(source), Path(out)
    form = _form(source)
    pairs = {split: list(_pairs(*form.folders(source, split))) for split in SPLITS}
    for split in SPLITS:
        for image, label in pairs[split]:
            _labels(image, label, form)
    for split in SPLITS:
        images, maps = MADE.folders(out, split)
        for image, label in pairs[split]:
            write_png(images / f'{image.stem}.png', np.array(opened(image).convert('RGB')))
            write_png(maps / f'{image.stem}.png', _labels(image, label, form))
        log(f'{split}: {len(pairs[split])} images in {images}')
    return out


def _form(source: Path) -> Form:
    missing = []
    for form in FORMS:
        lacking = [path for split in SPLITS for path in form.folders(source, split) if not path.is_dir()]
        if not lacking:
            return form
        missing.append(f'{form.images.format("SPLIT")} and {form.maps.format("SPLIT")} (no {lacking[0]})')
    raise FileNotFoundError(
        f'{source}: expected the folders {", or ".join(missing)}, for the splits {", ".join(SPLITS)}'
    )


def _pairs(images: Path, maps: Path) -> Iterator[tuple[Path, Path]]:
    """The images of a split with their label maps, by name."""
    pictures = {path.stem: path for path in files_in(images, *SUFFIXES)}
    labels = {path.stem: path for path in files_in(maps, '.png')}
    lonely = sorted(pictures.keys() ^ labels.keys())
    if lonely or not pictures:
        raise ValueError(
            f'{images} has {len(pictures)} images and {maps} {len(labels)} label maps'
            + (f'; without a partner: {", ".join(lonely[:3])}' if lonely else '')
        )
    yield from ((pictures[name], labels[name]) for name in pictures)


def _labels(image: Path, path: Path, form: Form) -> np.ndarray:
    """A label map with :data:`VOID` for void, checked."""
    labels = np.array(opened(path))
    if labels.ndim != 2 or labels.dtype != np.uint8:
        raise ValueError(f'{path}: expected a label map of one channel of 8 bit, got {labels.dtype} {labels.shape}')
    unknown = np.setdiff1d(labels, [*range(CLASSES), form.void])
    if len(unknown):
        raise ValueError(f'{path}: label {unknown[0]} is none of 0 to {CLASSES - 1}, nor {form.void} for void')
    size = opened(image).size
    if size != labels.shape[::-1]:
        raise ValueError(f'{path} has {labels.shape[1]} x {labels.shape[0]} pixels, its image {size[0]} x {size[1]}')
    return np.where(labels == form.void, VOID, labels).astype(np.uint8)
