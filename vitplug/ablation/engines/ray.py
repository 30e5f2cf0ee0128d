"""Cells as plain tasks of a Ray cluster."""

import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from vitplug.errors.stops import Interrupted

from .engine import LOST, Job, import_extra
from .launch import Share, node_command, run_worker

LOCAL = 'local'
# Ray's switch, read when it is imported, for clusters of one machine, which listen on the loopback address.
ONE_MACHINE = {'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER': '0'}
# Ray would kill what a task has started at once when its controller is gone, before it has saved.
SPARED = {'RAY_kill_child_processes_on_worker_exit': '0'}


class RayEngine:
    """Runs each cell as a task, on a node that Ray chooses.

    Tasks end with their controller: a worker sees its task go, saves and exits with status 75.

    Args:
        share: What each cell gets; one node.
        jobs: Number of tasks at a time; None for as many as the cluster has room for.
        address: Address of the cluster, as ``ray.init`` takes it; None for the one of ``RAY_ADDRESS``, or a new one on
            this machine.
        options: Options of the worker.

    Raises:
        ModuleNotFoundError: If Ray is not installed.
        ValueError: If ``jobs`` is less than 1, a cell has several nodes, or the cluster has no room for one.
        ConnectionError: If there is no cluster at the address.
    """

    def __init__(self, share: Share, jobs: int | None = None, address: str | None = None, options: Sequence[str] = ()):
        address = address or os.environ.get('RAY_ADDRESS') or LOCAL
        if address == LOCAL:  # Ray runs whatever code is sent to its ports
            os.environ.update(ONE_MACHINE)
        self.ray = import_extra('--engine ray', 'Ray', 'ray>=2.9')
        if jobs is not None and jobs < 1:
            raise ValueError(f'--jobs {jobs}: expected at least 1')
        if share.nodes > 1:
            raise ValueError(f'--nodes {share.nodes}: a task of Ray lies on one node; use --gpus, or --engine slurm')
        self.share, self.options = share, [*options, '--heed-parent']
        own = dict(include_dashboard=False) if address == LOCAL else {}
        self.ray.init(address=address, log_to_driver=False, ignore_reinit_error=True, **own)
        room = self.room()
        if room < 1:
            self.ray.shutdown()
            raise ValueError(f'--engine ray: no room for {share.gpus} GPUs and {share.cpus or 1} cores in the cluster')
        self.slots = min(jobs or room, room)
        settings = dict(num_cpus=share.cpus or 1, num_gpus=share.gpus, max_retries=0, runtime_env=dict(env_vars=SPARED))
        self.task = self.ray.remote(**settings)(run_cell)
        self.command = node_command

    def room(self) -> int:
        """How many cells fit into the cluster at a time."""
        wanted = {'CPU': self.share.cpus or 1, 'GPU': self.share.gpus}
        nodes = [node['Resources'] for node in self.ray.nodes() if node['Alive']]
        return sum(min(int(node.get(kind, 0) // number) for kind, number in wanted.items() if number) for node in nodes)

    def submit(self, folder: Path) -> 'RayJob':
        """Starts the task of a cell."""
        task = self.task.remote(str(folder.resolve()), os.getcwd(), self.command, self.share, self.options)
        return RayJob(self.ray, task)

    def attach(self, folder: Path) -> Job | None:
        """None: a task of an earlier controller has ended with it, and the next worker of its cell waits for that."""
        return None

    def close(self) -> None:
        """Leaves the cluster."""
        self.ray.shutdown()


class RayJob:
    """A task.

    Args:
        ray: The package.
        result: Reference to the task's result, its exit status.
    """

    def __init__(self, ray, result):
        self.ray, self.result, self.stopped = ray, result, False

    def poll(self) -> int | None:
        """The exit status of the worker; :data:`LOST` if its task is gone."""
        ready, _ = self.ray.wait([self.result], timeout=0)
        if not ready:
            return None
        try:
            return self.ray.get(self.result)
        except self.ray.exceptions.TaskCancelledError:
            return Interrupted.status
        except (self.ray.exceptions.RayTaskError, self.ray.exceptions.RaySystemError) as error:
            raise OSError(f'Ray could not start the worker: {error}') from error
        except self.ray.exceptions.RayError:
            return LOST

    def stop(self) -> None:
        """Cancels the task, whose worker saves and ends, once."""
        if not self.stopped:
            self.stopped = True
            self.ray.cancel(self.result, force=False)


def run_cell(folder: str, cwd: str, command: Callable[..., list[str]], share: Share, options: Sequence[str]) -> int:
    """The task: runs the worker of a cell to its end, and gives its exit status.

    Raises:
        OSError: If the worker cannot be started.
    """
    asked = []
    # Ray cancels a task by SIGINT to the process of its worker, whose handler would raise KeyboardInterrupt here.
    before = signal.signal(signal.SIGINT, lambda *_: asked.append(True))
    try:
        with tempfile.TemporaryDirectory() as temporary:
            status = Path(temporary, 'status')
            arguments = command(Path(folder), share, options, status)
            return run_worker(arguments, Path(folder), status, lambda: bool(asked), cwd)
    finally:
        signal.signal(signal.SIGINT, before)
