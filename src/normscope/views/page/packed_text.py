"""Text packed into a page: compressed by gzip, then written as printable ASCII that HTML leaves as it is.

The page unpacks it with the browser's own DecompressionStream (unpack.js). Two of 91 characters hold 13
bits, so the text is 23 % larger than its compressed bytes; base64 would add 33 %.
"""

from __future__ import annotations

import gzip
from functools import cache

import numpy as np
from numpy.typing import NDArray

# 91 printable characters; without "<", which could end the script element, the quote and the backslash.
ALPHABET = "".join(chr(code) for code in range(33, 127) if chr(code) not in '<"\\')
BITS = 13  # 91² = 8281 is just above 2¹³


def packed(text: str) -> str:
    """The text as "length:characters", where length is the number of compressed bytes."""
    data = gzip.compress(text.encode(), 9, mtime=0)
    values = _numbers(data)
    letters = np.frombuffer(ALPHABET.encode(), dtype=np.uint8)
    return f"{len(data)}:{letters[np.stack(np.divmod(values, len(ALPHABET)), axis=1)].tobytes().decode()}"


def _numbers(data: bytes) -> NDArray[np.int64]:
    """The bytes as numbers of 13 bits, the last one filled up with zeros."""
    count = -(-len(data) * 8 // BITS)
    padded = np.frombuffer(data + bytes(-len(data) % BITS + 2), dtype=np.uint8)
    rows = -(-len(data) // BITS)  # 13 bytes are eight numbers
    found = np.empty((rows, 8), dtype=np.int64)
    for place in range(8):
        byte, bit = divmod(place * BITS, 8)
        high, middle, low = (padded[byte + more :: BITS][:rows].astype(np.int64) for more in range(3))
        found[:, place] = ((high << 16 | middle << 8 | low) >> (24 - BITS - bit)) & ((1 << BITS) - 1)
    return found.reshape(-1)[:count]


@cache
def packed_plotly() -> tuple[str, str]:
    """plotly.js as text, and packed: the text is needed for its hash."""
    from plotly.offline import get_plotlyjs

    text = str(get_plotlyjs())
    return text, packed(text)
