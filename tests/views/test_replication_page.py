"""The page of a replication: every claim with its numbers, drawn in Chromium, silent on the network."""

from __future__ import annotations

import pytest

from normscope.replication.claim_files import known_claims
from normscope.replication.replicate import judge
from normscope.replication.replication_result import Replication, shown_estimate
from normscope.replication.results_file import read_results, write_results
from normscope.views.replication.replication_page import replication_page, write_replication_page
from tests.replication.trial_documents import all_documents

from .browser_visit import Visit


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replication")
    documents = all_documents(folder)
    results = [judge(claim, documents, "quick", {}) for claim in known_claims().values()]
    write_results(folder / "results.json", results)
    return Replication(folder, tuple(read_results(folder / "results.json")))


@pytest.fixture(scope="module")
def written(found):
    return write_replication_page(found, found.out / "report.html")


def test_a_results_file_gives_back_what_was_written(found, tmp_path):
    write_results(tmp_path / "again.json", found.claims)
    assert tuple(read_results(tmp_path / "again.json")) == found.claims


def test_the_tiles_and_the_first_sentences_count_the_same(found):
    stage = replication_page(found).stages[0]
    tiles = {fact.label: int(fact.value) for fact in stage.facts}
    claims = [result for result in found.claims if result.kind == "claim"]
    assert sum(tiles.values()) == len(claims)
    held, partly = tiles["confirmed"], tiles["confirmed in part"]
    assert (
        stage.summary[0]
        == f"Of {len(claims)} claims that were run, {held} hold as stated and {partly} in part."
    )
    open_ones = [result.verdict for result in found.claims if result.kind != "claim"]
    confirmed = open_ones.count("confirmed")
    verb = "is" if confirmed == 1 else "are"
    first = f"Of {len(open_ones)} questions that the paper left open, "
    assert stage.summary[1] == f"{first}{confirmed} {verb} confirmed."


def test_every_claim_has_its_section_figure_and_numbers(found):
    page = replication_page(found)
    sections = {section.key: section for section in page.stages[0].sections}
    assert list(sections) == ["verdicts", *known_claims()]
    for result in found.claims:
        section = sections[result.id]
        assert section.badge == result.verdict
        assert section.command == f"normscope replicate {result.id} --preset quick"
        drawn = [f"claim-{result.id}", *(["automata"] if result.id == "automaton" else [])]
        assert [figure.key for figure in section.figures] == drawn
        (table,) = section.tables
        assert [row[0] for row in table.rows] == list(result.labels.values())
        shown = [row[3] for row in table.rows]
        assert shown == [shown_estimate(result.corrected.get(name)) for name in result.labels]


def test_the_published_points_are_behind_ours(found):
    by_id = {result.id: result for result in found.claims}
    for claim in ("growth", "saturation", "heads", "pretrained", "homogeneity", "sqrt-growth"):
        assert by_id[claim].figure["series"][0]["column"] == "paper"


@pytest.mark.browser
@pytest.mark.parametrize("width", [1400, pytest.param(390, marks=pytest.mark.slow)])
def test_in_a_browser(browser, written, width):
    with Visit(browser, written, viewport={"width": width, "height": 900}) as visit:
        page = visit.page
        assert page.locator("figure .plot svg.main-svg").count() >= 14
        assert page.locator(".verdict").count() == 14
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert visit.requests == visit.complaints == []
