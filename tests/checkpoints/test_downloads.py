"""Downloads from a server: one file for each address, and hashes in names are kept."""

import hashlib
import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from vitplug.checkpoints import read_checkpoint
from vitplug.checkpoints.downloads import fetch
from vitplug.checkpoints.safe_loading import load_from_file


def weights(value: float) -> bytes:
    buffer = io.BytesIO()
    torch.save({'w': torch.full((1000,), value)}, buffer)
    return buffer.getvalue()


def value_of(path) -> float:
    return read_checkpoint(path)['w'][0].item()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Answers by path; notes what it was asked for."""
    monkeypatch.setattr(torch.hub, '_hub_dir', str(tmp_path / 'hub'))
    answers: dict[str, bytes] = {}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            if self.path not in answers:
                return self.send_error(404)
            self.send_response(200)
            self.send_header('Content-Length', str(len(answers[self.path])))
            self.end_headers()
            self.wfile.write(answers[self.path])

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    http.answers, http.asked, http.root = answers, asked, f'http://127.0.0.1:{http.server_port}'
    threading.Thread(target=http.serve_forever, kwargs=dict(poll_interval=0.01), daemon=True).start()
    yield http
    http.shutdown()
    http.server_close()


def test_one_file_name_at_two_addresses_is_two_files(server):
    places = ('/a/model.pth', '/b/model.pth', '/b/model.pth?v=2')
    server.answers |= {place: weights(float(number)) for number, place in enumerate(places)}
    found = [value_of(fetch(server.root + place)) for place in (*places, places[0])]
    assert found == [0, 1, 2, 0] and server.asked == [*places]


def test_hash_in_a_name_is_kept(server, tmp_path):
    body = weights(1.0)
    names = [f'/deit-{hashlib.sha256(body).hexdigest()[:8]}.pth', '/deit-20240229.pth', '/deit-01234567.pth']
    server.answers |= dict.fromkeys(names, body)
    assert [value_of(fetch(server.root + name)) for name in names[:2]] == [1, 1]  # a hash, and a date
    with pytest.raises(OSError, match=r'deit-01234567\.pth cannot be downloaded: invalid hash value'):
        fetch(server.root + names[2])
    assert not list((tmp_path / 'hub').rglob('*01234567*'))


def test_refusals_name_the_address_without_its_password(server):
    host = server.root.removeprefix('http://')
    with pytest.raises(OSError, match=rf'http://{host}/a\.pth cannot be downloaded: .*404'):
        load_from_file(f'{server.root}/a.pth?token=secret')
    with pytest.raises(ValueError, match=r"checkpoint='s3://bucket/w\.pth': expected a path or an address"):
        fetch('s3://bucket/w.pth')
