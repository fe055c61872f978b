"""spectral=True: the rows of the run file against SVDs, and a training that is left as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_model
from torch import Tensor, nn

import normscope as ns
from normscope.errors import UsageError
from normscope.live.model.ranks import Ranks
from normscope.live.model.sharding import Layout
from normscope.live.spectral.matrix_shards import live_matrices
from normscope.live.spectral.spectral_watch import SpectralWatch

SQL = """
SELECT spectrum.step, name, part, spectral_norm, norm, stable_rank, method, detail
FROM spectrum JOIN tensor ON tensor.id = spectrum.tensor ORDER BY spectrum.step, name, part
"""


class Net(nn.Module):
    """An embedding and a head, two layers, a convolution, and a stack of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 24)
        layers = [nn.TransformerEncoderLayer(24, 2, 40, dropout=0.1, batch_first=True) for _ in range(2)]
        self.layers = nn.ModuleList(layers)
        self.mixing = nn.Conv1d(24, 24, 3, padding=1)
        self.experts_up = nn.Parameter(torch.randn(3, 24, 70) / 5)
        self.head = nn.Linear(24, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        x = x + self.mixing(x.transpose(1, 2)).transpose(1, 2)
        x = x + sum(each @ each.t() for each in self.experts_up).tanh()[None, : x.shape[1]].mean()
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), tokens.flatten())


def made(dtype: torch.dtype = torch.float32, lr: float = 1e-2) -> tuple[Net, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = Net().to(dtype)
    return net, torch.optim.AdamW(net.parameters(), lr=lr)


def step(net: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    tokens = torch.randint(0, 16, (4, 9), generator=torch.Generator().manual_seed(number))
    optimizer.zero_grad()
    net(tokens).backward()
    optimizer.step()


def truth(net: nn.Module) -> dict[tuple[str, int], float]:
    """The largest singular value of every matrix, in float64: an independent, slow computation."""
    found = {}
    for name, p in net.named_parameters():
        wide = p.detach().double()
        if name.startswith(("embedding", "head")) or p.ndim < 2:
            continue
        if name == "experts_up":
            found |= {(name, i): torch.linalg.svdvals(wide[i])[0].item() for i in range(3)}
        elif p.ndim == 3:
            found[name, -1] = max(torch.linalg.svdvals(wide[:, :, i])[0].item() for i in range(p.shape[2]))
        else:
            found[name, -1] = torch.linalg.svdvals(wide)[0].item()
    return found


def rows(path: Path) -> dict[int, dict[tuple[str, int], dict[str, Any]]]:
    found: dict[int, dict[tuple[str, int], dict[str, Any]]] = {}
    with ns.Run(path) as run:
        for at, name, part, value, norm, rank, method, detail in run.query(SQL):
            detail = json.loads(detail)
            row = {"value": value, "norm": norm, "stable_rank": rank, "method": method, **detail}
            found.setdefault(at, {})[name, part] = row
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_the_values_of_an_svd(tmp_path: Path, dtype: torch.dtype) -> None:
    net, optimizer = made(dtype)
    with ns.Monitor(net, optimizer, tmp_path / "run.db", ns.every(1), spectral=True):
        known = {0: truth(net)}
        for number in range(1, 13):
            step(net, optimizer, number)
            known[number] = truth(net)
    found = rows(tmp_path / "run.db")
    assert found.keys() == known.keys()
    converged = 0
    for at, expected in known.items():
        assert found[at].keys() == expected.keys()
        for key, row in found[at].items():
            assert row["method"] == "power"
            assert abs(row["value"] - expected[key]) <= row["error"]["spectral_norm"] + 1e-12, (at, key)
            if row["converged"]:
                converged += 1
                assert row["value"] == pytest.approx(expected[key], rel=1e-5)
            assert row["value"] == pytest.approx(expected[key], rel=2e-2)
            assert row["stable_rank"] == pytest.approx(row["norm"] ** 2 / row["value"] ** 2)
    assert all(row["converged"] for row in found[0].values())
    assert converged > len(found[0])
    weight = net.get_parameter("layers.0.linear1.weight")
    norm = found[12]["layers.0.linear1.weight", -1]["norm"]
    assert norm == pytest.approx(weight.detach().double().norm().item(), rel=1e-6)


def test_training_is_the_same_to_the_bit(tmp_path: Path) -> None:
    results = []
    for path in (None, tmp_path / "run.db"):
        net, optimizer = made()
        monitor = ns.Monitor(net, optimizer, path, ns.every(1), spectral=True) if path else None
        for number in range(1, 5):
            step(net, optimizer, number)
        if monitor is not None:
            monitor.close()
        gradients = [p.grad for p in net.parameters() if p.grad is not None]
        versions = torch.tensor([p._version for p in net.parameters()])
        results.append([*net.parameters(), *gradients, torch.get_rng_state(), versions])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_what_a_training_allows_for_its_own_products_is_not_used(tmp_path: Path) -> None:
    net, optimizer = made()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with (
            ns.Monitor(net, optimizer, tmp_path / "run.db", ns.every(1), spectral=True),
            torch.autocast("cpu", dtype=torch.bfloat16),
        ):
            step(net, optimizer, 1)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    (first, _) = rows(tmp_path / "run.db").values()
    fresh = truth(made()[0])
    assert {key: row["value"] for key, row in first.items()} == pytest.approx(fresh, rel=1e-5)


def test_a_schedule_of_its_own(tmp_path: Path) -> None:
    net, optimizer = made()
    options = {"spectral": ns.every(2)}
    with ns.Monitor(net, optimizer, tmp_path / "run.db", ns.at_steps([3]), **options):  # type: ignore[arg-type]
        for number in range(1, 6):
            step(net, optimizer, number)
    assert list(rows(tmp_path / "run.db")) == [0, 2, 4]


def test_not_a_number_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    net, optimizer = made()
    seen: list[dict[str, float]] = []
    options: dict[str, Any] = {"spectral": True, "loggers": [lambda values, at: seen.append(dict(values))]}
    with ns.Monitor(net, optimizer, tmp_path / "run.db", ns.every(1), gradients=False, **options):
        step(net, optimizer, 1)
        kept = net.mixing.weight.detach().clone()
        with torch.no_grad():
            net.layers[0].linear1.weight[0, 0] = float("nan")
        net.experts_up.grad = None
        optimizer.zero_grad()
        optimizer.step()
        with torch.no_grad():
            net.layers[0].linear1.weight[0, 0] = 0.0
        optimizer.step()
        expected = truth(net)
    found = rows(tmp_path / "run.db")
    broken = found[2].pop(("layers.0.linear1.weight", -1))
    assert (broken["method"], broken["value"], broken["note"]) == (
        "none",
        None,
        "it has NaN or infinite values",
    )
    assert all(row["method"] == "power" for row in found[2].values())
    assert found[3]["layers.0.linear1.weight", -1]["value"] == pytest.approx(
        expected["layers.0.linear1.weight", -1], rel=1e-5
    )
    assert torch.equal(kept, net.mixing.weight)
    largest = [values[key] for values in seen if (key := "normscope/spectral-norm/largest") in values]
    assert largest[0] == pytest.approx(max(row["value"] for row in found[0].values()))
    assert [value == value for value in largest] == [True, True, False, True]


def test_resuming_deletes_what_came_later(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    net, optimizer = made()
    with ns.Monitor(net, optimizer, path, ns.every(1), spectral=True) as monitor:
        for number in range(1, 5):
            step(net, optimizer, number)
        monitor.load_state_dict({"step": 2})
        monitor.flush()
        assert list(rows(path)) == [0, 1, 2]
        with ns.Run(path) as run:
            assert {at for (at,) in run.query("SELECT step FROM measure")} == {0, 1, 2}
    with ns.Monitor(net, optimizer, path, ns.every(1), step=2, spectral=True):
        step(net, optimizer, 9)
    assert list(rows(path)) == [0, 1, 2, 3]
    assert all(row["converged"] for row in rows(path)[3].values())  # looked at anew


def test_a_checkpoint_of_the_same_step_wins(tmp_path: Path) -> None:
    path, folder = tmp_path / "run.db", tmp_path / "checkpoints"
    net, optimizer = made()
    with ns.Monitor(net, optimizer, path, ns.every(1), spectral=True):
        for number in range(1, 5):
            step(net, optimizer, number)
            if number in (2, 4):
                (folder / f"checkpoint-{number}").mkdir(parents=True)
                save_model(net, str(folder / f"checkpoint-{number}" / "model.safetensors"))
    ns.spectrum(folder, path)
    found = rows(path)
    methods = {at: {row["method"] for row in each.values()} for at, each in found.items()}
    assert methods == {0: {"power"}, 1: {"power"}, 2: {"exact"}, 3: {"power"}, 4: {"exact"}}
    with ns.Monitor(net, optimizer, path, ns.every(1), step=3, spectral=True):
        step(net, optimizer, 5)
    assert {row["method"] for row in rows(path)[4].values()} == {"exact"}
    with ns.Run(path) as run:
        assert run.query("SELECT count(*) FROM measure WHERE name = 'alpha' AND step = 4")[0][0] > 0
    curve = ns.series(path, measure="spectral-norm", by="layer")
    assert {series.steps.tolist()[-1] for series in curve} == {4}


def test_fits_take_the_live_values(tmp_path: Path) -> None:
    net, optimizer = made(lr=1e-3)
    with ns.Monitor(net, optimizer, tmp_path / "run.db", ns.every(1), spectral=True):
        for number in range(1, 15):
            step(net, optimizer, number)
    (curve,) = ns.series(tmp_path / "run.db", measure="spectral-norm")
    assert len(curve.steps) > 8
    assert ns.fit_growth(tmp_path / "run.db", measure="spectral-norm").points == len(curve.steps)


def test_a_changed_model_is_followed(tmp_path: Path) -> None:
    net, optimizer = made()
    with ns.Monitor(net, optimizer, tmp_path / "run.db", ns.every(1), spectral=True):
        step(net, optimizer, 1)
        net.more = nn.Linear(24, 24)
        optimizer.add_param_group({"params": list(net.more.parameters())})
        step(net, optimizer, 2)
        expected = torch.linalg.svdvals(net.more.weight.detach().double())[0].item()
    found = rows(tmp_path / "run.db")
    assert found[2]["more.weight", -1]["value"] == pytest.approx(expected, rel=1e-5)
    assert found[2].keys() - found[1].keys() == {("more.weight", -1)}


def test_an_error_never_ends_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    net, optimizer = made()
    with ns.Monitor(net, optimizer, tmp_path / "run.db", ns.every(1), spectral=True):
        step(net, optimizer, 1)
        monkeypatch.setattr(SpectralWatch, "_cut", lambda *_: 1 / 0)
        step(net, optimizer, 2)
        monkeypatch.undo()
        step(net, optimizer, 3)
        expected = truth(net)
    assert "measuring spectral norms failed, training goes on" in caplog.text
    found = rows(tmp_path / "run.db")
    assert list(found) == [0, 1, 3]
    assert {key: row["value"] for key, row in found[3].items()} == pytest.approx(expected, rel=1e-5)


def test_what_is_not_measured_is_named(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.Parameter(torch.randn(300, 4, 70))
            self.waves = nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))
            self.plain = nn.Linear(5, 6)

        def forward(self) -> Tensor:
            return self.experts.square().sum() + self.waves.abs().sum() + self.plain.weight.sum()

    net = Odd()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with ns.Monitor(net, optimizer, tmp_path / "run.db", ns.every(1), spectral=True):
        net().backward()
        optimizer.step()
    with ns.Run(tmp_path / "run.db") as run:
        note = run.meta["monitor.spectral"]
    assert "experts: a stack of 300 matrices; at most 256 are measured" in note
    assert "waves: complex matrices are not measured" in note
    assert set(rows(tmp_path / "run.db")[1]) == {("plain.weight", -1)}


@pytest.mark.parametrize("given", [1, "every:10", None, ns.budget("1%")])
def test_wrong_options_are_refused(given: object) -> None:
    with pytest.raises(UsageError, match="spectral must be True, False or a schedule"):
        ns.MonitorOptions(spectral=given)  # type: ignore[arg-type]


def test_only_matrices_of_the_body() -> None:
    net, _ = made()
    from normscope.live.model.sharding import agreed_layout, local_parameters

    layout: Layout = agreed_layout(Ranks(), local_parameters(net)[0])
    matrices, left_out = live_matrices(layout)
    names = {layout.infos[each.tensor].name for each in matrices}
    assert not left_out
    assert not {"embedding.weight", "head.weight"} & names
    assert {(name, part) for name, part in truth(net)} == {
        (layout.infos[each.tensor].name, each.part) for each in matrices
    }
    assert sum(layout.infos[each.tensor].name == "mixing.weight" for each in matrices) == 3
