"""A checkpoint counts when it is complete, and not before."""

import os
import time

import pytest
import torch
from safetensors.torch import save

from normscope.checkpoints import open_series
from normscope.checkpoints.series.follow import Follower, follow
from normscope.errors import UnsafeCheckpoint

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
