"""The microscope's page in a real browser: what it draws and says, against the maps of the model."""

import json
import re
import shutil
import time
from pathlib import Path

import bad_inputs
import mmcv
import numpy as np
import pytest
import torch
from adapters import foreign
from cases import randomize
from matplotlib import colormaps
from mmengine.registry import MODELS, init_default_scope
from PIL import Image
from torch import nn

from vitplug.config.reading import read_config
from vitplug.lab.microscope.report import COLOURS
from vitplug.tasks import check_scope

webdriver = pytest.importorskip('selenium.webdriver', reason='selenium is not installed')
BROWSER, DRIVER = (shutil.which('chromium') or shutil.which('google-chrome')), shutil.which('chromedriver')
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason='no chromium with its chromedriver is installed'),
]

LUT = (colormaps[COLOURS](np.arange(256))[:, :3] * 255).round().astype(int)
VIT = """
_base_ = 'tiny.py'
model = dict(
    backbone=dict(
        arch=dict(embed_dims=12, num_layers=3, num_heads=3, feedforward_channels=16),
        img_size=(32, 48),
        with_cls_token=True,
        out_type='cls_token',
        plugs=[{plugs}],
    ),
    head=dict(in_channels=12),
)
_pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(48, 32)), dict(type='PackInputs')]
test_dataloader = dict(dataset=dict(pipeline=_pipeline))
"""
SWIN = """
_base_ = 'swin.py'
model = dict(
    backbone=dict(
        arch=dict(embed_dims=8, depths=[2, 1], num_heads=[2, 2]),
        img_size=32,
        plugs=[dict(type='GaussianAttentionBias')],
    )
)
_pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(32, 32)), dict(type='PackInputs')]
test_dataloader = dict(dataset=dict(pipeline=_pipeline))
"""


def build(folder: Path, name: str) -> nn.Module:
    cfg = read_config(str(folder / f'{name}.py'))
    check_scope(cfg)
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model)


def trained(folder: Path, name: str) -> nn.Module:
    """The model with the weights of its checkpoint."""
    model = build(folder, name).eval()
    model.load_state_dict(torch.load(folder / f'{name}.pth', weights_only=True)['state_dict'])
    return model


def write_model(folder: Path, name: str, config: str, seed: int) -> None:
    """A config, and a checkpoint of random weights with maps that are neither flat nor saturated."""
    (folder / f'{name}.py').write_text(config)
    model = randomize(build(folder, name), seed)
    torch.save(dict(state_dict=model.state_dict(), meta={}), folder / f'{name}.pth')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Two reports: of a ViT with Refiner against a plain one on two images, and of a Swin."""
    folder = bad_inputs.prepare(tmp_path_factory.mktemp('scope') / 'work')
    refiner = "dict(type='Refiner', init='default')"
    write_model(folder, 'plugged', VIT.format(plugs=refiner), 1)
    write_model(folder, 'plain', VIT.format(plugs=''), 2)
    write_model(folder, 'windows', SWIN, 3)
    rng = np.random.default_rng(0)
    for name in ('a', 'b'):
        Image.fromarray(rng.integers(0, 256, (32, 48, 3), np.uint8)).save(folder / f'photo_{name}.png')
    commands = (
        'plugged.py plugged.pth photo_a.png photo_b.png --baseline plain.py plain.pth --out vit.html',
        'windows.py windows.pth photo_a.png --out swin.html',
        'windows.py windows.pth data/val/dog/0.png photo_a.png --out truth.html',
        'plugged.py plugged.pth photo_a.png photo_b.png --baseline plain.py plain.pth --edits --out edits.html',
    )
    for command in commands:
        done = bad_inputs.run(f'microscope.py {command} --device cpu', folder)
        assert done.status == 0, done.text
        assert re.search(r'report: \w+\.html \(\d\.\d\d MB, ', done.out)
    return folder


@pytest.fixture(scope='module')
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ('--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'):
        options.add_argument(argument)
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL', 'performance': 'ALL'})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


class Page:
    """A report in the browser."""

    def __init__(self, driver, path: Path, width: int = 1300):
        self.driver = driver
        driver.get_log('browser'), driver.get_log('performance')
        metrics = dict(width=width, height=1000, deviceScaleFactor=1, mobile=False)
        driver.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', metrics)
        driver.get(path.as_uri())
        self.wait_until("return document.documentElement.dataset.ready === 'true'")

    def run(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait_until(self, script: str) -> None:
        end = time.monotonic() + 30
        while not self.run(script):
            assert time.monotonic() < end, f'{script}: {self.driver.get_log("browser")}'
            time.sleep(0.02)

    def set(self, control: str, value) -> None:
        """Moves a slider, or ticks a box."""
        self.run(
            """const control = document.getElementById(arguments[0]);
            if (control.type === 'checkbox') control.checked = arguments[1]; else control.value = arguments[1];
            control.dispatchEvent(new Event('input')); control.dispatchEvent(new Event('change'));""",
            control, value,
        )  # fmt: skip

    def choose(self, group: str, value) -> None:
        """Clicks a choice, as a person does."""
        self.find(f'#{group} input[value="{value}"]').click()
        time.sleep(0.1)

    def find(self, selector: str):
        return self.driver.find_element('css selector', selector)

    def click_at(self, canvas: str, y: float, x: float, hw: tuple[int, int]) -> None:
        """Clicks a pixel of the image, with the mouse."""
        element = self.find(canvas)
        self.wait_until_still()
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        box = element.rect
        scale = min(box['width'] / hw[1], box['height'] / hw[0])
        actions = webdriver.ActionChains(self.driver)
        offset = x * scale - box['width'] / 2, y * scale - box['height'] / 2
        actions.move_to_element_with_offset(element, *map(round, offset)).click().perform()

    def wait_until_still(self) -> None:
        """The readout follows 60 ms after a change, and may then be longer or shorter and move the page."""
        self.driver.execute_async_script('setTimeout(arguments[0], 100)')

    def press(self, canvas: str, *keys: str) -> None:
        self.run('document.querySelector(arguments[0]).focus()', canvas)
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def colours(self, canvas: str, pixels) -> np.ndarray:
        """Colours ``(n, 4)`` of a canvas at pixels ``(y, x)`` of the image."""
        return np.array(
            self.run(
                """const canvas = document.querySelector(arguments[0]);
                const scale = canvas.width / arguments[2];
                return arguments[1].map(([y, x]) => [...canvas.getContext('2d')
                    .getImageData(Math.floor(x * scale), Math.floor(y * scale), 1, 1).data]);""",
                canvas, [list(map(float, pixel)) for pixel in pixels], self.width_of_image(),
            )
        )  # fmt: skip

    def width_of_image(self) -> int:
        return self.run("return JSON.parse(document.getElementById('data').textContent).images[0].hw[1]")

    def said(self, wanted: str = '') -> str:
        """The text of the live region, when it has a text."""
        end = time.monotonic() + 5
        while wanted not in (text := self.find('#readout').text) and time.monotonic() < end:
            time.sleep(0.02)
        return text


def canvas_of(model: str, kind: str) -> str:
    return f'canvas[data-model="{model}"][data-kind="{kind}"]'


@pytest.fixture(scope='module')
def maps(folder):
    """Maps of both ViTs for both images, ``maps[role][name]``: ``(images, layers, H, N, N)``."""
    found = {}
    images = torch.stack(
        [
            torch.from_numpy(np.asarray(Image.open(folder / f'photo_{name}.png')).copy()).permute(2, 0, 1)
            for name in ('a', 'b')
        ]
    )
    # mmpretrain's preprocessor: blue first as loaded, since to_rgb is not set.
    inputs = (images.flip(1).float() - 127.5) / 64
    for role, name in (('model', 'plugged'), ('baseline', 'plain')):
        with torch.no_grad():
            _, intermediates = trained(folder, name).backbone.forward_intermediates(inputs, ('probs', 'maps'))
        found[role] = {kind: torch.stack([m[:, 0] for m in by.values()], 1) for kind, by in intermediates.items()}
    return found


HW, PATCH = (32, 48), 8
CENTRES = [(PATCH * row + PATCH / 2, PATCH * column + PATCH / 2) for row in range(4) for column in range(6)]


def assert_shows(page, canvas, rows, centres=CENTRES, prefix=1, low=None, high=None):
    """The canvas has the colours of the mean of rows ``(heads, keys)``, each of which has steps of its own."""
    rows = rows.double().numpy()
    values = rows.mean(0)[prefix:]
    grid = rows[:, prefix:]
    half_step = (grid.max(1) - np.minimum(grid.min(1), 0)).max() / 255 / 2
    low, high = min(0, values.min()) if low is None else low, values.max() if high is None else high
    expected = 255 * (values - low) / (high - low)
    found = page.colours(canvas, centres)
    assert (found[:, 3] == 255).all()
    distance = np.abs(found[:, None, :3] - LUT).sum(-1)
    assert (distance.min(1) == 0).all(), 'a colour that is none of the colour map'
    # Half a step of the value, which also moves the ends of the scale, and half a colour.
    tolerance = 0.5 + 2 * 255 * half_step / (high - low)
    assert np.abs(distance.argmin(1) - expected).max() <= tolerance


def test_click_shows_the_map_of_the_token(browser, folder, maps):
    page = Page(browser, folder / 'vit.html')
    page.set('cover', 100)
    page.set('shared', False)
    shown = [('baseline', 'probs'), ('model', 'probs'), ('model', 'maps')]
    assert len(page.driver.find_elements('css selector', '#panels figure')) == 1 + len(shown)
    for image, block, head, (row, column) in ((0, 0, 1, (0, 0)), (0, 2, 2, (3, 5)), (1, 1, 0, (2, 1))):
        page.choose('images', image)
        page.set('block', block)
        page.set('head', head)
        page.click_at('.pick', PATCH * row + 5, PATCH * column + 3, HW)
        for role, kind in shown:
            of = maps[role][kind][image, block]
            rows = of[min(head, len(of) - 1), 1 + 6 * row + column][None]
            assert_shows(page, canvas_of(role, kind), rows)
        said = page.said(f'row {row}, column {column} of 4 by 6; block {block}; head {head}.')
        best = maps['baseline']['probs'][image, block, head, 1 + 6 * row + column, 1:]
        where = divmod(int(best.argmax()), 6)
        number = re.search(r'Baseline: highest ([\d.e-]+) at row (\d+), column (\d+)', said)
        assert float(number[1]) == pytest.approx(float(best.max()), rel=0.01)
        assert (int(number[2]), int(number[3])) == where


@torch.no_grad()
def without_head(folder, name: str, block: int, head: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Change of the last features, and scores before and after, of a model without the columns of a head."""
    pixels = torch.from_numpy(np.asarray(Image.open(folder / 'photo_b.png')).copy()).permute(2, 0, 1)
    image, model = (pixels.flip(0).float()[None] - 127.5) / 64, trained(folder, name)

    def run():
        return model.backbone(image)[-1], model(image, mode='tensor').softmax(-1)[0].numpy()

    before, scores = run()
    attention = model.backbone.plugged_blocks()[block].attn
    dims = attention.proj.weight.shape[1] // attention.num_heads
    attention.proj.weight[:, head * dims : (head + 1) * dims] = 0
    after, left = run()
    return float((after - before).norm() / before.norm()), scores, left


def test_models_without_a_head(browser, folder):
    """Cells of blocks and heads: colours, and what a click says, beside models whose projection lacks the head."""
    page = Page(browser, folder / 'edits.html')
    page.choose('images', 1)
    page.choose('modes', 'edits')
    changes = {
        role: np.array([[without_head(folder, name, block, head)[0] for head in range(3)] for block in range(3)])
        for role, name in (('model', 'plugged'), ('baseline', 'plain'))
    }
    most = max(found.max() for found in changes.values())
    for role, found in changes.items():
        canvas = canvas_of(role, 'edits')
        assert page.run('const c = document.querySelector(arguments[0]); return [c.height, c.width]', canvas) == [
            162,
            162,
        ]
        colours = page.run(
            """const context = document.querySelector(arguments[0]).getContext('2d');
            return [0, 1, 2].map((block) => [0, 1, 2].map((head) =>
                [...context.getImageData(30 + 44 * head + 20, 30 + 44 * block + 20, 1, 1).data]));""",
            canvas,
        )  # fmt: skip
        index = np.abs(np.array(colours)[..., None, :3] - LUT).sum(-1).argmin(-1)
        assert np.abs(index - 255 * found / most).max() <= 1
    page.click_at(canvas_of('model', 'edits'), 30 + 44 * 1 + 20, 30 + 44 * 2 + 20, (162, 162))
    said = page.said('Without head 2 of block 1')
    for role, name in (('This model', 'plugged'), ('Baseline', 'plain')):
        change, scores, left = without_head(folder, name, 1, 2)
        own = said[said.index(role) :]
        fall = float(re.search(r'Fall of the score: (-?[\d.e-]+) \(random', own)[1])
        assert fall == pytest.approx(scores.max() - left[scores.argmax()], abs=2e-4)
        number = float(re.search(r'The last features change by ([\d.e-]+) of their norm', own)[1])
        assert number == pytest.approx(change, rel=0.01)
        assert ('the same class' in own.partition('Fall of')[0]) == (scores.argmax() == left.argmax())
    assert page.run("return document.getElementById('block').value") == '1'
    page.press(canvas_of('model', 'edits'), '\ue012', '\ue013')  # left, up
    assert 'Without head 1 of block 0' in page.said('Without head 1 of block 0')
    assert page.run("return document.getElementById('head').value") == '1'
    plain = Page(browser, folder / 'vit.html')
    assert plain.find('#modes input[value="edits"]').get_attribute('disabled')
    assert 'Without a head: written with --edits' in plain.find('#reasons').text


def test_mean_of_heads_class_token_and_one_scale(browser, folder, maps):
    page = Page(browser, folder / 'vit.html')
    page.set('cover', 100)
    page.set('block', 1)
    page.choose('queries', 'class')
    assert page.said('Class token; block 1; mean of heads.')
    shown = [('baseline', 'probs'), ('model', 'probs'), ('model', 'maps')]
    rows = {key: maps[key[0]][key[1]][0, 1, :, 0] for key in shown}
    everything = torch.stack([heads.mean(0)[1:] for heads in rows.values()])
    low, high = min(0.0, float(everything.min())), float(everything.max())
    for key, heads in rows.items():
        assert_shows(page, canvas_of(*key), heads, low=low, high=high)
    caption = page.find(f'figure:has({canvas_of("baseline", "probs")}) .caption').text
    assert float(re.fullmatch(r'to the class token: ([\d.]+)', caption)[1]) == pytest.approx(
        float(rows['baseline', 'probs'][:, 0].mean()), rel=0.002
    )


def test_model_of_timm(browser, tmp_path):
    """The page of a model that vitplug does not own, against the softmax of timm's own attention."""
    pytest.importorskip('timm')
    import vitplug

    x, path = foreign.images(), tmp_path / 'timm.html'
    vitplug.microscope(vitplug.plug_in(foreign.timm_model('vit_tiny_patch16_224'), []), x, path)
    plain, maps = foreign.timm_model('vit_tiny_patch16_224'), []
    for block in plain.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda drop, args, out: maps.append(args[0]))
    scores = plain(x).softmax(-1)[1]
    page = Page(browser, path)
    page.set('cover', 100)
    page.choose('images', 1)
    page.set('block', 1)
    page.set('head', 2)
    page.click_at('.pick', 20, 12, (32, 32))  # row 2, column 1
    centres = [(8 * row + 4, 8 * column + 4) for row in range(4) for column in range(4)]
    assert_shows(page, canvas_of('model', 'probs'), maps[1][1, 2, 1 + 4 * 2 + 1][None].detach(), centres)
    page.choose('modes', 'prediction')
    assert f'class {int(scores.argmax())}: {float(scores.max()):.1%}' in page.said('class')
    assert 'Without a head: written with edits=True' in page.find('#reasons').text
    assert not [entry for entry in page.driver.get_log('browser') if entry['level'] == 'SEVERE']


def test_rollout_of_the_token(browser, folder, maps):
    page = Page(browser, folder / 'vit.html')
    page.set('cover', 100)
    page.set('shared', False)
    page.choose('modes', 'rollout')
    for block in (0, 2):
        page.set('block', block)
        page.click_at('.pick', 12, 20, HW)
        for role in ('baseline', 'model'):
            rolled = torch.eye(25)
            for layer in range(block + 1):
                step = 0.5 * maps[role]['probs'][0, layer].mean(0) + 0.5 * torch.eye(25)
                rolled = step / step.sum(-1, keepdim=True) @ rolled
            assert_shows(page, canvas_of(role, 'rollout'), rolled[1 + 6 * 1 + 2][None])


def test_keys_move_token_block_and_head(browser, folder):
    page = Page(browser, folder / 'vit.html')
    page.click_at('.pick', 4, 4, HW)
    page.press('.pick', webdriver.Keys.ARROW_DOWN, webdriver.Keys.ARROW_RIGHT, webdriver.Keys.ARROW_RIGHT)
    assert page.said('row 1, column 2')
    page.press('.pick', webdriver.Keys.ARROW_UP, webdriver.Keys.ARROW_UP, webdriver.Keys.PAGE_UP)
    assert page.said('row 0, column 2 of 4 by 6; block 1')  # it stays in the image
    page.press('#block', webdriver.Keys.ARROW_LEFT)
    page.press('#head', webdriver.Keys.ARROW_RIGHT, webdriver.Keys.ARROW_RIGHT)
    assert page.said('block 0; head 1.')
    # In a map, they move the key that is read.
    canvas = canvas_of('baseline', 'probs')
    page.press(canvas, webdriver.Keys.ARROW_DOWN)
    assert page.said('Value at row 1, column 2: Baseline: ')
    assert page.find('#probe').text == page.said()


def test_value_under_the_pointer(browser, folder, maps):
    page = Page(browser, folder / 'vit.html')
    page.set('block', 0)
    page.set('head', 2)
    page.click_at('.pick', 20, 20, HW)  # row 2, column 2
    page.click_at(canvas_of('model', 'probs'), 4, 44, HW)  # row 0, column 5
    text = page.find('#probe').text
    assert text.startswith('Value at row 0, column 5: ')
    numbers = [float(number) for number in re.findall(r': (-?[\d.e-]+)[;.]', text)]
    heads = [(role, kind, maps[role][kind][0, 0]) for role, kind in (('baseline', 'probs'), ('model', 'probs'))]
    for (role, _, of), number in zip(heads, numbers, strict=False):
        row = of[2, 1 + 6 * 2 + 2, 1:]
        assert number == pytest.approx(float(row[5]), abs=0.006 * float(row.max())), role


def test_modes_and_images_change_the_panels(browser, folder):
    page = Page(browser, folder / 'vit.html')
    pictures = set()
    for image in (0, 1):
        page.choose('images', image)
        for mode, kinds in (('gradcam', 2), ('norms', 2), ('prediction', 2), ('attention', 3)):
            page.choose('modes', mode)
            assert len(page.driver.find_elements('css selector', '#panels figure')) == 1 + kinds
            pictures.add(page.run("return document.querySelector('#panels canvas[data-model=model]').toDataURL()"))
    assert len(pictures) == 8
    page.choose('modes', 'prediction')
    assert re.search(r'Baseline: (cat|dog): [\d.]+%', page.said('Baseline: '))


def test_ground_truth_is_beside_the_prediction(browser, folder):
    page = Page(browser, folder / 'truth.html')
    page.choose('modes', 'prediction')
    for image, said in ((0, 'Ground truth: dog.'), (1, 'Ground truth: not in the data of the config.')):
        page.choose('images', image)
        assert said in page.said(said) and re.search(r'This model: (cat|dog): [\d.]+%', page.said())
        figures = [figure.text for figure in page.driver.find_elements('css selector', '#panels figure')]
        assert [text.split('\n')[0] for text in figures] == ['Token', 'This model', 'Ground truth']
    page.choose('modes', 'attention')
    assert 'Ground truth' not in page.find('#panels').text
    # Nothing is known of the images of this page.
    page = Page(browser, folder / 'swin.html')
    page.choose('modes', 'prediction')
    assert 'Ground truth' not in page.find('#panels').text


def test_tables_can_be_read_on_a_telephone(browser, folder):
    """Numbers and words stay on one line at 390 pixels; what does not fit scrolls in its own box."""
    page = Page(browser, folder / 'vit.html', 390)
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    broken = """const line = (cell) => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
        };
        return [...document.querySelectorAll('td')].filter((cell) => line(cell) > 1).map((cell) => cell.textContent);"""
    assert page.run(broken) == []
    words = """return [...document.querySelectorAll('.scroll th[scope=row]')].map((cell) => cell.offsetWidth);"""
    assert min(page.run(words)) >= 100
    wide = """return [...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth)
        .every((box) => getComputedStyle(box).overflowX === 'auto' && box.tabIndex === 0);"""
    assert page.run(wide) and page.run('return document.documentElement.scrollWidth <= innerWidth')


def test_windows_lie_where_they_are_in_the_image(browser, folder):
    """Shifted windows of a Swin: keys outside of the token's window are not painted."""
    page = Page(browser, folder / 'swin.html')
    model = trained(folder, 'windows')
    picture = Image.open(folder / 'photo_a.png')
    pixels = page.run("return document.querySelector('#images img').src.slice(0, 22)")
    assert pixels == 'data:image/png;base64,' and picture.size == (48, 32)
    resized = mmcv.imresize(np.asarray(picture)[..., ::-1], (32, 32)).astype(np.float32)
    inputs = torch.from_numpy((resized - 127.5) / 64).permute(2, 0, 1)[None]
    with torch.no_grad():
        _, found = model.backbone.forward_intermediates(inputs, ('probs',))
    page.set('cover', 100)
    page.set('head', 1)
    centres = [(4 * row + 2, 4 * column + 2) for row in range(8) for column in range(8)]
    for block, (row, column) in ((0, (5, 2)), (1, (1, 1)), (1, (3, 7)), (1, (7, 0))):
        page.set('block', block)
        page.click_at('.pick', 4 * row + 2, 4 * column + 2, (32, 32))
        page.said(f'row {row}, column {column} of 8 by 8; block {block}')
        heat = model.backbone.maps_to_image(found, block, (32, 32), query=(4 * row + 2, 4 * column + 2))[0, 1]
        values = heat[[y for y, _ in centres], [x for _, x in centres]]
        seen = values > 1e-6  # neither outside of the window nor masked in it
        assert 0 < seen.sum() <= 16
        kept = [centre for centre, inside in zip(centres, seen, strict=True) if inside]
        assert_shows(page, canvas_of('model', 'probs'), values[seen][None], kept, prefix=0, low=0)
        grey = page.colours(
            canvas_of('model', 'probs'), [c for c, inside in zip(centres, seen, strict=True) if not inside]
        )
        unpainted = (grey[:, 0] == grey[:, 1]) & (grey[:, 1] == grey[:, 2])
        # Masked keys of a shifted window are in it, with a value of 0.
        assert (unpainted | (grey[:, :3] == LUT[0]).all(1)).all() and unpainted.sum() >= 64 - 16
    assert page.find('#modes input[value=rollout]').get_attribute('disabled')
    assert 'Rollout: needs one grid' in page.find('#reasons').text


@pytest.mark.parametrize('scheme', ['light', 'dark'])
@pytest.mark.parametrize('width', [1300, 420])
def test_page_is_whole_without_a_network(browser, folder, scheme, width):
    browser.execute_cdp_cmd(
        'Emulation.setEmulatedMedia', {'features': [dict(name='prefers-color-scheme', value=scheme)]}
    )
    for name in ('vit.html', 'swin.html'):
        page = Page(browser, folder / name, width)
        for mode in page.driver.find_elements('css selector', '#modes input:not(:disabled)'):
            mode.click()
            time.sleep(0.1)
        assert page.run('return document.documentElement.scrollWidth <= innerWidth'), 'the page scrolls sideways'
        dark = page.run('return getComputedStyle(document.documentElement).backgroundColor') == 'rgb(20, 23, 28)'
        assert dark == (scheme == 'dark')
        events = [json.loads(entry['message'])['message'] for entry in browser.get_log('performance')]
        asked = [e['params']['request']['url'] for e in events if e['method'] == 'Network.requestWillBeSent']
        assert [url for url in asked if not url.startswith('data:')] == [(folder / name).as_uri()]
        assert browser.get_log('browser') == []


def test_network_is_forbidden_by_the_page_itself(browser, folder):
    page = Page(browser, folder / 'vit.html')
    script = """const done = arguments[0];
        document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
        fetch('http://127.0.0.1:9/').catch(() => {});"""
    assert browser.execute_async_script(script) == 'connect-src'
    browser.get_log('browser')
    assert page.run("return document.querySelectorAll('[style], [onclick], [src^=http], link[href^=http]').length") == 0


def test_controls_have_names(browser, folder):
    """What a screen reader finds: every control and picture has a role and a name, and the readout is live."""
    page = Page(browser, folder / 'vit.html')
    nodes = browser.execute_cdp_cmd('Accessibility.getFullAXTree', {})['nodes']
    named = {}
    for node in nodes:
        if not node.get('ignored'):
            role = node['role']['value']
            named.setdefault(role, []).append(node.get('name', {}).get('value', ''))
    for role, least in (('slider', 3), ('radio', 9), ('checkbox', 1), ('image', 8), ('application', 1), ('heading', 6)):
        assert len(named.get(role, [])) >= least, f'{role}: {named.get(role)}'
        assert all(named[role]), f'{role} without a name: {named[role]}'
    assert 'photo_a.png. Token at row' in named['application'][0]
    assert page.find('#readout').get_attribute('aria-live') == 'polite'
    assert page.find('#block').get_attribute('aria-valuetext') == 'block 2'


def test_browser_without_decompression_is_told(browser, folder):
    source = (folder / 'vit.html').read_text()
    lacking = source.replace("typeof DecompressionStream === 'undefined'", 'true')
    assert lacking != source
    # The policy allows the page's own script alone: a changed one does not run at all.
    (folder / 'changed.html').write_text(lacking)
    browser.get((folder / 'changed.html').as_uri())
    end, refused = time.monotonic() + 10, False
    while not refused and time.monotonic() < end:
        refused = any('Content Security Policy' in entry['message'] for entry in browser.get_log('browser'))
    assert refused
    script = browser.execute_cdp_cmd(
        'Page.addScriptToEvaluateOnNewDocument', dict(source='delete window.DecompressionStream')
    )
    try:
        browser.get((folder / 'vit.html').as_uri())
        told = browser.find_element('id', 'trouble').text
        assert 'lacks DecompressionStream' in told and 'Safari from 16.4' in told
        assert len(browser.find_elements('css selector', '#measures svg')) == 4
        assert browser.get_log('browser') == []
    finally:
        browser.execute_cdp_cmd('Page.removeScriptToEvaluateOnNewDocument', script)


@pytest.mark.slow
def test_four_images_at_224_take_five_megabytes(browser, folder):
    """A model as large as DeiT-S against itself, untrained."""
    arch = "'deit-small'"
    big = VIT.replace('arch=dict(embed_dims=12, num_layers=3, num_heads=3, feedforward_channels=16)', f'arch={arch}')
    big = big.replace('(32, 48)', '224').replace('in_channels=12', 'in_channels=384').replace('(48, 32)', '(224, 224)')
    config = big.replace('img_size', 'patch_size=16, img_size').format(plugs="dict(type='GaussianAttentionBias')")
    (folder / 'big.py').write_text(config)
    torch.manual_seed(0)
    torch.save(dict(state_dict=build(folder, 'big').state_dict(), meta={}), folder / 'big.pth')
    rng = np.random.default_rng(1)
    names = []
    for number in range(4):
        coarse = rng.integers(0, 256, (16, 16, 3), np.uint8)
        Image.fromarray(coarse).resize((224, 224), Image.Resampling.BICUBIC).save(folder / f'large_{number}.png')
        names.append(f'large_{number}.png')
    done = bad_inputs.run(
        f'microscope.py big.py big.pth {" ".join(names)} --baseline big.py big.pth --device cpu --out big.html', folder
    )
    assert done.status == 0, done.text
    size = (folder / 'big.html').stat().st_size
    page = Page(browser, folder / 'big.html')
    loaded = page.run("return performance.getEntriesByType('navigation')[0].loadEventEnd")
    print(f'\n{done.out.splitlines()[-1]}; loaded after {loaded:.0f} ms')
    assert size <= 5_000_000
    assert 'subsampled' in page.find('body').text
