"""The ways in which a training or a test ends before its time, each with an exit status of its own.

The numbers are those of ``sysexits.h``, so that a script around a training can tell them apart from a crash (1) and
from a wrong setting (2).
"""


class TrainingStopped(RuntimeError):
    """A training or a test ended before its time, and its message says why and what to do.

    Attributes:
        status: Exit status of `tools/train.py` and `tools/test.py`.
    """

    status = 1


class BadSample(TrainingStopped):
    """Too many samples in a row, or one where strictness was asked for, could not be used (``EX_DATAERR``)."""

    status = 65


class PeerLost(TrainingStopped):
    """Another process of a distributed run is gone and gave no reason (``EX_UNAVAILABLE``)."""

    status = 69


class CheckpointNotRead(TrainingStopped):
    """A checkpoint is missing or broken, or would have to run code to be read (``EX_NOINPUT``)."""

    status = 66


class NonFiniteLoss(TrainingStopped):
    """The loss was infinite or not a number too many times in a row (``EX_SOFTWARE``)."""

    status = 70


class WorkerDied(TrainingStopped):
    """A worker of a data loader died for a reason other than its sample, say of a lack of memory (``EX_OSERR``)."""

    status = 71


class NotWritten(TrainingStopped):
    """A disk or the shared memory is full, or the work dir is gone (``EX_IOERR``)."""

    status = 74


class CheckpointNotWritten(NotWritten):
    """A checkpoint could not be written."""


class Interrupted(TrainingStopped):
    """A signal asked the training to end; it saved everything and goes on with `--resume` (``EX_TEMPFAIL``)."""

    status = 75


SETTLED = frozenset({2, BadSample.status, NonFiniteLoss.status, NotWritten.status})
"""Statuses of reasons that another start meets again; 2 is that of a wrong setting."""


class NotStartedAgain(TrainingStopped):
    """torchrun has started a training again that ended for a reason that comes again.

    Args:
        told: What the start before told of its end: `reason` and `status`.
    """

    BEGIN = 'not started again: '

    def __init__(self, notice: dict):
        super().__init__(self.BEGIN + notice['reason'].removeprefix(self.BEGIN))
        self.status = notice['status']
