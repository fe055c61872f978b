"""A sound series, and copies of it with one fault each, which the audit must name."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from normscope.errors import NotARunFile, RunFileError, UsageError
from normscope.remarks import SURE, Finding, read_findings, unsound_sentence
from normscope.remarks import sound as sound_series
from normscope.run import Run
from normscope.weights.audit.audit import audit
from normscope.weights.scan.scan import scan
from tests.conftest import save_series

STEPS = [1000 * i for i in range(1, 11)]


def start(seed):
    generator = torch.Generator().manual_seed(seed)
    return {
        "wte.weight": 0.2 * torch.randn(64, 32, generator=generator),
        "h.0.mlp.c_fc.weight": 0.2 * torch.randn(32, 96, generator=generator),
        "h.0.mlp.c_proj.weight": torch.zeros(96, 32),
        "h.0.ln_1.weight": torch.ones(32),
        "h.0.ln_1.bias": torch.zeros(32),
    }


def train(seed, data_seed=None):
    """Checkpoints of a random walk with weight decay; another `data_seed` is another run from one start."""
    generator = torch.Generator().manual_seed(100 + (seed if data_seed is None else data_seed))
    weights, found = start(seed), []
    for _ in STEPS:
        for tensor in weights.values():
            tensor.mul_(0.98).add_(0.02 * torch.randn(tensor.shape, generator=generator))
        found.append({name: tensor.clone() for name, tensor in weights.items()})
    return found


def write(folder, states, steps=STEPS):
    return save_series(folder, dict(zip(steps, states, strict=True)))


def test_a_series_is_sound_if_nothing_is_said_of_it_first():
    for confidence in (0.0, SURE - 0.01, SURE, 1.0):
        found = [Finding("gap", (3,), "step 3 is missing", confidence), Finding("zero", (1,), "w is 0", 0.1)]
        assert sound_series(found) is (unsound_sentence(found) is None) is (confidence < SURE)
    assert sound_series([]) and unsound_sentence([]) is None


def kinds(result):
    assert all(0 < finding.confidence <= 1 for finding in result.findings)
    return {finding.kind for finding in result.findings if finding.confidence >= 0.5}


def only(result, kind):
    assert kinds(result) == {kind}, result.findings
    assert not result.sound
    return next(finding for finding in result.findings if finding.kind == kind)


@pytest.fixture(scope="module")
def sound():
    return train(0)


def test_sound_series(tmp_path, sound):
    result = audit(write(tmp_path / "s", sound))
    assert result.sound and result.findings == ()
    assert result.checkpoints == 10 and result.spacing == {"": "every 1000"}
    assert "mixed-runs" in result.checked and "name" in result.checked


def test_duplicate_of_a_neighbour(tmp_path, sound):
    found = only(audit(write(tmp_path / "s", [*sound[:4], sound[3], *sound[5:]])), "duplicate")
    assert found.steps == (4000, 5000) and found.confidence == 1


def test_duplicate_far_away_with_another_header(tmp_path, sound):
    folder = write(tmp_path / "s", sound)
    save_file(sound[1], folder / "step_8000.safetensors", metadata={"format": "pt"})
    assert only(audit(folder), "duplicate").steps == (2000, 8000)


def test_equal_digests_of_unequal_weights_are_not_a_duplicate(tmp_path):
    """The digest of a large file covers samples of it; if they miss a change, the sums decide."""
    base, folder = torch.randn(400_000, generator=torch.Generator().manual_seed(0)), tmp_path / "s"
    states = []
    for i in range(4):
        changed = base.clone()
        changed[5000] += i + 1
        states.append({"h.0.mlp.weight": changed.reshape(800, 500)})
    result = audit(write(folder, states, [1, 2, 3, 4]), run=tmp_path / "r.db")
    with Run(tmp_path / "r.db") as run:
        assert len({row.digest for row in run.checkpoints()}) == 1
    assert "duplicate" not in kinds(result)


@pytest.mark.parametrize("data_seed", [None, 7], ids=["other start", "same start"])
def test_mixed_runs_at_a_boundary(tmp_path, sound, data_seed):
    other = train(1) if data_seed is None else train(0, data_seed)
    found = only(audit(write(tmp_path / "s", [*sound[:6], *other[6:]])), "mixed-runs")
    assert found.steps == (7000, 8000, 9000, 10000)
    assert found.numbers["boundary"] == 7000


def test_mixed_runs_block_and_alternation(tmp_path, sound):
    other = train(1)
    block = only(audit(write(tmp_path / "b", [*sound[:4], *other[4:7], *sound[7:]])), "mixed-runs")
    assert block.steps == (5000, 6000, 7000)
    turns = [pair[i % 2] for i, pair in enumerate(zip(sound, other, strict=True))]
    assert only(audit(write(tmp_path / "a", turns)), "mixed-runs").steps == tuple(STEPS[1::2])


def test_one_foreign_checkpoint(tmp_path, sound):
    other = train(1)
    for place in (0, 5, 9):
        states = [*sound[:place], other[place], *sound[place + 1 :]]
        assert only(audit(write(tmp_path / f"{place}", states)), "outlier").steps == (STEPS[place],)


def test_exchanged_labels(tmp_path, sound):
    near = [*sound[:4], sound[5], sound[4], *sound[6:]]
    assert only(audit(write(tmp_path / "near", near)), "order").steps == (5000, 6000)
    far = list(sound)
    far[2], far[7] = far[7], far[2]
    assert only(audit(write(tmp_path / "far", far)), "order").steps == (3000, 8000)


@pytest.mark.parametrize("counted", [lambda step: step - 1, lambda step: 4 * step], ids=["from 0", "batches"])
def test_stored_step_contradicts_the_label(tmp_path, sound, counted):
    for step, state in zip(STEPS, sound, strict=True):
        inside = 9000 if step == 4000 else counted(step)
        torch.save({"model": state, "step": inside}, tmp_path / f"step_{step}.pt")
    found = only(audit(tmp_path), "order")
    assert found.steps == (4000,) and "4000 contains step 9000" in found.evidence


def test_gap(tmp_path, sound):
    folder = write(tmp_path / "s", sound)
    (folder / "step_6000.safetensors").unlink()
    assert only(audit(folder), "gap").steps == (6000,)


def test_nonfinite_does_not_hide_the_rest(tmp_path, sound):
    states = [{n: t.clone() for n, t in s.items()} for s in sound]
    states[3]["wte.weight"][0, :2] = torch.tensor([float("nan"), float("inf")])
    found = only(audit(write(tmp_path / "s", states)), "nonfinite")
    assert found.steps == (4000,) and found.numbers["values"] == 2


def test_a_model_that_became_nan_altogether(tmp_path, sound):
    states = [*sound[:6], *({n: torch.full_like(t, float("nan")) for n, t in s.items()} for s in sound[6:])]
    assert only(audit(write(tmp_path / "s", states)), "nonfinite").steps == (7000, 8000, 9000, 10000)


def test_zero_tensors(tmp_path, sound):
    first = dict(sound[0])
    first["h.0.mlp.c_proj.weight"] = torch.zeros(96, 32)  # an initialisation, not a fault
    assert audit(write(tmp_path / "init", [first, *sound[1:]])).sound
    lost = dict(sound[5])
    lost["h.0.ln_1.weight"] = torch.zeros(32)
    result = audit(write(tmp_path / "lost", [*sound[:5], lost, *sound[6:]]))
    assert next(f for f in result.findings if f.kind == "zero").steps == (6000,)
    never = [{**s, "h.0.mlp.c_proj.weight": torch.zeros(96, 32)} for s in sound]
    assert len(only(audit(write(tmp_path / "never", never)), "zero").steps) == 10


def test_headers(tmp_path, sound):
    def changed(name, **tensors):
        return write(tmp_path / name, [*sound[:6], {**sound[6], **tensors}, *sound[7:]])

    grown = torch.cat([sound[6]["wte.weight"], torch.zeros(3, 32)])
    assert only(audit(changed("v", **{"wte.weight": grown})), "embedding").steps == (7000,)
    other = torch.ones(33)
    assert only(audit(changed("s", **{"h.0.ln_1.weight": other})), "shape").steps == (7000,)
    assert only(audit(changed("n", **{"h.1.ln_1.weight": other})), "name").steps == (7000,)
    half = {name: tensor.half() for name, tensor in sound[6].items()}
    found = only(audit(changed("d", **half)), "dtype")
    assert found.numbers == {"tensors": 5, "dtype": "float16", "usual": "float32"}
    wrapped = {f"module.{name}": tensor for name, tensor in sound[6].items()}
    folder = write(tmp_path / "w", [*sound[:6], wrapped, *sound[7:]])
    assert "same tensors under other names" in only(audit(folder), "name").evidence


def test_unreadable_checkpoint_is_a_finding(tmp_path, sound):
    folder = write(tmp_path / "s", sound)
    with (folder / "step_5000.safetensors").open("r+b") as file:
        file.truncate(1000)
    assert only(audit(folder), "unreadable").steps == (5000,)


def test_a_shard_that_was_not_written(tmp_path, sound):
    stale = {**sound[5], "wte.weight": sound[4]["wte.weight"]}
    found = only(audit(write(tmp_path / "s", [*sound[:5], stale, *sound[6:]])), "stale")
    assert found.steps == (5000, 6000) and found.numbers["tensors"] == 1


def test_stages_are_judged_apart(tmp_path, sound):
    other = train(3)
    for step, a, b in zip(STEPS, sound, other, strict=True):
        save_file(a, tmp_path / f"stage1-step{step}.safetensors")
        save_file(b, tmp_path / f"stage2-step{step}.safetensors")
    assert audit(tmp_path).sound
    (tmp_path / "stage2-step4000.safetensors").unlink()
    assert only(audit(tmp_path), "gap").stage == "stage2"


def test_run_file_is_kept_and_reused(tmp_path, sound):
    folder, file = write(tmp_path / "s", sound), tmp_path / "r.db"
    seen = []
    assert audit(folder, run=file).sound
    audit(folder, run=file, progress=lambda done, total, note: seen.append(note))
    assert not [note for note in seen if "GB" in note]  # the series is not scanned again
    with Run(file) as run:
        assert len(run.checkpoints()) == 10


def test_run_file_alone(tmp_path, sound):
    other = train(1)
    scan(write(tmp_path / "s", [*sound[:6], *other[6:]]), tmp_path / "r.db").close()
    shutil.rmtree(tmp_path / "s")
    result = audit(tmp_path / "r.db")
    assert only(result, "mixed-runs").steps == (7000, 8000, 9000, 10000)
    assert "name" not in result.checked


def test_bad_calls(tmp_path, sound):
    Run.create(tmp_path / "empty.db").close()
    with pytest.raises(RunFileError, match="no checkpoints to audit"):
        audit(tmp_path / "empty.db")
    import sqlite3

    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE t(x)")
    db.close()
    with pytest.raises(NotARunFile):
        audit(tmp_path / "other.db")
    with pytest.raises(UsageError):
        audit(write(tmp_path / "s", sound), steps=[1, 2])


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"steps": STEPS}, "`steps`"),
        ({"revisions": "step*", "run": "other.db"}, "`run` and `revisions`"),
    ],
)
def test_options_that_a_run_file_has_no_use_for(tmp_path, sound, options, names):
    scan(write(tmp_path / "s", sound), tmp_path / "r.db").close()
    with pytest.raises(UsageError, match=f"{names} cannot be used with the run file .*r.db"):
        audit(tmp_path / "r.db", **options)
    with pytest.raises(TypeError, match="stride"):
        audit(tmp_path / "r.db", stride=2)


def test_steps_are_used(tmp_path, sound):
    result = audit(write(tmp_path / "s", sound), steps=[10 * step for step in STEPS], run=tmp_path / "r.db")
    assert result.spacing == {"": "every 10000"}
    with Run(tmp_path / "r.db") as run:
        assert [row.step for row in run.checkpoints()][-1] == 100_000


def test_result_is_a_table(tmp_path, sound):
    result = audit(write(tmp_path / "s", [*sound[:4], sound[3], *sound[5:]]))
    assert list(result.table) == [
        {
            "kind": "duplicate",
            "stage": "",
            "steps": "4000 5000",
            "confidence": 1.0,
            "evidence": result.findings[0].evidence,
        }
    ]
    assert "<td>duplicate</td>" in result._repr_html_()


def test_one_or_two_checkpoints(tmp_path, sound):
    assert audit(write(tmp_path / "1", sound[:1], [0])).sound
    assert audit(write(tmp_path / "2", sound[:2], [0, 10])).sound
    equal = audit(write(tmp_path / "3", [sound[0], sound[0]], [0, 1]))
    assert equal.sound and equal.findings[0].kind == "duplicate"  # a warm-up from 0: a hint
    assert np.isclose(equal.findings[0].confidence, 0.4)


def test_a_single_checkpoint_has_nothing_to_compare(tmp_path, sound):
    result = audit(write(tmp_path / "1", sound[:1], [0]))
    assert result.sound and result.nothing_to_compare
    assert result.messages == ("nothing to compare: there is only one checkpoint",)
    assert not audit(write(tmp_path / "2", sound[:2], [0, 10])).nothing_to_compare


@pytest.mark.parametrize("lag", [2, 3, 4])
def test_a_shard_that_is_older(tmp_path, sound, lag):
    stale = {**sound[7], "h.0.mlp.c_fc.weight": sound[7 - lag]["h.0.mlp.c_fc.weight"]}
    result = audit(write(tmp_path / "s", [*sound[:7], stale, *sound[8:]]))
    found = next(finding for finding in result.findings if finding.kind == "stale")
    assert found.steps == (STEPS[7 - lag], STEPS[7]) and "in between" in found.evidence


@pytest.mark.parametrize("place", [2, 5, 8])
def test_a_shard_that_was_not_written_again(tmp_path, sound, place):
    """It is as it was one checkpoint before: the third of a series is the first of which that can be said."""
    stale = {**sound[place], "h.0.mlp.c_fc.weight": sound[place - 1]["h.0.mlp.c_fc.weight"]}
    found = only(audit(write(tmp_path / "s", [*sound[:place], stale, *sound[place + 1 :]])), "stale")
    assert found.steps == (STEPS[place - 1], STEPS[place]) and "h.0.mlp.c_fc.weight" in found.evidence


def test_gains_and_tables_do_not_hide_another_run(tmp_path, sound):
    """Most of the norm is in what any two runs have alike: a gain of ones, and a constant table."""
    common = {"norm.weight": 30 * torch.ones(500), "table.values": 5 * torch.ones(60, 60)}
    states = [{**state, **common} for state in [*sound[:6], *train(1)[6:]]]
    found = only(audit(write(tmp_path / "s", states)), "mixed-runs")
    assert found.steps == (7000, 8000, 9000, 10000) and found.numbers["cosine"] < 0.1


def test_unrelated_seeds(tmp_path):
    states = [train(seed)[seed] for seed in range(5)]
    found = only(audit(write(tmp_path / "s", states, [1, 2, 3, 4, 5])), "mixed-runs")
    assert len(found.steps) == 5


def test_a_scan_keeps_what_it_found(tmp_path, sound):
    folder = write(tmp_path / "s", [*sound[:6], *train(0, 7)[6:]])
    with scan(folder, tmp_path / "r.db") as run:
        (kept,) = read_findings(run)
    assert kept.kind == "mixed-runs" and kept.steps == (7000, 8000, 9000, 10000)
    assert [f.kind for f in audit(tmp_path / "r.db").findings] == ["mixed-runs"]
    with scan(write(tmp_path / "t", sound), tmp_path / "t.db") as run:
        assert read_findings(run) == []


def test_a_run_file_shows_what_only_a_sample_can(tmp_path, sound):
    """Exchanged labels are invisible to the sums of neighbours; the scan kept the comparison of all pairs."""
    folder = write(tmp_path / "s", [*sound[:4], sound[5], sound[4], *sound[6:]])
    scan(folder, tmp_path / "r.db").close()
    shutil.rmtree(folder)
    assert only(audit(tmp_path / "r.db"), "order").steps == (5000, 6000)


def test_the_kept_comparison_is_not_used_for_other_files(tmp_path, sound):
    folder = write(tmp_path / "s", sound)
    with scan(folder, tmp_path / "r.db") as run:
        assert read_findings(run) == []
    save_file(train(1)[4], folder / "step_5000.safetensors")
    with scan(folder, tmp_path / "r.db") as run:
        assert [finding.kind for finding in read_findings(run)] == ["outlier"]
    save_file(sound[4], folder / "step_5000.safetensors")
    with scan(folder, tmp_path / "r.db") as run:
        assert read_findings(run) == []


def test_a_scan_of_one_checkpoint_samples_nothing(tmp_path, sound, reads):
    with scan(write(tmp_path / "s", sound[:1], [0]), tmp_path / "r.db") as run:
        assert run.artifacts("pairs") == {} and read_findings(run) == []


def test_compressed_files_are_compared_by_an_audit_only(tmp_path, sound):
    swapped = [*sound[:4], sound[5], sound[4], *sound[6:]]
    for step, state in zip(STEPS, swapped, strict=True):
        np.savez_compressed(tmp_path / f"step_{step}.npz", **{n: t.numpy() for n, t in state.items()})
    with scan(tmp_path, tmp_path / "r.db") as run:
        assert run.artifacts("pairs") == {} and read_findings(run) == []
    assert only(audit(tmp_path), "order").steps == (5000, 6000)


def test_one_nan_checkpoint_does_not_hide_another_run_after_it(tmp_path, sound):
    lost = {name: torch.full_like(tensor, float("nan")) for name, tensor in sound[2].items()}
    folder = write(tmp_path / "s", [*sound[:2], lost, *sound[3:6], *train(1)[6:]])
    for result in (audit(folder), audit(folder, run=tmp_path / "r.db"), audit(tmp_path / "r.db")):
        assert kinds(result) == {"nonfinite", "mixed-runs"}
        found = next(f for f in result.findings if f.kind == "mixed-runs")
        assert found.steps == (7000, 8000, 9000, 10000)
    alone = write(tmp_path / "alone", [*sound[:2], lost, *sound[3:]])
    assert only(audit(alone), "nonfinite").steps == (3000,)


@pytest.mark.parametrize("place", [0, 4])
def test_sums_alone_around_a_nan_checkpoint(tmp_path, sound, place):
    lost = {name: np.full_like(tensor, np.nan) for name, tensor in sound[place].items()}
    folder = tmp_path / "s"
    folder.mkdir()
    for i, (step, state) in enumerate(zip(STEPS, sound, strict=True)):
        np.savez_compressed(folder / f"step_{step}.npz", **(lost if i == place else state))
    with scan(folder, tmp_path / "r.db") as run:
        assert [f.kind for f in read_findings(run)] == ["nonfinite"]


def test_a_copy_is_a_duplicate_and_nothing_else(tmp_path, sound):
    for i, j in ((2, 5), (4, 5), (3, 9)):
        copied = [sound[i] if k == j else state for k, state in enumerate(sound)]
        only(audit(write(tmp_path / f"{i}-{j}", copied)), "duplicate")
    equal = audit(write(tmp_path / "equal", [sound[6] if k == 4 else sound[0] for k in range(10)]))
    assert only(equal, "duplicate").steps == tuple(step for step in STEPS if step != 5000)


def test_a_longer_position_table_is_not_another_vocabulary(tmp_path):
    runs = train(0)
    for i, state in enumerate(runs):
        angles = torch.arange(32 if i < 5 else 64)[:, None] * 10_000.0 ** (-torch.arange(8) / 8)
        state["pos.pe"] = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    write(tmp_path, runs)
    assert audit(tmp_path).findings == ()
    for state in runs[5:]:
        state["wte.weight"] = torch.cat([state["wte.weight"], 0.2 * torch.ones(8, 32)])
    write(tmp_path, runs)
    assert [finding.kind for finding in audit(tmp_path).findings if finding.confidence == 1] == ["embedding"]
