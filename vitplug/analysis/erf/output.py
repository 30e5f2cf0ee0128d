"""The files and the table of results."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vitplug.analysis.study import drawing
from vitplug.analysis.study.results import write_json
from vitplug.files.atomic import AtomicBackend
from vitplug.statistics.images import GROUPS, LEVEL, Estimate
from vitplug.tables import format_table

from . import field_pictures
from .results import Result

JSON, MAPS, PICTURE, BIASES = 'erf.json', 'maps.npz', 'erf.png', 'biases.png'
DEFINITION = (
    'effective receptive field of the central token (upper left of the middle) of the last feature map: the gradient '
    "of the mean of the token's channels with respect to the normalised image, mean over the image's channels, "
    'rectified for each image, mean over images; divided by its sum for plots and fits'
)
SOURCE = 'Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields, Section 3'
FIT = (
    'amp / (2 pi sigma_x sigma_y) exp(-(x - x0)^2 / (2 sigma_x^2) - (y - y0)^2 / (2 sigma_y^2)), least squares, in '
    'pixels from 0; r_squared = 1 - var(residual) / var(map)'
)
BIAS = 'position bias of the central query, all kinds summed, mean over heads, minimum subtracted; fitted in tokens'
NO_FIT = ('-', '-', '-', '-', 'no fit')


def write(folder: Path, results: Sequence[Result], images: Mapping, command: str) -> None:
    """Writes numbers, maps and pictures, each file as a whole."""
    write_json(
        folder / JSON,
        command=command,
        definition=DEFINITION,
        source=SOURCE,
        fit=FIT,
        biases=BIAS,
        interval=f'{LEVEL:.0%} over images; jackknife over at most {GROUPS} groups of images',
        images=images,
        models={result.field.label: result.as_json() for result in results},
    )
    maps = io.BytesIO()
    np.savez_compressed(maps, **{result.field.label: result.erf for result in results})
    AtomicBackend().put(maps.getvalue(), folder / MAPS)
    drawing.save(field_pictures.fields(results, images['number']), folder / PICTURE)
    if any(result.biases for result in results):
        drawing.save(field_pictures.biases([result for result in results if result.biases]), folder / BIASES)


def table(results: Sequence[Result]) -> str:
    """The fits as text: of each ERF, in pixels, and of the position biases of each block, in tokens."""
    rows = [('map', 'block', 'sigma x', 'sigma y', 'centre x', 'centre y', 'R^2')]
    for result in results:
        label = result.field.label
        numbers = [_cell(result.intervals[name]) for name in ('sigma_x', 'sigma_y', 'x', 'y', 'r_squared')]
        rows.append((f'ERF, {label}, pixels', '', *(numbers if result.fit.converged else NO_FIT)))
        for block, fit in result.bias_fits.items():
            cells = [f'{getattr(fit, name):.3g}' for name in ('sigma_x', 'sigma_y', 'x', 'y', 'r_squared')]
            cells = cells if fit.converged else NO_FIT
            rows.append((f'position bias, {label}, tokens', str(block), *cells))
    warnings = [f'warning: {result.field.label}: {result.warning}' for result in results if result.warning]
    for result in results:
        fits = {'ERF': result.fit} | {f'position bias of block {n}': fit for n, fit in result.bias_fits.items()}
        doubtful = {what: fit.doubt for what, fit in fits.items() if fit.doubt}
        warnings += [f'doubtful fit: {result.field.label}, {what}: {why}' for what, why in doubtful.items()]
    return '\n'.join((format_table(rows, numeric=range(1, 7)), *warnings))


def _cell(estimate: Estimate) -> str:
    half = (estimate.high - estimate.low) / 2
    return f'{float(estimate.mean):.3g}' + (f' ± {float(half):.2g}' if np.isfinite(half) else '')
