"""A folder in which nothing was done is free again; what was there before stays."""

import pytest

import normscope as ns
from normscope.errors import ModelError, UsageError
from normscope.lab.config import TrainConfig, override
from normscope.lab.training import checkpointing
from tests.lab.at_once import AtOnce
from tests.lab.own_parts import SMALL, vector_loss
from tests.lab.test_train import contents


def config_of(**changes):
    return override(TrainConfig(), SMALL | {"steps": 4} | changes)


class Interrupt(ns.Callback):
    def __init__(self, step):
        self.step = step

    def on_start(self, trainer):
        if self.step == 0:
            raise KeyboardInterrupt

    def on_step(self, trainer):
        if trainer.step == self.step:
            raise KeyboardInterrupt


def test_a_folder_that_we_made_is_gone_and_its_parents_too(tmp_path):
    missing = str(tmp_path / "none.txt")
    for config in (config_of(text=missing), config_of(loss=vector_loss)):
        with pytest.raises((UsageError, ModelError), match="cannot read the text|scalar"):
            ns.train(config, tmp_path / "a" / "b", run=tmp_path / "c" / "run.db")
    with pytest.raises(KeyboardInterrupt):
        ns.train(config_of(), tmp_path / "a" / "b", callbacks=[Interrupt(0)])
    assert not list(tmp_path.iterdir())


def test_what_was_there_stays(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.csv").write_text("1,2")
    (tmp_path / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    for loss, max_length in ((vector_loss, None), (None, 3)):
        with pytest.raises((ModelError, UsageError)):
            ns.train(config_of(loss=loss, max_length=max_length), tmp_path)
        assert contents(tmp_path) == before
    with pytest.raises(UsageError):
        ns.sweep(ns.SweepConfig(config_of(), [{"max_length": 3}]), tmp_path)
    assert contents(tmp_path) == before


def test_the_folder_can_be_used_with_the_right_setting(tmp_path):
    with pytest.raises(UsageError, match="max_length must be at least 16"):
        ns.train(config_of(max_length=3), tmp_path / "out")
    assert ns.train(config_of(), tmp_path / "out").steps == 4


def test_one_step_is_enough_to_keep_it(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ns.train(config_of(save="every:1"), tmp_path / "out", callbacks=[Interrupt(1)])
    assert (tmp_path / "out" / "state.pt").exists()
    with pytest.raises(KeyboardInterrupt):  # resumed, and stopped before another step
        ns.train(config_of(save="every:1"), tmp_path / "out", callbacks=[Interrupt(0)])
    assert ns.train(config_of(save="every:1"), tmp_path / "out").steps == 4


def test_a_finished_run_is_not_touched_by_a_wrong_call(tmp_path):
    ns.train(config_of(), tmp_path)
    before = contents(tmp_path)
    for changes in ({"lr": 0.5}, {"text": "none.txt"}, {"max_length": 3}):
        with pytest.raises(UsageError):
            ns.train(config_of(**changes), tmp_path)
    assert contents(tmp_path) == before


def test_the_folder_of_another_process_is_not_touched(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpointing, "LOCK_TRIES", 1)
    out = tmp_path / "out"
    with checkpointing.lock_folder(out):
        (out / "config.json").write_text("{}")
        with pytest.raises(ns.NormscopeError, match="another process is working"):
            ns.train(config_of(), out)
        assert (out / "config.json").exists() and (out / ".lock").exists()


def test_a_sweep_of_another_base_leaves_the_first_alone(tmp_path):
    ns.sweep(ns.SweepConfig(config_of(save="never"), [{"lr": 1e-3}]), tmp_path, engine=AtOnce())
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="is a sweep of another base config"):
        ns.sweep(ns.SweepConfig(config_of(save="never", seed=3), [{"lr": 1e-3}]), tmp_path)
    assert contents(tmp_path) == before
