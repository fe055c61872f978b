"""The works that come with the package: they open offline, at once."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from normscope.literature.sources.found_works import Found
from normscope.literature.work_making import make_work
from normscope.literature.works import Work

SOURCE = "bundled"
BUNDLED = {"arxiv:2010.09697": "2010.09697.json"}
"""Id → file with the work, its references and the works that cite it."""


def bundled_work(work_id: str) -> Found | None:
    """A bundled work and the works around it; None if it is not bundled."""
    if work_id not in BUNDLED:
        return None
    text = files("normscope.literature").joinpath("data", BUNDLED[work_id]).read_text("utf-8")
    document = json.loads(text)
    centre = _work(document)
    references = [_work(each) for each in document["references"]]
    citations = [_work(each) for each in document["citations"]]
    edges = [(centre.id, work.id) for work in references] + [(work.id, centre.id) for work in citations]
    return Found([centre], references, citations, edges=edges)


def _work(document: dict[str, Any]) -> Work:
    known = {name: value for name, value in document.items() if name not in ("id", "title", "license")}
    work = make_work(
        SOURCE, document["title"], [document.get("id")], licence=document.get("license"), **known
    )
    assert work is not None, "bundled works have titles"
    return work
