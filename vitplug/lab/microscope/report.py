"""One HTML file of everything: text, charts, images and maps, with nothing to fetch."""

import base64
import hashlib
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from html import escape
from importlib.resources import files

import numpy as np
import torch
from matplotlib import colormaps
from PIL import Image

from vitplug.lab.study.quantities.tokens import OUTLIER_FACTOR
from vitplug.stacks import DISTRIBUTIONS, installed
from vitplug.tasks.outcomes import NoOutcome, Outcome

from .data import CKA_SIDE, MEASURES, Findings, Reading, WithoutHead, field_tiles, no_rollout, tiles_name
from .tiles import base64_text, geometry_table, json_text, pack, sampling_sentences
from .words import Row, Summary, number, summarize

#: From dark to light in even steps, also for colour-blind people and on paper.
COLOURS = 'viridis'
#: Millions of bytes of a page: by default, and at most.
MAX_MB, MOST_MB = 5.0, 1000.0
#: Larger PNGs become JPEGs.
LARGEST_PNG = 60_000
JPEG_QUALITY = 88
NAMES = dict(baseline='Baseline', model='This model')
KINDS = dict(
    probs='after the softmax',
    maps='after the plug on the maps',
    rollout='rollout of blocks 0 to this one',
    gradcam='Grad-CAM at the attention output',
    norms='norms of the output tokens',
    prediction='prediction',
    edits='change of the last features without a head',
)


@dataclass(frozen=True)
class Facts:
    """How a report was made, for its foot.

    Attributes:
        task: Name of the task.
        call: The command line, or the call from Python.
        versions: Versions of packages by name.
        to_compare: How a baseline is given.
        to_edit: How runs without heads are asked for.
        to_measure: What measures many images, as a clause.
        time: When it was made.
    """

    task: str
    call: str
    versions: Mapping[str, str]
    to_compare: str
    to_edit: str
    to_measure: str
    time: str = field(default_factory=lambda: datetime.now().astimezone().strftime('%Y-%m-%d %H:%M %Z'))


def check_max_mb(value: float, option: str) -> None:
    """Checks the largest size of a page, in millions of bytes.

    Raises:
        ValueError: If it is none.
    """
    if not 0 < value <= MOST_MB:
        raise ValueError(f'{option} {value:g}: expected a number above 0, and at most {MOST_MB:g}')


def versions_of(packages: Sequence[str]) -> dict[str, str]:
    """Versions of those packages that are installed, under the names of any stack, and of torch."""
    versions = {name: next(iter(installed(DISTRIBUTIONS.get(name, (name,))).values()), '') for name in packages}
    return {name: version for name, version in versions.items() if version} | dict(torch=torch.__version__)


def render(findings: Findings, facts: Facts, limit: int) -> str:
    """The report as HTML, with as many queries and keys as fit into ``limit`` bytes of UTF-8.

    Raises:
        OverBudget: If not even few of them fit.
    """
    shelf = findings.shelf
    page = _render(findings, facts)
    while (excess := len(page.encode()) - limit) > 0:
        shelf.shrink_to(shelf.size(shelf.open_levels[0]) - excess)
        page = _render(findings, facts)
    return page


def _render(findings: Findings, facts: Facts) -> str:
    packed = dict(findings.shelf.choose())
    stored = ' '.join((*sampling_sentences(packed), _coding()))
    for model, reading in enumerate(findings.readings):
        packed[f'{model}/field'] = pack([field_tiles(reading.field.image)])
    geometries, tables = geometry_table(packed)
    blobs = {name: tiles.data for name, tiles in packed.items()} | dict(_label_maps(findings))
    page, style, script = (_asset(name) for name in ('page.html', 'page.css', 'page.js'))
    texts = {
        'title': f'Microscope: {findings.readings[-1].subject.name}',
        'subtitle': _subtitle(findings, facts),
        'summary title': 'What changed' if len(findings.readings) > 1 else 'What the model does',
        'stored': stored,
        **_notes(findings, facts),
    }
    parts = {name: escape(text) for name, text in texts.items()}
    parts |= {
        'summary': _summary_html(summarize(findings, facts.to_compare), len(findings.readings) > 1),
        'foot': _foot_html(findings, facts),
        'style': style,
        'style hash': _csp_hash(style),
        'script': script,
        'script hash': _csp_hash(script),
        'data': json_text(_page_data(findings, facts, geometries, tables)),
        'blobs': '\n'.join(
            f'<script type="text/plain" id="tiles:{name}">{base64_text(data)}</script>' for name, data in blobs.items()
        ),
    }
    # In one pass, so that nothing is filled into what was filled in.
    page = re.sub(r'\{\{([a-z ]+)\}\}', lambda match: parts[match[1]], page)
    return page.encode(errors='backslashreplace').decode()  # names of files may be no text


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding='utf-8')


def _csp_hash(text: str) -> str:
    """A script or style as its Content-Security-Policy allows it, and no other."""
    return f'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'


def _label_maps(findings: Findings) -> Iterator[tuple[str, bytes]]:
    for model, outcomes in enumerate(_outcomes(findings)):
        for image, outcome in enumerate(outcomes):
            if outcome is not None and outcome.labels is not None:
                yield tiles_name(model, image, 'labels'), zlib.compress(outcome.labels.tobytes(), 9)


def _outcomes(findings: Findings) -> list[Sequence[Outcome | None]]:
    """The predictions of each model, and last the ground truth, if it is known of some image."""
    truths = [findings.truths] if any(findings.truths) else []
    return [reading.outcomes for reading in findings.readings] + truths


# --- text ---


def _subtitle(findings: Findings, facts: Facts) -> str:
    count = len(findings.images)
    images = f'{count} image{"s" * (count != 1)}'
    against = f', against the baseline {findings.readings[0].subject.name}' if len(findings.readings) > 1 else ''
    return f'{facts.task.capitalize()}, {images}; {findings.readings[-1].subject.about}{against}.'


def _coding() -> str:
    return (
        'Each map of a query has 256 steps from its lowest value (at most 0) to its highest: a value is off by half a '
        'step at most, 0.2 % of the range. Colours go from the lowest to the highest shown value.'
    )


def _notes(findings: Findings, facts: Facts) -> dict[str, str]:
    count = len(findings.images)
    few = (
        f'Mean over {count} image{"s" * (count != 1)}: enough to look at, too few to conclude from; {facts.to_measure}.'
    )
    fields = (
        'Gradient of the central output token with respect to the input, positive part, mean over '
        f'{_of_images(findings)}, relative to its maximum; colours are square roots. Ellipses: the fitted Gaussian at '
        '1 and 2 sigma.'
    )
    return {
        'measures note': f'A dot is a head, a line is the mean of heads. {few}',
        'field note': fields,
        'cka note': (
            'Linear CKA (unbiased, one batch for each image) of the output tokens, averaged to the grid of the last '
            f'block, at most {CKA_SIDE} x {CKA_SIDE}: 1 for features that are the same up to rotation and scale.'
        ),
        'learned note': 'As they act: a clamped alpha is shown clamped. Band from the least to the most of a block.',
    }


def _of_images(findings: Findings) -> str:
    count, measured = len(findings.images), findings.readings[-1].field.images
    return 'the images' if measured == count else f'the {measured} of {count} images that have the same size'


def _summary_html(summary: Summary, compared: bool) -> str:
    words = ''.join(f'<li>{escape(sentence)}</li>' for sentence in summary.sentences)
    heads = ['', 'baseline', 'this model', 'change'] if compared else ['', 'this model']
    head = ''.join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = ''.join(_row_html(row, compared) for row in summary.rows)
    rows = f'<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    table = f'<div class="scroll" tabindex="0" role="region" aria-label="Numbers">{rows}</div>'
    return f'<ul class="words">{words}</ul>{table}'


def _row_html(row: Row, compared: bool) -> str:
    cells = [_cell(row.baseline), _cell(row.model), _difference(row)] if compared else [_cell(row.model)]
    name = f'{row.name} ({row.unit})' if row.unit else row.name
    return f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'


def _cell(value: float | None) -> str:
    return 'none' if value is None else number(value)


def _difference(row: Row) -> str:
    if row.baseline is None or row.model is None:
        return ''
    difference = row.model - row.baseline
    if number(row.model) == number(row.baseline):
        return '0'
    share = f' ({difference / row.baseline:+.1%})' if row.baseline else ''
    return f'{"+" if difference > 0 else ""}{number(difference)}{share}'


def _foot_html(findings: Findings, facts: Facts) -> str:
    subjects = [reading.subject for reading in reversed(findings.readings)]
    rows = {NAMES[subject.label].lower(): subject.made_of for subject in subjects}
    rows['images'] = ', '.join(str(image.path) for image in findings.images)
    rows['command'] = facts.call
    rows['versions'] = ', '.join(f'{name} {version}' for name, version in facts.versions.items())
    rows['time'] = facts.time
    return f'<dl>{"".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows.items())}</dl>'


# --- data ---


def _page_data(findings: Findings, facts: Facts, geometries: Sequence[dict], tables: Mapping[str, dict]) -> dict:
    subjects = [reading.subject for reading in findings.readings]
    num_blocks = max(subject.num_layers for subject in subjects)
    return dict(
        colours=base64_text((colormaps[COLOURS](np.arange(256))[:, :3] * 255).round().astype(np.uint8).tobytes()),
        models=[
            dict(role=subject.label, name=NAMES[subject.label], prefix=_prefix_names(subject)) for subject in subjects
        ],
        num_blocks=num_blocks,
        start_block=num_blocks - 1,
        images=[dict(name=image.path.name, src=picture_url(image.picture), hw=image.size) for image in findings.images],
        kinds=KINDS,
        modes=_modes(findings, facts),
        queries=[
            dict(id='token', title='The token', reason=''),
            dict(
                id='class',
                title='The class token',
                reason='' if any(subject.has_class_token for subject in subjects) else 'the model has none',
            ),
        ],
        geometries=geometries,
        tiles=tables,
        predictions=[
            [outcome and _outcome_json(outcome, tiles_name(model, image, 'labels')) for image, outcome in enumerate(of)]
            for model, of in enumerate(_outcomes(findings))
        ],
        cams=[reading.cams for reading in findings.readings],
        edits=[[_edits_json(blocks) for blocks in reading.edits] for reading in findings.readings],
        measures=[
            dict(
                title=measure.title,
                unit=measure.unit,
                note=measure.definition,
                values=[_rounded(reading.measures[measure.key]) for reading in findings.readings],
            )
            for measure in MEASURES
        ],
        norms=[
            dict(
                title='Token norm',
                unit='',
                note=(
                    'L2 norm of the output tokens, prefix tokens left out: median and range. Outliers exceed the '
                    f'median {OUTLIER_FACTOR:g} times.'
                ),
                values=[[asdict(norms) for norms in reading.norms] for reading in findings.readings],
            )
        ],
        fields=[_field_json(model, reading) for model, reading in enumerate(findings.readings)],
        cka=list(_cka_json(findings)),
        learned=list(_learned_json(findings)),
    )


def _prefix_names(subject) -> list[str]:
    """Names of the tokens before the grid; plugs may have added some."""
    names = [name.replace('_', ' ').replace('cls', 'class') for name in subject.backbone.prefix_names]
    return names + [f'extra token {i}' for i in range(subject.backbone.num_prefix - len(names))]


def _modes(findings: Findings, facts: Facts) -> list[dict]:
    subjects, size = [reading.subject for reading in findings.readings], findings.images[0].size
    without_rollout = [no_rollout(subject, size) for subject in subjects]
    has_maps = any(subject.layers_with('probs') for subject in subjects)
    first = findings.readings[-1].outcomes[0]
    predicts_nothing = first.text if isinstance(first, NoOutcome) else ''
    return [
        dict(
            id='attention',
            title='Attention',
            kinds=['probs', 'maps'],
            reason='' if has_maps else 'no block has attention maps',
        ),
        dict(
            id='rollout',
            title='Rollout',
            kinds=['rollout'],
            reason=''
            if '' in without_rollout
            else f'needs one grid of tokens and maps in all blocks, but {without_rollout[-1]}',
        ),
        dict(id='gradcam', title='Grad-CAM', kinds=['gradcam'], reason=predicts_nothing),
        dict(id='norms', title='Token norms', kinds=['norms'], reason=''),
        dict(id='prediction', title='Prediction', kinds=['prediction'], reason=predicts_nothing),
        dict(
            id='edits',
            title='Without a head',
            kinds=['edits'],
            reason=''
            if any(reading.edits for reading in findings.readings)
            else f'written with {facts.to_edit}, which runs the model without each head',
        ),
    ]


def picture_url(picture: np.ndarray) -> str:
    """A picture ``(height, width, 3)``, red first, as a data URL: lossless where that is small."""
    kind, content = 'png', _encoded(picture, 'png')
    if len(content) > LARGEST_PNG:
        kind, content = 'jpeg', _encoded(picture, 'jpeg', quality=JPEG_QUALITY)
    return f'data:image/{kind};base64,{base64_text(content)}'


def _encoded(picture: np.ndarray, kind: str, **settings) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, kind, **settings)
    return file.getvalue()


def _outcome_json(outcome: Outcome, labels: str) -> dict:
    colours = {label: [int(part) for part in colour] for label, colour in outcome.colours.items()}
    return dict(
        text=outcome.text,
        labels=None if outcome.labels is None else labels,
        colours={str(label): colour for label, colour in colours.items()},
        keys=[dict(name=name, colour=colours[label]) for label, name in outcome.names.items()],
        boxes=[
            dict(box=[round(side, 2) for side in box], text=text, colour=colours[label])
            for box, text, label in outcome.boxes
        ],
    )


def _edits_json(blocks: Sequence[Sequence[WithoutHead] | None]) -> list[list[dict] | None]:
    return [
        None
        if heads is None
        else [
            dict(
                words=head.words,
                **{
                    name: [_finite(getattr(effect, name)) for effect in (head.effect, head.control)]
                    for name in ('features', 'score', 'prediction')
                },
            )
            for head in heads
        ]
        for heads in blocks
    ]


def _finite(value: float) -> float | None:
    """With five digits; None where there is no number."""
    return float(f'{value:.5g}') if np.isfinite(value) else None


def _rounded(blocks: Sequence[np.ndarray | None]) -> list[list[float] | None]:
    return [None if heads is None else [float(f'{value:.5g}') for value in heads] for heads in blocks]


def _field_json(model: int, reading: Reading) -> dict:
    fit, entry = reading.field.fit, dict(model=model, tiles=f'{model}/field', hw=tuple(reading.field.image.shape))
    if not fit.converged:
        return entry | dict(ellipse=None, text=f'No Gaussian is fitted: {fit.failure}.')
    text = (
        f'sigma {number(fit.sigma_y)} pixels down and {number(fit.sigma_x)} across, centre at row {fit.y:.1f}, column '
        f'{fit.x:.1f}, R² of the fit {fit.r_squared:.3f}' + (f'. Doubtful: {fit.doubt}.' if fit.doubt else '')
    )
    return entry | dict(ellipse={key: getattr(fit, key) for key in ('x', 'y', 'sigma_x', 'sigma_y')}, text=text)


def _cka_json(findings: Findings) -> Iterator[dict]:
    matrices = [(reading, reading, reading.similarity) for reading in findings.readings]
    if findings.cross is not None:
        matrices.append((*findings.readings, findings.cross))
    for rows, columns, values in matrices:
        names = [NAMES[reading.subject.label] for reading in (rows, columns)]
        yield dict(
            title=names[0] if rows is columns else f'{names[0]} and {names[1].lower()}',
            rows=[names[0], values.shape[0]],
            columns=[names[1], values.shape[1]],
            values=[[float(f'{value:.4g}') for value in row] for row in values],
        )


def _learned_json(findings: Findings) -> Iterator[dict]:
    for name in dict.fromkeys(name for reading in findings.readings for name in reading.learned):
        models = []
        for model, reading in enumerate(findings.readings):
            by_block = reading.learned.get(name, {})
            if by_block:
                blocks = [dict(block=block, **_spread(value)) for block, value in by_block.items() if block is not None]
                whole = _spread(by_block[None]) if None in by_block else None
                models.append(dict(model=model, blocks=blocks, whole=whole))
        yield dict(name=name, models=models)


def _spread(value) -> dict:
    value = value.detach().float()
    return dict(mean=float(value.mean()), low=float(value.min()), high=float(value.max()), count=value.numel())
