"""What every command really prints with --json, on inputs small enough to make in a few seconds."""

import json
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import torch
from safetensors.torch import save_file

import normscope as ns
from normscope.lab.config import TrainConfig, override
from normscope.remarks import Finding, write_remarks
from normscope.run import HeadRow, Run
from tests.cli.calling import SMALL, call_json
from tests.conftest import random_walk, save_series
from tests.theory.make_run import make_run

STEPS = [0, 100, 200, 300, 500, 600, 700, 800]  # 400 is missing: the audit finds a gap


def samples(folder):
    """Section of docs/json.md → documents; together they have every field."""
    series = save_series(folder / "series", random_walk(STEPS))
    make_run(folder / "a.db")
    make_run(folder / "b.db", exponents=(0.5, 0.7, 0.5, 0.8))
    for name in ("a.db", "b.db"):
        add_finding(folder / name)
    found = {
        "scan": [
            call_json("scan", series, "--run", folder / "run.db"),
            call_json("scan", odd_series(folder), "--run", folder / "odd.db"),
        ],
        "scan --dry-run": [
            call_json("scan", epochs_and_best(folder), "--dry-run"),
            call_json("scan", epochs_and_best(folder), "--dry-run", "--bandwidth", "1GB/s"),
        ],
        "show": [call_json("show", folder / "a.db", "--measure", "budget")],
        "spectrum": [
            call_json("spectrum", series, "--of", "weights", "--of", "growth", "--run", folder / "run.db"),
            call_json("spectrum", attention(folder / "known", {"model_type": "llama"}), "--of", "qk"),
            call_json("spectrum", attention(folder / "unknown", {}), "--of", "qk"),
        ],
        "advise": [call_json("advise", "t5-base"), call_json("advise", folder / "a.db")],
        "fit": [call_json("fit", "t5-base"), call_json("fit", folder / "a.db")],
        "fit --by": [call_json("fit", folder / "a.db", "--by", "layer")],
        "forecast": [
            call_json("forecast", "t5-base", "--to", 600_000, "--lr", 0.01, "--weight-decay", 0.001),
            call_json("forecast", folder / "a.db", "--to", 9000),
            call_json("forecast", live_run(folder), "--to", 900),
            call_json("forecast", "t5-base", "--threshold", 5000),
        ],
        "forecast --backtest": [call_json("forecast", folder / "a.db", "--backtest")],
        "compare": [
            call_json("compare", folder / "a.db", folder / "b.db"),
            call_json("compare", *fine_tuned(folder)),
        ],
        "report": [call_json("report", folder / "a.db", "-o", folder / "report.html")],
        "export": [call_json("export", folder / "a.db", "-o", folder / "weights.csv")],
        "audit": [call_json("audit", series, code=1), call_json("audit", epochs_and_best(folder))],
        "paper": [call_json("paper", "2010.09697"), call_json("paper", library(folder), "--offline")],
        "plugins": [plugins()],
        "replicate": [call_json("replicate", "sqrt-growth", "direction", "-o", folder / "replication")],
        "replicate --list": [call_json("replicate", "sqrt-growth", "--list", "-o", folder / "replication")],
        "demo": [demo(folder)],
    }
    return found | lab_samples(folder) | network_samples(folder)


def library(folder):
    """Two works of a reading list."""
    path = folder / "refs.bib"
    path.write_text(
        "@misc{a, title = {One work}, year = 2020}\n@misc{b, title = {Another}, doi = {10.1000/b}}"
    )
    return path


def live_run(folder):
    """A training with weight decay on the matrices only, watched step by step."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    groups = [{"params": [layer.weight for layer in model], "weight_decay": 0.5}]
    groups += [{"params": [layer.bias for layer in model], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    with ns.Monitor(model, optimizer, folder / "live.db", ns.every(2)):
        for _ in range(60):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
    return folder / "live.db"


def attention(folder, family):
    """The attention of one layer and its norm, with a config of four heads."""
    module, ones = "model.layers.0.self_attn", torch.ones(16, 16)
    folder.mkdir()
    tensors = {f"{module}.{name}_proj.weight": i * ones for i, name in enumerate("qkvo", 1)}
    norm = {"model.layers.0.input_layernorm.weight": torch.ones(16)}
    save_file(tensors | norm, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 4, **family}))
    return folder


def odd_series(folder):
    """Two networks in one file, a tensor that is not measured, and a checkpoint that is left out."""
    shapes = {f"{net}_model.layers.{i}.mlp.fc1.weight": (8, 8) for net in ("text", "vision") for i in (0, 1)}
    states = random_walk(STEPS, shapes=shapes)
    states[100] = random_walk([100], shapes={"other.weight": (3, 3)})[100]
    states[200]["text_model.position_ids"] = torch.arange(4)
    return save_series(folder / "odd", states)


def epochs_and_best(folder):
    """Names that count epochs, and a checkpoint that no scan reads."""
    states = random_walk([1, 2, 3])
    for name, step in (("epoch_1", 1), ("epoch_2", 2), ("best", 3)):
        path = folder / "epochs" / f"{name}.pt"
        path.parent.mkdir(exist_ok=True)
        torch.save(states[step], path)
    return folder / "epochs"


def lab_samples(folder):
    watched = ("--steps", 12, *SMALL, "--set", "monitor=every:1", "-o", folder / "lab")
    cells = ("--steps", 3, *SMALL, "--lr", "1e-3,1e30", "--set", "optimizer=sgd")
    found = {
        "train": [
            call_json("train", *watched),
            call_json("train", *task(), "--saturation", "every:2", "-o", folder / "task"),
        ]
    }
    add_alarm(folder / "lab" / "run.db")
    with mock.patch("normscope.lab.sweep.sweep.open_engine", lambda address: ThreadPoolExecutor(1)):
        found["sweep"] = [
            call_json("sweep", *cells, "-o", folder / "sweep"),
            call_json(
                "sweep",
                *task(),
                "--lr",
                1e-3,
                "--set",
                "saturation=every:1",
                "--spectrum",
                0,
                "-o",
                folder / "tasks",
            ),
        ]
    return found | {"watch": [call_json("watch", folder / "lab" / "run.db")]}


def add_finding(path):
    """As a scan leaves it; the made runs are sound."""
    with Run(path, write=True) as run, run.transaction():
        finding = Finding("gap", (400,), "step 400 is missing", 0.9, {"missing": 1})
        write_remarks(run, [], [finding])


def add_alarm(path):
    """A healthy run raises none."""
    from dataclasses import asdict

    from normscope.live.alarms.alarms import Alarm

    with Run(path, write=True) as run, run.transaction():
        alarm = Alarm(3, "law", "total", "the norm left its power law", {"deviation": 0.02})
        run.set_artifact("alarm", "", [asdict(alarm)])


def task():
    return ("--task", "parity", "--length", 6, "--set", "words=20", "--steps", 2, *SMALL)


def network_samples(folder):
    model = folder / "lab" / "checkpoints" / "step-000012"
    pair = [model.with_name("step-000000"), model, "--similarity", "--run", folder / "pair.db"]
    return {
        "saturate": [
            call_json("saturate", model, "--sentences", 2, "--task", "--ablate", "all"),
            call_json("saturate", *pair, "--sentences", 2, "--no-baseline"),
            changing_heads(folder),
        ],
        "homogeneity": [call_json("homogeneity", model, "--sentences", 2)],
    }


def fine_tuned(folder):
    """Two run files with heads alone, one of which has another type."""
    pair = [folder / name for name in ("before.db", "after.db")]
    for path, kind in zip(pair, ("argmax", "mean"), strict=True):
        with Run.create(path) as run, run.transaction():
            run.write([HeadRow(0, "h.0.attn", 1, 0, kind, 0.1, 1.0, 0.0, 0.0, 0.2, 3.0, 0.6, 2.0, 0.1)])
    return pair


HEADS_PROGRAM = """
import torch
def build():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    return torch.nn.Sequential(layer), [torch.randn(3, 5, 8)]
"""


def changing_heads(folder):
    """A series in which mean heads, whose queries and keys are zero, become argmax heads."""
    program, weights = folder / "heads.py", folder / "heads"
    program.write_text(HEADS_PROGRAM, "utf-8")
    layer = torch.nn.Sequential(torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True))
    weights.mkdir()
    torch.save(layer.state_dict(), weights / "step_1.pt")
    with torch.no_grad():
        layer[0].self_attn.in_proj_weight[:16] = 0
    torch.save(layer.state_dict(), weights / "step_0.pt")
    return call_json("saturate", f"{program}:build", weights, "--no-baseline", "--run", folder / "heads.db")


def plugins():
    from importlib.metadata import EntryPoint

    from normscope.plugins import plugins as installed

    def entry_points(group):
        entry = EntryPoint("cube-root", "math:cbrt", group)
        return [entry] if group == "normscope.laws" else []

    installed.cache_clear()
    with mock.patch("normscope.plugins.entry_points", entry_points):
        document = call_json("plugins")
    installed.cache_clear()
    return document


def demo(folder):
    small = {"d_model": 16, "n_layers": 1, "d_ff": 16, "n_heads": 2, "eval_batches": 1, "batch": 2}
    with mock.patch("normscope.lab.demo.demo_config", lambda seed: override(TrainConfig(seed=seed), small)):
        return call_json("demo", "-o", folder / "demo", "--steps", 12)


def field_paths(document):
    """Names of all fields: `a.b` in an object, `a[].b` in a list of objects."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield name
            mark = "[]" if isinstance(value, list) else ""
            yield from (f"{name}{mark}.{inner}" for inner in field_paths(value))
    elif isinstance(document, list):
        for item in document:
            yield from field_paths(item)
