"""One process of `doctor --nodes`: python -m vitplug.nodes.worker, started by torchrun.

Process 0 prints the report. What the processes are goes through torchrun's store, so that the table is there even if
the all-reduce fails.
"""

import json
import os
import platform
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

import torch
from torch import distributed

from vitplug.stacks import DISTRIBUTIONS, installed
from vitplug.tables import format_table

from .network import address_of, address_towards, interface_of, is_loopback

WAIT = timedelta(seconds=60)
PINGS = 5
CLOCKS = 1.0
"""Seconds that the clocks of two machines may differ; logs and file times are compared by them."""
SIZES = dict(gloo=4 << 20, nccl=64 << 20)
"""Float32 numbers of the timed all-reduce."""
ROUNDS = 5
VERSIONS = ('python', 'torch', 'vitplug', 'mmengine', 'mmcv')
OPEN_PORTS = 'beside the port of --endpoint, the machines need free ports between them: the processes choose any'
Info = Mapping[str, str]


def main() -> int:
    """Runs the check; the exit status is 1 if something must be done."""
    rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    address, port = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])
    try:
        store = distributed.TCPStore(address, port, is_master=False, timeout=WAIT)
        store.set(f'info/{rank}', json.dumps(describe(address)))
        infos = [json.loads(store.get(f'info/{other}')) for other in range(world)]
    except RuntimeError as error:
        return _fail(
            f'process {rank} on {socket.gethostname()} cannot reach the store of the first machine at {address}:{port} '
            f'({str(error).splitlines()[0]}): set LOCAL_ADDR to an address of that machine which the others know; '
            f'{OPEN_PORTS}'
        )
    offsets = clock_offsets(store, rank, world)
    if rank == 0:
        print_table(infos, offsets)
    if uneven := uneven_devices(infos):
        return _fail(uneven)
    try:
        seconds, count = timed_all_reduce(store, rank, world, infos[rank]['backend'])
    except RuntimeError as error:
        return _fail(
            f'process {rank} on {socket.gethostname()}: the store is reached, but the all-reduce is not done within '
            f'{WAIT.seconds} s ({str(error).splitlines()[0]}): {network_advice(infos)}'
        )
    if rank:
        return 0
    # In a ring each process sends and receives 2 (n - 1) / n of the tensor.
    rate = 2 * (world - 1) / world * count * 4 / seconds / 1e9
    print(f'all-reduce of {count * 4 >> 20} MiB: {seconds * 1e3:.1f} ms, {rate:.2f} GB/s in each process')
    todo = advice(infos, offsets)
    print('\n'.join(['to do:', *(f'  {line}' for line in todo)]) if todo else 'the machines are in order', flush=True)
    return int(bool(todo))


def describe(address: str) -> dict[str, str]:
    """What this process is, and how it reaches the first machine."""
    own_address = address_towards(address_of(address))
    local = int(os.environ['LOCAL_RANK'])
    cuda = torch.cuda.is_available() and local < torch.cuda.device_count()
    try:
        named = socket.gethostbyname(socket.gethostname())
    except OSError:
        named = ''
    ours = installed(('vitplug',)).get('vitplug', 'not installed')
    versions = dict(python=platform.python_version(), torch=torch.__version__, vitplug=ours)
    for package in ('mmengine', 'mmcv'):
        versions[package] = ' '.join(' '.join(pair) for pair in installed(DISTRIBUTIONS[package]).items()) or 'missing'
    chosen = {name: os.environ.get(f'{name}_SOCKET_IFNAME', '') for name in ('GLOO', 'NCCL')}
    return dict(
        host=socket.gethostname(),
        node=os.environ['GROUP_RANK'],
        device=f'cuda:{local} {torch.cuda.get_device_name(local)}' if cuda else f'cpu, {os.cpu_count()} cores',
        backend='nccl' if cuda else 'gloo',
        interface=f'{interface_of(own_address) or "?"} {own_address}',
        named=named,
        chosen=chosen['NCCL' if cuda else 'GLOO'],
        **versions,
    )


def clock_offsets(store: distributed.Store, rank: int, world: int) -> list[float]:
    """Seconds by which each process's clock is before that of process 0; 0 for all but process 0.

    Each asks process 0 several times; the quickest answer counts, half of its way there and half back.
    """
    if rank:
        best = (float('inf'), 0.0)
        for i in range(PINGS):
            sent = time.time()
            store.set(f'ping/{rank}/{i}', 'a')
            other = float(store.get(f'pong/{rank}/{i}'))
            received = time.time()
            best = min(best, (received - sent, (sent + received) / 2 - other))
        store.set(f'offset/{rank}', str(best[1]))
        return [0.0] * world
    for other in range(1, world):
        for i in range(PINGS):
            store.get(f'ping/{other}/{i}')
            store.set(f'pong/{other}/{i}', repr(time.time()))
    return [0.0, *(float(store.get(f'offset/{other}')) for other in range(1, world))]


def timed_all_reduce(store: distributed.Store, rank: int, world: int, backend: str) -> tuple[float, int]:
    """Median seconds of an all-reduce, and how many numbers it has.

    Raises:
        RuntimeError: If it fails or takes longer than :data:`WAIT`.
    """
    local, cuda = int(os.environ['LOCAL_RANK']), backend == 'nccl'
    device = torch.device('cuda', local) if cuda else torch.device('cpu')
    os.environ.setdefault('TORCH_NCCL_BLOCKING_WAIT', '1')  # an error after the time-out, not the end of the process
    if cuda:
        torch.cuda.set_device(device)
    group = distributed.PrefixStore('vitplug-doctor', store)
    distributed.init_process_group(backend, store=group, rank=rank, world_size=world, timeout=WAIT)
    numbers = torch.full((SIZES[backend],), float(rank), device=device)
    distributed.all_reduce(numbers)
    if numbers[0].item() != world * (world - 1) / 2:
        raise RuntimeError(f'the sum of the ranks is {numbers[0].item()}, not {world * (world - 1) / 2}')
    times = []
    for _ in range(ROUNDS):
        distributed.barrier()
        begin = time.perf_counter()
        distributed.all_reduce(numbers.zero_())
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    distributed.barrier()
    distributed.destroy_process_group()
    return sorted(times)[ROUNDS // 2], len(numbers)


# --- the report ---


def print_table(infos: Sequence[Info], offsets: Sequence[float]) -> None:
    """Prints a line for each process, and the versions that all have."""
    print(f'processes meet at {os.environ["MASTER_ADDR"]}:{os.environ["MASTER_PORT"]} ({infos[0]["backend"]})')
    rows = [('rank', 'node', 'host', 'device', 'interface', 'clock')]
    for rank, (info, offset) in enumerate(zip(infos, offsets, strict=True)):
        rows.append((str(rank), *(info[name] for name in ('node', 'host', 'device', 'interface')), f'{offset:+.3f} s'))
    print(format_table(rows, numeric=(0, 1, 5)))
    for name in VERSIONS:
        print(f'{name}: {", ".join(f"{value} ({hosts})" if hosts else value for value, hosts in _held(infos, name))}')
    sys.stdout.flush()


def _held(infos: Sequence[Info], name: str) -> list[tuple[str, str]]:
    """The versions of a package with the nodes that have each; no nodes where all have the same."""
    nodes: dict[str, dict[str, None]] = {}
    for info in infos:
        nodes.setdefault(info[name], {})[f'{info["host"]}, node {info["node"]}'] = None
    return [(value, '; '.join(who) if len(nodes) > 1 else '') for value, who in nodes.items()]


def advice(infos: Sequence[Info], offsets: Sequence[float]) -> list[str]:
    """What must be done before a training."""
    lines = []
    for name in VERSIONS:
        held = _held(infos, name)
        if len(held) > 1:
            values = ', '.join(f'{value} ({who})' for value, who in held)
            lines.append(f'{name} differs: {values}: install the same on all machines')
    for rank, offset in enumerate(offsets):
        if abs(offset) > CLOCKS:
            lines.append(
                f'the clock of {infos[rank]["host"]} (process {rank}) is {offset:+.1f} s off that of '
                f'{infos[0]["host"]}: synchronise it (NTP, say chrony)'
            )
    return lines


def uneven_devices(infos: Sequence[Info]) -> str:
    """What must be done where some processes have a GPU and some have none, which cannot speak to each other."""
    without = [f'{info["host"]}, process {rank}' for rank, info in enumerate(infos) if info['backend'] == 'gloo']
    if len(without) in (0, len(infos)):
        return ''
    return (
        f'some processes have a GPU and some have none ({"; ".join(without)}): start fewer on that machine, or look '
        'why torch sees none (nvidia-smi, CUDA_VISIBLE_DEVICES)'
    )


def network_advice(infos: Sequence[Info]) -> str:
    """What may keep processes from each other."""
    variable = f'{infos[0]["backend"].upper()}_SOCKET_IFNAME'
    nodes = {info['node'] for info in infos}
    wrong = [info for info in infos if not info['chosen'] and is_loopback(info['named'])] if len(nodes) > 1 else []
    interfaces = ', '.join(dict.fromkeys(f'{info["host"]} {info["interface"]}' for info in infos))
    if wrong:
        hosts = ', '.join(dict.fromkeys(info['host'] for info in wrong))
        return (
            f'the name of {hosts} has the address {wrong[0]["named"]}, which other machines cannot reach: set '
            f'{variable} to the interface of the network ({interfaces})'
        )
    return f'set {variable} to the interface of the network ({interfaces}); {OPEN_PORTS}'


def _fail(reason: str) -> int:
    print(f'error: {reason}', file=sys.stderr, flush=True)
    return 1


if __name__ == '__main__':
    sys.exit(main())
