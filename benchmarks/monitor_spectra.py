"""What live spectral norms cost, of a model of GPT-2's size: the time inside the monitor's hooks.

    python -m benchmarks.monitor_spectra

Processor time on one thread, beside bare steps before and after. Between two records the optimizer makes ten
steps along the same gradients, so that the vectors which are kept have to follow a model that moves fast.
"""

import tempfile
from pathlib import Path

import torch

from normscope.live.monitor import Monitor
from normscope.live.spectral.shared_products import SharedProducts
from normscope.schedule import NEVER, every

ROUNDS, EVERY = 2, 10


def cost_of_spectra(model, optimizer, folder, timed_hooks, step, timed):
    """Best bare step, the first record and a later one, in seconds; the rounds of products of that."""
    best = {"step": min(timed(step, model, optimizer) for _ in range(ROUNDS))}
    rounds = []
    options = {"spectral": every(EVERY), "gradients": False, "updates": False, "initial": False}
    with (
        timed_hooks() as timer,
        CountedRounds(rounds),
        Monitor(model, optimizer, folder / "spectra.db", NEVER, **options) as monitor,
    ):
        optimizer.step()  # before the first step, the state at step 0 is measured
        best["first"] = sum(timer.take(monitor))
        best["later"] = float("inf")
        for _ in range(ROUNDS):
            rounds.clear()
            for _ in range(EVERY):
                spent = 0.0
                optimizer.step()
                spent += sum(timer.take(monitor))
                if monitor.step % EVERY == 0:
                    best["later"] = min(best["later"], spent)
        best["step"] = min(best["step"], timed(step, model, optimizer))
    return best, [found for found in rounds if found[0]]


class CountedRounds:
    """Counts the rounds of products: one is two products with every matrix of a group."""

    def __init__(self, found):
        self.found = found

    def __enter__(self):
        self.before = before = SharedProducts._agreed

        def agreed(products, waiting):
            chosen = before(products, waiting)
            self.found.append((len(chosen), len(products._group)))
            return chosen

        SharedProducts._agreed = agreed

    def __exit__(self, *_):
        SharedProducts._agreed = self.before


def main(model=None, optimizer=None):
    """Print the cost as shares of a bare step."""
    from benchmarks.monitor import gpt2, step, timed, timed_hooks

    torch.set_num_threads(1)
    if model is None:
        model = gpt2()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        step(model, optimizer)
    with tempfile.TemporaryDirectory() as folder:
        best, rounds = cost_of_spectra(model, optimizer, Path(folder), timed_hooks, step, timed)
    bare, later = best["step"], best["later"]
    print(f"live spectral norms, GPT-2 small, 4 × 128 tokens: a bare step takes {bare:.2f} s")
    print(f"  every 10th step: {later / bare / EVERY:.2%} of a step (goal ≤ 1 %); one record {later:.3f} s")
    print(f"  the first record: {best['first'] / bare:.2f} steps", flush=True)
    print(f"  matrices with products in each round of the last record, of those in a group: {rounds}")


if __name__ == "__main__":
    main()
