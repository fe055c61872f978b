"""Summaries are sentences of the abstract, the central ones; or what the user's command printed."""

import random
import sys

import pytest

from normscope.errors import LiteratureError, UsageError
from normscope.literature.latex_text import plain_text
from normscope.literature.terms.frequencies import bundled_frequencies
from normscope.literature.terms.own_summary import summarize_with
from normscope.literature.terms.sentences import split_sentences
from normscope.literature.terms.summary import JUMP, _cosine, _vectors, centrality, summarize
from tests.literature.test_key_terms import LOGGING, WAGES, WHEAT, paper_texts

ALL = [WHEAT, WAGES, LOGGING, tuple(paper_texts())]


@pytest.mark.parametrize("texts", ALL)
def test_a_summary_is_two_or_three_sentences_in_their_order(texts):
    title, abstract = texts
    sentences = list(split_sentences(plain_text(abstract)))
    found = list(summarize(abstract, title))
    assert 2 <= len(found) <= 3
    assert found == [each for each in sentences if each in found]


def test_short_abstracts_are_their_own_summary():
    assert summarize("") == ()
    assert summarize("One sentence.") == ("One sentence.",)
    assert summarize("One. Two.") == ("One.", "Two.")


def test_a_sentence_apart_from_all_others_is_not_taken():
    text = "Norms of networks grow. Their growth is fast. It rained in Paris. Networks with norms saturate."
    for title in ("", "Norm growth"):
        assert "It rained in Paris." not in summarize(text, title)


def slow_centrality(vectors, bias):
    """The walk as a system of linear equations, solved by elimination."""
    n = len(vectors)
    jumps = [each / sum(bias) for each in bias] if any(bias) else [1 / n] * n
    rows = []
    for i in range(n):
        links = [0.0 if i == j else _cosine(vectors[i], vectors[j]) for j in range(n)]
        total = sum(links)
        rows.append(
            [JUMP * jumps[j] + (1 - JUMP) * (links[j] / total if total else jumps[j]) for j in range(n)]
        )
    system = [[rows[j][i] - (i == j) for j in range(n)] + [0.0] for i in range(n)]
    system[-1] = [1.0] * n + [1.0]  # the weights add up to 1
    for i in range(n):
        pivot = max(range(i, n), key=lambda row: abs(system[row][i]))
        system[i], system[pivot] = system[pivot], system[i]
        for j in range(n):
            if j != i:
                factor = system[j][i] / system[i][i]
                system[j] = [a - factor * b for a, b in zip(system[j], system[i], strict=True)]
    return [system[i][n] / system[i][i] for i in range(n)]


@pytest.mark.parametrize("texts", ALL)
def test_centrality_is_the_stationary_distribution(texts):
    title, abstract = texts
    heading, *vectors = _vectors([title, *split_sentences(plain_text(abstract))], bundled_frequencies())
    bias = [_cosine(heading, each) for each in vectors]
    for each in (bias, [0.0] * len(vectors)):
        found = centrality(vectors, each)
        assert found == pytest.approx(slow_centrality(vectors, each), abs=1e-9)
        assert sum(found) == pytest.approx(1)


def test_centrality_does_not_depend_on_the_order():
    rng = random.Random(0)
    vectors = [{rng.choice("abcdef"): rng.random() for _ in range(3)} for _ in range(6)]
    found = centrality(vectors, [0.0] * 6)
    assert centrality(vectors[::-1], [0.0] * 6)[::-1] == pytest.approx(found)


# -- by a command of the user's ----------------------------------------------------------------


def python(code):
    return f"{sys.executable} -c {code!r}"


def test_the_command_reads_the_abstract_and_prints_the_summary():
    code = "import sys; text = sys.stdin.read(); print(len(text)); print(); print(text[:5], 'é')"
    assert summarize_with(python(code), "Norms é grow") == ("12", "Norms é")


@pytest.mark.parametrize(
    ("command", "error", "words"),
    [
        ("no-such-command-anywhere x", UsageError, "'no-such-command-anywhere' was not found"),
        ("", UsageError, "must be a command"),
        ("llm 'unclosed", UsageError, "must be a command"),
        ("/etc", UsageError, "could not be run"),
        (python("import sys; sys.exit('no\\nkey')"), LiteratureError, "failed with exit code 1: no\\\\nkey"),
        (python("pass"), LiteratureError, "printed nothing"),
    ],
)
def test_a_command_that_fails_is_one_sentence(command, error, words):
    with pytest.raises(error, match=words) as raised:
        summarize_with(command, "text")
    assert "\n" not in str(raised.value)


def test_a_command_that_never_ends_is_ended():
    with pytest.raises(LiteratureError, match="gave no answer within 0.2 s"):
        summarize_with(python("import time; time.sleep(60)"), "text", patience=0.2)


def test_a_command_that_does_not_read_its_input_is_fine():
    assert summarize_with(python("print('done')"), "x" * 1_000_000) == ("done",)
