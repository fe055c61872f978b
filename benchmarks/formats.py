"""What each lazy format costs in memory and time, through `scan` itself.

    python -m benchmarks formats            4 GiB per checkpoint; NORMSCOPE_BENCH_GIB=1 for less

First, a scan of ten checkpoints against a bare read of the same files, in every format that can be
mapped. Their values are random: the page cache keeps a file written from untouched zeros in single
pages and other files in large ones, which changes the speed of both reads.

Then one large checkpoint of each format is scanned in a process of its own, to find the peak memory. Its
values are zeros, so that writing it takes no memory.
"""

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.clock import race
from benchmarks.scan import bare_read, scan_anew
from normscope.checkpoints import open_series
from normscope.weights.reading.plan import Chain
from normscope.weights.reading.walk import parts, walk
from tests.checkpoints.bundle_writer import write_bundle

PARTS = 16
SCAN = """
import sys, time
from normscope.weights.scan.scan import scan
import normscope.checkpoints.series.series, normscope.weights.sums.statistics

def peak():  # not ru_maxrss, which a child takes over from its parent
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

base = peak()
began = time.perf_counter()
scan(sys.argv[1], sys.argv[2]).close()
seconds = time.perf_counter() - began
print((peak() - base) / 1024, seconds)
"""


def zeros(gibibytes):
    """Distinct arrays of zeros; their pages exist only once they are written to."""
    rows = int(gibibytes * 2**30) // 4096 // PARTS
    return {f"layers.{i}.w": np.zeros((rows, 1024), np.float32) for i in range(PARTS)}


def tensors(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def safetensors(folder, arrays):
    from safetensors.numpy import save_file

    save_file(arrays, folder / "step_1.safetensors")


def pytorch(folder, arrays):
    torch.save({"model": tensors(arrays)}, folder / "step_1.pt")


def pytorch_legacy(folder, arrays):
    torch.save(tensors(arrays), folder / "step_1.pt", _use_new_zipfile_serialization=False)


def pytorch_strided(folder, arrays):
    torch.save({name: value.T for name, value in tensors(arrays).items()}, folder / "step_1.pt")


def dcp(folder, arrays):
    import torch.distributed.checkpoint as checkpoint

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint.save({"model": tensors(arrays)}, checkpoint_id=folder / "step_1")


def megatron(folder, arrays):
    """Two tensor-parallel ranks: matrices divided by rows and by columns in turn, as in a transformer."""
    kinds = ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2")
    for rank in range(2):
        state = {}
        for i, array in enumerate(arrays.values()):
            columns = array.reshape(-1, 4096)[:, 2048 * rank : 2048 * (rank + 1)]
            part = columns if i % 2 else array.reshape(2, -1, 4096)[rank]
            state[f"decoder.layers.{i // 4}.{kinds[i % 4]}.weight"] = torch.from_numpy(part.copy())
        path = folder / "step_1" / f"mp_rank_{rank:02d}"
        path.mkdir(parents=True)
        torch.save({"model": state, "iteration": 1, "checkpoint_version": 3.0}, path / "model_optim_rng.pt")


def npz(folder, arrays):
    np.savez(folder / "step_1.npz", **arrays)


def npz_compressed(folder, arrays):
    np.savez_compressed(folder / "step_1.npz", **arrays)


def gguf(folder, arrays):
    """Plain float32; the header is written by hand."""
    rows, names = len(arrays["layers.0.w"]), [f"blk.{i}.w".encode() for i in range(PARTS)]
    head = b"GGUF" + struct.pack("<IQQ", 3, PARTS, 0)
    for i, name in enumerate(names):
        head += struct.pack("<Q", len(name)) + name + struct.pack("<I2QIQ", 2, 1024, rows, 0, i * rows * 4096)
    with (folder / "step_1.gguf").open("wb") as file:
        file.write(head + b"\0" * (-len(head) % 32))
        for array in arrays.values():
            file.write(array.data)


def tensor_bundle(folder, arrays):
    """TensorFlow's format."""
    write_bundle(folder / "step_1", arrays)


def llama2c(folder, arrays):
    """Version 1: eight layers, and the rest of the size in the embedding."""
    dim, hidden, layers, heads = 1024, 2816, 8, 16
    rows = sum(map(len, arrays.values()))
    vocabulary = rows - 2 * layers - 1 - layers * (4 * dim + 3 * hidden)
    numbers = (0x616B3432, 1, dim, hidden, layers, heads, heads, vocabulary, 2048, 1)
    with (folder / "step_1.bin").open("wb") as file:
        file.write(struct.pack("<Ii7iB", *numbers).ljust(256, b"\0"))
        for array in arrays.values():
            file.write(array.data)


def orbax(folder, arrays):
    import tensorstore

    for name, array in arrays.items():
        path = f"{folder}/step_1/params.{name}/"
        metadata = {"chunks": [2048, 1024], "compressor": {"id": "zstd", "level": 1}}
        spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": path}, "metadata": metadata}
        store = tensorstore.open(spec, create=True, shape=array.shape, dtype=array.dtype).result()
        for row in range(0, len(array), 2048):
            store[row : row + 2048].write(array[row : row + 2048] + np.float32(1)).result()


FORMATS = (
    safetensors, pytorch, pytorch_legacy, pytorch_strided, dcp, megatron, npz, npz_compressed, gguf,
    tensor_bundle, llama2c, orbax,
)  # fmt: skip


def measure(write, gibibytes):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "series"
        folder.mkdir()
        write(folder, zeros(gibibytes))
        words = [sys.executable, "-c", SCAN, str(folder), str(Path(name) / "run.db")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        shutil.rmtree(folder)
    if done.returncode:
        print(f"{write.__name__:16} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
        return
    megabytes, seconds = map(float, done.stdout.split())
    rate = gibibytes * 2**30 / 1e9 / seconds
    print(f"{write.__name__:16} {megabytes:6.0f} MB above the baseline, {rate:5.1f} GB/s", flush=True)


MAPPABLE = (safetensors, pytorch, pytorch_legacy, dcp, megatron, npz, gguf, tensor_bundle, llama2c)
CHECKPOINTS = 10


def series(write, gibibytes=0.5):
    """Ten checkpoints with previous and first, against a bare read of the same files."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "series"
        folder.mkdir()
        for step in range(2, CHECKPOINTS + 2):  # each writer says step_1
            write(folder, {key: random.random(a.shape, a.dtype) for key, a in zeros(gibibytes).items()})
            for made in [*folder.glob("step_1"), *folder.glob("step_1.*")]:
                made.rename(folder / made.name.replace("step_1", f"step_{step}"))
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        contestants = {
            "read": lambda: bare_read(files),
            "scan": lambda: scan_anew(folder, Path(name) / "run.db"),
        }
        best = race(contestants, rounds=7)
    rate = CHECKPOINTS * gibibytes * 2**30 / 1e9 / best["scan"]
    print(
        f"{write.__name__:16} {best['read'] / best['scan']:.2f} of a bare read, {rate:.1f} GB/s", flush=True
    )


def float8(size=4096, matrices=8):
    """float8 with a scale per 128 × 128 block, through the sums of one checkpoint, by processor time."""
    random = torch.Generator().manual_seed(0)
    state = {}
    for i in range(matrices):
        bits = torch.randint(0, 0x7F, (size, size), dtype=torch.uint8, generator=random)
        state[f"layers.{i}.w.weight"] = bits.view(torch.float8_e4m3fn)
        state[f"layers.{i}.w.weight_scale_inv"] = torch.rand(size // 128, size // 128, generator=random)
    with tempfile.TemporaryDirectory() as name:
        save_file(state, Path(name) / "step_1.safetensors")
        checkpoint = open_series(name).entries[0].open()
        chain, seconds = Chain(frozenset((0,)), (0,)), []
        for _ in range(7):
            began = time.process_time()
            for tensor in checkpoint.tensors.values():
                for part in parts(tensor, chain, [checkpoint]):
                    walk(part, [checkpoint])
            seconds.append(time.process_time() - began)
        checkpoint.close()
    rate = matrices * size * size / 1e9 / min(seconds)
    print(f"float8 in blocks {rate:.1f} GB/s of stored bytes per core", flush=True)


def main():
    print(f"{CHECKPOINTS} checkpoints of 0.5 GiB, float32, with previous and first")
    for write in MAPPABLE:
        series(write)
    float8()
    gibibytes = float(os.environ.get("NORMSCOPE_BENCH_GIB", "4"))
    print(f"one checkpoint of {gibibytes:g} GiB in each format")
    for write in FORMATS:
        measure(write, gibibytes)
