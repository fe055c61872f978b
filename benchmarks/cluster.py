"""A scan of 200 checkpoints on a Ray cluster of two nodes, one of which is killed, against threads.

Both nodes are on this machine, with one core each, so Ray cannot be faster than two threads here; the ratios
say what handing out costs. Rows are compared to the last bit.
"""

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file

from normscope.rows import WeightRow
from normscope.run import Run
from normscope.weights.scan.scan import scan

CHECKPOINTS, TENSORS, SHAPE = 200, 24, (512, 512)


def write_series(folder: Path) -> int:
    """Write the checkpoints; return their bytes."""
    generator = torch.Generator().manual_seed(0)
    state = {f"h.{i}.mlp.weight": torch.randn(SHAPE, generator=generator).bfloat16() for i in range(TENSORS)}
    for step in range(CHECKPOINTS):
        save_file(state, folder / f"step_{step}.safetensors")
        name = f"h.{step % TENSORS}.mlp.weight"
        state[name] = state[name] + (0.01 * torch.randn(SHAPE, generator=generator)).bfloat16()
    return sum(path.stat().st_size for path in folder.iterdir())


@contextmanager
def two_nodes():
    from ray.cluster_utils import Cluster

    store = 80_000_000
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": store})
    try:
        cluster.nodes = [cluster.add_node(num_cpus=1, object_store_memory=store) for _ in range(2)]
        yield cluster
    finally:
        cluster.shutdown()


class Timed:
    """Seconds until the first sums came back, and in all; `disturb` is called once in between."""

    def __init__(self, disturb=lambda: None):
        self.began, self.first, self.disturb = time.perf_counter(), None, disturb

    def __call__(self, done, total, note):
        if self.first is None and done:
            self.first = time.perf_counter() - self.began
            self.disturb()


def rows(path):
    with Run(path) as run:
        return list(run.table(WeightRow))


def measure(folder, path, disturb=lambda: None, **options):
    clock = Timed(disturb)
    scan(folder, path, progress=clock, **options).close()
    return time.perf_counter() - clock.began, clock.first, rows(path)


def main():
    try:
        import ray  # noqa: F401
    except ImportError:
        print("Ray is not installed: pip install 'normscope[ray]'")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "series"
        folder.mkdir()
        size = write_series(folder)
        print(f"{CHECKPOINTS} checkpoints, {size / 1e9:.2f} GB, in the page cache")
        threads, _, wanted = measure(folder, Path(place) / "threads.db", workers=2)
        print(f"two threads:                           {threads:5.1f} s")
        processes, _, found = measure(folder, Path(place) / "processes.db", engine="processes:2")
        report("two processes, with starting them", processes, threads, found == wanted)
        on_ray(folder, threads, wanted, killed=False)
        on_ray(folder, threads, wanted, killed=True)


def on_ray(folder, threads, wanted, killed):
    with two_nodes() as cluster:

        def disturb():
            if killed:
                cluster.remove_node(cluster.nodes[0], allow_graceful=False)

        run = folder.with_name(f"ray-{killed}.db")
        took, first, found = measure(folder, run, disturb, engine=f"ray:{cluster.address}")
    report(f"Ray, two nodes{', one killed' * killed}", took, threads, found == wanted, first)


def report(name, took, threads, equal, first=None):
    began = f", first sums after {first:.1f} s" if first else ""
    ratio = f"{took / threads:.1f} × threads"
    print(f"{name + ':':38s} {took:5.1f} s, {ratio}{began}, rows equal: {equal}", flush=True)


if __name__ == "__main__":
    main()
