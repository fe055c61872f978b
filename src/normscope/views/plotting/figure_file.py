"""Write a plotly figure to a file: .html, or .svg, .pdf and .png with the extra `figures`."""

from __future__ import annotations

import json
import os
import re
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from normscope._version import __version__
from normscope.atomic_write import atomic_write
from normscope.errors import RunFileError, UsageError
from normscope.plugins import require
from normscope.views.page.offline_file import embedded, policy, resource
from normscope.views.page.packed_text import packed, packed_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

IMAGES = (".svg", ".pdf", ".png")
ENDINGS = (".html", *IMAGES)
PNG_SCALE = 2  # pixels per layout pixel
NO_BROWSER = "ChromeNotFoundError"
BROWSER_PROBLEMS = (NO_BROWSER, "BrowserFailedError", "BrowserClosedError", "BrowserDepsError")


def is_image(target: Path) -> bool:
    """Whether the file is a picture, in which nobody can click."""
    return target.suffix.lower() in IMAGES


def check_ending(path: str | os.PathLike[str]) -> Path:
    """The path as a Path; UsageError if no figure can be written to a file of that name."""
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"cannot write a figure to {target.name!r}: the name must end in {', '.join(ENDINGS)}"
        )
    return target


def write_figure(figure: Figure, target: Path) -> None:
    """Write the figure in the format that the ending of the name says."""
    kind = target.suffix.lower()
    data = _image(figure, kind) if is_image(target) else _html(figure)
    try:
        with atomic_write(target) as part:
            part.write_bytes(data)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}; choose another path") from error
    except OSError as error:
        raise RunFileError(
            f"cannot write {target}: {error.strerror or error}; choose another path"
        ) from error


def _html(figure: Figure) -> bytes:
    """One file that loads nothing: plotly.js is in it, packed as in a report."""
    plotly, plotly_packed = packed_plotly()
    script = resource("unpack.js") + resource("draw_figure.js", "normscope.views.plotting")
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        resource("figure.html", "normscope.views.plotting")
    )
    html = template.render(
        title=_plain(figure.layout.title.text or "normscope"),
        version=__version__,
        policy=policy([plotly, script]),
        figure=Markup(packed(embedded(json.loads(str(figure.to_json()))))),
        plotly=Markup(plotly_packed),
        script=Markup(script),
    )
    return html.encode("utf-8", "replace")


def _plain(text: str) -> str:
    """A title without plotly's markup."""
    return unescape(re.sub("<[^>]*>", " ", text))


def _image(figure: Figure, kind: str) -> bytes:
    kaleido = require("kaleido", "figures", f"writing a {kind} file")
    if not hasattr(kaleido, "calc_fig_sync"):
        raise UsageError(
            "the installed kaleido is older than 1.0: pip install --upgrade 'normscope[figures]'"
        )
    options = {
        "format": kind[1:],
        "width": figure.layout.width,
        "height": figure.layout.height,
        "scale": PNG_SCALE if kind == ".png" else 1,
    }
    try:
        # without mathjax=False the browser would load MathJax from the network
        data: bytes = kaleido.calc_fig_sync(figure.to_dict(), opts=options, kopts={"mathjax": False})
    except RuntimeError as error:
        if type(error).__name__ not in BROWSER_PROBLEMS:
            raise
        raise UsageError(_browser_problem(error, kind)) from error
    return data


def _browser_problem(error: Exception, kind: str) -> str:
    instead = "an .html file needs no browser"
    if type(error).__name__ == NO_BROWSER:
        return (
            f"writing a {kind} file needs Chrome or Chromium, and none was found: install one, run "
            f"kaleido_get_chrome, or set the environment variable BROWSER_PATH to its executable; {instead}"
        )
    return f"writing a {kind} file failed, because Chrome or Chromium did not start: {error}; {instead}"
