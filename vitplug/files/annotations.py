"""Annotation files of data sets."""

import json
from pathlib import Path


def check_annotation_file(path: Path):
    """Checks that an annotation file exists and is not empty, and that JSON can be read and has images in it.

    Returns:
        The content of a JSON file, None for others.

    Raises:
        FileNotFoundError: if it is missing.
        ValueError: if it is empty or broken.
    """
    if not path.is_file():
        raise FileNotFoundError(f'no such annotation file: {path.absolute()}')
    content = read_json(path) if path.suffix == '.json' else None
    entries = content if isinstance(content, dict) else {}
    empty = [key for key in ('images', 'annotations', 'categories') if key in entries and not entries[key]]
    if empty:
        raise ValueError(f'the annotation file has no {" and no ".join(empty)}: {path.absolute()}')
    if path.stat().st_size == 0 or content in ({}, []):
        raise ValueError(f'the annotation file is empty: {path.absolute()}')
    return content


def read_json(path: Path):
    """The content of a JSON file, in UTF-8 without a byte order mark as the libraries' readers ask for it.

    Raises:
        ValueError: names the file, if it is no such JSON.
    """
    try:
        return json.loads(path.read_bytes().decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f'the annotation file is not valid JSON in UTF-8: {path.absolute()} ({error})') from error
