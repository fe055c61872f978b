"""Does the norm settle where the recursion predicts? Small transformers, AdamW and SGD, several decays.

    python benchmarks/equilibrium.py [--cache FOLDER] [--steps 4000]

Each run is trained in the lab at a constant learning rate (after 100 steps of warm-up). From its first
half alone, the equilibrium norm of the body's matrices and the norm at the last step are predicted, and
compared with the second half. About two minutes per run on one core.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from normscope.theory.dynamics.dynamics import drive, equilibrium, expected_drive
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.forecasts.forecast import forecast_series
from normscope.theory.forecasts.plan import Plan
from normscope.theory.measures.time_series import Series, reference

EVERY = 20


@dataclass(frozen=True)
class Setting:
    optimizer: str
    lr: float
    weight_decay: float
    momentum: float = 0.9
    schedule: str = "constant"

    @property
    def name(self) -> str:
        return f"{self.optimizer}-{'cos-' * (self.schedule == 'cosine')}{self.weight_decay}"

    @property
    def decoupled(self) -> float:
        """The decoupled decay with the same effect: SGD's acts through the momentum, AdamW's does not."""
        return self.weight_decay / (1 - self.momentum) if self.optimizer == "sgd" else self.weight_decay


SETTINGS = [Setting("adamw", 3e-3, decay) for decay in (1.0, 0.3, 0.1, 0.0)]
SETTINGS += [Setting("sgd", 0.3, decay) for decay in (3e-3, 1e-3, 3e-4)]
SCHEDULED = [Setting("adamw", 3e-3, decay, schedule="cosine") for decay in (0.3, 0.03)]
CUTS = (0.25, 0.5, 0.75)


def recorder():
    """A callback that keeps ρ², ⟨θ′,Δ⟩ and ‖Δ‖² of the body's matrices every few steps."""
    from normscope.lab.training.callback import Callback

    class Recorder(Callback):
        def __init__(self):
            self.rows, self.before = [], []

        def on_start(self, trainer):
            self.add(trainer, 0.0, 0.0, 0.0)

        def on_step(self, trainer):
            if trainer.step % EVERY == 0:
                pairs = list(zip(self.matrices(trainer), self.before, strict=True))
                dot = sum(float((old * (new - old)).sum()) for new, old in pairs)
                moved = sum(float((new - old).square().sum()) for new, old in pairs)
                self.add(trainer, dot, moved, trainer.lr)
            if (trainer.step + 1) % EVERY == 0:
                self.before = self.matrices(trainer)

        def matrices(self, trainer):
            named = trainer.model.named_parameters()
            return [p.detach().double() for n, p in named if p.dim() > 1 and n.startswith("blocks")]

        def add(self, trainer, dot, moved, lr):
            total = sum(float(p.square().sum()) for p in self.matrices(trainer))
            self.rows.append((trainer.step, total, dot, moved, lr))

    return Recorder()


def train(setting, steps, folder):
    from normscope.lab.config import TrainConfig, override
    from normscope.lab.training.train import train as run
    from normscope.schedule import Every

    shape = {"batch": 8, "length": 32, "d_model": 48, "n_layers": 2, "n_heads": 4, "d_ff": 192}
    how = {"optimizer": setting.optimizer, "lr": setting.lr, "weight_decay": setting.weight_decay}
    how |= {"schedule": setting.schedule, "final": 0.1}
    how |= {"warmup": 100, "decayed": "matrices", "clip": 1.0 if setting.optimizer == "sgd" else None}
    config = override(TrainConfig(), {"steps": steps, "eval_batches": 1, **shape, **how})
    never = Every(10**9)
    config = replace(config, save=never, evaluate=never, record=never)
    callback = recorder()
    run(config, folder / setting.name, data=folder / "data", callbacks=[callback])
    return np.array(callback.rows)


def rows_of(setting, steps, cache):
    path = cache / f"{setting.name}.npz"
    if not path.exists():
        np.savez(path, rows=train(setting, steps, cache))
    return np.load(path)["rows"]


def predict(setting, rows):
    """Predict equilibrium norm and last norm from the first half; return them beside the measured ones."""
    steps, norms = rows[:, 0], np.sqrt(rows[:, 1])
    rates = Rates(steps, np.nan_to_num(rows[:, 4]), np.full(len(steps), setting.decoupled))
    early = steps <= steps[-1] / 2
    estimate = expected_drive(drive(steps[early], rows[early, 1], rates))
    rest = equilibrium(estimate, rows[early, 1][-1], setting.lr, setting.decoupled, steps[early][-1])
    ahead = forecast_series(Series("norm", steps[early], norms[early]), int(steps[-1]), recorded=rates)
    curve = [np.interp(steps[~early], ahead.curve["step"], ahead.curve[name]) for name in ("low", "high")]
    inside = float(np.mean((norms[~early] >= curve[0]) & (norms[~early] <= curve[1])))
    return rest, ahead, inside


def report(setting, rows):
    rest, ahead, inside = predict(setting, rows)
    norms = np.sqrt(rows[:, 1])
    last = float(norms[-len(norms) // 10 :].mean())
    earlier = float(norms[-len(norms) // 2 : -2 * len(norms) // 5].mean())
    reached = rest.exists and abs(last / earlier - 1) < 0.05
    angle = float(np.sqrt(np.mean(rows[-20:, 3]) / rows[-1, 1]))
    theory = np.sqrt(2 * setting.lr * setting.decoupled * (1 - setting.momentum) / (1 + setting.momentum))
    cells = [setting.optimizer, f"{setting.weight_decay:g}", f"{rest.half_life:,}" if rest.exists else "–"]
    cells += [f"{rest.norm:.2f} ({rest.low:.2f} … {rest.high:.2f})" if rest.exists else "–", f"{last:.2f}"]
    cells += [f"{rest.norm / last - 1:+.1%}" if rest.exists else "–", "yes" if reached else "no"]
    cells += [f"{ahead.value / norms[-1] - 1:+.1%}", f"{inside:.0%}", f"{theory:.4f}", f"{angle:.4f}"]
    print("| " + " | ".join(cells) + " |")


HEAD = (
    "optimizer|λ|half-life (steps)|predicted rest|last tenth|error|at rest"
    "|forecast error|inside|angle, theory|measured"
)


def transfer(settings, all_rows):
    """The equilibrium norm at each decay, predicted from a whole run with another decay."""
    print("\n| measured at λ | " + " | ".join(f"rest at {s.weight_decay:g}" for s in settings) + " |")
    print("|" + "---|" * (len(settings) + 1))
    for source in settings:
        rows = all_rows[source.name]
        rates = Rates(rows[:, 0], np.nan_to_num(rows[:, 4]), np.full(len(rows), source.decoupled))
        estimate = expected_drive(drive(rows[:, 0], rows[:, 1], rates))
        cells = []
        for target in settings:
            rest = equilibrium(estimate, rows[-1, 1], target.lr, target.decoupled)
            last = np.sqrt(all_rows[target.name][-len(rows) // 10 :, 1]).mean()
            cells.append(f"{rest.norm:.2f} ({rest.norm / last - 1:+.0%})" if rest.exists else "–")
        print(f"| {source.weight_decay:g} | " + " | ".join(cells) + " |")


def share_inside(steps, norms, cut, plan, recorded):
    """Forecast error at the end, and the share of later points inside the interval."""
    early = steps <= cut * steps[-1]
    ahead = forecast_series(Series("norm", steps[early], norms[early]), int(steps[-1]), plan, recorded)
    low, high = (np.interp(steps[~early], ahead.curve["step"], ahead.curve[n]) for n in ("low", "high"))
    inside = float(np.mean((norms[~early] >= low) & (norms[~early] <= high)))
    return ahead.value / norms[-1] - 1, inside


def coverage(settings, found, folder):
    """Fit on a first part, check on the rest: by laws and by the recursion."""
    print("\n| run | method | " + " | ".join(f"from {cut:.0%}" for cut in CUTS) + " |")
    print("|" + "---|" * (len(CUTS) + 2))
    t5 = reference("t5-base")
    runs = [("t5-base", t5.steps.astype(float), t5.values, None, Plan())]
    for setting in settings:
        rows = found[setting.name]
        table = folder / f"{setting.name}-lr.csv"
        np.savetxt(table, rows[:, [0, 4]], delimiter=",", header="step,lr", comments="", fmt="%.9g")
        rates = Rates(rows[:, 0], rows[:, 4], np.full(len(rows), setting.decoupled))
        runs.append((setting.name, rows[:, 0], np.sqrt(rows[:, 1]), None, Plan()))
        runs.append((setting.name, rows[:, 0], np.sqrt(rows[:, 1]), rates, Plan(schedule=str(table))))
    every = {"laws": [], "dynamics": []}
    for name, steps, norms, rates, plan in runs:
        method = "dynamics" if rates else "laws"
        cells = [share_inside(steps, norms, cut, plan, rates) for cut in CUTS]
        every[method] += [inside for _, inside in cells]
        shown = " | ".join(f"{inside:.0%} ({error:+.0%})" for error, inside in cells)
        print(f"| {name} | {method} | {shown} |")
    for method, shares in every.items():
        print(f"| all | {method} | {np.mean(shares):.0%} of later points inside |" + " |" * (len(CUTS) - 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--steps", type=int, default=4000)
    options = parser.parse_known_args()[0]
    print("| " + HEAD.replace("|", " | ") + " |")
    print("|" + "---|" * (HEAD.count("|") + 1))
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for setting in SETTINGS:
            found[setting.name] = rows_of(setting, options.steps, options.cache or Path(folder))
            found[setting.name][:, 4] = np.nan_to_num(found[setting.name][:, 4])
            report(setting, found[setting.name])
        for setting in SCHEDULED:
            found[setting.name] = rows_of(setting, options.steps, options.cache or Path(folder))
            found[setting.name][:, 4] = np.nan_to_num(found[setting.name][:, 4])
        transfer([s for s in SETTINGS if s.optimizer == "adamw" and s.weight_decay], found)
        coverage([*SETTINGS, *SCHEDULED], found, Path(folder))


if __name__ == "__main__":
    main()
