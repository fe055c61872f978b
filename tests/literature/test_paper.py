"""`ns.paper`: bundled, fetched, limited, compared with corpora; and what it refuses."""

import json

import pytest

import normscope as ns
from normscope.errors import LiteratureError, SourceNotFound, UsageError
from normscope.literature.works import COLUMNS
from tests.literature.service_server import Record, Services, small_world

CENTRE = "arxiv:2010.09697"


@pytest.fixture
def services(monkeypatch, tmp_path):
    with Services(small_world()) as running:
        yield running.in_environment(monkeypatch, tmp_path / "cache")


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    """Services at addresses where nobody listens."""
    for name in ("ARXIV", "OPENALEX", "SEMANTICSCHOLAR"):
        monkeypatch.setenv(f"NORMSCOPE_{name}_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("NORMSCOPE_CACHE", str(tmp_path / "cache"))


def check_consistent(found):
    """What the page relies on: every id once, every edge between works that are there."""
    ids = [work.id for work in found.works]
    assert len(ids) == len(set(ids))
    assert all(a in ids and b in ids and a != b for a, b in found.edges)
    assert len(set(found.edges)) == len(found.edges)
    assert len(found.table) == len(ids)
    assert all(address.startswith("https://") for work in found.works for _, address in work.links)


def test_the_bundled_paper_opens_without_a_network(nobody):
    found = ns.paper("2010.09697")
    check_consistent(found)
    assert (len(found.references), len(found.citations), len(found.edges)) == (39, 33, 72)
    assert found.work.id == CENTRE and found.work.sources == ("bundled",)
    assert found.merged == (
        "“The Expressive Power of Transformers with Chain of Thought” was found twice (2023, 2024) "
        "and is listed once.",
    )
    assert found.notes == () and found.claims == ()
    assert all((CENTRE, work.id) in found.edges for work in found.references)
    assert all((work.id, CENTRE) in found.edges for work in found.citations)


@pytest.mark.parametrize(
    "spelling", ["arXiv:2010.09697v3", "https://arxiv.org/abs/2010.09697", "10.48550/arXiv.2010.09697"]
)
def test_every_spelling_of_the_bundled_id_opens(spelling, nobody):
    assert ns.paper(spelling) == ns.paper("2010.09697")


def test_tables_and_notebooks(nobody):
    found = ns.paper("2010.09697")
    assert tuple(found.table.columns) == COLUMNS
    assert next(iter(found.table))["role"] == "this" and set(found.table["role"]) == {
        "this",
        "cited",
        "citing",
    }
    assert found.to_pandas().shape == (73, 6) and found.to_polars().shape == (73, 6)
    assert "Inductive Bias" in found._repr_html_() and len(repr(found)) < 3000
    document = found.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert document["terms"][0]["term"] == "norm growth" and len(document["references"]) == 39


def test_a_fetched_paper(services):
    found = ns.paper("2101.00001")
    check_consistent(found)
    assert (len(found.references), len(found.citations), found.further) == (2, 3, ())
    assert ("openalex:W1004", "openalex:W1003") in found.edges
    assert found.summary and found.terms and found.merged == ("Works that several services know, merged: 4.",)


def test_a_work_that_cites_and_is_cited_has_both_roles(services):
    services.works["old"].cites.append("centre")
    found = ns.paper("2101.00001")
    check_consistent(found)
    assert {row["title"]: row["role"] for row in found.table}["An old work"] == "both"


def test_depth_and_limits(services):
    found = ns.paper("2101.00001", depth=2)
    check_consistent(found)
    assert [work.title for work in found.further] == ["The root of it all"]
    assert ("doi:10.1000/old", "doi:10.1000/root") in found.edges
    few = ns.paper("2101.00001", max_works=3, depth=2)
    check_consistent(few)
    assert (len(few.references), len(few.citations), len(few.further)) == (2, 1, 0)
    assert few.citations[0].year == 2024  # the newest
    assert "Works around it that were left out: 2 (--max-works is 3)." in few.notes


def test_depth_two_of_the_bundled_paper_needs_the_network_and_says_so(nobody):
    found = ns.paper("2010.09697", depth=2)
    assert (len(found.references), len(found.citations)) == (39, 33)
    assert found.notes[0].startswith("Only what is bundled is shown: ") and "\n" not in found.notes[0]


def test_refreshing_the_bundled_paper_joins_what_is_new(services):
    services.works |= {
        "bundled": Record(
            "Effects of Parameter Norm Growth", ("William Merrill",), arxiv="2010.09697", s2="f" * 40
        ),
        "new": Record("A new citing work", s2="9" * 40, cites=["bundled"]),
        "same": Record(
            "Learning Continually by Spectral Regularization",
            ("Alex Lewandowski",),
            s2="8" * 40,
            cites=["bundled"],
        ),
    }
    found = ns.paper("2010.09697", refresh=True)
    check_consistent(found)
    assert (len(found.references), len(found.citations)) == (39, 34)
    assert found.work.title.endswith("Inductive Bias from Gradient Descent")
    assert found.work.sources == ("bundled", "arxiv", "semanticscholar")


def test_kept_answers_open_offline(services, monkeypatch):
    first = ns.paper("2101.00001")
    count = len(services.requests)
    again = ns.paper("2101.00001", offline=True)
    assert again.references == first.references and again.edges == first.edges
    assert len(services.requests) == count and any("answered just now" in note for note in again.notes)


def test_a_library_is_linked_by_openalex(services, tmp_path):
    path = tmp_path / "refs.bib"
    path.write_text(
        "@misc{a, title={Growth of norms}, doi={10.1000/growth}}\n@misc{b, title={Old}, doi={10.1000/old}}\n"
        "@misc{c, title={Older}, eprint={1001.00002}}\n@misc{d, title={Unknown}}\n"
        "@misc{e, title={Odd}, doi={10.1000/a,b|c}}"
    )
    found = ns.paper(path)
    check_consistent(found)
    assert found.work is None and len(found.further) == 5
    assert set(found.edges) == {
        ("doi:10.1000/growth", "doi:10.1000/old"),
        ("doi:10.1000/growth", "arxiv:1001.00002"),
    } or set(found.edges) == {
        ("arxiv:2101.00001", "doi:10.1000/old"),
        ("arxiv:2101.00001", "arxiv:1001.00002"),
    }
    assert found.further[0].title == "Growth of norms" and found.further[0].abstract


def test_a_library_without_a_network_says_that_no_citations_are_known(nobody, tmp_path):
    (tmp_path / "refs.bib").write_text("@misc{a, title={A work}, doi={10.1000/growth}}")
    found = ns.paper(tmp_path / "refs.bib")
    assert found.edges == () and found.notes[0] == "No citations among these works are known."
    assert found.notes[1].startswith("OpenAlex cannot be reached")


# -- corpora ---------------------------------------------------------------------------------------


def test_terms_against_the_neighbours(nobody):
    found = ns.paper("2010.09697", corpus="neighbours")
    assert [term.term for term in found.terms] != [term.term for term in ns.paper("2010.09697").terms]
    assert next(term for term in found.terms if term.term == "transformer").documents > 5
    assert "Terms are compared with 72 neighbours, 72 of them by title alone." in found.notes


def corpora(folder):
    texts = [{"title": "Norm growth", "abstract": "Norms grow."}, {"text": "Networks."}, "Attention heads."]
    (folder / "c.jsonl").write_text("\n".join(map(json.dumps, texts)) + "\n\n")
    (folder / "texts" / "inner").mkdir(parents=True)
    (folder / "texts" / "a.txt").write_text("Norms grow.")
    (folder / "texts" / "inner" / "b.md").write_text("Networks.")
    (folder / "c.bib").write_text(
        "@misc{a, title={Norm growth}}\n@misc{b, title={Networks}, abstract={Norms.}}"
    )
    return [folder / "c.jsonl", folder / "texts", folder / "c.bib"]


def test_terms_against_a_corpus_of_ones_own(nobody, tmp_path):
    for path, documents in zip(corpora(tmp_path), (1, 1, 2), strict=True):
        found = ns.paper("2010.09697", corpus=str(path))
        assert (
            next(term for term in found.terms if term.term == "norm").documents == documents
            if documents < 2
            else True
        )
        assert found.terms[0].score > 0


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("c.jsonl", "{]", "line 1 is not JSON"),
        ("c.jsonl", '{"other": 1}', "line 1 has none of the fields title, abstract, summary, text"),
        ("c.jsonl", '"one"', "has 1 documents; at least 2 are needed"),
        ("c.txt", "text", "a corpus must be a .jsonl file, a folder, or a library"),
        ("empty/x.pdf", "", "has no texts in it"),
    ],
)
def test_a_wrong_corpus_is_one_sentence(name, content, words, nobody, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises((LiteratureError, UsageError), match=words):
        ns.paper("2010.09697", corpus=str(path if path.suffix != ".pdf" else path.parent))


def test_a_missing_corpus_is_named(nobody):
    with pytest.raises(SourceNotFound, match="the corpus nowhere does not exist"):
        ns.paper("2010.09697", corpus="nowhere")


# -- wrong calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"depth": 3},
        {"depth": 0},
        {"depth": "2"},
        {"max_works": 0},
        {"max_works": None},
        {"corpus": 3},
        {"corpus": None},
        {"offline": True, "refresh": True},
        {"progress": None},
        {"summarize": ""},
    ],
    ids=repr,
)
def test_wrong_options_are_refused(wrong, nobody):
    with pytest.raises(UsageError):
        ns.paper("2010.09697", **wrong)


@pytest.mark.parametrize("source", [None, 3, b"2010.09697", ["2010.09697"], "", "nothing"], ids=repr)
def test_what_is_no_paper_is_refused(source, nobody):
    with pytest.raises(UsageError):
        ns.paper(source)


def test_options_that_a_library_does_not_use_are_refused(nobody, tmp_path):
    (tmp_path / "refs.bib").write_text("@misc{a, title={A work}}")
    for option in ({"summarize": "cat"}, {"depth": 2}):
        with pytest.raises(UsageError, match="has no effect on a library"):
            ns.paper(tmp_path / "refs.bib", **option)


def test_a_summary_needs_an_abstract(services):
    services.works["centre"].abstract = None
    assert ns.paper("2101.00001").summary == ()
    with pytest.raises(LiteratureError, match="nothing to summarize"):
        ns.paper("2101.00001", summarize="cat")


def test_a_summary_by_a_command_is_marked(nobody):
    found = ns.paper("2010.09697", summarize="head -c 20")
    assert (found.summary, found.summary_by) == (("The capacity of neur",), "head -c 20")


def test_two_neighbours_of_one_title_are_both_kept_and_linked(services):
    for name, cites in (("first", []), ("second", ["centre"])):
        services.works[name] = Record("Editorial", (f"Ada {name}",), cites=cites)
    services.works["centre"].cites.append("first")
    for name in ("first", "second"):  # without identifiers: known by their titles alone
        services.works[name].s2 = "f" * 40
    plain = services.paper
    services.paper = lambda record: (
        plain(record) | ({"paperId": None, "externalIds": {}} if record.title == "Editorial" else {})
    )
    found = ns.paper("2101.00001")
    check_consistent(found)
    (cited,) = [work for work in found.references if work.title == "Editorial"]
    (citing,) = [work for work in found.citations if work.title == "Editorial"]
    assert (cited.authors, citing.authors) == (("Ada first",), ("Ada second",))
    around = {edge for edge in found.edges if {cited.id, citing.id} & set(edge)}
    assert around == {(found.work.id, cited.id), (citing.id, found.work.id)}


def test_max_works_has_no_effect_on_a_library(nobody, tmp_path):
    (tmp_path / "x.bib").write_text("@misc{a, title = {One}}")
    with pytest.raises(UsageError, match="max_works has no effect on a library"):
        ns.paper(tmp_path / "x.bib", max_works=5)


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf%s", b'%s\n"caf\xe9"'])
def test_corpora_from_other_systems_are_read(data, nobody, tmp_path):
    (tmp_path / "c.jsonl").write_bytes(data % b'{"title": "norm growth"}\n{"title": "norms"}')
    assert ns.paper("2010.09697", corpus=str(tmp_path / "c.jsonl")).terms


def test_an_id_that_is_not_utf_8_is_one_sentence(nobody):
    with pytest.raises(LiteratureError, match="neither bundled nor kept"):
        ns.paper("10.1000/\udcff", offline=True)
