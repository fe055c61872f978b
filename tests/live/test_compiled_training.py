"""Compiled training loops: Dynamo does not trace the monitor, and the rows are those of an eager loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch._dynamo.compiled_autograd import _enable
from torch._dynamo.utils import counters

from normscope.live.monitor import Monitor
from normscope.run import Run
from normscope.schedule import every

BACKEND = "eager"


class Loop:
    """A small training, of which parts may be compiled."""

    def __init__(self, clip: bool = True) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).double()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.batches = [torch.randn(4, 8, dtype=torch.float64) for _ in range(4)]
        self.limit = 1e-3 if clip else 1e9

    def backward(self, x: Tensor) -> None:
        self.model(x).square().mean().backward()

    def clip(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)

    def whole(self, x: Tensor) -> None:
        self.backward(x)
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad()


def eager(loop: Loop) -> None:
    for x in loop.batches:
        loop.whole(x)


def compiled_step(loop: Loop) -> None:
    step = torch.compile(loop.optimizer.step, backend=BACKEND)
    for x in loop.batches:
        loop.backward(x)
        loop.clip()
        step()
        loop.optimizer.zero_grad()


def compiled_whole(loop: Loop) -> None:
    whole = torch.compile(loop.whole, backend=BACKEND)
    for x in loop.batches:
        whole(x)


def compiled_model(loop: Loop) -> None:
    loop.model = torch.compile(loop.model, backend=BACKEND)
    eager(loop)


def compiled_autograd(loop: Loop, fullgraph: bool = False) -> None:
    for x in loop.batches:
        with _enable(torch.compile(backend=BACKEND, fullgraph=fullgraph)):
            loop.backward(x)
        loop.clip()
        loop.optimizer.step()
        loop.optimizer.zero_grad()


def compiled_autograd_full_graph(loop: Loop) -> None:
    compiled_autograd(loop, fullgraph=True)


def compiled_autograd_by_setting(loop: Loop) -> None:
    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled_whole(loop)


WITHOUT_CALLBACKS = (compiled_autograd, compiled_autograd_full_graph, compiled_autograd_by_setting)
LOOPS = (compiled_step, compiled_whole, compiled_model, *WITHOUT_CALLBACKS)
QUICK = (compiled_step, compiled_model, compiled_autograd)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def trained(run: Callable[[Loop], None], path: Path | None, clip: bool) -> tuple[list[float], dict[str, Any]]:
    """The parameters after training, and what Dynamo counted."""
    torch._dynamo.reset()
    counters.clear()
    loop = Loop(clip)
    monitor = Monitor(loop.model, loop.optimizer, path, every(1), spectral=True) if path else None
    run(loop)
    if monitor is not None:
        monitor.close()
    return [float(p.norm()) for p in loop.model.parameters()], {k: dict(v) for k, v in counters.items()}


def values(path: Path) -> list[tuple[float, ...]]:
    columns = "step, tensor, sumsq, dot, sumsq_delta, grad_sumsq, grad_dot, lr"
    with Run(path) as run:
        return run.query(f"SELECT {columns} FROM weight WHERE step > 0 ORDER BY step, tensor")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "run",
    [pytest.param(run, marks=() if run in QUICK else pytest.mark.slow, id=run.__name__) for run in LOOPS],
)
def test_the_same_training_and_the_same_rows(
    tmp_path: Path, run: Callable[[Loop], None], caplog: pytest.LogCaptureFixture
) -> None:
    clip = run not in WITHOUT_CALLBACKS
    bare, without = trained(run, None, clip)
    watched, with_monitor = trained(run, tmp_path / "run.db", clip)
    assert watched == bare
    assert not [name for name in with_monitor.get("graph_break", ()) if "normscope" in name]
    assert with_monitor.get("stats") == without.get("stats")
    frames, before = (counted.get("frames", {}).get("total", 0) for counted in (with_monitor, without))
    assert frames <= before + 3
    trained(eager, tmp_path / "eager.db", clip)
    found, expected = values(tmp_path / "run.db"), values(tmp_path / "eager.db")
    assert len(found) == len(expected) == 16
    for row, other in zip(found, expected, strict=True):
        assert row == pytest.approx(other, rel=1e-4)  # a compiled AdamW divides in another order
    said = [record.getMessage() for record in caplog.records if record.name == "normscope"]
    assert all("measured when optimizer.step begins" in text for text in said)
    assert not said or run in WITHOUT_CALLBACKS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_default_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.live.test_compiled_training.BACKEND", "inductor")
    for number, run in enumerate((compiled_step, compiled_model)):
        bare, without = trained(run, None, clip=True)
        watched, with_monitor = trained(run, tmp_path / f"{number}.db", clip=True)
        assert watched == bare
        assert with_monitor["stats"] == without["stats"]
        assert len(values(tmp_path / f"{number}.db")) == 16
