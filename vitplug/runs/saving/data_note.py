"""What the training data hold, in short, so that a training goes on with the same: a sample's place depends on all."""

from collections.abc import Iterator, Mapping

from mmengine.logging import MMLogger

from vitplug.checkpoints.files import shown
from vitplug.config.data_files import Place, dataset_places
from vitplug.config.parts import loader_leaves
from vitplug.files.fingerprint import of_file, of_names
from vitplug.files.folders import names_in

# The entry of a checkpoint's `meta`.
NOTE = 'training_data'

Note = dict[str, dict[str, dict]]


def note_data(cfg, logger: MMLogger) -> Note:
    """What the files of the training data are: the content of lists, and the names of files where there is no list.

    The content of images does not count, so that a broken one may be mended; nor does it where the data lie.

    Args:
        cfg: The config.
        logger: Takes a warning about what cannot be read.

    Returns:
        By the place of a data set in the config and the name of a file or folder: a fingerprint, and the number of a
        folder's files. Data sets without files on this machine have none.
    """
    noted = {}
    for path, dataset in loader_leaves(cfg, 'train'):
        places = dataset_places(dataset, cfg.get('default_scope'), path)
        lists = [place for place in places if place.path.is_file()]
        noted[path] = {}
        for place in lists or places:
            try:
                noted[path][place.name] = _held_by(place)
            except (OSError, ValueError) as error:
                logger.warning(f'{place.key}: what it holds is not noted for --resume: {error}')
    return {path: prints for path, prints in noted.items() if prints}


def _held_by(place: Place) -> dict:
    if place.path.is_file():
        return dict(fingerprint=of_file(place.path))
    names = names_in(place.path, place.suffixes)
    return dict(fingerprint=of_names(names), files=len(names))


def compare_data(before: object, after: Note, cfg) -> Iterator[str]:
    """What the training data hold that they did not hold before, and the other way round.

    Args:
        before: The note in a checkpoint, which may be from anybody; a data set without one is not compared.
        after: The present one.
        cfg: The present config, which says where the data lie.

    Yields:
        A part of a message: the setting, the path, and what differs.
    """
    before = before if isinstance(before, Mapping) else {}
    places = {
        (path, place.name): place
        for path, dataset in loader_leaves(cfg, 'train')
        for place in dataset_places(dataset, cfg.get('default_scope'), path)
    }
    for path, current in after.items():
        noted = before.get(path)
        if not isinstance(noted, Mapping) or not noted:
            continue
        for name in {**noted, **current}:
            was, now = noted.get(name), current.get(name)
            if was != now:
                place = places.get((path, name))
                where = f'{place.key} ({place.path.absolute()})' if place else shown(f'{path}.{name}')
                yield f'{where} {_difference(was, now)}'


def _difference(was: object, now: dict | None) -> str:
    if now is None:
        return 'is not read any more'
    if not isinstance(was, Mapping):
        return 'was not read'
    if 'files' not in now:
        return 'has another content'
    if was.get('files') == now['files']:
        return f'has {now["files"]} files as before, but not of the same names'
    return f'has {now["files"]} files, and had {shown(str(was.get("files")))}'
