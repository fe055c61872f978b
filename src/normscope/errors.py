"""Every error normscope raises on purpose.

    NormscopeError
    ├── UsageError              the call was wrong; nothing was done         exit code 2
    │   ├── MissingExtra        an optional dependency is not installed
    │   ├── SourceNotFound      nothing exists at the path that was given
    │   └── PluginError         an installed plugin cannot be used
    ├── CheckpointError         a checkpoint or a series cannot be used      exit code 1
    │   ├── UnknownFormat       not a checkpoint in any format we know
    │   ├── CorruptCheckpoint   truncated, or its header contradicts itself
    │   ├── ReplacedCheckpoint  another version took its place while it was read
    │   └── UnsafeCheckpoint    reading it would mean running its code
    ├── RunFileError            a run file cannot be used                    exit code 1
    │   ├── NotARunFile
    │   ├── CorruptRunFile      damaged, or it holds what normscope never writes
    │   ├── RunVersionError
    │   └── RunFileBusy         another process is writing it
    ├── ModelError              a model cannot be measured                   exit code 1
    │   ├── MatrixError         a matrix has no spectrum: NaN, or not two sides
    │   └── ScaleOverflow       the scaled parameters leave the dtype's range
    ├── SeriesError             values that cannot be fitted                 exit code 1
    ├── LiteratureError         a paper or a library cannot be read          exit code 1
    │   └── ServiceError        a service with papers could not be asked
    ├── EngineError             work cannot be sent to other processes       exit code 1
    │   ├── NodeProblem         a machine of a cluster lacks what the work needs
    │   └── WorkerLost          the process of a call died at every attempt
    └── TrainingError           a lab run or sweep cannot continue           exit code 1
        └── Diverged            the loss became NaN or infinite

MissingCheckpoints and MissingRunFile are both a SourceNotFound and a CheckpointError or a RunFileError;
AnotherSeries, for a run file that belongs to another series, is both a UsageError and a RunFileError;
NothingFound (in checkpoints/series), for a folder without checkpoints, a UsageError and a CheckpointError.

A message says what was expected, what was given, and what to do next, in at most 500 characters. What a file
contains may be quoted in it; characters that cannot be printed are escaped.
"""

from normscope.words import printable

LONGEST = 500
"""Characters of a message: what a file contains may be quoted in it."""


def shortened(message: str, most: int = LONGEST) -> str:
    """A message without its middle if it is too long: the file is named first, and the advice comes last.

    >>> shortened("x" * 2000).count("x"), len(shortened("x" * 2000))
    (497, 500)
    """
    if len(message) <= most:
        return message
    end = most // 3
    return f"{message[: most - end - 3]} … {message[-end:]}"


class NormscopeError(Exception):
    """Base of every error that normscope raises on purpose; `normscope.errors` has the others.

    The command line prints its message and exits with `exit_code`.

    >>> try:
    ...     ns.series("missing.db")
    ... except ns.NormscopeError as error:
    ...     print(str(error)[:25])
    missing.db does not exist
    """

    exit_code = 1

    def __str__(self) -> str:
        return shortened(printable(super().__str__()))


class UsageError(NormscopeError):
    """The call was wrong; nothing was done."""

    exit_code = 2


class MissingExtra(UsageError):
    """An optional dependency is needed and not installed."""

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        return type(self), self._missing  # other processes raise it again

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self._missing = (package, extra, purpose)
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: "
            f"pip install 'normscope[{extra}]'"
        )


class SourceNotFound(UsageError):
    """Nothing exists at the path that was given."""


class PluginError(UsageError):
    """A plugin that another package installed cannot be used."""


class CheckpointError(NormscopeError):
    """A checkpoint or a series of checkpoints cannot be used."""


class MissingCheckpoints(SourceNotFound, CheckpointError):
    """There is no file or folder at the path where checkpoints were expected."""


class UnknownFormat(CheckpointError):
    """Not a checkpoint in any format normscope knows."""


class CorruptCheckpoint(CheckpointError):
    """Truncated, or its header contradicts itself."""


class ReplacedCheckpoint(CheckpointError):
    """Another version took the place of a file while it was read, or since it was measured."""


class UnsafeCheckpoint(CheckpointError):
    """Reading it would mean running code that it carries."""


class RunFileError(NormscopeError):
    """A run file cannot be used."""


class MissingRunFile(SourceNotFound, RunFileError):
    """There is no run file at the path that was given."""


class NotARunFile(RunFileError):
    """The file exists but is not a run file."""


class CorruptRunFile(RunFileError):
    """Damaged, or it holds what normscope never writes."""


class RunVersionError(RunFileError):
    """The run file was written by another version of normscope."""


class RunFileBusy(RunFileError):
    """Another process is writing the run file."""


class AnotherSeries(UsageError, RunFileError):
    """The run file belongs to another series of checkpoints, or to another training run."""


class ModelError(NormscopeError):
    """A model cannot be measured."""


class MatrixError(ModelError):
    """The spectrum of a matrix cannot be measured."""


class ScaleOverflow(ModelError):
    """The scaled parameters would leave the range of their dtype."""


class SeriesError(NormscopeError):
    """Values that cannot be fitted: fewer than three, or not finite."""


class LiteratureError(NormscopeError):
    """A paper, a library or a corpus cannot be read."""


class ServiceError(LiteratureError):
    """A service that knows papers did not answer, or not in a way that can be used."""


class EngineError(NormscopeError):
    """Work cannot be sent to other processes or machines."""


class NodeProblem(EngineError):
    """A machine of a cluster lacks what the work needs."""


class WorkerLost(EngineError):
    """The process of a call died at every attempt."""


class TrainingError(NormscopeError):
    """A lab run or a sweep cannot continue."""


class Diverged(TrainingError):
    """The loss became NaN or infinite."""
