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
ENDINGS = ('.png', '.jpg', '.jpeg')
# Folders of a split's images and label maps, and the label of pixels without a class.
FORMS = (('{}', '{}annot', CLASSES), ('images/{}', 'annotations/{}', VOID))


def convert(source: Path, out: Path) -> None:
    """Writes the images and label maps of all splits. `vitplug check` finds wrong sizes and labels in the result.

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
    pictures, maps = (
        {split: {path.stem: path for path in files_in(source / folder.format(split), *endings)} for split in SPLITS}
        for folder, endings in ((images, ENDINGS), (annotations, ('.png',)))  # a label map of another kind is damaged
    )
    for split in SPLITS:
        if not pictures[split]:
            raise FileNotFoundError(f'{source}: {split} has no images')
        if lonely := sorted(pictures[split].keys() ^ maps[split].keys()):
            raise ValueError(
                f'{source}: {split}: {lonely[0]} and so {len(lonely)} in all have no image or no label map'
            )
    for split in SPLITS:
        for name, path in pictures[split].items():
            labels = read_image(maps[split][name])
            labels[labels == void] = VOID
            write_png(out / 'images' / split / f'{name}.png', read_image(path, 'RGB'))
            write_png(out / 'annotations' / split / f'{name}.png', labels)
        print(f'{split}: {len(pictures[split])} images in {out / "images" / split}')
