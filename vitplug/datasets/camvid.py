"""CamVid, 701 road scenes with 11 classes: from the forms in which it is shared to the layout that mmseg reads.

Two forms are known. SegNet's has folders ``train``, ``trainannot``, ``val``, ``valannot``, ``test`` and ``testannot``
of PNG files, with label 11 for void. The other one has ``images/SPLIT`` and ``annotations/SPLIT``, with label 255 for
void. The result has the second form, with PNG files alone.
"""

from pathlib import Path

from vitplug.files.folders import files_in

from .converting import check_empty, read_image, write_png

SPLITS = ('train', 'val', 'test')
CLASSES = 11
VOID = 255
# Folders of a split's images and label maps, and the label of pixels without a class.
FORMS = (('{}', '{}annot', CLASSES), ('images/{}', 'annotations/{}', VOID))


def convert(source: Path, out: Path) -> None:
    """Writes the images and label maps of all splits. `vitplug check` finds wrong sizes and labels in the result.

    Args:
        source: Folder in one of the two forms.
        out: Folder to make.

    Raises:
        FileNotFoundError: If the folder has neither form.
        ValueError: If an image has no label map or the other way round.
        FileExistsError: If the result has files.
    """
    check_empty(out)
    form = next((form for form in FORMS if all((source / form[1].format(split)).is_dir() for split in SPLITS)), None)
    if form is None:
        raise FileNotFoundError(
            f'{source}: expected the folders trainannot, valannot and testannot, or annotations/train, val and test'
        )
    images, annotations, void = form
    pairs = {split: pairs_of(source / images.format(split), source / annotations.format(split)) for split in SPLITS}
    for split, found in pairs.items():
        for image, path in found:
            labels = read_image(path)
            write_png(out / 'images' / split / f'{image.stem}.png', read_image(image, 'RGB'))
            labels[labels == void] = VOID
            write_png(out / 'annotations' / split / f'{image.stem}.png', labels)
        print(f'{split}: {len(found)} images in {out / "images" / split}')


def pairs_of(images: Path, maps: Path) -> list[tuple[Path, Path]]:
    """The images of a split with their label maps, by name."""
    pictures = {path.stem: path for path in files_in(images, '.png', '.jpg', '.jpeg')}
    labels = {path.stem: path for path in files_in(maps, '.png')}
    if pictures.keys() != labels.keys() or not pictures:
        lonely = sorted(pictures.keys() ^ labels.keys())[:3]
        raise ValueError(
            f'{images} has {len(pictures)} images and {maps} {len(labels)} label maps; without a partner: {lonely}'
        )
    return [(pictures[name], labels[name]) for name in pictures]
