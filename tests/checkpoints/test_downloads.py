"""Downloads against a server that answers as real ones do, good and bad."""

import hashlib
import io
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import bad_inputs
import pytest
import torch

from vitplug.checkpoints import downloads, read_checkpoint
from vitplug.checkpoints.downloads import fetch, shown
from vitplug.checkpoints.files import write_new
from vitplug.checkpoints.safe_loading import load_safely
from vitplug.errors import CheckpointNotRead

LENGTH = 'Content-Length'


def weights(value: float) -> bytes:
    buffer = io.BytesIO()
    torch.save({'w': torch.full((1000,), value)}, buffer)
    return buffer.getvalue()


def value_of(path) -> float:
    return read_checkpoint(path)['w'][0].item()


class Server(ThreadingHTTPServer):
    """Serves `answers`: by path, a body and the headers and pause that come with it."""

    daemon_threads = True

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.answers: dict[str, tuple[bytes, dict, float]] = {}
        self.asked: list[str] = []

    def answer(self, path: str, body: bytes, headers: dict | None = None, pause: float = 0.0) -> str:
        self.answers[path] = body, {LENGTH: str(len(body)), **(headers or {})}, pause
        return f'http://127.0.0.1:{self.server_port}{path}'


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path not in self.server.answers:
            return self.send_error(404)
        body, headers, pause = self.server.answers[self.path]
        self.send_response(200)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:100])
        self.wfile.flush()
        time.sleep(pause)
        self.wfile.write(body[100:])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, '_hub_dir', str(tmp_path / 'hub'))
    server = Server()
    threading.Thread(target=server.serve_forever, kwargs=dict(poll_interval=0.01), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def kept(tmp_path) -> list[Path]:
    return [path for path in (tmp_path / 'hub').rglob('*') if path.is_file()]


def test_one_file_name_at_two_addresses_is_two_files(server):
    first, second = (server.answer(f'/{name}/model.pth', weights(number)) for name, number in (('a', 1.0), ('b', 2.0)))
    assert [value_of(fetch(address)) for address in (first, second, first)] == [1.0, 2.0, 1.0]
    assert server.asked == ['/a/model.pth', '/b/model.pth']


def test_the_query_is_a_part_of_the_address(server):
    first, second = (server.answer(f'/model.pth?v={number}', weights(number)) for number in (1, 2))
    assert [value_of(fetch(address)) for address in (first, second)] == [1, 2]


def test_kept_file_that_was_changed_is_fetched_again(server):
    address = server.answer('/model.pth', weights(1.0))
    fetch(address).write_bytes(weights(3.0))
    assert value_of(fetch(address)) == 1.0 and len(server.asked) == 2


@pytest.mark.parametrize('reader', [fetch, load_safely])
@pytest.mark.parametrize(
    'name, body, headers, reason',
    [
        ('a.pth', weights(1.0)[:3000], {LENGTH: '9000'}, r'received 3,000 of 9,000 bytes'),
        ('a.pth', weights(1.0)[:3000], {LENGTH: None}, r'truncated or no checkpoint'),
        ('a.pth', b'<!DOCTYPE html><title>Log in</title>', {}, r'no checkpoint.*Log in.*browser'),
        ('a.pth', b'{"error": "token"}', {}, r'no checkpoint.*token'),
        ('a.pth', b'', {}, r'it is empty'),
        ('a.safetensors', b'\x40' + bytes(7) + b'{"w":', {LENGTH: None}, r'no safetensors file'),
        ('a-0123456789.pth', weights(1.0), {}, r'SHA-256 begins with [0-9a-f]{8}, but its name has 0123456789'),
        ('a.pth', b'', {LENGTH: str(2**40)}, r'it has more than 68,719,476,736 bytes'),
    ],
)
def test_what_is_no_whole_checkpoint_is_not_kept(reader, name, body, headers, reason, server, tmp_path):
    address = server.answer(f'/{name}', body, headers)
    with pytest.raises((ValueError, CheckpointNotRead), match=f'{address} cannot be downloaded: .*{reason}'):
        reader(address)
    assert kept(tmp_path) == []


def test_size_is_limited_without_a_length(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, 'MAX_BYTES', 2000)
    with pytest.raises(ValueError, match=r'more than 2,000 bytes'):
        fetch(server.answer('/a.pth', weights(1.0), {LENGTH: None}))
    assert kept(tmp_path) == []


@pytest.mark.parametrize('limits', [dict(TIMEOUT=0.05), dict(TIMEOUT=0, MIN_SPEED=10**9)], ids=['silent', 'slow'])
def test_time_is_limited(limits, server, tmp_path, monkeypatch):
    for name, value in limits.items():
        monkeypatch.setattr(downloads, name, value)
    if 'MIN_SPEED' in limits:
        monkeypatch.setattr(downloads.urllib.request, 'urlopen', _without_timeout(downloads.urllib.request.urlopen))
    address = server.answer('/a.pth', weights(1.0), pause=0.3)
    with pytest.raises(OSError, match=f'{address} cannot be downloaded: .*(timed out|bytes per second)'):
        fetch(address)
    assert kept(tmp_path) == []


def _without_timeout(urlopen):
    return lambda address, timeout: urlopen(address)


def test_refusals_of_a_server_name_the_address(server):
    address = server.answer('/a.pth', b'').replace('a.pth', 'b.pth')
    with pytest.raises(OSError, match=f'{address} cannot be downloaded: .*404'):
        fetch(address)


def test_promised_hash_is_kept(server):
    body = weights(1.0)
    for name in (hashlib.sha256(body).hexdigest()[:8], '20240229'):  # a hash, and a date
        assert value_of(fetch(server.answer(f'/deit-{name}.pth', body))) == 1.0


def test_passwords_and_tokens_are_not_shown():
    assert shown('https://me:secret@host.org/a.pth?token=secret#secret') == 'https://host.org/a.pth'


def test_safetensors(server, tmp_path):
    body = write_new({'w': torch.ones(3)}, tmp_path / 'w.safetensors').read_bytes()
    assert read_checkpoint(fetch(server.answer('/model.safetensors', body)))['state_dict']['w'].tolist() == [1, 1, 1]


@pytest.mark.integration
@pytest.mark.parametrize('flag', ['', '--unsafe-unpickle'])
def test_two_trainings_start_from_their_own_addresses(server, flag, tmp_path):
    folder = bad_inputs.prepare(tmp_path / 'row')
    good = torch.load(folder / 'good.pth', weights_only=False)['state_dict']
    options = 'optim_wrapper.optimizer.lr=0.0'
    for value in (1.0, 2.0):
        buffer = io.BytesIO()
        torch.save(dict(state_dict={name: torch.full_like(tensor, value) for name, tensor in good.items()}), buffer)
        address = server.answer(f'/{value}/model.pth', buffer.getvalue())
        command = f'train.py tiny.py --work-dir {value} {flag} --cfg-options load_from={address} {options}'
        assert bad_inputs.run(command, folder).status == 0
        trained = torch.load(folder / f'{value}/epoch_1.pth', weights_only=False)['state_dict']
        assert (trained['head.fc.weight'] == value).all()
    assert len(server.asked) == 2
