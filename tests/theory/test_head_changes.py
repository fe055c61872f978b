"""Which heads changed type: undecided is never a change, a change back is one, prefixes do not matter."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from normscope.errors import SeriesError, UsageError
from normscope.run import HeadRow, Run
from normscope.theory.measures.head_changes import changes_over_steps, head_changes, head_changes_of_runs

TYPES = ("argmax", "mean", "mixed", "undecided")


def row(step, head, kind, module="h.0.attn", layer=1, stage=""):
    return HeadRow(step, module, layer, head, kind, 0.1, 1.0, 0.0, 0.0, 0.2, 3.0, 0.6, 2.0, 0.1, stage=stage)


def series(types, steps=None, **where):
    """Rows of heads from one string of letters each: a, m, x and u, step by step."""
    kinds = dict(zip("amxu", TYPES, strict=True))
    steps = steps or range(len(types[0]))
    return [
        row(step, head, kinds[letter], **where)
        for head, word in enumerate(types)
        for step, letter in zip(steps, word, strict=True)
        if letter != "-"
    ]


def test_first_and_last_are_compared_and_every_change_is_listed():
    (found,) = changes_over_steps(series(["aam", "aaa", "ama", "xmm"], [0, 10, 100]))
    assert (found.first, found.last) == (0, 100)
    assert (found.changed, found.same, found.unknown, found.missing) == (2, 2, 0, 0)
    assert [head.head for head in found.heads] == [0, 2, 3]
    back = found.heads[1]
    assert not back.differs
    assert [(c.since, c.step, c.before, c.after) for c in back.changes] == [
        (0, 10, "argmax", "mean"),
        (10, 100, "mean", "argmax"),
    ]


def test_undecided_is_unknown_and_never_a_change():
    (found,) = changes_over_steps(series(["au", "ua", "uu", "am"]))
    assert (found.changed, found.same, found.unknown) == (1, 0, 3)
    assert [head.head for head in found.heads] == [3]
    assert "1 of 1 heads changed type" in found.sentence and "of 3 it is unknown" in found.sentence


def test_a_change_is_seen_through_an_undecided_step():
    (found,) = changes_over_steps(series(["aum", "aua"], [1, 2, 3]))
    (head,) = found.heads
    (change,) = head.changes
    assert (head.head, change.since, change.step) == (0, 1, 3)


def test_a_head_that_was_not_measured_is_missing_and_not_same():
    (found,) = changes_over_steps(series(["aa", "-a", "a-"]))
    assert (found.same, found.missing, found.changed) == (1, 2, 0)


@pytest.mark.parametrize("seed", range(5))
def test_against_a_slow_count(seed):
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("amxu-"), size=4)) for _ in range(40)] + ["aaaa"]
    (found,) = changes_over_steps(series(words))
    ends = [(word[0], word[-1]) for word in words]
    full = [pair for pair in ends if "-" not in pair]
    known = [pair for pair in full if "u" not in pair]
    assert found.changed == len([1 for a, b in known if a != b])
    assert found.same == len([1 for a, b in known if a == b])
    assert found.unknown == len(full) - len(known)
    assert found.missing == len([pair for pair in ends if pair.count("-") == 1])
    assert found.changed == sum(head.differs for head in found.heads)
    letters = dict(zip(TYPES, "amxu", strict=True))
    counted = {(letters[c.before], letters[c.after]): c.heads for c in found.counts}
    assert counted == Counter(full)
    for head, word in enumerate(words):
        decided = [letter for letter in word if letter in "amx"]
        number = sum(a != b for a, b in itertools.pairwise(decided))
        listed = [entry for entry in found.heads if entry.head == head]
        assert sum(len(entry.changes) for entry in listed) == number


def test_stages_are_apart_and_one_step_is_no_series():
    rows = series(["am"], stage="one") + series(["a"], stage="two")
    (found,) = changes_over_steps(rows)
    assert found.stage == "one"


def modules(prefix, kinds):
    return [row(0, 0, kind, f"{prefix}{i}.attn", i) for i, kind in enumerate(kinds)]


@pytest.mark.parametrize(("a", "b"), [("bert.enc.", "enc."), ("enc.", "bert.enc."), ("model.", "")])
def test_a_prefix_of_one_model_does_not_matter(a, b):
    found = head_changes(modules(a, ["argmax", "mean"]), modules(b, ["argmax", "argmax"]))
    assert (found.changed, found.same, found.missing) == (1, 1, 0)


def test_other_modules_are_refused_and_not_matched_by_number():
    with pytest.raises(SeriesError, match="no attention head in common"):
        head_changes(modules("encoder.", ["argmax", "mean"]), modules("decoder.", ["argmax", "argmax"]))


def test_two_runs_are_compared_at_their_last_steps(tmp_path):
    paths = [tmp_path / "a.db", tmp_path / "b.db"]
    for path, words in zip(paths, (["ma", "aa"], ["mm", "aa"]), strict=True):
        with Run.create(path) as run, run.transaction():
            run.write(series(words, [0, 7]))
    with Run(paths[0]) as a, Run(paths[1]) as b:
        assert (head_changes_of_runs(a, b).changed, head_changes_of_runs(a, b, until=0).changed) == (1, 0)


def test_a_stage_must_be_chosen_if_there_are_several(tmp_path):
    with Run.create(tmp_path / "a.db") as run, run.transaction():
        run.write(series(["a"], stage="one") + series(["m"], stage="two"))
    with Run(tmp_path / "a.db") as run:
        with pytest.raises(UsageError, match="--stage"):
            head_changes_of_runs(run, run)
        assert head_changes_of_runs(run, run, stage="two").same == 1
