"""What names say: a table of real ones, and names made up to mislead."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normscope.checkpoints.series.name_reader import parse_count
from normscope.checkpoints.series.names import names_step, parse_label, strip_suffix
from normscope.words import natural_key

TABLE = list(csv.DictReader((Path(__file__).parent / "checkpoint_names.csv").read_text("utf-8").splitlines()))


def number(text):
    return int(text) if text else None


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['trainer']}: {row['name']}")
def test_names_that_trainers_write(row):
    label = parse_label(row["name"])
    found = (label.step, label.epoch, label.stage, label.tokens, label.kind)
    expected = (number(row["step"]), number(row["epoch"]), row["stage"], number(row["tokens"]), row["kind"])
    assert found == expected


def test_the_table_is_large():
    assert len({row["name"] for row in TABLE}) >= 600
    assert len({row["trainer"] for row in TABLE}) >= 40


@given(st.text(max_size=60))
def test_any_name_gives_a_label(name):
    label = parse_label(name)
    assert label.number is None or 0 <= label.number < 10**118
    natural_key(name)
    names_step(name)


WORDS = [
    "step",
    "step_",
    "step-",
    "step=",
    "STEP_",
    "checkpoint-",
    "iter_",
    "global_step",
    "ckpt_",
    "updates_",
]


@given(st.integers(0, 10**17), st.sampled_from(WORDS), st.integers(0, 9))
def test_the_number_written_is_the_number_read(step, prefix, zeros):
    name = f"{prefix}{step:0{zeros}}.safetensors"
    if not prefix.startswith(("checkpoint", "ckpt")) or not 10**7 < step < 10**17:  # longer ones may be dates
        assert parse_label(name).step == step


NOISE = [
    "loss=2.31", "loss_4", "val_acc0.93", "ppl_12", "2024-11-16", "20241116_143000", "v2", "v1.3", "seed42",
    "lr1e-4", "lr_0.001", "bs32", "d512", "l12", "h8", "7b", "125m", "1.3B", "fp16", "int8", "Q4_K_M", "q8_0",
    "8bit", "14fe96d1", "rank0", "mp_rank_00", "run3", "fold_2", "ctx2048", "warmup_steps_500", "gpt2",
    "max_steps_9000", "batch_size_32",
]  # fmt: skip


@given(
    st.integers(0, 10**7),
    st.lists(st.sampled_from(NOISE), max_size=4),
    st.integers(0, 4),
    st.sampled_from("_-"),
)
def test_other_numbers_do_not_change_the_step(step, noise, position, separator):
    named = [*noise[:position], f"step{separator}{step}", *noise[position:]]
    assert parse_label(separator.join(named)).step == step


@given(st.lists(st.sampled_from(NOISE), min_size=1, max_size=4), st.sampled_from("_-"))
def test_other_numbers_are_no_steps(noise, separator):
    label = parse_label(separator.join(["model", *noise]))
    assert (label.step, label.epoch) == (None, None)


@given(st.integers(0, 999), st.floats(0, 99, allow_nan=False))
def test_an_epoch_and_a_loss(epoch, loss):
    label = parse_label(f"model_{epoch:02}_{loss:.2f}.pth")
    assert (label.step, label.epoch) == (None, epoch)


def test_units_and_fractions():
    assert [parse_count("1.5", "M"), parse_count("143", "k"), parse_count("1", "e5")] == [
        1_500_000,
        143_000,
        100_000,
    ]
    assert parse_count("1.5") is None


def test_the_form_of_a_name_lacks_only_what_changes():
    forms = [parse_label(name).skeleton for name in ("run_a-step_100-loss=2.3", "run_a-step_2000-loss=1.7")]
    assert forms[0] == forms[1]
    for one, other in [
        ("runA_step1", "runB_step1"),
        ("gen_1", "disc_1"),
        ("7b_step1", "13b_step1"),
        ("s_1", "s_1_v1"),
    ]:
        assert parse_label(one).skeleton != parse_label(other).skeleton


def test_a_clear_step():
    clear = ["step_7", "7", "epoch_3", "checkpoint-12", "10k-steps"]
    unclear = ["my-model-7", "gpt-2", "llama-7b", "v3", "2024-01-01", "model"]
    assert [names_step(name) for name in clear + unclear] == [True] * 5 + [False] * 6


def test_numbers_sort_as_numbers():
    assert sorted(["step10", "step9", "step100"], key=natural_key) == ["step9", "step10", "step100"]


def test_only_known_endings_are_stripped():
    assert strip_suffix("model.ckpt-5100") == "model.ckpt-5100"
    assert strip_suffix("a.b.safetensors") == "a.b"
    assert strip_suffix(".pt") == ".pt"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("epoch_3/step_500.pt", (500, 3)),
        ("epoch_3/epoch_5_step_500.pt", (500, 5)),
        ("epoch_3/epoch_5.pt", (None, 5)),
    ],
)
def test_an_epoch_of_the_folder_above_completes_a_step_and_replaces_nothing(name, expected):
    label = parse_label(name)
    assert (label.step, label.epoch) == expected
