"""What a page offers around its figures: help, tables, files, hover, print; and what it says without them."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest

from normscope.run import Run
from normscope.theory.measures.measures import group
from normscope.views.page.packed_text import ALPHABET, packed, packed_plotly
from normscope.views.reports.report import report

from .browser_visit import Visit
from .pages import embedded, figures, unpacked
from .runs import write_walk


@pytest.mark.parametrize("text", ["", "a", "naïve ‖θ‖ </script>", "x" * 10_000])
def test_packing_loses_nothing_and_uses_only_harmless_characters(text):
    shown = packed(text)
    assert unpacked(shown) == text
    assert set(shown.partition(":")[2]) <= set(ALPHABET) and not set(ALPHABET) & set('<"\\ ')


def test_plotly_is_packed_smaller_than_by_base64():
    text, shown = packed_plotly()
    length = int(shown.partition(":")[0])
    assert len(shown) < 1.24 * length < len(text) / 2


def test_labels_of_checkpoints_come_with_the_page(written):
    assert embedded(written)["labels"]["0"]["20000"] == "step20000"


def test_long_series_are_whole_in_the_table(tmp_path):
    """The drawing is thinned by the page; every measured point is in the file."""
    steps = list(range(0, 6000, 10))
    path = write_walk(tmp_path / "long.db", steps, layers=1)
    numbers = figures(report(path, tmp_path / "long.html"))["s0-growth"]["numbers"]
    with Run(path) as run:
        norms = group(run).measure("norm")[:, 0]
    assert [row[0] for row in numbers["rows"]] == steps
    assert np.allclose([row[1] for row in numbers["rows"]], norms, rtol=1e-5)


@pytest.fixture(scope="module")
def visit(browser, written):
    with Visit(browser, written, viewport={"width": 1280, "height": 900}, color_scheme="dark") as opened:
        yield opened


@pytest.mark.browser
def test_help_opens_by_keyboard(visit):
    button = visit.page.locator("#s0-growth > .heading .ask")
    button.focus()
    text = visit.page.locator("#help-s0-growth")
    assert not text.is_visible() and button.get_attribute("aria-expanded") == "false"
    visit.page.keyboard.press("Enter")
    assert text.is_visible() and button.get_attribute("aria-expanded") == "true"
    assert "When not to believe it" in text.inner_text()
    visit.page.keyboard.press("Enter")
    assert not text.is_visible()


@pytest.mark.browser
def test_the_table_of_a_figure_has_its_numbers_and_is_saved_as_csv(visit, run_path):
    figure = visit.page.locator("[data-figure='s0-layers']")
    figure.locator("[data-numbers]").click()
    with visit.page.expect_download() as saved:
        figure.locator(".numbers [data-csv]").click()
    with saved.value.path().open(encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    with Run(run_path) as run:
        layers = group(run, by="layer")
    assert head[0] == "step" and [int(row[0]) for row in rows] == layers.steps.tolist()
    column = layers.measure("norm")[:, layers.groups.index("03")]
    assert np.allclose([float(row[head.index("03")]) for row in rows], column, rtol=1e-5)
    figure.locator("[data-set=rms]").click()  # an open table follows the button
    rms = layers.measure("rms")[-1, layers.groups.index("03")]
    last = figure.locator(".numbers tbody tr").last.locator("td").nth(head.index("03"))
    assert float(last.inner_text()) == pytest.approx(rms, rel=1e-5)
    assert visit.complaints == []


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_figures_are_saved_light_with_their_title(visit, kind):
    figure = visit.page.locator("[data-figure='s0-growth']")
    with visit.page.expect_download() as saved:
        figure.locator(f"[data-image={kind}]").click()
    data = saved.value.path().read_bytes()
    assert saved.value.suggested_filename == f"growth.{kind}"
    if kind == "png":
        assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") == 1800
    else:
        text = data.decode()
        assert "The norm of the body goes" in text and "rgb(231, 234, 240)" not in text  # the dark ink
    assert visit.background() == "rgb(17, 21, 27)"  # the page stays dark


@pytest.mark.browser
def test_hovering_shows_the_measured_point_and_its_checkpoint(visit):
    figure = visit.page.locator("[data-figure='s0-growth']")
    figure.locator(".plot").scroll_into_view_if_needed()
    point = figure.locator(".scatterlayer .trace").last.locator(".points path").last.bounding_box()
    visit.page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    shown = visit.page.locator(".hoverlayer .hovertext").first
    shown.wait_for()
    assert "step 20,000 (step20000)" in shown.text_content()


@pytest.mark.slow
@pytest.mark.browser
def test_print_redraws_at_the_width_of_paper(visit):
    widths = "[...document.querySelectorAll('.figure > .plot')].map((plot) => plot.layout.width)"
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert set(visit.page.evaluate(widths)) == {650}
    assert visit.background() == "rgb(251, 251, 249)"
    visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
    visit.page.wait_for_selector("body[data-drawn=yes]")
    assert visit.page.evaluate(widths)[0] is None
    pdf = visit.page.pdf(prefer_css_page_size=True)
    boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert boxes and {(round(float(w)), round(float(h))) for w, h in boxes} == {(595, 842)}


@pytest.mark.browser
def test_a_browser_that_cannot_unpack_is_told_and_keeps_its_tables(browser, written):
    context = browser.new_context()
    context.add_init_script("delete window.DecompressionStream")
    page = context.new_page()
    page.goto(written.as_uri())
    assert page.locator("#old-browser").is_visible()
    assert page.locator("table[data-name=laws]").is_visible()
    assert page.evaluate("typeof Plotly") == "undefined"
    page.click("#theme")  # the theme needs no figures
    context.close()
