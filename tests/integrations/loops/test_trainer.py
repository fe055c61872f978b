"""The Hugging Face Trainer: accumulation, resume, the best model at the end, schedule-free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")  # the Trainer's own

from tests.integrations.loops.hf import Texts, small_gpt2, train  # noqa: E402
from tests.integrations.loops.witness import assert_rows, recorded  # noqa: E402


def trainer(folder: Path, path: Path | None, resume: str | None = None, **args: Any) -> Any:
    more = {"model": small_gpt2(), "train_dataset": Texts(), "eval_dataset": Texts(), "args": args}
    return train(transformers.Trainer, folder, path, more, resume)


def test_accumulated_clipped_steps(tmp_path: Path) -> None:
    watched, witness, _ = trainer(tmp_path / "a", tmp_path / "run.db")
    assert_rows(tmp_path / "run.db", witness.rows)
    watched.assert_same(trainer(tmp_path / "b", None)[0])


def test_resumed_steps_are_those_of_one_training(tmp_path: Path) -> None:
    saved = {"save_strategy": "steps", "save_steps": 3}
    _, first, _ = trainer(tmp_path / "a", tmp_path / "run.db", **saved)
    _, second, _ = trainer(tmp_path / "a", tmp_path / "run.db", str(tmp_path / "a/checkpoint-3"), **saved)
    assert {step for step, _ in second.rows} == {4, 5, 6}
    unknown = {"dot_init": None}  # θ₀ is not in the checkpoint
    resumed = {key: {**row, **unknown} for key, row in second.rows.items()}
    before = {key: row for key, row in first.rows.items() if key[0] <= 3}
    assert_rows(tmp_path / "run.db", {**before, **resumed})


@pytest.mark.slow
def test_loading_the_best_model_at_the_end_is_no_update(tmp_path: Path) -> None:
    best = {
        "load_best_model_at_end": True, "save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps",
        "eval_steps": 2, "metric_for_best_model": "loss", "greater_is_better": True,
    }  # fmt: skip
    watched, witness, ended = trainer(tmp_path / "a", tmp_path / "run.db", **best)
    assert ended.state.best_model_checkpoint.endswith("checkpoint-2")  # the largest loss: not the last step
    assert_rows(tmp_path / "run.db", witness.rows)
    assert {step for step, _ in recorded(tmp_path / "run.db")} == set(range(1, 7))
    watched.assert_same(trainer(tmp_path / "b", None, **best)[0])


@pytest.mark.slow
def test_schedule_free_by_name(tmp_path: Path) -> None:
    pytest.importorskip("schedulefree")
    free = {
        "optim": "schedule_free_adamw",
        "lr_scheduler_type": "constant",
        "eval_strategy": "steps",
        "eval_steps": 2,
    }
    watched, witness, _ = trainer(tmp_path / "a", tmp_path / "run.db", **free)
    assert_rows(tmp_path / "run.db", witness.rows)
    watched.assert_same(trainer(tmp_path / "b", None, **free)[0])
