"""A user's script that uses the whole API under mypy --strict."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import normscope as ns


def progress(done: float, total: float, note: str) -> None:
    print(done, total, note)


def to_console(values: Mapping[str, float], step: int) -> None:
    print(values, step)


class Count(ns.Callback):
    def on_start(self, trainer: ns.Trainer) -> None:
        paths: ns.RunPaths = trainer.paths
        print(paths.out, trainer.step)

    def on_step(self, trainer: ns.Trainer) -> None:
        trainer.record("parameters", sum(p.numel() for p in trainer.model.parameters()))


def read(source: ns.Source) -> ns.GrowthFit:
    return ns.fit_growth(
        source, "norm", scope="body", stage=None, since=0, until=None, seed=1, progress=progress
    )


def theory(path: Path) -> None:
    with ns.Run(path) as run:
        print(len(run.table(ns.SimilarityRow)))
        for row in run.checkpoints():
            step: int = row.step
            print(step)
        checkpoint: ns.CheckpointRow = run.checkpoints()[0]
        tensor: ns.TensorRow = run.tensors()[0]
        table: ns.Table = run.table(ns.ScalarRow)
        rates: ns.Table = run.table(ns.RateRow)
        print(len(rates))
        print(checkpoint, tensor, len(table), run.table(ns.WeightRow)["step"])
        fit = read(run)
    law: ns.LawFit = fit.law()
    interval: ns.Interval | None = fit.exponent
    print(
        law.params["a"], interval.value if interval else None, fit.curve([1, 2, 3]), fit.curve(np.arange(3))
    )
    groups: ns.GroupFits = ns.fit_groups(path, by="layer", measure="rms")
    one: ns.GroupFit = groups.groups[0]
    print(one.exponent, groups.to_pandas().shape, groups.to_polars().shape)
    every: ns.SeriesSet = ns.series(str(path), by="tensor")
    first: ns.Series = every[0]
    for each in every:
        print(each.name, len(each))
    mine = ns.Series("loss", [0, 1, 2], [3.0, 2.0, 1.0], unit="loss")
    print(first.steps.max(), mine.values.min(), mine.table["step"], first == mine)
    budgets: ns.NormBudgets = ns.norm_budget(
        path, by="role", rates=ns.Rates([0, 1], [1e-3, 1e-3], [0.1, 0.1])
    )
    budget: ns.NormBudget = budgets[0]
    print(budget.growth, ns.Rates.constant(1e-3, 0.1).at(np.zeros(1)), ns.Rates.of_run(path))
    ahead: ns.Forecast = ns.forecast(
        "t5-base", 600_000, ns.Plan(lr=1e-3, schedule=Path("lr.csv")), until=500_000
    )
    rest: ns.Equilibrium | None = ahead.equilibrium
    groups_ahead: tuple[ns.GroupOutlook, ...] = ahead.groups
    turning: ns.Rotation | None = groups_ahead[0].rotation
    tested: ns.Backtest = ns.backtest(path, known=[0.5], until=400)
    told: ns.BacktestRow = tested[0]
    print(rest, turning, groups_ahead[0].norm, told.error, ns.Plan(lr="cosine:1e-3:1e-5:9000", table=None))
    advised: ns.AdviceList = ns.advise(path, since=10)
    first_advice: ns.Advice = advised.advice[0]
    print(first_advice.sentence, advised.sentences)
    compared: ns.Comparison = ns.compare("a.db", ([0, 1, 2], [1.0, 2.0, 3.0]), by="total")
    difference: ns.GroupDifference = compared.groups[0]
    print(difference.ratio)
    figure = ns.plot(compared, "figure.svg", show="exponents", x_axis="log", y_axis="linear", width=700)
    print(figure.layout, ns.report(path, "r.html").name, ns.export(path, Path("x.csv")))
    results: list[ns.Tabular] = [groups, every, budgets, budget, ahead, tested, compared, fit, first]
    print([len(result.table) for result in results])


def network(model: torch.nn.Module, batches: ns.Batches) -> None:
    sat: ns.Saturation = ns.saturation(model, batches, baseline="random", limit=ns.Limit(scales=(1024.0,)))
    sat = ns.saturation(
        model, torch.zeros(1, 2, 3), baseline=ns.random_like(model, seed=3), progress=progress
    )
    layer: ns.LayerSaturation = sat.layers[0]
    heads: ns.Heads = ns.heads(
        model, [{"x": torch.zeros(1)}], scale=1024, types=ns.HeadTypes(argmax_split=0.2)
    )
    head: ns.Head = heads.strongest("argmax")[0]
    kind: ns.HeadType = head.type
    similar: ns.Similarity = ns.layer_similarity(model, model, batches, tokens=512, progress=progress)
    nearest: list[ns.LayerSimilarity] = sorted(similar.layers, key=lambda layer: layer.cka or 0.0)
    print(nearest[-1].module, nearest[-1].cka_debiased, nearest[-1].pwcca, similar.warnings)
    both: ns.SaturationAndHeads = ns.saturation_and_heads(model, batches)
    replaced: ns.Ablations = ns.ablations(model, batches, kinds=("mean", "zero"), heads=[("layers.0", 0)])
    matters: ns.HeadAblation = replaced.strongest("zero", 3)[0]
    tasks: ns.SaturatedTask = ns.saturated_task(model, batches, scale=2.0**12, task="states")
    network: ns.NetworkTask = tasks["exact"]
    print(matters.importance, network.agreement, replaced.task)
    found: ns.Homogeneity = ns.homogeneity(
        model, [ns.Batch((torch.zeros(2),))], curve=ns.Curve(tolerance=0.01)
    )
    degree: ns.Degree = found.output
    look: ns.LookAhead = ns.looks_ahead(model, torch.zeros(1, 2), seed=1)
    with ns.scaled(model, 1024) as large, ns.saturated(model, attention="exact", ties=0.1) as limit:
        print(large(1), limit(2))
    print(layer.cosine, kind, both.heads, degree.degree, look.change)


def weights(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    source: list[ns.CheckpointSource] = ["a", Path("b")]
    with ns.scan(source, "run.db", steps=[1, 2], skip=["x"], workers=2, progress=progress) as run:
        found: ns.Audit = ns.audit(run)
        left_out: list[ns.LeftOut] = run.left_out()
        print(found.findings, run.findings(), left_out)
    with ns.scan("a", Path("b.db"), ns.ScanConfig(engine=ThreadPoolExecutor(1))) as run:
        pass
    finding: ns.Finding = found.findings[0]
    logger: ns.Logger = to_console
    schedules: list[ns.Schedule] = [ns.every(3), ns.logarithmic(3), ns.at_steps(range(3))]
    options = ns.MonitorOptions(loggers=[logger], groups=["total"], measures=["norm"])
    with ns.Monitor(model, optimizer, Path("run.db"), ns.budget("1%"), options) as monitor:
        monitor.log(loss=torch.zeros(()))
    print(finding.evidence, schedules, ns.every(2).steps(until=10))


class Rows(ns.Dataset):
    @property
    def sizes(self) -> ns.DataSizes:
        return ns.DataSizes(vocab_size=10, positions=8, max_length=8, sequences=100)

    def batch(self, number: int, size: int, seed: int) -> ns.TrainingBatch:
        rows = (torch.arange(size)[:, None] + number + torch.arange(9)) % 10
        return ns.TrainingBatch(rows[:, :-1], rows[:, 1:])

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def evaluations(self, batches: int, size: int) -> dict[str, list[ns.TrainingBatch]]:
        return {"valid": [self.batch(0, size, 0)]}

    def score(self, logits: torch.Tensor, targets: torch.Tensor) -> ns.ScoreSums:
        return ns.ScoreSums(nats=float(self.loss(logits, targets)), tokens=1)


def own(folder: Path, task: ns.Language, constraint: ns.Constraint) -> None:
    optimization = ns.OptimizerConfig(optimizer="Muon", constraint=constraint)
    ns.train(ns.TrainConfig(data=ns.DataConfig(task=task), optimization=optimization), folder / "task")
    ns.train(ns.TrainConfig(model=ns.ModelConfig(network=torch.nn.Identity)), folder, data=Rows())
    ns.train(ns.TrainConfig(loss=torch.nn.functional.mse_loss), folder, data=lambda config: Rows())


def lab(folder: Path) -> ns.SweepResult:
    config = ns.TrainConfig(
        model=ns.ModelConfig(norm="post"),
        data=ns.DataConfig(task="parity"),
        optimization=ns.OptimizerConfig(lr=1e-3, schedule="cosine"),
        save=ns.every(10),
    )
    result: ns.TrainResult = ns.train(config, folder, callbacks=[Count()], progress=progress, scan=True)
    print(result.loss)
    model = torch.nn.Linear(2, 2)
    inside: ns.NetworkAutomaton = ns.automaton(model, "ab-star", length=8, horizon=2, strings="all", scale=64)
    extracted: ns.ExtractedAutomaton = inside["exact"]
    states: ns.Automaton = extracted.automaton.minimise()
    print(states.difference(inside["language"].automaton), extracted.classes, len(states))
    engine: ns.SupportsSubmit = ThreadPoolExecutor(2)
    return ns.sweep(ns.SweepConfig(config, [{"lr": 1e-3}]), folder, engine=engine, progress=progress)


def reading(paper_id: str) -> list[str]:
    found: ns.Paper = ns.paper(paper_id, offline=True, max_works=10, progress=progress)
    claim = ns.ClaimLine("growth", "The norm grows.", None, "normscope replicate")
    works: tuple[ns.Work, ...] = found.references
    terms: tuple[ns.Term, ...] = found.terms
    return [claim.sentence, *(work.title for work in works), *(term.term for term in terms)]


def passed(path: Path) -> int | None:
    found: ns.Forecast = ns.forecast(path, measure="qk-logit-bound", threshold=100.0)
    crossing: ns.ThresholdCrossing | None = found.crossing
    return None if crossing is None else crossing.step


def directions(folder: Path) -> list[float | None]:
    config = ns.SpectrumConfig(of=("weights", "growth"), scan=ns.ScanConfig(workers=2))
    found: ns.Spectra = ns.spectrum(folder, "run.db", config, progress=progress)
    rows: tuple[ns.SpectrumRow, ...] = found.rows
    return [row.stable_rank for row in rows]


def safe(path: Path) -> str:
    try:
        return read(path).best
    except ns.NormscopeError as error:
        return f"{error} {error.exit_code}"


say: ns.Progress = progress
print(ns.__version__, say, ns.Law)


def claims() -> None:
    found: ns.Replication = ns.replicate(
        "growth",
        "heads",
        output="out",
        config=ns.ReplicationConfig(preset="quick", seeds=2),
        engine="local:2",
    )
    claim: ns.ClaimResult = found.claims[0]
    number: ns.Estimate = claim.corrected[claim.headline]
    print(found.counts, claim.verdict, number.low, number.high, number.seeds)
