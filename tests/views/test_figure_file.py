"""Figures as files: what is written, and the error if it cannot be."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace

import pytest

import normscope as ns
from normscope.errors import MissingExtra, UsageError
from normscope.views.plotting.plot import plot

from .browser_visit import Visit


@pytest.fixture(scope="module")
def fit():
    return ns.fit_growth("t5-base")


@pytest.fixture
def drawing():
    """What draws pictures."""
    pytest.importorskip("kaleido", reason="figures as images need the package kaleido")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))):
        pytest.skip("no Chrome or Chromium on this machine")


@pytest.mark.browser
def test_html_needs_no_network_and_no_extra(fit, tmp_path, monkeypatch, browser):
    monkeypatch.setitem(sys.modules, "kaleido", None)
    path = tmp_path / "figure.html"
    figure = plot(fit, path)
    with Visit(browser, path, viewport={"width": 1000, "height": 800}) as visit:
        drawn = visit.page.evaluate(
            "(({data, layout}) => [data.map((t) => t.name), layout.title.text])"
            "(document.querySelector('.js-plotly-plot'))"
        )
        assert drawn == [[trace.name for trace in figure.data], figure.layout.title.text]
        assert visit.page.locator(".trace path").count() > 1
        assert visit.page.title().startswith("The norm goes from")
        assert (visit.requests, visit.complaints) == ([], [])


def test_an_html_figure_is_small_and_holds_no_text_of_the_run_as_markup(fit, tmp_path):
    hostile = replace(fit, series="</script><img src=x onerror=alert(1)>")
    path = tmp_path / "figure.html"
    plot(hostile, path)
    assert path.stat().st_size < 2e6
    text = path.read_text("utf-8")
    assert text.count("</script>") == 3 and "<img" not in text


@pytest.mark.browser
@pytest.mark.parametrize(
    ("ending", "start"),
    [
        ("svg", b"<svg"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("pdf", b"%PDF"), ("png", b"\x89PNG"))),
    ],
)
def test_images_are_written(fit, tmp_path, drawing, ending, start):
    path = tmp_path / f"figure.{ending}"
    plot(fit, str(path))
    assert path.read_bytes().startswith(start) and path.stat().st_size > 4000
    assert list(tmp_path.iterdir()) == [path]
    if ending == "svg":
        text = path.read_text("utf-8")
        assert "norm ‖θ‖" in text and "t5-base · 104 points" in text
        assert "a·exp" not in text  # a law that only a click in the legend would show


@pytest.mark.parametrize("name", ["figure.jpg", "figure", "figure.csv"])
def test_another_ending_is_refused_before_anything_is_drawn(tmp_path, name):
    with pytest.raises(UsageError, match=r"must end in \.html, \.svg, \.pdf, \.png"):
        plot("no such file", tmp_path / name)


def test_without_kaleido_the_extra_is_named(fit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(MissingExtra, match=r"writing a \.pdf file .*normscope\[figures\]"):
        plot(fit, tmp_path / "figure.pdf")


@pytest.mark.browser
def test_without_a_browser_the_way_out_is_named(fit, tmp_path, monkeypatch):
    pytest.importorskip("kaleido", reason="figures as images need the package kaleido")
    for name, value in (("PATH", ""), ("BROWSER_PATH", tmp_path / "no-chrome"), ("HOME", tmp_path)):
        monkeypatch.setenv(name, str(value))
    with pytest.raises(UsageError, match=r"\.svg .*none was found.*BROWSER_PATH.*\.html") as caught:
        plot(fit, tmp_path / "x.svg")
    assert "needs Chrome or Chromium" in str(caught.value)
    assert not (tmp_path / "x.svg").exists()


def test_a_folder_that_does_not_exist_is_a_sentence(fit, tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        plot(fit, tmp_path / "missing" / "figure.html")
