"""The microscope's page: its maps against the models' own, what it says, and what is refused."""

import base64
import io
import json
import re
import shutil
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from adapters.foreign import images as foreign_images
from adapters.foreign import plugged, timm_model
from cases import HOSTS, images, randomize
from PIL import Image
from small_models import DETECTION, DIGITS, SEGMENTATION, save_untrained
from token_places import dense, sides

import vitplug
from vitplug.lab.microscope import writing
from vitplug.lab.microscope.command import main
from vitplug.lab.microscope.tiles import attention_tiles
from vitplug.lab.study.measure import as_picture
from vitplug.lab.study.places import Place

ROOT = Path(__file__).parents[2]
SIZES = dict.fromkeys(('vit', 'vit-windows', 'swin', 'pit'), (32, 40)) | dict.fromkeys(
    ('mvit-cls', 'mvit-windows'), (32, 32)
)
VIT, SWIN = 'vit_tiny_patch16_224', 'swin_tiny_patch4_window7_224'
CLASSIFICATION = DIGITS / 'vit-mini-p4-refiner_1xb32-14e_digits-32x32.py'
PLAIN = DIGITS / 'vit-mini-p4_1xb32-14e_digits-32x32.py'


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


# --- tiles ---


def recorded(host):
    backbone = randomize(HOSTS[host]()).eval().double()
    with torch.no_grad():
        return backbone, backbone.forward_intermediates(images(*SIZES[host], batch=1), ('probs',))[1]


def values_of(tiles):
    low, step, prefix = np.split(tiles.numbers, (1, 2), -1)
    return np.concatenate((prefix, low + tiles.codes * step), -1)


def seen_by(geometry, values, query):
    """A tile as a map on the grid of the keys, nan outside of the query's window; from the definition of windows."""
    seen = np.full(geometry.keys.hw, np.nan)
    for row, column in np.ndindex(*geometry.keys.hw):
        y, x, width = row, column, geometry.keys.hw[1]
        if geometry.window[1]:
            moved = [
                [(place - geometry.shift) % side for place, side in zip(token, padded, strict=True)]
                for token, padded in zip((query, (row, column)), geometry.padded, strict=True)
            ]
            windows = [[place // one for place in token] for token, one in zip(moved, geometry.window, strict=True)]
            if windows[0] != windows[1]:
                continue
            (y, x), width = (place % geometry.window[1] for place in moved[1]), geometry.window[1]
        seen[row, column] = values[geometry.prefix[1] + y * width + x]
    return seen


@pytest.mark.parametrize('host', SIZES)
def test_tiles_hold_the_maps_within_half_a_step(host):
    backbone, found = recorded(host)
    size = SIZES[host]
    for layer, probs in found['probs'].items():
        place = Place.of(backbone, layer, size)
        tiles = attention_tiles(probs, place, 99)
        geometry, values = tiles.geometry, values_of(tiles)
        queries, keys = sides(host, backbone, layer, size)
        expected = dense(probs, queries, keys)[0].unflatten(-1, keys.hw).numpy()
        rows, columns = queries.hw
        for row, column in {(0, 0), (rows // 2, columns // 2), (rows - 1, columns - 1), (rows // 2, 0)}:
            index = geometry.prefix[0] + row * columns + column
            for head in range(geometry.heads):
                seen = seen_by(geometry, values[head, index], (row, column))
                known = expected[head, row * columns + column]
                half = tiles.numbers[head, index, 1] / 2
                assert np.nanmax(np.abs(seen - known)) <= half * (1 + 1e-5)
                # Where the window does not reach, the map has nothing.
                assert not known[np.isnan(seen)].any()


def test_fewer_queries_and_prefix_tokens_as_they_are():
    backbone, found = recorded('vit')
    probs = found['probs'][1]
    tiles = attention_tiles(probs, Place.of(backbone, 1, SIZES['vit']), 2)
    # The rows of the class token and of every third token of 4 x 5.
    assert (tiles.geometry.step, tiles.codes.shape[1]) == (3, 1 + 2 * 2)
    kept = [0, *(1 + row * 5 + column for row in (1, 3) for column in (1, 4))]
    expected = probs[0, 0][:, kept].numpy()
    assert np.all(np.abs(values_of(tiles) - expected) <= tiles.numbers[..., 1:2] / 2 * (1 + 1e-5))
    np.testing.assert_allclose(values_of(tiles)[..., 0], expected[..., 0], rtol=1e-6)
    with pytest.raises(ValueError, match=r'not finite \(NaN or infinity\)'):
        attention_tiles(probs * float('nan'), Place.of(backbone, 1, SIZES['vit']), 2)


@pytest.mark.parametrize(
    ('channels', 'shown', 'note'), [(3, [10, 20, 30], ''), (1, [10, 10, 10], ''), (4, [10, 10, 10], 'channel 0 of 4')]
)
def test_pictures_of_other_than_three_channels_say_what_they_show(channels, shown, note):
    pixels = (torch.arange(1, channels + 1, dtype=torch.uint8) * 10)[:, None, None].expand(-1, 2, 3)
    picture, told = as_picture(pixels, (3, 4))
    assert picture[1, 2].tolist() == shown and not picture[2].any() and told == note


# --- models of other libraries ---


def written(folder: Path, model, x, **settings) -> Page:
    return Page(vitplug.microscope(model, x, folder / 'a.html', **settings))


@torch.no_grad()
def softmax_maps(model, x):
    """The maps ``(windows, H, N, N)`` of all blocks of a plain model, as timm's unfused attention drops them out."""
    found = []
    for module in model.modules():
        if hasattr(module, 'attn_drop'):
            module.fused_attn = False
            module.attn_drop.register_forward_hook(lambda drop, args, out: found.append(args[0]))
    model(x)
    return found


@pytest.mark.parametrize('name', [VIT, SWIN, 'pit_ti_distilled_224'])
def test_the_page_holds_the_maps_of_the_library(name, tmp_path):
    x = foreign_images()
    page = written(tmp_path, vitplug.plug_in(timm_model(name), []), x)
    for image in range(2):
        for block, maps in enumerate(softmax_maps(timm_model(name), x[image : image + 1])):
            found, expected = page.maps('probs', block, image), maps[0].numpy()
            if len(maps) > 1:  # in unshifted windows, the first query of the map is that of the first window
                found, expected = found[:, :1], expected[:, :1]
            if name != SWIN or block != 1:  # shifted
                assert np.abs(found - expected).max() <= 0.5 / 255 * expected.max() + 1e-6


def test_a_baseline_beside_it_and_predictions(tmp_path):
    model, x = plugged(timm_model(VIT), 'gab'), foreign_images()
    with torch.no_grad():
        scores = model(x).softmax(-1)
    classes = ['ant', 'bee', 'cat', 'dog', 'eel']
    page = written(tmp_path, model, x, baseline=vitplug.plug_in(timm_model(VIT), []), classes=classes)
    assert [one['title'] for one in page.data['models']] == ['Baseline', 'Model']
    np.testing.assert_allclose(page.maps('probs', 2)[:, 0], softmax_maps(timm_model(VIT), x[:1])[2][0, :, 0], atol=2e-3)
    assert np.abs(page.maps('probs', 2, model=1) - page.maps('probs', 2)).max() > 0.01
    for of_image, image in zip(scores, page.data['images'], strict=True):
        best = int(of_image.argmax())
        assert image['predictions'][1]['text'].startswith(f'{classes[best]}: {of_image[best]:.1%}, ')


@pytest.mark.parametrize('key', [int, str])
def test_classes_of_a_config_are_in_the_order_of_their_numbers(key, tmp_path):
    model, x = vitplug.plug_in(timm_model(VIT, num_classes=12), []), foreign_images(1)
    model.config = SimpleNamespace(id2label={key(number): f'no. {number}' for number in (0, 1, 10, 11, *range(2, 10))})
    [image] = written(tmp_path, model, x).data['images']
    assert image['predictions'][0]['text'].startswith(f'no. {int(model(x)[0].argmax())}: ')


def test_a_model_without_a_head_says_so(tmp_path):
    page = written(tmp_path, vitplug.plug_in(timm_model(VIT, num_classes=0), []), foreign_images())
    assert page.data['images'][0]['predictions'][0]['text'] == 'no prediction: the model gives no logits of classes'
    with pytest.raises(ValueError, match='no block of the models has an attention map'):
        written(tmp_path / 'mixer', vitplug.plug_in(timm_model('mixer_s16_224'), []), foreign_images())


def test_pictures_are_red_first_and_batches_may_differ_in_size(tmp_path):
    model = vitplug.plug_in(timm_model(VIT, dynamic_img_size=True), [])
    red = torch.zeros(1, 3, 32, 32, dtype=torch.float64)
    red[:, 0] = 1
    page = written(tmp_path, model, [red, foreign_images(1, size=48)])
    assert [image['hw'] for image in page.data['images']] == [[32, 32], [48, 48]]
    png = base64.b64decode(page.data['images'][0]['src'].partition(',')[2])
    assert np.unique(np.asarray(Image.open(io.BytesIO(png))).reshape(-1, 3), axis=0).tolist() == [[255, 0, 0]]


def test_a_page_that_would_be_too_large_has_fewer_queries(tmp_path, monkeypatch):
    x, name = foreign_images(), 'vit_tiny_patch16_224'
    whole = written(tmp_path / 'whole', vitplug.plug_in(timm_model(name), []), x)
    monkeypatch.setattr(writing, 'LARGEST_PAGE', len(whole.text) - 3000)
    small = written(tmp_path / 'small', vitplug.plug_in(timm_model(name), []), x)
    assert len(small.text) <= len(whole.text) - 3000 and 'queries: one of 2 x 2; keys: all' in small.text
    monkeypatch.setattr(writing, 'LARGEST_PAGE', 20_000)
    with pytest.raises(ValueError, match=r'a.html: 0.0 MB without maps, of 0.02: name fewer images'):
        written(tmp_path / 'none', vitplug.plug_in(timm_model(name), []), x)


def test_a_model_is_as_it_was_afterwards(tmp_path):
    model = timm_model(VIT).train()
    model.blocks[0].eval()
    vitplug.plug_in(model, 'gab')
    before = [module.training for module in model.modules()]
    trained = [p.requires_grad_(index % 2 == 0).requires_grad for index, p in enumerate(model.parameters())]
    written(tmp_path, model, foreign_images())
    assert [module.training for module in model.modules()] == before
    assert [p.requires_grad for p in model.parameters()] == trained
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(out='a.pdf'), r'out: a\.pdf must end in \.html'),
        (dict(images=[]), 'images: there are none'),
        (dict(images=torch.zeros(3, 32, 32)), r'VisionTransformer does not run on an image \(1, 32, 32\)'),
        (dict(images=torch.zeros(1, 3, 40, 40)), r'VisionTransformer does not run on an image \(1, 3, 40'),
        (dict(classes=['a', 'b']), 'classes: 2 names, but VisionTransformer has 5 classes'),
        (dict(baseline=lambda: timm_model(VIT)), 'has no plugs; call vitplug.plug_in'),
    ],
)
def test_wrong_calls_write_nothing(settings, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {key: value() if callable(value) else value for key, value in settings.items()}
    x = settings.pop('images', foreign_images())
    with pytest.raises(ValueError, match=message):
        vitplug.microscope(vitplug.plug_in(timm_model(VIT), []), x, **settings)
    assert not list(tmp_path.iterdir())


# --- the command ---


@pytest.fixture(scope='module')
def folder(digits, tmp_path_factory):
    """Checkpoints of untrained models with weights that are large enough for maps that are not flat."""
    folder = tmp_path_factory.mktemp('microscope')

    def stronger(module):
        for parameter in module.parameters(recurse=False):
            parameter.add_(0.15 * torch.randn_like(parameter))

    for config in (CLASSIFICATION, PLAIN, DETECTION, SEGMENTATION):
        save_untrained(config, folder / f'{config.stem}.pth', stronger)
    return folder


def call(folder, config, *arguments, out='a.html'):
    (folder / out).unlink(missing_ok=True)
    main([str(config), str(folder / f'{config.stem}.pth'), *map(str, arguments), '--out', str(folder / out),
          '--device', 'cpu'])  # fmt: skip
    return Page(folder / out)


@pytest.mark.integration
def test_each_task_has_maps_predictions_and_truth(folder, digits, monkeypatch):
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
    path = sorted((digits / 'imagenet/val').rglob('*.png'))[3]
    page = call(folder, CLASSIFICATION, path, '--baseline', PLAIN, folder / f'{PLAIN.stem}.pth')
    assert 'maps' in page.data['images'][0]['maps'][1] and 'maps' not in page.data['images'][0]['maps'][0]
    *predicted, truth = page.data['images'][0]['predictions']
    assert len(predicted) == 2 and path.parent.name.endswith(truth['text']) and truth['src'] is None
    for config, path in (
        (SEGMENTATION, sorted((digits / 'ade/images/validation').iterdir())[1]),
        (DETECTION, sorted((digits / 'coco/val').iterdir())[1]),
    ):
        elsewhere = Path(shutil.copy(path, folder / 'elsewhere.png'))
        listed, unlisted = call(folder, config, path, elsewhere).data['images']
        assert len(listed['predictions']) == 2 and len(unlisted['predictions']) == 1
        assert all(one['src'].startswith('data:image/') for one in listed['predictions'])
        assert listed['predictions'][0]['src'] != listed['predictions'][1]['src']


@pytest.mark.integration
@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['{root}/docs'], 'docs is no image file, of .*: name a few images'),
        (['{broken}'], r'broken\.png: cannot be read: '),
        (['{image}', '--baseline', str(DETECTION), f'{{folder}}/{DETECTION.stem}.pth'], 'models of one task'),
    ],
)
def test_wrong_commands_end_in_one_line(folder, digits, monkeypatch, capsys, arguments, message):
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
    (folder / 'broken.png').write_bytes(b'no image')
    image = next((digits / 'imagenet/val').rglob('*.png'))
    known = dict(root=ROOT, folder=folder, image=image, broken=folder / 'broken.png')
    with pytest.raises(SystemExit) as end:
        call(folder, PLAIN, *(argument.format(**known) for argument in arguments))
    assert end.value.code == 2 and re.search(message, capsys.readouterr().err)
    assert not (folder / 'a.html').exists()


# --- in a browser ---

BROWSER, DRIVER = (shutil.which('chromium') or shutil.which('google-chrome')), shutil.which('chromedriver')


@pytest.mark.integration
@pytest.mark.skipif(not (BROWSER and DRIVER), reason='no chromium with its chromedriver is installed')
def test_the_page_reads_its_maps_in_a_browser(folder, digits, monkeypatch):
    """The value under the pointer is that of the model, also in a shifted window; nothing is fetched."""
    webdriver = pytest.importorskip('selenium.webdriver', reason='selenium is not installed')
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
    page = call(folder, DETECTION, sorted((digits / 'coco/val').iterdir())[1])
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ('--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'):
        options.add_argument(argument)
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        driver.get((folder / 'a.html').as_uri())
        end = time.monotonic() + 30
        while driver.execute_script('return document.documentElement.dataset.ready') != 'true':
            assert time.monotonic() < end, driver.get_log('browser')
            time.sleep(0.05)
        for block, head in ((1, 1), (0, -1)):  # block 1 is shifted
            for control, value in (('block', block), ('head', head)):
                driver.execute_script(
                    'const [id, value] = arguments; const input = document.getElementById(id);'
                    'input.value = value; input.dispatchEvent(new Event("input"))',
                    control,
                    value,
                )
            [canvas] = driver.find_elements('css selector', '#panels canvas[role=img]')
            canvas.send_keys('\ue012', '\ue014')  # to the left, and back
            tiles = page.data['images'][0]['maps'][0]['probs'][block]
            row, column = (
                int(((side - 1) / 2 - start) // stride)
                for side, start, stride in zip(
                    page.data['images'][0]['hw'], tiles['queries']['start'], tiles['queries']['stride'], strict=True
                )
            )
            found = re.search(
                r'Value at row (\d+), column (\d+): .*: ([\d.e-]+)\.$', driver.find_element('id', 'readout').text
            )
            assert (int(found[1]), int(found[2])) == (row, column)
            maps = page.maps('probs', block)[:, row * tiles['queries']['hw'][1] + column]
            window = tiles['window'][1]
            place = [
                (at - tiles['shift']) % side % window
                for at, side in zip((row, column), tiles['padded'][1], strict=True)
            ]
            values = maps[:, place[0] * window + place[1]]
            expected = values.mean() if head < 0 else values[head]
            assert float(found[3]) == pytest.approx(expected, rel=6e-3)
        assert not driver.get_log('browser')
    finally:
        driver.quit()
