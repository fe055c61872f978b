"""Scans compared with sums made by torch in float64, and scans that are resumed."""

import multiprocessing
import random
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch
from safetensors.torch import save_file

from normscope.checkpoints.series.series import open_series
from normscope.errors import CheckpointError, UsageError
from normscope.run import NO_PREVIOUS, Run, WeightRow
from normscope.theory.measures.run_summary import summarise
from normscope.weights.reading import walk
from normscope.weights.scan.scan import ScanConfig, scan, scan_series
from tests.conftest import random_walk, save_series


def rows_of(path):
    with Run(path) as run:
        names = {tensor.id: tensor.name for tensor in run.tensors()}
        return {(row["step"], row["prev_step"], names[row["tensor"]]): row for row in run.table(WeightRow)}


def expected_rows(states):
    """The definition, pair by pair, in float64."""
    steps = sorted(states)
    first = states[steps[0]]
    for previous, step in zip([None, *steps[:-1]], steps, strict=True):
        for name, tensor in states[step].items():
            x, z = tensor.double().flatten(), first[name].double().flatten()
            p = states[previous][name].double().flatten() if previous is not None else None
            yield (
                (step, NO_PREVIOUS if previous is None else previous, name),
                {
                    "sumsq": x @ x,
                    "dot": None if p is None else p @ (x - p),
                    "sumsq_delta": None if p is None else (x - p) @ (x - p),
                    "dot_init": z @ x,
                    "absmax": x.abs().max(),
                },
            )


def assert_rows(path, states):
    found = rows_of(path)
    expected = dict(expected_rows(states))
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        for column, value in row.items():
            if value is None:
                assert found[key][column] is None
            else:
                assert found[key][column] == pytest.approx(
                    float(value), rel=1e-7, abs=1e-7 * float(row["sumsq"])
                )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_sums_of_every_pair(tmp_path, dtype):
    states = random_walk([0, 10, 100, 1000], dtype=dtype)
    scan(save_series(tmp_path / "series", states), tmp_path / "run.db").close()
    assert_rows(tmp_path / "run.db", states)


def test_blocks_and_parts_change_nothing(tmp_path, monkeypatch):
    """A tensor cut into many parts and blocks gives the sums of the whole."""
    states = random_walk([1, 2, 3], shapes={"big": (300, 70), "empty": (0, 4), "scalar": ()})
    for state in states.values():
        state["empty"] = torch.empty(0, 4)
    folder = save_series(tmp_path / "series", states)
    scan(folder, tmp_path / "whole.db").close()
    monkeypatch.setattr(walk, "BLOCK", 1 << 10)
    monkeypatch.setattr(walk, "SPAN", 1 << 12)
    scan(folder, tmp_path / "cut.db").close()
    whole, cut = rows_of(tmp_path / "whole.db"), rows_of(tmp_path / "cut.db")
    assert whole.keys() == cut.keys()
    for key, row in whole.items():
        for column in ("sumsq", "dot", "sumsq_delta", "dot_init"):
            expected = row[column] and pytest.approx(row[column], rel=1e-7, abs=1e-7 * row["sumsq"])
            assert cut[key][column] == expected


def test_a_dtype_that_changes_along_the_way(tmp_path):
    states = random_walk([0, 10, 20])
    states[20] = {name: value.bfloat16() for name, value in states[20].items()}
    scan(save_series(tmp_path / "series", states), tmp_path / "run.db").close()
    assert_rows(tmp_path / "run.db", states)


def test_each_byte_is_read_once(tmp_path, states, series_folder, reads):
    scan(series_folder, tmp_path / "run.db").close()
    sizes = {name: value.numel() * value.element_size() for name, value in states[0].items()}
    assert len(reads) == len(states) * len(sizes)
    assert all(count == sizes[name] for (_, name), count in reads.items())


def test_a_finished_scan_reads_nothing_again(tmp_path, series_folder, reads):
    scan(series_folder, tmp_path / "run.db").close()
    before = rows_of(tmp_path / "run.db")
    reads.clear()
    scan(series_folder, tmp_path / "run.db").close()
    assert reads == {}
    assert rows_of(tmp_path / "run.db") == before


def test_a_new_checkpoint_is_read_with_its_predecessor_and_the_first(tmp_path, reads):
    states = random_walk([0, 10, 100, 1000, 10_000])
    folder = save_series(tmp_path / "series", {step: states[step] for step in (0, 10, 100, 1000)})
    scan(folder, tmp_path / "run.db").close()
    reads.clear()
    save_series(folder, {10_000: states[10_000]})
    scan(folder, tmp_path / "run.db").close()
    assert len({digest for digest, _ in reads}) == 3
    assert_rows(tmp_path / "run.db", states)


def test_a_checkpoint_put_in_between(tmp_path):
    states = random_walk([0, 10, 100])
    folder = save_series(tmp_path / "series", {step: states[step] for step in (0, 100)})
    scan(folder, tmp_path / "run.db").close()
    save_series(folder, {10: states[10]})
    scan(folder, tmp_path / "run.db").close()
    assert dict(expected_rows(states)).keys() <= rows_of(tmp_path / "run.db").keys()


def test_a_checkpoint_that_was_replaced_is_measured_again(tmp_path, states, series_folder):
    scan(series_folder, tmp_path / "run.db").close()
    states[10] = random_walk([10], seed=99)[10]
    save_series(series_folder, {10: states[10]})
    scan(series_folder, tmp_path / "run.db").close()
    assert_rows(tmp_path / "run.db", states)


def test_an_earlier_first_checkpoint_renews_what_depends_on_it(tmp_path):
    states = random_walk([0, 10, 100])
    folder = save_series(tmp_path / "series", {step: states[step] for step in (10, 100)})
    scan(folder, tmp_path / "run.db").close()
    save_series(folder, {0: states[0]})
    scan(folder, tmp_path / "run.db").close()
    found, expected = rows_of(tmp_path / "run.db"), dict(expected_rows(states))
    for key, row in expected.items():
        assert found[key]["dot_init"] == pytest.approx(float(row["dot_init"]), rel=1e-6)


def test_tied_tensors_count_once(tmp_path):
    folder = tmp_path / "series"
    folder.mkdir()
    for step in (1, 2):
        shared = torch.full((4, 4), float(step))
        torch.save(
            {"model": {"wte.weight": shared, "lm_head.weight": shared}, "step": step}, folder / f"s{step}.pt"
        )
    with scan(folder, tmp_path / "run.db") as run:
        assert [(tensor.name, tensor.tied_to) for tensor in run.tensors()] == [
            ("wte.weight", None),
            ("lm_head.weight", 1),
        ]
        assert len(run.table(WeightRow)) == 2


def test_what_is_not_common_is_listed(tmp_path):
    """For an audit, all checkpoints are measured in what they have in common."""
    folder = tmp_path / "series"
    folder.mkdir()
    first = {"a": torch.ones(2), "b": torch.ones(3), "c": torch.ones(1), "d": torch.ones(1)}
    save_file(first, folder / "step_1.safetensors")
    second = {"a": torch.ones(2), "b": torch.ones(4), "d": torch.ones(1, dtype=torch.int64)}
    save_file(second, folder / "step_2.safetensors")
    scan_series(open_series(folder), tmp_path / "run.db", ScanConfig(), intersect=True)
    with Run(tmp_path / "run.db") as run:
        assert [tensor.name for tensor in run.tensors()] == ["a"]
        skipped = run.skipped()
        (warning,) = [text for text in summarise(run).warnings if "in all checkpoints" in text]
    assert skipped["c"] == "missing in step_2"
    assert skipped["b"] == "its shape [3] becomes [4] in step_2"
    assert skipped["d"] == "it becomes int64 in step_2"
    assert warning.startswith("3 tensors are not the same in all checkpoints")


def test_buffers_integers_and_chosen_names_are_skipped_and_listed(tmp_path):
    folder = tmp_path / "series"
    folder.mkdir()
    state = {
        "h.0.attn.bias": torch.ones(1, 1, 4, 4),
        "ids": torch.arange(3),
        "rope_cos": torch.ones(3),
        "h.0.mlp.c_fc.weight": torch.ones(2, 2),
    }
    save_file(state, folder / "step_1.safetensors")
    with scan(folder, tmp_path / "run.db", skip=["rope_*"]) as run:
        assert [tensor.name for tensor in run.tensors()] == ["h.0.mlp.c_fc.weight"]
        reasons = run.skipped()
    assert reasons["h.0.attn.bias"] == "attention mask"
    assert reasons["rope_cos"] == "left out by --skip"
    assert "int64" in reasons["ids"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"steps": [0, 1, 2, 3]}, "`steps`"),
        ({"revisions": "step*"}, "`revisions`"),
        ({"skip": []}, "`skip`"),
        ({"workers": 2, "engine": "ray"}, "`workers` and `engine`"),
    ],
)
def test_options_are_given_once(tmp_path, series_folder, options, names):
    with pytest.raises(UsageError, match=f"give {names} in the ScanConfig or as a keyword, not both"):
        scan(series_folder, tmp_path / "run.db", ScanConfig(), **options)
    assert not (tmp_path / "run.db").exists()


def test_options_as_keywords_or_as_a_config(tmp_path, series_folder):
    steps = [5, 6, 7, 8]
    with scan(series_folder, tmp_path / "a.db", steps=steps, skip=["h.*"], workers=1) as run:
        assert [row.step for row in run.checkpoints()] == steps
        assert {tensor.name for tensor in run.tensors()} == {"wte.weight", "ln_f.weight"}
    config = ScanConfig(steps=steps, skip=["h.*"], workers=1)
    for name, arguments in {"b.db": (config,), "c.db": ()}.items():
        keywords = {} if arguments else {"config": config}
        scan(series_folder, tmp_path / name, *arguments, **keywords).close()
        assert rows_of(tmp_path / name) == rows_of(tmp_path / "a.db")


def test_wrong_options_are_refused(tmp_path, series_folder):
    with pytest.raises(TypeError, match="stride"):
        scan(series_folder, tmp_path / "run.db", stride=2)
    with pytest.raises(UsageError, match="workers must be an integer of at least 1; got 0"):
        scan(series_folder, tmp_path / "run.db", workers=0)
    with pytest.raises(UsageError, match="skip must be a list of patterns; got 'rope"):
        scan(series_folder, tmp_path / "run.db", skip="rope_*")


def test_nothing_in_common_is_an_error(tmp_path):
    folder = tmp_path / "series"
    folder.mkdir()
    save_file({"a": torch.ones(2)}, folder / "step_1.safetensors")
    save_file({"b": torch.ones(2)}, folder / "step_2.safetensors")
    with pytest.raises(CheckpointError, match="step_2 is another network: it lacks 1 of 1 tensors, namely a"):
        scan(folder, tmp_path / "run.db")
    with pytest.raises(CheckpointError, match="no parameter is common to all checkpoints"):
        scan_series(open_series(folder), tmp_path / "run.db", ScanConfig(), intersect=True)


def test_non_finite_values_are_counted(tmp_path, states):
    states[10]["ln_f.weight"][:3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    scan(save_series(tmp_path / "series", states), tmp_path / "run.db").close()
    found = rows_of(tmp_path / "run.db")
    assert found[10, 0, "ln_f.weight"]["nonfinite"] == 3
    assert sum(row["nonfinite"] for row in found.values()) == 3


def test_non_finite_values_in_several_blocks_and_only_in_the_first_checkpoint(tmp_path):
    """All blocks are counted; what θ₀ lacks is left out of ⟨θ₀, θ⟩ and of nothing else."""
    torch.manual_seed(0)
    states = {step: {"h.0.mlp.weight": torch.randn(200, 150)} for step in (0, 10, 20)}
    clean = {step: state["h.0.mlp.weight"].double().flatten() for step, state in states.items()}
    bad = torch.tensor([0, 4_096, 9_000, 9_001, 20_000, 29_999])
    states[0]["h.0.mlp.weight"].view(-1)[bad] = float("nan")
    scan(save_series(tmp_path / "series", states), tmp_path / "run.db").close()
    found = {key[0]: row for key, row in rows_of(tmp_path / "run.db").items()}
    assert {step: row["nonfinite"] for step, row in found.items()} == {0: 6, 10: 0, 20: 0}
    known = torch.ones(30_000, dtype=torch.bool)
    known[bad] = False
    for step in (10, 20):
        assert found[step]["sumsq"] == pytest.approx(float(clean[step] @ clean[step]), rel=1e-6)
        expected = float(clean[0][known] @ clean[step][known])
        assert found[step]["dot_init"] == pytest.approx(expected, abs=1e-2)


def test_stages_stay_apart(tmp_path):
    folder = tmp_path / "series"
    folder.mkdir()
    states = random_walk([1000, 2000])
    for stage in ("stage1", "stage2"):
        for step, state in states.items():
            save_file(state, folder / f"{stage}-step{step}-tokens{step // 1000}B.safetensors")
    with scan(folder, tmp_path / "run.db") as run:
        assert run.stages() == ["stage1", "stage2"]
        assert [(row.stage, row.step, row.tokens) for row in run.checkpoints()] == [
            (stage, step, step * 1_000_000) for stage in ("stage1", "stage2") for step in (1000, 2000)
        ]
        for stage in run.stages():
            rows = run.query(
                "SELECT DISTINCT step, prev_step FROM weight WHERE stage = ? ORDER BY 1", (stage,)
            )
            assert rows == [(1000, NO_PREVIOUS), (2000, 1000)]


BLOCKING_SCAN = """
import sys
from normscope.run import Run
from normscope.weights.scan import measuring, scan as module
measuring.FLUSH_SECONDS, measuring.TINY = -1, 0  # every finished tensor is written at once
def block_in_the_middle(done, total, note):
    with Run(sys.argv[2]) as run:
        if run.query("SELECT count(DISTINCT tensor) FROM weight")[0][0] >= 5:
            print("in the middle", flush=True)
            sys.stdin.read()
module.scan(sys.argv[1], sys.argv[2], workers=1, progress=block_in_the_middle)
"""


def test_a_killed_scan_continues(tmp_path, states, series_folder, reads):
    """Killed in the middle: finished tensors are not read again, and all rows are as without the kill."""
    run = tmp_path / "run.db"
    process = subprocess.Popen(
        [sys.executable, "-c", BLOCKING_SCAN, str(series_folder), str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "in the middle\n"
    process.kill()
    process.communicate()
    with Run(run) as opened:
        (finished,) = opened.query("SELECT count(DISTINCT tensor) FROM weight")[0]
        assert opened.meta["complete"] is False
    assert 5 <= finished < len(states[0])
    scan(series_folder, run).close()
    assert len({name for _, name in reads}) == len(states[0]) - finished
    scan(series_folder, tmp_path / "undisturbed.db").close()
    assert rows_of(run) == rows_of(tmp_path / "undisturbed.db")


def test_another_executor_gives_the_same_bits(tmp_path, states, series_folder):
    torch.save({"model": states[0], "step": 2000}, series_folder / "step_2000.pt")
    scan(series_folder, tmp_path / "threads.db").close()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        scan(series_folder, tmp_path / "processes.db", engine=executor).close()
    assert rows_of(tmp_path / "processes.db") == rows_of(tmp_path / "threads.db")


SLOW_SCAN = """
import sys, time
from normscope.weights.scan import measuring, scan as module
plain = measuring.walk
def slow(part, checkpoints):
    time.sleep(0.05)
    return plain(part, checkpoints)
measuring.walk = slow
measuring.FLUSH_SECONDS = 0.01
module.scan(sys.argv[1], sys.argv[2], workers=1)
"""


@pytest.mark.slow
def test_twenty_kills_change_nothing(tmp_path, states, series_folder):
    """Killed at random moments and resumed each time, the scan ends with the same rows."""
    run, moments = tmp_path / "run.db", random.Random(0)
    for _ in range(20):
        process = subprocess.Popen([sys.executable, "-c", SLOW_SCAN, str(series_folder), str(run)])
        time.sleep(moments.uniform(0.1, 2.5))
        process.kill()
        process.wait()
    scan(series_folder, run).close()
    scan(series_folder, tmp_path / "undisturbed.db").close()
    assert rows_of(run) == rows_of(tmp_path / "undisturbed.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.db", "series", "undisturbed.db"]
