"""What a scan costs against bare reads and against what people write by hand.

    python -m benchmarks scan

Every ratio is of times measured in turns within this run, from the page cache,
through `scan` itself with its run file.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from benchmarks.clock import race
from benchmarks.page_states import measure_states
from normscope.weights.scan.scan import scan
from normscope.weights.sums import statistics

GB = 1 << 30
READ_BLOCK = 1 << 20


def write(path, dtype, nbytes, seed, tensors=8):
    width = torch.empty((), dtype=dtype).element_size()
    size = nbytes // width // tensors
    generator = torch.Generator().manual_seed(seed)
    state = {
        f"model.layers.{i}.mlp.up_proj.weight": (torch.randn(size, generator=generator) * 0.02).to(dtype)
        for i in range(tensors)
    }
    save_file(state, path)


def bare_read(paths):
    """Read every byte with preadv into a reused buffer, with two threads, and do nothing with it."""

    def half(which):
        buffer = bytearray(READ_BLOCK)
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY)
            size = os.fstat(descriptor).st_size
            for start in range(which * size // 2, (which + 1) * size // 2, READ_BLOCK):
                os.preadv(descriptor, [buffer], start)
            os.close(descriptor)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(half, range(2)))


def scan_anew(folder, run):
    Path(run).unlink(missing_ok=True)
    scan(folder, run).close()


def by_vector_norm(path):
    total = 0.0
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118
            total += float(torch.linalg.vector_norm(file.get_tensor(name), dtype=torch.float64)) ** 2
    return total**0.5


def by_cat(path):
    return float(torch.cat([value.flatten() for value in load_file(path).values()]).norm())


def make_series(folder, dtype, gigabytes):
    """A folder of three checkpoints, and one with only the first."""
    series, one = folder / "series", folder / "one"
    series.mkdir(parents=True)
    one.mkdir()
    for step in range(3):
        write(series / f"step_{step}.safetensors", dtype, gigabytes * GB, step)
    (one / "step_0.safetensors").symlink_to(series / "step_0.safetensors")
    return series, one


def without_kernel(one, run):
    """Seconds of a scan by torch, as on a machine without a compiler."""
    kernel, statistics._kernel = statistics._kernel, None
    try:
        return race({"torch": lambda: scan_anew(one, run)}, rounds=1)["torch"]
    finally:
        statistics._kernel = kernel


def throughput(folder, dtype, gigabytes):
    series, one = make_series(folder, dtype, gigabytes)
    first, run = series / "step_0.safetensors", folder / "run.db"
    contestants = {
        "read": lambda: bare_read([first]),
        "scan": lambda: scan_anew(one, run),
        "read3": lambda: bare_read(sorted(series.iterdir())),
        "scan3": lambda: scan_anew(series, run),
    }
    best = race(contestants, rounds=7)
    slow = race({"norm": lambda: by_vector_norm(first), "cat": lambda: by_cat(first)}, rounds=1)
    size = gigabytes * GB / 1e9
    rate = 3 * size / best["scan3"]
    print(f"{dtype}, {gigabytes} GiB, sums by {statistics.backend()}")
    print(
        f"  one checkpoint  {size / best['scan']:5.1f} GB/s, {best['read'] / best['scan']:.2f} of a bare read"
    )
    print(f"  a series of 3   {rate:5.1f} GB/s, {best['read3'] / best['scan3']:.2f} of a bare read")
    print(f"  against safe_open + vector_norm(float64)  {slow['norm'] / best['scan']:.1f} ×")
    print(f"  against load_file + cat + norm            {slow['cat'] / best['scan']:.1f} ×")
    print(f"  by torch, without a compiler  {best['read'] / without_kernel(one, run):.3f} of a bare read")
    print(f"  can use {min(1, rate / 4):.0%} of a 4 GB/s disk, {min(1, rate):.0%} of a 1 GB/s network")
    shutil.rmtree(folder)


def tiny(folder, checkpoints=1000, tensors=100):
    """Many small checkpoints: bound by overhead, not by bytes."""
    series = folder / "tiny"
    series.mkdir()
    for step in range(checkpoints):
        state = {f"h.{i}.mlp.c_fc.weight": torch.full((256,), float(step + i)) for i in range(tensors)}
        save_file(state, series / f"step_{step}.safetensors")
    best = race({"scan": lambda: scan_anew(series, folder / "tiny.db")}, rounds=2)["scan"]
    pairs = checkpoints * tensors / best
    print(f"{checkpoints} checkpoints of {tensors} tensors of 1 kB: {pairs:,.0f} tensor-pairs a second")


# VmHWM, not ru_maxrss: the latter is inherited from the process that started this one.
PEAK = """
import sys
from pathlib import Path
import normscope.checkpoints.series.series
from normscope.weights.scan.scan import scan
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
base = peak()
scan(sys.argv[1], sys.argv[2]).close()
print(peak() - base)
"""


def memory(folder):
    """Peak resident memory of a scan of one 4 GB checkpoint above the interpreter's own."""
    series = folder / "large"
    series.mkdir()
    write(series / "step_0.safetensors", torch.bfloat16, 4 * GB, 0, tensors=16)
    words = [sys.executable, "-c", PEAK, str(series), str(folder / "large.db")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    print(f"peak memory above the baseline, 4 GiB safetensors: {float(done.stdout):.0f} MB")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        throughput(folder / "bfloat16", torch.bfloat16, 1)
        throughput(folder / "float32", torch.float32, 2)
        for dtype in (torch.bfloat16, torch.float32):
            measure_states(folder, bare_read, scan_anew, dtype)
        tiny(folder)
        memory(folder)
