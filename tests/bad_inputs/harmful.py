"""Files that are meant to do harm; `harm` is the folder that none of them may leave behind."""

import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from bad_inputs.making import Make, changed, saved, write


class Malicious:
    """Makes a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ('harm',)


def _repacked(folder: Path, name: str, program: bytes | None = None, kind: int = zipfile.ZIP_STORED) -> None:
    """Writes a file of torch anew: with another pickle in it, or packed."""
    with zipfile.ZipFile(folder / name) as source:
        parts = {entry: source.read(entry) for entry in source.namelist()}
    with zipfile.ZipFile(folder / name, 'w', kind) as target:
        for entry, content in parts.items():
            target.writestr(entry, program if program and entry.endswith('data.pkl') else content)


def zip_bomb(folder: Path) -> None:
    """80 MB of zeros in a file of 80 kB."""
    torch.save(dict(state_dict={'w': torch.zeros(20_000_000)}), folder / 'bad.pth')
    _repacked(folder, 'bad.pth', kind=zipfile.ZIP_DEFLATED)


def expanding_bomb(folder: Path) -> None:
    """One number that says it is 4 TB."""
    torch.save(dict(state_dict={'w': torch.zeros(1).expand(10**12)}), folder / 'bad.pth')


def fetched_code(folder: Path) -> None:
    """A pickle of nothing but names that mmengine lists as safe, which together run a line of Python.

    It fetches `exec` with getattr and puts it where a class of mmengine looks for a function of numpy.
    """

    def text(value: str) -> bytes:
        return b'X' + struct.pack('<I', len(value)) + value.encode()

    def fetched(thing: bytes, name: str) -> bytes:
        return b'cbuiltins\ngetattr\n' + thing + text(name) + b'\x86R'

    buffer = b'cmmengine.logging.history_buffer\nHistoryBuffer\n'
    run_text = fetched(fetched(b'cbuiltins\ngetattr\n', '__self__'), 'exec')
    numpy = buffer + b')\x81}' + text('array') + run_text + b'sb'
    names = fetched(fetched(buffer, 'update'), '__globals__')
    code = "import os; os.mkdir('harm')"
    call = buffer + text(code) + text('x' * len(code)) + b'\x86R'
    program = b'\x80\x02}' + text('a') + names + text('np') + numpy + b'ss' + text('b') + call + b's.'
    torch.save({}, folder / 'bad.pth')
    _repacked(folder, 'bad.pth', program)


def code_in_meta(content: dict) -> None:
    """A config in the place from which mmengine runs it when a training is resumed."""
    content['meta']['config'] = "import os\nos.mkdir('harm')\n"


def lying_header(shape: Sequence[int], end: int, name: str = 'bad.safetensors') -> Make:
    """A safetensors file of 8 bytes of numbers that says otherwise."""
    text = json.dumps(dict(w=dict(dtype='F32', shape=shape, data_offsets=[0, end]))).encode()
    return write(name, struct.pack('<Q', len(text)) + text + bytes(8))


def called(function: Callable, *arguments) -> Make:
    """A pickle that calls a function which builds data, with arguments that no training has."""

    class Called:
        def __reduce__(self):
            return function, arguments

    return saved(dict(state_dict={'w': torch.zeros(2)}, meta=Called()))


def forged_dtype(folder: Path) -> None:
    """A numpy array of numbers whose dtype says that they are Python objects: numpy follows them as addresses."""

    class Dtype:
        def __reduce__(self):
            return np.dtype, ('f8', False, True), (3, '<', None, None, None, -1, -1, 63)

    class Array:
        def __reduce__(self):
            return (*np.zeros(1).__reduce__()[:2], (1, (4,), Dtype(), False, bytes(range(32))))

    class Scalar:
        def __reduce__(self):
            return np.float64(1).__reduce__()[0], (Dtype(), bytes(range(8)))

    changed(lambda content: content['meta'].update(array=Array(), scalar=Scalar()))(folder)


def endless(folder: Path) -> None:
    """A state dict that contains itself."""
    content = dict(state_dict={})
    content['state_dict']['state_dict'] = content['state_dict']
    torch.save(content, folder / 'bad.pth')


def exponential(folder: Path) -> None:
    """Lists of two lists, each of two lists, and so on: 2^200 in 2 kB."""
    nested = [0]
    for _ in range(200):
        nested = [nested, nested]
    changed(lambda content: content['meta'].update(dataset_meta=nested))(folder)


def exponential_key(folder: Path) -> None:
    """A dict whose key is such a tuple: Python takes for ever to hash it."""
    torch.save(dict(state_dict={'w': torch.zeros(2)}, meta={}), folder / 'bad.pth')
    with zipfile.ZipFile(folder / 'bad.pth') as file:
        program = file.read('bad/data.pkl')
    tuples = b''.join(b'h%c\x86q%c' % (number, number + 1) for number in range(100, 180))
    start = program.index(b'}', program.index(b'meta'))
    _repacked(folder, 'bad.pth', program[: start + 1] + b'K\x00qd' + tuples + b'K\x00s' + program[start + 1 :])


def large_storage(folder: Path) -> None:
    """A file in the format before zip archives, of a few bytes that say they are 3 GB."""
    torch.save(dict(w=torch.zeros(7)), folder / 'bad.pth', _use_new_zipfile_serialization=False)
    data = (folder / 'bad.pth').read_bytes()
    (folder / 'bad.pth').write_bytes(data.replace(b'K\x07N', b'J' + struct.pack('<i', 750_000_000) + b'N', 1))


def overread(folder: Path) -> None:
    """A tensor of a million numbers whose storage holds two: reading it shows what lies behind in memory."""
    torch.save(dict(w=torch.zeros(2)), folder / 'bad.pth')
    with zipfile.ZipFile(folder / 'bad.pth') as file:
        program = file.read('bad/data.pkl').replace(b'K\x02', b'J' + struct.pack('<i', 1_000_000))
    _repacked(folder, 'bad.pth', program)


def tar_file(folder: Path) -> None:
    """A tar file, in which torch before 2.6 runs code even where it is asked not to."""
    with tarfile.open(folder / 'bad.pth', 'w') as file:
        for name in ('storages', 'tensors', 'pickle'):
            data = pickle.dumps(Malicious(), protocol=2)
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))


UNTRUSTED: dict[str, Make] = {
    'a pickle that would make a folder': saved(dict(state_dict={}, extra=Malicious())),
    'a pickle without torch around it': write('bad.pth', pickle.dumps(dict(state_dict={}, extra=Malicious()))),
    'a pickle of names that are listed as safe': fetched_code,
    'a zip bomb of tensors': zip_bomb,
    'a tensor that says it is 4 TB': expanding_bomb,
}
#: Files that would crash whoever reads them, or take for ever.
UNSOUND: dict[str, Make] = {
    'a numpy dtype that says numbers are objects': forged_dtype,
    'a numpy array of 1 TB that is never filled': called(np.ndarray, (10**11,)),
    'bytes of 3 GB from a number': called(bytearray, 3 * 10**9),
    'a tensor of 3 GB from a number': called(torch.FloatTensor, 750_000_000),
    'a storage of 3 GB in a small file': large_storage,
    'a storage with less than its tensor': overread,
    'a state dict that contains itself': endless,
    'lists that name one another 2^200 times': exponential,
    'a key that takes for ever to hash': exponential_key,
    'a tar file': tar_file,
}
