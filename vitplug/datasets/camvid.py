"""CamVid, 701 road scenes with 11 classes: from SegNet's form to the layout that mmseg reads.

SegNet's form has folders ``train``, ``trainannot``, ``val``, ``valannot``, ``test`` and ``testannot`` of PNG files;
void has the label 11. The result has ``images/SPLIT`` and ``annotations/SPLIT``; void has the label 255.
"""

from pathlib import Path

from vitplug.files.folders import files_in

from .converting import check_empty, read_image, write_png

SPLITS = ('train', 'val', 'test')
CLASSES = 11
VOID = 255


def convert(source: Path, out: Path) -> None:
    """Writes the images and label maps of all splits. `vitplug check` finds wrong sizes and labels in the result.

    Raises:
        FileNotFoundError: If a split has no images.
        ValueError: If an image has no label map or the other way round.
        FileExistsError: If the result has files.
    """
    check_empty(out)
    pairs = {split: pairs_of(source, split) for split in SPLITS}
    for split, files in pairs.items():
        for image, label_map in files:
            labels = read_image(label_map)
            labels[labels == CLASSES] = VOID
            write_png(out / 'images' / split / f'{image.stem}.png', read_image(image, 'RGB'))
            write_png(out / 'annotations' / split / f'{image.stem}.png', labels)
        print(f'{split}: {len(files)} images in {out / "images" / split}')


def pairs_of(source: Path, split: str) -> list[tuple[Path, Path]]:
    """The images of a split with their label maps; errors are those of :func:`convert`."""
    images, maps = (files_in(source / folder, '.png') for folder in (split, f'{split}annot'))
    if not images:
        raise FileNotFoundError(f'{source}: expected PNG files in {split} and {split}annot')
    if lonely := sorted({path.stem for path in images} ^ {path.stem for path in maps}):
        raise ValueError(f'{source}: {split}: {lonely[0]} and so {len(lonely)} in all have no image or no label map')
    return list(zip(images, maps, strict=True))
