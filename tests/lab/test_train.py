"""Training: reproducible, exact under accumulation and after SIGKILL, honest when it diverges."""

import math
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from normscope.errors import AnotherSeries, TrainingError, UsageError
from normscope.lab.config import TrainConfig, override
from normscope.lab.training import checkpointing
from normscope.lab.training.callback import Callback
from normscope.lab.training.checkpointing import load_model
from normscope.lab.training.train import train
from normscope.rows import LIVE_PROBES, ActivationRow, AttentionRow
from normscope.run import HeadRow, Run, SaturationRow, ScalarRow, WeightRow
from normscope.schedule import Every, Logarithmic
from normscope.weights.scan.scan import scan

TINY = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16, "length": 16, "batch": 4, "eval_batches": 2}


def config_of(**changes):
    return override(TrainConfig(), TINY | {"steps": 40} | changes)


def scalars(path):
    with Run(path) as run:
        table = run.table(ScalarRow)
    return {
        (step, name): value
        for step, name, value in zip(table["step"], table["name"], table["value"], strict=True)
    }


def contents(folder: Path):
    return {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain")
    return train(config_of(), out)


def test_a_run_learns_and_leaves_what_it_should(plain):
    found = scalars(plain.run)
    assert found[40, "loss"] == plain.loss < found[1, "loss"] - 0.5
    assert found[40, "norm"] == plain.norm_end != plain.norm_start == found[0, "norm"]
    assert found[40, "tokens"] == 40 * 4 * 16
    assert found[40, "valid_perplexity"] == pytest.approx(math.exp(found[40, "valid_loss"]))
    assert found[0, "valid_loss"] == pytest.approx(math.log(256), rel=0.01)
    steps = [int(path.name.removeprefix("step-")) for path in sorted(plain.checkpoints.iterdir())]
    assert steps == sorted({*Logarithmic(10).steps(40), 40})
    assert plain.table["value"]


def test_norm_is_that_of_the_saved_parameters(plain):
    model = load_model(plain.checkpoints / "step-000040")
    assert plain.parameters == sum(p.numel() for p in model.parameters())
    slow = math.sqrt(math.fsum(float(x) ** 2 for p in model.parameters() for x in p.detach().flatten()))
    assert plain.norm_end == pytest.approx(slow, rel=1e-12)


def test_the_seed_decides_everything(plain, tmp_path):
    again = train(config_of(), tmp_path / "again")
    other = train(config_of(seed=1), tmp_path / "other")
    assert scalars(again.run) == scalars(plain.run)
    assert contents(again.checkpoints) == contents(plain.checkpoints)
    assert other.loss != plain.loss


def test_a_notebook_shows_a_summary_above_the_table(plain):
    page = plain._repr_html_()
    assert page.index("40 steps") < page.index("norm") < page.index("<table>") < page.index("valid_loss")


def test_a_scan_needs_checkpoints(tmp_path):
    with pytest.raises(UsageError, match="scan=True measures checkpoints, but save is never"):
        train(config_of(save="never"), tmp_path, scan=True)


def test_a_finished_run_is_not_repeated(plain):
    again = train(config_of(), plain.out)
    assert replace(again, seconds=0) == replace(plain, seconds=0)


def test_a_folder_belongs_to_one_run(plain):
    with pytest.raises(UsageError, match=r"contains another run \(lr is 0.001 there and 0.01 now\)"):
        train(config_of(lr=0.01), plain.out)


def test_a_run_file_belongs_to_one_run(plain, tmp_path):
    """A training deletes what is after its step, so a file with something else in it is refused."""
    scanned = tmp_path / "scanned.db"
    scan(plain.checkpoints, scanned).close()
    copied = tmp_path / "copied.db"
    copied.write_bytes(plain.run.read_bytes())
    for path in (scanned, copied):
        before = path.read_bytes()
        for config in (config_of(), config_of(lr=0.5)):
            with pytest.raises(AnotherSeries, match=r"is the run file of .*checkpoints.*--run FILE"):
                train(config, tmp_path / "new", run=path)
            assert not (tmp_path / "new").exists()
        assert path.read_bytes() == before


def test_a_scan_into_the_file_of_a_run(plain, tmp_path):
    """Its own checkpoints are welcome, also after the folder was moved; those of another run are not."""
    out = tmp_path / "out"
    shutil.copytree(plain.out, out)
    scan(plain.checkpoints, plain.run).close()
    other = train(config_of(seed=1, steps=10), tmp_path / "other")
    with pytest.raises(AnotherSeries, match="is the run file of"):
        scan(other.checkpoints, plain.run)
    with pytest.raises(AnotherSeries, match="is the run file of"):
        scan(other.checkpoints, out / "run.db")
    with pytest.raises(AnotherSeries, match="is the run file of"):
        scan(out / "checkpoints", other.run)


def test_a_monitored_run_is_scanned_and_started_again(tmp_path):
    config = config_of(steps=6, monitor=Every(2), save=Every(3))
    result = train(config, tmp_path / "out", scan=True)
    assert train(config, tmp_path / "out", scan=True).steps == 6
    with Run(result.run) as run:
        assert [row.step for row in run.checkpoints()] == [0, 3, 6]
        live = run.query("SELECT DISTINCT step FROM weight WHERE lr NOT NULL ORDER BY 1")
    assert live == [(2,), (4,), (6,)]


def test_checkpoint_folder_carries_a_tokenizer_for_hugging_face(plain):
    tokenizer = AutoTokenizer.from_pretrained(plain.checkpoints / "step-000040")
    assert tokenizer("naïve\n")["input_ids"] == list("naïve\n".encode())


def test_two_processes_cannot_train_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpointing, "LOCK_TRIES", 1)
    with (
        checkpointing.lock_folder(tmp_path),
        pytest.raises(TrainingError, match="another process is working"),
    ):
        train(config_of(), tmp_path)
    train(config_of(steps=1), tmp_path)


def test_accumulation_equals_one_large_batch(tmp_path):
    large = train(config_of(batch=8, dtype="float64", eval_batches=1), tmp_path / "large")
    small = train(config_of(batch=4, accumulate=2, dtype="float64", eval_batches=2), tmp_path / "small")
    assert small.loss == pytest.approx(large.loss, rel=1e-9)
    assert small.norm_end == pytest.approx(large.norm_end, rel=1e-9)
    assert scalars(small.run)[40, "tokens"] == scalars(large.run)[40, "tokens"]


def test_clipping_bounds_the_gradient(tmp_path):
    sgd = {
        "optimizer": "sgd",
        "momentum": 0,
        "weight_decay": 0,
        "lr": 1.0,
        "clip": 1e-3,
        "steps": 3,
        "save": "every:1",
    }
    result = train(config_of(**sgd), tmp_path)
    before, after = (load_model(tmp_path / f"checkpoints/step-00000{n}") for n in (0, 1))
    squares = [
        ((a - b) ** 2).sum().item() for a, b in zip(after.parameters(), before.parameters(), strict=True)
    ]
    assert math.sqrt(sum(squares)) == pytest.approx(1e-3, rel=1e-3)
    assert scalars(result.run)[1, "gradient_norm"] > 1e-3


def test_epochs_decide_the_steps(tmp_path):
    (tmp_path / "text.txt").write_text("abcdefgh\n" * 200)
    with pytest.raises(UsageError, match="steps has no effect here"):
        train(config_of(text=str(tmp_path / "text.txt"), epochs=2), tmp_path / "out")
    config = config_of(text=str(tmp_path / "text.txt"), epochs=2, steps=TrainConfig().steps)
    result = train(config, tmp_path / "out")
    assert result.steps == round(2 * ((1620 - 1) // 16 - 1) / 4)


def test_divergence_is_an_error_and_stays_on_record(tmp_path):
    with pytest.raises(
        TrainingError, match=r"the loss became (nan|inf) at step \d+ \(learning rate 1e\+30\)"
    ):
        train(config_of(optimizer="sgd", lr=1e30, save="every:1"), tmp_path)
    assert (0, "norm") in scalars(tmp_path / "run.db")


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "adafactor"])
def test_every_optimizer_lowers_the_loss(tmp_path, optimizer):
    lr = {"sgd": 0.1, "adafactor": 0.05}.get(optimizer, 3e-3)
    result = train(config_of(optimizer=optimizer, lr=lr, eval_batches=8), tmp_path)
    assert result.evaluation["valid_loss"] < scalars(result.run)[0, "valid_loss"] - 0.5


def test_callbacks_see_every_step(tmp_path):
    class Witness(Callback):
        seen: list[object]

        def on_start(self, trainer):
            self.seen = ["start"]

        def on_step(self, trainer):
            self.seen.append(trainer.step)
            trainer.record("seen", 1.0)

    witness = Witness()
    result = train(config_of(steps=3), tmp_path, callbacks=[witness])
    assert witness.seen == ["start", 1, 2, 3]
    assert scalars(result.run)[3, "seen"] == 1.0


def test_progress_reaches_the_end(tmp_path):
    calls = []
    train(config_of(steps=3), tmp_path, progress=lambda *call: calls.append(call))
    assert [(done, total) for done, total, _ in calls] == [(1, 3), (2, 3), (3, 3)]
    assert "loss" in calls[-1][2]
    assert "norm" in calls[-1][2]


KILLED = """
import os, signal, sys, torch
torch.set_num_threads(1)
from normscope.lab.config import override, TrainConfig
from normscope.lab.training.train import train
from normscope.lab.training.callback import Callback
class Kill(Callback):
    def on_step(self, trainer):
        if trainer.step == 19: os.kill(os.getpid(), signal.SIGKILL)
train(override(TrainConfig(), eval(sys.argv[2])), sys.argv[1], callbacks=[Kill()])
"""


def test_killed_run_continues_bit_for_bit(tmp_path, monkeypatch, one_thread):
    changes = TINY | {
        "steps": 40,
        "dropout": 0.1,
        "schedule": "cosine",
        "clip": 1.0,
        "batch": 2,
        "accumulate": 2,
    }
    config = override(TrainConfig(), changes)
    killed = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "killed", repr(changes)])
    whole = train(config, tmp_path / "whole")
    die_while_saving(config, tmp_path / "in save", 25, monkeypatch)
    assert killed.wait() == -signal.SIGKILL
    for name in ("killed", "in save"):
        assert len(list((tmp_path / name / "checkpoints").glob("step-*"))) < len(
            list(whole.checkpoints.iterdir())
        )
        resumed = train(config, tmp_path / name)
        assert scalars(resumed.run) == scalars(whole.run)
        assert contents(resumed.checkpoints) == contents(whole.checkpoints)
        assert resumed.evaluation == whole.evaluation


def die_while_saving(config, out, step, monkeypatch):
    """After checkpoint and rows were written, before the state was."""
    write = checkpointing.save_state

    def fail(folder, state):
        if state["step"] == step:
            raise KeyboardInterrupt
        write(folder, state)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpointing, "save_state", fail)
        train(config, out)


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_observing_saturation_and_updates_changes_nothing(plain, tmp_path):
    """Scaling parameters to measure, and watching updates, change not one bit of the run."""
    watched = train(config_of(saturation="every:20", monitor="every:10"), tmp_path, scan=True)
    numbers = scalars(watched.run)
    limit = {key: numbers.pop(key) for key in list(numbers) if key[1].startswith("saturated_")}
    assert {step for step, _ in limit} == {0, 20, 40}  # what was measured in the saturated network
    assert numbers == scalars(plain.run)
    assert contents(watched.checkpoints) == contents(plain.checkpoints)
    with Run(watched.run) as run:
        layers, heads, weights = (run.table(kind) for kind in (SaturationRow, HeadRow, WeightRow))
        logits, states = (run.table(kind) for kind in (AttentionRow, ActivationRow))
        probes = set(run.artifacts(LIVE_PROBES))
    assert probes == {"0", "20", "40"}
    for table in (layers, heads, logits, states):
        assert set(table["step"]) == {0, 20, 40}
    assert len(heads) == len(logits) == 3 * 2
    measured = set(zip(weights["step"], weights["prev_step"], strict=True))
    assert {(10, 9), (40, 39)} <= measured  # live: one step
    assert {(1, 0), (2, 1), (40, 32)} <= measured  # from the checkpoints
    total = sum(w["sumsq"] for w in weights if w["step"] == 40 and w["prev_step"] == 32)
    assert math.sqrt(total) == pytest.approx(watched.norm_end, rel=1e-7)


def test_record_schedule_is_kept(tmp_path):
    result = train(replace(config_of(), record=Every(10)), tmp_path)
    assert [step for step, name in scalars(result.run) if name == "loss"] == [10, 20, 30, 40]
