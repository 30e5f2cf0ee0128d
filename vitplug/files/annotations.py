"""Annotation files: checked to exist, to have content, and to be JSON where their name says so."""

import json
from pathlib import Path

from .limits import check_regular


def check_annotation_file(path: Path):
    """Checks that an annotation file exists and is not empty, and that JSON can be read and has images in it.

    Returns:
        The content of a JSON file, None for others.

    Raises:
        FileNotFoundError: if it is missing.
        ValueError: if it is empty or broken, or no regular file.
    """
    check_regular(path)
    if not path.is_file():
        raise FileNotFoundError(f'no such annotation file: {path.absolute()}')
    if path.stat().st_size == 0:
        raise ValueError(f'the annotation file is empty: {path.absolute()}')
    return _checked_json(path) if path.suffix == '.json' else None


def read_json(path: Path):
    """The content of a JSON file, in UTF-8 as the libraries' readers ask for it.

    Raises:
        PermissionError: if it may not be read.
        ValueError: names the file, if it is no JSON or lists in lists have no end.
    """
    try:
        text = path.read_bytes().decode()
        if text.startswith('\ufeff'):
            raise ValueError('it begins with a byte order mark: save it as UTF-8 without one')
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(
            f'the annotation file is not valid JSON: {path.absolute()} (it is not in UTF-8, byte {error.start}: save '
            'it as UTF-8 without a byte order mark)'
        ) from error
    except ValueError as error:
        raise ValueError(f'the annotation file is not valid JSON: {path.absolute()} ({error})') from error
    except RecursionError as error:
        raise ValueError(f'the annotation file is nested too deeply: {path.absolute()}') from error


def _checked_json(path: Path):
    content = read_json(path)
    if not isinstance(content, dict | list):
        raise ValueError(
            f'the annotation file holds a {type(content).__name__}, expected a dict or a list: {path.absolute()}'
        )
    if not content:
        raise ValueError(f'the annotation file is empty: {path.absolute()}')
    if isinstance(content, dict):
        empty = [key for key in ('images', 'annotations', 'categories') if key in content and not content[key]]
        if empty:
            raise ValueError(f'the annotation file has no {" and no ".join(empty)}: {path.absolute()}')
    return content
