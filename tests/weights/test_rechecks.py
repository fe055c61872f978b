"""A file that was changed in place is noticed, although its digest is made of samples."""

import os
import shutil

import pytest
import torch
from safetensors.torch import save_file

from normscope.errors import ReplacedCheckpoint, UsageError
from normscope.run import Run
from normscope.weights.scan.scan import scan
from normscope.weights.sums import statistics

NAMES = ("model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight")
SIZE = 1_000_000
OFFSET = 2_500_000  # in the first tensor, far from any sample
ROWS = "SELECT step, prev_step, tensor, sumsq, dot, sumsq_delta, dot_init, absmax, nonfinite FROM weight"


@pytest.fixture
def series(tmp_path):
    folder = tmp_path / "series"
    folder.mkdir()
    generator = torch.Generator().manual_seed(1)
    for step in range(1, 4):
        state = {name: torch.randn(SIZE, generator=generator) for name in NAMES}
        save_file(state, folder / f"step_{step}.safetensors")
    return folder


def change(path, keep_time=False):
    """Exchange two neighbouring blocks of values, outside of every sample; ‖θ‖ stays nearly the same."""
    times = path.stat()
    with path.open("r+b") as file:
        file.seek(OFFSET)
        data = file.read(8000)
        file.seek(OFFSET)
        file.write(data[4000:] + data[:4000])
    moment = times.st_mtime_ns if keep_time else times.st_mtime_ns + 1
    os.utime(path, ns=(times.st_atime_ns, moment))


def rows(run):
    with Run(run) as found:
        return sorted(found.query(ROWS))


def notes(run):
    with Run(run) as found:
        return [note for note in found.meta["notes"] if "the last scan" in note]


@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_file_changed_in_place_is_measured_again(series, tmp_path, which):
    run = tmp_path / "run.db"
    scan(series, run).close()
    before, digest = rows(run), Run(run).checkpoints()[which - 1].digest
    change(series / f"step_{which}.safetensors")
    scan(series, run).close()
    assert Run(run).checkpoints()[which - 1].digest == digest  # no sample has seen it
    scan(series, tmp_path / "new.db").close()
    assert rows(run) == rows(tmp_path / "new.db") != before
    (note,) = notes(run)
    assert f"step_{which}.safetensors: changed since the last scan" in note
    scan(series, run).close()
    assert notes(run) == []


def test_a_touched_file_is_measured_again_and_found_the_same(series, tmp_path):
    run = tmp_path / "run.db"
    scan(series, run).close()
    before = rows(run)
    os.utime(series / "step_2.safetensors")
    scan(series, run).close()
    assert rows(run) == before
    (note,) = notes(run)
    assert "step_2.safetensors: written since the last scan" in note
    assert "the sums are the same" in note


def test_a_copy_with_its_time_is_said_and_not_read_again(series, tmp_path, monkeypatch):
    run = tmp_path / "run.db"
    scan(series, run).close()
    before = rows(run)
    path = series / "step_2.safetensors"
    shutil.copy2(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)  # noqa: PTH105
    monkeypatch.setattr(statistics.RunningSums, "add", None)  # not called
    scan(series, run).close()
    assert rows(run) == before
    (note,) = notes(run)
    assert "step_2.safetensors: not the same file as in the last scan" in note


def test_a_moved_series_is_not_measured_again(series, tmp_path, monkeypatch):
    run = tmp_path / "run.db"
    scan(series, run).close()
    series.rename(tmp_path / "moved")
    monkeypatch.setattr(statistics.RunningSums, "add", None)
    scan(tmp_path / "moved", run).close()


@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_change_whose_time_was_set_back_is_found_by_verify(series, tmp_path, which):
    run = tmp_path / "run.db"
    scan(series, run).close()
    before = rows(run)
    scan(series, run, verify=True).close()  # nothing has changed
    change(series / f"step_{which}.safetensors", keep_time=True)
    scan(series, run).close()
    assert rows(run) == before
    for _ in range(2):  # nothing is replaced, so it is found again
        with pytest.raises(
            ReplacedCheckpoint, match=rf"1 checkpoint differs.*step_{which}.safetensors"
        ) as error:
            scan(series, run, verify=True)
        others = {1, 2, 3} - {which}
        assert not any(f"step_{other}" in str(error.value) for other in others)
        assert rows(run) == before
    os.utime(series / f"step_{which}.safetensors")
    scan(series, run).close()
    scan(series, run, verify=True).close()
    scan(series, tmp_path / "new.db").close()
    assert rows(run) == rows(tmp_path / "new.db")


def test_verify_names_every_file_and_measures_new_ones(series, tmp_path):
    run = tmp_path / "run.db"
    last = series / "step_3.safetensors"
    last.rename(tmp_path / "later")
    scan(series, run).close()
    (tmp_path / "later").rename(last)
    for step in (1, 2):
        change(series / f"step_{step}.safetensors", keep_time=step == 1)
    with pytest.raises(ReplacedCheckpoint, match=r"2 checkpoints differ.*step_1\.safe.*step_2\.safe"):
        scan(series, run, verify=True)
    assert {row[0] for row in rows(run)} == {1, 2, 3}


def test_sums_of_another_kernel_are_compared_with_a_tolerance(series, tmp_path):
    run = tmp_path / "run.db"
    scan(series, run).close()
    with Run.create(run) as opened, opened.transaction():
        opened.set_meta("kernels", ["native (other)", "torch"])
        opened.update_rows("weight", "sumsq = sumsq * (1 + 1e-9)", "step = ?", (2,))
    scan(series, run, verify=True).close()
    with Run.create(run) as opened, opened.transaction():
        opened.update_rows("weight", "sumsq = sumsq * (1 + 1e-5)", "step = ?", (2,))
    with pytest.raises(ReplacedCheckpoint, match=r"step_2"):
        scan(series, run, verify=True)


def test_verify_needs_something_to_compare_with(series, tmp_path):
    with pytest.raises(UsageError, match="--verify compares with what a run file recorded"):
        scan(series, tmp_path / "run.db", verify=True)
    assert not (tmp_path / "run.db").exists()
