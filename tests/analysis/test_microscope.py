"""The microscope's data: tiles against the maps that they hold, the budget, and the words of the first panel."""

import base64
import io
import json
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cases import HOSTS, images, randomize
from PIL import Image

from vitplug.hosting import PixelGrid
from vitplug.lab.microscope.data import MEASURES, Norms, _common_grid
from vitplug.lab.microscope.report import COLOURS, picture_url
from vitplug.lab.microscope.tiles import (
    Geometry,
    Level,
    OverBudget,
    Plane,
    Shelf,
    attention_tiles,
    encode,
    geometry_table,
    image_tiles,
    json_text,
    levels,
    pack,
    sampling_sentences,
)
from vitplug.lab.microscope.words import number, summarize
from vitplug.lab.study.quantities.gaussian_fit import GaussianFit
from vitplug.lab.study.quantities.places import Place
from vitplug.tasks.outcomes import ClassOutcome, MapOutcome

SIZES = {'vit': (32, 40), 'vit-no-cls': (32, 40), 'vit-windows': (32, 40), 'swin': (32, 32), 'swin-v2': (40, 32)}
SIZES |= {'t2t': (32, 40), 'pit': (32, 40), 'mvit-cls': (32, 32)}


def recorded(host, names=('probs',), **settings):
    backbone = randomize(HOSTS[host](**settings)).eval().double()
    with torch.no_grad():
        _, found = backbone.forward_intermediates(images(*SIZES[host], batch=1), names)
    return backbone, found


# --- tiles ---


def seen_by(geometry, values, query):
    """A tile as a map on the grid of the keys, nan outside of the query's window; from the definition of windows."""
    seen = np.full(geometry.keys.hw, np.nan)
    for row in range(geometry.keys.hw[0]):
        for column in range(geometry.keys.hw[1]):
            y, x, width = row, column, geometry.keys.hw[1]
            if geometry.window:
                moved = [
                    [(place - geometry.shift) % side for place, side in zip(token, geometry.padded, strict=True)]
                    for token in (query, (row, column))
                ]
                windows = [[place // geometry.window for place in token] for token in moved]
                if windows[0] != windows[1]:
                    continue
                (y, x), width = (place % geometry.window for place in moved[1]), geometry.window
            cells = -(-width // geometry.pool)
            seen[row, column] = values[geometry.prefix[1] + y // geometry.pool * cells + x // geometry.pool]
    return seen


@pytest.mark.parametrize('host', SIZES)
def test_tiles_hold_the_maps_within_half_a_step(host):
    backbone, found = recorded(host)
    size = SIZES[host]
    for layer, probs in found['probs'].items():
        place = Place.of(backbone, layer, size)
        tiles = attention_tiles(probs, place, Level(99, 99))
        geometry, values = tiles.geometry, tiles.values()
        pixels, key_pixels = place.pixels, place.key_pixels
        ys, xs = (
            np.clip(np.round(start + (np.arange(count) + 0.5) * stride - 0.5), 0, side - 1).astype(int)
            for start, stride, count, side in zip(key_pixels.start, key_pixels.stride, key_pixels.hw, size, strict=True)
        )
        rows, columns = pixels.hw
        for row, column in {(0, 0), (rows // 2, columns // 2), (rows - 1, columns - 1), (rows // 2, 0)}:
            pixel = [
                int(np.clip(start + (place_ + 0.5) * stride, 0, side - 1))
                for start, stride, place_, side in zip(pixels.start, pixels.stride, (row, column), size, strict=True)
            ]
            expected = backbone.maps_to_image(found, layer, size, query=pixel)[0][:, ys[:, None], xs].numpy()
            index = geometry.prefix[0] + row * columns + column
            for head in range(geometry.heads):
                seen = seen_by(geometry, values[head, index], (row, column))
                half = tiles.numbers[head, index, 1] / 2
                assert np.nanmax(np.abs(seen - expected[head])) <= half * (1 + 1e-5)
                # Where the window does not reach, the image has nothing.
                assert not expected[head][np.isnan(seen)].any()


def test_prefix_tokens_come_first():
    backbone, found = recorded('vit')
    probs = found['probs'][1]
    tiles = attention_tiles(probs, Place.of(backbone, 1, SIZES['vit']), Level(2, 3))
    # The rows of the class token and of every third token of 4 x 5; 2 x 2 keys of 4 x 5 in a cell.
    assert (tiles.geometry.step, tiles.geometry.pool, tiles.geometry.num_queries) == (3, 2, 1 + 2 * 2)
    kept = [0, *(1 + row * 5 + column for row in (1, 3) for column in (1, 4))]
    grid = probs[0, 0][:, kept, 1:].reshape(3, 5, 4, 5).numpy()
    cells = [
        grid[..., top : top + 2, left : left + 2].mean((-2, -1)) for top in (0, 2) for left in (0, 2, 4)
    ]  # the last column alone
    expected = np.stack([probs[0, 0][:, kept, 0].numpy(), *cells], -1)
    assert np.all(np.abs(tiles.values() - expected) <= tiles.numbers[..., 1:2] / 2 * (1 + 1e-5))
    # The class token is kept as it is, and does not take steps from the others.
    np.testing.assert_allclose(tiles.values()[..., 0], expected[..., 0], rtol=1e-6)
    np.testing.assert_allclose(tiles.numbers[..., 1] * 255, expected[..., 1:].max(-1), rtol=1e-6)


def flat(heads=1, queries=1, cells=4):
    grid = Plane((1, cells), (0, 0), (1, 1))
    return Geometry(heads, Plane((1, queries), (0, 0), (1, 1)), grid)


def test_negative_and_constant_maps():
    values = torch.tensor([[[-0.5, 0.0, 0.25, 1.0], [0.0, 0.0, 0.0, 0.0], [0.3, 0.3, 0.3, 0.3]]])
    tiles = encode(values, flat(queries=3))
    np.testing.assert_allclose(tiles.values(), values.numpy(), atol=1.5 / 255 / 2 + 1e-7)
    np.testing.assert_array_equal(tiles.codes[0, 0, [0, 3]], [0, 255])
    np.testing.assert_array_equal(tiles.numbers[0, 1], [0, 0])
    np.testing.assert_allclose(tiles.values()[0, 2], 0.3, rtol=1e-6)


def test_maps_that_cannot_be_coded_are_refused():
    with pytest.raises(ValueError, match='not finite'):
        encode(torch.tensor([[[0.0, float('nan'), 0.0, 0.0]]]), flat())
    with pytest.raises(ValueError, match=r'shape \(1, 1, 3\): expected \(1, 1, 4\)'):
        encode(torch.zeros(1, 1, 3), flat())


def test_packed_tiles_are_read_where_the_table_says():
    generator = torch.Generator().manual_seed(0)
    kept = [encode(torch.rand(2, 3, 5, generator=generator), flat(2, 3, 5)), None]
    kept.append(encode(torch.rand(1, 2, 4, generator=generator), flat(1, 2, 4)))
    packed = pack(kept)
    geometries, tables = geometry_table({'a': packed, 'b': packed})
    assert len(geometries) == 2 and tables['a'] == tables['b']
    raw = zlib.decompress(packed.data)
    table = json.loads(json_text(tables['a']))
    numbers = np.frombuffer(raw[table['numbers'] :], '<f4')
    assert table['numbers'] % 4 == 0 and table['blocks'][1] is None
    for tiles, (geometry, codes_at, numbers_at) in zip(kept[::2], table['blocks'][::2], strict=True):
        shape = [geometries[geometry][key] for key in ('heads', 'num_queries', 'num_cells')]
        codes = np.frombuffer(raw, np.uint8)[codes_at:][: np.prod(shape)].reshape(shape)
        np.testing.assert_array_equal(codes, tiles.codes)
        own = numbers[numbers_at:][: tiles.numbers.size]
        np.testing.assert_array_equal(own.reshape(tiles.numbers.shape), tiles.numbers)


# --- budget ---


def test_levels_go_from_all_to_few():
    found = levels(14, 14)
    assert found[:4] == [Level(14, 14), Level(7, 14), Level(5, 14), Level(7, 7)] and found[-1] == Level(3, 3)
    assert len(set(found)) == len(found)
    # Small windows keep their keys, and queries go on; a single token cannot be thinned out.
    assert levels(304, 7)[-1] == Level(3, 3)
    assert levels(1, 1) == [Level(1, 1)]


def noise_at(level, side=14, heads=2):
    """Tiles of noise, which no compression makes small."""
    queries, keys = (-(-side // -(-side // most)) for most in (level.queries, level.keys))
    plane = Plane((side, side), (0, 0), (1, 1))
    geometry = Geometry(heads, plane, plane, step=level.query_step((side, side)), pool=level.pool((side, side)))
    assert (geometry.num_queries, geometry.num_cells) == (queries**2, keys**2)
    shape = (heads, geometry.num_queries, geometry.num_cells)
    return encode(torch.rand(shape, generator=torch.Generator().manual_seed(0)), geometry)


@pytest.mark.parametrize('budget', [250_000, 100_000, 30_000, 6_000])
def test_level_with_most_queries_and_keys_within_the_budget_is_chosen(budget):
    choices = levels(14, 14)
    shelf = Shelf(choices, budget)
    alone = {level: Shelf([level], 10**9) for level in choices}
    for name in ('0/0/probs', '0/1/probs'):
        shelf.add(name, {level: [noise_at(level)] * 2 for level in choices})
        for level, one in alone.items():
            one.add(name, {level: [noise_at(level)] * 2})
    sizes = [one.size(level) for level, one in alone.items()]
    best = next(place for place, size in enumerate(sizes) if size <= budget)
    assert best > 0, 'the budget of the test takes everything'
    assert shelf.open_levels[0] == choices[best] and shelf.size(choices[best]) == sizes[best]
    assert set(shelf.choose()) == {'0/0/probs', '0/1/probs'}
    shelf.shrink_to(sizes[best] - 1)
    assert choices.index(shelf.open_levels[0]) > best


def test_nothing_fits():
    shelf = Shelf([Level(3, 3)], 200)
    with pytest.raises(OverBudget, match=r'200 bytes are left for maps, too few even for 3 x 3 queries'):
        shelf.add('a', {Level(3, 3): [noise_at(Level(3, 3))]})


def test_what_is_kept_is_said():
    def said(*levels_):
        return list(sampling_sentences({'a': pack([noise_at(level) for level in levels_])}))

    assert said(Level(14, 14)) == ['All queries are stored.', 'All keys are stored.']
    assert said(Level(7, 7)) == [
        'Queries are subsampled: every 2nd row and column.',
        'Keys are pooled: the mean of every 2 x 2.',
    ]
    assert said(Level(14, 14), Level(5, 7))[0] == 'Queries are subsampled: all or every 3rd row and column, by block.'


# --- the page's data ---


def test_json_ends_no_script_and_has_no_nan():
    content = {'a': '</script><!--', 'b': [float('nan'), 1.5, float('inf')]}
    text = json_text(content)
    assert '<' not in text
    assert json.loads(text) == {'a': '</script><!--', 'b': [None, 1.5, None]}


def test_pictures_are_lossless_where_that_is_small():
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (20, 30, 3), np.uint8)
    for picture, kind, tolerance in ((small, 'png', 0), (rng.integers(0, 256, (300, 300, 3), np.uint8), 'jpeg', 128)):
        head, _, content = picture_url(picture).partition(',')
        assert head == f'data:image/{kind};base64'
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))).convert('RGB')).astype(int)
        assert shown.shape == picture.shape and np.abs(shown - picture).mean() <= tolerance


def test_colours_differ_for_colour_blind_people():
    """Luminance rises from dark to light in even steps, so that hue is not needed."""
    from matplotlib import colormaps

    rgb = colormaps[COLOURS](np.arange(256))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16
    assert np.all(np.diff(lightness) > 0) and lightness[-1] - lightness[0] > 70


# --- words ---


def reading(entropy, learned=None, outcome=('3', 0.9), norms=10.0, sigma=4.0):
    measures = {measure.key: [np.array([1.0, 1.0]), None, np.array([2.0, 2.0])] for measure in MEASURES}
    measures['entropy'] = [None if heads is None else np.array(heads) for heads in entropy]
    fit = GaussianFit(1.0, 0.0, 0.0, sigma, 2 * sigma, 0.9)
    return SimpleNamespace(
        subject=SimpleNamespace(cfg=SimpleNamespace(default_scope='mmpretrain')),
        outcomes=[ClassOutcome(f'{outcome[0]}: {outcome[1]:.1%}', outcome)],
        measures=measures,
        norms=[Norms(1, norms, 30, 1), Norms(1, norms, 30, 2)],
        learned=learned or {},
        field=SimpleNamespace(fit=fit),
    )


def findings(*readings, cross=None):
    image = SimpleNamespace(path=SimpleNamespace(name='a.png'))
    return SimpleNamespace(readings=list(readings), images=[image], cross=cross)


def test_words_of_a_comparison():
    before = reading([[1.0, 1.0], None, [2.0, 2.0]])
    sigma = {0: torch.tensor([4.0, 6.0]), 2: torch.tensor([2.0])}
    after = reading([[1.0, 1.2], None, [2.0, 4.0]], {'gab.sigma': sigma}, ('8', 0.75), 5.0, 6.0)
    cross = np.array([[0.9, 0, 0], [0, 0.5, 0], [0, 0, 0.7]])
    summary = summarize(findings(before, after, cross=cross), '--baseline')
    assert summary.sentences == (
        'a.png: another class: 3 (90.0%) becomes 8 (75.0%).',
        'Attention entropy rises from 1.50 to 2.05 nats (+36.7%), most in block 2: 2.00 to 3.00.',
        'Mean attention distance stays at 1.50 pixels.',
        'Non-locality stays at 1.50 tokens.',
        'Learned gab.sigma: 2.00 (block 2) to 5.00 (block 0), mean 3.50.',
        'Features of the same block of both models have a CKA of 0.700 on average; they differ most in block 1 '
        '(0.500).',
    )
    rows = {row.name: (row.baseline, row.model) for row in summary.rows}
    assert rows['Attention entropy'] == pytest.approx((1.5, 2.05))
    assert rows['Median token norm, last block'] == (10, 5)
    assert rows['Tokens with an outlying norm'] == (3, 3)
    assert rows['Receptive field, sigma y of the fit'] == (8, 12)
    assert rows['gab.sigma, mean'] == (None, 3.5)


def test_words_of_a_model_alone():
    summary = summarize(
        findings(reading([[1.0], None, [2.0]], {'residual_attention.alpha': {None: torch.tensor(0.4)}})), '--baseline'
    )
    assert summary.sentences[0] == 'a.png: 3: 90.0%.' and '--baseline' in summary.sentences[-1]
    assert all(row.baseline is None for row in summary.rows)


def test_words_of_what_is_alike():
    values = {block: torch.tensor([5.0]) for block in range(3)}
    one = reading([[1.0], None, [2.0]], {'gab.sigma': values})
    summary = summarize(findings(reading([[1.0], None, [2.001]]), one, cross=np.full((3, 3), 0.995)), '--baseline')
    assert 'Learned gab.sigma: 5.00 in all 3 blocks.' in summary.sentences
    assert 'Attention entropy stays at 1.50 nats.' in summary.sentences
    assert summary.sentences[-1] == 'Features of the same block of both models are alike: CKA 0.995 or more.'


def test_words_of_predictions():
    assert ClassOutcome('', ('3', 0.5)).change_to(ClassOutcome('', ('3', 0.625))) == (
        'the same class, 3; score 50.0% to 62.5% (+12.5 points)'
    )
    # As many digits as the scores and their difference need to agree.
    for shares, said in [
        ((0.99949, 0.99851), '99.95% to 99.85% (-0.10 points)'),
        ((0.9004, 0.9006), '90.04% to 90.06% (+0.02 points)'),
        ((0.999, 0.998999), '99.9% to 99.9% (+0.0 points)'),
    ]:
        old, new = (ClassOutcome('', ('3', share)) for share in shares)
        assert old.change_to(new) == f'the same class, 3; score {said}'
    before, after = (MapOutcome('', np.array([[0, 1], [1, label]])) for label in (1, 2))
    assert before.change_to(after) == '25.0% of the pixels have another class'


def test_a_label_map_of_the_data_has_pixels_that_are_ignored():
    sample = SimpleNamespace(metainfo=dict(img_shape=(2, 4)))
    truth = MapOutcome.of_labels(
        np.array([[0, 255], [255, 1]]), sample, (3, 4), ['a', 'b'], [(1, 2, 3)] * 2, ignored=255
    )
    assert truth.text == 'a: 50.0%, b: 50.0%' and set(truth.colours) == {0, 1}
    # Enlarged to the part of the input that is not padding.
    assert truth.labels.tolist() == [[0, 0, 255, 255], [255, 255, 1, 1], [255] * 4]


@pytest.mark.parametrize(
    'value, text', [(0, '0'), (1.6, '1.60'), (100.4, '100'), (0.02, '0.0200'), (12345, '1.23e+04'), (-2.5, '-2.50')]
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


def test_similarity_compares_few_tokens():
    """Its products of pairs of tokens would not fit into memory."""
    places = SimpleNamespace(layout=SimpleNamespace(hw=(64, 20)))
    subject = SimpleNamespace(num_layers=1, place=lambda layer, size: places)
    assert _common_grid([subject], (1024, 320)) == (32, 20)


def test_receptive_field_keeps_its_shape():
    from vitplug.lab.microscope.data import FIELD_SIDE, field_tiles

    rows, columns = torch.meshgrid(torch.arange(300.0), torch.arange(200.0), indexing='ij')
    image = torch.exp(-((rows - 151) ** 2 + (columns - 61) ** 2) / 800)
    tiles = field_tiles(image)
    hw = tiles.geometry.keys.hw
    assert max(hw) <= FIELD_SIDE and tiles.geometry.keys.stride == (3, 3)
    peak = tiles.values()[0, 0].reshape(hw)
    assert np.unravel_index(peak.argmax(), hw) == (50, 20)
    # Codes are square roots: half of the largest value is shown at 0.71.
    expected = float(image[151, 61 + 21] ** 0.5)
    assert peak[50, 27] == pytest.approx(expected, abs=0.05)


def test_maps_of_the_whole_image_are_pooled_where_they_are_large():
    values = torch.rand(40, 300, generator=torch.Generator().manual_seed(0))
    small, large = (image_tiles(v, PixelGrid(tuple(v.shape))) for v in (values[:, :100], values))
    assert (small.geometry.pool, large.geometry.pool) == (1, 3)
    np.testing.assert_allclose(small.values().reshape(40, 100), values[:, :100], atol=0.5 / 255)
    first = large.values().reshape(14, 100)[0, 0]
    assert first == pytest.approx(float(values[:3, :3].mean()), abs=0.5 / 255)


def test_grid_of_pixels_is_the_backbones():
    assert Plane.of(PixelGrid((2, 3), (4, 4), (-1, 0))) == Plane((2, 3), (-1, 0), (4, 4))
