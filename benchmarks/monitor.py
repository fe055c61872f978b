"""What watching a training run costs, against the step itself and against what people use instead.

    python -m benchmarks monitor

A small model (40 tensors), one of 30 M parameters and one of GPT-2's size on the CPU, AdamW. Everything is
processor time with torch on one thread, which other programs on the machine disturb least. The two smaller
models are trained in turns with twins that have no monitor, and everything counts: hooks, copies, the
threads that write and that look for alarms. A step of GPT-2 varies by more than a record costs, so there
the time inside the monitor's hooks is measured, and that of its threads.
"""

import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from benchmarks import monitor_network, monitor_spectra
from normscope.live.monitor import Monitor
from normscope.live.monitor_options import MonitorOptions
from normscope.live.training_watch import TrainingWatch
from normscope.schedule import at_steps, every

ROUNDS = 2
HOOKS = ("_before", "_after", "_gradients_ready")


class TimedHooks:
    """Time that the training thread spends in the hooks of monitors."""

    def __init__(self):
        self.seconds = 0.0

    def around(self, call):
        def timed_call(*arguments):
            began = time.thread_time()
            try:
                return call(*arguments)
            finally:
                self.seconds += time.thread_time() - began

        return timed_call

    def take(self, monitor):
        """Seconds in hooks since the last call, and seconds of the threads that handle those records."""
        monitor.flush(600)
        hooks, self.seconds = self.seconds, 0.0
        return hooks, monitor._publisher.delivery_time()


@contextmanager
def timed_hooks():
    """Measure the time in the hooks of all monitors made in this context."""
    timer, before = TimedHooks(), {name: getattr(TrainingWatch, name) for name in HOOKS}
    for name, call in before.items():
        setattr(TrainingWatch, name, timer.around(call))
    try:
        yield timer
    finally:
        for name, call in before.items():
            setattr(TrainingWatch, name, call)


def least(a, b):
    return tuple(map(min, a, b))


NEVER = (float("inf"), float("inf"))


def gpt2(**sizes):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(use_cache=False, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM", **sizes)
    )


def step(model, optimizer, batch=4, length=128):
    tokens = torch.randint(0, model.config.vocab_size, (batch, length))
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()


SMALL = {"n_layer": 3, "n_embd": 32, "n_head": 2, "vocab_size": 64, "n_positions": 32}
MIDDLE = {"n_layer": 6, "n_embd": 512, "n_head": 8, "vocab_size": 20_000, "n_positions": 128}


def against_twins(folder, sizes, batch, length, steps, rounds):
    """Best processor time per step without a monitor, recording every step, and every tenth; tensors."""
    kinds = {"bare": None, "every step": every(1), "every 10th": every(10)}
    best = dict.fromkeys(kinds, float("inf"))
    twins = {}
    for name, schedule in kinds.items():
        model = gpt2(**sizes)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        monitor = Monitor(model, optimizer, folder / f"{name}{length}.db", schedule) if schedule else None
        twins[name] = model, optimizer, monitor
    for _ in range(rounds):
        for name, (model, optimizer, monitor) in twins.items():
            began = time.process_time()
            for _ in range(steps):
                step(model, optimizer, batch, length)
            if monitor is not None:
                monitor.flush(60)
            best[name] = min(best[name], (time.process_time() - began) / steps)
    for model, _, monitor in twins.values():
        if monitor is not None:
            monitor.close()
        tensors = len(list(model.parameters()))
    return best, tensors


def small_and_middle(folder):
    """What a record adds to the steps of models whose steps are short."""
    best, tensors = against_twins(folder, SMALL, 8, 32, 100, 10)
    bare, added = best["bare"], best["every step"] - best["bare"]
    print(f"small model, {tensors} tensors, 0.04 M parameters: a bare step takes {bare * 1e3:.2f} ms")
    print(
        f"  every step: {added / bare:+.1%} (goal ≤ 8 %), {added * 1e6:.0f} µs a record "
        f"(goal ≤ {15 + 6 * tensors} µs: 15 + 6 per tensor)"
    )
    print(f"  every 10th step: {best['every 10th'] / bare - 1:+.1%} (goal ≤ 1 %)", flush=True)
    best, tensors = against_twins(folder, MIDDLE, 4, 128, 10, 3)
    bare, often, seldom = best["bare"], best["every step"], best["every 10th"]
    print(f"30 M parameters, {tensors} tensors: a bare step takes {bare * 1e3:.0f} ms")
    print(f"  every step: {often / bare - 1:+.1%}, every 10th: {seldom / bare - 1:+.1%}", flush=True)


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
            with (
                timed_hooks() as timer,
                Monitor(model, optimizer, path, schedule, replace(options, step=1)) as monitor,
            ):
                step(model, optimizer)  # the first record makes the file
                if name == "with updates":
                    timer.take(monitor)
                    step(model, optimizer)
                best[name] = least(best[name], timer.take(monitor))
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
    with (
        timed_hooks() as timer,
        Monitor(parameters, optimizer, folder / "many.db", every(1), options) as monitor,
    ):
        optimizer.step()
        timer.take(monitor)
        for _ in range(10):
            bare = min(bare, timed(torch._foreach_norm, listed))
            optimizer.step()
            record = least(record, timer.take(monitor))
    return bare, record


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small_and_middle(folder)
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
        monitor_spectra.main(model, optimizer)
        watched = cost_of_wandb(model, optimizer, folder)
        if watched is not None:
            print(f"wandb.watch(log='all') offline, every step: {watched / bare - 1:.1%}", flush=True)
    monitor_network.main()


if __name__ == "__main__":
    main()
