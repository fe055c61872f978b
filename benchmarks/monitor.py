"""What watching a training run costs, against the step itself and against what people use instead.

    python -m benchmarks monitor

A GPT-2-small-sized model on the CPU, batch 4 × 128, AdamW. Everything is processor
time on one thread, which other programs on the machine disturb least; the best
of several alternating rounds counts. The cost of a record is the time inside the
monitor's hooks; the time of its writing thread is reported separately.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from normscope.live.monitor import Monitor
from normscope.live.monitor_options import MonitorOptions
from normscope.schedule import at_steps, every

ROUNDS = 2


class TimedMonitor(Monitor):
    """A monitor that measures its own time: `cost` is the time since it was last set to 0."""

    cost = 0.0

    def _timed(self, call, *arguments):
        began = time.thread_time()
        call(*arguments)
        self.cost += time.thread_time() - began

    def _before(self, *arguments):
        self._timed(super()._before, *arguments)

    def _after(self, *arguments):
        self._timed(super()._after, *arguments)

    def _gradients_ready(self):
        self._timed(super()._gradients_ready)

    def take_cost(self):
        """Seconds spent in hooks since the last call, and seconds spent writing those records."""
        self.flush(600)
        hooks, self.cost = self.cost, 0.0
        return hooks, self._publisher.delivery_time()


def least(a, b):
    return tuple(map(min, a, b))


NEVER = (float("inf"), float("inf"))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(use_cache=False))


def step(model, optimizer):
    tokens = torch.randint(0, 50257, (4, 128))
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()


def timed(run, *arguments):
    began = time.thread_time()
    run(*arguments)
    return time.thread_time() - began


def loop_of_items(parameters):
    """What most training scripts do."""
    for parameter in parameters:
        parameter.detach().norm().item()
        parameter.grad.norm().item()


KINDS = {
    "norms and gradients": (every(1), MonitorOptions(updates=False)),
    "with updates": (every(1), MonitorOptions()),
    "with updates, not every step": (at_steps([2]), MonitorOptions()),
}


def cost_of_records(model, optimizer, folder):
    """Best bare step and best record of each kind, in turns."""
    best = {"step": float("inf"), "item loop": float("inf"), **dict.fromkeys(KINDS, NEVER)}
    for turn in range(ROUNDS):
        best["step"] = min(best["step"], timed(step, model, optimizer))
        best["item loop"] = min(best["item loop"], timed(loop_of_items, list(model.parameters())))
        for name, (schedule, options) in KINDS.items():
            path = folder / f"{turn}{name}.db"
            with TimedMonitor(model, optimizer, path, schedule, replace(options, step=1)) as monitor:
                step(model, optimizer)  # the first record makes the file
                if name == "with updates":
                    monitor.take_cost()
                    step(model, optimizer)
                best[name] = least(best[name], monitor.take_cost())
    return best


def cost_of_wandb(model, optimizer, folder):
    """A step with wandb.watch(log="all") at every step, offline; None without the package."""
    try:
        import wandb
    except ImportError:
        return None
    settings = wandb.Settings(silent=True, console="off")
    run = wandb.init(project="bench", mode="offline", dir=str(folder), settings=settings)
    wandb.watch(model, log="all", log_freq=1)

    def logged():
        step(model, optimizer)
        run.log({"loss": 0.0})

    seconds = min(timed(logged) for _ in range(2))
    wandb.unwatch(model)
    run.finish()
    return seconds


def many_tensors(folder, number=10_000, size=64):
    """A record of ten thousand tensors against bare norms of the same tensors."""
    parameters = nn.ParameterList([nn.Parameter(torch.randn(size)) for _ in range(number)])
    optimizer = torch.optim.SGD(parameters.parameters(), lr=0.0)
    listed = [p.detach() for p in parameters]
    bare, record = float("inf"), NEVER
    options = MonitorOptions(updates=False, gradients=False)
    with TimedMonitor(parameters, optimizer, folder / "many.db", every(1), options) as monitor:
        optimizer.step()
        monitor.take_cost()
        for _ in range(10):
            bare = min(bare, timed(torch._foreach_norm, listed))
            optimizer.step()
            record = least(record, monitor.take_cost())
    return bare, record


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare, (hooks, writing) = many_tensors(folder)
        print(
            f"10,000 tensors: a record holds training up for {hooks / bare:.2f} × _foreach_norm (goal ≤ 1.5),"
        )
        print(f"  writing its 10,000 rows takes another thread {writing / bare:.2f} ×", flush=True)
        model = gpt2()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        step(model, optimizer)
        best = cost_of_records(model, optimizer, folder)
        bare = best["step"]
        print(f"GPT-2 small, 4 × 128 tokens: a bare step takes {bare:.2f} s")
        share = {name: sum(best[name]) / bare for name in KINDS}
        print(f"norms and gradients, every step: {share['norms and gradients']:.2%} of a step (goal ≤ 2 %)")
        print(f"with updates, every step: {share['with updates']:.2%} (goal ≤ 6 %)")
        print(
            f"with updates, every 10th step: {share['with updates, not every step'] / 10:.2%} (goal ≤ 0.6 %)"
        )
        print(f"a loop of .norm().item(), every step: {best['item loop'] / bare:.2%}", flush=True)
        watched = cost_of_wandb(model, optimizer, folder)
        if watched is not None:
            print(f"wandb.watch(log='all') offline, every step: {watched / bare - 1:.1%}")


if __name__ == "__main__":
    main()
