"""What writing records to the run file costs, in the thread that writes.

    python -m benchmarks monitor_writer

Processor time of the writing thread and of `put`, for records as a small model, GPT-2 and a model of ten
thousand tensors make them, queued at the pace of a training: so many per second.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from normscope.live.model.sharding import ParameterInfo
from normscope.live.writing.journal import Journal
from normscope.live.writing.journal_entries import COLUMNS, ParameterInventory, Record

CASES = ((40, 1000, 200), (148, 300, 50), (148, 20, 3), (10_000, 10, 5))
"""Tensors, records, records per second."""


def records(tensors, number):
    """Records as a monitor makes them: everything measured, one optimizer."""
    values = np.random.default_rng(0).random((tensors, len(COLUMNS)))
    for column, value in {"nonfinite": 0, "lr": 1e-3, "kind": 0, "coupled": 0, "grouped": 1}.items():
        values[:, COLUMNS.index(column)] = value
    if "param_group" in COLUMNS:
        values[:, COLUMNS.index("param_group")] = 0
    return [Record(step, values.copy(), step == 0) for step in range(number)]


def cost(tensors, number, per_second):
    """Seconds of the writing thread and of `put`, without opening the file."""
    infos = [ParameterInfo(f"layers.{i}.weight", (8, 8), "float32") for i in range(tensors)]
    first, *made = records(tensors, number + 1)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "run.db", ParameterInventory(infos, {}, ("AdamW",)))
        journal.outbox.put(first)
        journal.outbox.flush(60)
        opened, putting = journal.outbox.seconds, 0.0
        for record in made:
            began = time.thread_time()
            journal.outbox.put(record)
            putting += time.thread_time() - began
            time.sleep(1 / per_second)
        assert journal.close(60)
        return journal.outbox.seconds - opened, putting


def main():
    """Print the cost per record and per row of each case."""
    for tensors, number, per_second in CASES:
        writing, putting = cost(tensors, number, per_second)
        print(
            f"{tensors:6} tensors, {per_second} records a second: {writing / number * 1e6:.0f} µs a record, "
            f"{writing / number / tensors * 1e6:.2f} µs per row; put {putting / number * 1e6:.1f} µs",
            flush=True,
        )


if __name__ == "__main__":
    main()
