"""How soon `normscope serve` shows a folder of runs, in a Chromium that has started.

python -m benchmarks serve

Ten runs of 1,000 records × 50 tensors each. The server is a process of its own, started anew in each round,
so that nothing has been read before. The times are milliseconds after the navigation began, the best of each.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.load_files import live_run
from benchmarks.report import ROUNDS, chromium, opened
from tests.views.browser_visit import FLAGS

RUNS, RECORDS, TENSORS = 10, 1000, 50


def served(folder, browser):
    """The marks of the overview and of a run's page, and how long a second look at it took."""
    command = [sys.executable, "-m", "normscope", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            address = next(word for line in server.stdout for word in line.split() if "http://" in word)
            return [
                opened(browser, place)
                for place in (address, f"{address}run/run-0.db/", f"{address}run/run-0.db/")
            ]
        finally:
            server.terminate()


def main():
    found = chromium()
    if found is None:
        return print("no Chromium here: nothing was measured")
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        for number in range(RUNS):
            live_run(folder / f"run-{number}.db", RECORDS, TENSORS)
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        pages = ("overview", "page of a run", "the same again")
        best = {page: {"ready": np.inf, "drawn": np.inf} for page in pages}
        began = time.perf_counter()
        for _ in range(ROUNDS):
            for page, marks in zip(pages, served(folder, browser), strict=True):
                best[page] = {mark: min(best[page][mark], marks[mark]) for mark in best[page]}
        browser.close()
        print(f"{RUNS} runs of {RECORDS:,} records × {TENSORS} tensors ({time.perf_counter() - began:.0f} s)")
        print(f"{'':20}{'ready, ms':>11}{'drawn, ms':>11}")
        for page, marks in best.items():
            print(f"{page:20}{marks['ready']:11.0f}{marks['drawn']:11.0f}")
    return None
