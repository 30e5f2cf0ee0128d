"""A written page of the microscope, read without a browser."""

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np


class Page:
    """A written page: its data, and the values of its maps."""

    def __init__(self, path: Path):
        self.text = path.read_text()
        self.data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', self.text)[1])

    def maps(self, kind: str, block: int, image: int = 0, model: int = 0) -> np.ndarray:
        """Maps of a block ``(H, queries, keys)``, prefix tokens first."""
        name = f'{model}/{image}/{kind}'
        table = self.data['tiles'][name]
        raw = zlib.decompress(base64.b64decode(re.search(f'id="tiles:{name}">(.*?)</script>', self.text)[1]))
        place, codes_at, numbers_at = table['blocks'][block]
        geometry = self.data['geometries'][place]
        shape = [geometry[key] for key in ('heads', 'num_queries', 'num_cells')]
        codes = np.frombuffer(raw, np.uint8, np.prod(shape), codes_at).reshape(shape)
        per_query = 2 + geometry['prefix'][1]
        count = shape[0] * shape[1] * per_query
        numbers = np.frombuffer(raw, '<f4', count, table['numbers'] + 4 * numbers_at).reshape(*shape[:2], per_query)
        low, step, prefix = np.split(numbers, (1, 2), -1)
        return np.concatenate((prefix, low + codes * step), -1)

    def modes(self) -> dict[str, str]:
        """Why each mode is left out, by name; ``''`` where it is there."""
        return {mode['id']: mode['reason'] for mode in self.data['modes']}
