"""Names as people order and list them."""

from hypothesis import given
from hypothesis import strategies as st

from normscope.words import by_layer, joined, natural_key, some


def test_names_are_joined_as_in_a_sentence():
    assert (joined([]), joined(["a"]), joined(["a", "b"]), joined(iter("abc"))) == (
        "",
        "a",
        "a and b",
        "a, b and c",
    )


def test_long_lists_are_counted():
    assert some(["a", "b"], most=2) == "a, b"
    assert some(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert some([], most=2) == ""


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_numbers_inside_names_count_as_numbers(numbers):
    names = [f"layer{n}.weight" for n in numbers]
    assert sorted(names, key=natural_key) == [f"layer{n}.weight" for n in sorted(numbers)]


def test_what_is_outside_the_layers_comes_last():
    assert by_layer(["outside", "encoder/10", "encoder/2", "10", "9"]) == [
        "9",
        "10",
        "encoder/2",
        "encoder/10",
        "outside",
    ]


@given(st.lists(st.text(max_size=20)))
def test_any_text_can_be_ordered(names):
    assert sorted(by_layer(names)) == sorted(names)
