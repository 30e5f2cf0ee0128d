"""Damaged annotation files: COCO's JSON and lists of images and labels."""

import json
import random
from collections.abc import Callable
from pathlib import Path

from .images import Spoilt, read
from .images import another_kind_of_file as special_file
from .trials import REGISTRY, Accept, Scene, Trial, flip_bits, places_in, value_at

SAME, TOLD, REFUSED, ANY = Accept.SAME, Accept.TOLD, Accept.REFUSED, Accept.ANY

Damage = Callable[[dict, random.Random], Spoilt]

ODD = [None, True, -1, 0, 1.5, 10**9, 10**30, -(10**9), float('nan'), float('inf'), '', 'text', '1', [], [1], {},
       {'a': 1}, '../../precious/notes.txt', '/etc/passwd', '\x1b[31m', 'x' * 10_000, [[]], '\ud800']  # fmt: skip


def _write(path: Path, content) -> None:
    # Surrogates as escapes, NaN and infinity as Python writes them: what a program in Python may leave.
    path.write_text(json.dumps(content))


def coco(damage: Damage) -> Damage:
    """Registers damage to the content of a COCO file.

    mmdet leaves out what it does not understand, as documented; `check_dataset` has to tell of it.
    """

    def attack(scene: Scene) -> Trial:
        def spoil(folder: Path, split: str) -> tuple[str, Spoilt]:
            path = folder / f'coco/{split}.json'
            content = json.loads(path.read_text())
            spoilt = damage(content, scene.draw)
            _write(path, content)
            return f'coco/{split}.json', spoilt

        return read(scene, 'detect', spoil)

    return REGISTRY.add('annotation', damage, attack)


def coco_bytes(damage: Callable[[bytes, random.Random], tuple[bytes, Spoilt]]):
    """Registers damage to the bytes of a COCO file."""

    def attack(scene: Scene) -> Trial:
        def spoil(folder: Path, split: str) -> tuple[str, Spoilt]:
            path = folder / f'coco/{split}.json'
            data, spoilt = damage(path.read_bytes(), scene.draw)
            path.write_bytes(data)
            return f'coco/{split}.json', spoilt

        return read(scene, 'detect', spoil)

    return REGISTRY.add('annotation', damage, attack)


def _annotation(content: dict, draw: random.Random, masks: bool | None = None) -> dict:
    """One annotation; with `masks` one that is given as polygons (True) or RLE (False)."""
    found = [
        entry for entry in content['annotations'] if masks is None or isinstance(entry['segmentation'], list) is masks
    ]
    return draw.choice(found)


def _told(entry: dict) -> tuple[str, ...]:
    return (f'annotation {entry.get("id")}', f'{entry.get("image_id")}.png')


# --- values ---


@coco
def any_value(content: dict, draw: random.Random) -> Spoilt:
    """One value anywhere becomes another one."""
    place = draw.choice(list(places_in(content)))
    value = draw.choice(ODD)
    value_at(content, place[:-1])[place[-1]] = value
    return Spoilt(ANY, f'{".".join(map(str, place))} = {str(value)[:40]!r}', names=('.png', *map(str, place[:1])))


@coco
def value_removed(content: dict, draw: random.Random) -> Spoilt:
    place = draw.choice(list(places_in(content)))
    del value_at(content, place[:-1])[place[-1]]
    return Spoilt(ANY, f'{".".join(map(str, place))} removed', names=('.png', str(place[-1])))


@coco
def key_renamed(content: dict, draw: random.Random) -> Spoilt:
    place = draw.choice([place for place in places_in(content) if isinstance(place[-1], str)])
    owner = value_at(content, place[:-1])
    owner[draw.choice([place[-1].upper(), place[-1] + ' ', 'x'])] = owner.pop(place[-1])
    return Spoilt(ANY, f'{".".join(map(str, place))} renamed', names=('.png', str(place[-1])))


@coco
def entry_twice(content: dict, draw: random.Random) -> Spoilt:
    part = draw.choice(['images', 'annotations', 'categories'])
    content[part].append(dict(draw.choice(content[part])))
    return Spoilt(ANY, f'an entry of {part} twice', checked=TOLD)


@coco
def many(content: dict, draw: random.Random) -> Spoilt:
    """Thousands of instances in one image."""
    entry = _annotation(content, draw, masks=True)
    content['annotations'] += [{**entry, 'id': 1000 + number} for number in range(3000)]
    return Spoilt(ANY, '3000 instances in an image')


# --- boxes, polygons and RLE that are no such ---


@coco
def box(content: dict, draw: random.Random) -> Spoilt:
    entry = _annotation(content, draw)
    numbers = [float('nan'), float('inf'), -float('inf'), '1', None, [1]]
    number = draw.choice(numbers)
    entry['bbox'] = draw.choice([[number, 1, 5, 5], [1, 1, number, 5], [1, 2, 3], [1, 2, 3, 4, 5], [], number, {}])
    return Spoilt(ANY, f'bbox = {entry["bbox"]}', checked=TOLD, names=_told(entry))


@coco
def large_box(content: dict, draw: random.Random) -> Spoilt:
    entry = _annotation(content, draw)
    size = draw.choice([10**5, 10**9, 10**18, 1e30, 1e308])
    entry['bbox'] = draw.choice([[0, 0, size, 5], [-size, 0, 2 * size, 5], [0, -size, 5, size], [size, size, 1, 1]])
    return Spoilt(ANY, f'bbox = {entry["bbox"]}', checked=TOLD, names=_told(entry))


@coco
def polygon(content: dict, draw: random.Random) -> Spoilt:
    entry = _annotation(content, draw, masks=True)
    shapes = {
        'far away': lambda: [[0, 0, draw.choice([10**5, 10**9, 10**18, 1e30]), 0, 5, 5]],
        'far away to the left': lambda: [[draw.choice([-(10**5), -(10**9), -1e30]), 0, 5, 0, 5, 5]],
        'not a number': lambda: [[float('nan'), 0, 5, 0, 5, 5]],
        'infinite': lambda: [[float('inf'), 0, 5, 0, 5, 5]],
        'odd count': lambda: [[0, 0, 5, 0, 5]],
        'two points': lambda: [[0, 0, 5, 5]],
        'text': lambda: [['0', '0', '5', '0', '5', '5']],
        'None': lambda: [[None, 0, 5, 0, 5, 5]],
        'flat': lambda: [0, 0, 5, 0, 5, 5],
        'empty': lambda: [[]],
        'nothing': lambda: [],
        'nested': lambda: [[[0, 0], [5, 0], [5, 5]]],
        'a number': lambda: 3,
        'None alone': lambda: None,
        'many points': lambda: [[draw.uniform(0, 20) for _ in range(20_000)]],
        'many parts': lambda: [[0, 0, 5, 0, 5, 5]] * 5000,
    }
    kind = draw.choice(list(shapes))
    entry['segmentation'] = shapes[kind]()
    sound = ('many points', 'many parts')
    return Spoilt(ANY, f'polygon: {kind}', checked=ANY if kind in sound else TOLD, names=_told(entry))


@coco
def rle(content: dict, draw: random.Random) -> Spoilt:
    entry = _annotation(content, draw, masks=False)
    size, count = [16, 24], 16 * 24
    shapes = {
        'another size': lambda: dict(size=[32, 24], counts=[0, 2 * count]),
        'huge size': lambda: dict(size=draw.choice([[10**5, 10**5], [2**31, 2], [2**62, 4]]), counts=[0, count]),
        'negative size': lambda: dict(size=[-16, 24], counts=[0, count]),
        'too few': lambda: dict(size=size, counts=[0, 5]),
        'too many': lambda: dict(size=size, counts=[0, 10 * count]),
        'huge count': lambda: dict(size=size, counts=[0, draw.choice([2**31, 2**32 - 1, 2**40, 10**30])]),
        'negative count': lambda: dict(size=size, counts=[-5, count + 5]),
        'text': lambda: dict(size=size, counts='hello'),
        'random text': lambda: dict(size=size, counts=''.join(chr(draw.randint(48, 111)) for _ in range(50))),
        'packed, huge': lambda: dict(size=size, counts='oooooooooooooooooooooooo'),
        'not ASCII': lambda: dict(size=size, counts='\u20ac\u00ff'),
        'no counts': lambda: dict(size=size),
        'no size': lambda: dict(counts=[0, count]),
        'fractions': lambda: dict(size=size, counts=[0.5, count - 0.5]),
        'None': lambda: dict(size=size, counts=None),
        'nothing': lambda: dict(size=size, counts=[]),
        'three sizes': lambda: dict(size=[16, 24, 3], counts=[0, count]),
    }
    kind = draw.choice(list(shapes))
    entry['segmentation'] = shapes[kind]()
    if draw.random() < 0.5:  # what is a crowd is not trained on
        entry['iscrowd'] = 0
    return Spoilt(ANY, f'RLE: {kind}', checked=TOLD, names=_told(entry))


@coco
def image_entry(content: dict, draw: random.Random) -> Spoilt:
    entry = draw.choice(content['images'])
    key = draw.choice(['file_name', 'width', 'height', 'id'])
    values = {
        'file_name': [
            '',
            '.',
            '..',
            '../../../precious/notes.txt',
            '/dev/zero',
            '/etc/passwd',
            'no.png',
            None,
            3,
            ['0.png'],
        ],
        'width': [0, -1, 25, 10**9, 10**30, '24', None, 1.5, float('nan')],
        'height': [0, -1, 17, 10**9, 10**30, '16', None, 1.5, float('nan')],
        'id': [None, '0', 7, -1, 10**30, [0], 1.5],
    }
    value = draw.choice(values[key])
    entry[key] = value
    return Spoilt(
        ANY, f'image: {key} = {value!r}', checked=TOLD, names=('.png', str(value)[:50] or 'file_name', 'coco')
    )


@coco
def references(content: dict, draw: random.Random) -> Spoilt:
    """Ids that point nowhere, or are of another kind."""
    entry = _annotation(content, draw)
    key = draw.choice(['image_id', 'category_id', 'id', 'iscrowd', 'area'])
    value = draw.choice([None, -1, 99, '1', 10**30, float('nan'), [1], {}, 1.5])
    entry[key] = value
    checked = TOLD if key in ('image_id', 'category_id') else ANY
    return Spoilt(ANY, f'{key} = {value!r}', checked=checked, names=(*_told(entry), 'annotation', '.png'))


@coco
def categories(content: dict, draw: random.Random) -> Spoilt:
    kind = draw.choice(['another name', 'missing', 'none', 'name twice', 'id twice', 'no dict'])
    if kind == 'another name':
        content['categories'][0]['name'] = draw.choice(['Cat', 'cat ', '', None, 3])
    elif kind == 'missing':
        del content['categories'][draw.randrange(2)]
    elif kind == 'none':
        content['categories'] = []
    elif kind == 'name twice':
        content['categories'][1]['name'] = 'cat'
    elif kind == 'id twice':
        content['categories'][1]['id'] = 1
    else:
        content['categories'][0] = draw.choice([None, 'cat', 3, []])
    return Spoilt(ANY, f'categories: {kind}', checked=TOLD, names=('categories', 'cat'))


@coco
def parts_of_another_kind(content: dict, draw: random.Random) -> Spoilt:
    part = draw.choice(['images', 'annotations', 'categories'])
    value = draw.choice([None, {}, [], 'text', 3, [None], [[]], {'0': {}}])
    content[part] = value
    return Spoilt(ANY, f'{part} = {value!r}', checked=TOLD, names=(part,))


# --- bytes ---


@coco_bytes
def truncated(data: bytes, draw: random.Random) -> tuple[bytes, Spoilt]:
    size = draw.choice([0, 1, draw.randrange(len(data)), len(data) - 1])
    return data[:size], Spoilt(TOLD, f'cut to {size} of {len(data)} bytes')


@coco_bytes
def flipped_bits(data: bytes, draw: random.Random) -> tuple[bytes, Spoilt]:
    """JSON has no checksum: a changed digit is as good as any other."""
    changed, _ = flip_bits(data, draw, [1, 3, 10])
    return changed, Spoilt(ANY, 'flipped bits', names=('.png',))


@coco_bytes
def another_text(data: bytes, draw: random.Random) -> tuple[bytes, Spoilt]:
    texts = {
        'deep lists': b'[' * draw.choice([2000, 10**6]),
        'deep and closed': b'[' * 10**5 + b']' * 10**5,
        'deep dicts': b'{"a":' * 10**5 + b'1' + b'}' * 10**5,
        'deep within': data[:-1] + b', "info": ' + b'[' * 50_000 + b']' * 50_000 + b'}',
        'a long number': b'{"images": ' + b'9' * 10**6 + b'}',
        'a list': b'[]',
        'null': b'null',
        'a number': b'3',
        'two documents': data + data,
        'no end': data + b',',
        'NUL': data + bytes(100),
        'random': draw.randbytes(500),
        'a pickle': b'\x80\x02}.',
        'YAML': b'images: []\n',
        'gzip': b'\x1f\x8b\x08' + bytes(50),
        'key twice': b'{"images": [], ' + data[1:],
    }
    kind = draw.choice(list(texts))
    sound = ('deep within', 'key twice')
    return texts[kind], Spoilt(ANY if kind in sound else TOLD, kind)


@coco_bytes
def encoded(data: bytes, draw: random.Random) -> tuple[bytes, Spoilt]:
    encoding = draw.choice(['utf-8-sig', 'utf-16', 'utf-32', 'cp037'])
    return data.decode().encode(encoding), Spoilt(TOLD, f'as {encoding}')


def another_kind_of_file(scene: Scene) -> Trial:
    def spoil(folder: Path, split: str) -> tuple[str, Spoilt]:
        spoilt = special_file(folder / f'coco/{split}.json', scene.draw)
        return f'coco/{split}.json', Spoilt(TOLD, spoilt.what)

    return read(scene, 'detect', spoil)


REGISTRY.add('annotation', another_kind_of_file)


# --- lists of images and labels ---


def label_list(damage: Callable[[list[str], random.Random], Spoilt]):
    """Registers damage to the lines of a list of images and labels."""

    def attack(scene: Scene) -> Trial:
        def spoil(folder: Path, split: str) -> tuple[str, Spoilt]:
            path = folder / f'{split}.txt'
            lines = path.read_text().splitlines()
            spoilt = damage(lines, scene.draw)
            path.write_text('\n'.join(lines) + '\n', newline='', encoding='utf-8', errors='surrogateescape')
            return f'{split}.txt', spoilt

        return read(scene, 'labels', spoil)

    return REGISTRY.add('label list', damage, attack)


@label_list
def a_label(lines: list[str], draw: random.Random) -> Spoilt:
    """mmpretrain reads labels when the data set is built, and checks none."""
    index = draw.randrange(len(lines))
    name = lines[index].split()[0]
    label = draw.choice(['2', '-1', '99999999999999999999', '1.5', 'cat', '', '0 1', '\u0661', 'nan', '1e3', '0x1'])
    lines[index] = f'{name} {label}'
    return Spoilt(TOLD, f'label {label!r}', names=(name, f'line {index + 1}', 'label'))


@label_list
def a_path(lines: list[str], draw: random.Random) -> Spoilt:
    index = draw.randrange(len(lines))
    name = draw.choice(['no.png', '../../precious/notes.txt', '/dev/zero', '', 'train', '.', 'a b.png', '\x1b[31m.png',
                        'x' * 5000, '\udcff.png', 'http://localhost:1/a.png', 's3://bucket/a.png'])  # fmt: skip
    lines[index] = f'{name} 0'
    return Spoilt(
        TOLD, f'path {name[:40]!r}', names=(name[:50] or 'data', f'line {index + 1}', 'data', 'bucket', 'localhost')
    )


@label_list
def lines(lines: list[str], draw: random.Random) -> Spoilt:
    kind = draw.choice(['empty file', 'blank line', 'twice', 'missing', 'comment', 'one word', 'NUL', 'long', 'tabs'])
    index = draw.randrange(len(lines))
    accept = TOLD
    if kind == 'empty file':
        lines.clear()
    elif kind == 'blank line':
        lines.insert(index, draw.choice(['', '   ']))
    elif kind == 'twice':
        lines.append(lines[index])
        accept = ANY
    elif kind == 'missing':
        del lines[index]
        accept = ANY
    elif kind == 'comment':
        lines.insert(index, '# images and labels')
    elif kind == 'one word':
        lines[index] = 'train'
    elif kind == 'NUL':
        lines[index] = '\0' + lines[index]
    elif kind == 'long':
        lines.insert(index, 'x' * 10**6)
    else:
        lines[index] = lines[index].replace(' ', '\t')
    return Spoilt(accept, kind, names=('data', 'line', 'label'))
