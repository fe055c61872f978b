r"""LaTeX in titles, names and abstracts, read as plain text: $\ell_2$ is ℓ2, {\'e} is é, \emph{x} is x."""

from __future__ import annotations

import re
import unicodedata

_ACCENTS = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "c": "\u0327", "v": "\u030c", "u": "\u0306", "H": "\u030b", "k": "\u0328", "r": "\u030a", "d": "\u0323",
    "b": "\u0331",
}  # fmt: skip
_LETTERS = {
    "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å", "AA": "Å", "o": "ø", "O": "Ø", "l": "ł",
    "L": "Ł", "ss": "ß", "i": "ı", "j": "ȷ", "ell": "ℓ", "infty": "∞", "times": "×", "to": "→",
    "rightarrow": "→", "approx": "≈", "sim": "~", "leq": "≤", "le": "≤", "geq": "≥", "ge": "≥", "neq": "≠",
    "pm": "±", "cdot": "·", "in": "∈", "ldots": "…", "dots": "…", "textendash": "–", "textemdash": "—",
    "S": "§", "textregistered": "®", "alpha": "α", "beta": "β", "gamma": "γ", "Gamma": "Γ", "delta": "δ",
    "Delta": "Δ", "epsilon": "ε", "varepsilon": "ε", "zeta": "ζ", "eta": "η", "theta": "θ", "Theta": "Θ",
    "kappa": "κ", "lambda": "λ", "Lambda": "Λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "Pi": "Π",
    "rho": "ρ", "sigma": "σ", "Sigma": "Σ", "tau": "τ", "phi": "φ", "varphi": "φ", "Phi": "Φ", "chi": "χ",
    "psi": "ψ", "Psi": "Ψ", "omega": "ω", "Omega": "Ω",
}  # fmt: skip

_SYMBOLS = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textdollar": "$"}

_SYMBOL_ACCENT = re.compile(r"""\\(['`^"~=.])\s*(?:\{\s*(\\?[A-Za-z])\s*\}|(\\[ij]\s?|[A-Za-z]))""")
_LETTER_ACCENT = re.compile(r"\\([cvuHkrdb])(?:\s*\{\s*(\\?[A-Za-z])\s*\}|\s+(\\?[A-Za-z]))")
_COMMAND = re.compile(r"\\([A-Za-z]+)\*?(\s*)")
_ESCAPED = re.compile(r"\\([&%$#_{}])")
_MATH = re.compile(r"\$\$?(?=\S)([^$]+?)(?<=\S)\$\$?(?!\d)|\\\((.+?)\\\)", re.DOTALL)
_KEPT = "\ue000"  # stands for an escaped character while braces are removed; private, so in no text


def plain_text(text: str) -> str:
    r"""The text without LaTeX, on one line; what is not LaTeX stays as it is.

    >>> plain_text(r"{\'E}tude of the $\ell_2$ norm by G{\"o}del \& \emph{others}, for $x^{2}\leq 1$")
    'Étude of the ℓ2 norm by Gödel & others, for x^2≤1'
    """
    if "\\" in text or "$" in text or "{" in text:
        text = _without_latex(text)
    return " ".join(unicodedata.normalize("NFC", text).split())


def _without_latex(text: str) -> str:
    text = _ESCAPED.sub(lambda found: _kept(found[1]), text)
    text = _MATH.sub(_math, text)
    text = _SYMBOL_ACCENT.sub(_accented, text)
    text = _LETTER_ACCENT.sub(_accented, text)
    text = _COMMAND.sub(_command, text)
    text = re.sub(r"\\[,;:! ]|(?<!\\)~", " ", text).replace("\\\\", " ").replace("{", "").replace("}", "")
    return re.sub(f"{_KEPT}([0-9a-f]{{2}})", lambda m: chr(int(m[1], 16)), text)


def _math(found: re.Match[str]) -> str:
    """A formula as one token where it is a name with an index; spaces in it stay."""
    inside = (found[1] or found[2]).strip()
    if re.fullmatch(r"\s*[\d.,]+\s*", inside):
        return inside
    return re.sub(r"_\{?([A-Za-z0-9]+)\}?", r"\1", inside)


def _accented(found: re.Match[str]) -> str:
    letter = (found[2] or found[3]).strip().removeprefix("\\")
    return unicodedata.normalize("NFC", letter + _ACCENTS[found[1]])


def _command(found: re.Match[str]) -> str:
    """A letter or symbol that a command stands for; commands that only set type leave nothing."""
    if found[1] in _SYMBOLS:
        return _kept(_SYMBOLS[found[1]])
    return _LETTERS.get(found[1], "")


def _kept(character: str) -> str:
    """A character that later steps must not read as LaTeX."""
    return f"{_KEPT}{ord(character):02x}"
