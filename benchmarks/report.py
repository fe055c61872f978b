"""A report's size, and how soon it can be used, against a page that inlines plotly.js and draws nothing.

python -m benchmarks report

All pages are opened in turn in one Chromium, each in a new context; the best time of each counts, in
milliseconds after the navigation began. "Ready" is when what is on the first screen is drawn and answers,
"drawn" when every figure is.
"""

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from normscope.run import Run, TensorRow, WeightRow
from normscope.views.reports.report import report
from tests.views.browser_visit import FLAGS
from tests.views.networks import write_network
from tests.views.runs import write_walk

ROUNDS = 5
EMPTY = """<!doctype html><meta charset="utf-8"><body><div id="plot" style="height: 400px"></div>
<script>{plotly}</script>
<script>Plotly.newPlot("plot", [], {{}}).then(() => {{
  performance.mark("ready"); performance.mark("drawn"); document.body.dataset.drawn = "yes";
}});
</script></body>"""
MARKS = "performance.getEntriesByType('mark').map((mark) => [mark.name, mark.startTime])"


def empty_page(path):
    from plotly.offline import get_plotlyjs

    path.write_text(EMPTY.format(plotly=get_plotlyjs()), "utf-8")
    return path


def large_run(path, layers=200, checkpoints=1000):
    """One tensor per layer; every layer walks at random."""
    norms = 5 + np.cumsum(np.random.default_rng(0).random((checkpoints, layers)), axis=0)
    with Run.create(path) as run, run.transaction():
        for layer in range(layers):
            run.add_tensors(
                [TensorRow(layer, f"layers.{layer}.w", "model", layer, "q", (2, 2), "float32", 4)]
            )
        run.write(
            WeightRow(100 * step, 100 * (step - 1) if step else -1, layer, norms[step, layer], 0.0, 0.5)
            for step in range(checkpoints)
            for layer in range(layers)
        )
    return path


def pages(folder):
    """The pages by name, with the seconds that writing each took."""
    sources = {
        "t5-base": "t5-base",
        "12 layers, 25 checkpoints": write_walk(folder / "walk.db", range(0, 2500, 100)),
        "saturation and 48 heads": write_network(folder / "network.db"),
        "200 layers, 1,000 checkpoints": large_run(folder / "large.db"),
    }
    found = {"empty plotly page": (empty_page(folder / "empty.html"), 0.0)}
    for i, (name, source) in enumerate(sources.items()):
        began = time.perf_counter()
        page = report(source, folder / f"{i}.html")
        found[name] = page, time.perf_counter() - began
    return found


def chromium():
    """The Chromium of this machine, None if there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def opened(browser, address):
    """The times at which a page was ready and drawn."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    visit = context.new_page()
    visit.goto(address)
    visit.wait_for_selector("body[data-drawn=yes]", timeout=120_000)
    marks = dict(visit.evaluate(MARKS))
    context.close()
    return marks


def main():
    executable = chromium()
    if executable is None:
        return print("no Chromium here: nothing was measured")
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        found = pages(Path(name))
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        best = {page: {"ready": np.inf, "drawn": np.inf} for page in found}
        for _ in range(ROUNDS):
            for page, (path, _) in found.items():
                for mark, at in opened(browser, path.as_uri()).items():
                    best[page][mark] = min(best[page][mark], at)
        browser.close()
        whole = best["empty plotly page"]["ready"]
        print(f"{'':32}{'MB':>6}{'ready, ms':>11}{'ratio':>7}{'drawn, ms':>11}{'written, s':>12}")
        for page, (path, seconds) in found.items():
            ready, drawn = best[page]["ready"], best[page]["drawn"]
            size = path.stat().st_size / 1e6
            print(f"{page:32}{size:6.2f}{ready:11.0f}{ready / whole:7.2f}{drawn:11.0f}{seconds:12.1f}")
    return None
