"""Every error normscope raises on purpose.

    NormscopeError
    ├── UsageError              the call was wrong; nothing was done         exit code 2
    │   ├── MissingExtra        an optional dependency is not installed
    │   ├── SourceNotFound      nothing exists at the path that was given
    │   └── PluginError         an installed plugin cannot be used
    ├── CheckpointError         a checkpoint or a series cannot be used      exit code 1
    │   ├── UnknownFormat       not a checkpoint in any format we know
    │   ├── CorruptCheckpoint   truncated, or its header contradicts itself
    │   └── UnsafeCheckpoint    reading it would mean running its code
    ├── RunFileError            a run file cannot be used                    exit code 1
    │   ├── NotARunFile
    │   └── RunVersionError
    ├── ModelError              a model cannot be measured                   exit code 1
    │   └── ScaleOverflow       the scaled parameters leave the dtype's range
    ├── SeriesError             values that cannot be fitted                 exit code 1
    └── TrainingError           a lab run or sweep cannot go on              exit code 1
        └── Diverged            the loss left the finite numbers

MissingCheckpoints and MissingRunFile are both a SourceNotFound and a CheckpointError or a RunFileError.

A message says what was expected, what came, and what to do next.
"""


class NormscopeError(Exception):
    """Base of the tree; the command line prints its message and exits with `exit_code`."""

    exit_code = 1


class UsageError(NormscopeError):
    """The call was wrong; nothing was done."""

    exit_code = 2


class MissingExtra(UsageError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
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


class UnsafeCheckpoint(CheckpointError):
    """Reading it would mean running code that it carries."""


class RunFileError(NormscopeError):
    """A run file cannot be used."""


class MissingRunFile(SourceNotFound, RunFileError):
    """There is no run file at the path that was given."""


class NotARunFile(RunFileError):
    """The file exists and is something else."""


class RunVersionError(RunFileError):
    """The run file was written by another version of normscope."""


class ModelError(NormscopeError):
    """A model cannot be measured."""


class ScaleOverflow(ModelError):
    """The scaled parameters would leave the range of their dtype."""


class SeriesError(NormscopeError):
    """Values that cannot be fitted: fewer than three, or not finite."""


class TrainingError(NormscopeError):
    """A lab run or a sweep cannot go on."""


class Diverged(TrainingError):
    """The loss became NaN or infinite."""
