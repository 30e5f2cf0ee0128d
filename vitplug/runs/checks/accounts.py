"""From the files of a data set to what a training gets: what the libraries keep, and what they leave out and why.

Shared by `vitplug check`, `vitplug new` and the first lines of a training. Counts follow the code that loads: mmdet's
`CocoDataset.parse_data_info` and `filter_data`, mmseg's `BaseSegDataset.load_data_list`, mmpretrain's `CustomDataset`.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from PIL import Image

from vitplug.files.folders import IMAGE_SUFFIXES, names_in
from vitplug.files.orientation import Header, header_of, misplaced, remedy

T = TypeVar('T')
OBJECTS, IMAGES = 'objects', 'images'
LOSSY = ('.jpg', '.jpeg', '.webp')
# Images whose headers a training looks at in its first lines, evenly spaced; `vitplug check` looks at all.
SAMPLED = 100
# What each entry of a COCO file needs.
NEEDED = dict(
    images=('id', 'file_name', 'width', 'height'),
    categories=('id', 'name'),
    annotations=('id', 'image_id', 'category_id', 'bbox', 'area'),
)


@dataclass
class Account:
    """What a data set keeps of its files, and what it leaves out.

    Attributes:
        kept: Numbers of :data:`OBJECTS` and :data:`IMAGES`.
        lost: Number, and the first one, by what and reason.
    """

    kept: Counter
    lost: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def count(self, what: str, reason: str | None, example: object) -> None:
        """Counts one as kept, or as left out for a reason."""
        if reason is None:
            self.kept[what] += 1
        else:
            number, first = self.lost.get((what, reason), (0, str(example)))
            self.lost[what, reason] = number + 1, first

    def __str__(self) -> str:
        kept = ', '.join(f'{number:,} {what}' for what, number in self.kept.items())
        lost = '; '.join(
            f'{number:,} {what} {reason}, e.g. {first}'
            for (what, reason), (number, first) in sorted(self.lost.items(), key=lambda one: -one[1][0])
        )
        return f'{kept} kept' + (f'; left out: {lost}' if lost else '')

    def check(self, place: str) -> None:
        """Checks that something is left to learn from.

        Raises:
            ValueError: If nothing is; says why each is left out.
        """
        for what, number in self.kept.items():
            if not number:
                raise ValueError(f'{place}: no {what} are left. {self}')


# --- COCO files ---


def account_coco(content: Mapping, classes: Sequence[str] | None, filters: Mapping, tested: bool) -> Account:
    """Counts what mmdet keeps of a COCO file; one of a test may have no annotations.

    Args:
        content: The file's.
        classes: Names of the classes; None for all categories.
        filters: `filter_cfg` of the data set, which counts unless it is ``tested`` (`test_mode`).
        tested: See ``filters``.
    """
    account = Account(Counter({OBJECTS: 0, IMAGES: 0} if 'annotations' in content else {IMAGES: 0}))
    images = {image['id']: image for image in content['images']}
    known = {one['id'] for one in content['categories'] if classes is None or one['name'] in classes}
    with_objects = set()
    for annotation in content.get('annotations', ()):
        image = images.get(annotation['image_id'])
        if image is not None and annotation['category_id'] in known:
            with_objects.add(image['id'])
        account.count(OBJECTS, _lost_object(annotation, image, known), f'annotation {annotation["id"]}')
    for image in images.values():
        reason = None if tested else _lost_image(image, image['id'] in with_objects, filters)
        account.count(IMAGES, reason, image['file_name'])
    return account


def _lost_object(annotation: Mapping, image: Mapping | None, known: set) -> str | None:
    """Why an object is not learnt; None if it is."""
    if image is None:
        return 'of an image that is not in the file'
    if annotation['category_id'] not in known:
        return 'of a category that is no class'
    if annotation.get('ignore'):
        return 'marked ignore'
    x, y, width, height = box = annotation['bbox']
    if min(box) >= 0 and max(x + width, y + height) <= 1:
        return 'with a box in 0..1, where pixels are expected: multiply by width and height of the image'
    if width < 1 or height < 1:
        return 'narrower than a pixel'
    if min(x + width, image['width']) <= max(x, 0) or min(y + height, image['height']) <= max(y, 0):
        return 'outside of the image'
    if annotation['area'] <= 0:
        return 'with an area of zero or less'
    return 'marked iscrowd' if annotation.get('iscrowd') else None


def _lost_image(image: Mapping, has_objects: bool, filters: Mapping) -> str | None:
    if filters.get('filter_empty_gt') and not has_objects:
        return 'without objects (filter_cfg.filter_empty_gt)'
    smallest = filters.get('min_size', 0)
    small = min(image['width'], image['height']) < smallest
    return f'with a side below {smallest} pixels (filter_cfg.min_size)' if small else None


def check_coco(content: Mapping, file: str, scored: bool = False) -> None:
    """Checks the form of a COCO file.

    Args:
        content: The file's.
        file: Its path, for messages.
        scored: Whether a metric of pycocotools reads it.

    Raises:
        ValueError: Names what is wrong and what to do.
    """
    if not isinstance(content, Mapping) or not all(isinstance(content.get(key, []), list) for key in NEEDED):
        raise ValueError(f'{file} is no COCO file: expected lists of images, annotations and categories')
    entries = {key: content.get(key, []) for key in NEEDED}
    for key, fields in NEEDED.items():
        for entry in entries[key]:
            missing = [name for name in fields if not isinstance(entry, Mapping) or name not in entry]
            if missing:
                raise ValueError(f'{file}: an entry of {key} lacks {", ".join(missing)}: {str(entry)[:80]}')
        for name in (name for name in fields if name.endswith('id')):
            _check_numbers([entry[name] for entry in entries[key]], name, key, file)
    ids = [annotation['id'] for annotation in entries['annotations']]
    wrong = [number for number in ids if number < 1]
    if scored and wrong:
        raise ValueError(
            f'{file}: annotation id {wrong[0]}: pycocotools matches whole numbers from 1 on only (0 counts as no '
            f'match, {len(wrong)} of {len(ids)} are wrong): number the annotations from 1'
        )
    for annotation in entries['annotations']:
        box = annotation['bbox']
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_finite, box)):
            raise ValueError(f'{file}, annotation {annotation["id"]}: bbox {box}: expected four finite numbers')
    if twice := _repeated([category['name'] for category in entries['categories']]):
        raise ValueError(
            f'{file}: several categories are named {twice[0]!r}, and mmdet finds labels by names: give each a name of '
            'its own, in this and in the files of the other splits'
        )


def _is_finite(number: object) -> bool:
    return isinstance(number, int | float) and math.isfinite(number)


def _check_numbers(values: Sequence, name: str, key: str, file: str) -> None:
    texts = [value for value in values if not isinstance(value, int)]
    if texts:
        raise ValueError(
            f'{file}: {len(texts)} of {len(values)} {name}s of {key} are no whole numbers, e.g. {texts[0]!r}, and '
            'match no others: write whole numbers everywhere'
        )
    if name == 'id' and (twice := _repeated(values)):
        raise ValueError(f'{file}: id {twice[0]} occurs more than once in {key}: give each its own')


def _repeated(values: Sequence) -> list:
    return [value for value, times in Counter(values).items() if times > 1]


# --- folders ---


def account_maps(images: tuple[Path, str], maps: tuple[Path, str], turned: Sequence[str] = ()) -> Account:
    """Counts the images of mmseg's folders that have a label map, and what lies beside them.

    Args:
        images: Folder and file name ending of the images.
        maps: The same of the label maps.
        turned: Formats of images that are turned by EXIF when they are loaded.

    Raises:
        ValueError: If label maps are of a lossy format, or an image has no label map or one of another size.
    """
    account = Account(Counter({IMAGES: 0}))
    if maps[1].lower().endswith(LOSSY):
        raise ValueError(
            f'label maps *{maps[1]} in {maps[0]}: JPEG changes the labels of pixels: save them as PNG from the source '
            '(a JPEG that is saved as PNG keeps the damage)'
        )
    names, labels = names_in(images[0]), {name for name in names_in(maps[0]) if name.endswith(maps[1])}
    partners = {name: f'{name[: len(name) - len(images[1])]}{maps[1]}' for name in names if name.endswith(images[1])}
    lonely = [name for name, partner in partners.items() if partner not in labels]
    if lonely:
        raise ValueError(
            f'{lonely[0]} and so {len(lonely)} of {len(partners)} images have no label map: images *{images[1]} in '
            f'{images[0].absolute()}, label maps *{maps[1]} in {maps[0].absolute()}: add them, or set img_suffix and '
            f'seg_map_suffix to the endings of the files{_similar(lonely[0], labels)}'
        )
    for name in names:
        if name in partners or name.lower().endswith(IMAGE_SUFFIXES):
            other = f'whose names do not end in {images[1]}, as img_suffix says'
            account.count(IMAGES, None if name in partners else other, name)
    for name in sorted(labels - {*partners.values()}):
        account.count('label maps', 'without an image', name)
    for name, partner in sampled([*partners.items()]):
        check_image(images[0] / name, loaded_size(maps[0] / partner, ()), turned)
    return account


def account_classes(folder: Path, extensions: Sequence[str]) -> Account:
    """Counts the images that mmpretrain finds in class folders.

    Raises:
        ValueError: If a hidden folder would become a class.
    """
    account = Account(Counter({IMAGES: 0}))
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    hidden = [name for name in classes if name.startswith('.')]
    if hidden:
        raise ValueError(f'{folder} has the hidden folder {hidden[0]}, which mmpretrain takes for a class: remove it')
    endings, found = tuple(ending.lower() for ending in extensions), set()
    for name in names_in(folder):
        if not name.lower().endswith(endings):
            account.count('files', f'of another ending than {", ".join(endings)}', name)
        elif '/' not in name:
            account.count(IMAGES, 'outside of the class folders', name)
        else:
            account.count(IMAGES, None, name)
            found.add(name.partition('/')[0])
    for name in sorted({*classes} - found):
        account.count('classes', 'without an image', name)
    return account


def check_label_list(path: Path, num_classes: int | None) -> None:
    """Checks a text file with a line `path label` for each image.

    Raises:
        ValueError: Names the first line without a label, or with one that is no class.
    """
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), start=1):
        label = line.strip().rpartition(' ')[2]
        if not label.isdecimal() or ' ' not in line.strip():
            raise ValueError(f'{path}, line {number} is not a path and a label: {line[:80]!r}')
        if num_classes is not None and int(label) >= num_classes:
            raise ValueError(
                f'{path}, line {number}: label {label} is none of the {num_classes} classes, 0 to {num_classes - 1}'
            )


# --- files that annotations name ---


def sampled(items: Sequence[T]) -> Sequence[T]:
    """The items that a training looks at, evenly spaced."""
    return items[:: max(1, math.ceil(len(items) / SAMPLED))]


def check_image(path: Path, annotated: tuple[int, int] | None, turned: Sequence[str]) -> None:
    """Looks at the header of an image.

    Args:
        path: The image.
        annotated: The (width, height) that annotations give; None if they give none.
        turned: Formats that are turned by EXIF when they are loaded.

    Raises:
        FileNotFoundError: If it is missing; names a file of a similar name.
        ValueError: If it has another size than annotated.
    """
    if not path.is_file():
        there = {file.name for file in path.parent.iterdir()} if path.parent.is_dir() else set()
        raise FileNotFoundError(f'no such image: {path}{_similar(str(path), there)}')
    if fault := size_fault(path, annotated, turned):
        raise ValueError(f'{path} has {fault}')


def size_fault(path: Path, annotated: tuple[int, int] | None, turned: Sequence[str]) -> str:
    """How an image as loaded differs from the annotated (width, height), and what to do; '' if it does not."""
    header = _header(path)
    if header is None or annotated is None or header.loaded_size(header.format in turned) == annotated:
        return ''
    turns = header.format in turned
    (width, height), (told_width, told_height) = header.loaded_size(turns), annotated
    how = 'annotate the images that are loaded'
    if misplaced(header, annotated, turns):
        how = f'EXIF turns it: {remedy(turns)}'
    elif (width, height) == (told_height, told_width):
        how = 'width and height are swapped'
    elif width * told_height == height * told_width:
        how = f'the annotations are of images {told_width / width:g} times as large; scale one of the two'
    return f'{width} x {height} pixels as loaded, and is annotated as {told_width} x {told_height}: {how}'


def loaded_size(path: Path, turned: Sequence[str]) -> tuple[int, int] | None:
    """Width and height of an image as loaded, by its header; None for a format that Pillow does not know."""
    header = _header(path)
    return None if header is None else header.loaded_size(header.format in turned)


def _header(path: Path) -> Header | None:
    try:
        with Image.open(path) as image:
            return header_of(image)
    except (OSError, Image.DecompressionBombError):
        return None


def _similar(name: str, there: set[str]) -> str:
    """Says how a file is called that a missing name most likely means; '' if there is none."""
    plain = unicodedata.normalize('NFC', name).replace('\\', '/').lower()
    for other in there:
        if plain.endswith(unicodedata.normalize('NFC', other).lower()):
            why = 'a backslash separates no folders here' if '\\' in name else 'capitals or the Unicode form differ'
            return f'; there is {other} ({why}): write the name as the file has it'
    return ''
