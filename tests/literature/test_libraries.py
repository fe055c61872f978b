"""Libraries in BibTeX, RIS and CSL-JSON: read, written, and read again."""

import csv
import io
import json
import random
import string
from dataclasses import replace

import pytest

import normscope as ns
from normscope.errors import LiteratureError, SourceNotFound, UsageError
from normscope.literature.libraries.bibtex import read_bibtex, write_bibtex
from normscope.literature.libraries.library_files import READERS, WRITERS, read_library, write_library
from normscope.literature.libraries.person_names import family_first, given_first, split_authors
from normscope.literature.libraries.works_csv import write_csv
from normscope.literature.work_making import make_work

BIB = r"""
Text before entries is a comment, also with an @ sign.
@string{tacl = "Transactions of the {ACL}"}
@comment{ @article{no, title = {Not a work}} }
@preamble{"\newcommand{\x}{y}"}
@article{hahn2020,
  title = {Theoretical {L}imitations of {Self-Attention}},
  author = "Hahn, Michael and {The {BIG} Team} and van der Berg, Anna and others",
  journal = tacl # { 8}, year = 2020,
  doi = {10.1162/tacl_a_00306}, abstract = {It \& more: 10\% of $\ell_2$.},
}
@misc(paren, title = "A {"}quoted{"} title", author = {G{\"o}del, Kurt}, eprint = {2010.09697v3},
  archivePrefix = {arXiv}, primaryClass = {cs.LG}, month = jan)
@inproceedings{noyear, title={One line}, booktitle={Proc.\ of Things}, author={A B and C D}, url={https://example.org/p}}
@book{empty}
@article{broken, title = {Never closed,
  author = {X}
"""


def test_bibtex_as_people_write_it():
    works, left_out = read_bibtex(BIB)
    hahn, godel, line = works
    assert hahn.title == "Theoretical Limitations of Self-Attention"
    assert hahn.authors == ("Michael Hahn", "The BIG Team", "Anna van der Berg")
    assert (hahn.venue, hahn.year, hahn.id) == ("Transactions of the ACL 8", 2020, "doi:10.1162/tacl_a_00306")
    assert hahn.abstract == "It & more: 10% of ℓ2." and hahn.sources == ("file",)
    assert (godel.title, godel.authors, godel.id) == ('A "quoted" title', ("Kurt Gödel",), "arxiv:2010.09697")
    assert godel.categories == ("cs.LG",)
    assert (line.venue, line.authors, line.links) == (
        "Proc. of Things",
        ("A B", "C D"),
        (("web", "https://example.org/p"),),
    )
    assert any("line 15: the @book entry cannot be read" in each for each in left_out)
    assert any("@article entry cannot be read (a brace is not closed)" in each for each in left_out)


def test_no_text_breaks_the_bibtex_reader():
    rng = random.Random(0)
    for _ in range(400):
        start = rng.randrange(len(BIB))
        noise = "".join(rng.choice('{}"@#,=\\' + string.ascii_letters) for _ in range(rng.randrange(6)))
        works, _ = read_bibtex(BIB[:start] + noise + BIB[start + rng.randrange(9) :])
        assert isinstance(works, list)


def test_an_entry_after_a_broken_one_is_read():
    works, left_out = read_bibtex("@article{a, title = }\n@article{b, title = {Kept}}")
    assert [work.title for work in works] == ["Kept"] and len(left_out) == 1


RIS = """TY  - JOUR
TI  - Norm growth
  in networks
AU  - Lovelace, Ada
A1  - King, Jr., M. L.
PY  - 2020/03/04/
DA  - 2020/03/04
T2  - TACL
DO  - 10.1000/X
UR  - https://doi.org/10.1000/x
N2  - It grows.
KW  - norms
ER  -

TY  - GEN
T1  - No end
"""


def test_ris_as_publishers_write_it(tmp_path):
    path = tmp_path / "refs.ris"
    path.write_text("\ufeff" + RIS, "utf-8")
    (norm, last), left_out = read_library(path)
    assert (norm.title, norm.authors, norm.year) == (
        "Norm growth in networks",
        ("Ada Lovelace", "M. L. King Jr."),
        2020,
    )
    assert (norm.id, norm.venue, norm.abstract, norm.published) == (
        "doi:10.1000/x",
        "TACL",
        "It grows.",
        "2020-03-04",
    )
    assert last.title == "No end" and left_out == [
        "the last record has no ER line; it was read as far as it goes"
    ]


def test_csl_json_as_zotero_writes_it(tmp_path):
    items = [
        {
            "id": "x",
            "type": "article-journal",
            "title": "A",
            "DOI": "10.1000/a",
            "issued": {"date-parts": [["2020", 3]]},
            "author": [
                {"family": "Berg", "given": "Anna", "non-dropping-particle": "van der"},
                {"literal": "The Team"},
            ],
            "container-title": "TACL",
        },
        {"title": "B", "issued": {"raw": "2019-05"}, "number": "arXiv:2010.09697", "author": None},
        {"id": "nothing"},
        3,
    ]
    (tmp_path / "z.json").write_text(json.dumps(items))
    (a, b), left_out = read_library(tmp_path / "z.json")
    assert (a.authors, a.year, a.published, a.venue) == (
        ("Anna van der Berg", "The Team"),
        2020,
        "2020-03",
        "TACL",
    )
    assert (b.id, b.year, b.authors) == ("arxiv:2010.09697", 2019, ())
    assert left_out == ["2 items have neither a title nor an identifier and were left out"]
    (tmp_path / "z.json").write_text(json.dumps({"items": items}))
    assert len(read_library(tmp_path / "z.json")[0]) == 2


# -- there and back ------------------------------------------------------------------------------


def odd_works():
    """Works with every field, with nothing, and with characters that formats use themselves."""
    odd = r'Tricky: 50% {of} $x_1$ & "y" #3 ~ ^ \ <z> – ü, and=more@'
    full = make_work(
        "file",
        odd,
        ["2010.09697", "10.1000/x_y(z)"],
        authors=["Ada Lovelace", "Anna van der Berg", "Plato", "BIG Team"],
        year=2020,
        venue="A & B_C 50%",
        published="2020-03-04",
        categories=["cs.LG"],
        comment="10 pages & more",
        abstract="Text with $\\ell_2$, 10% {braces} and \\ signs. - Dash first.",
    )
    title = replace(full, title="=cmd|' /C calc'!A0", id="title:x", other_ids=(), links=())
    return [
        full,
        make_work("file", title.title, [], authors=[]),
        make_work("file", "Bare", ["W12345"], year=1999),
    ]


def comparable(work):
    """What every format can carry; OpenAlex and Semantic Scholar ids have no field in them."""
    return (work.title, work.authors, work.year, work.venue, work.comment, work.abstract, work.categories)


@pytest.mark.parametrize("ending", READERS)
def test_there_and_back(ending, tmp_path):
    works = odd_works()
    path = write_library(works, tmp_path / f"works{ending}")
    back, left_out = read_library(path)
    assert left_out == []
    assert list(map(comparable, back)) == list(map(comparable, works))
    assert back[0].id == works[0].id and set(back[0].other_ids) == set(works[0].other_ids)
    again, _ = read_library(write_library(back, tmp_path / f"again{ending}"))
    assert again == back


@pytest.mark.parametrize("ending", READERS)
def test_random_text_survives(ending, tmp_path):
    rng = random.Random(3)
    marks = "{}$%&#_~^\\\"'<>@=,;:-– éß"
    texts = ["".join(rng.choice(marks + string.ascii_letters) for _ in range(30)) for _ in range(60)]
    works = [work for text in texts if (work := make_work("file", f"T {text} e", [], abstract=f"A {text} e"))]
    back, _ = read_library(write_library(works, tmp_path / f"random{ending}"))
    assert [work.title for work in back] == [work.title for work in works]
    assert [work.abstract for work in back] == [work.abstract for work in works]


def test_a_paper_goes_to_a_library_and_back(tmp_path):
    paper = ns.paper("2010.09697", offline=True)
    for ending in READERS:
        path = write_library(paper.works, tmp_path / f"works{ending}")
        library = ns.paper(path, offline=True)
        assert library.work is None and library.summary == ()
        assert [work.title for work in library.further] == [work.title for work in paper.works]
        assert [work.authors for work in library.further] == [work.authors for work in paper.works]
        assert [work.id for work in library.further] == [work.id for work in paper.works]
        assert len(library.table) == 73 and set(library.table["role"]) == {"further"}


def test_keys_are_plain_and_numbered_where_they_would_be_the_same():
    text = write_bibtex([make_work("file", "Same title here", [], authors=["Ünal Ö."], year=2020)] * 3)
    keys = [line.split("{")[1].rstrip(",") for line in text.splitlines() if line.startswith("@")]
    first, *others = keys
    assert first.isascii() and others == [f"{first}-2", f"{first}-3"]


def test_spreadsheets_do_not_run_titles():
    rows = list(csv.reader(io.StringIO(write_csv(odd_works()))))
    assert len(rows) == 4 and rows[0][:2] == ["id", "title"]
    for row in rows[1:]:
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)
    assert rows[2][1] == "'=cmd|' /C calc'!A0"


def test_names_turn_around():
    for name in ("Ada Lovelace", "Anna van der Berg", "Plato", "Noah A. Smith", "Kurt Gödel"):
        assert given_first(family_first(name)) == name
    assert split_authors("A and B AND {C and D} and others") == ["A", "B", "C and D"]


# -- wrong files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.bib", "nothing"),
        ("x.ris", "TY  - JOUR\nER  - "),
        ("x.json", "{]"),
        ("x.json", "3"),
        ("x.json", "[" * 200_000),
        ("x.bib", ""),
    ],
)
def test_a_file_without_works_is_one_sentence(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(LiteratureError, match=f"{name} (has no works in it|cannot be read)"):
        ns.paper(tmp_path / name, offline=True)


def test_a_missing_library_and_a_wrong_ending(tmp_path):
    with pytest.raises(SourceNotFound, match="does not exist; expected a library"):
        ns.paper(tmp_path / "missing.bib", offline=True)
    with pytest.raises(
        UsageError, match=r"--export must end in .bib, .ris, .json and .csv; got 'works.xlsx'"
    ):
        write_library([], tmp_path / "works.xlsx")
    assert set(WRITERS) == {*READERS, ".csv"} and not list(tmp_path.iterdir())


def test_old_libraries_in_latin_1_are_read(tmp_path):
    (tmp_path / "old.bib").write_bytes("@misc{a, title = {Gödel}}".encode("latin-1"))
    assert read_library(tmp_path / "old.bib")[0][0].title == "Gödel"


def test_duplicates_in_a_library_are_merged_and_said(tmp_path):
    entry = "@misc{a, title = {One and the same work}, author = {Ada Lovelace}, year = %d}\n"
    (tmp_path / "twice.bib").write_text(entry % 2020 + entry % 2021)
    found = ns.paper(tmp_path / "twice.bib", offline=True)
    assert len(found.further) == 1
    assert found.merged == ("“One and the same work” was found twice (2020, 2021) and is listed once.",)


LONG = "About the growth of parameter norms in the training of networks, at great length, part "


@pytest.mark.parametrize("titles", [("Introduction", "Introduction"), (f"{LONG}one", f"{LONG}two")])
def test_works_that_share_an_id_made_of_their_titles_are_all_listed(titles, tmp_path):
    pairs = zip(titles, ("Ada Abel", "Bo Bern"), strict=True)
    (tmp_path / "two.bib").write_text(
        "".join(f"@misc{{x, title = {{{title}}}, author = {{{name}}}}}\n" for title, name in pairs)
    )
    found = ns.paper(tmp_path / "two.bib", offline=True)
    assert [work.authors for work in found.further] == [("Ada Abel",), ("Bo Bern",)]
    assert len({work.id for work in found.further}) == 2


def test_fields_in_double_braces_and_with_escapes_are_read():
    """As Web of Science and DBLP write them."""
    (wos, dblp), left_out = read_bibtex(
        "@article{ ISI:1, Title = {{A study}}, Year = {{2020}}, DOI = {{10.1038/s41586-020-1}} }\n"
        r"@article{DBLP:1, title = {Limits}, doi = {10.1162/TACL\_A\_00306}, url = {https://x.org/a\_b\%20c}}"
    )
    assert (wos.year, wos.id) == (2020, "doi:10.1038/s41586-020-1")
    assert dblp.id == "doi:10.1162/tacl_a_00306" and ("web", "https://x.org/a_b%20c") in dblp.links
    assert left_out == []


def test_a_work_takes_from_its_volume_what_it_does_not_say():
    child, volume, other = read_bibtex(
        "@inproceedings{a, title = {Child}, crossref = {Vol}}\n"
        "@proceedings{vol, title = {Proceedings of X}, year = 2019, doi = {10.1000/volume}}\n"
        "@inproceedings{b, title = {Other}, year = 2020, crossref = {missing}}"
    )[0]
    assert (child.title, child.year, child.venue) == ("Child", 2019, "Proceedings of X")
    assert child.id == "title:child" and volume.id == "doi:10.1000/volume"
    assert (other.year, other.venue) == (2020, None)


def test_a_tilde_between_names_is_a_space():
    assert split_authors(r"Donald~E. Knuth and Mu\~noz, Ana") == ["Donald E. Knuth", "Ana Muñoz"]


def test_braces_in_addresses_and_categories_do_not_break_the_file(tmp_path):
    odd = make_work(
        "file", "Odd", ["10.1000/a{b"], url="https://example.org/{c\\", categories=["d}e {"], year=2020
    )
    (back, after), left_out = read_library(write_library([odd, *odd_works()[2:]], tmp_path / "x.bib"))
    assert (back.title, back.year, after.title, left_out) == ("Odd", 2020, "Bare", [])


@pytest.mark.parametrize("published", ["May 2020", "03-04-2020", "in press"])
def test_a_date_that_is_none_does_not_replace_the_year(published, tmp_path):
    work = make_work("file", "Dated", [], year=2020, published=published)
    assert read_library(write_library([work], tmp_path / "x.json"))[0][0].year == 2020
