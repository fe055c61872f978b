"""LaTeX, sentences, words and text from elsewhere."""

import random
import string

import pytest

from normscope.literature.clean_text import clean, clean_abstract, clean_year
from normscope.literature.latex_text import plain_text
from normscope.literature.terms.acronyms import expand, expansions
from normscope.literature.terms.sentences import split_sentences
from normscope.literature.terms.stop_words import is_stop_word
from normscope.literature.terms.word_forms import word_key

LATEX = {
    r"the $\ell_2$ norm": "the ℓ2 norm",
    r"{\'E}tude, na\"\i ve, Erd\H{o}s, \v{S}koda": "Étude, naïve, Erdős, Škoda",
    r"Fran\c{c}ois, {\o}re, Stra{\ss}e": "François, øre, Straße",
    r"\emph{very} \textbf{bold} \& 10\% of \$5": "very bold & 10% of $5",
    r"$O(n^{2})$ for $\alpha \to 0$": "O(n^2) for α→0",
    "costs $5 and $6": "costs $5 and $6",
    "no latex at all": "no latex at all",
    r"{Nested {Braces} Kept}": "Nested Braces Kept",
    "line\n  breaks": "line breaks",
    r"\textbackslash{}x \textasciitilde{}y \textasciicircum{}z": "\\x ~y ^z",
    r"\emph{a}~b": "a b",
}


@pytest.mark.parametrize("text", LATEX)
def test_latex_is_read(text):
    assert plain_text(text) == LATEX[text]


def test_no_text_breaks_the_reader():
    rng = random.Random(0)
    for _ in range(500):
        text = "".join(rng.choice("\\{}$%_^~'\"aé \n" + string.ascii_letters) for _ in range(40))
        assert isinstance(plain_text(text), str)


SENTENCES = [
    ["We use t-tests, e.g. Welch's, i.e. unequal variances.", "They hold."],
    ["Merrill et al. (2021) show growth.", "See Fig. 3 and Eq. 4 of Sec. 2."],
    ["Accuracy rises by 0.5 % to 99.5 vs. 99.0.", "Really?", "Yes!"],
    ["As N. A. Smith et al. find, cf. Dr. Jones, norms grow."],
    ["It is i.i.d. Gaussian noise.", "(Mostly.)", "“Quoted.”", "End"],
    ["In the U.S. most models are large."],
    ["Small letters follow... and go on.", "2 of 3 begin with digits."],
    ["Names etc. follow.", "We stop etc.", "Then go on."],
]


@pytest.mark.parametrize("sentences", SENTENCES, ids=lambda s: s[0][:30])
def test_sentences_end_where_they_end(sentences):
    text = " ".join(sentences)
    assert list(split_sentences(text)) == sentences


def test_no_letter_is_lost_between_sentences():
    rng = random.Random(1)
    for _ in range(300):
        text = "".join(rng.choice("ab.?! (\"')]AB1 ") for _ in range(60))
        assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
    assert split_sentences("") == split_sentences("  \n ") == ()


@pytest.mark.parametrize(
    ("plural", "one"),
    [
        ("networks", "network"),
        ("biases", "bias"),
        ("matrices", "matrix"),
        ("theories", "theory"),
        ("losses", "loss"),
        ("boxes", "box"),
        ("automata", "automaton"),
        ("analyses", "analysis"),
        ("pre-trainings", "pretraining"),
        ("LLMs", "llm"),
    ],
)
def test_plural_and_singular_have_one_key(plural, one):
    assert word_key(plural, lambda _: 0) == word_key(one, lambda _: 0) == one


@pytest.mark.parametrize(
    "word", ["bias", "analysis", "dynamics", "loss", "corpus", "series", "news", "gas", "status", "as"]
)
def test_words_in_s_that_are_no_plurals_stay(word):
    assert word_key(word, lambda _: 0) == word


def test_acronyms_need_their_letters():
    assert expansions("stochastic gradient descent (SGD)") == {"SGD": "stochastic gradient descent"}
    assert expansions("mean of the squares (MS), the rest (TR)") == {
        "MS": "mean of the squares",
        "TR": "the rest",
    }
    assert expansions("a model (BERT), in 2020 (A), figure (2), nothing (see above), Text (XT)") == {}
    known = {"GD": "gradient descent"}
    assert expand("gradient descent (GD): GD is not SGD or GD-like", known) == (
        "gradient descent: gradient descent is not SGD or GD-like"
    )


def test_stop_words_are_prose_not_subjects():
    prose = "we propose a novel approach which significantly improves upon existing methods furthermore"
    assert all(is_stop_word(word) for word in prose.split() if word not in ("approach", "methods"))
    for subject in (
        "norm",
        "attention",
        "gene",
        "wage",
        "robot",
        "language",
        "training",
        "family",
        "anomaly",
    ):
        assert not is_stop_word(subject)


def test_text_from_elsewhere_is_one_safe_line():
    assert clean("a\x00\x1b[2J\u202eb\u2066c\r\n\td") == "a[2Jbc d"
    assert clean("H<sub>2</sub>O &lt; <jats:p>x</jats:p>") == "H2O < x"
    assert clean("<script>x</script>") == "<script>x</script>"  # kept as text; pages escape it
    assert clean("\ud800x").encode("utf-8") == b"?x"
    assert clean(3) is clean({}) is clean("") is clean("\u200b") is None
    assert len(clean("x" * 10**7)) == 200
    assert clean_abstract("Abstract: We show.") == "We show."
    for text in ("Abstract algebra is fun.", "Abstract Interpretation is a theory.", "We show."):
        assert clean_abstract(text) == text
    assert clean_abstract("ABSTRACT We show.") == "We show."


@pytest.mark.parametrize(
    ("value", "year"),
    [
        (2021, 2021),
        ("2021-03-04", 2021),
        ("2021/03//", 2021),
        ("20210", None),
        (None, None),
        (12, None),
        ("c. 2021", None),
        (True, None),
    ],
)
def test_years(value, year):
    assert clean_year(value) == year
