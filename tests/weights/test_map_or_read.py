"""Local files are mapped or read, whichever is faster; the sums are the same bits."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CorruptCheckpoint, UsageError
from normscope.weights.reading import map_or_read
from normscope.weights.scan.scan import scan
from normscope.weights.sums import statistics

pytestmark = pytest.mark.skipif(statistics._kernel is None, reason="only the kernel maps and reads files")
ROWS = (
    "SELECT stage, step, prev_step, tensor, sumsq, dot, sumsq_delta, dot_init, absmax, nonfinite FROM weight"
)


def by_npz(state, path):
    np.savez(path.with_suffix(".npz"), **{name: value.float().numpy() for name, value in state.items()})


def by_distributed(state, path):
    import torch.distributed.checkpoint as dcp

    dcp.save(state, checkpoint_id=path, no_dist=True)


WRITERS = {
    "safetensors": lambda state, path: save_file(state, path.with_suffix(".safetensors")),
    "zip": lambda state, path: torch.save(state, path.with_suffix(".pt")),
    "legacy": lambda state, path: torch.save(
        state, path.with_suffix(".pt"), _use_new_zipfile_serialization=False
    ),
    "npz": by_npz,
    "distributed": by_distributed,
}


def make_series(folder, write, dtype=torch.bfloat16, elements=(7_000_001, 1_100_003, 300)):
    """Three checkpoints whose tensors end inside a block, with values that are not finite."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    for step in range(3):
        state = {
            f"h.{i}.mlp.weight": torch.randn(n, generator=generator).to(dtype) for i, n in enumerate(elements)
        }
        state["h.0.mlp.weight"][5_000_000] = float("nan")
        write(state, folder / f"step_{step}")
    return folder


def open_descriptors():
    place = Path("/proc/self/fd")
    return sum(1 for _ in place.iterdir()) if place.exists() else 0


def sums(folder, run):
    run.unlink(missing_ok=True)
    with scan(folder, run, workers=2) as found:
        return sorted(found.query(ROWS))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("format", WRITERS)
def test_the_sums_are_the_same_bits_either_way(tmp_path, monkeypatch, format):
    folder = make_series(tmp_path / "series", WRITERS[format])
    found = {}
    for way in ("map", "read", "auto"):
        monkeypatch.setenv(map_or_read.VARIABLE, way)
        found[way] = sums(folder, tmp_path / "run.db")
    monkeypatch.delenv(map_or_read.VARIABLE)
    for reads in (True, False):
        monkeypatch.setattr(map_or_read, "is_reading_faster", lambda *_, reads=reads: reads)
        found[reads] = sums(folder, tmp_path / "run.db")
    assert sum(row[-1] for row in found["map"]) == 3
    assert all(rows == found["map"] for rows in found.values())


@pytest.mark.parametrize("way", ["read", "auto"])
def test_what_was_chosen_is_what_is_done(tmp_path, monkeypatch, way):
    """Once reading was found faster, or asked for, nothing large is mapped; no descriptor stays open."""
    folder = make_series(tmp_path / "series", WRITERS["safetensors"])
    asked = []
    borrow = LocalFile.borrow

    def note(self, start, stop, mapped=True):
        asked.append((mapped, stop - start))
        return borrow(self, start, stop, mapped)

    monkeypatch.setattr(LocalFile, "borrow", note)
    monkeypatch.setattr(map_or_read, "is_reading_faster", lambda *_: True)
    monkeypatch.setenv(map_or_read.VARIABLE, way)
    before = open_descriptors()
    sums(folder, tmp_path / "run.db")
    assert open_descriptors() == before
    mapped = [nbytes for is_mapped, nbytes in asked if is_mapped]
    if way == "read":
        assert not mapped
    else:
        assert max(mapped) <= map_or_read.WINDOW
        assert {False, True} == {is_mapped for is_mapped, _ in asked}


def test_small_tensors_are_mapped_without_being_timed(tmp_path, monkeypatch):
    folder = tmp_path / "series"
    folder.mkdir()
    for step in range(3):
        save_file({f"h.{i}.w": torch.randn(4096) for i in range(5)}, folder / f"step_{step}.safetensors")
    monkeypatch.setattr(map_or_read, "access", None)  # not called
    assert len(sums(folder, tmp_path / "run.db")) == 15


def test_the_faster_way_is_chosen_and_one_slow_try_does_not_matter():
    for mapped, read, expected in [([1, 1, 9], [2, 2, 2], False), ([3, 3, 3], [2, 9, 2], True)]:
        choice = map_or_read.MapOrRead()
        tried = []
        for i in range(6):
            tried.append(choice.reads_next())
            assert choice.reads is None
            choice.tell(tried[-1], (read if tried[-1] else mapped)[i // 2])
        assert tried == [False, True] * 3
        assert choice.reads is choice.reads_next() is expected


def test_another_way_is_refused(tmp_path, monkeypatch):
    folder = make_series(tmp_path / "series", WRITERS["safetensors"])
    monkeypatch.setenv(map_or_read.VARIABLE, "fast")
    with pytest.raises(UsageError, match="NORMSCOPE_READ must be map, read or auto; got 'fast'"):
        scan(folder, tmp_path / "run.db")


def test_a_file_truncated_while_it_is_read(tmp_path, monkeypatch):
    """A read that comes back short names the file, as lost memory does."""
    folder = make_series(tmp_path / "series", WRITERS["safetensors"])
    monkeypatch.setenv(map_or_read.VARIABLE, "read")
    add = statistics.RunningSums.add

    def truncate_first(self, stretch, *rest):
        os.truncate(folder / "step_1.safetensors", 5000)
        add(self, stretch, *rest)

    monkeypatch.setattr(statistics.RunningSums, "add", truncate_first)
    with pytest.raises(CorruptCheckpoint, match=r"step_1.safetensors became shorter while"):
        scan(folder, tmp_path / "run.db")
