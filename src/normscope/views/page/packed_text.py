"""Text packed into a page: compressed by gzip, then written as printable ASCII that HTML leaves as it is.

The page unpacks it with the browser's own DecompressionStream (unpack.js). Two of 91 characters hold 13
bits, so the text is 23 % larger than its compressed bytes; base64 would add 33 %.
"""

from __future__ import annotations

import gzip
from functools import cache

import numpy as np

# 91 printable characters; without "<", which could end the script element, the quote and the backslash.
ALPHABET = "".join(chr(code) for code in range(33, 127) if chr(code) not in '<"\\')
BITS = 13  # 91² = 8281 is just above 2¹³


def packed(text: str) -> str:
    """The text as "length:characters", where length is the number of compressed bytes."""
    data = gzip.compress(text.encode(), 9, mtime=0)
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    groups = np.pad(bits, (0, -len(bits) % BITS)).reshape(-1, BITS)
    values = groups @ (1 << np.arange(BITS - 1, -1, -1))
    letters = np.frombuffer(ALPHABET.encode(), dtype=np.uint8)
    return f"{len(data)}:{letters[np.stack(np.divmod(values, len(ALPHABET)), axis=1)].tobytes().decode()}"


@cache
def packed_plotly() -> tuple[str, str]:
    """plotly.js as text, and packed: the text is needed for its hash."""
    from plotly.offline import get_plotlyjs

    text = str(get_plotlyjs())
    return text, packed(text)
