"""A scan against a bare read in every state in which the page cache may hold a file.

Part of `python -m benchmarks scan`. Each cell is the ratio of the best times of a bare read and of a
scan, which take turns; in brackets, that of their processor times, which suffers less if other
programs run. Beside it is how often a checkpoint was mapped or read after the first windows.
"""

import os
import shutil
import subprocess
import time
from collections import Counter
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from safetensors.torch import save_file

from benchmarks.clock import race_by
from normscope.weights.reading import map_or_read

MEGABYTES, ROUNDS = 1024, 5
MEMORY = Path("/dev/shm")  # a tmpfs on Linux


def state_dict(dtype, seed, tensors=8):
    """Tensors that repeat a million values: drawing all of them would take longer than everything else."""
    size = (MEGABYTES << 20) // torch.empty((), dtype=dtype).element_size() // tensors
    values = torch.randn(1 << 20, generator=torch.Generator().manual_seed(seed)).mul(0.02).to(dtype)
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(tensors)]
    return {name: values.repeat(size // len(values)) * (i + 1) for i, name in enumerate(names)}


def evict(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def by_safetensors(path, dtype, seed):
    save_file(state_dict(dtype, seed), path)


def by_torch(path, dtype, seed):
    torch.save(state_dict(dtype, seed), path)


def copied(path, dtype, seed):
    original = path.with_suffix(".original")
    by_safetensors(original, dtype, seed)
    subprocess.run(["cp", "--reflink=never", original, path], check=True)
    original.unlink()


def evicted(path, dtype, seed):
    by_safetensors(path, dtype, seed)
    evict(path)


def read_by_cat(path, dtype, seed):
    evicted(path, dtype, seed)
    subprocess.run(["cat", path], check=True, stdout=subprocess.DEVNULL)


def of_zeros(path, dtype, seed):
    """Untouched zeros share one page of memory; written, the page cache keeps them in single pages."""
    del seed
    size = (MEGABYTES << 20) // torch.empty((), dtype=dtype).element_size() // 8
    save_file(
        {f"model.layers.{i}.mlp.up_proj.weight": torch.zeros(size, dtype=dtype) for i in range(8)}, path
    )


STATES = {
    "written by safetensors": (".safetensors", by_safetensors),
    "written by torch.save": (".pt", by_torch),
    "copied by cp": (".safetensors", copied),
    "evicted, then scanned": (".safetensors", evicted),
    "evicted, then cat": (".safetensors", read_by_cat),
    "tmpfs": (".safetensors", by_safetensors),
    "untouched zeros": (".safetensors", of_zeros),
}


def make_series(folder, state, dtype):
    """A folder of three checkpoints in a state, and one with a link to the first."""
    suffix, write = STATES[state]
    series, one = folder / "series", folder / "one"
    for each in (series, one):
        each.mkdir(parents=True)
    for step in range(3):
        write(series / f"step_{step}{suffix}", dtype, step)
    (one / f"step_0{suffix}").symlink_to(series / f"step_0{suffix}")
    return series, one


def compare(read, scan, votes):
    """The ratios of bare reads and scans, by wall clock and by processor time, and what was chosen."""

    def vote(*times):
        reads = faster(*times)
        votes["read" if reads else "map"] += 1
        return reads

    faster = map_or_read.is_reading_faster
    with patch.object(map_or_read, "is_reading_faster", vote):
        scan()  # after an eviction, this is what fills the page cache
        wall, processor = race_by({"read": read, "scan": scan}, ROUNDS, time.perf_counter, time.process_time)
    return wall["read"] / wall["scan"], processor["read"] / processor["scan"]


def measure_states(folder, bare_read, scan_anew, dtype):
    """Print the table of one dtype."""
    print(f"{dtype}, {MEGABYTES} MiB a checkpoint; bare read = 1, in brackets by processor time")
    for state in STATES:
        root = (MEMORY / folder.name if state == "tmpfs" else folder) / "states"
        series, one = make_series(root, state, dtype)
        run, cells = folder / "states.db", []
        for where in (one, series):
            votes = Counter()
            paths = sorted(where.iterdir())
            ratios = compare(partial(bare_read, paths), partial(scan_anew, where, run), votes)
            chosen = ", ".join(f"{way} {count}" for way, count in sorted(votes.items()))
            cells.append(f"{ratios[0]:.2f} ({ratios[1]:.2f}) {chosen:16}")
        print(f"  {state:24} one {cells[0]}  series of three {cells[1]}", flush=True)
        shutil.rmtree(root)
