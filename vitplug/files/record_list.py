"""A list of records in a JSON file, written as they come."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from .whole import PARTIAL


class RecordList:
    """A JSON list that is written record by record.

    Until :meth:`close`, the records are lines of the file ``NAME.jsonl``, which is also what a killed process leaves.

    Args:
        path: The file ``NAME.json``.
        around: Further entries of the file; the list is then its entry ``key``. None for a file that is the list.
        key: See ``around``.
        optional: Whether there is no file if there is no record.
    """

    def __init__(self, path: Path, around: Mapping[str, Any] | None = None, key: str = '', optional: bool = False):
        self.path, self.lines = path, path.with_suffix('.jsonl')
        self.around, self.key = around, key
        self._file = None if optional else self._open()

    def _open(self) -> TextIO:
        self.lines.parent.mkdir(parents=True, exist_ok=True)
        return open(self.lines, 'x', encoding='utf-8')

    def add(self, record: Mapping[str, Any]) -> None:
        """Adds a record.

        Raises:
            OSError: If it cannot be written.
        """
        self._file = self._file or self._open()
        self._file.write(f'{json.dumps(record)}\n')
        self._file.flush()

    def close(self) -> None:
        """Writes the list, whole or not at all, and removes the lines.

        Raises:
            OSError: If it cannot be written; the lines stay.
        """
        if self._file is None:
            return
        self._file.close()
        partial = self.path.with_name(PARTIAL.format(self.path.name))
        head = '' if self.around is None else f'{json.dumps(dict(self.around))[:-1]}, {json.dumps(self.key)}: '
        with open(self.lines, encoding='utf-8') as lines, open(partial, 'x', encoding='utf-8') as file:
            file.write(f'{head}[')
            for number, line in enumerate(lines):
                file.write(f'{", " if number else ""}{line.rstrip()}')
            file.write(']' if self.around is None else ']}')
        os.replace(partial, self.path)
        self.lines.unlink()
