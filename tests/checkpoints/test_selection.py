"""Which of the checkpoints in a folder are the series; what is said about the others; what is refused."""

import re

import pytest
import torch
from safetensors.torch import save_file

from normscope.checkpoints import open_series
from normscope.errors import CheckpointError, UsageError
from normscope.lab.model import ModelConfig, Transformer
from normscope.lab.training.checkpointing import checkpoint_folder, save_model, save_state
from tests.checkpoints.small_checkpoints import put

STEPS = ("step_100.pt", "step_200.pt", "step_300.pt")


def make(folder, *names, same=(), **stored):
    """Write checkpoints that differ, except those in `same`; `stored` are steps inside, by file name."""
    for i, name in enumerate(names, 1):
        path = folder / name
        step = {"global_step": stored[path.stem]} if path.stem in stored else {}
        put(path, 0 if name in same else i, **step)
    return folder


def steps(series):
    return [entry.step for entry in series.entries]


def left_out(series):
    return {each.label: each.reason for each in series.left_out}


def nothing_is_lost(folder, series):
    """Every file is an entry or is named as left out."""
    named = {label.split("/")[-1] for label in left_out(series)}
    read = {entry.source for entry in series.entries}
    return all(str(path) in read or {path.name, path.stem} & named for path in folder.rglob("*.*"))


# -- final and unnumbered ones ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["final.pt", "last.safetensors", "latest.pt", "model_final.pt", "model.pt", "main.pt"]
)
def test_a_copy_of_a_numbered_one_is_named(tmp_path, name):
    series = open_series(make(tmp_path, *STEPS, name, same=("step_300.pt", name)))
    assert steps(series) == [100, 200, 300]
    assert left_out(series) == {name.rsplit(".", 1)[0]: "the same weights as step_300"}


def test_a_copy_of_an_earlier_one_is_named(tmp_path):
    series = open_series(make(tmp_path, *STEPS, "final.pt", same=("step_100.pt", "final.pt")))
    assert left_out(series) == {"final": "the same weights as step_100"}


def test_a_tied_head_that_one_format_drops_is_no_difference(tmp_path):
    weight = torch.randn(4, 3)
    for step in (1, 2):
        torch.save({"emb": weight * step, "head": weight * step}, tmp_path / f"step_{step}.pt")
    tied = torch.randn(4, 3)
    torch.save({"emb": tied, "head": tied}, tmp_path / "step_3.pt")
    save_file({"emb": tied}, tmp_path / "final.safetensors")
    assert left_out(open_series(tmp_path)) == {"final": "the same weights as step_3"}


def test_one_changed_value_is_a_difference(tmp_path):
    weight = torch.zeros(300_000)
    torch.save({"w": weight}, tmp_path / "step_1.pt")
    torch.save({"w": weight.clone().index_fill_(0, torch.tensor([299_999]), 1)}, tmp_path / "final.pt")
    assert "no step" in left_out(open_series(tmp_path))["final"]


def test_a_later_step_inside_makes_it_the_last_one(tmp_path):
    series = open_series(make(tmp_path, *STEPS, "last.pt", last=350))
    assert steps(series) == [100, 200, 300, 350]
    assert not series.left_out


@pytest.mark.parametrize("stored", [300, 250])
def test_a_step_inside_that_is_not_later(tmp_path, stored):
    series = open_series(make(tmp_path, *STEPS, "last.pt", last=stored))
    assert steps(series) == [100, 200, 300]
    assert f"its step {stored} is not after step_300" in left_out(series)["last"]


def test_no_step_at_all_says_how_to_include_it(tmp_path):
    folder = make(tmp_path, *STEPS, "final.pt")
    assert "--steps" in left_out(open_series(folder))["final"]
    series = open_series(folder, steps=[400, 100, 200, 300])  # in the order of the names
    assert [(entry.label, entry.step) for entry in series.entries][-1] == ("final", 400)


def test_a_step_beside_names_that_count_epochs(tmp_path):
    series = open_series(make(tmp_path, "epoch_1.pt", "epoch_2.pt", "last.pt", last=350))
    assert steps(series) == [1, 2]
    assert series.notes == ("steps are epochs, read from the names",)
    assert "different things" in left_out(series)["last"]


def test_numbers_of_files_may_be_epochs(tmp_path):
    """Whether model_2 is step 2 shows in what it stores."""
    series = open_series(make(tmp_path / "a", "model_1.pt", "model_2.pt", "last.pt", last=350))
    assert steps(series) == [1, 2]
    assert "taken as steps" in series.notes[0]
    numbered = make(tmp_path / "b", "model_1.pt", "model_2.pt", "last.pt", model_2=2, last=3)
    assert steps(open_series(numbered)) == [1, 2, 3]


def test_the_state_of_the_trainer_at_the_end_of_a_run(tmp_path):
    make(
        tmp_path, "checkpoint-500/model.safetensors", "checkpoint-1000/model.safetensors", "model.safetensors"
    )
    (tmp_path / "trainer_state.json").write_text('{"global_step": 1100}')
    assert steps(open_series(tmp_path)) == [500, 1000, 1100]


def test_a_last_one_that_cannot_be_read(tmp_path):
    make(tmp_path, *STEPS)
    (tmp_path / "tokens.bin").write_bytes(b"\1\2\3" * 50)
    series = open_series(tmp_path)
    assert steps(series) == [100, 200, 300]
    assert "cannot be read" in left_out(series)["tokens"]


# -- other kinds -----------------------------------------------------------------------------

OTHERS = (
    "best.pt", "model_best.pt", "best_step_200.pt", "init.pt", "ema.pt", "ema_step_300.pt", "swa.pt",
    "avg5.pt", "averaged.pt", "backup_step_100.pt", "opt100.pt", "step_100_optimizer.pt",
)  # fmt: skip


def test_other_kinds_are_left_out_and_said(tmp_path):
    folder = make(tmp_path, *STEPS, *OTHERS)
    series = open_series(folder)
    assert steps(series) == [100, 200, 300]
    assert set(left_out(series)) == {name[:-3] for name in OTHERS}
    assert nothing_is_lost(folder, series)


def test_only_averages_are_a_series_of_averages(tmp_path):
    series = open_series(make(tmp_path, "ema_0.9999_100.pt", "ema_0.9999_200.pt"))
    assert steps(series) == [100, 200]
    assert any("'ema'" in note for note in series.notes)


def test_the_best_one_beside_the_last_one(tmp_path):
    series = open_series(make(tmp_path, "last.pt", "best.pt", last=42, best=40))
    assert steps(series) == [42]
    assert list(left_out(series)) == ["best"]


def test_models_beside_the_model_are_named(tmp_path):
    make(tmp_path, "step1/model.safetensors", "step1/pytorch_model.bin", "step1/adapter_model.safetensors")
    make(tmp_path, "step2/model.safetensors")
    assert set(left_out(open_series(tmp_path))) == {"step1/pytorch_model", "step1/adapter_model"}


# -- copies of a step ------------------------------------------------------------------------


def test_the_same_step_in_two_formats(tmp_path):
    names = ("step_10.pt", "step_10.safetensors", "step_20.pt")
    series = open_series(make(tmp_path / "a", *names, same=names[:2]))
    assert [entry.source.rsplit("/", 1)[-1] for entry in series.entries] == [
        "step_10.safetensors",
        "step_20.pt",
    ]
    assert left_out(series) == {"step_10.pt": "the same weights as step_10.safetensors"}
    with pytest.raises(CheckpointError, match="Step 10 appears twice"):
        open_series(make(tmp_path / "b", *names))


# -- folders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["step10/model.safetensors", "step10.pt"])
def test_folders_of_stages(tmp_path, inner):
    make(tmp_path, f"stage1/{inner}", f"stage1/{inner.replace('10', '20')}", f"stage2/{inner}")
    series = open_series(tmp_path)
    assert [(entry.stage, entry.step) for entry in series.entries] == [
        ("stage1", 10),
        ("stage1", 20),
        ("stage2", 10),
    ]


def test_a_series_in_the_only_subfolder(tmp_path):
    make(tmp_path, "checkpoints/step10.pt", "checkpoints/step20.pt", "state.pt", state=15)
    (tmp_path / "run.db").write_bytes(b"")
    series = open_series(tmp_path)
    assert steps(series) == [10, 20]
    assert list(left_out(series)) == ["state"]


def test_the_folder_of_a_lab_run(tmp_path):
    model = Transformer(ModelConfig(d_model=8, n_layers=1, n_heads=2, d_ff=8, vocab_size=16))
    for step in (0, 1, 2):
        with torch.no_grad():
            model.head.weight.add_(1)
        save_model(model, checkpoint_folder(tmp_path, step))
    save_state(tmp_path, {"model": model.state_dict(), "step": 2})
    (tmp_path / "run.db").write_bytes(b"")
    series = open_series(tmp_path)
    assert steps(series) == steps(open_series(tmp_path / "checkpoints")) == [0, 1, 2]
    assert left_out(series) == {"state": "the same weights as step-000002"}


def test_two_runs_in_subfolders(tmp_path):
    make(tmp_path, "a/step_1.pt", "a/step_2.pt", "b/step_1.pt", "b/step_2.pt")
    with pytest.raises(CheckpointError, match=r"several series: a/ \(2 checkpoints\), b/") as caught:
        open_series(tmp_path)
    assert steps(open_series(re.search(r"for example (.*?);", str(caught.value))[1])) == [1, 2]


@pytest.mark.parametrize("names", [("seed1", "seed2", "seed3"), ("2023", "2024"), ("version_0", "version_1")])
def test_one_checkpoint_of_each_run(tmp_path, names):
    make(tmp_path, *(f"{name}/step_{i}.pt" for i, name in enumerate(names)))
    with pytest.raises(CheckpointError, match=r"several series: .* \(1 checkpoint\)"):
        open_series(tmp_path)
    assert steps(open_series(f"{tmp_path}/*/*.pt")) == list(range(len(names)))


def test_folders_of_epochs(tmp_path):
    make(tmp_path, "epoch_0/step_10.pt", "epoch_0/step_20.pt", "epoch_1/step_30.pt")
    assert steps(open_series(tmp_path)) == [10, 20, 30]
    make(tmp_path, "epoch_2/step_5.pt", "epoch_2/step_6.pt")
    with pytest.raises(CheckpointError, match="start again in each epoch"):
        open_series(tmp_path)


def test_a_folder_of_others_is_named(tmp_path):
    series = open_series(make(tmp_path, *STEPS, "old/step_1.pt", "old/step_2.pt"))
    assert steps(series) == [100, 200, 300]
    assert left_out(series)["old/"].startswith("a folder of its own with 2 checkpoints")


def test_several_models_in_each_step(tmp_path):
    for step in (10, 20):
        make(tmp_path, *(f"global_step_{step}/{part}/model.safetensors" for part in ("actor", "critic")))
    with pytest.raises(CheckpointError, match="several models: actor, critic") as caught:
        open_series(tmp_path)
    assert steps(open_series(re.search("glob '(.*)'", str(caught.value))[1])) == [10, 20]


# -- refusals that offer a reading -------------------------------------------------------------

TWO_FORMS = [
    (("runA_step100.pt", "runA_step200.pt", "runB_step100.pt", "runB_step200.pt"), [100, 200]),
    (("runA_step100.pt", "runA_step300.pt", "runB_step200.pt", "runB_step400.pt"), [100, 300]),
    (("run3_step100.pt", "run3_step200.pt", "run4_step300.pt", "run4_step400.pt"), [100, 200]),
    (("gen_100.pt", "gen_200.pt", "disc_100.pt", "disc_200.pt"), [100, 200]),
    (("G_10.pt", "G_20.pt", "D_10.pt", "D_20.pt"), [10, 20]),
    (("seed1_step_10.pt", "seed1_step_20.pt", "seed2_step_15.pt", "seed2_step_25.pt"), [10, 20]),
    (("m-7b-step_10.pt", "m-7b-step_20.pt", "m-13b-step_15.pt", "m-13b-step_25.pt"), [10, 20]),
    (("checkpoint1.pt", "checkpoint2.pt", "checkpoint_1_500.pt", "checkpoint_2_900.pt"), [1, 2]),
    (
        ("epoch=0-step=5.ckpt", "epoch=1-step=9.ckpt", "epoch=0-step=5-v1.ckpt", "epoch=1-step=9-v1.ckpt"),
        [5, 9],
    ),
    (("step_10_lora.pt", "step_20_lora.pt", "step_10_merged.pt", "step_20_merged.pt"), [10, 20]),
]


@pytest.mark.parametrize(("names", "expected"), TWO_FORMS, ids=lambda value: str(value[0]))
def test_two_series_in_one_folder(tmp_path, names, expected):
    """Both are named, and what the refusal offers works as it is written."""
    with pytest.raises(CheckpointError, match="2 forms") as caught:
        open_series(make(tmp_path, *names))
    message = str(caught.value)
    assert sum(name.rsplit(".", 1)[0] in message for name in names) == 4
    assert steps(open_series(tmp_path, pattern=re.search("--pattern '(.*?)'", message)[1])) == expected
    if glob := re.search("glob '(.*?)'", message):
        assert steps(open_series(glob[1])) == expected


AMBIGUOUS = [
    (("model_3_7_500.pt", "model_3_8_600.pt"), [500, 600]),
    (("x-2024-11-16_0930.pt", "x-2024-11-16_1130.pt"), [930, 1130]),
    (("step_100_000.pt", "step_200_000.pt"), None),
    (("sd-v1-4.pt", "sd-v1-5.pt"), [4, 5]),
    (("model_v2_5.pt", "model_v2_10.pt", "model_v2_15.pt"), [5, 10, 15]),
]


@pytest.mark.parametrize(("names", "expected"), AMBIGUOUS, ids=lambda value: str(value and value[0]))
def test_a_number_that_could_be_several_things(tmp_path, names, expected):
    with pytest.raises(CheckpointError, match="which number is the step") as caught:
        open_series(make(tmp_path, *names))
    pattern = re.search("--pattern '(.*?)'", str(caught.value))[1]
    if expected:
        assert steps(open_series(tmp_path, pattern=pattern)) == expected


def test_mixed_units(tmp_path):
    with pytest.raises(CheckpointError, match="count different things: epoch_1 .* step_100") as caught:
        open_series(make(tmp_path, "epoch_1.pt", "epoch_2.pt", "step_100.pt", "step_200.pt"))
    series = open_series(tmp_path, pattern=re.search("--pattern '(.*?)'", str(caught.value))[1])
    assert steps(series) == [100, 200]
    assert set(left_out(series)) == {"epoch_1", "epoch_2"}


def test_steps_that_start_again_in_each_epoch(tmp_path):
    with pytest.raises(CheckpointError, match="start again in each epoch"):
        open_series(make(tmp_path, "epoch0_step100.pt", "epoch0_step200.pt", "epoch1_step150.pt"))


def test_folders_whose_steps_overlap(tmp_path):
    make(tmp_path, "a/step_1.pt", "a/step_5.pt", "b/step_3.pt", "b/step_7.pt")
    with pytest.raises(CheckpointError, match="overlap"):
        open_series(f"{tmp_path}/*/step_*.pt")
    make(tmp_path, "c/step_8.pt", "c/step_9.pt")
    assert steps(open_series([tmp_path / "a", tmp_path / "c"])) == [1, 5, 8, 9]


def test_dates_of_two_runs(tmp_path):
    days = ("2024-11-16_step10.pt", "2024-11-16_step20.pt", "2024-11-17_step30.pt", "2024-11-18_step40.pt")
    assert steps(open_series(make(tmp_path / "a", *days))) == [10, 20, 30, 40]
    with pytest.raises(CheckpointError, match="on 20241116 .* overlap"):
        open_series(make(tmp_path / "b", *days, "2024-11-17_step15.pt"))
    times = ("20241116_101500_step10.pt", "20241116_111500_step20.pt")
    assert steps(open_series(make(tmp_path / "c", *times))) == [10, 20]


@pytest.mark.parametrize("odd", ["other_step_70.pt", "epoch_3_step_70_x.pt"])
def test_one_odd_name_among_many(tmp_path, odd):
    series = open_series(make(tmp_path, *(f"step_{i}.pt" for i in range(100, 900, 100)), odd))
    assert len(series.entries) == 8
    assert list(left_out(series)) == [odd[:-3]]


@pytest.mark.parametrize(
    "names",
    [
        ("snapshot_2024-11-16.pt", "snapshot_2024-11-17.pt"),
        ("m.Q4_0.pt", "m.Q4_1.pt", "m.Q8_0.pt"),
        ("pythia-70m.pt", "pythia-160m.pt"),
        ("val_loss=2.31.pt", "val_loss=2.13.pt"),
        ("seed1.pt", "seed2.pt"),
        ("model_v1.pt", "model_v2.pt"),
        ("lr1e-3.pt", "lr1e-4.pt"),
        ("fold_1.pt", "fold_2.pt"),
    ],
    ids=lambda names: names[0],
)
def test_other_numbers_never_become_steps(tmp_path, names):
    with pytest.raises(CheckpointError, match="--steps"):
        open_series(make(tmp_path, *names))


def test_an_epoch_and_a_loss(tmp_path):
    series = open_series(make(tmp_path, "model_00_4.12.pth", "model_01_3.90.pth", "model_10_2.96.pth"))
    assert steps(series) == [0, 1, 10]
    assert series.notes == ("steps are epochs, read from the names",)


# -- ranks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ("s1/mp_rank_00.pt", "s1/layer_0_expert_0_mp_rank_00.pt", "s1/layer_0_expert_1_mp_rank_00.pt"),
        ("rank_0.pt", "rank_1.pt"),
        ("rank0.pt", "rank1.pt", "rank2.pt"),
        ("model_rank_0.pt", "model_rank_1.pt"),
        ("ep0-ba10-rank0.pt", "ep0-ba10-rank1.pt", "ep0-ba20-rank0.pt", "ep0-ba20-rank1.pt"),
        ("step_1/rank0_of_2.pt", "step_1/rank1_of_2.pt"),
        ("model_1_of_2.pt", "model_2_of_2.pt"),
        ("shard_0.pt", "shard_1.pt"),
        ("step1/embeddings.pt", "step1/mp_rank_00.pt", "step1/mp_rank_01.pt"),
    ],
    ids=lambda names: names[0],
)
def test_ranks_are_no_steps(tmp_path, names):
    with pytest.raises(CheckpointError, match=r"one per rank, and this version cannot join them"):
        open_series(make(tmp_path, *names))


@pytest.mark.parametrize(
    "names",
    [
        ("consolidated.00.pth", "consolidated.01.pth"),
        ("mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt"),
        ("iter_0000100/mp_rank_00/model_optim_rng.pt", "iter_0000100/mp_rank_01/model_optim_rng.pt"),
        ("mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"),
        ("global_step3/mp_rank_00_model_states.pt", "global_step3/mp_rank_01_model_states.pt"),
        ("global_step3/layer_00-model_00-model_states.pt", "global_step3/layer_01-model_00-model_states.pt"),
    ],
    ids=lambda names: names[0],
)
def test_ranks_of_an_unknown_model_are_not_joined(tmp_path, names):
    with pytest.raises(CheckpointError, match=r"unknown names \('w'\)|none of its files holds the attention"):
        open_series(make(tmp_path, *names)).entries[0].open()


@pytest.mark.parametrize(
    "name", ["consolidated.00.pth", "mp_rank_00_model_states.pt", "model_rank_0.pt", "rank0_of_1.pt"]
)
def test_a_lone_rank_is_a_plain_checkpoint(tmp_path, name):
    assert steps(open_series(make(tmp_path, name), default_step=0)) == [0]
    assert steps(open_series(make(tmp_path / "series", f"step3/{name}", f"step4/{name}"))) == [3, 4]


def test_the_files_of_one_rank_can_be_chosen(tmp_path):
    make(tmp_path, *(f"step_{step}_rank_{rank}.pt" for step in (1, 2) for rank in (0, 1)))
    series = open_series(f"{tmp_path}/*rank_0.pt")
    assert steps(series) == [1, 2]
    assert "other ranks" in series.notes[0]


def test_a_whole_model_beside_its_parts(tmp_path):
    make(tmp_path, "step1/model.safetensors", "step1/consolidated.00.pth", "step1/consolidated.01.pth")
    series = open_series(tmp_path)
    assert steps(series) == [1]
    assert set(left_out(series)) == {"step1/consolidated"}


# -- the user's own pattern --------------------------------------------------------------------


def test_a_pattern_reads_the_names(tmp_path):
    make(tmp_path, "a_s2_10k_3M.pt", "a_s2_1.5k_1M.pt", "a_s1_2_0.5B.pt", "other.pt")
    series = open_series(tmp_path, pattern=r"_s(?P<stage>\d)_(?P<step>[\d.]+k?)_(?P<tokens>.+)$")
    found = [(entry.stage, entry.step, entry.tokens) for entry in series.entries]
    assert found == [("1", 2, 500_000_000), ("2", 1500, 1_000_000), ("2", 10_000, 3_000_000)]
    assert left_out(series) == {"other": "its name does not match --pattern"}


def test_a_pattern_for_epochs(tmp_path):
    series = open_series(make(tmp_path, "m_3_7_5.pt", "m_4_8_6.pt"), pattern=r"m_(?P<epoch>\d+)_")
    assert steps(series) == [3, 4]
    assert series.notes == ("steps are epochs, read from the names",)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "not a regular expression"),
        (r"\d+", "must say what is the step or epoch"),
        (r"(?P<tokens>\d+)", "must say what is the step or epoch"),
        (r"(?P<step>\d+)(?P<loss>.*)", "got loss"),
        (r"zzz(?P<step>\d+)", "matches none of the names: model_1"),
        (r"(?P<step>model)", "not an integer"),
        (7, "as text"),
    ],
)
def test_wrong_patterns(tmp_path, pattern, message):
    with pytest.raises(UsageError, match=message):
        open_series(make(tmp_path, "model_1.pt", "model_2.pt"), pattern=pattern)


def test_a_pattern_and_steps(tmp_path):
    with pytest.raises(UsageError, match="not both"):
        open_series(make(tmp_path, *STEPS), steps=[1, 2, 3], pattern=r"(?P<step>\d+)")


def test_steps_for_the_numbered_ones_alone(tmp_path):
    folder = make(tmp_path, *STEPS, "best.pt")
    assert steps(open_series(folder, steps=[1, 2, 3])) == [1, 2, 3]
    with pytest.raises(UsageError, match="in this order: best, step_100"):
        open_series(folder, steps=[1, 2])
