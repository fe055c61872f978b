"""What a report file contains."""

from __future__ import annotations

import gzip
import json
import re

from normscope.views.page.packed_text import ALPHABET


def unpacked(text):
    """What packed_text packed: two characters are 13 bits, and the bytes are gzip."""
    length, _, letters = text.partition(":")
    pairs = zip(letters[::2], letters[1::2], strict=True)
    bits = "".join(f"{ALPHABET.index(a) * 91 + ALPHABET.index(b):013b}" for a, b in pairs)
    whole = int(bits[: 8 * int(length)], 2).to_bytes(int(length), "big")
    return gzip.decompress(whole).decode()


def figures(path):
    """The figures of a report, by the keys of their elements."""
    return embedded(path)["figures"]


def embedded(path):
    """The figures of a report, and the labels of its checkpoints."""
    text = path.read_text("utf-8")
    return json.loads(unpacked(re.search(r'<script type="text/plain" id="figures">(.*?)</script>', text)[1]))
