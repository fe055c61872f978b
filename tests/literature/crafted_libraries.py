"""Crafted libraries of papers, as code that writes them; `normscope paper` reads each, and makes a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.crafted import Case

CASES: dict[str, Case] = {}
SOUND = "@article{a, title={Growth of norms}, author={Ada Lovelace}, year=2021}\n"


def add(
    name: str, content: Callable[[], str | bytes], says: str = "", code: int = 1, slow: bool = False
) -> None:
    """Add a case; the first word of its name is the ending of the file."""
    assert name not in CASES, name

    def write(path: Path) -> None:
        made = content()
        path.write_bytes(made if isinstance(made, bytes) else made.encode("utf-8", "surrogatepass"))

    CASES[name] = Case(write, says, code, suffix=f".{name.partition(':')[0]}", slow=slow)


def doubled(levels: int, times: int = 2) -> str:
    """Strings of strings, each of them `times` as long as the one before."""
    lines = ['@string{s0 = "lol"}']
    lines += [f"@string{{s{i} = {' # '.join([f's{i - 1}'] * times)}}}" for i in range(1, levels)]
    return "\n".join(lines) + f"\n@article{{k, title = s{levels - 1}, year = 2020}}\n"


add("bib: sound", lambda: SOUND, "", 0)
add("bib: strings that double 60 times", lambda: doubled(60) + SOUND, "", 0)
add("bib: strings that grow tenfold 8 times", lambda: doubled(8, 10) + SOUND, "", 0)
add(
    "bib: a string of 1 MB, 1,000 times in one value",
    lambda: f'@string{{s = "{"x" * 1_000_000}"}}\n@article{{k, title = {"s # " * 1000}s}}\n' + SOUND,
    "",
    0,
)
add(
    "bib: a string of 1 MB in 2,000 entries",
    lambda: (
        f'@string{{s = "{"x" * 1_000_000}"}}\n'
        + "".join(f"@article{{k{i}, title = s # {i}}}\n" for i in range(2000))
    ),
    "",
    0,
    slow=True,
)
add("bib: 50,000 fields that are never closed", lambda: SOUND + "@a{k,t={" * 50_000, "", 0)
add(
    "bib: 50,000 quotation marks that are never closed",
    lambda: SOUND + '@a{k,t="{' * 50_000,
    "",
    0,
    slow=True,
)
add("bib: 50,000 comments that are never closed", lambda: SOUND + "@comment{" * 50_000, "", 0, slow=True)
add("bib: 100,000 entries without fields", lambda: SOUND + "@a{\n" * 100_000, "", 0)
add("bib: a million blanks after a key", lambda: SOUND + "@a{" + " " * 300_000, "", 0)
add("bib: a million blanks before a key", lambda: SOUND + "@a{" + " " * 150_000 + "k" + " " * 150_000, "", 0)
add("bib: a key of a megabyte", lambda: SOUND + "@a{" + "k" * 1_000_000, "", 0)
add("bib: a name of a megabyte", lambda: SOUND + "@a{k," + "n" * 1_000_000, "", 0)
add("bib: 300,000 signs of an entry", lambda: SOUND + "@ " * 300_000, "", 0)
add("bib: a kind of a megabyte", lambda: SOUND + "@" + "a" * 1_000_000, "", 0)
add(
    "bib: 200,000 braces in a title",
    lambda: "@article{a, title={" + "{" * 200_000 + "x" + "}" * 200_000 + "}, year=2021}",
    "",
    0,
)
add("bib: formulas without an end", lambda: "@article{a, title={" + "$x " * 100_000 + "}, year=2021}", "", 0)
add(
    "bib: 20,000 authors",
    lambda: "@article{a, title={T}, author={" + " and ".join(f"A{i} B" for i in range(20_000)) + "}}",
    "",
    0,
)
add(
    "bib: authors without an end",
    lambda: "@article{a, title={T}, author={" + "and " * 200_000 + "}}",
    "",
    0,
    slow=True,
)
add("bib: commas in a name", lambda: "@article{a, title={T}, author={" + ", " * 100_000 + "}}", "", 0)
add(
    "bib: a volume that is its own",
    lambda: "@book{a, title={T}, crossref={a}}\n@book{b, title={U}, crossref={b}}",
    "",
    0,
)
add("bib: a year of 5,000 digits", lambda: f"@article{{a, title={{T}}, year={'9' * 5000}}}", "", 0)
add("bib: escapes in a title", lambda: "@article{a, title={\x1b[31mred\x07 \u202egnp.exe}, year=2021}", "", 0)
add(
    "bib: a page in a title",
    lambda: "@article{a, title={</script><script>alert(1)</script>}, url={javascript:alert(1)}}",
    "",
    0,
)
add("bib: half of a surrogate pair", lambda: "@article{a, title={x\ud800y}, year=2021}", "", 0)
add(
    "bib: 5,000 works of one title",
    lambda: "".join(f"@article{{k{i}, title={{Growth}}, year={1500 + i % 500}}}\n" for i in range(5000)),
    "",
    0,
    slow=True,
)
add(
    "bib: 5,000 works",
    lambda: "".join(f"@article{{k{i}, title={{Growth {i}}}, doi={{10.1000/{i}}}}}\n" for i in range(5_000)),
    "",
    0,
    slow=True,
)
add("bib: zeros", lambda: bytes(1_000_000), "no works")
add("bib: every byte", lambda: bytes(range(256)) * 2000, "no works")

RECORD = "TY  - JOUR\nTI  - Growth of norms\nPY  - 2021\n"
add("ris: sound", lambda: RECORD + "ER  - \n", "", 0)
add(
    "ris: 300,000 lines that go on",
    lambda: RECORD + "AB  - x\n" + "more words\n" * 300_000 + "ER  - \n",
    "",
    0,
)
add("ris: 300,000 records without an end", lambda: RECORD * 10_000, "", 0, slow=True)
add("ris: a line of 20 MB", lambda: RECORD + "AB  - " + "x" * 20_000_000, "", 0)
add("ris: 200,000 tags", lambda: RECORD + "KW  - word\n" * 200_000 + "ER  - \n", "", 0)
add("ris: a year of 5,000 digits", lambda: "TY  - JOUR\nTI  - T\nPY  - " + "9" * 5000 + "\nER  - \n", "", 0)
add("ris: separators of lines that are none", lambda: "TY  - JOUR\u2028TI  - T\x85ER  - \x1c", "", 0)
add("ris: lines before the first record", lambda: "AB  - x\nmore\n" * 1000, "no works")

ITEM = {"title": "Growth of norms", "issued": {"date-parts": [[2021]]}}
add("json: sound", lambda: json.dumps([ITEM]), "", 0)
add("json: 100,000 levels", lambda: "[" * 100_000, "not JSON")
add(
    "json: 100,000 levels in a date",
    lambda: '[{"title":"T","issued":{"date-parts":' + "[" * 900 + "]" * 900 + "}}]",
    "",
    0,
)
add("json: 20 million empty objects", lambda: "[" + "{}," * 20_000_000 + "{}]", "too large", slow=True)
add(
    "json: 40 MB with one wide character",
    lambda: '[{"title":"😀' + "x" * 40_000_000 + '"}]',
    "too large",
    slow=True,
)
add(
    "json: an integer of 5,000 digits",
    lambda: f'[{{"title":"T","issued":{{"date-parts":[[{"9" * 5000}]]}}}}]',
    "not JSON",
)
add(
    "json: a year of 4,000 digits",
    lambda: f'[{{"title":"T","issued":{{"date-parts":[[{"9" * 4000}]]}}}}]',
    "",
    0,
)
add(
    "json: digits that are not ASCII",
    lambda: json.dumps([{**ITEM, "issued": {"date-parts": [["²²²²", "٣"]]}}]),
    "",
    0,
)
add(
    "json: wrong types everywhere",
    lambda: json.dumps(
        [
            {
                **ITEM,
                "author": 5,
                "issued": [1],
                "DOI": {},
                "URL": [],
                "keyword": {"a": 1},
                "note": 3,
                "number": {},
                "abstract": [],
            }
        ]
    ),
    "",
    0,
)
add(
    "json: authors of every type",
    lambda: json.dumps([{**ITEM, "author": [None, 1, [], "x", {"family": {"a": [1]}}, {"literal": 5}]}]),
    "",
    0,
)
add("json: a title that is a list", lambda: json.dumps([{"title": ["a"]}]), "no works")
add(
    "json: half of a surrogate pair",
    lambda: '[{"title":"x\\ud800y","author":[{"family":"\\udfff"}],"DOI":"10.1/\\ud800"}]',
    "",
    0,
)
add("json: items that are a number", lambda: '{"items": 5}', "expected a list")
add("json: NaN for a title", lambda: '[{"title": NaN}]', "no works")
add("json: a name of 30 MB", lambda: '[{"title":"T","' + "n" * 30_000_000 + '":1}]', "", 0)
