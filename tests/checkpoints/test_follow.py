"""A checkpoint counts when it is complete, and not before."""

import os
import time

import pytest
import torch
from safetensors.torch import save

from normscope.checkpoints import open_series
from normscope.checkpoints.series.follow import Follower, follow
from normscope.errors import CheckpointError, UnsafeCheckpoint

DATA = save({"w": torch.arange(1000.0), "tied": torch.ones(3)})


def age(path, seconds):
    when = time.time() - seconds
    os.utime(path, (when, when))


def steps(series):
    return [entry.step for entry in series.entries]


def test_nothing_there_yet(tmp_path):
    assert steps(Follower(tmp_path / "later").poll()) == []
    assert steps(Follower(tmp_path).poll()) == []


def test_a_file_counts_once_it_has_settled(tmp_path):
    follower = Follower(tmp_path, settle=5)
    path = tmp_path / "step_1.safetensors"
    path.write_bytes(DATA)
    assert steps(follower.poll()) == []
    assert steps(follower.poll()) == [], "it changed less than five seconds ago"
    age(path, 10)
    assert steps(follower.poll()) == [], "it changed since the last look"
    assert steps(follower.poll()) == [1]


def test_a_file_being_written_is_not_opened(tmp_path):
    follower = Follower(tmp_path, settle=5)
    path = tmp_path / "step_1.safetensors"
    for part in (100, 2000, len(DATA) - 1):
        path.write_bytes(DATA[:part])
        age(path, 10)
        assert steps(follower.poll()) == []
    assert steps(follower.poll()) == [], "settled, but its header says that a byte is missing"
    path.write_bytes(DATA)
    age(path, 9)
    follower.poll()
    assert steps(follower.poll()) == [1]


def test_a_file_that_stays_damaged_is_named_until_it_is_repaired(tmp_path):
    follower = Follower(tmp_path, settle=5)
    good, bad = tmp_path / "step_1.safetensors", tmp_path / "step_2.safetensors"
    good.write_bytes(DATA)
    bad.write_bytes(DATA[:-1])
    age(good, 10)
    age(bad, 10)
    assert follower.poll().left_out == ()
    series = follower.poll()
    assert steps(series) == [1]
    (left_out,) = series.left_out
    assert left_out.label == "step_2"
    assert "cannot be read, or is not complete yet" in left_out.reason
    bad.write_bytes(DATA)
    age(bad, 9)
    assert follower.poll().left_out == ()
    assert steps(follower.poll()) == [1, 2]


def test_a_preallocated_file_waits_for_its_last_write(tmp_path):
    """Header and size are right from the start; only the times show that data is still being written."""
    follower = Follower(tmp_path, settle=0.2)
    path = tmp_path / "step_1.safetensors"
    for part in range(3):
        path.write_bytes(DATA[: 400 + part].ljust(len(DATA), b"\0"))
        assert steps(follower.poll()) == []
        time.sleep(0.05)
    time.sleep(0.3)
    assert steps(follower.poll()) == [1]


def test_shards_must_all_be_there(tmp_path):
    follower = Follower(tmp_path, settle=0)
    folder = tmp_path / "checkpoint-7"
    folder.mkdir()
    (folder / "model-00001-of-00002.safetensors").write_bytes(DATA)
    assert [steps(follower.poll()) for _ in range(3)] == [[], [], []]
    (folder / "model-00002-of-00002.safetensors").write_bytes(save({"other": torch.ones(2)}))
    follower.poll()
    assert steps(follower.poll()) == [7]


def test_following_yields_a_growing_series(tmp_path):
    def write(step):
        (tmp_path / f"step_{step}.safetensors").write_bytes(DATA)

    pending = [2, 3, None, None]

    def ended():
        step = pending.pop(0) if pending else None
        if step:
            write(step)
        return not pending

    write(1)
    (tmp_path / "step_9.safetensors").write_bytes(DATA[:50])
    found = [steps(series) for series in follow(tmp_path, every=0.02, settle=0, ended=ended)]
    assert found[-1] in ([1, 2], [1, 2, 3])
    assert found == sorted(found)


def complete(folder, *names, **options):
    """The series that a follower sees once the files of these names, which have settled, are there."""
    for i, name in enumerate(names):
        (folder / name).write_bytes(save({"w": torch.full((3,), float(i))}))
    follower = Follower(folder, settle=0, **options)
    follower.poll()
    return follower.poll()


def test_following_has_the_rules_of_a_scan(tmp_path):
    names = [f"{name}.safetensors" for name in ("step_1", "step_2", "best", "latest", "ema_step_2")]
    series = complete(tmp_path, *names)
    assert steps(series) == [1, 2]
    assert {each.label for each in series.left_out} == {"best", "latest", "ema_step_2"}
    assert "overwritten" in next(each.reason for each in series.left_out if each.label == "latest")


def test_following_with_a_pattern(tmp_path):
    names = ("m_3_7.safetensors", "m_4_9.safetensors", "x.safetensors")
    series = complete(tmp_path, *names, pattern=r"m_(?P<epoch>\d+)_")
    assert steps(series) == [3, 4]
    assert series.notes == ("steps are epochs, read from the names",)


def test_a_refusal_is_not_waited_out(tmp_path):
    with pytest.raises(CheckpointError, match="one per rank"):
        complete(tmp_path, "model_rank_0.safetensors", "model_rank_1.safetensors")
    (tmp_path / "sub").mkdir()
    with pytest.raises(CheckpointError, match="one per rank"):
        complete(tmp_path / "sub", "mp_rank_00.safetensors", "mp_rank_01.safetensors")


def test_a_checkpoint_without_a_step_is_waited_with(tmp_path):
    assert steps(complete(tmp_path, "init.safetensors")) == []
    assert steps(complete(tmp_path, "init.safetensors", "step_5.safetensors")) == [5]


def test_a_malicious_file_is_refused_at_once(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, ("true",)

    torch.save({"w": torch.ones(2), "x": Evil()}, tmp_path / "step_1.pt")
    follower = Follower(tmp_path, settle=0)
    follower.poll()
    with pytest.raises(UnsafeCheckpoint):
        follower.poll()


def test_a_series_describes_itself(tmp_path):
    shared = torch.ones(10, 10)
    for step in (1, 2):
        state = {"a": shared, "b": shared, "half": torch.ones(4).half(), "ids": torch.arange(3)}
        torch.save(state, tmp_path / f"step_{step}.pt")
    description = open_series(tmp_path).describe()
    assert (description.checkpoints, description.tensors, description.bytes) == (2, 4, 2 * 408)
    assert [row.step for row in description.rows] == [1, 2]
    assert description.rows[0].parameters == 104
    assert description.rows[0].format == "pytorch"
