"""`normscope serve` in a real browser, beside a training that writes."""

import re
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

import normscope as ns
from normscope.errors import MissingRunFile, UsageError
from normscope.views.serving import served_pages
from normscope.views.serving.served_pages import ServedPages, open_server
from normscope.views.serving.served_runs import counted, served_runs
from tests.lab.at_once import AtOnce
from tests.views.serving.running import running


class Training:
    """A small model that is trained some steps at a time."""

    def __init__(self, path, seed=0):
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.monitor = ns.Monitor(self.model, self.optimizer, path, ns.every(1))

    def steps(self, count, break_it=False):
        for _ in range(count):
            x = torch.randn(16, 8)
            loss = (self.model(x) - x).square().mean() * (float("nan") if break_it else 1.0)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.monitor.log(loss=loss)
        self.monitor.flush(60)


def until(page, script, seconds=60):
    """Wait for a script to be true; Playwright's own way needs eval, which the page's policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(script):
        assert time.monotonic() < end, script
        time.sleep(0.1)


@pytest.mark.browser
def test_a_page_follows_a_training_and_keeps_what_the_reader_did(tmp_path, browser):
    training = Training(tmp_path / "run.db")
    training.steps(60)
    with running(ServedPages(tmp_path).answer) as server:
        page = browser.new_page()
        wrong, asked = [], []
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{server.address}run/run.db/")
        page.wait_for_selector("body[data-drawn=yes]", timeout=60_000)
        growth = page.locator("[data-figure$=growth]").first
        growth.locator("button[data-x=log]").click()
        page.evaluate("document.querySelector('[data-figure$=growth] > .plot').dataset.mark = 'same'")
        before = page.evaluate("Math.max(...document.querySelector('.plot').data.flatMap(t => t.x))")
        assert before <= 60
        training.steps(140)
        until(page, "Math.max(...document.querySelector('.plot').data.flatMap(t => t.x)) >= 200")
        until(page, "document.querySelector('#live').innerText.includes('last change')")
        assert growth.locator("button[data-x=log]").get_attribute("aria-pressed") == "true"
        kept = "document.querySelector('[data-figure$=growth] > .plot')"
        assert page.evaluate(f"{kept}.dataset.mark") == "same"
        assert page.evaluate(f"{kept}.layout.xaxis.type") == "log"
        assert page.locator("#s0-alarms").count() == 0
        training.steps(2, break_it=True)
        page.wait_for_selector("#s0-alarms", timeout=60_000)
        assert all(url.startswith((server.address, "blob:", "data:")) for url in asked)
        assert wrong == []
        page.close()
    training.monitor.close()


@pytest.mark.browser
def test_the_overview_lists_every_run_alarms_first_and_leads_to_their_pages(tmp_path, browser):
    for seed in range(2):
        training = Training(tmp_path / f"run-{seed}.db", seed)
        training.steps(30)
        if seed:
            training.steps(2, break_it=True)
        training.monitor.close()
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\x00" + b"x" * 500)
    with running(ServedPages(tmp_path).answer) as server:
        page = browser.new_page()
        page.goto(server.address)
        page.wait_for_selector("body[data-drawn=yes]", timeout=60_000)
        sections = page.locator("section h2").all_inner_texts()
        assert sections[:3] == ["Alarms", "Norms", "All runs"]
        assert "broken.db" in page.locator("ul.warnings").inner_text()
        page.get_by_role("link", name="run-1.db").first.click()
        page.wait_for_selector("#s0-alarms", timeout=60_000)
        page.get_by_role("link", name="All runs").click()
        page.wait_for_selector("#norms, [id$=norms]", timeout=60_000)
        later = Training(tmp_path / "later.db", 3)  # a run that begins while the page is open
        later.steps(20)
        page.wait_for_selector("text=later.db", timeout=60_000)
        later.monitor.close()
        page.close()


@pytest.mark.slow
@pytest.mark.browser
def test_a_server_that_stops_is_said(tmp_path, browser):
    training = Training(tmp_path / "run.db")
    training.steps(20)
    training.monitor.close()
    with running(ServedPages(tmp_path).answer) as server:
        page = browser.new_page()
        page.goto(server.address)
        page.wait_for_selector("body[data-drawn=yes]", timeout=60_000)
    until(page, "document.querySelector('#live').innerText.includes('does not answer')")
    page.close()


def test_runs_are_called_like_the_folders_they_are_in(tmp_path):
    for place in ("a/run.db", "a/b/run.db", "c/other.db", ".hidden/run.db", "run.db"):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        ns.Run.create(path).close()
    (tmp_path / "notes.db").write_text("no database")
    assert list(served_runs(tmp_path).runs) == ["a", "a/b", "c/other.db", "run.db"]
    with pytest.raises(MissingRunFile, match="missing"):
        served_runs(tmp_path / "missing")


def test_a_sweep_and_its_cells_are_in_the_overview(tmp_path):
    base = ns.TrainConfig(ns.ModelConfig(d_model=8, n_layers=1, n_heads=1, d_ff=8), steps=8, batch=2)
    ns.sweep(ns.SweepConfig(base, [{"lr": 0.01}, {"lr": 0.02}]), tmp_path / "grid", engine=AtOnce())
    pages = ServedPages(tmp_path)
    assert counted(pages.found.runs.values()) == "2 runs and 1 sweep"
    page = pages._overview()
    (table,) = page.stages[0].sections[-1].tables
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["grid (sweep)"]["newest alarm, or state"] == "2 cells: 2 done"
    assert not page.warnings
    cells = [row for name, row in rows.items() if name.startswith("grid/")]
    assert [(row["step"], row["counted"]) for row in cells] == [(8, "the body")] * 2
    html = pages.answer("run/grid (sweep)/now", {}).body
    assert b"Every cell finished." in html and b"Shown: the norm of the body" in html


def test_an_unchanged_run_is_not_sent_again_and_a_run_file_is_never_written(tmp_path):
    training = Training(tmp_path / "run.db")
    training.steps(20)
    training.monitor.close()
    content = (tmp_path / "run.db").read_bytes()
    pages = ServedPages(tmp_path / "run.db")
    first = pages.answer("run/run.db/now", {})
    stamp = re.search(rb'"stamp":"([^"]+)"', first.body)[1].decode()
    assert pages.answer("run/run.db/now", {"stamp": stamp}).status == 204
    assert pages.answer("run/run.db/", {}).body.startswith(b"<!doctype html>")
    assert pages.answer("run/../../etc/passwd", {}) is None
    assert pages.answer("run/other.db/", {}) is None
    assert (tmp_path / "run.db").read_bytes() == content


def test_a_page_rests_before_it_is_made_again(tmp_path, monkeypatch):
    """However often it is asked for while a training writes, making it takes a fixed share of the time."""
    training = Training(tmp_path / "run.db")
    training.steps(3)
    pages = ServedPages(tmp_path / "run.db")
    stamps = []
    for rest in (1e6, 1e6, 0.0, 0.0):
        monkeypatch.setattr(served_pages, "REST", rest)
        page = pages.answer("run/run.db/now", {}).body
        stamps.append(re.search(rb'"stamp":"([^"]+)"', page)[1])
        training.steps(3)
    training.monitor.close()
    assert stamps[0] == stamps[1] and len(set(stamps)) == 3


@pytest.mark.browser
def test_a_page_that_takes_long_is_announced_and_fills_by_itself(tmp_path, browser, monkeypatch):
    training = Training(tmp_path / "run.db")
    training.steps(20)
    training.monitor.close()
    monkeypatch.setattr(served_pages, "PATIENCE", 0.0)
    page_of = served_pages._page
    may_go_on = threading.Event()
    monkeypatch.setattr(served_pages, "_page", lambda run: may_go_on.wait(60) and page_of(run))
    pages = ServedPages(tmp_path)
    with running(pages.answer) as server:
        page = browser.new_page()
        page.goto(f"{server.address}run/run.db/")
        page.wait_for_selector("text=Reading run.db")
        until(page, "typeof renewPage === 'function'")
        assert page.locator("body[data-drawn=yes]").count() == 0  # there is nothing to look at yet
        may_go_on.set()
        page.wait_for_selector("body[data-drawn=yes]", timeout=60_000)
        assert page.locator("text=Reading run.db").count() == 0
        assert page.locator("[data-figure$=growth]").count() == 1
        page.close()
    first, again = (pages.answer("run/run.db/", {}).body for _ in range(2))
    assert first == again and b"Reading run.db" not in first


def test_a_page_that_could_not_be_made_is_tried_again(tmp_path, monkeypatch):
    ns.Run.create(tmp_path / "run.db").close()
    problems = [OSError("the disk is gone")]
    page_of = served_pages._page

    def fails_once(run):
        if problems:
            raise problems.pop()
        return page_of(run)

    monkeypatch.setattr(served_pages, "_page", fails_once)
    pages = ServedPages(tmp_path)
    with pytest.raises(OSError, match="the disk is gone"):
        pages.answer("run/run.db/now", {})
    assert pages.answer("run/run.db/now", {}).status == 200


def test_a_file_that_is_no_run_file_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match="not a run file"):
        open_server(tmp_path / "notes.txt", 0, True)


def test_the_command_prints_its_address_and_stops_at_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "normscope", "serve", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        line = child.stdout.readline()
        assert re.fullmatch(r"no runs in .* at http://127\.0\.0\.1:\d+/[\w-]{24}/ \(Ctrl-C stops\)\n", line)
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err) == (0, "stopped; nothing was written\n", "")
