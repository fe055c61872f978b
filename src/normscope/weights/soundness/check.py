"""The part of an audit that costs a scan next to nothing: headers, sums, and a sample of mapped files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.series.series import Entry
from normscope.remarks import Finding
from normscope.run import Run
from normscope.weights.soundness.breaks import find_breaks
from normscope.weights.soundness.findings import Array
from normscope.weights.soundness.headers import find_in_headers, header_of
from normscope.weights.soundness.kept_pairs import keep_pairs, kept_pairs
from normscope.weights.soundness.pairs import PairTable
from normscope.weights.soundness.pieces import in_pieces
from normscope.weights.soundness.samples import cheap_to_sample, sampled_table
from normscope.weights.soundness.spacing import learn_spacing
from normscope.weights.soundness.tensor_checks import (
    FinitePart,
    duplicate,
    find_in_tensors,
    finite_part,
    load_sums,
    same_digest,
)

MOST_COMPARED = 2000  # checkpoints: with more, not every one is compared with every other


class OpenStage(Protocol):
    """The open checkpoints of one stage, as a scan has them; `other_steps` are those that it left out.

    `compared` are the names of its parameters: those that it measures, and those that differ between
    the checkpoints.
    """

    name: str
    entries: list[Entry]
    checkpoints: list[Checkpoint]
    other_steps: set[int]
    compared: frozenset[str]


def check_scan(run: Run, stages: Sequence[OpenStage]) -> list[Finding]:
    """All findings about the stages of a finished scan, whose sums are in the run file.

    Nothing is found, and nothing is read, for a stage of one checkpoint.
    """
    found = []
    for stage in stages:
        if len(stage.entries) > 1:
            found += [finding.of_stage(stage.name) for finding in _check_stage(run, stage)]
    return found


def _check_stage(run: Run, stage: OpenStage) -> list[Finding]:
    pairs = zip(stage.entries, stage.checkpoints, strict=True)
    headers = [header_of(entry, checkpoint, stage.compared) for entry, checkpoint in pairs]
    steps = sorted({*stage.other_steps, *(entry.step for entry in stage.entries)})
    digests = {header.step: header.digest for header in headers}
    sums = check_sums(run, stage.name, digests, stage.checkpoints, cheaply=True)
    return [*learn_spacing(steps).findings, *find_in_headers(headers), *sums]


def check_sums(
    run: Run,
    stage: str,
    digests: Mapping[int, str | None],
    checkpoints: Sequence[Checkpoint] = (),
    *,
    cheaply: bool = False,
) -> list[Finding]:
    """All findings from the sums of a stage and from comparing its checkpoints, by step with their digests.

    The comparison kept in the run file is used; if there is none, the open `checkpoints` are sampled,
    `cheaply` only if they are mapped; without them, the sums of neighbours have to do.
    """
    sums = load_sums(run, stage, list(digests)) if digests else None
    if sums is None:
        return [duplicate(steps, "the files have equal digests") for steps in same_digest(digests)]
    found = find_in_tensors(sums, digests)
    copies = {step for finding in found if finding.kind == "duplicate" for step in finding.steps[1:]}
    part = finite_part(sums)
    if len(part.rows) < 2 or not part.judged:
        return found
    files = {step: digests[step] for step in part.steps.tolist()}
    table = kept_pairs(run, stage, files, part.judged)
    if table is None or len(table) != len(files):
        opened = [checkpoints[i] for i in part.rows] if checkpoints else ()
        table = _sample(run, stage, files, part, opened, cheaply)
    if table is not None:
        return [*found, *_breaks(table, part.sumsq, copies)]
    for piece in in_pieces(part, MOST_COMPARED):
        breaks = _breaks(piece.part.table(), part.sumsq[piece.places], copies)
        found += [finding for finding in breaks if piece.speaks_about(finding)]
    return found


def _breaks(table: PairTable, sumsq: Array, copies: set[int]) -> list[Finding]:
    """Findings about the way from checkpoint to checkpoint, each of equal ones once."""
    once = [i for i, step in enumerate(table.steps.tolist()) if step not in copies]
    return find_breaks(table.only(once), sumsq[once])


def _sample(
    run: Run,
    stage: str,
    digests: Mapping[int, str | None],
    part: FinitePart,
    checkpoints: Sequence[Checkpoint],
    cheaply: bool,
) -> PairTable | None:
    """The table of a sample, which is also kept in the run file if that can be written."""
    sizes = part.judged
    readable = all(sizes.keys() <= checkpoint.tensors.keys() for checkpoint in checkpoints)
    if not checkpoints or len(checkpoints) > MOST_COMPARED or not readable:
        return None
    if cheaply and not all(cheap_to_sample(checkpoint, sizes) for checkpoint in checkpoints):
        return None
    table = sampled_table(part.steps, checkpoints, sizes)
    if run.writable:
        with run.transaction():
            keep_pairs(run, stage, table, digests, sizes)
    return table
