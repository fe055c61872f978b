"""A run file belongs to one series: what is refused, what is recognised, and what --add joins."""

import math
import shutil
import sqlite3
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from normscope import series
from normscope.errors import AnotherSeries, CheckpointError, RunFileError, UsageError
from normscope.run import Run, WeightRow
from normscope.theory.measures.measures import group
from normscope.theory.measures.run_summary import summarise
from normscope.weights.audit.audit import audit
from normscope.weights.scan.scan import scan
from tests.conftest import random_walk, save_series
from tests.weights.test_scan import assert_rows, rows_of

STEPS = [0, 10, 100, 1000]


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run.db"


@pytest.fixture
def scanned(tmp_path, states, run):
    """A series that the run file belongs to."""
    folder = save_series(tmp_path / "a", states)
    scan(folder, run).close()
    return folder


def refused(source, run, *words, **options):
    """The scan is refused with a sentence that has these words, and the run file is untouched."""
    before = run.read_bytes()
    with pytest.raises(AnotherSeries) as caught:
        scan(source, run, **options)
    assert isinstance(caught.value, UsageError) and isinstance(caught.value, RunFileError)
    for word in (str(run), *words):
        assert str(word) in str(caught.value)
    assert run.read_bytes() == before
    assert not run.with_name(f".{run.name}.lock").exists()


def steps_of(run):
    with Run(run) as opened:
        return [row.step for row in opened.checkpoints()]


def notes_of(run):
    with Run(run) as opened:
        return opened.meta["notes"]


# -- another series -----------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(random_walk(STEPS, seed=1), id="same steps and tensors"),
        pytest.param(random_walk([5, 50], seed=1), id="steps in between"),
        pytest.param(random_walk([2000, 3000], seed=1), id="later steps"),
        pytest.param(random_walk(STEPS, seed=1, shapes={"w": (3, 3)}), id="other tensors"),
        pytest.param(
            {0: random_walk([0])[0], 10: random_walk([10], seed=5)[10]}, id="the same beginning, then its own"
        ),
        pytest.param({0: random_walk([0])[0]}, id="only the same beginning"),
        pytest.param(
            {0: random_walk([0])[0], **random_walk([2000], seed=5)}, id="the same beginning, later steps"
        ),
    ],
)
def test_another_series_is_refused(scanned, run, tmp_path, other):
    folder = save_series(tmp_path / "b", other)
    refused(folder, run, scanned, folder, "--run FILE", "--add")
    before = run.read_bytes()
    with pytest.raises(AnotherSeries):
        audit(folder, run=run)
    assert run.read_bytes() == before


def test_two_runs_in_one_folder_told_apart_by_a_glob(tmp_path, run):
    folder = tmp_path / "both"
    folder.mkdir()
    for name, seed, steps in (("one", 0, [0, 10]), ("two", 1, [20, 30])):
        for step, state in random_walk(steps, seed=seed).items():
            save_file(state, folder / f"{name}_step_{step}.safetensors")
    scan(folder / "one_*.safetensors", run).close()
    refused(folder / "two_*.safetensors", run, "one_*", "two_*")


# -- the same series, given differently ----------------------------------------------


@pytest.mark.parametrize(
    "spelling", ["a", "./a/", "a/../a", "link", "a/*.safetensors", "a/step_*", "files", "absolute"]
)
def test_the_same_series_given_differently(scanned, run, tmp_path, monkeypatch, reads, spelling):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(scanned)
    spellings = {"files": sorted(map(str, scanned.iterdir())), "absolute": str(scanned)}
    reads.clear()
    scan(spellings.get(spelling, spelling), run).close()
    assert reads == {} and steps_of(run) == STEPS and notes_of(run) == []


def test_a_relative_source_from_another_folder(tmp_path, run, states, monkeypatch, reads):
    save_series(tmp_path / "a", states)
    monkeypatch.chdir(tmp_path)
    scan("a", run).close()
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    reads.clear()
    scan("../a", run).close()
    assert reads == {}


@pytest.mark.parametrize("part", ["step_100.safetensors", "step_1*.safetensors"])
def test_a_part_of_the_series_is_scanned_with_the_rest(scanned, run, states, part):
    """Otherwise θ₀ would be another, and all distances would be forgotten."""
    before = rows_of(run)
    scan(scanned / part, run).close()
    assert rows_of(run) == before
    states[1000]["wte.weight"] += 1
    save_series(scanned, {1000: states[1000]})
    scan(scanned / "step_1*.safetensors", run).close()
    assert_rows(run, states)


def test_a_folder_that_was_moved(scanned, run, tmp_path, states, reads):
    moved = scanned.rename(tmp_path / "elsewhere")
    reads.clear()
    scan(moved, run).close()
    assert reads == {}
    assert str(moved) in notes_of(run)[0] and str(scanned) in notes_of(run)[0]
    scan(moved, run).close()
    assert notes_of(run) == []
    more = random_walk([*STEPS, 2000])
    save_series(moved, {2000: more[2000]})
    scan(moved, run).close()
    assert_rows(run, more)


def test_a_copy_that_has_gone_on(scanned, run, tmp_path, states):
    copy = tmp_path / "copy"
    shutil.copytree(scanned, copy)
    more = random_walk([*STEPS, 2000])
    save_series(copy, {2000: more[2000]})
    scan(copy, run).close()
    assert_rows(run, more)


def test_the_end_of_a_series_that_goes_on_elsewhere_needs_add(scanned, run, tmp_path):
    """Without --add, distances would be measured from another first checkpoint."""
    more = random_walk([*STEPS, 2000])
    copy = save_series(tmp_path / "copy", {step: more[step] for step in (1000, 2000)})
    before = run.read_bytes()
    with pytest.raises(AnotherSeries, match="--add"):
        scan(copy, run)
    assert run.read_bytes() == before
    scan(copy, run, add=True).close()
    assert_rows(run, more)


def test_a_rotation_that_keeps_the_last(scanned, run):
    """save_total_limit deletes earlier checkpoints; their rows stay."""
    more = random_walk([*STEPS, 2000, 3000, 4000])
    for step in (0, 10, 100):
        (scanned / f"step_{step}.safetensors").unlink()
    save_series(scanned, {2000: more[2000]})
    scan(scanned, run).close()
    (scanned / "step_1000.safetensors").unlink()
    (scanned / "step_2000.safetensors").unlink()
    save_series(scanned, {3000: more[3000], 4000: more[4000]})
    scan(scanned, run).close()
    assert steps_of(run) == [0, 10, 100, 1000, 2000, 3000, 4000]


def test_a_moved_and_rotated_series(scanned, run, tmp_path):
    more = random_walk([*STEPS, 2000])
    (scanned / "step_0.safetensors").unlink()
    moved = scanned.rename(tmp_path / "elsewhere")
    save_series(moved, {2000: more[2000]})
    scan(moved, run).close()
    assert steps_of(run) == [*STEPS, 2000]


# -- other contents in the same place ------------------------------------------------


def replace_files(folder, states):
    for path in folder.iterdir():
        path.unlink()
    return save_series(folder, states)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(random_walk(STEPS, seed=1), id="everything changed"),
        pytest.param({0: random_walk([0], seed=1)[0]}, id="a new beginning"),
        pytest.param({**random_walk(STEPS, seed=1), 0: random_walk([0])[0]}, id="the same first one"),
        pytest.param({0: random_walk([0])[0], 10: random_walk([10], seed=1)[10]}, id="gone on differently"),
        pytest.param({0: random_walk([0])[0], 50: random_walk([50], seed=1)[50]}, id="at other steps"),
        pytest.param(random_walk([5, 7], seed=1), id="at earlier steps"),
        pytest.param(random_walk([2000], shapes={"w": (3, 3)}), id="other tensors, later"),
    ],
)
def test_another_training_in_the_same_folder_is_refused(scanned, run, other):
    refused(replace_files(scanned, other), run, "--run FILE")


def test_one_replaced_checkpoint_is_measured_again(scanned, run, states):
    states[10] = random_walk([10], seed=99)[10]
    save_series(scanned, {10: states[10]})
    scan(scanned, run).close()
    assert_rows(run, states)


def test_the_only_checkpoint_may_be_replaced(tmp_path, run):
    folder = save_series(tmp_path / "a", random_walk([7]))
    scan(folder, run).close()
    new = random_walk([7], seed=3)
    save_series(folder, new)
    scan(folder, run).close()
    assert_rows(run, new)


def test_other_steps_for_the_same_files_are_refused(scanned, run):
    refused(scanned, run, "is step 1 now and was step 10", "--steps", steps=[0, 1, 2, 3])
    scan(scanned, run, steps=STEPS).close()


# -- a series that continues elsewhere -----------------------------------------------


@pytest.fixture
def continued(tmp_path):
    """The whole walk, and the folder where its second half is."""
    whole = random_walk([*STEPS, 2000, 3000])
    return whole, save_series(tmp_path / "b", {step: whole[step] for step in (2000, 3000)})


def test_a_series_that_continues_elsewhere(scanned, run, continued, tmp_path):
    whole, folder = continued
    refused(folder, run, scanned, folder, "--add")
    scan(folder, run, add=True).close()
    assert_rows(run, whole)
    with Run(run) as opened:
        assert opened.meta["sources"] == [str(scanned), str(folder)]
    for source in (folder, scanned, [scanned, folder]):  # each of them means both now
        scan(source, run).close()
        assert_rows(run, whole)
    more = random_walk([*STEPS, 2000, 3000, 4000])
    save_series(folder, {4000: more[4000]})
    scan(folder, run).close()
    scan(folder, run, add=True).close()
    assert_rows(run, more)
    refused(save_series(tmp_path / "c", random_walk([5000], seed=8)), run, scanned, folder)


def test_a_continuation_needs_the_same_tensors_and_no_other_step_twice(scanned, run, tmp_path):
    other = save_series(tmp_path / "tensors", random_walk([2000], shapes={"w": (3, 3)}))
    refused(other, run, "other tensors", "step_2000 another network", add=True)
    lacking = {n: t for n, t in random_walk([2000])[2000].items() if n != "ln_f.weight"}
    refused(save_series(tmp_path / "fewer", {2000: lacking}), run, "other tensors", "ln_f.weight", add=True)
    other = save_series(tmp_path / "steps", random_walk([1000, 2000], seed=1))
    refused(other, run, "step 1000", "--steps", add=True)


def test_a_head_that_is_stored_twice_is_no_other_tensor(tmp_path, run):
    """It is found to be tied by its contents, after the first scan."""
    walk = random_walk([0, 10, 20, 30, 40])
    for state in walk.values():
        state["lm_head.weight"] = state["wte.weight"].clone()
    folder = save_series(tmp_path / "a", {step: walk[step] for step in (0, 10)})
    scan(folder, run).close()
    scan(save_series(tmp_path / "b", {20: walk[20], 30: walk[30]}), run, add=True).close()
    assert steps_of(run) == [0, 10, 20, 30]
    run = tmp_path / "rotated.db"
    scan(folder, run).close()
    scan(replace_files(folder, {40: walk[40]}), run).close()
    assert steps_of(run) == [0, 10, 40]


def test_a_continuation_needs_the_earlier_checkpoints(scanned, run, continued):
    (scanned / "step_0.safetensors").unlink()
    with pytest.raises(UsageError, match=r"--add needs the checkpoints .*step_0\.safetensors is gone"):
        scan(continued[1], run, add=True)


def test_add_without_an_effect_is_refused(scanned, run, tmp_path):
    with pytest.raises(UsageError, match="there is none yet"):
        scan(scanned, tmp_path / "new.db", add=True)
    assert not (tmp_path / "new.db").exists()
    with pytest.raises(UsageError, match="--add has no effect"):
        scan(scanned, run, add=True)
    with pytest.raises(UsageError, match="add must be True or False"):
        scan(scanned, run, add="yes")


# -- run files of earlier releases, and of other measurements --------------------------


def forget_sources(run, source):
    """Make the file what the release before wrote: no places, and sources as they were typed."""
    with sqlite3.connect(run) as db:
        db.execute("DELETE FROM meta WHERE key = 'sources'")
        db.execute("UPDATE checkpoint SET source = ? || '/' || label || '.safetensors'", (source,))
    db.close()


def test_a_run_file_of_the_release_before(scanned, run, tmp_path, states, monkeypatch, reads):
    monkeypatch.chdir(tmp_path)
    forget_sources(run, "a")
    refused(save_series(tmp_path / "b", random_walk(STEPS, seed=1)), run, scanned)
    refused(save_series(tmp_path / "c", random_walk([2000], seed=1)), run, scanned)
    reads.clear()
    scan("a", run).close()
    assert reads == {}
    forget_sources(run, "gone/long/ago")
    monkeypatch.chdir("/")
    scan(scanned, run).close()
    assert_rows(run, states)


def test_a_scan_that_fails_leaves_no_trace(scanned, run, tmp_path):
    (tmp_path / "empty").mkdir()
    before = run.read_bytes()
    with pytest.raises(CheckpointError):
        scan(tmp_path / "empty", run)
    assert run.read_bytes() == before


def live_file(run, states, tensors=None, tied=None):
    """A run file as a monitor leaves it: sums of every tensor, no maxima, no products with θ₀."""
    first = next(iter(states.values()))
    with Run.create(run) as opened, opened.transaction():
        from normscope.weights.tensor_rows import add_tensors
        from tests.weights.named import Named

        rows = add_tensors(opened, [Named(n, t) for n, t in (tensors or first).items()], tied or {})
        for step, state in states.items():
            opened.write(
                WeightRow(step, step - 1, row.id, float(state[row.name].double().pow(2).sum()), 0.0, 0.0)
                for row in rows
                if row.name in state
            )
        opened.set_meta("monitor", {})


def test_checkpoints_of_a_live_training(tmp_path, run, states):
    live_file(run, states)
    with sqlite3.connect(run) as db:
        db.execute("UPDATE weight SET sumsq = sumsq * (1 + 1e-7)")
    db.close()
    scan(save_series(tmp_path / "a", states), run).close()
    assert steps_of(run) == STEPS


def test_checkpoints_of_a_live_training_saved_in_half_precision(tmp_path, run, states):
    live_file(run, states)
    halved = {step: {n: t.bfloat16() for n, t in state.items()} for step, state in states.items()}
    scan(save_series(tmp_path / "a", halved), run).close()
    assert steps_of(run) == STEPS


def test_checkpoints_of_another_training_than_the_live_one(tmp_path, run, states):
    live_file(run, states)
    refused(save_series(tmp_path / "b", random_walk(STEPS, seed=1)), run, "live training", "the norm of")
    refused(save_series(tmp_path / "c", random_walk([1000], seed=1)), run, "step 1000")
    refused(save_series(tmp_path / "d", random_walk([7], shapes={"w": (3,)})), run, "tensors are not those")
    lacking = {step: {n: t for n, t in s.items() if "c_fc" not in n} for step, s in states.items()}
    refused(save_series(tmp_path / "e", lacking), run, "c_fc")
    more = {step: {**state, "h.9.mlp.weight": torch.ones(3, 3)} for step, state in states.items()}
    refused(save_series(tmp_path / "f", more), run, "h.9.mlp.weight")


def test_a_series_on_another_file_system(run, tmp_path, states):
    fsspec = pytest.importorskip("fsspec")
    from safetensors.torch import save

    memory = fsspec.filesystem("memory")
    for name, walk in (("one", states), ("two", random_walk(STEPS, seed=1))):
        for step, state in walk.items():
            memory.pipe(f"/{name}/step_{step}.safetensors", save(state))
    try:
        scan("memory://one", run).close()
        scan("memory://one/", run).close()
        assert_rows(run, states)
        refused("memory://two", run, "memory://one", "memory://two")
    finally:
        memory.rm("/", recursive=True)


def test_a_run_file_that_is_a_link(scanned, run, tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(run)
    with pytest.raises(AnotherSeries):
        scan(save_series(tmp_path / "b", random_walk(STEPS, seed=1)), link)


def test_dtypes_that_no_kernel_knows_do_not_matter(tmp_path, run):
    folder = tmp_path / "a"
    folder.mkdir()
    for step in (1, 2):
        state = {"w": torch.full((3, 3), float(step)), "ids": torch.arange(3)}
        save_file(state, folder / f"step_{step}.safetensors")
    scan(folder, run).close()
    scan(folder, run).close()
    assert steps_of(run) == [1, 2]


# -- what else is read, and what is gone ----------------------------------------------


def test_another_training_where_the_rest_of_the_series_was(scanned, run):
    """A part is scanned with the rest, so the rest must still be what was recorded."""
    other = random_walk(STEPS, seed=1)
    save_series(scanned, {step: other[step] for step in (0, 10, 100)})
    refused(scanned / "step_1000.safetensors", run, "steps 0, 10, 100", "step_0.safetensors", "--run FILE")


def test_another_training_where_a_continued_series_began(scanned, run, continued):
    _, folder = continued
    scan(folder, run, add=True).close()
    save_series(scanned, random_walk(STEPS, seed=1))
    refused(folder, run, "steps 0, 10, 100 and 1 more", "have other contents now")
    refused(folder, run, "have other contents now", add=True)


def test_a_link_that_points_to_another_training_now(tmp_path, run, states):
    link = tmp_path / "latest"
    link.symlink_to(save_series(tmp_path / "a", states))
    scan(link, run).close()
    link.unlink()
    link.symlink_to(save_series(tmp_path / "b", random_walk(STEPS, seed=1)))
    refused(link, run, tmp_path / "a", tmp_path / "b")
    refused(tmp_path / "a" / "step_1000.safetensors", run, "have other contents now")
    scan(tmp_path / "a", run).close()
    assert_rows(run, states)


def test_another_training_of_the_head_alone(tmp_path, run):
    """The samples of a large file may all be in layers that are frozen."""
    backbone = random_walk([0], shapes={f"h.{i}.mlp.c_fc.weight": (256, 256) for i in range(8)})[0]

    def train(seed):
        heads = random_walk([0, 10, 20], seed=seed, shapes={"h.4.adapter.weight": (4, 64)})
        return save_series(tmp_path / "a", {step: backbone | head for step, head in heads.items()})

    scan(train(1), run).close()
    refused(train(2), run, "3 of 3 checkpoints have other contents")


def test_digests_of_the_release_before_are_recognised(tmp_path, run, reads):
    shapes = {f"h.{i}.mlp.c_fc.weight": (128, 128) for i in range(4)}
    folder = save_series(tmp_path / "a", random_walk([0, 10], shapes=shapes))
    scan(folder, run).close()
    with Run(run, write=True) as opened, opened.transaction():
        rows = opened.checkpoints()
        assert all("." in row.digest for row in rows)
        opened.write([replace(row, digest=row.digest.partition(".")[0]) for row in rows])
    reads.clear()
    scan(folder, run).close()
    assert reads == {}


@pytest.mark.parametrize("first", ["folder", "url"])
def test_a_file_url_is_the_folder(tmp_path, run, states, reads, first):
    folder = save_series(tmp_path / "a", states)
    sources = [folder, f"file://{folder}/", f"file://{folder}"]
    for source in sources if first == "folder" else sources[::-1]:
        scan(source, run).close()
    assert_rows(run, states)
    assert sum(reads.values()) == sum(t.nbytes for state in states.values() for t in state.values())


def test_what_a_rotation_leaves_unknown_is_said(scanned, run, states, reads):
    more = random_walk([*STEPS, 2000, 3000])
    for step in (0, 10):
        (scanned / f"step_{step}.safetensors").unlink()
    save_series(scanned, {2000: more[2000]})
    scan(scanned, run).close()
    reads.clear()
    scan(scanned, run).close()
    assert reads == {}  # θ₀ is the same as in the scan before
    with Run(run) as opened:
        found = summarise(opened)
        assert "step 0, the first checkpoint, is gone: distances are measured from step 100" in str(found)
        assert not any("never compared" in sentence for sentence in found.headlines)
        grouped = group(opened, scope="all")
        distances = dict(zip(grouped.steps.tolist(), grouped.measure("distance")[:, 0], strict=True))
    true = sum(float(((more[2000][n] - t).double() ** 2).sum()) for n, t in more[100].items()) ** 0.5
    assert distances[2000] == pytest.approx(true, rel=1e-5) and math.isnan(distances[10])


def test_checkpoints_that_were_never_there_together(scanned, run):
    """A rotation and another training look the same, if nothing of the earlier one is left."""
    for step in STEPS:
        (scanned / f"step_{step}.safetensors").unlink()
    save_series(scanned, random_walk([2000, 3000], seed=7))
    for _ in range(2):  # it is not forgotten at the next scan
        scan(scanned, run).close()
        with Run(run) as opened:
            (sentence,) = [each for each in summarise(opened).headlines if "never compared" in each]
            assert "1000 with 2000" in sentence and str(run) in sentence


def test_many_files_are_not_all_listed_in_a_refusal(scanned, run, tmp_path):
    folder = save_series(tmp_path / "b", random_walk(range(0, 90, 10), seed=1))
    with pytest.raises(AnotherSeries, match=r"and 6 more are another series"):
        scan(sorted(folder.iterdir()), run)


def test_a_refused_scan_adds_no_tables_to_an_older_file(scanned, run, tmp_path):
    """What is new in this release comes into an older file with the first scan that is not refused."""
    with sqlite3.connect(run) as db:
        for table in ("left_out", "finding", "measure"):
            db.execute(f"DROP TABLE {table}")
    db.close()
    refused(save_series(tmp_path / "b", random_walk(STEPS, seed=1)), run, scanned)
    scan(scanned, run).close()
    with sqlite3.connect(run) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    assert {"left_out", "finding", "measure"} <= tables


def test_two_series_that_an_earlier_release_put_into_one_file(tmp_path, run):
    """Its rows compare each series with itself only, so nothing looks wrong."""
    for name, steps, seed in (("a", [0, 100, 200], 0), ("b", [50, 150, 250], 1)):
        scan(save_series(tmp_path / name, random_walk(steps, seed=seed)), tmp_path / f"{name}.db").close()
    with Run(tmp_path / "b.db") as other, Run.create(tmp_path / "a.db") as mixed, mixed.transaction():
        mixed.write(other.checkpoints())
        sums = "sumsq, dot, sumsq_delta, dot_init, absmax, nonfinite"
        mixed.write_sums(other.query(f"SELECT stage, step, prev_step, tensor, {sums} FROM weight"))
        mixed.delete_rows("meta", "key = 'sources'")
    with Run(tmp_path / "a.db") as mixed:
        (found,) = mixed.findings()
        assert found.kind == "mixed-runs" and found.confidence > 0.5 and "0 with 50" in found.evidence
    assert not audit(tmp_path / "a.db").sound
    with Run.create(tmp_path / "b.db") as alone, alone.transaction():
        alone.delete_rows("meta", "key = 'sources'")
    assert Run(tmp_path / "b.db").findings() == []


def test_a_moved_series_that_lost_its_last_checkpoints(scanned, run, tmp_path):
    """What is left of it is known by its contents; a copy of a part beside the whole may be a branch."""
    shutil.copytree(scanned, tmp_path / "part", ignore=shutil.ignore_patterns("*1000*"))
    refused(tmp_path / "part", run, "--add")
    shutil.rmtree(scanned)
    scan(tmp_path / "part", run).close()
    assert steps_of(run) == STEPS
    assert "found in another place" in notes_of(run)[0]


def test_another_choice_of_tensors_is_audited_again(tmp_path, run):
    """The comparison that is kept in the run file is one of the tensors that were measured then."""
    shapes = {"h.0.attn.weight": (16, 16), "h.0.mlp.weight": (64, 64)}
    one, other = (random_walk(range(8), seed=seed, shapes=shapes) for seed in (0, 1))
    mlp = {step: (one if step < 4 else other)[step]["h.0.mlp.weight"] for step in one}
    folder = save_series(tmp_path / "a", {step: {**one[step], "h.0.mlp.weight": mlp[step]} for step in one})
    for skip, expected in ((["*mlp*"], []), ([], [("mixed-runs", (4, 5, 6, 7))]), (["*mlp*"], [])):
        with scan(folder, run, skip=skip) as opened:
            assert [(finding.kind, finding.steps) for finding in opened.findings()] == expected


@pytest.mark.parametrize(
    "stored", [["lm_head.weight"], ["lm_head.weight", "wte.weight"]], ids=["once", "twice"]
)
def test_a_tied_tensor_of_a_live_training_counts_once(tmp_path, run, states, stored):
    """A monitor counts it under the first name in the model, `save_model` keeps the first in the alphabet."""
    tensors = {**states[0], "lm_head.weight": states[0]["wte.weight"]}
    live_file(run, states, tensors, {"lm_head.weight": "wte.weight"})
    saved = {step: {**s, **{name: s["wte.weight"].clone() for name in stored}} for step, s in states.items()}
    for state in saved.values() if len(stored) == 1 else ():
        del state["wte.weight"]
    for _ in range(2):
        with scan(save_series(tmp_path / "a", saved), run) as opened:
            assert [row.name for row in opened.tensors() if row.tied_to is not None] == ["lm_head.weight"]
        found = series(run, "norm", scope="all")
        norms = [sum(float(t.double().square().sum()) for t in s.values()) ** 0.5 for s in states.values()]
        assert list(found[0].values) == pytest.approx(norms, rel=1e-5)


def test_checkpoints_at_steps_that_a_monitor_did_not_record(tmp_path, run, states):
    live_file(run, {step: states[step] for step in STEPS[:2]})
    scan(save_series(tmp_path / "a", {step: states[step] for step in STEPS[2:]}), run).close()
    assert "recorded no step that a checkpoint was saved at" in notes_of(run)[0]
