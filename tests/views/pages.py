"""What a report file contains."""

from __future__ import annotations

import json
import re


def figures(path):
    """The figures of a report, by the keys of their elements."""
    text = path.read_text("utf-8")
    return json.loads(
        re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.S)[1]
    )
