"""Drawn automata: each state and move is there once, nothing crosses a state, equal ones share a panel."""

import math
import random

import pytest

import normscope as ns
from normscope.views.figures.network.automata import MOST_STATES, automata_figure
from normscope.views.figures.network.automaton_layout import arranged

STAR = ns.Automaton("ab", ["a", "b", "a."], [[1, None], [None, 2], [1, None]])
TOTAL = ns.Automaton("ab", ["a", "b", "a.", ""], [[1, 3], [3, 2], [1, 3], [3, 3]])


def random_automaton(count, seed):
    rng = random.Random(seed)
    moves = [[rng.choice([None, *range(count)]) for _ in "abc"] for _ in range(count)]
    return ns.Automaton("abc", [rng.choice(["ab", "c.", "abc."]) for _ in range(count)], moves)


@pytest.mark.parametrize("count", range(1, MOST_STATES + 1))
def test_no_arrow_touches_a_state_that_it_does_not_belong_to(count):
    for seed in range(8):
        automaton = random_automaton(count, seed)
        found = arranged(automaton)
        for i, one in enumerate(found.centres):
            assert all(math.dist(one, two) > 2 * found.radius for two in found.centres[:i])
        for arrow in found.arrows:
            ends = {
                state
                for state, centre in enumerate(found.centres)
                for point in (arrow.path[0], arrow.path[-1])
                if math.dist(centre, point) == pytest.approx(found.radius)
            }
            assert len(ends) in (1, 2)
            for state in set(range(count)) - ends:
                assert min(math.dist(found.centres[state], point) for point in arrow.path) > found.radius


def test_every_move_is_an_arrow_with_its_symbols():
    for seed in range(20):
        automaton = random_automaton(6, seed)
        drawn = sum(len(arrow.symbols.split(", ")) for arrow in arranged(automaton).arrows)
        assert drawn == sum(target is not None for row in automaton.moves for target in row)
        assert arranged(automaton) == arranged(automaton)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_loop_leaves_outwards_and_returns_beside_where_it_left(count):
    found = arranged(ns.Automaton("a", ["a."] * count, [[state] for state in range(count)]))
    assert len(found.arrows) == count
    for centre, arrow in zip(found.centres, found.arrows, strict=True):
        begin, end = arrow.path[0], arrow.path[-1]
        assert math.dist(centre, begin) == pytest.approx(found.radius)
        assert math.dist(centre, end) == pytest.approx(found.radius)
        assert 0.3 * found.radius < math.dist(begin, end) < 2 * found.radius
        for there, back in zip(arrow.path, reversed(arrow.path), strict=True):
            assert math.dist(arrow.label, there) == pytest.approx(math.dist(arrow.label, back))
        assert min(math.dist(arrow.label, point) for point in arrow.path) > 0
        assert math.hypot(*arrow.label) > math.hypot(*centre)


def rings(figure):
    return [shape for shape in figure.layout["shapes"] if shape["type"] == "circle"]


def test_two_rings_where_a_word_may_end():
    figure = automata_figure("title", {"star": STAR})
    assert len(rings(figure)) == 3 + 1
    tips = [shape for shape in figure.layout["shapes"] if shape["type"] == "path"]
    assert len(tips) == 3 + 1  # the moves and the start


def test_equal_automata_share_a_panel():
    figure = automata_figure("title", {"one": STAR, "two": TOTAL, "three": STAR})
    headings = [text["text"] for text in figure.layout["annotations"] if "<b>" in text["text"]]
    assert headings == ["<b>one and three</b><br>3 states", "<b>two</b><br>4 states"]
    assert "xaxis2" in figure.layout and "xaxis3" not in figure.layout
    assert "Pale arrows" in figure.note and "Pale" not in automata_figure("title", {"one": STAR}).note


def test_too_many_states_are_not_drawn_but_counted():
    large = random_automaton(MOST_STATES + 1, 0)
    figure = automata_figure("title", {"small": STAR, "large": large})
    texts = [text["text"] for text in figure.layout["annotations"]]
    assert f"{MOST_STATES + 1} states are too many to draw" in texts
    assert len(rings(figure)) == 4


def test_what_is_not_known_or_not_reached_is_in_the_heading():
    cut = ns.Automaton("a", ["a", "a.", "a"], [[1], [None], [0]])
    heading = automata_figure("title", {"cut": cut}).layout["annotations"][0]["text"]
    assert heading == "<b>cut</b><br>3 states, 1 not reached, 1 move not known"


def extracted(network, automaton, **known):
    return ns.ExtractedAutomaton(network, automaton, length=6, strings=7, horizon=3, **known)


@pytest.mark.parametrize(
    ("scaled", "exact", "title"),
    [
        (
            (STAR, True),
            (STAR, True),
            "The automaton of the model and the saturated network is that of ab-star",
        ),
        (
            (TOTAL, False),
            (TOTAL, False),
            "The automaton of the model is that of ab-star; that of the saturated network is not",
        ),
        (
            (TOTAL, False),
            (STAR, True),
            "The automaton of the model and the saturated network with exact attention is that of ab-star; "
            "that of the saturated network is not",
        ),
    ],
)
def test_the_title_says_which_network_is_the_language(scaled, exact, title):
    rows = [
        extracted("language", STAR),
        extracted("model", STAR, equivalent=True),
        extracted("scaled", scaled[0], equivalent=scaled[1]),
        extracted("exact", exact[0], equivalent=exact[1]),
    ]
    figure = ns.plot(ns.NetworkAutomaton("ab-star", tuple(rows), 1024.0, warnings=("a doubt",)))
    assert figure.layout.title.text.replace("<br>", " ") == title
    assert figure.layout.title.subtitle.text.startswith(
        "a doubt<br>ab-star · strings that each network allows"
    )


def test_an_automaton_is_drawn_alone(tmp_path):
    ns.plot(STAR, tmp_path / "star.html")
    assert "An automaton over a and b with 3 states" in (tmp_path / "star.html").read_text("utf-8")
