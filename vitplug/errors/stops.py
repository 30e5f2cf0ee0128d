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


class CheckpointNotRead(TrainingStopped):
    """A checkpoint is missing or broken, or would have to run code to be read (``EX_NOINPUT``)."""

    status = 66


class NonFiniteLoss(TrainingStopped):
    """The loss was infinite or not a number too many times in a row (``EX_SOFTWARE``)."""

    status = 70


class Interrupted(TrainingStopped):
    """A signal asked the training to end; it saved everything and goes on with `--resume` (``EX_TEMPFAIL``)."""

    status = 75
