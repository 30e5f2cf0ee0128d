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
        self.blob = zlib.decompress(base64.b64decode(re.search(r'id="blob">(.*?)</script>', self.text)[1]))

    def maps(self, kind: str, block: int, image: int = 0, model: int = 0) -> np.ndarray:
        """Maps of a block ``(H, queries, keys)``, prefix tokens first."""
        tiles = self.data['images'][image]['maps'][model][kind][block]
        heads, queries, cells = (tiles[key] for key in ('heads', 'num_queries', 'num_cells'))
        codes = np.frombuffer(self.blob, np.uint8, heads * queries * cells, tiles['codes'])
        per_query = 2 + tiles['prefix'][1]
        numbers = np.frombuffer(self.blob, '<f4', heads * queries * per_query, tiles['numbers'])
        low, step, prefix = np.split(numbers.reshape(heads, queries, per_query), (1, 2), -1)
        return np.concatenate((prefix, low + codes.reshape(heads, queries, cells) * step), -1)
