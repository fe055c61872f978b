"""PyTorch files against torch itself; nothing in them is ever run."""

import collections
import io
import os
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from normscope.checkpoints import open_file
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, CorruptCheckpoint, UnknownFormat, UnsafeCheckpoint
from tests.checkpoints.small_checkpoints import raw

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.int64, torch.bool, torch.complex64, torch.uint16,
]  # fmt: skip


@dataclass
class Config:
    width: int = 3
    where: object = Path("x")


class Evil:
    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


def save(tmp_path, value, **options):
    path = tmp_path / "m.pt"
    torch.save(value, path, **options)
    return open_file(LocalFile(path))


def same(checkpoint, tensors):
    assert checkpoint.tensors.keys() == tensors.keys()
    for name, values in tensors.items():
        tensor = checkpoint.tensors[name]
        assert tensor.shape == tuple(values.shape)
        assert tensor.dtype == str(values.dtype).removeprefix("torch.")
        size = values.numel() * values.element_size()
        assert bytes(checkpoint.read(name, 0, size)) == raw(values)
        if size > 2:
            assert bytes(checkpoint.read(name, 1, size - 1)) == raw(values)[1:-1]


zip_or_legacy = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


@zip_or_legacy
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(tmp_path, dtype, zipped):
    values = torch.randn(6, 4).to(dtype)
    tensors = {"w": values, "scalar": values[0, 0].clone(), "empty": torch.zeros(0, 2).to(dtype)}
    same(save(tmp_path, tensors, _use_new_zipfile_serialization=zipped), tensors)


NESTINGS = {
    "bare": lambda sd: sd,
    "model": lambda sd: {"model": sd},
    "state_dict": lambda sd: {"state_dict": sd, "epoch": 3, "pytorch-lightning_version": "2.0"},
    "model_state_dict": lambda sd: {"model_state_dict": sd, "loss": 0.5},
    "module": lambda sd: {"module": sd, "dp_world_size": 8},
    "twice": lambda sd: {"model": {"state_dict": sd}, "args": Config()},
    "thrice": lambda sd: {"app": {"model": {"module": sd}}},
    "beside a tensor": lambda sd: {"model": sd, "step": torch.tensor(7)},
    "beside a config": lambda sd: {
        "model": sd,
        "config": Config(),
        "seen": {1, 2},
        "d": collections.defaultdict(list),
    },
    "ordered": lambda sd: collections.OrderedDict(sd),
}


@zip_or_legacy
@pytest.mark.parametrize("nest", NESTINGS.values(), ids=NESTINGS)
def test_where_people_put_the_model(tmp_path, nest, zipped):
    tensors = {"a.weight": torch.randn(3, 4), "a.bias": torch.randn(4), "n": torch.tensor(3)}
    same(save(tmp_path, nest(tensors), _use_new_zipfile_serialization=zipped), tensors)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols(tmp_path, protocol):
    tensors = {"w": torch.randn(3), "ü\n": torch.randn(2)}
    same(save(tmp_path, {"model": tensors, "config": Config()}, pickle_protocol=protocol), tensors)


@zip_or_legacy
def test_a_whole_module(tmp_path, zipped):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    with torch.no_grad():
        same(save(tmp_path, module, _use_new_zipfile_serialization=zipped), module.state_dict())


def test_nested_dictionaries_become_dotted_names(tmp_path):
    w, e = torch.randn(2), torch.randn(3)
    checkpoint = save(tmp_path, {"model": {"language_model": {"encoder": {"w": w}, "embedding": {"e": e}}}})
    same(checkpoint, {"language_model.encoder.w": w, "language_model.embedding.e": e})


def test_the_optimizer_is_left_out_and_listed(tmp_path):
    module = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng_state": torch.get_rng_state(),
    }
    checkpoint = save(tmp_path, state)
    same(checkpoint, module.state_dict())
    assert checkpoint.skipped["optimizer"] == "optimizer state"
    assert "rng_state" in checkpoint.skipped
    flat = save(tmp_path, {**module.state_dict(), "optimizer": optimizer.state_dict()})
    same(flat, module.state_dict())
    with pytest.raises(UnknownFormat, match="optimizer"):
        save(tmp_path, optimizer.state_dict())


@pytest.mark.parametrize("stored", [7, torch.tensor(7), torch.tensor([7], dtype=torch.int32)], ids=str)
@pytest.mark.parametrize("key", ["step", "global_step", "iteration", "iter"])
def test_the_step_inside(tmp_path, key, stored):
    assert save(tmp_path, {"model": {"w": torch.zeros(2)}, key: stored}).step == 7


@pytest.mark.parametrize("stored", [True, -1, "7", 2**70, torch.tensor(1.5), None], ids=str)
def test_values_that_are_not_steps(tmp_path, stored):
    assert save(tmp_path, {"model": {"w": torch.zeros(2)}, "step": stored}).step is None


@zip_or_legacy
def test_shared_storage_is_found(tmp_path, zipped):
    embedding, fused = torch.randn(4, 3), torch.randn(6, 3)
    tensors = {
        "embed": embedding, "head": embedding, "q": fused[:3], "k": fused[3:], "all": fused, "t": embedding.T,
    }  # fmt: skip
    checkpoint = save(tmp_path, tensors, _use_new_zipfile_serialization=zipped)
    same(checkpoint, tensors)
    storage = {name: tensor.storage for name, tensor in checkpoint.tensors.items()}
    assert storage["embed"] == storage["head"]
    assert len(set(storage.values())) == 5
    assert "3 tensors share part" in checkpoint.notes[0]


@zip_or_legacy
def test_strided_tensors_are_read_in_order(tmp_path, zipped):
    base = torch.randn(5, 6, 7)
    tensors = {
        "transposed": base.permute(2, 0, 1), "sliced": base[1:4, ::2, 3:], "column": base[:, 0, 0],
        "single": base[2:3, :, 1:2].transpose(0, 1), "last": base[..., 6:],
    }  # fmt: skip
    checkpoint = save(tmp_path, tensors, _use_new_zipfile_serialization=zipped)
    same(checkpoint, tensors)
    for name, values in tensors.items():
        for start, stop in [(0, 1), (3, 9), (values.numel() * 4 - 5, values.numel() * 4)]:
            assert bytes(checkpoint.read(name, start, stop)) == raw(values)[start:stop]


def test_an_expanded_view_is_skipped(tmp_path):
    checkpoint = save(tmp_path, {"w": torch.ones(2), "wide": torch.ones(1).expand(1000)})
    assert set(checkpoint.tensors) == {"w"}
    assert "expanded" in checkpoint.skipped["wide"]


def test_parameters_and_other_kinds(tmp_path):
    parameter = torch.nn.Parameter(torch.randn(3))
    parameter.note = "mine"
    sparse = torch.eye(3).to_sparse()
    meta = torch.empty(3, device="meta")
    checkpoint = save(tmp_path, {"p": parameter, "sparse": sparse, "meta": meta})
    assert set(checkpoint.tensors) == {"p"}
    assert checkpoint.skipped["sparse"] == "sparse"
    assert "meta" in checkpoint.skipped["meta"]


def test_a_cuda_checkpoint_on_this_machine(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"w": torch.arange(4.0)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0"))
    same(open_file(LocalFile(path)), {"w": torch.arange(4.0)})


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "evil",
    [
        Evil(os.system, "touch PROOF"),
        Evil(exec, "open('PROOF', 'w')"),
        Evil(eval, "1"),
        Evil(os.makedirs, "PROOF"),
    ],
    ids=["system", "exec", "eval", "makedirs"],
)
def test_code_is_never_run(tmp_path, monkeypatch, evil, zipped):
    monkeypatch.chdir(tmp_path)
    value = {"model": {"w": torch.ones(2)}, "extra": evil}
    with pytest.raises(UnsafeCheckpoint, match="Nothing was run"):
        save(tmp_path, value, _use_new_zipfile_serialization=zipped)
    assert not (tmp_path / "PROOF").exists()


def test_only_objects_and_no_tensors(tmp_path):
    with pytest.raises(UnsafeCheckpoint, match="Config"):
        save(tmp_path, {"config": Config()})
    with pytest.raises(UnknownFormat, match="without tensors"):
        save(tmp_path, {"loss": 3})


def test_a_plain_pickle_without_torch(tmp_path):
    path = tmp_path / "m.pkl"
    path.write_bytes(pickle.dumps({"a": [1, 2.5, b"x", None, True, (1,), {2}, "text", -5, 2**80]}))
    with pytest.raises(UnknownFormat):
        open_file(LocalFile(path))


def test_a_compressed_archive_is_refused_with_a_reason(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"w": torch.zeros(1000)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(CheckpointError, match="compressed"):
        open_file(LocalFile(path))


@pytest.mark.parametrize("megabytes", [2, 17])
def test_a_legacy_file_whose_weights_come_after_much_else(tmp_path, megabytes):
    value = {"w": torch.arange(3.0), "log": [f"{i:06}" + "x" * 100_000 for i in range(10 * megabytes)]}
    checkpoint = save(tmp_path, value, _use_new_zipfile_serialization=False)
    assert bytes(checkpoint.read("w", 0, 12)) == raw(torch.arange(3.0))


@zip_or_legacy
@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 0.999])
def test_truncation(tmp_path, part, zipped):
    path = tmp_path / "m.pt"
    torch.save({"w": torch.zeros(1000)}, path, _use_new_zipfile_serialization=zipped)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(CorruptCheckpoint):
        open_file(LocalFile(path))


BOMBS = {
    "memo index": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "long string": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f" + b"x.",
    "frame": b"\x80\x04\x95" + b"\xff" * 8 + b".",
    "bytearray": b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".",
    "deep list": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
    "deep tuple as key": b"\x80\x02}N" + b"\x85" * 200_000 + b"Ns.",
    "laughs as key": b"\x80\x02}N" + b"2\x86" * 64 + b"Ns.",
    "laughs": b"\x80\x02N" + b"2\x86" * 200 + b".",
    "a list in itself": b"\x80\x02]q\0h\0h\0h\0\x87a.",
    "many values": b"\x80\x02(" + b"}" * 5_000_000 + b"l.",
    "no stop": b"\x80\x02N",
    "empty stack": b"\x80\x02.",
    "no mark": b"\x80\x02t.",
    "odd items": b"\x80\x02}(Nu.",
    "huge number": b"\x80\x02\x8b\xff\xff\xff\x7f1.",
    "number as text": b"\x80\x02I" + b"9" * 4000 + b"\n.",
    "opcode": b"\x80\x02\xff.",
    "extension": b"\x80\x02\x82\x01.",
}


@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_malicious_pickles(tmp_path, content):
    path = tmp_path / "m.pt"
    path.write_bytes(content)
    with pytest.raises((CorruptCheckpoint, UnknownFormat)):
        open_file(LocalFile(path))


def test_what_torch_writes_today(tmp_path):
    """The magic number and layout of legacy files have not changed."""
    from normscope.checkpoints.formats.torch.archives import MAGIC

    buffer = io.BytesIO()
    torch.save({}, buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    assert pickle.load(buffer) == MAGIC
