"""Constraints: they hold after every update, also in a resumed run, and do nothing else."""

import pytest
import torch
from torch import nn

import normscope as ns
from normscope.errors import TrainingError, UsageError
from normscope.lab.config import TrainConfig, override
from normscope.lab.optimizing.constraints import FixedNorm, SpectralCap
from normscope.lab.optimizing.parameter_norms import body_parameters
from normscope.lab.training.checkpointing import load_model
from normscope.run import Run
from tests.lab import own_parts
from tests.lab.own_parts import SMALL

STRONG = {"lr": 0.05, "weight_decay": 0.5}


def config_of(**changes):
    return override(TrainConfig(), SMALL | {"steps": 12, "save": "every:4", **STRONG} | changes)


def slow_norm(tensors):
    return sum(float(x) ** 2 for t in tensors for x in t.detach().double().flatten()) ** 0.5


MEASURED = {
    "fixed-norm": lambda model: [slow_norm(model.parameters())],
    "fixed-body-norm": lambda model: [slow_norm(body_parameters(model))],
    "fixed-tensor-norm": lambda model: [slow_norm([p]) for p in model.parameters() if p.dim() >= 2],
}


class Watch(ns.Callback):
    """Measures the model at the start and after every step; can interrupt the run."""

    def __init__(self, measure, stop=None):
        self.measure, self.stop, self.seen = measure, stop, []

    def on_start(self, trainer):
        self.seen.append(self.measure(trainer.model))

    def on_step(self, trainer):
        self.seen.append(self.measure(trainer.model))
        if trainer.step == self.stop:
            raise KeyboardInterrupt


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
@pytest.mark.parametrize("name", MEASURED)
def test_the_norm_stays_what_it_was(name, optimizer, tmp_path):
    watch = Watch(MEASURED[name])
    ns.train(config_of(constraint=name, optimizer=optimizer, lr=0.01), tmp_path, callbacks=[watch])
    assert len(watch.seen) == 13
    for norms in watch.seen[1:]:
        assert norms == pytest.approx(watch.seen[0], rel=1e-6)


@pytest.mark.parametrize("name", [*MEASURED, "spectral-cap:0.3"])
def test_a_resumed_run_keeps_its_constraint(name, tmp_path):
    config = config_of(constraint=name)
    measure = MEASURED.get(name, lambda model: [0.0])
    whole, first, second = Watch(measure), Watch(measure, stop=7), Watch(measure)
    straight = ns.train(config, tmp_path / "whole", callbacks=[whole])
    with pytest.raises(KeyboardInterrupt):
        ns.train(config, tmp_path / "killed", callbacks=[first])
    resumed = ns.train(config, tmp_path / "killed", callbacks=[second])
    assert (resumed.loss, resumed.norm_end) == (straight.loss, straight.norm_end)
    assert second.seen == whole.seen[4:]
    for norms in second.seen:
        assert norms == pytest.approx(whole.seen[0], rel=1e-6)


def test_without_a_constraint_the_norm_does_not_stay(tmp_path):
    watch = Watch(MEASURED["fixed-norm"])
    ns.train(config_of(), tmp_path, callbacks=[watch])
    assert watch.seen[-1] != pytest.approx(watch.seen[0], rel=1e-2)


def test_a_projection_keeps_the_direction():
    layer = nn.Linear(3, 3)
    constraint = FixedNorm("fixed-norm", torch.float32)
    constraint.start(layer)
    before = [p.detach().clone() for p in layer.parameters()]
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(2.5)
    constraint.apply(layer)
    for p, q in zip(layer.parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), q)


def test_tensors_of_zeros_stay_zeros_and_a_lost_norm_is_an_error():
    layer = nn.Linear(3, 3)
    nn.init.zeros_(layer.weight)
    constraint = FixedNorm("fixed-tensor-norm", torch.float32)
    constraint.start(layer)
    nn.init.ones_(layer.weight)
    constraint.apply(layer)
    assert not layer.weight.any()
    constraint.load_state_dict([1.0])
    with pytest.raises(TrainingError, match="fixed-tensor-norm cannot hold: an update made all"):
        constraint.apply(layer)


def test_a_cap_cuts_large_singular_values_and_leaves_the_others():
    torch.manual_seed(0)
    layer = nn.Conv1d(4, 5, 3)
    layer.weight.data.normal_()
    bias, matrix = layer.bias.detach().clone(), layer.weight.detach().flatten(1).double()
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    cap = float(values[2])
    SpectralCap(cap).start(layer)
    after = layer.weight.detach().flatten(1).double()
    torch.testing.assert_close(torch.linalg.svdvals(after), values.clamp(max=cap), atol=1e-5, rtol=0)
    slow = sum(min(v, cap) * torch.outer(left[:, i], right[i]) for i, v in enumerate(values.tolist()))
    torch.testing.assert_close(after, slow, atol=1e-5, rtol=0)
    assert torch.equal(layer.bias, bias)
    once = layer.weight.detach().clone()
    SpectralCap(cap + 1e-3).apply(layer)
    assert torch.equal(layer.weight, once)  # nothing to cut: not one bit changes


def test_a_cap_holds_in_training(tmp_path):
    result = ns.train(config_of(constraint="spectral-cap:0.25"), tmp_path)
    for folder in sorted(result.checkpoints.iterdir()):
        model = load_model(folder)
        largest = max(
            float(torch.linalg.matrix_norm(p.detach(), 2)) for p in model.parameters() if p.dim() == 2
        )
        assert largest == pytest.approx(0.25, rel=1e-5)


def test_functions_and_objects_are_constraints(tmp_path):
    result = ns.train(config_of(constraint=own_parts.no_biases), tmp_path / "function")
    model = load_model(result.checkpoints / "step-000012")
    assert not any(p.any() for name, p in model.named_parameters() if name.endswith("bias"))
    for given in (own_parts.KeepMaximum, own_parts.KeepMaximum(), "tests.lab.own_parts:KeepMaximum"):
        watch = Watch(lambda model: [p.abs().max().item() for p in model.parameters()])
        out = tmp_path / f"object{len(list(tmp_path.iterdir()))}"
        ns.train(config_of(constraint=given), out, callbacks=[watch])
        assert all(a <= b for norms in watch.seen for a, b in zip(norms, watch.seen[0], strict=True))


class Lowered:
    """Scales by less in every step."""

    def start(self, model):
        self.calls = 0

    def apply(self, model):
        self.calls += 1
        for parameter in model.parameters():
            parameter.mul_(1 - 0.01 * self.calls)

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


def test_a_constraint_that_changes_over_time_is_resumed_with_its_state(tmp_path):
    measure = MEASURED["fixed-norm"]
    whole, first, rest = Watch(measure), Watch(measure, stop=6), Watch(measure)
    ns.train(config_of(constraint=Lowered), tmp_path / "whole", callbacks=[whole])
    with pytest.raises(KeyboardInterrupt):
        ns.train(config_of(constraint=Lowered), tmp_path / "broken", callbacks=[first])
    ns.train(config_of(constraint=Lowered), tmp_path / "broken", callbacks=[rest])
    assert 1 < len(rest.seen) < 13
    assert rest.seen[-1] == whole.seen[-1]


def test_a_norm_that_nothing_has_is_not_held():
    with pytest.raises(UsageError, match="has no effect"):
        FixedNorm("fixed-tensor-norm", torch.float32).start(nn.LayerNorm(4))


def test_the_monitor_sees_the_constrained_parameters(tmp_path):
    """Otherwise the norm that is recorded at a step would not be the one that the next step starts from."""
    for optimizer in ("adamw", "muon"):
        config = config_of(constraint="fixed-norm", monitor="every:1", optimizer=optimizer, save="never")
        result = ns.train(config, tmp_path / optimizer)
        with Run(result.run) as run:
            norms = run.query("SELECT step, SUM(sumsq) FROM weight GROUP BY step ORDER BY step")
        assert len(norms) == 13
        for _, squared in norms:
            assert squared**0.5 == pytest.approx(result.norm_start, rel=1e-6)


def test_half_precision_cannot_keep_a_norm(tmp_path):
    with pytest.raises(UsageError, match="fixed-norm needs dtype float32 or float64"):
        ns.train(config_of(constraint="fixed-norm", dtype="bfloat16"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
