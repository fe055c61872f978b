"""The pages of a served folder: made when they are asked for, and again when a run file has changed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path

from normscope.errors import NormscopeError, UsageError
from normscope.run import Run
from normscope.views.page.offline_file import embedded, resource
from normscope.views.page.packed_text import packed_plotly
from normscope.views.page.page import drawn, render, render_content
from normscope.views.page.page_parts import Page, Stage
from normscope.views.reports.report import run_page
from normscope.views.reports.sweep import sweep_page
from normscope.views.serving.overview_page import overview_page
from normscope.views.serving.page_server import PageAnswer, PageServer
from normscope.views.serving.run_overview import RunOverview, overview
from normscope.views.serving.served_runs import FoundRuns, ServedRun, counted, served_runs
from normscope.words import printable

LOOK_EVERY = 5.0
"""Seconds between two looks for new run files."""
REST = 4.0
"""A page is made again only after this many times the time that making it took."""
PATIENCE = 0.25
"""Seconds that a browser waits for a page; then it gets one that says so, and asks for the rest."""
HOME = "../../"
NOTHING_NEW = PageAnswer(b"", status=HTTPStatus.NO_CONTENT)


@dataclass
class _Made:
    """A page as it was made last."""

    stamp: str
    page: Page
    cost: float
    at: float = field(default_factory=time.monotonic)

    @property
    def rested(self) -> bool:
        return time.monotonic() - self.at >= REST * self.cost


@dataclass(frozen=True)
class _Asked:
    """A page that is asked for: what tells its state, and how it is made."""

    key: str
    stamp: str
    make: Callable[[], Page]


class ServedPages:
    """Answers for a `PageServer`: the overview, the page of each run, and what is new in either."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._lock, self._one = threading.Lock(), threading.Lock()
        self._found, self._looked = served_runs(place), time.monotonic()
        self._made: dict[str, _Made] = {}
        self._making: dict[str, Future[_Made]] = {}
        self._overviews: dict[ServedRun, tuple[object, RunOverview]] = {}
        self._follow = resource("follow.js", __package__)

    @property
    def found(self) -> FoundRuns:
        """The runs there are; new ones are looked for every few seconds."""
        if self._place.is_dir() and time.monotonic() - self._looked > LOOK_EVERY:
            self._found, self._looked = served_runs(self._place), time.monotonic()
        return self._found

    def answer(self, path: str, query: dict[str, str]) -> PageAnswer | None:
        """What is at a path below the token."""
        page, _, last = path.rpartition("/")
        with self._lock:
            asked = self._asked(page) if last in ("", "now") else None
            if asked is None:
                return None
            made, making = self._made.get(asked.key), self._begun(asked)
        if last == "now":
            return _news(making.result() if making else made, query)
        if making:
            with suppress(TimeoutError):
                made = making.result(PATIENCE)
        page_now, stamp = (made.page, made.stamp) if made else (self._waiting(asked.key), "")
        follow = f"const servedStamp = {embedded(stamp)};\n{self._follow}"
        return PageAnswer(render(page_now, follow).encode("utf-8", "replace"))

    def _asked(self, page: str) -> _Asked | None:
        if not page:
            return _Asked("", self._overview_stamp(), self._overview)
        kind, _, name = page.partition("/")
        run = self.found.runs.get(name) if kind == "run" else None
        return None if run is None else _Asked(run.name, str(run.stamp), lambda: _page(run))

    def _begun(self, asked: _Asked) -> Future[_Made] | None:
        """The page as it will be, if it is being made; None if what was made last will do."""
        made, making = self._made.get(asked.key), self._making.get(asked.key)
        if making is None and (made is None or (made.stamp != asked.stamp and made.rested)):
            making = self._making[asked.key] = Future()
            threading.Thread(target=self._make, args=(asked, making), daemon=True).start()
        return making

    def _make(self, asked: _Asked, making: Future[_Made]) -> None:
        with self._one:  # one page is made at a time: making one uses all of a core
            began = time.monotonic()
            try:
                made = _Made(asked.stamp, asked.make(), time.monotonic() - began)
            except BaseException as error:  # whoever waits for the page is told
                with self._lock:
                    del self._making[asked.key]
                making.set_exception(error)
                return
        with self._lock:
            self._made[asked.key] = made
            del self._making[asked.key]
        making.set_result(made)

    def _waiting(self, key: str) -> Page:
        """What a browser shows until the page is made."""
        what = key or str(self._place)
        stage = Stage("", ["The page appears here as soon as everything is read."], [], [])
        home = HOME if key else ""
        return Page(f"Reading {printable(what)} …", printable(what), "", [stage], [], home=home, pending=True)

    def _overview_stamp(self) -> str:
        found = self.found
        return json.dumps([found.note, *((name, run.stamp) for name, run in found.runs.items())])

    def _overview(self) -> Page:
        known = {run: self._known(run) for run in self._found.runs.values()}
        notes = [self._found.note] if self._found.note else []
        return overview_page(str(self._place), list(known.values()), notes)

    def _known(self, run: ServedRun) -> RunOverview:
        """The overview of a run, read again only if the file has changed."""
        stamp, (old, made) = run.stamp, self._overviews.get(run, (None, None))
        if made is None or stamp != old:
            made = overview(run)
            self._overviews[run] = stamp, made
        return made


def _news(made: _Made | None, query: dict[str, str]) -> PageAnswer:
    """What a browser that shows the page with the stamp of its query does not know yet."""
    if made is None or query.get("stamp") == made.stamp:
        return NOTHING_NEW
    fresh = {"stamp": made.stamp, "html": render_content(made.page), **drawn(made.page)}
    return PageAnswer(embedded(fresh).encode("utf-8", "replace"), "application/json; charset=utf-8")


def _page(run: ServedRun) -> Page:
    """The report of a run or a sweep; of one that cannot be read yet, a page that says why."""
    try:
        if run.is_sweep:
            return replace(sweep_page(run.path, {}), home=HOME)
        with Run(run.path) as opened:
            return replace(run_page(opened), home=HOME)
    except NormscopeError as error:
        nothing = Stage("", [printable(str(error))], [], [])
        return Page("Nothing to show yet", printable(run.name), "", [nothing], [], home=HOME)


def open_server(place: Path, port: int, any_port: bool) -> tuple[PageServer, str]:
    """A server for the runs at `place`, and what it found there; `any_port` if the port is only a wish."""
    pages = ServedPages(place)
    runs = pages.found.runs
    said = f"{counted(runs.values())} of {place}" if runs else f"no runs in {place} yet; new ones will appear"
    try:
        server = PageServer(pages.answer, port)
    except UsageError:
        if not any_port:
            raise
        server = PageServer(pages.answer)
    # What the first page needs is made while the reader opens the address.
    for work in (packed_plotly, lambda: pages.answer("now", {})):
        threading.Thread(target=work, daemon=True).start()
    return server, said
