"""The works in the formats of reference managers, packed so that the page can save any selection of them."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Sequence

from normscope.literature.libraries.library_files import WRITERS
from normscope.literature.works import Work


def packed_downloads(works: Sequence[Work]) -> str:
    """One entry per work and format, as JSON, compressed, in base64.

    `works` has, for each work, its entries as BibTeX, RIS, CSV and CSL-JSON; `header` is the first line of
    the CSV. The entries of a work are neighbours, so that what they share is stored once.
    """
    entries = [list(parts) for parts in zip(*_entries(works), strict=True)]
    text = json.dumps({"header": WRITERS[".csv"](()), "works": entries}, ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"))).decode()


def _entries(works: Sequence[Work]) -> tuple[list[str], list[str], list[str], list[str]]:
    header = WRITERS[".csv"](())
    items = json.loads(WRITERS[".json"](works))
    return (
        re.split(r"\n(?=@)", WRITERS[".bib"](works))
        if works
        else [],  # written together: their keys must differ
        [WRITERS[".ris"]((work,)) for work in works],
        [WRITERS[".csv"]((work,)).removeprefix(header) for work in works],
        [json.dumps(item, ensure_ascii=False) for item in items],
    )
