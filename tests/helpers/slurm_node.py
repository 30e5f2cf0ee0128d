"""A Slurm cluster of one node for tests, in a folder, without systemd: python slurm_node.py FOLDER, as root."""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'sbatch', 'squeue')
CONFIG = """
ClusterName=tests
SlurmctldHost={host}({address})
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=5
OverTimeLimit=1
MinJobAge=60
NodeName={host} NodeAddr={address} CPUs={cpus} State=UNKNOWN
PartitionName=tests Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def missing() -> list[str]:
    """What is not installed here; Debian's packages slurm-wlm and munge have it. Only root can start it."""
    path = os.pathsep.join([os.environ['PATH'], '/usr/sbin'])
    return [name for name in PROGRAMS if not shutil.which(name, path=path)] + ['root'] * (os.getuid() != 0)


@contextmanager
def slurm_node(folder: Path):
    """Runs the cluster; its commands find it by the variable SLURM_CONF."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    for name in ('state', 'spool'):
        (folder / name).mkdir(exist_ok=True)
    key = folder / 'munge.key'
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    host = socket.gethostname().split('.')[0]
    settings = dict(
        host=host, address='127.0.0.1', folder=folder, ports=free_ports(), cpus=len(os.sched_getaffinity(0))
    )
    config = folder / 'slurm.conf'
    config.write_text(CONFIG.format(**settings))
    variables = os.environ | dict(SLURM_CONF=str(config))
    munged = ['/usr/sbin/munged', '--foreground', '--force', f'--key-file={key}', f'--socket={folder}/munge.socket']
    munged += [f'--{name}-file={folder}/munge.{name}' for name in ('log', 'pid', 'seed')]
    daemons = []
    try:
        for command in (munged, ['/usr/sbin/slurmctld', '-D', '-i'], ['/usr/sbin/slurmd', '-D', '-N', host]):
            with open(folder / 'daemons.log', 'ab') as log:
                daemons.append(subprocess.Popen(command, env=variables, stdout=log, stderr=log))
            time.sleep(1)
        wait_until_idle(folder, variables)
        yield config
    finally:
        end_jobs(variables)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)


def wait_until_idle(folder: Path, variables: dict[str, str]) -> None:
    """Waits until the node takes jobs."""
    for _ in range(60):
        answer = subprocess.run(['sinfo', '-h', '-o', '%T'], env=variables, capture_output=True, text=True)
        if answer.stdout.strip() in ('idle', 'mixed', 'allocated'):
            return
        time.sleep(0.5)
    logs = [f'{path.name}: {path.read_text()[-2000:]}' for path in folder.glob('*.log')]
    raise RuntimeError(f'the node is {answer.stdout.strip()} {answer.stderr}: {logs}')


def end_jobs(variables: dict[str, str]) -> None:
    """Cancels all jobs, and waits until their processes are gone: they would outlive the daemons."""
    subprocess.run(['scancel', '--me', '--full'], env=variables, capture_output=True, timeout=30)
    for _ in range(60):
        if not subprocess.run(['squeue', '-h'], env=variables, capture_output=True, text=True).stdout.strip():
            return
        time.sleep(0.5)


def free_ports() -> list[int]:
    """Two ports that no program listens on."""
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.bind(('127.0.0.1', 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


if __name__ == '__main__':
    with slurm_node(Path(sys.argv[1]).resolve()) as conf:
        print(f'export SLURM_CONF={conf}', flush=True)
        while True:
            time.sleep(3600)
