"""A paper's page in a real Chromium: network, table, filters, downloads; silent, safe, usable by keyboard."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import normscope.literature.papers.paper as papers
from normscope.errors import UsageError
from normscope.literature.libraries.library_files import READERS, WRITERS
from normscope.views.literature.network_graph import network_graph
from normscope.views.literature.paper_page import render_paper, write_paper_page

from .browser_visit import Visit
from .papers import HOSTILE, hostile_paper, many_works, reading_list, small_paper

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


class PaperVisit(Visit):
    """A visit to a paper's page, with the places of its works."""

    def load(self):
        super().load()
        self.page.locator("#picture").evaluate(
            "e => e.scrollIntoView({block: 'center', behavior: 'instant'})"
        )
        self.settled()

    def where(self, i):
        """Where work i is on the screen."""
        return self.page.evaluate(
            """(i) => { const box = document.getElementById('picture'), frame = box.getBoundingClientRect();
            const [x, y] = box.view.where(i); return [x + frame.left, y + frame.top] }""",
            i,
        )

    def until(self, expression):
        """Wait until an expression is true. Playwright's own way needs eval, which the policy forbids."""
        for _ in range(200):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never true: {expression}")

    def net(self, name):
        return self.page.evaluate(f"document.getElementById('picture').view.net.{name}")

    def scale(self):
        return self.page.evaluate("document.getElementById('picture').view.camera.scale")

    def shown(self):
        """The titles in the table, in order."""
        return self.page.evaluate(
            """[...document.querySelectorAll('#table tbody tr')]
            .filter((row) => !row.hidden).map((row) => row.cells[1].textContent)"""
        )

    def panel(self):
        return self.page.locator("#panel").inner_text()

    def said(self):
        return self.page.locator("#said").inner_text()

    def save(self, selector):
        with self.page.expect_download() as waiting:
            self.page.click(selector)
        return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


PAPER = small_paper()
GRAPH = network_graph(PAPER)
TITLES = [work.title for work in GRAPH.works]


@pytest.fixture(scope="module")
def written_paper(tmp_path_factory):
    return write_paper_page(PAPER, tmp_path_factory.mktemp("paper") / "paper.html")


@pytest.fixture(scope="module")
def opened(browser, written_paper):
    with PaperVisit(browser, written_paper, reduced_motion="reduce", **DESKTOP) as visit:
        yield visit


@pytest.fixture
def visit(opened):
    """The page as it is when it has just been opened."""
    opened.page.evaluate("localStorage.clear()")
    opened.page.emulate_media(media="screen")
    opened.load()
    yield opened
    assert opened.requests == [] and opened.complaints == []


# -- the network --------------------------------------------------------------------------------


@pytest.mark.browser
def test_every_work_is_painted_in_the_colour_of_its_role(visit):
    for role in ("cited", "citing", "this"):
        i = GRAPH.roles.index(role)
        colour = visit.page.evaluate(
            """(i) => { const box = document.getElementById('picture'), [x, y] = box.view.where(i);
            const k = devicePixelRatio;
            const dot = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
            dot.drawImage(box.querySelector('canvas'), -Math.round(x * k), -Math.round(y * k));
            return [...dot.getImageData(0, 0, 1, 1).data] }""",
            i,
        )
        wanted = visit.page.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('--role-{role}').trim()"
        )
        assert "#" + bytes(colour[:3]).hex() == wanted


@pytest.mark.browser
def test_hovering_shows_title_and_authors(visit):
    tip = visit.page.locator("#tip")
    assert tip.is_hidden()
    visit.page.mouse.move(*visit.where(3))
    assert "Reference 2 on automata" in tip.inner_text() and "Rita Ref2" in tip.inner_text()
    visit.page.mouse.move(5, 5)
    assert tip.is_hidden()


@pytest.mark.browser
def test_a_click_selects_and_shows_details(visit):
    i = TITLES.index("A work that is both")
    visit.page.mouse.click(*visit.where(i))
    for words in (
        "A work that is both",
        "Henry Kučera",
        "2021",
        "reference and cites it",
        "Cites here: 1",
        "Cited here by: 1",
    ):
        assert words in visit.panel()
    link = visit.page.locator("#panel .out a").first
    assert link.get_attribute("href") == "https://arxiv.org/abs/b.0"
    assert link.get_attribute("rel") == "noopener noreferrer"
    assert "A work that is both" in visit.said()
    assert visit.page.locator("tr.marked").inner_text().count("A work that is both") == 1
    visit.page.locator("#panel .neighbours button").first.click()
    assert visit.net("selected") == 0 and "Norm growth of transformers" in visit.panel()
    visit.page.mouse.click(
        *[place + 12 for place in visit.page.locator("#picture").bounding_box().values()][:2]
    )
    assert visit.net("selected") == -1


@pytest.mark.browser
def test_dragging_a_work_moves_it_and_nothing_else(visit):
    before, others = visit.where(5), visit.where(6)
    visit.page.mouse.move(*before)
    visit.page.mouse.down()
    visit.page.mouse.move(before[0] + 30, before[1] + 10)
    visit.page.mouse.move(before[0] + 60, before[1] + 40)
    visit.page.mouse.up()
    after = visit.where(5)
    assert abs(after[0] - before[0] - 60) < 5 and abs(after[1] - before[1] - 40) < 5
    assert visit.where(6) == others
    assert visit.net("selected") == -1


@pytest.mark.browser
def test_dragging_the_background_moves_everything(visit):
    frame = visit.page.locator("#picture").bounding_box()
    corner, before = (frame["x"] + 6, frame["y"] + 6), [visit.where(i) for i in (0, 7)]
    visit.page.mouse.move(*corner)
    visit.page.mouse.down()
    visit.page.mouse.move(corner[0] + 50, corner[1] + 30)
    visit.page.mouse.up()
    for i, (x, y) in zip((0, 7), before, strict=True):
        assert visit.where(i) == pytest.approx([x + 50, y + 30], abs=5)
    visit.page.click("[data-zoom=fit]")
    assert visit.where(0) == pytest.approx(before[0], abs=1)


@pytest.mark.browser
def test_zoom_by_wheel_and_buttons_keeps_the_place_under_the_pointer(visit):
    fitted, place = visit.scale(), visit.where(4)
    visit.page.mouse.move(*place)
    visit.page.mouse.wheel(0, -200)
    visit.until(f"document.getElementById('picture').view.camera.scale > {1.3 * fitted}")
    assert visit.where(4) == pytest.approx(place, abs=1)
    visit.page.click("[data-zoom=fit]")
    assert visit.scale() == pytest.approx(fitted)
    visit.page.click("[data-zoom=in]")
    assert visit.scale() == pytest.approx(1.4 * fitted)
    visit.page.click("[data-zoom=out]")
    visit.page.click("[data-zoom=out]")
    assert visit.scale() == pytest.approx(fitted / 1.4)


@pytest.mark.browser
def test_the_wheel_scrolls_on_when_there_is_nothing_left_to_zoom_out(visit):
    visit.page.mouse.move(*visit.where(4))
    before = visit.page.evaluate("scrollY")
    visit.page.mouse.wheel(0, 200)
    visit.until(f"scrollY > {before}")


@pytest.mark.browser
def test_the_layout_by_years_puts_older_works_left(visit):
    visit.page.click("[data-layout=years]")
    visit.settled()
    assert visit.page.locator("[data-layout=years]").get_attribute("aria-pressed") == "true"
    dated = sorted((work.year, visit.where(i)[0]) for i, work in enumerate(GRAPH.works) if work.year)
    assert all(x <= later + 0.5 for (_, x), (_, later) in itertools.pairwise(dated))
    visit.page.click("[data-layout=force]")


@pytest.mark.slow
@pytest.mark.browser
def test_the_layout_moves_unless_the_reader_prefers_less_motion(browser, written_paper):
    with PaperVisit(browser, written_paper, reduced_motion="no-preference", **DESKTOP) as moving:
        moving.page.click("[data-layout=years]")
        goal = moving.page.evaluate(
            "JSON.parse(document.getElementById('network-data').textContent).years[6]"
        )
        moving.until(f"Math.abs(document.getElementById('picture').view.net.x[3] - {goal}) < 0.01")


# -- keyboard and screen readers ----------------------------------------------------------------


@pytest.mark.browser
def test_arrows_go_to_the_work_in_that_direction(visit):
    visit.page.focus("#picture")
    visit.page.keyboard.press("ArrowRight")
    assert visit.net("cursor") == 0 and "Norm growth" in visit.said()
    for key, axis, sign in (
        ("ArrowRight", 0, 1),
        ("ArrowDown", 1, 1),
        ("ArrowLeft", 0, -1),
        ("ArrowUp", 1, -1),
    ):
        from_ = visit.where(visit.net("cursor"))
        visit.page.keyboard.press(key)
        there = visit.where(visit.net("cursor"))
        assert sign * (there[axis] - from_[axis]) > 0
        assert GRAPH.works[visit.net("cursor")].title in visit.said()
    assert visit.page.locator("#tip").is_visible()


@pytest.mark.browser
def test_every_work_can_be_reached_by_arrows(visit):
    reached = visit.page.evaluate("""() => {
        const view = document.getElementById('picture').view, seen = new Set([0]), open = [0];
        while (open.length) { const i = open.pop();
            for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) { const j = view.towards(i, dx, dy);
                if (j >= 0 && !seen.has(j)) { seen.add(j); open.push(j); } } }
        return seen.size }""")
    assert reached == len(GRAPH.works)


@pytest.mark.browser
def test_enter_selects_escape_clears_and_signs_zoom(visit):
    visit.page.focus("#picture")
    fitted = visit.scale()
    visit.page.keyboard.press("Home")
    visit.page.keyboard.press("Enter")
    assert visit.net("selected") == 0 and visit.said().startswith("Selected: Norm growth of transformers")
    visit.page.keyboard.press("Escape")
    assert visit.net("selected") == visit.net("cursor") == -1
    visit.page.keyboard.press("+")
    assert visit.scale() > fitted
    visit.page.keyboard.press("-")
    assert visit.scale() == pytest.approx(fitted)
    visit.page.keyboard.press("+")
    visit.page.keyboard.press("0")
    assert visit.scale() == pytest.approx(fitted)


@pytest.mark.browser
def test_the_network_can_be_reached_and_left_with_tab(visit):
    visit.page.focus(".legend button:last-child")
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.id") == "picture"
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.dataset.layout") == "force"


CHECKS = (Path(__file__).parent / "page_structure.js").read_text("utf-8")


@pytest.mark.browser
def test_headings_labels_and_roles_are_in_order(visit):
    visit.page.mouse.click(*visit.where(0))
    found = visit.page.evaluate(CHECKS)
    assert found.pop("live") >= 2
    assert found == {
        "jumps": [], "firsts": 1, "unnamed": [], "repeated": [], "dangling": [], "pictures": 0, "headers": 0,
        "language": "en", "main": 1,
    }  # fmt: skip


CONTRAST = (Path(__file__).parent / "page_contrast.js").read_text("utf-8")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_symbols_have_enough_contrast(browser, written_paper, scheme):
    with PaperVisit(browser, written_paper, color_scheme=scheme, **DESKTOP) as visit:
        assert visit.page.evaluate("document.documentElement.dataset.theme") == scheme
        assert visit.page.evaluate(CONTRAST) == [[], []]


# -- filters and the table ------------------------------------------------------------------------


def filtered(visit, **values):
    for name, value in values.items():
        visit.page.fill(f"#{name}", str(value))
    visit.settled()
    return visit.shown()


@pytest.mark.browser
def test_text_filters_table_and_network(visit):
    assert filtered(visit, text="SATURATION citing") == [f"Citing work {i} on saturation" for i in range(9)]
    assert visit.page.locator("#count").inner_text() == f"9 of {len(TITLES)} works"
    assert visit.page.evaluate("[...document.getElementById('picture').view.net.visible]") == [
        int("saturation" in title) for title in TITLES
    ]
    visit.page.mouse.click(*visit.where(2))
    assert visit.net("selected") == -1  # a work that is filtered out cannot be hit
    assert filtered(visit, text="kucera") == ["A work that is both"]
    assert filtered(visit, text="nothing like this") == []
    visit.page.click("button[type=reset]")
    visit.settled()
    assert len(visit.shown()) == len(TITLES)


@pytest.mark.browser
def test_years_filter_and_say_what_has_no_year(visit):
    found = filtered(visit, **{"from": 1990, "to": 2010})
    assert set(found) == {w.title for w in GRAPH.works if w.year and 1990 <= w.year <= 2010}
    assert "1 without a year left out" in visit.page.locator("#count").inner_text()
    assert len(filtered(visit, **{"from": 3000, "to": ""})) == 0
    assert filtered(visit, **{"from": 2020, "to": 2010}) == []
    assert "the first year is after the last" in visit.page.locator("#count").inner_text()


@pytest.mark.browser
def test_the_legend_filters_by_role(visit):
    visit.page.click("[data-role=cited]")
    assert "Reference 0 on automata" not in visit.shown() and "A work that is both" in visit.shown()
    assert visit.page.locator("[data-role=cited]").get_attribute("aria-pressed") == "false"
    visit.page.click("[data-role=cited]")
    assert len(visit.shown()) == len(TITLES)


@pytest.mark.browser
def test_columns_sort_both_ways_with_unknown_values_last(visit):
    year = visit.page.locator("#table th", has_text="Year")
    rows = "[...document.querySelectorAll('#table tbody tr')].map(r => r.cells[3].textContent)"
    year.locator("button").click()
    up = visit.page.evaluate(rows)
    assert year.get_attribute("aria-sort") == "ascending"
    assert up == [*sorted(filter(None, up)), ""]
    year.locator("button").click()
    down = visit.page.evaluate(rows)
    assert year.get_attribute("aria-sort") == "descending"
    assert down == [*sorted(filter(None, down), reverse=True), ""]
    visit.page.locator("#table th button", has_text="Title").click()
    assert year.get_attribute("aria-sort") == "none"
    assert visit.shown()[0] == "A work that is both"
    titles = visit.shown()
    assert titles.index("Reference 2 on automata") < titles.index("Reference 11 on automata")


@pytest.mark.browser
def test_a_title_in_the_table_selects_the_work_after_sorting_too(visit):
    visit.page.locator("#table th button", has_text="Authors").click()
    visit.page.locator("#table button.pick", has_text="Reference 7").click()
    assert GRAPH.works[visit.net("selected")].title == "Reference 7 on automata"
    assert "Reference 7" in visit.panel()


# -- downloads --------------------------------------------------------------------------------------


@pytest.mark.browser
@pytest.mark.parametrize("ending", ["bib", "ris", "csv", "json"])
def test_saved_works_are_those_the_command_would_export(visit, ending):
    name, data = visit.save(f"[data-works={ending}]")
    assert name == f"norm-growth-of-transformers.{ending}"
    written = WRITERS[f".{ending}"](GRAPH.works)
    if ending == "json":
        assert json.loads(data) == json.loads(written)
    else:
        assert data.decode() == written


@pytest.mark.browser
def test_only_the_works_shown_are_saved_in_the_order_shown(visit):
    filtered(visit, text="automata")
    visit.page.locator("#table th button", has_text="Year").click()
    visit.page.locator("#table th button", has_text="Year").click()
    _, data = visit.save("[data-works=csv]")
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    assert [row["title"] for row in rows] == [f"Reference {i} on automata" for i in range(11, -1, -1)]
    _, data = visit.save("[data-works=bib]")
    assert [w.title for w in READERS[".bib"](data.decode())[0]] == [row["title"] for row in rows]
    assert "Saved 12 works" in visit.page.locator("#saved").inner_text()


@pytest.mark.browser
def test_the_picture_can_be_saved(visit):
    name, data = visit.save("[data-save=svg]")
    text = data.decode()
    assert name.endswith(".svg") and text.startswith("<svg") and "script" not in text
    assert text.count("<circle") + text.count("<rect") - 1 >= len(TITLES) - 1
    assert "Merrill 2021" in text and "reference" in text
    name, data = visit.save("[data-save=png]")
    assert name.endswith(".png") and data.startswith(b"\x89PNG") and len(data) > 5000


# -- other screens ----------------------------------------------------------------------------------


def overflow(visit):
    return visit.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.browser
def test_a_phone_shows_everything_without_scrolling_sideways(browser, written_paper):
    with PaperVisit(browser, written_paper, **PHONE) as visit:
        assert overflow(visit) <= 0
        visit.page.touchscreen.tap(*visit.where(4))
        assert "Reference 3" in visit.panel()
        assert overflow(visit) <= 0
        assert visit.page.locator("#table th button").first.is_visible()


@pytest.mark.slow
@pytest.mark.browser
def test_two_fingers_zoom_and_one_drags_a_work(browser, written_paper):
    with PaperVisit(browser, written_paper, reduced_motion="reduce", **PHONE) as visit:
        touches = visit.context.new_cdp_session(visit.page)

        def touch(kind, *points):
            at = [{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(points)]
            touches.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})

        x, y = visit.where(4)
        touch("touchStart", (x, y))
        for k in range(1, 7):
            touch("touchMove", (x + 5 * k, y + 5 * k))
        touch("touchEnd")
        assert visit.where(4) == pytest.approx([x + 30, y + 30], abs=12)
        fitted = visit.scale()
        x, y = visit.where(0)
        touch("touchStart", (x - 20, y), (x + 20, y))
        for k in range(1, 9):
            touch("touchMove", (x - 20 - 5 * k, y), (x + 20 + 5 * k, y))
        touch("touchEnd")
        assert visit.scale() > 2 * fitted
        assert visit.net("selected") == -1


@pytest.mark.browser
def test_printing_shows_all_works_in_light(browser, written_paper):
    with PaperVisit(browser, written_paper, color_scheme="dark", **DESKTOP) as visit:
        visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate("document.documentElement.dataset.theme") == "light"
        scroll = visit.page.locator(".works")
        assert scroll.evaluate("e => e.scrollHeight - e.clientHeight") <= 2
        assert visit.page.locator(".filters input").first.is_hidden()
        assert visit.page.pdf().startswith(b"%PDF")


@pytest.mark.browser
def test_the_network_is_painted_at_once_where_no_frame_follows_as_on_paper(browser, written_paper):
    with PaperVisit(browser, written_paper, **DESKTOP) as visit:
        painted = visit.page.evaluate(
            """async () => {
                 window.requestAnimationFrame = () => 0;
                 document.querySelector("#picture").style.width = "400px";
                 await new Promise((done) => setTimeout(done, 300));
                 const canvas = document.querySelector("#picture canvas"), { width, height } = canvas;
                 const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
                 return data.some((byte) => byte > 0); }"""
        )
        assert painted


@pytest.mark.browser
def test_without_scripts_the_table_has_every_work(browser, written_paper):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(written_paper.as_uri())
    assert page.locator("#table tbody tr").count() == len(TITLES)
    assert (
        page.locator("noscript").inner_text().startswith("The network, sorting and downloads need JavaScript")
    )
    context.close()


# -- hostile text -------------------------------------------------------------------------------------


@pytest.mark.browser
def test_hostile_text_is_shown_and_never_run(browser, tmp_path):
    paper = hostile_paper()
    path = write_paper_page(paper, tmp_path / "hostile.html")
    with PaperVisit(browser, path, reduced_motion="reduce", **DESKTOP) as visit:
        for i in range(len(paper.works)):
            visit.page.mouse.move(*visit.where(i))
            visit.page.evaluate("(i) => document.getElementById('picture').view.select(i)", i)
        _, picture = visit.save("[data-save=svg]")
        assert b"<img" not in picture and b"<script" not in picture
        assert visit.page.evaluate("window.hit") is None
        assert visit.page.locator("img, svg, b, body script[src]").count() == 0
        assert visit.requests == [] and visit.complaints == []
        addresses = set(
            visit.page.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
        )
        assert {a for a in addresses if not a.startswith("#")} == {"https://example.org/a?b=1&c=2"}
        shown = visit.page.evaluate("document.body.innerText")
        assert HOSTILE[0] in shown and "7*7" in shown and "49" not in shown
        assert not set("\u202e\u2066\x00\x1b") & set(shown)
        assert overflow(visit) <= 0
        box = visit.page.locator("#tip")
        visit.page.mouse.move(*visit.where([w.title for w in paper.works].index(HOSTILE[6])))
        assert len(box.inner_text()) < 400
    for ending in ("bib", "ris", "csv", "json"):
        WRITERS[f".{ending}"](paper.works)


def test_links_that_are_left_out_are_counted():
    assert f"not http or https addresses: {5 * len(hostile_paper().works)}." in render_paper(hostile_paper())


def test_the_policy_lets_nothing_in_or_out():
    head = render_paper(PAPER).split("</head>")[0]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', head)[1].replace("&#39;", "'")
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data: blob:" and "unsafe" not in rules["script-src"]
    assert not {"connect-src", "font-src", "frame-src", "media-src"} & set(rules)


# -- what the page says ----------------------------------------------------------------------------------


def test_the_page_says_what_the_paper_is():
    text = render_paper(PAPER)
    for words in ("William Merrill, Noah A. Smith", "EMNLP 2021", "2020-10", "2023-03-09", "cs.LG, cs.CL",
                  "CC BY 4.0",
                  "The ℓ₂ norm grows. It grows as √t.", "inductive biases", "Citations as of 2025-01-01",
                  "Works by source, some from several: arxiv 26.",
                  "was found twice", "on this machine for 2 of 3 claims",
                  "not yet run here", "normscope replicate open", "confirmed", "artefact",
                  "word for word"):  # fmt: skip
        assert words in text, words


def test_a_summary_by_a_command_is_marked():
    assert "Written by the command “llm -m x”, not by the authors" in render_paper(
        replace(PAPER, summary_by="llm -m x")
    )


@pytest.mark.browser
def test_a_reading_list_has_its_file_for_a_title(browser, tmp_path):
    path = write_paper_page(reading_list(20, [(1, 2)]), tmp_path / "list.html", title="refs.bib")
    with PaperVisit(browser, path, **DESKTOP) as visit:
        assert visit.page.locator("h1").inner_text() == "refs.bib"
        assert visit.page.locator("#claims, #abstract, #summary").count() == 0
        visit.page.focus("#picture")
        visit.page.keyboard.press("Home")
        visit.page.keyboard.press("Enter")
        assert "in the library" in visit.panel() and visit.complaints == []


@pytest.mark.browser
@pytest.mark.parametrize(
    "paper",
    [
        reading_list(1),
        replace(
            small_paper(), references=(), citations=(), further=(), edges=(), claims=(), terms=(), summary=()
        ),
    ],
)
def test_a_single_work_makes_a_page(browser, tmp_path, paper):
    with PaperVisit(browser, write_paper_page(paper, tmp_path / "one.html"), **DESKTOP) as visit:
        visit.page.mouse.click(*visit.where(0))
        assert visit.net("selected") == 0 and visit.complaints == []


def test_the_page_cannot_replace_a_folder(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        write_paper_page(PAPER, tmp_path)


# -- the bundled paper, and many works ---------------------------------------------------------------------


def test_the_bundled_paper_makes_a_small_page_with_light_imports(tmp_path):
    code = (
        "import sys; from normscope.literature.papers.paper import paper;"
        "from normscope.views.literature.paper_page import write_paper_page;"
        "found = paper('2010.09697', offline=True);"
        f"page = write_paper_page(found, {str(tmp_path / 'paper.html')!r});"
        "assert len(found.references) == 39 and len(found.citations) == 33;"
        "assert page.stat().st_size < 400_000, page.stat().st_size;"
        "print(sorted({'torch', 'plotly', 'scipy', 'numpy', 'pandas', 'networkx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.browser
def test_the_bundled_paper_in_the_browser(browser, tmp_path):
    path = write_paper_page(papers.paper("2010.09697", offline=True), tmp_path / "paper.html")
    with PaperVisit(browser, path, **DESKTOP) as visit:
        assert visit.page.locator("#table tbody tr").count() == 73
        assert len(filtered(visit, text="Merrill")) > 1
        assert visit.complaints == [] and visit.requests == []


@pytest.mark.slow
@pytest.mark.browser
def test_very_many_citations_are_painted_when_the_picture_rests(browser, tmp_path):
    pairs = [(a, b) for a in range(180) for b in range(180) if (7 * a + b) % 2]
    path = write_paper_page(reading_list(180, pairs), tmp_path / "dense.html")
    with PaperVisit(browser, path, reduced_motion="reduce", **DESKTOP) as visit:
        moved = (
            "() => { const v = document.getElementById('picture').view; v.pan(9, 9); return v.net.hurried }"
        )
        assert visit.net("edges.length") > 30_000 and visit.page.evaluate(moved)
        visit.until("!document.getElementById('picture').view.net.hurried")
        assert visit.complaints == []


@pytest.mark.browser
@pytest.mark.slow
def test_five_thousand_works_can_be_dragged_and_filtered(browser, tmp_path):
    paper = many_works(5000)
    path = write_paper_page(paper, tmp_path / "many.html")
    assert path.stat().st_size < 6_000_000
    with PaperVisit(browser, path, reduced_motion="reduce", **DESKTOP) as visit:
        visit.page.evaluate("document.getElementById('picture').view.zoom(6)")
        middle = visit.page.locator("#picture").bounding_box()
        i = visit.page.evaluate(
            "([x, y]) => document.getElementById('picture').view.at(x, y, 400)",
            [middle["width"] / 2, middle["height"] / 2],
        )
        before = visit.where(i)
        visit.page.mouse.move(*before)
        visit.page.mouse.down()
        visit.page.mouse.move(before[0] + 40, before[1] + 20, steps=4)
        visit.page.mouse.up()
        assert visit.where(i) == pytest.approx([before[0] + 40, before[1] + 20], abs=5)
        visit.page.fill("#text", "automata")
        visit.page.locator("#count", has_text=" of 5000 works").wait_for()
        rows = visit.page.locator("#table tbody tr:not([hidden])").all_inner_texts()
        assert rows and all("automata" in row.lower() for row in rows)
        _, data = visit.save("[data-works=ris]")
        assert len(READERS[".ris"](data.decode())[0]) == len(visit.shown())
        assert visit.complaints == []
