"""A run file to report on, its report, and a browser."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from normscope.views.reports.report import report

from .browser_visit import FLAGS
from .runs import write_walk


@pytest.fixture(scope="session")
def run_path(tmp_path_factory):
    return write_walk(
        tmp_path_factory.mktemp("run") / "run.db", [0, *(int(s) for s in np.geomspace(10, 20000, 24))]
    )


@pytest.fixture(scope="session")
def written(run_path, tmp_path_factory):
    """The report of `run_path`."""
    return report(run_path, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: install Debian's package chromium to run the browser tests")
    sync = pytest.importorskip("playwright.sync_api", reason="the browser tests need the package playwright")
    with sync.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()
