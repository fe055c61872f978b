"""torch.distributed.checkpoint folders against torch's own loader."""

import itertools
import math
import os
import socket
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from normscope.checkpoints import open_series
from normscope.checkpoints.extents import ByteRange, Extent
from normscope.checkpoints.formats.tiles import Tile, join_tiles
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, CorruptCheckpoint
from tests.checkpoints.small_checkpoints import raw


def save(path, state):
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=path)
    return path


def state(value=1.0):
    module = torch.nn.Linear(5, 3)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 5)).sum().backward()
    optimizer.step()
    tensors = {**module.state_dict(), "half": torch.randn(4, 2).bfloat16(), "n": torch.tensor(3)}
    return {"model": tensors, "optim": optimizer.state_dict(), "step": 7, "note": "text"}


def test_what_one_process_saved(tmp_path):
    saved = state()
    save(tmp_path / "step_1", saved)
    (entry,) = open_series(tmp_path).entries
    checkpoint = entry.open()
    assert entry.step == 1
    assert checkpoint.step == 7
    assert checkpoint.format == "dcp"
    assert checkpoint.tensors.keys() == saved["model"].keys()
    assert set(checkpoint.skipped) == {"optim"}
    for name, values in saved["model"].items():
        whole = raw(values)
        assert checkpoint.tensors[name].shape == values.shape
        assert bytes(checkpoint.read(name, 0, len(whole))) == whole


def test_the_step_inside_and_a_series(tmp_path):
    save(tmp_path / "last", state())
    assert [entry.step for entry in open_series(tmp_path).entries] == [7]
    assert [entry.step for entry in open_series(tmp_path / "last").entries] == [7]


def test_folders_that_trainers_put_around_it(tmp_path):
    """Accelerate keeps the optimizer in a folder of its own, OLMo-core the ranks' states."""
    save(tmp_path / "step5" / "pytorch_model_fsdp_0", {"model": state()["model"]})
    save(tmp_path / "step5" / "optimizer_0", {"optim": state()["optim"]})
    save(tmp_path / "step9" / "model_and_optim", state())
    (tmp_path / "step9" / "train").mkdir()
    torch.save({"epoch": 1}, tmp_path / "step9" / "train" / "rank0.pt")
    assert [entry.step for entry in open_series(tmp_path).entries] == [5, 9]
    assert {entry.open().format for entry in open_series(tmp_path).entries} == {"dcp"}


def test_only_an_optimizer(tmp_path):
    save(tmp_path / "step1", {"optim": state()["optim"]})
    with pytest.raises(CheckpointError, match="no model"):
        open_series(tmp_path).entries[0].open()


def test_a_missing_data_file(tmp_path):
    save(tmp_path / "step1", state())
    (tmp_path / "step1" / "__0_0.distcp").rename(tmp_path / "step1" / "other.distcp")
    with pytest.raises(CorruptCheckpoint, match="lacks the file"):
        open_series(tmp_path).entries[0].open()


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x02N.", b"\x80\x02}.", b"hello", b"\x80\x04cos\nsystem\n(S'x'\ntR."]
)
def test_invalid_metadata(tmp_path, content):
    save(tmp_path / "step1", state())
    (tmp_path / "step1" / ".metadata").write_bytes(content)
    with pytest.raises(CorruptCheckpoint):
        open_series(tmp_path).entries[0].open()


WORKER = """
    import sys, time, warnings
    warnings.simplefilter("ignore")
    import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, Replicate, distribute_tensor

    rank, port, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.manual_seed(0)
    shapes = {"rows": (5, 4), "columns": (4, 6), "whole": (3,), "one": (1, 2)}
    full = {name: torch.randn(shape) for name, shape in shapes.items()}
    if rank == 0:
        torch.save(full, folder + "/full.pt")
    mesh = init_device_mesh("cpu", (2,))
    places = {"rows": [Shard(0)], "columns": [Shard(1)], "whole": [Replicate()], "one": [Shard(0)]}
    model = {name: distribute_tensor(value, mesh, places[name]) for name, value in full.items()}
    fsdp = torch.nn.Linear(6, 5)
    from torch.distributed.fsdp import fully_shard
    torch.save(fsdp.state_dict(), folder + "/fsdp.pt") if rank == 0 else None
    fully_shard(fsdp, mesh=mesh)
    model |= {f"fsdp.{name}": value for name, value in fsdp.state_dict().items()}
    dcp.save({"model": model}, checkpoint_id=folder + "/step_3")
    time.sleep(0.1)  # gloo's threads still come for the interpreter's lock
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_what_two_ranks_of_fsdp2_saved(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    workers = [
        subprocess.Popen([sys.executable, str(script), str(rank), str(port), str(tmp_path)], env=environment)
        for rank in range(2)
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    fsdp = torch.load(tmp_path / "fsdp.pt", weights_only=True)
    expected = torch.load(tmp_path / "full.pt", weights_only=True) | {f"fsdp.{k}": v for k, v in fsdp.items()}
    checkpoint = open_series(tmp_path / "step_3").entries[0].open()
    assert checkpoint.tensors.keys() == expected.keys()
    for name, values in expected.items():
        whole = raw(values)
        assert bytes(checkpoint.read(name, 0, len(whole))) == whole
        for start in range(0, len(whole), 9):
            assert (
                bytes(checkpoint.read(name, start, min(start + 23, len(whole)))) == whole[start : start + 23]
            )
        checkpoint.drop(name, 0, len(whole))


@given(st.data())
def test_any_tiling_reads_as_the_whole(data):
    """Cut an array along both axes anywhere; every range reads as it does from the array."""
    shape = data.draw(st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(1, 3)))
    whole = np.arange(math.prod(shape), dtype=np.int16).reshape(shape)
    cuts = [[0, *sorted(data.draw(st.sets(st.integers(1, n), max_size=3))), n] for n in shape[:2]]
    tiles = [
        Tile((a, c, 0), (b - a, d - c, shape[2]), Bytes(whole[a:b, c:d].tobytes()))
        for a, b in itertools.pairwise(cuts[0])
        for c, d in itertools.pairwise(cuts[1])
    ]
    extent = join_tiles("w", shape, 2, tiles)
    stop = data.draw(st.integers(0, whole.nbytes))
    start = data.draw(st.integers(0, stop))
    assert bytes(extent.read(start, stop)) == whole.tobytes()[start:stop]
    extent.drop(start, stop)
    dropped = sum(tile.extent.dropped for tile in tiles)
    assert dropped == stop - start if set(cuts[1]) == {0, shape[1]} else dropped <= stop - start


class Bytes(Extent):
    """Bytes in memory, which count how many of them were dropped."""

    def __init__(self, data):
        self.data, self.dropped = data, 0

    def read(self, start, stop):
        assert 0 <= start <= stop <= len(self.data)
        return self.data[start:stop]

    def drop(self, start, stop):
        assert 0 <= start <= stop <= len(self.data)
        self.dropped += stop - start


def boxes(tmp_path, *parts):
    path = tmp_path / "data"
    path.write_bytes(bytes(range(100)))
    return [Tile(offsets, sizes, ByteRange(LocalFile(path), 0)) for offsets, sizes in parts]


@pytest.mark.parametrize(
    "parts",
    [
        [((0, 0), (2, 3))],
        [((0, 0), (2, 3)), ((2, 0), (1, 3))],
        [((0, 0), (2, 3)), ((1, 0), (2, 3))],
        [((0, 0), (4, 2)), ((0, 1), (4, 1))],
        [((0, 0), (5, 3))],
        [((0,), (4,)), ((0,), (8,))],
        [],
    ],
    ids=str,
)
def test_tiles_that_do_not_cover(tmp_path, parts):
    with pytest.raises(CorruptCheckpoint, match="do not cover"):
        join_tiles("w", (4, 3), 1, boxes(tmp_path, *parts))
