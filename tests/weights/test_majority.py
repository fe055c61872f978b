"""One odd file among good ones is left out and named; without a clear majority the scan is refused."""

import json
import random
import re

import pytest
import torch
from safetensors.torch import save_file

from normscope.errors import CheckpointError, CorruptCheckpoint
from normscope.run import Run
from normscope.theory.measures.run_summary import summarise
from normscope.weights.scan.scan import scan
from tests.conftest import SHAPES, random_walk, save_series
from tests.weights.buffer_zoo import halves
from tests.weights.test_scan import assert_rows, rows_of

STEPS = list(range(0, 90, 10))


def scanned(tmp_path, folder, **options):
    with scan(folder, tmp_path / "run.db", **options) as run:
        return summarise(run)


def changed(states, **changes):
    """The states, some of them replaced by what a function of them returns: changed(states, step_10=f)."""
    return {step: changes.get(f"step_{step}", dict)(state) for step, state in states.items()}


def without(*names):
    return lambda state: {name: value for name, value in state.items() if name not in names}


def resized(name, rows):
    return lambda state: {**state, name: torch.randn(rows, *state[name].shape[1:])}


def kept(states, *left_out):
    return {step: state for step, state in states.items() if step not in left_out}


# -- a minority is left out, and the others are measured as if it were not there -----------------------


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (without("h.1.mlp.c_fc.weight", "h.2.ln_1.weight"), "lacks 2 of 20 tensors, for example h.1.mlp"),
        (
            resized("wte.weight", 60),
            r"has other shapes: wte.weight is \[60, 8\] instead of \[50, 8\]; it can be ",
        ),
        (
            lambda state: {**state, "score.weight": torch.ones(2, 8)},
            "has 1 tensor that the others lack, namely",
        ),
        (
            lambda state: random_walk([1], shapes={"conv.w": (9, 9), "fc.w": (5, 5)})[1],
            "another network: it lacks",
        ),
        (
            lambda state: {n: v.to(torch.int8) for n, v in state.items()},
            "contains no tensor that is measured",
        ),
        (
            lambda state: {"base_model.model.h.0.attn.lora_A.weight": torch.ones(2, 8)},
            "an adapter .LoRA., not the whole network",
        ),
    ],
    ids=["lacks some", "old vocabulary", "one more", "foreign", "integers", "adapter"],
)
@pytest.mark.parametrize("at", [0, 40, 80])
def test_an_odd_checkpoint_is_left_out_and_named(tmp_path, odd, reason, at):
    states = random_walk(STEPS)
    folder = save_series(tmp_path / "series", changed(states, **{f"step_{at}": odd}))
    found = scanned(tmp_path, folder)
    assert_rows(tmp_path / "run.db", kept(states, at))
    assert [each.label for each in found.left_out] == [f"step_{at}"]
    assert re.match(reason, found.left_out[0].reason)
    assert found.stages[0].checkpoints == len(STEPS) - 1
    for lines in (found.headlines, found.warnings):
        assert f"step_{at} is left out: {found.left_out[0].reason}" in lines


def test_eight_foreign_files_among_41(tmp_path):
    steps = list(range(0, 490, 10))
    states = random_walk(steps)
    foreign = sorted(random.Random(1).sample(steps, 8))
    other = random_walk(foreign, seed=5, shapes={f"blocks.{n}": s for n, s in list(SHAPES.items())[:9]})
    found = scanned(tmp_path, save_series(tmp_path / "series", states | other))
    assert found.tensors == len(SHAPES)
    assert_rows(tmp_path / "run.db", kept(states, *foreign))
    assert {each.label for each in found.left_out} == {f"step_{step}" for step in foreign}
    (headline,) = found.headlines
    assert "and 5 more are left out: another network" in headline


def test_the_reason_offers_the_option_that_brings_a_checkpoint_back(tmp_path):
    states = random_walk(STEPS)
    folder = save_series(tmp_path / "series", changed(states, step_20=resized("wte.weight", 60)))
    with scan(folder, tmp_path / "before.db") as run:
        (left_out,) = summarise(run).left_out
    assert left_out.reason.endswith("left out of all, with --skip 'wte.weight'")
    found = scanned(tmp_path, folder, skip=["wte.weight"])
    assert found.left_out == ()
    assert_rows(tmp_path / "run.db", {s: without("wte.weight")(state) for s, state in states.items()})


# -- no clear majority ------------------------------------------------------------------------------------


def test_a_vocabulary_resized_halfway_is_refused_with_both_ways_out(tmp_path):
    states = random_walk(STEPS)
    late = {f"step_{step}": resized("wte.weight", 64) for step in STEPS[5:]}
    folder = save_series(tmp_path / "series", changed(states, **late))
    with pytest.raises(CheckpointError) as refused:
        scan(folder, tmp_path / "run.db")
    text = str(refused.value)
    assert "the 5 checkpoints step_0 … step_40" in text
    assert "each of the 4 checkpoints step_50 … step_80 has other shapes: wte.weight is [64, 8]" in text
    assert "a glob or a list of its files, or leave out what differs with --skip 'wte.weight'." in text
    assert not (tmp_path / "run.db").exists()
    assert scanned(tmp_path, folder, skip=["wte.weight"]).stages[0].checkpoints == len(STEPS)
    early = [str(folder / f"step_{step}.safetensors") for step in STEPS[:5]]
    with scan(early, tmp_path / "early.db") as run:
        assert len(run.checkpoints()) == 5


@pytest.mark.parametrize(
    ("good", "odd", "accepted"), [(1, 1, False), (2, 1, True), (3, 2, False), (4, 2, True)]
)
def test_two_thirds_decide(tmp_path, good, odd, accepted):
    states = random_walk(range(good + odd))
    changes = {f"step_{step}": without("ln_f.weight") for step in range(good, good + odd)}
    folder = save_series(tmp_path / "series", changed(states, **changes))
    if accepted:
        assert len(scanned(tmp_path, folder).left_out) == odd
        assert_rows(tmp_path / "run.db", kept(states, *range(good, good + odd)))
    else:
        with pytest.raises(CheckpointError, match="fewer than two thirds of them agree"):
            scan(folder, tmp_path / "run.db")


def test_networks_without_a_common_tensor_are_not_offered_a_pattern(tmp_path):
    folder = tmp_path / "series"
    folder.mkdir()
    save_file({"a.w": torch.randn(8, 8)}, folder / "step_1.safetensors")
    save_file({"b.v": torch.randn(8, 8)}, folder / "step_2.safetensors")
    with pytest.raises(CheckpointError, match="is another network") as refused:
        scan(folder, tmp_path / "run.db")
    assert "--skip" not in str(refused.value)
    assert "If they are parts of one checkpoint, join them in one file first." in str(refused.value)


def save_stages(folder, late):
    """Two stages of four checkpoints; `late` gives the second stage's state at each step."""
    folder.mkdir()
    for step, state in random_walk([1000, 2000, 3000, 4000]).items():
        save_file(state, folder / f"stage1-step{step}-tokens{step // 1000}B.safetensors")
        save_file(late(step, state), folder / f"stage2-step{step}-tokens{step // 1000}B.safetensors")
    return folder


def test_stages_are_judged_apart(tmp_path):
    """All of the second stage lack a tensor, and one of them another one."""

    def late(step, state):
        return without("ln_f.weight", *(["wte.weight"] if step == 3000 else []))(state)

    found = scanned(tmp_path, save_stages(tmp_path / "series", late))
    assert [stage.checkpoints for stage in found.stages] == [4, 3]
    assert [each.label for each in found.left_out] == ["stage2-step3000-tokens3B"]
    assert "for example" not in found.left_out[0].reason
    assert "wte.weight" in found.left_out[0].reason


def test_a_shape_that_changes_between_stages_is_refused(tmp_path):
    """A run file has one shape of each tensor: the rms of one stage would be wrong."""
    folder = save_stages(tmp_path / "series", lambda step, state: resized("wte.weight", 60)(state))
    with pytest.raises(CheckpointError, match=r"wte.weight has the shape \[50, 8\] in stage1 and \[60, 8\]"):
        scan(folder, tmp_path / "run.db")
    assert not (tmp_path / "run.db").exists()
    assert [s.checkpoints for s in scanned(tmp_path, folder, skip=["wte.*"]).stages] == [4, 4]


# -- what may differ without making a checkpoint odd -------------------------------------------------------


def test_tensors_that_are_no_parameters_do_not_count(tmp_path):
    """Masks and tables that grow with the context, counters that come and go."""
    states = random_walk(STEPS)
    for i, (step, state) in enumerate(states.items()):
        length = 4 + i
        state["h.0.attn.bias"] = torch.ones(1, 1, length, length).tril()
        state["expert_count"] = torch.arange(length)
        if step % 20:
            state["h.0.attn.rotary_emb.inv_freq"] = 1.0 / 10000 ** (torch.arange(4) / 4)
    found = scanned(tmp_path, save_series(tmp_path / "series", states))
    assert found.left_out == ()
    assert found.tensors == len(SHAPES)
    assert {each.name for each in found.skipped_tensors} == {
        "h.0.attn.bias",
        "expert_count",
        "h.0.attn.rotary_emb.inv_freq",
    }
    assert found.warnings == ()


def test_tensors_under_skip_do_not_count(tmp_path):
    states = random_walk(STEPS)
    for i, state in enumerate(states.values()):
        state["load.balance"] = torch.randn(3 + i)
    folder = save_series(tmp_path / "series", states)
    with pytest.raises(CheckpointError, match=r"--skip 'load.balance'"):
        scan(folder, tmp_path / "run.db")
    assert scanned(tmp_path, folder, skip=["load.*"]).stages[0].checkpoints == len(STEPS)


@pytest.mark.parametrize("copied", [False, True], ids=["shared storage", "equal bytes"])
@pytest.mark.parametrize("holders", [1, 8])
def test_a_tied_head_that_some_files_do_not_store_is_no_difference(tmp_path, copied, holders):
    """Stored by torch.save, dropped by save_pretrained; also if a foreign file is among them."""
    states = random_walk(STEPS)
    folder = tmp_path / "series"
    folder.mkdir()
    for i, (step, state) in enumerate(states.items()):
        head = state["wte.weight"].clone() if copied else state["wte.weight"]
        stored = {**state, "lm_head.weight": head} if i < holders else state
        torch.save({"model": stored, "step": step}, folder / f"step_{step}.pt")
    torch.save({"model": {"other.weight": torch.randn(5, 5)}}, folder / "step_45.pt")
    found = scanned(tmp_path, folder)
    assert [each.label for each in found.left_out] == ["step_45"]
    assert found.stages[0].checkpoints == len(STEPS)
    assert found.tied == 1
    assert_rows(tmp_path / "run.db", states)


def test_a_head_that_is_trained_apart_is_no_tie(tmp_path):
    """Equal to the embedding at the first checkpoint only: a file without it lacks a parameter."""
    states = random_walk(STEPS)
    for step, state in states.items():
        state["lm_head.weight"] = state["wte.weight"] + step / 100
    folder = save_series(tmp_path / "series", changed(states, step_80=without("lm_head.weight")))
    found = scanned(tmp_path, folder)
    assert [(each.label, found.tied) for each in found.left_out] == [("step_80", 0)]
    assert found.left_out[0].reason.startswith("lacks 1 of 21 tensors, namely lm_head.weight")


# -- files that cannot be read -----------------------------------------------------------------------------


def damage(path, how):
    data = path.read_bytes()
    path.write_bytes({"truncated": data[:-40], "empty": b"", "text": b"no checkpoint at all\n" * 9}[how])


@pytest.mark.parametrize("how", ["truncated", "empty", "text"])
def test_a_damaged_file_is_left_out_with_the_readers_sentence(tmp_path, how):
    states = random_walk([0, 10, 20])
    folder = save_series(tmp_path / "series", states)
    damage(folder / "step_10.safetensors", how)
    with pytest.raises(CheckpointError) as refused:
        scan(folder / "step_10.safetensors", tmp_path / "alone.db")
    found = scanned(tmp_path, folder)
    (left_out,) = found.left_out
    assert (left_out.label, left_out.reason) == ("step_10", str(refused.value))
    assert any(left_out.reason in line for line in found.headlines)
    assert_rows(tmp_path / "run.db", kept(states, 10))


def test_damaged_files_that_are_no_minority_are_an_error(tmp_path):
    folder = save_series(tmp_path / "series", random_walk([0, 10, 20, 30]))
    for step in (0, 20):
        damage(folder / f"step_{step}.safetensors", "truncated")
    with pytest.raises(CorruptCheckpoint, match="2 of 4 checkpoints: .*step_0"):
        scan(folder, tmp_path / "run.db")


def test_files_that_are_no_models_are_left_out(tmp_path):
    """An optimizer's state and a config that are named like checkpoints."""
    states = random_walk(STEPS)
    folder = save_series(tmp_path / "series", states)
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), folder / "step_15.pt")
    torch.save({"lr": 1e-3, "layers": 12}, folder / "step_25.bin")
    (folder / "step_35.bin").write_text(json.dumps({"hidden_size": 8}))
    found = scanned(tmp_path, folder)
    assert {each.label for each in found.left_out} == {"step_15", "step_25", "step_35"}
    assert_rows(tmp_path / "run.db", states)


# -- a later scan may decide otherwise ---------------------------------------------------------------------


def test_rows_of_a_checkpoint_that_is_now_left_out_disappear(tmp_path):
    states = random_walk(STEPS)
    odd = changed(states, step_30=without("ln_f.weight"), step_40=without("ln_f.weight"))
    folder = save_series(tmp_path / "series", {step: odd[step] for step in (30, 40)})
    scan(folder, tmp_path / "run.db").close()
    assert {step for step, _, _ in rows_of(tmp_path / "run.db")} == {30, 40}
    save_series(folder, kept(odd, 30, 40))
    found = scanned(tmp_path, folder)
    assert [each.label for each in found.left_out] == ["step_30", "step_40"]
    assert_rows(tmp_path / "run.db", kept(states, 30, 40))
    with Run(tmp_path / "run.db") as run:
        assert [row.step for row in run.checkpoints()] == [s for s in STEPS if s not in (30, 40)]


def test_a_tensor_that_is_now_left_out_is_no_longer_counted(tmp_path):
    states = random_walk(STEPS)
    folder = save_series(tmp_path / "series", states)
    before = scanned(tmp_path, folder)
    found = scanned(tmp_path, folder, skip=["wte.*"])
    assert (before.tensors - found.tensors, found.skipped) == (1, 1)
    assert found.stages[0].norm_all_last == pytest.approx(found.stages[0].norm_last, rel=1e-9)
    assert_rows(tmp_path / "run.db", {s: without("wte.weight")(state) for s, state in states.items()})
    again = scanned(tmp_path, folder)
    assert (again.tensors, again.skipped_tensors) == (before.tensors, ())
    assert again.stages == before.stages
    assert_rows(tmp_path / "run.db", states)


def test_labels_that_are_not_unique_are_told_apart(tmp_path):
    """Checkpoints of equal names in several folders: two that are left out are two lines."""
    states = random_walk(range(9))
    sources = []
    for step, state in states.items():
        folder = tmp_path / f"part{'abcdefghi'[step]}"
        folder.mkdir()
        save_file(without("ln_f.weight")(state) if step in (2, 3) else state, folder / "model.safetensors")
        sources.append(folder / "model.safetensors")
    damage(sources[4], "truncated")
    with scan(sources, tmp_path / "run.db", steps=range(9)) as run:
        found = summarise(run)
    assert sorted(each.label for each in found.left_out) == [str(sources[i]) for i in (2, 3, 4)]
    assert_rows(tmp_path / "run.db", kept(states, 2, 3, 4))


@pytest.mark.parametrize(
    "odd",
    [
        lambda state: {**state, "table": halves(64, 8)},
        lambda state: {**state, "attn.allowed": torch.tril(torch.ones(16, 16))},
        lambda state: {**state, **{f"ema.{name}": 0.99 * value for name, value in state.items()}},
        lambda state: {**state, "lm_head.weight": state["wte.weight"].clone()},
    ],
    ids=["a longer table", "a mask", "an average", "a tied head"],
)
def test_what_is_not_counted_does_not_make_a_series_unsound(tmp_path, odd):
    states = {step: {**state, "table": halves(32, 8)} for step, state in random_walk(STEPS).items()}
    folder = save_series(tmp_path / "series", changed(states, step_40=odd, step_60=odd))
    found = scanned(tmp_path, folder)
    assert found.left_out == ()
    assert [finding for finding in found.findings if finding.kind in ("name", "embedding", "shape")] == []
