"""network=…, batch=…: the whole network measured between two steps, and the training left as it was."""

from __future__ import annotations

import copy
import logging
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import normscope as ns
from normscope.errors import UsageError
from normscope.network.measuring.joint import saturation_and_heads
from normscope.network.recording import StudyRecord
from normscope.rows import LIVE_PROBES
from tests.live.test_training_attention import Sdpa, batches, made, step
from tests.network.models import HandWritten

PROBE = batches(1)[0]


class Restless(Sdpa):
    """Changes a buffer in every forward, draws random numbers, and has batch statistics."""

    def __init__(self) -> None:
        super().__init__(dropout=0.1)
        self.batch_norm = nn.BatchNorm1d(50)
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls.add_(torch.rand(3) + random.random() + np.random.rand())
        return self.batch_norm(super().forward(tokens).flatten(0, 1))


class Merging(Sdpa):
    """Changes its parameters when it is told to evaluate, as some LoRA layers do."""

    def train(self, mode: bool = True) -> Merging:
        if not mode:
            self.head.weight.data.add_(1.0)
        return super().train(mode)


def everything(model: nn.Module) -> list[Any]:
    tensors = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())]
    hooks = [(list(m._forward_hooks), list(m._forward_pre_hooks)) for m in model.modules()]
    return [
        [t.detach().clone() for t in tensors if t is not None] + [torch.get_rng_state()],
        [m.training for m in model.modules()],
        [t._version for t in model.parameters()],
        hooks,
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        random.getstate(),
        np.random.get_state()[1].tolist(),
    ]


def rows(path: Path, kind: type[Any]) -> list[Any]:
    with ns.Run(path) as run:
        return [kind(**values) for values in run.table(kind)]


def steps_of(path: Path, table: str) -> list[int]:
    with ns.Run(path) as run:
        return [row[0] for row in run.query(f"SELECT DISTINCT step FROM {table} ORDER BY step")]


def test_a_probe_leaves_everything_as_it_was(tmp_path: Path) -> None:
    for build in (Restless, Merging):
        model, optimizer = made(build)
        model.layers[0].eval()  # one part is not in training mode, and stays so
        path = tmp_path / f"{build.__name__}.db"
        monitor = ns.Monitor(model, optimizer, path, network=ns.at_steps([0, 2]), batch=PROBE)
        step(model, optimizer, PROBE)
        loss = model(PROBE).square().mean()
        loss.backward(retain_graph=True)
        before = everything(model)
        monitor._watch._network.after(2, False, monitor._publisher)
        after = everything(model)
        assert all(torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True))
        assert before[1:] == after[1:]
        loss.backward()  # the graph that was kept is still good
        monitor.close()
        assert steps_of(path, "saturation") == [0, 2]


def test_training_is_the_same_to_the_bit(tmp_path: Path) -> None:
    results = []
    for path in (None, tmp_path / "run.db"):
        random.seed(0)
        np.random.seed(0)
        model, optimizer = made(Restless)
        monitor = ns.Monitor(model, optimizer, path, network=ns.every(2), batch=PROBE) if path else None
        losses = [step(model, optimizer, tokens) for tokens in batches(4)]
        if monitor is not None:
            monitor.close()
        results.append([*losses, *model.parameters(), *model.buffers(), torch.get_rng_state()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_rows_are_those_of_the_measurements_themselves(tmp_path: Path) -> None:
    model, optimizer = made(HandWritten)
    with ns.Monitor(model, optimizer, tmp_path / "run.db", network=ns.at_steps([2]), batch=PROBE):
        for tokens in batches(2):
            step(model, optimizer, tokens)
        then = copy.deepcopy(model)
        step(model, optimizer, PROBE)
    layers, heads = saturation_and_heads(then, [PROBE])
    found = rows(tmp_path / "run.db", ns.SaturationRow)
    assert {row.step for row in found} == {2}
    assert [(r.module, r.cosine, r.scale) for r in found] == [
        (r.module, pytest.approx(r.cosine, abs=1e-6), r.scale)
        for r in sorted(layers.layers, key=lambda r: r.module)
    ]
    kinds = [(r.module, r.head, r.type) for r in rows(tmp_path / "run.db", ns.HeadRow)]
    assert kinds == [(r.module, r.head, r.type) for r in heads.heads]


def test_norms_of_residual_stream_and_output(tmp_path: Path) -> None:
    model, optimizer = made(HandWritten)
    tokens = {"ids": PROBE}
    with ns.Monitor(model, optimizer, tmp_path / "run.db", network=ns.at_steps([0]), batch=tokens):
        x = model.double().embed(PROBE) + model.position[:9]
        states = {"blocks.input": x}
        for i, block in enumerate(model.blocks):
            x = states[f"blocks.{i}"] = block(x)
        model.float()
        step(model, optimizer, PROBE)
    states["output"] = x
    found = {row.module: row for row in rows(tmp_path / "run.db", ns.ActivationRow)}
    assert found.keys() == states.keys()
    for module, value in states.items():
        mean = sum(float(v.norm()) for v in value.detach().flatten(0, 1)) / 27
        assert found[module].norm == pytest.approx(mean, rel=1e-5)
        assert found[module].tokens == 27
    assert [found[m].layer for m in ("blocks.input", "blocks.0", "blocks.1")] == [0, 1, 2]
    assert {m: found[m].kind for m in ("output", "blocks.0")} == {"output": "output", "blocks.0": "residual"}


def test_a_batch_is_whatever_the_model_takes_and_is_copied(tmp_path: Path) -> None:
    found = []
    for i, batch in enumerate([PROBE, (PROBE,), {"tokens": PROBE}, ns.Batch((PROBE,)), [{"tokens": PROBE}]]):
        model, optimizer = made(Sdpa)
        given = copy.deepcopy(batch)
        path = tmp_path / f"{i}.db"
        with ns.Monitor(model, optimizer, path, network=ns.at_steps([0]), batch=given):
            tensor = given if isinstance(given, Tensor) else None
            if tensor is not None:
                tensor.zero_()
            step(model, optimizer, PROBE)
        found.append([(r.module, r.head, r.logit, r.entropy) for r in rows(path, ns.AttentionRow)])
    assert len(found[0]) == 4
    assert all(other == found[0] for other in found)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"network": ns.every(5)}, "network needs a batch"),
        ({"batch": PROBE}, "say when to measure"),
        ({"network": 500, "batch": PROBE}, r"such as ns.every\(500\)"),
        ({"network": ns.every(5), "batch": 3}, "a batch must be a dict"),
        ({"attention": "watch"}, 'attention must be "observe"'),
    ],
)
def test_options_that_cannot_be_used(options: Any, sentence: str, tmp_path: Path) -> None:
    model, optimizer = made(Sdpa)
    with pytest.raises(UsageError, match=sentence):
        ns.Monitor(model, optimizer, tmp_path / "run.db", **options)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "normscope"]


def test_a_probe_that_fails_is_said_once_and_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = made(Sdpa)
    wrong = torch.full((2, 5), 99)  # not in the vocabulary
    watched = ns.Monitor(model, optimizer, tmp_path / "run.db", ns.every(1), network=ns.every(1), batch=wrong)
    with caplog.at_level(logging.WARNING), watched:
        for tokens in batches(3):
            step(model, optimizer, tokens)
    assert steps_of(tmp_path / "run.db", "weight") == [0, 1, 2, 3]
    assert steps_of(tmp_path / "run.db", "attention") == []
    with ns.Run(tmp_path / "run.db") as run:
        assert "index out of range" in run.meta["monitor.network"]
    assert sum("saturation was not measured" in text for text in said(caplog)) == 1


def test_where_there_is_no_attention_the_rest_comes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = made(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)))
    probe = torch.randn(2, 5, 4)
    watched = ns.Monitor(model, optimizer, tmp_path / "run.db", network=ns.every(1), batch=probe)
    with caplog.at_level(logging.WARNING), watched:
        for _ in range(3):
            step(model, optimizer, probe)
    assert [row.kind for row in rows(tmp_path / "run.db", ns.ActivationRow)] == ["output"] * 4
    assert steps_of(tmp_path / "run.db", "attention") == []
    assert sum("no attention was seen" in text for text in said(caplog)) == 1


@pytest.mark.slow
def test_resuming_deletes_later_probes_and_keeps_what_saturate_measured(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    model, optimizer = made(Sdpa)
    with ns.Monitor(model, optimizer, path, ns.every(1), network=ns.every(1), batch=PROBE) as monitor:
        for tokens in batches(4):
            step(model, optimizer, tokens)
        monitor.flush()
        layer = ns.LayerSaturation("layers.0", 1, 0.5, 0.1, 9, 1024.0, converged=True)
        result = ns.SaturationAndHeads(ns.Saturation((layer,)), ns.Heads(()))
        with ns.Run.create(path) as run:  # as `saturate` does on the checkpoint of step 3
            StudyRecord(run, {}).save(SimpleNamespace(stage="", step=3), {}, result, ())
        monitor.load_state_dict({"step": 1})
        step(model, optimizer, PROBE)
    assert steps_of(path, "attention") == steps_of(path, "activation") == [0, 1, 2]
    assert steps_of(path, "saturation") == [0, 1, 2, 3]
    assert steps_of(path, "head") == [0, 1, 2]
    with ns.Run(path) as run:
        assert sorted(run.artifacts(LIVE_PROBES)) == ["0", "1", "2"]
    with ns.Monitor(model, optimizer, path, ns.every(1), step=2, network=ns.every(1), batch=PROBE):
        step(model, optimizer, PROBE)
    assert [(r.module, r.cosine) for r in rows(path, ns.SaturationRow) if r.step == 3] == [("layers.0", 0.5)]
    assert steps_of(path, "attention") == [0, 1, 2, 3]


def test_a_training_may_begin_again_in_a_file_with_probes(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    for options in ({"network": ns.every(1), "batch": PROBE}, {}):
        model, optimizer = made(Sdpa)
        with ns.Monitor(model, optimizer, path, ns.every(1), **options):
            step(model, optimizer, PROBE)
    for table in ("saturation", "head", "attention", "activation"):
        assert steps_of(path, table) == []


@pytest.mark.slow
def test_compiled_models_are_probed_without_compiling_again(tmp_path: Path) -> None:
    torch._dynamo.reset()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    model, _ = made(Sdpa)
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    with ns.Monitor(compiled, optimizer, tmp_path / "run.db", network=ns.at_steps([0, 3]), batch=PROBE):
        for tokens in batches(3):
            step(compiled, optimizer, tokens)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 1
    torch._dynamo.reset()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    with ns.Monitor(plain, optimizer, tmp_path / "plain.db", network=ns.at_steps([0, 3]), batch=PROBE):
        for tokens in batches(3):
            step(plain, optimizer, tokens)
    one, two = (rows(tmp_path / name, ns.AttentionRow) for name in ("run.db", "plain.db"))
    assert len(one) == 8
    assert [(r.module, r.head) for r in one] == [(r.module, r.head) for r in two]
    assert [r.logit for r in one] == pytest.approx([r.logit for r in two], rel=1e-5)


def test_loggers_get_the_numbers(tmp_path: Path) -> None:
    seen: dict[str, float] = {}
    model, optimizer = made(Sdpa)
    options: Any = {"network": ns.at_steps([1]), "batch": PROBE, "loggers": [lambda v, at: seen.update(v)]}
    with ns.Monitor(model, optimizer, tmp_path / "run.db", ns.every(1), **options) as monitor:
        step(model, optimizer, PROBE)
        monitor.flush()
    largest = max(row.logit for row in rows(tmp_path / "run.db", ns.AttentionRow))
    assert seen["normscope/attention/largest-logit"] == largest
    assert {"normscope/saturation/mean", "normscope/output/norm", "normscope/residual/last"} <= seen.keys()
