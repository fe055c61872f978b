"""Steps, stages and tokens from the names people use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normscope.checkpoints.series.names import Label, parse_label, strip_suffix
from normscope.words import natural_key


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("step_2000.pt", Label(2000)),
        ("step1000", Label(1000)),
        ("checkpoint-500", Label(500)),
        ("global_step143000", Label(143000)),
        ("iter_0001000", Label(1000)),
        ("epoch=3-step=1200.ckpt", Label(1200)),
        ("epoch=3-step=1200-v1.ckpt", Label(1200)),
        ("model.ckpt-5100", Label(5100)),
        ("model.ckpt-5100.index", Label(5100)),
        ("ep0-ba100", Label(100)),
        ("ep0-ba100-rank0.pt", Label(100)),
        ("stage1-step721901-tokens6056B", Label(721901, "stage1", 6056 * 10**9)),
        ("stage2-ingredient3-step1000-tokens51B", Label(1000, "stage2-ingredient3", 51 * 10**9)),
        ("step1000-tokens4B", Label(1000, "", 4 * 10**9)),
        ("step7-tokens1.5T", Label(7, "", 1500 * 10**9)),
        ("17", Label(17)),
        ("0001000.safetensors", Label(1000)),
        ("ckpt_12.pth", Label(12)),
        ("checkpoint_1_50000.pt", Label(50000)),
        ("step_10k.pt", Label(10000)),
        ("epoch_3", Label(3)),
        ("Step-5.PT", Label(5)),
        ("model", Label(None)),
        ("gpt2", Label(None)),
        ("all-MiniLM-L6-v2", Label(None)),
        ("stage1", Label(None, "stage1")),
        ("step", Label(None)),
        ("stepping-stone", Label(None)),
        ("", Label(None)),
    ],
)
def test_names_people_use(name, label):
    assert parse_label(name) == label


@given(st.text(max_size=60))
def test_any_name_gives_a_label(name):
    label = parse_label(name)
    assert label.step is None or 0 <= label.step < 10**24
    natural_key(name)


@given(
    st.integers(0, 10**17),
    st.sampled_from(["step", "step_", "checkpoint-", "iter_", "global_step", "x-", ""]),
)
def test_the_number_written_is_the_number_read(step, prefix):
    assert parse_label(f"{prefix}{step}.safetensors").step == step


def test_numbers_sort_as_numbers():
    assert sorted(["step10", "step9", "step100"], key=natural_key) == ["step9", "step10", "step100"]


def test_only_known_endings_are_stripped():
    assert strip_suffix("model.ckpt-5100") == "model.ckpt-5100"
    assert strip_suffix("a.b.safetensors") == "a.b"
    assert strip_suffix(".pt") == ".pt"
