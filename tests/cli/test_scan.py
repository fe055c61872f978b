"""What `normscope scan` prints, for people and for programs."""

from dataclasses import replace

import torch

from normscope.cli.scan import _skipped
from normscope.run import Run
from normscope.theory.measures.run_summary import SkippedTensor, summarise
from normscope.weights.scan.scan import scan
from tests.cli.calling import call, call_json
from tests.conftest import random_walk, save_series

STEPS = [0, 10, 20, 30]


def odd_series(folder):
    """A series with a constant, a mask, integers and an odd checkpoint."""
    states = random_walk(STEPS)
    table = torch.randn(40, 40, generator=torch.Generator().manual_seed(1))
    for state in states.values():
        state |= {"table.freqs": table, "h.0.attn.mask": torch.ones(8, 8).tril(), "ids": torch.arange(5)}
    del states[20]["ln_f.weight"]
    return save_series(folder / "series", states), states


def test_the_first_line_is_what_must_not_be_missed(tmp_path):
    series, states = odd_series(tmp_path)
    lines = call("scan", series, "--run", tmp_path / "run.db").stdout.splitlines()
    assert lines[0].startswith("table.freqs never changes and holds ")
    assert lines[1].startswith("step_20 is left out: lacks 1 of ")
    text = "\n".join(lines)
    assert "3 checkpoints, steps 0 to 30: norm of the body " in text
    body, whole = (
        sum(float(v.double().square().sum()) for n, v in states[30].items() if n not in leave_out) ** 0.5
        for leave_out in ({"wte.weight", "h.0.attn.mask", "ids"}, {"h.0.attn.mask", "ids"})
    )
    assert f" → {body:.6g}; with embeddings and head " in text
    assert f" → {whole:.6g}" in text
    assert "  not measured: h.0.attn.mask (" in text
    assert "  not measured: ids (integers: " in text


def test_everything_that_is_not_measured_is_in_the_json(tmp_path):
    series, _ = odd_series(tmp_path)
    found = call_json("scan", series, "--run", tmp_path / "run.db")
    assert {each["name"] for each in found["skipped_tensors"]} == {"h.0.attn.mask", "ids"}
    assert all(each["reason"] for each in found["skipped_tensors"])
    assert [each["label"] for each in found["left_out"]] == ["step_20"]
    assert found["left_out"][0]["reason"].startswith("lacks 1 of ")
    assert isinstance(found["findings"], list)


def test_what_is_not_measured_is_grouped_by_reason(tmp_path):
    states = random_walk(STEPS)
    skips = []
    for i in range(20):
        for state in states.values():
            state[f"buffer{i}.ids"] = torch.arange(3 + i)
        skips += ["--skip", f"buffer{i}.*"] if i % 2 else []
    out = call("scan", save_series(tmp_path / "s", states), "--run", tmp_path / "run.db", *skips).stdout
    assert "20 skipped" in out
    assert "  not measured: buffer0.ids, buffer10.ids, buffer12.ids and 7 more (integers: " in out
    assert "and 7 more (left out by --skip)" in out


def test_many_reasons_are_cut_and_counted(tmp_path, series_folder):
    with scan(series_folder, tmp_path / "run.db") as run:
        found = summarise(run)
    skipped = tuple(SkippedTensor(f"t{i}.{j}", f"reason {i}") for i in range(15) for j in range(2))
    lines = _skipped(replace(found, skipped_tensors=skipped))
    assert len(lines) == 13
    assert lines[-1] == "  and 6 more: --json lists all"


def test_a_model_without_a_body_says_so(tmp_path):
    series = save_series(tmp_path / "s", random_walk(STEPS, shapes={"wte.weight": (50, 8)}))
    out = call("scan", series, "--run", tmp_path / "run.db").stdout
    assert "norm of all parameters (there is no body) " in out
    assert "with embeddings and head" not in out


def test_verify_ends_with_1_and_names_the_file(tmp_path):
    series = save_series(tmp_path / "series", random_walk(STEPS))
    run = tmp_path / "run.db"
    assert call("scan", series, "--run", run, "--verify").code == 2
    call("scan", series, "--run", run)
    assert call("scan", series, "--run", run, "--verify").code == 0
    with Run.create(run) as opened, opened.transaction():
        opened.update_rows("weight", "absmax = 2 * absmax", "step = ?", (20,))
    done = call("scan", series, "--run", run, "--verify")
    assert done.code == 1
    assert "1 checkpoint differs from what" in done.stderr
    assert "step_20" in done.stderr
    for other in ("--dry-run", "--follow"):
        done = call("scan", series, "--verify", other)
        assert (done.code, f"--verify has no effect with {other}" in done.stderr) == (2, True)
