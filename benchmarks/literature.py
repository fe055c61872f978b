"""A paper's page: from a cold start, with 5,000 works, and how fast a drag is answered in Chromium.

python -m benchmarks literature
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from normscope.views.literature.network_graph import network_graph
from normscope.views.literature.network_layout import network_layout
from normscope.views.literature.paper_page import write_paper_page
from tests.views.browser_visit import FLAGS
from tests.views.papers import many_works

# One step: the pointer moves, and the frame in which the work is drawn at its new place is over.
DRAG = """async (i) => {
  const box = document.getElementById('picture'), frame = box.getBoundingClientRect(), times = [];
  const next = () => new Promise((done) => requestAnimationFrame(done));
  const send = (kind, x, y) => box.dispatchEvent(new PointerEvent(kind, { clientX: x, clientY: y, pointerId: 1, button: 0, pointerType: 'mouse' }));
  box.setPointerCapture = () => {};
  let [x, y] = box.view.where(i); x += frame.left; y += frame.top;
  send('pointerdown', x, y);
  await new Promise((done) => setTimeout(done, 50)); // a hand does not press and move within one frame
  for (let step = 0; step < 60; step++) {
    const began = performance.now(), drawn = box.dataset.drawn;
    x += 5; y += step % 2 ? 2 : -1; // far enough to be a drag from the first step on
    send('pointermove', x, y);
    for (let waited = 0; waited < 5 && box.dataset.drawn === drawn; waited++) await next();
    times.push(performance.now() - began);
  }
  send('pointerup', x, y);
  return times }"""  # noqa: E501


def cold_start(folder):
    """The whole command in a new process, several times."""
    call = ["normscope", "paper", "2010.09697", "--offline", "-o", str(folder / "p.html")]
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", *call], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    size = (folder / "p.html").stat().st_size
    print(f"normscope paper 2010.09697 -o, cold:  {min(times):.2f} s at best of 5, {size / 1e3:.0f} kB")


def many(folder, count):
    paper = many_works(count)
    began = time.perf_counter()
    graph = network_graph(paper)
    network_layout(graph)
    laid_out = time.perf_counter()
    page = write_paper_page(paper, folder / f"{count}.html")
    done = time.perf_counter()
    size = page.stat().st_size / 1e6
    print(
        f"{count} works, {len(graph.edges)} citations:  layout {laid_out - began:.2f} s, "
        f"page with layout {done - laid_out:.2f} s, {size:.1f} MB"
    )
    return page


def drags(page):
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        return print("no Chromium here: a drag was not measured")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        visit = browser.new_page(viewport={"width": 1280, "height": 900})
        visit.goto(page.as_uri())
        visit.wait_for_selector("body[data-drawn=yes]")
        visit.evaluate("document.getElementById('picture').scrollIntoView({ block: 'center' })")
        visit.wait_for_timeout(2000)  # until the table is laid out
        for name, work in (("the paper itself", 0), ("a citing work", 100), ("a further work", 900)):
            times = visit.evaluate(DRAG, work)
            shown = (
                f"first {times[0]:.0f}, median {statistics.median(times):.0f}, slowest {max(times):.0f} ms"
            )
            print(f"  drag of {name}, each step until drawn:  {shown} (a frame is 17 ms)")
        browser.close()
    return None


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cold_start(folder)
        for count in (1000, 5000):
            drags(many(folder, count))
