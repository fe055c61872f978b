"""The demo end to end, and what it must never do to a folder."""

import json

import pytest

from normscope.cli.demo import MARK, _make_room
from normscope.errors import UsageError
from normscope.rows import ActivationRow, AttentionRow, HeadRow, SaturationRow
from normscope.run import Run
from tests.cli.calling import call, normscope

MEASURED = (SaturationRow, HeadRow, AttentionRow, ActivationRow)


@pytest.mark.slow
def test_two_demos_with_one_seed_say_the_same(tmp_path):
    words = ("demo", "--output", tmp_path / "demo", "--steps", 12, "--json")
    first, second = (json.loads(normscope(*words).stdout) for _ in range(2))
    assert first == second
    assert (tmp_path / "demo" / "report.html").stat().st_size > 1_000_000
    page = (tmp_path / "demo" / "report.html").read_text("utf-8")
    assert (
        "What growth does" in page and "Measured while it trained, on a probe batch of 1,024 tokens" in page
    )
    assert 'id="s0-saturation"' in page and 'id="s0-heads"' in page
    with Run(tmp_path / "demo" / "run.db") as run:
        rows = {kind: set(run.table(kind)["step"]) for kind in MEASURED}
    assert set(map(frozenset, rows.values())) == {frozenset({0, 1, 2, 5, 10, 12})}


def test_a_demo_has_at_least_ten_steps(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    few, enough = (call("demo", "-o", str(tmp_path), "--steps", steps) for steps in ("9", "10"))
    assert few.code == 2 and "--steps" in few.stderr and "10" in few.stderr
    assert "--steps" not in enough.stderr and "was not made by" in enough.stderr


@pytest.mark.parametrize("name", ["run.db", "thesis.tex", "config.json"])
def test_a_folder_of_somebody_elses_is_left_alone(tmp_path, name):
    """A run file called run.db is the default of a scan: it does not make a folder a demo's."""
    (tmp_path / name).write_text("precious")
    with pytest.raises(UsageError, match="was not made by"):
        _make_room(tmp_path)
    assert (tmp_path / name).read_text() == "precious"


def test_only_what_a_demo_makes_is_cleared(tmp_path):
    (tmp_path / MARK).touch()
    (tmp_path / "run.db").write_text("old")
    (tmp_path / "notes.md").write_text("precious")
    _make_room(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARK, "notes.md"]
