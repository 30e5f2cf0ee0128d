"""Files of torch.save without its reader: the same content as torch.load gives, and an end for every bad file."""

import io
import pickle
import random
import struct
import sys
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from torch import nn

from vitplug.checkpoints import data_pickle, read_checkpoint
from vitplug.checkpoints.data_pickle import CodeRefused, History, unpickle
from vitplug.checkpoints.torch_file import read_torch_file

PLENTY = 10**6


def trained_content():
    """What a training saves, and every kind of tensor and array."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    dtypes = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8)
    whole = torch.arange(24.0).view(4, 6)
    return dict(
        state_dict=model.state_dict(),
        optimizer=optimizer.state_dict(),
        tensors={str(dtype): torch.arange(3).to(dtype) for dtype in (*dtypes, torch.uint8, torch.bool)},
        views=[whole, whole[1:, 2], whole.t(), whole[0].expand(5, 6), torch.zeros(0, 3), torch.tensor(2.0)],
        parameter=nn.Parameter(torch.ones(2)),
        arrays=[np.arange(6).reshape(2, 3).T, np.array(['a', 'bc']), np.array([True]), np.zeros((0, 2)), np.float32(3)],
        plain=dict(
            a=[1, -(2**70), 2.5, None, True], b=(b'\xff\x00', 'é'), c={1, 2}, d=Counter('aab'), e=torch.Size([1])
        ),
        order=OrderedDict(z=1, a=2),
        dtype=torch.float32,
    )


def assert_equal(ours, theirs):
    if isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride() and torch.equal(ours, theirs)
    elif isinstance(theirs, np.ndarray | np.generic):
        assert type(ours) is type(theirs) and ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    elif isinstance(theirs, dict):
        assert type(ours) is type(theirs) and list(ours) == list(theirs)
        for key in theirs:
            assert_equal(ours[key], theirs[key])
    elif isinstance(theirs, list | tuple):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one, other)
    else:
        assert type(ours) is type(theirs) and ours == theirs


@pytest.mark.parametrize('as_archive', [True, False])
@pytest.mark.parametrize('in_memory', [True, False])
def test_equals_torch_load(as_archive, in_memory, tmp_path):
    path = tmp_path / 'x.pth'
    torch.save(trained_content(), path, _use_new_zipfile_serialization=as_archive)
    ours, theirs = read_torch_file(path, in_memory), torch.load(path, weights_only=False)
    assert_equal(ours, theirs)
    assert ours['state_dict']._metadata == theirs['state_dict']._metadata
    base, part = ours['views'][0], ours['views'][1]
    assert part.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()


def test_in_memory_does_not_depend_on_the_file(tmp_path):
    path = tmp_path / 'x.pth'
    torch.save(dict(w=torch.ones(1000)), path)
    content = read_torch_file(path, in_memory=True)
    path.write_bytes(bytes(path.stat().st_size))
    assert torch.equal(content['w'], torch.ones(1000))


def test_record_of_mmengine(tmp_path):
    torch.save(dict(loss=HistoryBuffer([1.0, 2.0], [1, 3], max_length=9)), tmp_path / 'x.pth')
    record = read_torch_file(tmp_path / 'x.pth')['loss']
    assert isinstance(record, History) and record.max_length == 9
    assert record.values.tolist() == [1, 2] and record.counts.tolist() == [1, 3]


# --- what ends, and how ---


class Calls:
    def __init__(self, function, *arguments, state=None):
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.parts


def program(content):
    return pickle.dumps(content, protocol=2)


@pytest.mark.parametrize(
    'function', [print, bytearray, exec, np.ndarray, torch.FloatTensor, torch.load, sys.setrecursionlimit]
)
def test_names_are_never_called(function, monkeypatch):
    with pytest.raises(CodeRefused, match='would run'):
        unpickle(program(Calls(function, 10**9)), PLENTY)


def test_tables_hold_no_function_of_others():
    """A function that a pickle may call is written for that, or one that makes a plain value of plain values."""
    own = {name for name, build in data_pickle.BUILDERS.items() if build.__module__ == data_pickle.__name__}
    assert set(data_pickle.BUILDERS) == own


DTYPE = (np.dtype, ('f8', False, True))
ARRAY = np.zeros(1).__reduce__()[:2]
BAD_ARRAYS = {
    'objects': Calls(np.dtype, 'O8', False, True, state=(3, '|', None, None, None, -1, -1, 63)),
    'flags': Calls(np.dtype, 'f8', False, True, state=(3, '<', None, None, None, -1, -1, 63)),
    'structure': Calls(*DTYPE[:1], *DTYPE[1], state=(3, '<', None, ('a',), {'a': ('f8', 0)}, 8, 1, 0)),
    'code of a dtype': Calls(np.dtype, 'f8,O', False, True, state=(3, '<', None, None, None, -1, -1, 0)),
    'order': Calls(np.dtype, 'f8', False, True, state=(3, '<f8,O,', None, None, None, -1, -1, 0)),
    'too few bytes': Calls(ARRAY[0], *ARRAY[1], state=(1, (10**9,), np.dtype('f8'), False, bytes(8))),
    'negative shape': Calls(ARRAY[0], *ARRAY[1], state=(1, (-1, -1), np.dtype('f8'), False, bytes(8))),
    'shape that overflows': Calls(ARRAY[0], *ARRAY[1], state=(1, (2**32, 2**32), np.dtype('f8'), False, b'')),
    'too many dimensions': Calls(ARRAY[0], *ARRAY[1], state=(1, (1,) * 99, np.dtype('f8'), False, bytes(8))),
    'no text': Calls(ARRAY[0], *ARRAY[1], state=(1, (1,), np.dtype('U1'), False, b'\xff' * 4)),
    'list of objects': Calls(ARRAY[0], *ARRAY[1], state=(1, (1,), np.dtype('f8'), False, [print])),
    'key that is a tuple': {(1, 2): 3},
}


@pytest.mark.parametrize('case', BAD_ARRAYS)
def test_arrays_from_checked_parts_alone(case):
    with pytest.raises(ValueError):
        unpickle(program(BAD_ARRAYS[case]), PLENTY)


def test_array_that_stays_empty(tmp_path):
    torch.save(dict(w=torch.ones(1), a=Calls(*ARRAY[:1], *ARRAY[1])), tmp_path / 'x.pth')
    with pytest.raises(ValueError, match=r'x\.pth: a is an object without content'):
        read_checkpoint(tmp_path / 'x.pth')


def test_one_text_is_not_made_bytes_for_ever():
    """A few bytes of a pickle copy a megabyte."""
    text = b'X' + struct.pack('<I', PLENTY) + b'a' * PLENTY + b'q\x01'
    call = b'c_codecs\nencode\nh\x01X\x06\x00\x00\x00latin1\x86R0'
    with pytest.raises(ValueError, match='calls use'):
        unpickle(b'\x80\x02' + text + call.replace(b'0', b'') * 99 + b'.', 10 * PLENTY)


def test_versions_are_not_read_for_ever():
    """A few bytes of a pickle have the versions of a thousand modules checked again."""
    versions = b'}(' + b''.join(b'X\x04\x00\x00\x00%04d}' % number for number in range(1000)) + b'uq\x01'
    start = b'ccollections\nOrderedDict\n)R'
    state = b'}X\x09\x00\x00\x00_metadata' + versions + b'sq\x020'
    with pytest.raises(ValueError, match='calls use'):
        unpickle(b'\x80\x02' + state.replace(b'q\x020', b'q\x02') + start + b'h\x02b' * 200 + b'.', 10**6)


@pytest.mark.parametrize('name', ['__builtin__\nset', 'collections\nOrderedDict'])
def test_lists_are_not_read_for_ever(name):
    """A list of a thousand entries that make one: what is built stays small."""
    pairs = b'](' + b'K\x01K\x01\x86' * 1000 + b'eq\x01'
    entries = pairs if 'Ordered' in name else pairs.replace(b'K\x01K\x01\x86', b'K\x01')
    call = f'c{name}\n'.encode() + b'h\x01\x85R'
    with pytest.raises(ValueError, match='calls use'):
        unpickle(b'\x80\x02' + entries + call * 500 + b'.', 10**6)


def test_steps_are_counted(monkeypatch):
    monkeypatch.setattr(data_pickle, 'MAX_STEPS', 1000)
    with pytest.raises(ValueError, match='1,000 steps'):
        unpickle(b'\x80\x02' + b'}' * 2000 + b'.', PLENTY)


def nested(depth):
    content = [0]
    for _ in range(depth):
        content = [content]
    return content


def test_depth_is_bounded(tmp_path):
    torch.save(dict(w=torch.ones(1), meta=nested(20)), tmp_path / 'good.pth')
    assert torch.equal(read_checkpoint(tmp_path / 'good.pth')['w'], torch.ones(1))
    torch.save(dict(w=torch.ones(1), meta=nested(100)), tmp_path / 'deep.pth')
    with pytest.raises(ValueError, match=r'deep\.pth holds .* more than 50 nested containers'):
        read_checkpoint(tmp_path / 'deep.pth')


def test_numpy_counts_like_torch(tmp_path):
    """An array that is copied by every use of one text."""
    data = np.zeros(2 * 10**6)
    torch.save(dict(w=torch.ones(1), a=[Calls(*ARRAY[:1], *ARRAY[1], state=data.__reduce__()[2])] * 2), tmp_path / 'x')
    assert len(read_checkpoint(tmp_path / 'x')['a']) == 2
    with pytest.raises(ValueError, match='calls use 1,000 bytes'):
        unpickle(program(data), 1000)


def rewritten(path, **changes):
    """Writes an archive anew with other entries."""
    with zipfile.ZipFile(path) as file:
        entries = {name.partition('/')[2]: file.read(name) for name in file.namelist()} | changes
    with zipfile.ZipFile(path, 'w') as file:
        for name, content in entries.items():
            file.writestr(f'archive/{name}', content)


def test_other_byte_order_is_refused(tmp_path):
    torch.save(dict(w=torch.ones(1)), tmp_path / 'x.pth')
    other = b'big' if sys.byteorder == 'little' else b'little'
    rewritten(tmp_path / 'x.pth', byteorder=other)
    with pytest.raises(ValueError, match=r'x\.pth is truncated .* byte order'):
        read_checkpoint(tmp_path / 'x.pth')


def test_two_entries_of_one_name_are_refused(tmp_path):
    torch.save(dict(w=torch.ones(1)), tmp_path / 'x.pth')
    with zipfile.ZipFile(tmp_path / 'x.pth', 'a') as file, pytest.warns(UserWarning, match='Duplicate'):
        file.writestr('x/data.pkl', program({}))
    with pytest.raises(ValueError, match=r'x\.pth is truncated .* two entries of one name'):
        read_checkpoint(tmp_path / 'x.pth')


@pytest.mark.parametrize('as_archive', [True, False])
def test_changed_bytes_end_in_content_or_in_one_error(as_archive, tmp_path):
    """Bytes changed at random, most of them in the pickle: nothing crashes, and memory stays what it was."""
    buffer = io.BytesIO()
    torch.save(trained_content(), buffer, _use_new_zipfile_serialization=as_archive)
    data, generator, path = buffer.getvalue(), random.Random(0), tmp_path / 'x.pth'
    outcomes = Counter()
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(generator.choice((1, 3, 20))):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        if as_archive:  # with sums that are right, or zipfile would find most changes
            path.write_bytes(data)
            with zipfile.ZipFile(path) as file:
                code = bytearray(file.read('archive/data.pkl'))
            code[generator.randrange(len(code))] = generator.randrange(256)
            rewritten(path, **{'data.pkl': bytes(code)})
        else:
            path.write_bytes(changed)
        try:
            read_checkpoint(path)
            outcomes['read'] += 1
        except ValueError as error:
            assert 'x.pth' in str(error) and str(error).isprintable()
            outcomes['refused'] += 1
    assert outcomes['read'] > 5 and outcomes['refused'] > 5


@pytest.mark.parametrize('place', [0, -1])
def test_a_flipped_bit_in_the_numbers_is_seen(place, tmp_path):
    """The archive has a check sum of every entry, which torch does not look at."""
    path = tmp_path / 'weights.pth'
    torch.save(dict(state_dict=dict(a=torch.arange(100.0), b=torch.ones(7))), path)
    with zipfile.ZipFile(path) as archive:
        name = sorted(entry for entry in archive.namelist() if '/data/' in entry)[place]
        numbers = archive.read(name)
    data = bytearray(path.read_bytes())
    data[data.index(numbers) + 5] ^= 1
    path.write_bytes(data)
    assert torch.load(path, weights_only=True)
    with pytest.raises(ValueError, match='check sum'):
        read_torch_file(path)
