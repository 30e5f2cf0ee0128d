"""One HTML file of everything: text, images and maps, with nothing to fetch."""

import base64
import hashlib
import io
import json
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from PIL import Image

from vitplug.files.whole import write_bytes

from .look import Kinds, Model, View, look
from .tiles import Tiles

#: Bytes of a page; fewer queries are kept until it fits.
LARGEST_PAGE = 5e6
#: Most queries along a side that are tried first.
MOST_QUERIES = 64
#: From dark to light in even steps, also for colour-blind people and on paper.
COLOURS = 'viridis'
#: Larger PNGs become JPEGs.
LARGEST_PNG, JPEG_QUALITY = 60_000, 88
#: What the page can show, by name.
KINDS = dict(probs='after the softmax', maps='after the plug on the maps')


#: A view, and the maps of each model.
Looked = tuple[View, Sequence[Kinds]]


def write_page(path: Path, models: Sequence[Model], views: Sequence[View], images: Sequence, made_by: str) -> None:
    """Writes the page of models and images, with as many queries as fit.

    Args:
        path: The file.
        models: The baseline, if there is one, and the model.
        views: The images.
        images: What the page's foot calls them.
        made_by: The command or function.

    Raises:
        ValueError: If no model has maps, a map is not finite, or the pictures alone are too much.
    """
    facts = _facts(models, images, made_by)
    most = MOST_QUERIES
    while True:
        looked: list[Looked] = [
            (view, [look(model, x, most) for model, x in zip(models, view.inputs, strict=True)]) for view in views
        ]
        if not _attention(looked):
            raise ValueError('no block of the models has an attention map: there is nothing to look at')
        page, maps = _page(models, looked, facts)
        share = (LARGEST_PAGE - (rest := len(page) - maps)) / maps
        if share >= 1:
            write_bytes(path, page)
            return
        if share <= 0 or most == 1:
            raise ValueError(f'{path}: {rest / 1e6:.1f} MB without maps, of {LARGEST_PAGE / 1e6:g}: name fewer images')
        # The maps grow with the square of the side.
        widest = max(max(tiles.geometry.queries.hw) for tiles in _attention(looked))
        most = max(1, min(min(most, widest) - 1, int(min(most, widest) * share**0.5)))


def _facts(models: Sequence[Model], images: Sequence, made_by: str) -> dict[str, str]:
    """How a page is made, for its foot."""
    packages = ('vitplug', 'torch', 'numpy', 'timm', 'transformers', 'mmengine', 'mmcv')
    found = {name: sys.modules[name].__version__ for name in packages if sys.modules.get(name)}
    return {model.title: model.source for model in models} | dict(
        images=', '.join(map(str, images)),
        command=made_by,
        versions=', '.join(f'{name} {version}' for name, version in found.items()),
        time=datetime.now().astimezone().strftime('%Y-%m-%d %H:%M %Z'),
    )


def _attention(looked: Sequence[Looked]) -> list[Tiles]:
    return [tiles for _, kinds in looked for maps in kinds for tiles in maps['probs'].values()]


def _page(models: Sequence[Model], looked: Sequence[Looked], facts: Mapping[str, str]) -> tuple[bytes, int]:
    """The page, and the bytes of its maps."""
    blob, images = bytearray(), []
    for view, kinds in looked:
        said = (*view.predictions, *([view.truth] if view.truth else []))
        pictures = [None if one.picture is None else picture_url(one.picture) for one in said]
        maps = [
            {kind: _stored(tiles, model, blob) for kind, tiles in of_model.items()}
            for model, of_model in zip(models, kinds, strict=True)
        ]
        image = dict(name=view.name, src=picture_url(view.picture), hw=view.picture.shape[:2], maps=maps)
        predictions = [dict(text=one.text, src=src) for one, src in zip(said, pictures, strict=True)]
        images.append(image | dict(predictions=predictions))
    content = dict(
        colours=(colormaps[COLOURS](np.arange(256))[:, :3] * 255).round().astype(int).tolist(),
        models=[
            dict(title=one.title, blocks=len(one.backbone.plugged_blocks()), prefix=list(one.backbone.prefix_names))
            for one in models
        ],
        kinds=KINDS,
        images=images,
    )
    parts = {
        'title': escape(f'Microscope: {models[-1].name}'),
        'models': ''.join(f'<p>{escape(model.title)}: {escape(model.about)}.</p>' for model in models),
        'stored': escape(stored(_attention(looked))),
        'foot': ''.join(f'<dt>{escape(name)}</dt><dd>{escape(text)}</dd>' for name, text in facts.items()),
        'data': json.dumps(content, separators=(',', ':')).replace('<', '\\u003c'),
        'blob': base64.b64encode(zlib.compress(bytes(blob), 9)).decode(),
    }
    for name in ('style', 'script'):
        parts[name] = files(__package__).joinpath(f'page.{dict(style="css", script="js")[name]}').read_text('utf-8')
        # As the page's Content-Security-Policy allows it, and no other.
        parts[f'{name} hash'] = base64.b64encode(hashlib.sha256(parts[name].encode()).digest()).decode()
    page = files(__package__).joinpath('page.html').read_text('utf-8')
    # In one pass, so that nothing is filled into what was filled in. Names of files may be no text.
    filled = re.sub(r'\{\{([a-z ]+)\}\}', lambda match: parts[match[1]], page)
    return filled.encode(errors='backslashreplace'), len(parts['blob'])


def _stored(tiles: Mapping[int, Tiles], model: Model, blob: bytearray) -> list[dict | None]:
    """Adds the tiles of all blocks to the page's numbers; where they are, by block."""
    entries: list[dict | None] = [None] * len(model.backbone.plugged_blocks())
    has_class = tuple(model.backbone.prefix_names[:1]) == ('cls_token',)
    for layer, one in tiles.items():
        blob += bytes(-len(blob) % 4)  # float32 begins at multiples of 4
        numbers_at = len(blob)
        blob += one.numbers.astype('<f4').tobytes()
        entries[layer] = one.as_json() | dict(numbers=numbers_at, codes=len(blob), has_class=has_class)
        blob += one.codes.tobytes()
    return entries


def stored(attention: Sequence[Tiles]) -> str:
    """What is kept of the attention maps, and what is not, in words."""
    steps = sorted({one.geometry.step for one in attention})
    queries = ', '.join('all' if step == 1 else f'one of {step} x {step}' for step in steps)
    return (
        f'Stored: queries: {queries}; keys: all. Each map of a query has 256 steps from its lowest value (at most '
        '0) to its highest: a value is off by half a step at most, 0.2 % of the range.'
    )


def picture_url(picture: np.ndarray) -> str:
    """A picture ``(height, width, 3)`` of RGB as a data URL: lossless where that is small."""
    for kind in ('png', 'jpeg'):
        file = io.BytesIO()
        Image.fromarray(picture).save(file, kind, quality=JPEG_QUALITY)
        if file.tell() <= LARGEST_PNG:
            break
    return f'data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}'
