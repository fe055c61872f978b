"""The report in a real Chromium: drawn, silent on the network, usable on a phone and in the dark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from normscope.run import Run, TensorRow, WeightRow
from normscope.views.reports.report import report

from .browser_visit import Visit
from .growing import write_growing
from .networks import write_many_heads, write_network, write_sweep
from .pages import figures

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def desktop(browser, written):
    with Visit(browser, written, viewport={"width": 1280, "height": 900}) as visit:
        yield visit


def undrawn(page):
    """Keys of the visible figures in which no trace is drawn."""
    return page.evaluate("""() => [...document.querySelectorAll('[data-figure]')]
        .filter((f) => f.offsetParent !== null)
        .filter((f) => !f.querySelector('.plot .trace path, .plot .hm image, .plot .bars path'))
        .filter((f) => !f.querySelector('.reader .tile canvas'))
        .map((f) => f.dataset.figure)""")


def test_every_figure_is_drawn_and_nothing_leaves_the_file(desktop):
    assert desktop.page.locator("[data-figure]").count() >= 7
    assert undrawn(desktop.page) == []
    assert desktop.requests == []
    assert desktop.complaints == []


def test_the_step_axis_changes_at_a_click(desktop):
    figure = desktop.page.locator("[data-figure='s0-growth']")
    layout = "f => f.querySelector('.plot').layout.xaxis"
    for name, kind, title in (
        ("√", "linear", "square-root"),
        ("log", "log", "logarithmic"),
        ("linear", "linear", "step"),
    ):
        figure.locator("[data-x]", has_text=name).click()
        desktop.settled()
        axis = figure.evaluate(layout)
        assert axis["type"] == kind and title in axis["title"]["text"]
        assert figure.locator("[data-x][aria-pressed=true]").inner_text() == name
    assert undrawn(desktop.page) == []


def test_square_root_axis_puts_points_at_the_root_and_labels_the_step(desktop):
    figure = desktop.page.locator("[data-figure='s0-growth']")
    figure.locator("[data-x=sqrt]").click()
    desktop.settled()
    points = figure.evaluate(
        "f => { const t = f.querySelector('.plot').data.at(-1); return [t.x, t.customdata] }"
    )
    assert np.allclose(points[0], np.sqrt(points[1]))
    axis = figure.evaluate(
        "f => { const a = f.querySelector('.plot').layout.xaxis; return [a.tickvals, a.ticktext] }"
    )
    shown = [float(t.replace("k", "e3").replace("M", "e6")) for t in axis[1]]
    assert np.allclose(np.square(axis[0]), shown)
    assert len(shown) >= 4
    figure.locator("[data-x=linear]").click()


def test_measures_switch_at_a_click(desktop):
    figure = desktop.page.locator("[data-figure='s0-layers']")
    before = figure.evaluate("f => f.querySelector('.plot').data[0].y.at(-1)")
    figure.locator("[data-set=rms]").click()
    desktop.settled()
    assert figure.evaluate("f => f.querySelector('.plot').data[0].y.at(-1)") != before
    assert "root mean square" in figure.evaluate("f => f.querySelector('.plot').layout.yaxis.title.text")


def test_a_phone_in_the_dark(browser, written):
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    with Visit(browser, written, color_scheme="dark", **phone) as visit:
        for detail in visit.page.locator("summary").all():
            detail.click()
        assert visit.overflow() <= 0
        assert undrawn(visit.page) == []
        dark, ink = visit.background(), visit.ink()
        visit.page.click("#theme")
        visit.page.wait_for_function(
            "ink => document.querySelector('.plot').layout.font.color !== ink", arg=ink
        )
        assert visit.background() != dark
        assert visit.complaints == [] and visit.requests == []


WIDE = {"width": 1200, "height": 900}
NASTY = "<img src=x onerror=alert(1)></script><b>%{x}&amp;"


@pytest.fixture(scope="module")
def nasty_run(tmp_path_factory):
    """Two stages whose every name tries to be markup."""
    path = tmp_path_factory.mktemp("nasty") / "nasty.db"
    with Run.create(path) as run, run.transaction():
        run.add_tensors([TensorRow(0, NASTY, "model", 0, "<i>role</i>", (2,), NASTY, 2)])
        for stage in (NASTY, "second"):
            run.write([WeightRow(step, -1, 0, float(step + 1), stage=stage) for step in range(5)])
        run.set_meta("source", NASTY)
        run.set_skipped([(NASTY, NASTY)])
    return path


def test_names_stay_text_and_stages_show_one_at_a_time(browser, nasty_run, tmp_path):
    with Visit(browser, report(nasty_run, tmp_path / "nasty.html")) as visit:
        assert visit.page.locator("img, h1 b, td b").count() == 0
        legend = visit.page.locator("[data-figure='s0-roles'] .legendtext").all_text_contents()
        assert legend == ["<i>role</i>"]
        visit.page.select_option("#stage", label="second")
        visit.page.wait_for_selector("[data-figure='s1-roles'] .plot .trace")
        assert not visit.page.locator("[data-stage='0']").is_visible()
        visit.settled()
        assert undrawn(visit.page) == []
        assert visit.complaints == []


def test_a_click_on_a_head_shows_its_attention(browser, tmp_path):
    page_path = report(write_network(tmp_path / "net.db"), tmp_path / "net.html")
    with Visit(browser, page_path, viewport={"width": 1280, "height": 1000}) as visit:
        assert undrawn(visit.page) == []
        figure = visit.page.locator("[data-figure='s0-heads']")
        reader = visit.page.locator("[data-figure='s0-head-reader']")
        assert reader.locator(".matrix").count() == 2
        before = reader.locator("h4").inner_text()
        figure.locator(".plot .nsewdrag").first.click(position={"x": 300, "y": 60})
        visit.page.wait_for_function(
            "t => document.querySelector('.reader h4').textContent !== t", arg=before
        )
        figure.locator("[data-set=effective]").click()
        visit.settled()
        assert undrawn(visit.page) == []
        assert visit.complaints == []


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 390])
def test_what_growth_does_is_drawn_in_full_panels(browser, tmp_path, width):
    """Every panel has its lines inside its own place, no heading is cut off, and one button moves all."""
    page_path = report(write_growing(tmp_path / "run.db"), tmp_path / "report.html")
    with Visit(browser, page_path, viewport={"width": width, "height": 900}) as visit:
        assert undrawn(visit.page) == [] and visit.overflow() <= 0
        figure = visit.page.locator("[data-figure='s0-effects']")
        figure.locator("[data-x=log]").click()
        visit.settled()
        assert figure.evaluate("f => f.querySelector('.plot').layout.xaxis.type") == "log"
        panels = figure.evaluate(PANELS)
        assert len(panels) == 7 and all(panels)
        edges = figure.evaluate(ROOM)
        assert len(edges) == 7 and min(edges) > 0
        assert visit.complaints == [] and visit.requests == []


PANELS = """f => [...f.querySelectorAll('.plot .subplot')].map((panel) =>
    panel.querySelectorAll('.trace path').length > 0)"""
ROOM = """f => [...f.querySelectorAll('.annotation-text')].map((text) =>
    f.getBoundingClientRect().right - text.getBoundingClientRect().right)"""


def test_a_click_on_a_cell_shows_its_curves(browser, tmp_path):
    page_path = report(write_sweep(tmp_path / "grid"), tmp_path / "grid.html")
    with Visit(browser, page_path, viewport={"width": 390, "height": 844}) as visit:
        assert undrawn(visit.page) == [] and visit.overflow() <= 0
        title = visit.page.locator("[data-figure='s0-cell-0'] h4")
        before = title.inner_text()
        drag = visit.page.locator("[data-figure='s0-loss-0'] .nsewdrag").first
        drag.scroll_into_view_if_needed()
        drag.click(position={"x": 20, "y": 150})
        visit.page.wait_for_function(
            "t => document.querySelector('.detail h4').textContent !== t", arg=before
        )
        assert visit.page.locator("[data-figure='s0-cell-0'] .panes .trace").count() == 2
        assert visit.complaints == []


@pytest.mark.browser
def test_the_curves_of_a_cell_have_a_table_and_files(browser, tmp_path):
    page_path = report(write_sweep(tmp_path / "grid"), tmp_path / "grid.html")
    details = figures(page_path)["s0-cell-0"]["details"]
    with Visit(browser, page_path, viewport={"width": 1400, "height": 900}) as visit:
        assert undrawn(visit.page) == []
        cell = visit.page.locator("[data-figure='s0-cell-0']")
        panes = cell.locator(".pane")
        for choice in (0, 2):
            cell.locator("select").select_option(index=choice)
            key = cell.locator("select").input_value()
            wanted = details[key]["figures"]
            assert panes.count() == len(wanted) == 2
            loss = panes.nth(1)
            if loss.locator(".numbers").is_hidden():
                loss.get_by_role("button", name="Table").click()
            visit.page.wait_for_function(
                "name => document.querySelectorAll('.pane .scroll')[0]?.ariaLabel.startsWith(name)",
                arg=details[key]["title"],
            )
            rows = loss.locator("tbody tr").all_inner_texts()
            (trace,) = wanted[1]["traces"]
            assert [int(row.split("\t")[0]) for row in rows] == trace["x"]
            assert [float(row.split("\t")[1]) for row in rows] == pytest.approx(trace["y"])
        with visit.page.expect_download() as saved:
            loss.get_by_role("button", name="SVG").click()
        assert saved.value.suggested_filename.endswith("loss.svg")
        assert "<svg" in Path(saved.value.path()).read_text("utf-8")[:200]
        assert visit.complaints == []


def test_it_prints_in_light_colours(desktop):
    desktop.page.emulate_media(media="print")
    assert len(desktop.page.pdf()) > 10_000
    desktop.page.emulate_media(media="screen")


# -- the reader's view of the heads ---------------------------------------------------

SHOWN = """(kind) => {
    const pane = document.querySelectorAll('.pane')[kind === 'soft' ? 0 : 1];
    return [...pane.querySelectorAll('.weight small')].map((item) => Number(item.textContent || 0));
}"""


@pytest.fixture(scope="module")
def many_heads(tmp_path_factory):
    """A report of 384 heads on a sentence of 24 tokens, and the documents behind it."""
    folder = tmp_path_factory.mktemp("many")
    path = report(write_many_heads(folder / "many.db"), folder / "many.html")
    with Run(folder / "many.db") as run:
        return path, run.artifacts("attention")


@pytest.fixture(scope="module")
def reader(browser, many_heads):
    """One visit for all tests that leave the page as they found it, but for the head and token chosen."""
    with Visit(browser, many_heads[0], color_scheme="light", viewport=WIDE) as visit:
        yield visit


def weights_of(documents, visit, kind, query):
    """What the run file says about the head that is shown."""
    key = visit.page.locator(".tile[aria-selected=true]").get_attribute("data-head")
    return documents[f"1000/{key}"][kind][query]


def test_hovering_a_token_shows_its_weights_soft_and_saturated(reader, many_heads):
    _, documents = many_heads
    reader.page.locator(".tile").nth(200).click()
    for query in (3, 17):
        reader.page.locator(".token").nth(query).hover()
        for kind in ("soft", "saturated"):
            expected = weights_of(documents, reader, kind, query)
            assert np.abs(np.subtract(reader.page.evaluate(SHOWN, kind), expected)).max() < 0.0075
    assert "·met →" not in reader.page.locator(".answer").inner_text()
    reader.page.locator("h1").hover()  # what was only hovered is let go
    assert reader.page.locator(".token[aria-pressed=true]").get_attribute("data-query") == "16"
    assert reader.complaints == [] and reader.requests == []


def test_every_small_map_is_drawn_and_the_switch_draws_the_other_network(reader):
    drawn = """() => [...document.querySelectorAll('.tile canvas')].map((c) => {
        const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);
        const reds = new Set(data.filter((_, i) => i % 4 === 0));
        return [c.width, c.height, reds.size, data.reduce((sum, value) => sum + value, 0)];
    })"""
    soft = reader.page.evaluate(drawn)
    assert len(soft) == 384
    assert all(tile[:2] == [24, 24] and tile[2] > 1 for tile in soft)
    reader.page.locator("[data-kind=saturated]").click()
    saturated = reader.page.evaluate(drawn)
    assert sum(a[3] != b[3] for a, b in zip(soft, saturated, strict=True)) > 200
    assert reader.page.locator("[data-kind=saturated]").get_attribute("aria-pressed") == "true"
    milliseconds = reader.page.evaluate("""() => {
        const start = performance.now();
        document.querySelector('[data-figure$=head-reader]').reader.paint();
        return performance.now() - start;
    }""")
    assert milliseconds < 2000  # some 40 on an idle machine
    reader.page.locator("[data-kind=soft]").click()
    assert reader.page.evaluate(drawn) == soft


@pytest.mark.slow
def test_the_reader_on_a_phone_needs_no_hover(browser, many_heads):
    path, documents = many_heads
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    with Visit(browser, path, **phone) as visit:
        assert visit.overflow() <= 0
        tile = visit.page.locator(".tile").nth(5)
        assert min(tile.bounding_box()["width"], tile.bounding_box()["height"]) >= 24
        tile.tap()
        token = visit.page.locator(".token").nth(9)
        token.tap()
        assert token.bounding_box()["height"] >= 30
        expected = weights_of(documents, visit, "saturated", 9)
        assert np.abs(np.subtract(visit.page.evaluate(SHOWN, "saturated"), expected)).max() < 0.0075
        matrix = visit.page.locator(".matrix").first
        matrix.scroll_into_view_if_needed()
        box = matrix.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360
        matrix.tap(position={"x": box["width"] - 4, "y": box["height"] - 4})
        assert visit.page.locator(".token[aria-pressed=true]").get_attribute("data-query") == "23"
        assert visit.complaints == [] and visit.requests == []


def test_the_reader_by_keyboard(reader):
    reader.page.locator(".tile[aria-selected=true]").focus()
    assert reader.page.locator(".tile[tabindex='0']").count() == 1
    start = reader.page.locator(".reader h4").inner_text()
    reader.page.keyboard.press("ArrowDown")
    reader.page.keyboard.press("ArrowLeft")
    focused = reader.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == reader.page.locator(".reader h4").inner_text() != start
    reader.page.locator(".token[tabindex='0']").focus()
    reader.page.keyboard.press("ArrowRight")
    chosen = reader.page.locator(".token[aria-pressed=true]")
    assert reader.page.evaluate("document.activeElement.dataset.query") == chosen.get_attribute("data-query")
    assert reader.page.locator(".answer[aria-live=polite]").inner_text()
    unnamed = ".tile:not([aria-label]), canvas.matrix:not([aria-label]), .reader button:not([type=button])"
    assert reader.page.locator(unnamed).count() == 0


def test_the_reader_shows_what_is_known_and_says_what_is_not(browser, tmp_path):
    """A head without a map, a row that is not finite, markup in a token, other keys than queries."""
    path = write_many_heads(tmp_path / "few.db", layers=1, heads=3, tokens=3)
    key = "1000/model.layers.0.self_attn"
    nasty = {"tokens": [NASTY, "b"], "key_tokens": ["k1", "k2", "k3"], "soft": [[None] * 3, [0.25, 0.75, 0]]}
    with Run(path, write=True) as run, run.transaction():
        run.set_artifact("attention", f"{key}/0", {**nasty, "saturated": [[0, 0, 0], [0, 1, 0]]})
        run.delete_rows("artifact", "key = ?", (f"{key}/1",))
    with Visit(browser, report(path, tmp_path / "few.html")) as visit:
        reader = visit.page.locator(".reader")
        reader.locator(".tile").nth(0).click()
        reader.locator(".token").nth(0).click()
        assert (
            "soft: no finite weights · saturated: no finite weights" in reader.locator(".answer").inner_text()
        )
        assert reader.locator(".weight small").first.inner_text() == "not finite"
        reader.locator(".token").nth(1).click()
        assert "soft: k2 0.75, k1 0.25 · saturated: k2 1.00" in reader.locator(".answer").inner_text()
        assert reader.locator("img, b b").count() == 0
        reader.locator(".tile").nth(1).click()
        assert "No attention map was recorded" in reader.inner_text()
        assert not reader.locator(".pair").is_visible()
        reader.locator(".tile").nth(2).click()
        assert reader.locator(".token").count() == 3 and reader.locator(".pair").is_visible()
        assert visit.complaints == []


def test_colours_of_the_small_maps_follow_the_theme(reader):
    corner = """() => [...document.querySelector('.tile canvas').getContext('2d')
        .getImageData(23, 0, 1, 1).data].join()"""
    light = reader.page.evaluate(corner)
    reader.page.click("#theme")
    reader.page.wait_for_function(f"light => ({corner})() !== light", arg=light)
