"""Every way to write an identifier is one identifier."""

import pytest

from normscope.errors import UsageError
from normscope.literature.identifiers import canonical_id, ids_of, links_for, parse_id, title_id

SAME = {
    "arxiv:2010.09697": [
        "2010.09697",
        "2010.09697v5",
        "arXiv:2010.09697",
        "ARXIV:2010.09697v2",
        " 2010.09697 ",
        "https://arxiv.org/abs/2010.09697",
        "http://arxiv.org/abs/2010.09697v3",
        "https://arxiv.org/pdf/2010.09697v5.pdf",
        "https://www.arxiv.org/pdf/2010.09697",
        "https://export.arxiv.org/abs/2010.09697?context=cs",
        "10.48550/arXiv.2010.09697",
        "https://doi.org/10.48550/arXiv.2010.09697",
        "https://arxiv.org/html/2010.09697v5#S2",
    ],
    "arxiv:hep-th/9901001": [
        "hep-th/9901001",
        "hep-th/9901001v2",
        "arXiv:hep-th/9901001",
        "https://arxiv.org/abs/hep-th/9901001",
    ],
    "arxiv:math/0309136": ["math.GT/0309136", "https://arxiv.org/abs/math/0309136v1"],
    "arxiv:0704.0001": ["0704.0001", "arxiv:0704.0001v1"],
    "doi:10.1162/tacl_a_00306": [
        "10.1162/tacl_a_00306",
        "doi:10.1162/TACL_A_00306",
        "https://doi.org/10.1162/tacl_a_00306",
        "DOI: 10.1162/tacl_a_00306",
        "https://dx.doi.org/10.1162%2Ftacl_a_00306",
        "https://dl.acm.org/doi/10.1162/tacl_a_00306",
    ],
    "openalex:W2741809807": [
        "W2741809807",
        "w2741809807",
        "https://openalex.org/W2741809807",
        "https://api.openalex.org/works/W2741809807",
    ],
    "s2:649def34f8be52c8b66281af98ae884c09aef38b": [
        "649def34f8be52c8b66281af98ae884c09aef38b",
        "s2:649DEF34F8BE52C8B66281AF98AE884C09AEF38B",
        "https://www.semanticscholar.org/paper/Construction-of-the-Literature-Graph/649def34f8be52c8b66281af98ae884c09aef38b",
    ],
    "s2:CorpusId:215416146": [
        "CorpusId:215416146",
        "CorpusID:215416146",
        "https://api.semanticscholar.org/CorpusID:215416146",
    ],
}


@pytest.mark.parametrize(
    ("expected", "text"), [(each, text) for each, texts in SAME.items() for text in texts]
)
def test_spellings_of_one_id(expected, text):
    assert canonical_id(text) == expected
    assert canonical_id(expected) == expected  # canonical ids are their own spelling


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "2010",
        "10.1162",
        "2010.096",
        "20101.09697",
        "W12",
        "https://example.org/x",
        "../etc/passwd",
        "649def34f8be52c8",
        "arxiv:",
        "doi:",
        "https://arxiv.org/list/cs.LG/new",
        "x" * 10_000,
    ],
)
def test_what_is_no_id_is_refused_with_the_ids_that_are_known(text):
    assert canonical_id(text) is None
    with pytest.raises(UsageError, match="arXiv id .*DOI .*OpenAlex id .*Semantic Scholar id"):
        parse_id(text)


def test_the_preferred_id_comes_first():
    given = ["s2:" + "a" * 40, None, "W1234", "10.1000/x", "rubbish", "2010.09697", "10.1000/X"]
    assert ids_of(given) == ("arxiv:2010.09697", "doi:10.1000/x", "openalex:W1234", "s2:" + "a" * 40)


def test_links_are_https_and_escaped():
    for label, address in links_for(
        ["doi:10.1000/a<b>\"c'#?", "arxiv:2010.09697", "openalex:W1", "s2:CorpusId:5"], "T"
    ):
        assert address.startswith("https://") and not set(address) & set("<>\"' #?"), label
    ((label, address),) = links_for([], 'A "title" & more')
    assert label == "search" and "%22title%22%20%26%20more" in address


def test_titles_make_ids():
    assert title_id("  Étude: 3 ways!  ") == "title:étude-3-ways"
    assert title_id("???") == "title:untitled"
    assert len(title_id("word " * 100)) <= 86


@pytest.mark.parametrize(
    ("address", "doi"),
    [
        ("https://link.springer.com/content/pdf/10.1007/978-3-030-1_7.pdf", "10.1007/978-3-030-1_7"),
        ("https://onlinelibrary.wiley.com/doi/10.1002/abc/full", "10.1002/abc"),
        ("https://www.biorxiv.org/content/10.1101/2020.01.01.123456v1.full.pdf", "10.1101/2020.01.01.123456"),
    ],
)
def test_a_doi_ends_before_the_form_that_a_publisher_shows(address, doi):
    assert canonical_id(address) == f"doi:{doi}"
