"""Text and addresses from anywhere: readable, harmless, nothing invented."""

from __future__ import annotations

import pytest

from normscope.views.literature.readable_text import clean, readable, shortened
from normscope.views.literature.safe_links import licence_name, safe_address


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (r"the $\ell_2$ norm", "the ℓ₂ norm"),
        (r"grows as $\sqrt{t}$, or $\sqrt{t+1}$", "grows as √t, or √(t+1)"),
        (r"$\mathbb{R}^n$ and $\theta_t$, \(10^{-3}\)", "Rⁿ and θₜ, 10⁻³"),
        (r"G{\"o}del and \emph{others}", "Gödel and others"),
        ("it costs $5 and then $6", "it costs $5 and then $6"),
        (r"$\frac{a}{b}$ stays", r"$\frac{a}{b}$ stays"),
        (r"$x_{i,j}$ stays", r"$x_{i,j}$ stays"),
        (r"$\unknowncommand$ stays", r"$\unknowncommand$ stays"),
        ("no formula", "no formula"),
        ("", ""),
    ],
)
def test_formulas_are_shown_in_unicode_or_as_they_were_written(source, shown):
    assert readable(source) == shown


@pytest.mark.parametrize(
    "mark", ["\u202e", "\u2066", "\u200f", "\u200b", "\ufeff", "\x00", "\x1b", "\x9b", "\u00ad"]
)
def test_marks_that_hide_or_reverse_letters_are_dropped(mark):
    assert clean(f"a{mark}b") == "ab"


def test_lines_become_spaces_and_surrogates_are_replaced():
    assert clean("a\nb\tc\u0085d\u2028e") == "a b c de"
    assert clean("a\ud800b") == "a\ufffdb"


def test_joiners_and_right_to_left_letters_are_kept():
    for text in ("עברית", "می\u200cخواهم", "👩\u200d🔬", "Kučera"):
        assert clean(text) == text


def test_shortened_text_says_that_it_is():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd efgh", 6) == "abcd…" and len(shortened("x" * 99, 20)) == 20


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\nscript:alert(1)", " javascript:alert(1)",
        "data:text/html,x",
        "vbscript:x", "file:///etc/passwd", "//evil.example", "/relative", "https://", "https://user@evil.example/",
        "https://arxiv.org\\@evil.example", 'https://a.org/"onclick="x', "https://a.org/<script>", "https://[bad",
        "", None,
        "https://a.org/" + "x" * 5000, "https://a.org/\u202egpj", "blob:https://a.org/1", "ftp://a.org/",
    ],
)  # fmt: skip
def test_addresses_that_are_not_plain_http_are_refused(address):
    assert safe_address(address) is None


@pytest.mark.parametrize(
    "address", ["https://arxiv.org/abs/2010.09697", "http://doi.org/10.1/x(y)?a=1&b=2#c", "https://例え.jp/ä"]
)
def test_plain_addresses_are_kept(address):
    assert safe_address(address) == address


def test_licences_have_their_usual_names():
    assert licence_name("https://creativecommons.org/licenses/by-nc-sa/4.0/") == "CC BY-NC-SA 4.0"
    assert licence_name("http://creativecommons.org/publicdomain/zero/1.0/") == "CC0 1.0"
    assert "non-exclusive" in licence_name("http://arxiv.org/licenses/nonexclusive-distrib/1.0/")
    assert licence_name("MIT") == "MIT"
