"""The lab's speed: its training step against plain code, sweeps against serial cells, Ray against local.

python -m benchmarks lab
"""

import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from benchmarks.clock import race
from normscope.engines.pool import LocalExecutor
from normscope.lab.config import TrainConfig, override
from normscope.lab.model import SIZES
from normscope.lab.sweep.cells import grid, make_cells, parse_values
from normscope.lab.sweep.outcome import CellJob, run_cell
from normscope.lab.sweep.sweep import SweepConfig, sweep
from normscope.lab.training.trainer import RunPaths, Trainer

# -- the same model, as plainly as nanoGPT writes it -------------------------------


class PlainBlock(nn.Module):
    def __init__(self, d, heads, ff):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, ff), nn.GELU(), nn.Linear(ff, d))

    def attend(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(x).split(c, dim=2)
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Plain(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.d_model)
        self.wpe = nn.Embedding(config.max_length, config.d_model)
        sizes = (config.d_model, config.n_heads, config.d_ff)
        self.h = nn.ModuleList(PlainBlock(*sizes) for _ in range(config.n_layers))
        self.ln_f = nn.LayerNorm(config.d_model)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def plain_step(model, optimizer, tokens, length, batch):
    places = torch.randint(len(tokens) - length, (batch,))
    x = torch.stack([torch.from_numpy(tokens[i : i + length].astype("int64")) for i in places])
    y = torch.stack([torch.from_numpy(tokens[i + 1 : i + 1 + length].astype("int64")) for i in places])
    logits = model(x)
    loss = functional.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


@contextmanager
def lab_trainer(config):
    with tempfile.TemporaryDirectory() as folder:
        paths = RunPaths(Path(folder), Path(folder) / "run.db", Path(folder) / "data")
        with Trainer(config, paths) as trainer:
            trainer._begin()
            yield trainer


def steps():
    config = TrainConfig(model=SIZES["tiny"], steps=10**6)
    config = override(config, {"length": 128, "batch": 16, "evaluate": "never", "save": "never"})
    with lab_trainer(config) as trainer:
        plain = Plain(trainer.config.model)
        optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, fused=True)

        def ours():
            trainer._update()
            trainer._record()

        def theirs():
            plain_step(plain, optimizer, trainer.data.train, 128, 16)

        best = race({"ours": ours, "plain": theirs}, rounds=40)
    ratio = best["ours"] / best["plain"]
    print(f"training step, tiny, 16 × 128:  {best['ours'] * 1e3:.1f} ms, {ratio:.3f} × plain code")


# -- sweeps ------------------------------------------------------------------------


def small_cells(steps=300):
    base = override(TrainConfig(model=SIZES["pico"]), {"steps": steps, "batch": 4, "save": "never"})
    axes = {"lr": parse_values("1e-4:1e-2:4"), "weight_decay": parse_values("1e-3:1e0:4")}
    return SweepConfig(base, grid(axes))


def timed_sweep(config, engine):
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        result = sweep(config, out, engine=engine)
        assert result.counts == {"done": len(config.cells)}
        return time.perf_counter() - began


def warm(executor):
    """Start every worker and import everything there."""
    timed_sweep(small_cells(20), executor)


def parallel():
    config = small_cells()
    with LocalExecutor(1) as one, LocalExecutor(2) as two:
        warm(one)
        warm(two)
        best = race(
            {"one": lambda: timed_sweep(config, one), "two": lambda: timed_sweep(config, two)}, rounds=2
        )
    ratio = best["one"] / best["two"]
    print(f"16 cells, 2 processes:  {best['two']:.1f} s, {ratio:.2f} × as fast as one after another")


def start_up():
    (cell,) = make_cells(replace(small_cells(1).base), [{"lr": 1e-3}])
    with LocalExecutor(1) as pool, tempfile.TemporaryDirectory() as folder:
        jobs = [CellJob(replace(cell, id=str(number)), Path(folder)) for number in range(6)]
        pool.submit(run_cell, jobs[0]).result()
        times = []
        for job in jobs[1:]:
            began = time.perf_counter()
            pool.submit(run_cell, job).result()
            times.append(time.perf_counter() - began)
    print(f"start-up of a cell after the first:  {min(times):.3f} s")


def ray_share():
    try:
        import ray
    except ImportError:
        print("Ray is not installed: pip install 'normscope[ray]'")
        return
    from normscope.engines.ray_executor import RayExecutor

    config = small_cells()
    ray.init(num_cpus=2, log_to_driver=False, logging_level="error", include_dashboard=False)
    with LocalExecutor(2) as local, RayExecutor() as remote:
        warm(local)
        warm(remote)
        best = race(
            {"ray": lambda: timed_sweep(config, remote), "local": lambda: timed_sweep(config, local)}, 2
        )
    ray.shutdown()
    print(
        f"the same 16 cells on Ray:  {best['ray']:.1f} s, {best['ray'] / best['local']:.2f} × the local pool"
    )


def example():
    """The grid of docs/lab.md."""
    base = override(TrainConfig(model=SIZES["pico"]), {"steps": 400, "save": "never"})
    config = SweepConfig(
        base, grid({"lr": parse_values("1e-4:1e-2:5"), "weight_decay": parse_values("1e-2:1e1:5")})
    )
    print(f"5 × 5 grid, pico, 400 steps:  {timed_sweep(config, 'processes:2'):.0f} s with 2 processes")


def main():
    steps()
    start_up()
    parallel()
    ray_share()
    example()


if __name__ == "__main__":
    main()
