"""The training loop: updates, records, checkpoints. A killed run continues bit for bit.

The seed decides every random choice: the initial parameters, the batches (each from its own
number, see `lab.data`) and dropout, whose generator is part of the saved state. On the CPU, the
last digits also depend on the number of threads, because PyTorch splits sums among them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from normscope._version import __version__
from normscope.errors import Diverged, NormscopeError
from normscope.lab.config import TrainConfig, flatten
from normscope.lab.data.open_data import complete_config, open_data
from normscope.lab.data.text import TextData
from normscope.lab.optimizing import optimizers
from normscope.lab.optimizing.constraints import KeepsState, build_constraint
from normscope.lab.optimizing.muon import optimizer_parts
from normscope.lab.optimizing.parameter_norms import body_parameters, parameter_norm
from normscope.lab.training import checkpointing
from normscope.lab.training.callback import Callback
from normscope.lab.training.evaluation import evaluate
from normscope.lab.training.network_building import build_loss, build_network, check_network
from normscope.lab.training.train_result import TrainResult
from normscope.network.places.placement import Placement
from normscope.progress import Progress, silent
from normscope.rows import OPTIMIZER_NOTES
from normscope.run import Row, Run, ScalarRow
from normscope.schedule import NEVER

STATE_SECONDS = 60.0  # at most this much work is lost when a run is killed
TRAINING_DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class RunPaths:
    """The folder of a run, its run file, and the folder of the tokenised text.

    >>> ns.RunPaths("out", "out/run.db", "out/data").run
    'out/run.db'
    """

    out: Path
    run: Path
    data: Path


class Trainer:
    """A run in progress: model, optimizer, data, run file, and the number of updates done.

    `train` makes one and gives it to its callbacks.

    >>> class PrintLoss(ns.Callback):
    ...     def on_step(self, trainer: ns.Trainer) -> None:
    ...         print(f"step {trainer.step}: {'finite' if trainer.loss < 99 else 'large'} loss")
    >>> _ = ns.train(ns.TrainConfig(steps=2, batch=2), "out", callbacks=[PrintLoss()])
    step 1: finite loss
    step 2: finite loss
    """

    def __init__(self, config: TrainConfig, paths: RunPaths, callbacks: Sequence[Callback] = ()) -> None:
        self.data = open_data(config.data, paths.data)
        self.config = config = complete_config(config, self.data)
        self.paths = paths
        self.callbacks = callbacks
        device, dtype = Placement(config.device).torch_device(), TRAINING_DTYPES[config.dtype]
        checkpointing.claim_folder(paths.out, flatten(config))
        torch.manual_seed(config.seed)
        self.model = build_network(config.model).to(device=device, dtype=dtype)
        check_network(self.model, config.model.network, self.data, device)
        self.optimizer = optimizers.build_optimizer(self.model, config.optimization)
        self._loss = build_loss(config.loss, self.data)
        self._constraint = build_constraint(config.optimization.constraint, dtype)
        self._constrain()
        self.step = 0
        self.loss = math.nan
        self._body = body_parameters(self.model)
        self.norm = self.norm_start = parameter_norm(self.model.parameters())
        self.body_norm = parameter_norm(self._body)
        self.body_norm_start: float | None = self.body_norm
        self.evaluation: dict[str, float] = {}
        self._rows: list[Row] = []
        self._saved = time.monotonic()
        paths.run.parent.mkdir(parents=True, exist_ok=True)
        self.run = Run.create(paths.run)

    def _constrain(self) -> None:
        """Apply the constraint inside each step, before those who watch the optimizer see the update."""
        constraint = self._constraint
        if constraint is not None:
            constraint.start(self.model)
            last = optimizer_parts(self.optimizer)[-1]
            last.register_step_post_hook(lambda *_: constraint.apply(self.model))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for callback in self.callbacks:
            callback.on_end(self)
        self.run.close()

    def fit(self, progress: Progress = silent) -> TrainResult:
        """Train to the last step."""
        began, config = time.monotonic(), self.config
        self._begin()
        while self.step < config.steps:
            self._update()
            self._record()
            self._save()
            progress(self.step, config.steps, f"loss {self.loss:.3f}  norm of the body {self.body_norm:.4g}")
        return self._result(time.monotonic() - began)

    def record(self, name: str, value: float) -> None:
        """Queue one number of the current step for the run file."""
        self.write([ScalarRow(self.step, name, float(value))])

    def write(self, rows: Iterable[Row]) -> None:
        """Queue rows for the run file; they are written with the next save."""
        self._rows.extend(rows)

    # -- one update --------------------------------------------------------------

    def _update(self) -> None:
        config, number = self.config, self.step * self.config.accumulate
        factor = optimizers.lr_factor(config.optimization, self.step + 1, config.steps)
        self.lr = config.optimization.lr * factor
        optimizers.set_learning_rate(self.optimizer, self.lr)
        self.model.train()
        self.loss = sum(self._backward(number + part) for part in range(config.accumulate))
        if config.optimization.clip is not None:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.optimization.clip)
            self.gradient_norm = float(norm)
        if not math.isfinite(self.loss):
            self._flush()
            raise Diverged(
                f"the loss became {self.loss} at step {self.step + 1} (learning rate {self.lr:g}): "
                "lower the learning rate, warm it up, or clip the gradient"
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1

    def _backward(self, number: int) -> float:
        """Add the gradient of one batch; return its share of the loss."""
        config = self.config
        inputs, targets = self.data.batch(number, config.batch, config.seed)
        logits = self.model(inputs.to(config.device))
        loss = self._loss(logits, targets.to(config.device)) / config.accumulate
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    # -- recording ---------------------------------------------------------------

    def _record(self) -> None:
        config, last = self.config, self.step == self.config.steps
        if self.step in config.record or last:
            self.record("loss", self.loss)
            self.record("lr", self.lr)
            self.record("weight_decay", optimizers.largest_decay(self.optimizer))
            self.record("tokens", self.step * config.accumulate * config.batch * self.data.sizes.positions)
            if config.optimization.clip is not None:
                self.record("gradient_norm", self.gradient_norm)
        if last or self.step in config.save or self.step % max(1, config.steps // 200) == 0:
            self._record_norm()
        if last or self.step in config.evaluate:
            self._evaluate()
        for callback in self.callbacks:
            callback.on_step(self)

    def _record_norm(self) -> None:
        self._measure_norms()
        self.record("norm", self.norm)
        self.record("body_norm", self.body_norm)

    def _measure_norms(self) -> None:
        self.norm = parameter_norm(self.model.parameters())
        self.body_norm = parameter_norm(self._body)

    def _evaluate(self) -> None:
        self.evaluation = evaluate(self.model, self.data, self.config.eval_batches, self.config.batch)
        for name, value in self.evaluation.items():
            self.record(name, value)

    # -- starting, saving, continuing --------------------------------------------

    def _begin(self) -> None:
        checkpointing.check_run_file(self.run, flatten(self.config), self.paths.out)
        state = checkpointing.load_state(self.paths.out)
        if state is None:
            self._first()
        else:
            self._restore(state)
        for callback in self.callbacks:
            callback.on_start(self)
        if state is None:
            self._save()

    def _first(self) -> None:
        with self.run.transaction():
            self.run.delete_after(-1)
            self.run.set_meta("config", flatten(self.config))
            self.run.set_meta("seed", self.config.seed)
            self.run.set_meta("source", str((self.paths.out / "checkpoints").absolute()))
            self.run.set_meta("versions", {"normscope": __version__, "torch": torch.__version__})
            if self.data.remarks:
                self.run.set_meta("remarks", list(self.data.remarks))
            notes = optimizers.optimizer_notes(self.model, self.optimizer)
            self.run.set_artifact(OPTIMIZER_NOTES, "", notes)
        self._record_norm()
        self._evaluate()

    def _restore(self, state: dict[str, Any]) -> None:
        """Continue from a state; one that does not fit changes nothing but this object."""
        try:
            self._continue(state)
        except NormscopeError:
            raise
        except Exception as error:  # of another model, or damaged: torch raises anything
            raise checkpointing.damaged_state(self.paths.out, error) from None
        with self.run.transaction():
            self.run.delete_after(self.step)

    def _continue(self, state: dict[str, Any]) -> None:
        self.step, self.loss, self.norm_start = state["step"], state["loss"], state["norm_start"]
        self.body_norm_start = state.get("body_norm_start")  # not in states of earlier releases
        self.evaluation = state["evaluation"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if isinstance(self._constraint, KeepsState) and "constraint" in state:
            self._constraint.load_state_dict(state["constraint"])
        torch.set_rng_state(state["random"])
        self._measure_norms()

    def _save(self) -> None:
        """Write the checkpoint and the state if they are due."""
        ends = self.step in (0, self.config.steps)
        if self.step in self.config.save or (ends and self.config.save != NEVER):
            self._save_checkpoint()
            self._save_state()
        elif ends or time.monotonic() - self._saved > STATE_SECONDS:
            self._save_state()

    def _save_checkpoint(self) -> None:
        tokenizer = self.data.tokenizer.to_json() if isinstance(self.data, TextData) else None
        folder = checkpointing.checkpoint_folder(self.paths.out, self.step)
        checkpointing.save_model(self.model, folder, tokenizer, self.config.model)

    def _save_state(self) -> None:
        for callback in self.callbacks:
            callback.on_save(self)
        self._flush()
        state: dict[str, Any] = {
            "step": self.step,
            "loss": self.loss,
            "norm_start": self.norm_start,
            "body_norm_start": self.body_norm_start,
            "evaluation": self.evaluation,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        if isinstance(self._constraint, KeepsState):
            state["constraint"] = self._constraint.state_dict()
        checkpointing.save_state(self.paths.out, state)
        self._saved = time.monotonic()

    def _flush(self) -> None:
        with self.run.transaction():
            self.run.write(self._rows)
        self._rows.clear()

    def _result(self, seconds: float) -> TrainResult:
        return TrainResult(
            out=self.paths.out,
            run=self.paths.run,
            checkpoints=self.paths.out / "checkpoints",
            steps=self.step,
            parameters=sum(p.numel() for p in self.model.parameters()),
            loss=self.loss,
            norm_start=self.norm_start,
            norm_end=self.norm,
            evaluation=self.evaluation,
            seconds=seconds,
            body_norm_start=self.body_norm_start,
            body_norm_end=self.body_norm,
            remarks=self.data.remarks,
        )
