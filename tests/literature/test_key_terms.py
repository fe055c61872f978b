"""Key terms by TF-IDF: against a slow version, against another site, and on other subjects."""

import csv
import math
from pathlib import Path

import pytest

from normscope.literature.papers.bundled_works import bundled_work
from normscope.literature.terms.frequencies import Frequencies, bundled_frequencies, counted
from normscope.literature.terms.key_terms import COMPOUND, key_terms
from normscope.literature.terms.term_counts import candidates, term_keys
from normscope.literature.terms.word_forms import word_key

# What another site shows for the abstract of 2010.09697, with its scores.
SHOWN = Path(__file__).with_name("key-terms-shown.csv")

WHEAT = (
    "Gene regulation under drought in wheat",
    "Drought limits wheat yields across the world. We sequenced the transcriptomes of 48 wheat cultivars "
    "under water deficit. Genome-wide association studies (GWAS) revealed three loci, and the GWAS hits "
    "overlap with transcription factors. Silencing one transcription factor reduced root growth. To "
    "better understand drought tolerance, we built a gene regulatory network. Our results shed new light "
    "on how drought tolerance evolves under water deficit.",
)
WAGES = (
    "Minimum wages and firm entry",
    "How do minimum wages affect firm entry? We estimate a difference-in-differences (DiD) model around "
    "138 minimum wage increases. Minimum wage increases reduce firm entry by 2.1 percent. The DiD "
    "estimates are robust to spillovers.",
)
LOGGING = (
    "Write-ahead logging on persistent memory",
    "Databases use write-ahead logging (WAL) to survive crashes. Persistent memory makes the log device "
    "fast, so that the WAL protocol becomes the bottleneck. A lock-free log buffer avoids the latch; the "
    "log buffer is small. We prove that recovery is correct.",
)


def terms_of(texts, **options):
    return {term.term: term for term in key_terms([texts], **options)}


def paper_texts():
    (work,) = bundled_work("arxiv:2010.09697").centre
    return [work.title, work.abstract]


def key(term):
    return " ".join(word_key(word, lambda _: 0) for word in term.split())


def test_most_terms_of_another_site_are_among_ours():
    with SHOWN.open() as file:
        shown = [row["term"] for row in csv.DictReader(file)]
    ours = {key(term.term) for term in key_terms([paper_texts()])[:40]}
    assert len(shown) == 20
    assert sum(key(term) in ours for term in shown) >= 14


def test_the_terms_that_a_reader_expects_come_first():
    first = [term.term for term in key_terms([paper_texts()])[:20]]
    assert {"inductive bias", "formal languages", "self-attention"} <= set(first)
    for phrase in ("shed light", "better understand", "small number", "widely adopted", "results suggest"):
        assert phrase not in first


def test_acronyms_latex_and_plurals_are_joined():
    found = terms_of(paper_texts())
    assert found["gradient descent"].count == 3 and found["gradient descent"].forms == (
        "gradient descent",
        "GD",
    )
    assert (
        set(found["transformer"].forms) == {"transformer", "transformers"} and found["transformer"].count == 6
    )
    assert "ℓ2" in found and "GD" not in found and "ell" not in found
    assert {"NLP", "T5"} <= set(found)


@pytest.mark.parametrize(
    ("texts", "expected", "joined"),
    [
        (
            WHEAT,
            {"drought tolerance", "transcription factor", "water deficit"},
            ("genome-wide association studies", "GWAS"),
        ),
        (WAGES, {"minimum wage", "firm entry"}, ("difference-in-differences", "DiD")),
        (LOGGING, {"persistent memory", "log buffer"}, ("write-ahead logging", "WAL")),
    ],
    ids=["wheat", "wages", "logging"],
)
def test_other_subjects_too(texts, expected, joined):
    found = key_terms([texts])
    first = {term.term for term in found[:12]}
    assert expected <= first
    long, short = joined
    assert next(term for term in found if term.term == long).forms[-1] == short
    assert not first & {
        "results",
        "shed",
        "light",
        "better understand",
        "new light",
        "percent",
        "prove",
        "world",
    }


def test_a_word_is_not_listed_beside_a_pair_that_always_contains_it():
    found = terms_of(["Gradient descent is slow. Gradient descent converges. Convex gradient descent."])
    assert "gradient descent" in found and not {"gradient", "descent"} & set(found)
    found = terms_of(["Gradient descent is slow. Gradient descent converges. The gradient vanishes."])
    assert {"gradient descent", "gradient"} <= set(found) and "descent" not in found


def test_pairs_do_not_cross_punctuation_or_stop_words():
    found = terms_of(["Language, models. Language of models. The attention (heads). Attention; heads."])
    assert not {"language models", "attention heads"} & set(found)
    assert "saturated networks" in terms_of(['Such "saturated" networks. Saturated networks.'])


def test_a_pair_with_and_without_hyphen_is_one_term():
    found = terms_of(["We use self attention. Their self-attention is linear. Pre-training and pretraining."])
    assert found["self-attention"].count == 2 and "self attention" not in found
    assert found["pretraining"].count == 2


def slow_scores(texts, corpus):
    """The formula of the docstring, from counts that are given."""
    weights = {}
    for name, each in candidates([texts]).items():
        documents = max(corpus.counts.get(form, 0) for form in each.lookups(name))
        compound = any(mark in form for form in each.spellings for mark in " -")
        rarity = math.log((1 + corpus.documents) / (1 + max(documents, corpus.floor)))
        weights[name] = sum(each.spellings.values()) * rarity * (COMPOUND if compound else 1)
    length = sum(weight**2 for weight in weights.values()) ** 0.5
    return sorted((weight / length for weight in weights.values() if weight > 0), reverse=True)


@pytest.mark.parametrize("texts", [WHEAT, WAGES, LOGGING, tuple(paper_texts())])
def test_scores_are_the_formula(texts):
    found = key_terms([texts], most=10**6)
    assert [term.score for term in found] == pytest.approx(slow_scores(texts, bundled_frequencies()))
    assert sum(term.score**2 for term in found) == pytest.approx(1)
    assert all(0 < term.score <= 1 for term in found)


def test_scores_do_not_change_when_a_text_is_repeated():
    """Counts double, and so does the length that they are divided by, where pairs were known before."""
    known = counted([["alpha"], ["beta"], ["gamma"], ["delta"]], "own")
    once, twice = (key_terms([["Alpha, beta. Alpha, gamma."]] * n, known) for n in (1, 2))
    assert [term.score for term in once] == pytest.approx([term.score for term in twice])
    assert [term.count * 2 for term in once] == [term.count for term in twice]


def test_rarer_terms_score_higher():
    corpus = Frequencies(100, {"alpha": 1, "beta": 10, "gamma": 100}, "own")
    found = terms_of(["Alpha, beta, gamma, omega."], corpus=corpus)
    assert found["omega"].score > found["alpha"].score > found["beta"].score
    assert "gamma" not in found  # it is in every document


def test_a_corpus_counts_each_document_once():
    texts = ["Norm growth. Norm growth.", "Norms and networks.", "Networks."]
    corpus = counted(map(term_keys, texts), "own")
    assert (
        corpus.documents,
        corpus.counts["norm"],
        corpus.counts["norm growth"],
        corpus.counts["network"],
    ) == (3, 2, 1, 2)


def test_texts_without_terms_have_none():
    for texts in ([], [""], ["the of and"], ["12 34 5.6"], ["?!"]):
        assert key_terms([texts]) == ()
    assert key_terms([]) == ()


def test_the_table_is_small_and_complete():
    table = Path(__import__("normscope").__file__).parent / "literature" / "data" / "term-frequencies.tsv.gz"
    assert table.stat().st_size <= 500_000
    found = bundled_frequencies()
    assert (
        found.documents == 111_992
        and found.counts["inductive bias"] == 362
        and min(found.counts.values()) >= 5
    )


def test_case_belongs_to_some_words():
    found = terms_of(
        ["Markov Chains for BERT", "A Markov chain of Markov chains; RoBERTa and bert. Networks grow."]
    )
    assert "Markov chain" in found and "RoBERTa" in found and "networks" in found


def test_an_acronym_means_what_its_own_document_says():
    documents = [
        ["Machine learning (ML) helps. ML is used."],
        ["ML stands alone here."],
        ["Maximum likelihood (ML)."],
    ]
    found = {term.term: term.count for term in key_terms(documents)}
    assert (found["machine learning"], found["maximum likelihood"], found["ML"]) == (2, 1, 1)
