"""Text from anywhere, readable and harmless: formulas in Unicode, nothing that hides or reverses letters."""

from __future__ import annotations

import re
import unicodedata

from normscope.literature.latex_text import plain_text

SUBSCRIPTS = dict(zip("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))
SUPERSCRIPTS = dict(
    zip("0123456789+-=()abcdeghijklmnoprstuvwxyzT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀ", strict=True)
)

_FORMULA = re.compile(r"(\$\$?(?=\S)[^$]+?(?<=\S)\$\$?(?!\d)|\\\(.+?\\\))", re.DOTALL)
_SCRIPT = re.compile(r"([_^])(?:\{([^{}]*)\}|(\w))")
_ROOT = re.compile(r"\\sqrt\{([^{}]+)\}")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_PLAIN = frozenset(
    {"mathbb", "mathcal", "mathrm", "mathbf", "mathit", "text", "textit", "textbf", "left", "right"}
)

# Marks that reorder or hide the letters around them; joiners, which some scripts need, are kept.
_HIDING = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text on one line, without control characters and invisible marks; lone surrogates become �.

    >>> clean("A\\u202etitle\\x00\\n in two  lines")
    'Atitle in two lines'
    """
    if text.isprintable():
        return " ".join(text.split())
    kept = _SURROGATE.sub("\ufffd", _HIDING.sub("", text))
    shown = "".join(
        " " if c in "\t\n\r\v\f\x85" else "" if unicodedata.category(c) == "Cc" else c for c in kept
    )
    return " ".join(shown.split())


def readable(text: str) -> str:
    r"""The text with its LaTeX in Unicode; a formula that has no such form stays as it was written.

    >>> readable(r"the $\ell_2$ norm of $\theta^{(t)}$ by G{\"o}del, $\frac{a}{b}$")
    'the ℓ₂ norm of θ⁽ᵗ⁾ by Gödel, $\\frac{a}{b}$'
    """
    text = clean(text)
    if "\\" not in text and "$" not in text and "{" not in text:
        return text
    parts = _FORMULA.split(text)
    return "".join(_formula(part) if i % 2 else _prose(part) for i, part in enumerate(parts))


def shortened(text: str, length: int) -> str:
    """At most `length` characters, the last of them … where something is left out."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def _prose(text: str) -> str:
    """Keep the spaces at the ends, which `plain_text` drops."""
    inner = text.strip()
    return text.replace(inner, plain_text(inner), 1) if inner else text


def _formula(source: str) -> str:
    inside = source.strip("$").removeprefix("\\(").removesuffix("\\)").strip()
    shown = _scripts(_ROOT.sub(lambda m: f"√{m[1]}" if len(m[1]) == 1 else f"√({m[1]})", inside))
    if shown is None or any(_unknown(name) for name in _COMMAND.findall(shown)):
        return source
    return plain_text(_COMMAND.sub(lambda m: "" if m[1] in _PLAIN else f"\\{m[1]} ", shown))


def _scripts(formula: str) -> str | None:
    """Indices and exponents as small letters; None if one of them has no small form."""
    missing = False

    def small(found: re.Match[str]) -> str:
        nonlocal missing
        letters = SUBSCRIPTS if found[1] == "_" else SUPERSCRIPTS
        inner = found[2] if found[2] is not None else found[3]
        missing = missing or any(c not in letters for c in inner)
        return "".join(letters.get(c, c) for c in inner)

    shown = _SCRIPT.sub(small, formula)
    return None if missing or "_" in shown or "^" in shown else shown


def _unknown(command: str) -> bool:
    return command not in _PLAIN and plain_text(f"\\{command} ") == ""
