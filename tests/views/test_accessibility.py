"""Every kind of page passes axe-core: light, dark and on a phone, with everything opened."""

from __future__ import annotations

from importlib.resources import files

import pytest

from normscope.replication.claim_files import known_claims
from normscope.replication.replicate import judge
from normscope.replication.replication_result import Replication
from normscope.views.replication.replication_page import write_replication_page
from normscope.views.reports.report import report
from tests.replication.trial_documents import all_documents

from .browser_visit import Visit
from .growing import write_growing
from .networks import write_network, write_sweep

pytestmark = pytest.mark.browser

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = """async (rules) => (await axe.run(document, { runOnly: rules })).violations
  .map((v) => `${v.id}: ${v.nodes.length} × ${v.nodes[0].html.slice(0, 200)} ${v.nodes[0].failureSummary}`)"""
OPEN = """() => {
    for (const part of document.querySelectorAll('details')) part.open = true;
    for (const button of document.querySelectorAll('[aria-expanded=false]')) button.click();
}"""


@pytest.fixture(scope="module")
def axe():
    pytest.importorskip(
        "axe_playwright_python", reason="the accessibility tests need the package axe-playwright-python"
    )
    return files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


def series_page(folder):
    return report("t5-base", folder / "t5.html")


def growing_page(folder):
    return report(write_growing(folder / "run.db"), folder / "run.html")


def network_page(folder):
    return report(write_network(folder / "net.db"), folder / "net.html")


def sweep_report(folder):
    return report(write_sweep(folder / "grid"), folder / "grid.html")


def replication_report(folder):
    documents = all_documents(folder)
    found = tuple(judge(claim, documents, "quick", {}) for claim in known_claims().values())
    return write_replication_page(Replication(folder, found), folder / "claims.html")


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(series_page, marks=pytest.mark.slow),
        pytest.param(growing_page, marks=pytest.mark.slow),
        pytest.param(network_page, marks=pytest.mark.slow),
        sweep_report,
        pytest.param(replication_report, marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing(browser, axe, tmp_path, write):
    page = write(tmp_path)
    with Visit(browser, page, viewport={"width": 1280, "height": 900}, color_scheme="light") as visit:
        visit.page.evaluate(axe)
        visit.page.evaluate(OPEN)
        assert visit.page.evaluate(RUN, RULES) == []
        visit.page.emulate_media(color_scheme="dark")
        visit.page.wait_for_selector("body[data-drawn=yes]")
        visit.settled()
        assert visit.page.evaluate(RUN, RULES) == []
        visit.page.set_viewport_size({"width": 390, "height": 844})
        visit.page.wait_for_selector("body[data-drawn=yes]")
        visit.settled()
        assert visit.page.evaluate(RUN, RULES) == []
