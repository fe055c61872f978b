"""Damaged files of every format give right numbers or one clear error.

The short run is part of the default tests; `pytest -m slow` runs 10,000 cases a format.
"""

import functools
import io
import json
import resource
import struct
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from normscope.checkpoints.formats.tensorflow.crc32c import masked_crc
from normscope.checkpoints.series.discovery import find_series
from normscope.checkpoints.storage.local import LocalFolder
from normscope.errors import NormscopeError

from .memory_files import MemoryFolder

FIXTURES = Path(__file__).parent / "fixtures"
EXTREMES = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def tensors():
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(6, 4, generator=generator)
    return {"layer.0.w": base, "layer.0.b": base[0].clone(), "half": base.bfloat16(), "n": torch.arange(3)}


def torch_bytes(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def full_state():
    state = tensors()
    view = state["layer.0.w"].T
    return {
        "model": {**state, "tied": state["half"], "t": view},
        "step": 3,
        "optimizer": {"state": {}, "param_groups": []},
    }


def dcp_files(tmp):
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": tensors(), "step": 3}, checkpoint_id=tmp / "dcp")
    return {f"step_1/{path.name}": path.read_bytes() for path in (tmp / "dcp").iterdir()}


def npz_bytes(writer):
    buffer = io.BytesIO()
    writer(buffer, w=np.ones((3, 4), np.float32), f=np.asfortranarray(np.ones((3, 4))), n=np.arange(3))
    return buffer.getvalue()


def gguf_bytes():
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 2)
    for key, value in ((b"a.b", b"text"), (b"c", b"more")):
        head += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    for index, name in enumerate((b"blk.0.w", b"blk.1.w")):
        head += struct.pack("<Q", len(name)) + name + struct.pack("<I2QIQ", 2, 4, 3, 0, 64 * index)
    return head + b"\0" * (-len(head) % 32) + bytes(128)


def llama_bytes():
    sizes = (8, 12, 1, 4, 2, 10, 6)
    count = 10 * 8 + 8 + 8 * 8 * 2 + 2 * 4 * 8 + 8 + 3 * 12 * 8 + 8 + 2 * 6
    return struct.pack("<7i", *sizes) + np.ones(count, np.float32).tobytes()


def sharded():
    halves = {
        "model-00001-of-00002.safetensors": ["layer.0.w", "half"],
        "model-00002-of-00002.safetensors": ["layer.0.b", "n"],
    }
    files = {f"step_1/{name}": save({k: tensors()[k] for k in keys}) for name, keys in halves.items()}
    weight_map = {key: name for name, keys in halves.items() for key in keys}
    return {**files, "step_1/model.safetensors.index.json": json.dumps({"weight_map": weight_map}).encode()}


def bundle(name):
    return {path.name: path.read_bytes() for path in (FIXTURES / "tensorflow").glob(f"{name}*")}


def quantised(case):
    folder = FIXTURES / "quantised" / case
    names = ("model.safetensors", "config.json", "pytorch_model.bin")
    found = [folder / name for name in names if (folder / name).exists()]
    return {f"step_1/{path.name}": path.read_bytes() for path in found}


def fixture(path):
    return {Path(path).name: (FIXTURES / path).read_bytes()}


def below(name):
    paths = [path for path in (FIXTURES / name).rglob("*") if path.is_file()]
    return {f"step_1/{path.relative_to(FIXTURES / name)}": path.read_bytes() for path in paths}


def keras_file(name):
    return (FIXTURES / "keras" / name).read_bytes()


@functools.cache
def seeds(name):
    return {
        "safetensors": lambda: {"step_1.safetensors": save(tensors())},
        "sharded safetensors": sharded,
        "torch zip": lambda: {"step_1.pt": torch_bytes(full_state())},
        "torch legacy": lambda: {
            "step_1.pt": torch_bytes(full_state(), _use_new_zipfile_serialization=False)
        },
        "torch protocol 4": lambda: {"step_1.pt": torch_bytes(full_state(), pickle_protocol=4)},
        "npz": lambda: {"step_1.npz": npz_bytes(np.savez)},
        "npz compressed": lambda: {"step_1.npz": npz_bytes(np.savez_compressed)},
        "gguf": lambda: {"step_1.gguf": gguf_bytes()},
        "llama2.c": lambda: {"step_1.bin": llama_bytes()},
        "tensorflow": lambda: bundle("model.ckpt-1000"),
        "tensorflow sliced": lambda: bundle("sliced.ckpt-3"),
        "float8 in blocks": lambda: quantised("fp8-blocks"),
        "nf4": lambda: quantised("bitsandbytes-nf4-nested"),
        "GPTQ": lambda: quantised("gptq-3bit-act-order"),
        "packed rows": lambda: quantised("compressed-pack-int4-zeros"),
        "torchao in a pickle": lambda: quantised("torchao-int4-group-bin"),
        "flax": lambda: fixture("flax/save_checkpoint/checkpoint_100"),
        "flax chunked": lambda: fixture("flax/chunked/step_100.msgpack"),
        "flax shards": lambda: {
            f"step_100/{path.name}": path.read_bytes()
            for path in (FIXTURES / "flax" / "shards" / "step_100").iterdir()
        },
        "pickled protocol 2": lambda: fixture("flax/fortran_2/step_100.pickle"),
        "pickled protocol 4": lambda: fixture("flax/numpy_4/step_100.pkl"),
        "pickled protocol 5": lambda: fixture("flax/fortran_5/step_100.pickle"),
        "pickled jax": lambda: fixture("flax/jax_tuple/step_100.pkl"),
        "saved model": lambda: below("keras/exported"),
        "hdf5": lambda: {"step_1.h5": keras_file("functional.h5")},
        "keras": lambda: {"step_1.keras": keras_file("subclassed.keras")},
        "onnx": lambda: {"step_1.onnx": (FIXTURES / "onnx" / "scripted.onnx").read_bytes()},
        "onnx external": lambda: below("onnx/external"),
        "keras shards": lambda: below("keras/shards"),
    }[name]()


FORMATS = [
    "safetensors", "sharded safetensors", "torch zip", "torch legacy", "torch protocol 4", "npz",
    "npz compressed", "gguf", "llama2.c", "tensorflow", "tensorflow sliced", "saved model",
    "hdf5", "keras", "keras shards", "onnx", "onnx external",
    "float8 in blocks", "nf4", "GPTQ", "packed rows", "torchao in a pickle", "flax", "flax chunked",
    "flax shards", "pickled protocol 2", "pickled protocol 4", "pickled protocol 5", "pickled jax",
]  # fmt: skip

place = st.integers(0, 2**20)
mutation = st.one_of(
    st.tuples(st.just("flip"), place, st.integers(0, 7)),
    st.tuples(st.just("number"), place, st.sampled_from([(v, w) for v in EXTREMES for w in (1, 4, 8)])),
    st.tuples(st.just("byte"), place, st.integers(0, 255)),
    st.tuples(st.just("cut"), place, st.none()),
    st.tuples(st.just("remove"), place, st.integers(1, 64)),
    st.tuples(st.just("repeat"), place, st.integers(1, 64)),
    st.tuples(st.just("insert"), place, st.binary(min_size=1, max_size=16)),
    st.tuples(st.just("swap"), place, place),
)
plan = st.tuples(place, st.lists(mutation, min_size=1, max_size=4), st.booleans())


def mutate(data, kind, at, how):
    at %= len(data) + 1
    if kind == "flip" and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << how]) + data[at + 1 :]
    if kind == "byte":
        return data[:at] + bytes([how]) + data[at + 1 :]
    if kind == "number":
        value, width = how
        return data[:at] + (value % 256**width).to_bytes(width, "little") + data[at + width :]
    if kind == "cut":
        return data[:at]
    if kind == "remove":
        return data[:at] + data[at + how :]
    if kind == "repeat":
        return data[: at + how] + data[at:]
    if kind == "insert":
        return data[:at] + how + data[at:]
    other = how % (len(data) + 1)
    low, high = min(at, other), max(at, other)
    return data[:low] + data[high : high + 8] + data[low + 8 : high] + data[low : low + 8] + data[high + 8 :]


def repair(files, name):
    """Correct the checksum of a TensorFlow index, so that the fuzzing gets past it."""
    if name.endswith(".index") and len(files[name]) > 100:
        data = files[name]
        size = int.from_bytes(data[-46:-45], "little")
        for end in range(20, len(data) - 53):
            if data[end] == 0 and end + 5 < len(data):
                size = end
                fixed = data[: end + 1] + masked_crc(data[: end + 1]).to_bytes(4, "little") + data[end + 5 :]
                if size == seed_block_size(name):
                    files[name] = fixed
                    return


@functools.cache
def seed_block_size(name):
    files = below("keras/exported") if "/" in name else bundle(name.removesuffix(".index"))
    seed = files[name]
    for end in range(20, len(seed) - 53):
        if seed[end] == 0 and masked_crc(seed[: end + 1]) == int.from_bytes(
            seed[end + 1 : end + 5], "little"
        ):
            return end
    return -1


def damage(files, chosen):
    which, mutations, mend = chosen
    name = sorted(files)[which % len(files)]
    damaged = dict(files)
    for kind, at, how in mutations:
        damaged[name] = mutate(damaged[name], kind, at, how)
    if mend:
        repair(damaged, name)
    return damaged


def exercise(folder):
    """Open and read whatever is found; only our own errors may be raised, with printable messages."""
    try:
        for unit in find_series(folder).checkpoints:
            checkpoint = unit.open()
            for name, tensor in list(checkpoint.tensors.items())[:50]:
                size = tensor.nbytes
                first = checkpoint.read(name, 0, min(size, 65_536))
                assert len(first) == min(size, 65_536)
                assert len(checkpoint.read(name, max(0, size - 1000), size)) == min(size, 1000)
                checkpoint.drop(name, 0, size)
            assert checkpoint.digest
            checkpoint.close()
            return checkpoint
    except NormscopeError as error:
        assert str(error).isprintable(), repr(str(error))
        assert len(str(error)) < 2000
    return None


def run(name, cases):
    files = seeds(name)
    assert exercise(MemoryFolder("m", files)) is not None, "the seed itself must be sound"

    @settings(max_examples=cases, deadline=None, database=None, derandomize=cases < 1000,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(plan)
    def fuzz(chosen):
        started = time.process_time()
        exercise(MemoryFolder("m", damage(files, chosen)))
        assert time.process_time() - started < 20, "a case must not hang"

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzz()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (
        1 if sys.platform == "darwin" else 1024
    )
    assert grown < 500_000_000


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files(name):
    run(name, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_at_length(name):
    run(name, 10_000)


@pytest.mark.parametrize("cases", [40, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_distributed_checkpoints(tmp_path, cases):
    files = dcp_files(tmp_path)
    assert exercise(MemoryFolder("m", files)) is not None

    @settings(max_examples=cases, deadline=None, database=None, derandomize=cases < 1000,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(plan)
    def fuzz(chosen):
        exercise(MemoryFolder("m", damage(files, chosen)))

    fuzz()


@pytest.mark.parametrize("cases", [30, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["orbax/ocdbt", "orbax/zarr", "flax/t5x", "flax/nnx_pure"])
def test_damaged_orbax_checkpoints(tmp_path, cases, kind):
    pytest.importorskip("tensorstore")
    source = next((FIXTURES / kind).iterdir())
    files = {str(p.relative_to(source)): p.read_bytes() for p in source.rglob("*") if p.is_file()}
    counter = iter(range(10**9))

    @settings(max_examples=cases, deadline=None, database=None, derandomize=cases < 1000,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(plan)
    def fuzz(chosen):
        folder = tmp_path / f"step_{next(counter)}"
        damaged = damage(files, chosen)
        for path, data in damaged.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        exercise(LocalFolder(folder))
        for path in damaged:
            (folder / path).unlink()

    fuzz()


@pytest.mark.parametrize("cases", [150, pytest.param(20_000, marks=pytest.mark.slow)])
def test_safetensors_are_accepted_as_the_reference_does(cases):
    seed = save(tensors())

    @settings(max_examples=cases, deadline=None, database=None, derandomize=cases < 1000)
    @given(st.lists(mutation, min_size=0, max_size=2))
    def fuzz(mutations):
        data = seed
        for kind, at, how in mutations:
            data = mutate(data, kind, at, how)
        try:
            expected = dict(safetensors.deserialize(data))
        except Exception:
            expected = None
        checkpoint = exercise(MemoryFolder("m", {"step_1.safetensors": data}))
        if checkpoint is not None and checkpoint.format == "safetensors":
            assert expected is not None, "the reference refuses it"
            assert checkpoint.tensors.keys() == expected.keys()
            for name, tensor in checkpoint.tensors.items():
                assert list(tensor.shape) == list(expected[name]["shape"])
                assert (
                    bytes(checkpoint.read(name, 0, tensor.nbytes))
                    == bytes(expected[name]["data"])[: tensor.nbytes]
                )
        elif expected is not None:
            # Ours is stricter in one thing: a name must not stand twice.
            length = int.from_bytes(data[:8], "little")
            pairs = json.loads(data[8 : 8 + length], object_pairs_hook=list)
            names = [key for key, _ in pairs]
            assert len(set(names)) < len(names) or not expected

    fuzz()


NAMES = [
    "../../etc/passwd",
    "a\0b",
    "\x1b[31mred\x1b[0m",
    "=cmd|' /C calc'!A0",
    "a" * 1000,
    "\n\r\t",
    "​",
    "",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_are_passed_on_as_they_are_and_never_used_as_paths(name):
    header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    good = struct.pack("<Q", len(header)) + header + bytes(8)
    checkpoint = exercise(MemoryFolder("m", {"step_1.safetensors": good}))
    assert list(checkpoint.tensors) == [name]
    broken = header.replace(b"[2]", b"[3]")
    exercise(MemoryFolder("m", {"step_1.safetensors": struct.pack("<Q", len(broken)) + broken + bytes(8)}))


HEAVY = {
    "spaces": (b"{", b" " * 100_000, 999, b"}"),
    "numbers": (b'{"a":[', b"1," * 50_000, 900, b"1]}"),
    "text": (b'{"__metadata__":{"x":"', b"y" * 100_000, 990, b'"}}'),
    "wide text": (b'{"__metadata__":{"x":"' + "\U0001f600".encode(), b"y" * 100_000, 990, b'"}}'),
    "entries": (b"{", b'"a":{"dtype":"F32","shape":[],"data_offsets":[0,0]},' * 1000, 1900, b'"z":1}'),
    "strings": (b'{"a":{', b'"b":"c",' * 10_000, 199, b'"z":1}}'),
    "depth": (b'{"a":', b"[" * 100_000, 900, b"1"),
}

OPENER = """
import sys
from normscope.checkpoints import open_file
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import NormscopeError
def peak():  # not ru_maxrss, which a child takes over from its parent
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
before = peak()
for path in sys.argv[1:]:
    try:
        open_file(LocalFile(path))
    except NormscopeError as error:
        print(str(error)[:60], file=sys.stderr)
    print((peak() - before) * 1024)
"""


@pytest.mark.slow
def test_headers_of_a_hundred_megabytes(tmp_path):
    """However a header of 100 MB is filled, opening it takes less than 500 MB."""
    for name, (head, part, times, tail) in HEAVY.items():
        length = len(head) + len(part) * times + len(tail)
        with (tmp_path / f"{name}.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", length) + head)
            for _ in range(times):
                file.write(part)
            file.write(tail)
    paths = [str(path) for path in tmp_path.iterdir()]
    run = subprocess.run([sys.executable, "-c", OPENER, *paths], capture_output=True, text=True, check=True)
    assert max(map(int, run.stdout.split())) < 500_000_000, (paths, run.stdout)
