"""A live model's modules say what its tensors are; the file of the same model gets the same body."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from normscope.live.monitor import Monitor
from normscope.run import Run
from normscope.theory.measures.measures import group
from normscope.weights.scan.scan import scan


class RootScale(nn.Module):
    """A norm of someone's own, known only by the end of its class's name."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.s * x / x.pow(2).mean(-1, keepdim=True).sqrt()


class RootScaleNorm(RootScale):
    """The same, by a telling name."""


class Odd(nn.Module):
    """A transformer with names that say nothing."""

    def __init__(self, vocabulary: int, width: int, layers: int, tied: bool = False) -> None:
        super().__init__()
        self.zub = nn.Embedding(vocabulary, width)
        self.kro = nn.ModuleList(self._block(width) for _ in range(layers))
        self.lim = RootScaleNorm(width)
        self.wex = nn.Linear(width, vocabulary, bias=not tied)
        if tied:
            self.wex.weight = self.zub.weight

    def _block(self, width: int) -> nn.ModuleDict:
        parts = {"ova": (width, width), "uda": (width, 3 * width), "ipa": (width, 4 * width)}
        block = nn.ModuleDict({name: nn.Linear(*shape) for name, shape in parts.items()})
        block["epa"] = nn.Linear(4 * width, width)
        block["nil"] = nn.LayerNorm(width)
        return block

    def forward(self, x: Tensor) -> Tensor:
        h = self.zub(x)
        for block in self.kro:
            h = h + block["ova"](block["nil"](h)) + block["epa"](block["ipa"](h)) + block["uda"](h).mean()
        out: Tensor = self.wex(self.lim(h))
        return out


def body_norm(path: Path) -> float:
    with Run(path) as run:
        return float(group(run, scope="body").measure("norm")[0, 0])


def roles(path: Path) -> dict[str, str]:
    with Run(path) as run:
        return {tensor.name: tensor.role for tensor in run.tensors()}


def watched(model: nn.Module, folder: Path) -> Path:
    """Train one step under a monitor, and save the model as it was before."""
    torch.save(model.state_dict(), folder / "step_0.pt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, folder / "live.db"):
        model(torch.arange(6)[None]).square().mean().backward()
        optimizer.step()
    return folder / "live.db"


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("vocabulary", "width", "layers"), [(50, 16, 3), (64, 16, 2), (257, 24, 1)])
def test_body_is_the_same_live_and_scanned(tmp_path, vocabulary, width, layers, tied):
    torch.manual_seed(0)
    model = Odd(vocabulary, width, layers, tied)
    body = [p for name, p in model.named_parameters() if name.split(".")[0] not in ("zub", "wex")]
    expected = float(torch.cat([p.detach().double().flatten() for p in body]).norm())
    live = watched(model, tmp_path)
    scan(tmp_path / "step_0.pt", run=tmp_path / "run.db").close()
    assert body_norm(live) == pytest.approx(expected, rel=1e-6)
    assert body_norm(tmp_path / "run.db") == pytest.approx(expected, rel=1e-6)


def test_classes_say_what_names_do_not(tmp_path):
    """Even where the vocabulary is as long as the model is wide, which no shape can tell."""
    found = roles(watched(Odd(32, 32, 2), tmp_path))
    assert found["zub.weight"] == "embedding"
    assert {found["lim.s"], found["kro.0.nil.weight"], found["kro.1.nil.bias"]} == {"norm"}


def test_the_head_is_as_long_as_the_vocabulary(tmp_path):
    """Where the MLP is as long as the vocabulary, the head is the one outside the layers."""
    found = roles(watched(Odd(64, 16, 3), tmp_path))
    assert (found["wex.weight"], found["wex.bias"]) == ("head", "head")
    assert found["kro.0.ipa.weight"] == "other"
