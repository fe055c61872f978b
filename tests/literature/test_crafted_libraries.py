"""Crafted libraries: `normscope paper` ends in time, in little memory, with a page or one sentence."""

import pytest

from tests.crafted import check, parameters, started_runner

from .crafted_libraries import CASES, SOUND


@pytest.fixture(scope="module")
def runner():
    yield from started_runner()


@pytest.mark.parametrize("name", parameters(CASES))
def test_a_crafted_library(name, tmp_path, runner):
    case = CASES[name]
    words = ("--offline", "-o", "HERE/page.html", "--export", "HERE/works.csv")
    check(case, tmp_path, runner, "paper", "SOURCE", *words)
    if case.code:
        return
    source, written = tmp_path / f"source{case.suffix}", (tmp_path / "works.csv").read_text()
    if SOUND.encode() in source.read_bytes():
        assert "Growth of norms,Ada Lovelace,2021" in written  # whatever is around it
    assert "<script>alert" not in (tmp_path / "page.html").read_text()
