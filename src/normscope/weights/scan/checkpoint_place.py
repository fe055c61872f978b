"""Open a checkpoint again by its address, in this process or in another: the same version, or an error."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.series.series import find_all, open_series
from normscope.errors import CheckpointError, ReplacedCheckpoint


@dataclass(frozen=True)
class CheckpointPlace:
    """Where another process finds one version of a checkpoint: small, and it pickles.

    `address` is an absolute path or a URL; that of a repository names the commit. `digest` says which
    contents it must have, also where a path is a copy on each machine.
    """

    address: str
    digest: str

    def open(self) -> Checkpoint:
        """Open the checkpoint; ReplacedCheckpoint if it has other contents."""
        checkpoint = reopen(self.address)
        found = checkpoint.digest
        if found != self.digest:
            checkpoint.close()
            raise ReplacedCheckpoint(
                f"{self.address} has other contents than when the scan began: its digest was {self.digest} "
                f"and is {found}. If it was replaced, run the same command again: it is measured anew."
            )
        return checkpoint

    def __call__(self) -> str | None:
        """What is wrong with the checkpoint on this machine, or None: a check of a node."""
        try:
            self.open().close()
        except ReplacedCheckpoint:
            return f"finds other contents at {self.address}: copy this machine's there, or use a shared disk"
        except CheckpointError as error:
            return f"cannot read a checkpoint that is read here: {error}"
        return None


def reopen(address: str) -> Checkpoint:
    """The checkpoint at the address of an entry of a series."""
    found = {checkpoint.source: checkpoint for checkpoint in find_all([address]).checkpoints}
    if address in found:
        return found[address].open()
    return open_series(address, steps=[0]).entries[0].open()
