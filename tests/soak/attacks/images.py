"""Damaged images and label maps, read by trainings, tests and the check of a data set."""

import io
import os
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from .trials import REGISTRY, Accept, Scene, Trial, become, draw_content, flip_bits, one

SAME, TOLD, REFUSED, ANY = Accept.SAME, Accept.TOLD, Accept.REFUSED, Accept.ANY

TRAIN = 'train.py {config}.py --work-dir work'
TEST = 'test.py {config}.py good_{model}.pth --work-dir tested --out pred.pkl'
CHECK = 'check_dataset.py {config}.py --splits {split}'
# The images of each config by split; segmentation has the same for both.
IMAGES = {
    'classify': {split: [f'data/{split}/{kind}/{name}' for kind in ('cat', 'dog') for name in ('0.png', '1.jpg')]
                 for split in ('train', 'val')},
    'segment': {split: [f'ade/images/{number}.png' for number in range(3)] for split in ('train', 'val')},
    'detect': {split: [f'coco/{split}/{number}.png' for number in range(2)] for split in ('train', 'val')},
}  # fmt: skip


@dataclass(frozen=True)
class Spoilt:
    """What was done to a picture.

    Attributes:
        accept: Which results are legitimate in a training or a test that end with status 0.
        what: The damage.
        checked: The same for the check of a data set; as `accept` if None.
        names: What a message may name instead of the file.
    """

    accept: Accept
    what: str
    checked: Accept | None = None
    names: tuple[str, ...] = ()


Damage = Callable[[Path, random.Random], Spoilt]


def read(scene: Scene, config: str, damage: Callable[[Path, str], tuple[str, Spoilt]]) -> Trial:
    """A trial that damages the data of a config and has it read by one of the tools."""
    folder = scene.make()
    split = scene.draw.choice(['train', 'val'])
    tools = {'train': [TRAIN, TRAIN, CHECK], 'val': [TRAIN, TEST, TEST, CHECK]}
    model = 'classify' if config == 'labels' else config
    line = scene.draw.choice(tools[split]).format(config=config, split=split, model=model)
    if line.startswith('train') and scene.draw.random() < 0.3:
        line += f' --cfg-options {split}_dataloader.num_workers=2'
    name, spoilt = damage(folder, split)
    is_check = line.startswith('check')
    accept = (spoilt.checked or spoilt.accept) if is_check else spoilt.accept
    return Trial(one(line), f'{name}: {spoilt.what}', (name, Path(name).name, *spoilt.names), accept)


def image(damage: Damage) -> Damage:
    """Registers damage to any image."""

    def attack(scene: Scene) -> Trial:
        config = scene.draw.choice(list(IMAGES))

        def spoil(folder: Path, split: str) -> tuple[str, Spoilt]:
            name = scene.draw.choice(IMAGES[config][split])
            return name, damage(folder / name, scene.draw)

        return read(scene, config, spoil)

    return REGISTRY.add('image', damage, attack)


def seg_map(damage: Damage) -> Damage:
    """Registers damage to a label map."""

    def attack(scene: Scene) -> Trial:
        def spoil(folder: Path, split: str) -> tuple[str, Spoilt]:
            name = f'ade/maps/{scene.draw.randrange(3)}.png'
            return name, damage(folder / name, scene.draw)

        return read(scene, 'segment', spoil)

    return REGISTRY.add('label map', damage, attack)


def _by_pixels(path: Path, before: bytes, what: str) -> Spoilt:
    """Judges changed bytes by a strict reader: the same pixels, others, or none.

    A JPEG that is cut short or changed inside is taken as it is, as documented (`check_dataset` is stricter); a PNG
    has checksums, so what is wrong with one can be known.
    """
    is_png = path.suffix == '.png'
    try:
        same = np.array_equal(_pixels(before), _pixels(path.read_bytes()))
    except Exception:
        return Spoilt(TOLD if is_png else ANY, what, checked=TOLD)
    if same:
        # Pillow and OpenCV differ in how much of a file they need.
        return Spoilt(TOLD, f'{what} (pixels unchanged)', checked=ANY)
    return Spoilt(TOLD if is_png else ANY, f'{what} (other pixels)', checked=ANY)


def _pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as found:
        if found.width * found.height > 10**6:
            raise ValueError('too large')
        return np.asarray(found.convert('RGB'))


@image
def truncated(path: Path, draw: random.Random) -> Spoilt:
    data = path.read_bytes()
    size = draw.choice([0, 1, 8, 20, draw.randrange(len(data)), len(data) - draw.randint(1, 12)])
    path.write_bytes(data[:size])
    return _by_pixels(path, data, f'cut to {size} of {len(data)} bytes')


@image
def flipped_bits(path: Path, draw: random.Random) -> Spoilt:
    before = path.read_bytes()
    path.write_bytes(flip_bits(before, draw, [1, 3, 20])[0])
    return _by_pixels(path, before, 'flipped bits')


@image
def zeros(path: Path, draw: random.Random) -> Spoilt:
    before = path.read_bytes()
    begin = draw.randrange(len(before))
    path.write_bytes(before[:begin] + bytes(len(before) - begin))
    return _by_pixels(path, before, f'zeros from byte {begin}')


@image
def more_bytes(path: Path, draw: random.Random) -> Spoilt:
    before = path.read_bytes()
    path.write_bytes(before + draw.randbytes(100))
    return Spoilt(SAME, 'bytes behind its end', checked=ANY)


@image
def another_file(path: Path, draw: random.Random) -> Spoilt:
    kinds = {
        'text': b'hello\n',
        'a web page': b'<html>404</html>',
        'random': draw.randbytes(500),
        'a pickle': b'\x80\x02}.',
        'SVG': b'<svg xmlns="http://www.w3.org/2000/svg" width="30000" height="30000"/>',
        'EPS': b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(harm) (w) file\n',
    }
    return Spoilt(TOLD, draw_content(kinds, path, draw))


@image
def another_format(path: Path, draw: random.Random) -> Spoilt:
    """A sound image of another kind, or of other modes, under the same name."""
    with Image.open(path) as found:
        picture = found.convert('RGB')
    form = draw.choice(['BMP', 'GIF', 'TIFF', 'WEBP', 'PPM', 'L', 'LA', 'RGBA', '1', 'P', 'I;16', 'CMYK', 'F'])
    if form in ('BMP', 'GIF', 'TIFF', 'WEBP', 'PPM'):
        picture.save(path, form)
    elif form == 'CMYK':
        picture.convert(form).save(path, 'JPEG')
    elif form == 'F':
        picture.convert('F').save(path, 'TIFF')
    elif form == 'I;16':
        Image.fromarray(np.asarray(picture.convert('L')).astype(np.uint16) * 257).save(path, 'PNG')
    else:
        picture.convert(form).save(path, 'PNG')
    return Spoilt(ANY, f'as {form}')


def _png(width: int, height: int, body: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

    head = struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + chunk(b'IDAT', body) + chunk(b'IEND', b'')


def packed_zeros(width: int, height: int) -> bytes:
    """So many rows of so many zeros, packed."""
    packer, row = zlib.compressobj(9), bytes(width)
    return b''.join(packer.compress(row) for _ in range(height)) + packer.flush()


@image
def huge(path: Path, draw: random.Random) -> Spoilt:
    """Headers that say many pixels, with all of them or none."""
    width, height = draw.choice([(30_000, 30_000), (2**31 - 1, 1), (1, 2**31 - 1), (65_535, 65_535), (12_000, 12_000)])
    kind = draw.choice(['PNG, all there', 'PNG, none there', 'BMP, none there', 'JPEG, none there', 'GIF', 'TIFF'])
    if kind == 'PNG, all there' and width * height < 10**9:
        path.write_bytes(_png(width, height, packed_zeros(width + 1, height)))
    elif kind.startswith('PNG'):
        path.write_bytes(_png(width, height, zlib.compress(bytes(100))))
    elif kind.startswith('BMP'):
        head = struct.pack('<IiiHHIIiiII', 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
        path.write_bytes(b'BM' + struct.pack('<IHHI', 54 + 100, 0, 0, 54) + head + bytes(100))
    elif kind == 'GIF':
        size = struct.pack('<HH', 65_535, 65_535)
        path.write_bytes(b'GIF89a' + size + b'\x00\x00\x00,' + bytes(4) + size + b'\x00\x02\x02L\x01\x00;')
    elif kind == 'TIFF':
        tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1)]
        body = b''.join(struct.pack('<HHII', tag, kind_, 1, value) for tag, kind_, value in tags)
        path.write_bytes(b'II*\x00\x08\x00\x00\x00' + struct.pack('<H', len(tags)) + body + bytes(4))
    else:
        file = io.BytesIO()
        Image.new('RGB', (16, 16)).save(file, 'JPEG')
        data = bytearray(file.getvalue())
        place = data.index(b'\xff\xc0') + 5
        data[place : place + 4] = struct.pack('>HH', min(height, 65_500), min(width, 65_500))
        path.write_bytes(data)
    return Spoilt(TOLD, f'{kind}, {width} x {height}')


@image
def small(path: Path, draw: random.Random) -> Spoilt:
    """Sound images of odd sizes: as good as any other for classification, unlike annotated for the rest."""
    size = draw.choice([(1, 1), (1, 500), (500, 1), (25, 16), (24, 17), (3, 3)])
    Image.new('RGB', size).save(path, 'PNG')
    return Spoilt(ANY, f'{size[0]} x {size[1]}')


@image
def missing(path: Path, draw: random.Random) -> Spoilt:
    path.unlink()
    # A folder's images are those that are in it; a list or a partner tells what is missing.
    return Spoilt(ANY if 'data' in path.parts else TOLD, 'missing', names=('ade/images',))


@image
def another_kind_of_file(path: Path, draw: random.Random) -> Spoilt:
    kind = draw.choice(['FIFO', 'folder', 'link to itself', 'link to nothing', '/dev/zero', '/dev/null', '/dev/stdin'])
    become(path, kind)
    return Spoilt(TOLD if kind != 'folder' else ANY, kind, names=('data',))


@image
def link_to_a_sound_one(path: Path, draw: random.Random) -> Spoilt:
    original = path.with_name('.original')
    path.rename(original)
    (path.symlink_to if draw.random() < 0.5 else path.hardlink_to)(original)
    return Spoilt(SAME, 'a link')


@image
def cyclic_folder(path: Path, draw: random.Random) -> Spoilt:
    """A folder that has itself in it, or everything."""
    target = draw.choice(['.', '..', '../..', '/'])
    (path.parent / 'again').symlink_to(target)
    return Spoilt(ANY, f'a link to {target} beside it', names=('again',))


@image
def odd_name(path: Path, draw: random.Random) -> Spoilt:
    """More files, with names that are no text, long, or like options."""
    names = [b'\xff\xfe.png', b'-rf.png', b'a\nb.png', b'\x1b[31mred.png', b'x' * 250 + b'.png', b' .png', b'..png',
             '\u202egnp.exe.png'.encode(), b'a*?[b].png', b'%s{0}$(id).png']  # fmt: skip
    name = draw.choice(names)
    with open(os.path.join(os.fsencode(path.parent), name), 'wb') as file:
        file.write(draw.choice([path.read_bytes(), b'no image']))
    return Spoilt(ANY, f'{name[:40]!r} beside it', names=('.png', path.parent.name))


@image
def unreadable(path: Path, draw: random.Random) -> Spoilt:
    """Permissions, which do not apply to root: then a sound one."""
    path.chmod(0)
    return Spoilt(TOLD if os.geteuid() else SAME, 'mode 0')


@image
def text_chunks(path: Path, draw: random.Random) -> Spoilt:
    """Chunks of a PNG that unfold, and EXIF with odd numbers."""
    with Image.open(path) as found:
        picture = found.convert('RGB')
    if draw.random() < 0.5:
        info = PngInfo()
        info.add_text('comment', 'a' * 50_000_000, zip=True)
        picture.save(path, 'PNG', pnginfo=info)
        return Spoilt(TOLD if path.suffix == '.png' else ANY, '50 MB of text', checked=ANY)
    exif = Image.Exif()
    orientation = draw.choice([0, 2, 6, 8, 9, 65_535])
    exif[0x0112] = orientation
    picture.save(path, 'JPEG', exif=exif.tobytes(), quality=95)
    return Spoilt(ANY, f'EXIF orientation {orientation}')


def turned_under_its_labels(scene: Scene) -> Trial:
    """EXIF that turns an image, but not the labels drawn on its stored pixels."""

    def turn(folder: Path, split: str) -> tuple[str, Spoilt]:
        name, orientation = scene.draw.choice(IMAGES[config][split]), scene.draw.randrange(2, 9)
        exif = Image.Exif()
        exif[0x0112] = orientation
        with Image.open(folder / name) as found:
            picture = found.convert('RGB')
        picture.save(folder / name, 'JPEG', exif=exif.tobytes(), quality=95)
        is_quarter = orientation > 4
        return name, Spoilt(REFUSED if is_quarter else TOLD, f'EXIF orientation {orientation} over its labels')

    config = scene.draw.choice(['segment', 'detect'])
    return read(scene, config, turn)


REGISTRY.add('image', turned_under_its_labels)


# --- label maps ---


@seg_map
def truncated_map(path: Path, draw: random.Random) -> Spoilt:
    data = path.read_bytes()
    size = draw.choice([0, 8, draw.randrange(len(data)), len(data) - draw.randint(1, 12)])
    path.write_bytes(data[:size])
    return _by_pixels(path, data, f'cut to {size} of {len(data)} bytes')


@seg_map
def flipped_bits_of_a_map(path: Path, draw: random.Random) -> Spoilt:
    return flipped_bits(path, draw)


@seg_map
def other_labels(path: Path, draw: random.Random) -> Spoilt:
    labels = np.asarray(Image.open(path)).copy()
    value = draw.choice([2, 3, 100, 254])
    labels[draw.randrange(16), draw.randrange(24)] = value
    Image.fromarray(labels).save(path)
    return Spoilt(TOLD, f'label {value} of 2 classes')


@seg_map
def ignored_labels(path: Path, draw: random.Random) -> Spoilt:
    Image.fromarray(np.full((16, 24), 255, np.uint8)).save(path)
    return Spoilt(ANY, 'ignored everywhere')


@seg_map
def another_size(path: Path, draw: random.Random) -> Spoilt:
    size = draw.choice([(24, 15), (25, 16), (16, 24), (1, 1), (48, 32), (3000, 3000)])
    Image.new('L', size).save(path)
    return Spoilt(TOLD, f'{size[0]} x {size[1]} instead of 24 x 16')


@seg_map
def another_mode(path: Path, draw: random.Random) -> Spoilt:
    labels = np.asarray(Image.open(path))
    mode = draw.choice(['RGB', 'I;16', 'I;16, large', 'LA', 'P', '1', 'F'])
    if mode.startswith('I;16'):
        # The lower bytes of the large ones are labels, too.
        Image.fromarray(labels.astype(np.uint16) + (256 if 'large' in mode else 0)).save(path)
    elif mode == 'P':
        found = Image.fromarray(labels, 'P')
        found.putpalette([0, 0, 0, 255, 0, 0])
        found.save(path)
    elif mode == 'F':
        Image.fromarray(labels.astype(np.float32)).save(path, 'TIFF')
    elif mode == '1':
        Image.fromarray(labels > 0).save(path)
    else:
        Image.fromarray(labels).convert(mode).save(path, 'PNG')
    if 'large' in mode:
        return Spoilt(REFUSED, f'as {mode}')
    return Spoilt(TOLD, f'as {mode}', checked=ANY)


@seg_map
def missing_map(path: Path, draw: random.Random) -> Spoilt:
    path.unlink()
    return Spoilt(TOLD, 'missing', names=('ade/maps',))


@seg_map
def another_kind_of_map(path: Path, draw: random.Random) -> Spoilt:
    spoilt = another_kind_of_file(path, draw)
    return Spoilt(TOLD, spoilt.what, names=('ade',))


@seg_map
def huge_map(path: Path, draw: random.Random) -> Spoilt:
    return huge(path, draw)
