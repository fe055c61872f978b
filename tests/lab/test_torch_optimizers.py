"""Every optimizer of PyTorch by its name: its own updates, its own defaults, and its state after a kill."""

import inspect
from typing import get_args

import pytest
import torch
from torch import nn

import normscope as ns
from normscope.errors import UsageError
from normscope.lab.config import OptimizerConfig, TrainConfig, override
from normscope.lab.optimizer_names import OPTIONS, REFUSED, OptimizerName, takes_option
from normscope.lab.optimizing.muon import MuonWithAdamW
from normscope.lab.optimizing.optimizers import build_optimizer, optimizer_notes, set_learning_rate
from normscope.lab.sweep.sweep import sweep
from normscope.run import Run
from tests.lab.at_once import AtOnce
from tests.lab.own_parts import SMALL
from tests.lab.sweeping import small_sweep

NAMES = get_args(OptimizerName)
CLASSES = {
    kind.__name__.lower(): kind
    for kind in vars(torch.optim).values()
    if inspect.isclass(kind) and kind is not torch.optim.Optimizer
}


def test_the_names_are_those_of_pytorch():
    assert set(NAMES) == CLASSES.keys() - REFUSED.keys()


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - REFUSED.keys() - {"muon"}))
def test_updates_are_those_of_the_class(name):
    """With nothing set, PyTorch's own defaults; sgd has a momentum of 0.9 here."""
    torch.manual_seed(0)
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    config = OptimizerConfig(optimizer=CLASSES[name].__name__, lr=0.1, weight_decay=0.2)
    more = {"momentum": 0.9} if name == "sgd" else {}
    if name != "rprop":
        more["weight_decay"] = 0.2
    pair = build_optimizer(ours, config), CLASSES[name](theirs.parameters(), lr=0.1, **more)
    for _ in range(5):
        x = torch.randn(4, 3)
        for layer, optimizer in zip((ours, theirs), pair, strict=True):
            optimizer.zero_grad()
            layer(x).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(ours.bias, theirs.bias, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_options_reach_the_optimizer_or_are_refused(name, tmp_path):
    values = {"momentum": 0.25, "beta1": 0.5, "beta2": 0.75, "eps": 1e-3, "weight_decay": 0.125}
    layer = nn.Sequential(nn.Linear(3, 2), nn.Embedding(3, 2))
    for option, value in values.items():
        config = override(TrainConfig(), {"optimizer": name, option: value})
        if not takes_option(name, option):
            with pytest.raises(UsageError, match=f"{option} has no effect here: the chosen optimizer"):
                ns.train(config, tmp_path / "out")
            assert not (tmp_path / "out").exists()
            continue
        groups = build_optimizer(layer, config.optimization).param_groups
        found = [group.get(OPTIONS.get(option, option)) for group in groups]
        place = {"beta1": 0, "beta2": 1}.get(option)
        assert value in [each if place is None or each is None else each[place] for each in found]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LBFGS", "LBFGS evaluates the loss several times per step"),
        ("SparseAdam", "takes sparse gradients only"),
        ("Optimizer", "must be one of sgd"),
        ("lion", "must be one of sgd"),
    ],
)
def test_optimizers_that_cannot_be_used(name, words):
    with pytest.raises(UsageError, match=words):
        OptimizerConfig(optimizer=name)


class Kill(ns.Callback):
    def on_step(self, trainer):
        if trainer.step == 8:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_killed_run_goes_on_bit_for_bit(name, tmp_path):
    changes = SMALL | {"steps": 12, "save": "every:5", "optimizer": name}
    changes |= {"schedule": "cosine", "dropout": 0.1}
    config = override(TrainConfig(), changes | {"decayed": "all" if name == "rprop" else "matrices"})
    whole = ns.train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        ns.train(config, tmp_path / "killed", callbacks=[Kill()])
    resumed = ns.train(config, tmp_path / "killed")
    assert resumed.loss == whole.loss
    last = [torch.load(result.out / "state.pt", weights_only=True) for result in (whole, resumed)]
    for a, b in zip(*(torch.utils._pytree.tree_leaves(state) for state in last), strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_every_optimizer_can_be_swept_and_monitored(tmp_path):
    config = small_sweep(steps=3)
    cells = [{"optimizer": name, "monitor": "every:1"} for name in ("muon", "nadam", "rprop", "adagrad")]
    result = sweep(ns.SweepConfig(config.base, cells), tmp_path, engine=AtOnce())
    assert result.counts == {"done": 4}, result.cells
    decayed = {cell["changes"]["optimizer"]: cell["decayed"] for cell in result.cells}
    assert decayed == {"muon": 1.0, "nadam": 0.0, "rprop": 0.0, "adagrad": 0.0}


# -- Muon --------------------------------------------------------------------------------


def small_model():
    from normscope.lab.model import ModelConfig, Transformer

    torch.manual_seed(0)
    return Transformer(ModelConfig(d_model=8, n_layers=1, n_heads=2, d_ff=8, vocab_size=11))


def test_muon_updates_the_matrices_of_the_body_and_adamw_the_rest():
    model = small_model()
    optimizer = build_optimizer(model, OptimizerConfig(optimizer="Muon", weight_decay=0.1))
    notes = {note["kind"]: set(note["tensors"]) for note in optimizer_notes(model, optimizer)}
    assert notes["Muon"] == {
        n for n, p in model.named_parameters() if p.dim() == 2 and n.startswith("blocks")
    }
    assert notes["Muon"] | notes["AdamW"] == {name for name, _ in model.named_parameters()}
    assert not notes["Muon"] & notes["AdamW"]


def test_muon_without_matrices_is_refused():
    """It would be AdamW under another name."""
    with pytest.raises(UsageError, match="no matrices"):
        build_optimizer(torch.nn.LayerNorm(4), OptimizerConfig(optimizer="muon"))


def test_muon_with_adamw_equals_the_two_on_their_own():
    ours, theirs = small_model(), small_model()
    config = OptimizerConfig(optimizer="muon", lr=0.02, weight_decay=0.1)
    optimizer = build_optimizer(ours, config)
    matrices = [p for n, p in theirs.named_parameters() if p.dim() == 2 and n.startswith("blocks")]
    others = [p for p in theirs.parameters() if all(p is not m for m in matrices)]
    pair = [
        torch.optim.Muon(matrices, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=0.02, weight_decay=0.1, fused=True),
    ]
    ids = torch.arange(10).view(2, 5)
    for step in range(4):
        set_learning_rate(optimizer, 0.02 / (step + 1))
        for each in pair:
            set_learning_rate(each, 0.02 / (step + 1))
        for model, steps in ((ours, [optimizer]), (theirs, pair)):
            model.zero_grad()
            model(ids).square().mean().backward()
            for each in steps:
                each.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_state_of_both_is_saved_and_loaded():
    model = small_model()
    optimizer = build_optimizer(model, OptimizerConfig(optimizer="muon"))
    model(torch.arange(4).view(1, 4)).sum().backward()
    optimizer.step()
    again = build_optimizer(model, OptimizerConfig(optimizer="muon"))
    assert isinstance(again, MuonWithAdamW)
    again.load_state_dict(optimizer.state_dict())
    for part, other in zip(again.parts, optimizer.parts, strict=True):
        assert part.state is again.state
        assert all(group in again.param_groups for group in part.param_groups)
        assert len(other.state) == len(list(model.parameters()))
    set_learning_rate(again, 0.5)
    assert {group["lr"] for part in again.parts for group in part.param_groups} == {0.5}


def test_the_monitor_names_both(tmp_path):
    config = override(TrainConfig(), SMALL | {"optimizer": "muon", "steps": 3, "monitor": "every:1"})
    result = ns.train(config, tmp_path)
    with Run(result.run) as run:
        kinds = {row[0] for row in run.query("SELECT DISTINCT kind FROM optimizer")}
        tensors = run.query("SELECT step, COUNT(*) FROM weight WHERE lr NOT NULL GROUP BY step")
    assert kinds == {"Muon", "AdamW"}
    assert len({count for _, count in tensors}) == 1 and len(tensors) == 3
