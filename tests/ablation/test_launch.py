"""What a cluster runs on the nodes of a cell, with real processes of torchrun."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from digit_grids import TINY, epochs, write_grid

from vitplug.ablation.engines.launch import Share, node_command, run_worker


def free_port():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        return one.getsockname()[1]


def run_nodes(cell, share, asked=lambda: False):
    """Runs all nodes of a cell on this machine; gives the exit statuses of the nodes."""
    port = free_port()

    def run(node):
        status = cell.folder / f'status{node}'
        command = node_command(cell.folder, share, (), status, node, '127.0.0.1', port)
        return run_worker(command, cell.folder, status, asked)

    with ThreadPoolExecutor(share.nodes) as pool:
        return list(pool.map(run, range(share.nodes)))


@pytest.mark.slow
@pytest.mark.parametrize('share', [Share(gpus=2), Share(nodes=2)], ids=['two processes', 'two nodes'])
def test_cell_with_several_processes_goes_on_where_it_was_stopped(share, digits_variable, tmp_path):
    settings = dict(plugs=['refiner'], seeds=[0], options=TINY | epochs(12, 4) | {'env_cfg.dist_cfg.backend': 'gloo'})
    [whole] = write_grid(tmp_path / 'whole', **settings)
    assert run_nodes(whole, share)[0] == 0, (whole.folder / 'output.log').read_text()[-3000:]
    [stopped] = write_grid(tmp_path / 'stopped', **settings)
    assert run_nodes(stopped, share, (stopped.folder / 'last_checkpoint').is_file)[0] == 75
    assert not stopped.is_done
    assert run_nodes(stopped, share)[0] == 0
    found, wanted = (json.loads((cell.folder / 'done.json').read_text()) for cell in (stopped, whole))
    assert found['value'] == wanted['value'] and found['iterations'] == wanted['iterations'] == 24
    curves = [(cell.folder / 'validations.jsonl').read_text() for cell in (stopped, whole)]
    assert curves[0] == curves[1] and curves[0].count('\n') == 3
