"""One machine's part of `doctor --nodes`: meets the other machines, then starts torchrun as `tools/dist_train.sh` does.

Machines that do not meet are named with the reason, where torchrun would wait for ten minutes.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta

from torch import distributed

from .network import address_of, address_towards, interface_of, is_own, split_endpoint

CAME = 'vitplug/nodes/came'
MACHINE = 'vitplug/nodes/machine/{}'
LEFT = 'vitplug/nodes/left'
LEAVES = 10.0
"""Seconds that the machine with the meeting place waits for the others to leave."""
ENDS = 240
"""Seconds until torchrun is ended; its processes end before, with a reason."""


class NotMet(ConnectionError):
    """The machines did not meet; the message says which came, and what to do."""


def check_nodes(nodes: int, processes: int, endpoint: str, wait: float) -> int:
    """Runs the check on this machine; the same has to run on the others.

    Args:
        nodes: Number of machines.
        processes: Number of processes on each.
        endpoint: ``HOST:PORT`` of one of the machines.
        wait: Seconds until machines that do not come are given up.

    Returns:
        The exit status: 0 if all is well.
    """
    try:
        host, port = split_endpoint(endpoint)
        serves = meet(nodes, processes, host, port, wait)
    except (ValueError, OSError) as error:
        print(f'error: {error}', file=sys.stderr, flush=True)
        return 1
    return run_torchrun(nodes, processes, f'{host}:{port}', serves, wait)


def meet(nodes: int, processes: int, host: str, port: int, wait: float) -> bool:
    """Waits for the other machines at ``host:port``.

    Returns:
        Whether this machine has the meeting place.

    Raises:
        NotMet: If they do not all come, or do not agree.
        OSError: If the host has no address.
    """
    address = address_of(host)
    own_address = address_towards(address)
    print(
        f'{socket.gethostname()}: {host}:{port} is {address}, reached by {interface_of(own_address) or "?"} '
        f'({own_address or "no way"}), waiting {wait:g} s for {nodes} machines',
        flush=True,
    )
    store, serves = _open(address, port, wait)
    number = store.add(CAME, 1)
    store.set(MACHINE.format(number), json.dumps(dict(host=socket.gethostname(), nodes=nodes, processes=processes)))
    came = _wait_for(store, nodes, wait)
    machines = [json.loads(store.get(MACHINE.format(i + 1))) for i in range(came)]
    _check_agreement(machines, nodes, f'{host}:{port}', wait, serves)
    store.add(LEFT, 1)
    until = time.monotonic() + LEAVES
    while serves and store.add(LEFT, 0) < nodes and time.monotonic() < until:
        time.sleep(0.05)
    return serves


def _open(address: str, port: int, wait: float) -> tuple[distributed.TCPStore, bool]:
    """A store at the meeting place, and whether it is in this process: the first one on the machine has it."""
    for serves in [True, False] if is_own(address) else [False]:
        try:
            return distributed.TCPStore(
                address, port, is_master=serves, timeout=timedelta(seconds=wait), wait_for_workers=False
            ), serves
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
    raise NotMet(
        f'nobody answers at {address}:{port} within {wait:g} s ({reason}): is the doctor running there, with the same '
        f'--endpoint? Does a firewall close the port? (nc -vz {address} {port})'
    )


def _wait_for(store: distributed.TCPStore, nodes: int, wait: float) -> int:
    """How many machines have come, when all have or the time is over."""
    until = time.monotonic() + wait
    try:
        while store.add(CAME, 0) < nodes and time.monotonic() < until:
            time.sleep(0.1)
        return store.add(CAME, 0)
    except RuntimeError as error:
        raise NotMet('the machine of --endpoint has left: its output says why') from error


def _check_agreement(machines: list[Mapping], nodes: int, endpoint: str, wait: float, serves: bool) -> None:
    for setting, option in (('nodes', '--nodes'), ('processes', '--processes')):
        said = {one[setting] for one in machines}
        if len(said) > 1:
            answers = ', '.join(f'{one["host"]} {one[setting]}' for one in machines)
            raise NotMet(f'the machines do not say the same {option}: {answers}')
    if len(machines) != nodes:
        hint = ' The meeting place is on this machine.' if serves else ''
        raise NotMet(
            f'{len(machines)} of {nodes} machines came to {endpoint} within {wait:g} s: '
            f'{", ".join(str(one["host"]) for one in machines)}.{hint} Do all say the same --endpoint, host and port? '
            'Were they started at about the same time? Does a firewall close the port?'
        )


def run_torchrun(nodes: int, processes: int, endpoint: str, serves: bool, wait: float) -> int:
    """Runs the processes of this machine; gives 1 if they end with a reason or torchrun fails."""
    command = [sys.executable, '-m', 'torch.distributed.run', f'--nnodes={nodes}', f'--nproc-per-node={processes}']
    command += ['--rdzv-backend=c10d', f'--rdzv-endpoint={endpoint}', '--rdzv-id=vitplug-doctor']
    command += [f'--rdzv-conf=join_timeout={wait:.0f},is_host={int(serves)}']
    if 'LOCAL_ADDR' in os.environ:
        command += [f'--local-addr={os.environ["LOCAL_ADDR"]}']
    with tempfile.TemporaryFile('w+') as errors:
        torchrun = subprocess.Popen([*command, '-m', 'vitplug.nodes.worker'], stderr=errors)
        try:
            status = torchrun.wait(ENDS)
        except subprocess.TimeoutExpired:
            torchrun.terminate()
            torchrun.wait()
            status = f'did not end within {ENDS} s'
        if status:
            errors.seek(0)
            _explain(errors.read(), status)
    return int(bool(status))


def _explain(errors: str, status: object) -> None:
    """Prints the reason of the first process that told one, or torchrun's last line."""
    lines = errors.splitlines()
    reason = next((line for line in lines if line.startswith('error: ')), None)
    if reason is None:
        last = next((line for line in reversed(lines) if 'Error' in line), lines[-1] if lines else 'no output')
        reason = f'error: torchrun on {socket.gethostname()} failed ({status}), though the machines met: {last.strip()}'
    print(reason, file=sys.stderr, flush=True)
