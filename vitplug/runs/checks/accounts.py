"""What data sets take of their files, and what they leave out and why."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence

from mmengine.dataset import BaseDataset

from vitplug.files.folders import names_in

OBJECTS, IMAGES = 'objects', 'images'
LOSSY = ('.jpg', '.jpeg', '.webp')


class Account:
    """What a data set keeps of its files, and what it leaves out.

    Args:
        counted: What is counted, such as :data:`IMAGES`; of each, something has to be left.
    """

    def __init__(self, *counted: str):
        self.kept = Counter(dict.fromkeys(counted, 0))
        #: Examples, by what and reason.
        self.lost: dict[tuple[str, str], list[str]] = {}

    def count(self, what: str, reason: str | None, example: str) -> None:
        """Counts one as kept, or as left out for a reason."""
        if reason is None:
            self.kept[what] += 1
        else:
            self.lost.setdefault((what, reason), []).append(example)

    def __str__(self) -> str:
        kept = ', '.join(f'{number:,} {what}' for what, number in self.kept.items())
        lost = '; '.join(
            f'{len(names):,} {what} {reason}, e.g. {names[0]}'
            for (what, reason), names in sorted(self.lost.items(), key=lambda one: -len(one[1]))
        )
        return f'{kept} kept' + (f'; left out: {lost}' if lost else '')


def account_folders(dataset: BaseDataset, infos: Sequence[Mapping], images: str, maps: str | None) -> Account:
    """Compares what a data set lists with the files in its folders; ValueError for lossy or missing label maps."""
    # Both sides join names to folders in the same way; texts, for there may be a million.
    account, listed = Account(IMAGES), {info['img_path'] for info in infos}
    partners = {info['seg_map_path'] for info in infos} if maps else set()
    there = {os.path.join(maps, name) for name in names_in(maps)} if maps else set()
    if lossy := [path for path in partners if path.lower().endswith(LOSSY)]:
        raise ValueError(
            f'{lossy[0]}: JPEG changes the labels of pixels: save label maps as PNG from the source (a JPEG that is '
            'saved as PNG keeps the damage)'
        )
    if lonely := sorted(partners - there):
        raise ValueError(
            f'{len(lonely)} of {len(listed)} images have no label map, such as {os.path.abspath(lonely[0])}: add them, '
            f'or set img_suffix and seg_map_suffix ({dataset.img_suffix}, {dataset.seg_map_suffix}) to their endings'
        )
    for path in {os.path.join(images, name) for name in names_in(images)} - partners:
        other = None if path in listed else 'of another place or ending than the data set looks for'
        account.count(IMAGES if path in listed else 'files', other, os.path.basename(path))
    for path in there - partners - listed:
        account.count('label maps', 'without an image', os.path.basename(path))
    return account
