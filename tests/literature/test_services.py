"""The services, asked over a real connection, in good and in bad times."""

import json
import sqlite3
import time

import pytest

from normscope.errors import LiteratureError, ServiceError
from normscope.literature.merging import merge
from normscope.literature.sources.access import PAUSES, Access, access_from_environment, cache_path
from normscope.literature.sources.found_works import Reach
from normscope.literature.sources.neighbourhood import look_around
from normscope.literature.sources.services import Services as Clients
from tests.literature.service_server import ERROR_ENTRY, Record, Services, atom, small_world


@pytest.fixture
def services():
    with Services(small_world()) as running:
        yield running


def found(services, work_id="arxiv:2101.00001", depth=1, most=500, **access):
    return look_around(Clients(services.access(**access)), work_id, Reach(depth, most))


def titles(works):
    return sorted({work.title for work in works})


def notes(services, **options):
    return " ".join(found(services, **options).notes)


# -- what the services say -------------------------------------------------------------------


def test_all_services_are_asked_and_joined(services):
    result = found(services)
    assert titles(result.references) == ["An old work", "An older work"]
    assert titles(result.citations) == ["Cites all", "Only in OpenAlex", "Only in Semantic Scholar"]
    (centre,) = merge(result.centre).works
    assert centre.id == "arxiv:2101.00001" and centre.sources == ("arxiv", "semanticscholar", "openalex")
    assert set(centre.other_ids) == {"doi:10.1000/growth", "openalex:W1000", "s2:" + "a" * 40}
    assert (centre.published, centre.updated, centre.comment) == (
        "2020-06-14",
        "2021-08-12",
        "12 pages, 3 figures",
    )
    assert centre.categories == ("cs.LG", "stat.ML") and centre.venue == "TACL"
    assert centre.abstract.startswith("Norms grow. We measure")
    assert result.notes == []


@pytest.mark.parametrize(
    "work_id", ["doi:10.1000/growth", "openalex:W1000", "s2:" + "a" * 40, "arxiv:2101.00001"]
)
def test_any_id_leads_to_the_same_works(services, work_id):
    result = found(services, work_id)
    assert len(merge(result.references).works) == 2 and len(merge(result.citations).works) == 3
    (centre,) = merge(result.centre).works
    assert centre.id == "arxiv:2101.00001"


def test_citations_among_the_neighbours_are_known(services):
    merged = merge((result := found(services)).works())
    pairs = {(merged.renamed.get(a), merged.renamed.get(b)) for a, b in result.edges}
    assert ("openalex:W1004", "openalex:W1003") in pairs  # alex cites both
    assert ("openalex:W1003", "doi:10.1000/old") in pairs


def test_depth_two_adds_what_the_neighbours_cite(services):
    assert titles(found(services, depth=2).further) == ["The root of it all"]
    limited = found(services, depth=2, most=6)
    assert limited.further == []
    assert "Works two citations away that were left out: 1 (--max-works is 6)." in limited.notes


def test_citing_works_are_read_page_by_page(services):
    for i in range(1234):
        services.works[f"c{i}"] = Record(
            f"Citing work number {i}", openalex=f"W2{i:04}", s2=f"{i:040x}", cites=["centre"]
        )
    assert len(merge(found(services, most=2000).citations).works) == 1237
    pages = [path for path in services.asked("openalex") if "cites" in path]
    assert len(pages) == 13
    some = found(services, most=150)
    assert "Citing works that only OpenAlex counts: 1,086;" in " ".join(some.notes)
    assert len(merge(some.citations).works) <= 300


def test_more_than_the_services_show_is_not_asked_for(services):
    """The server refuses what the real ones refuse: more than 10,000 works by page."""
    for i in range(10_050):
        services.works[f"c{i}"] = Record(f"Number {i}", openalex=f"W3{i:05}", cites=["centre"])
    result = found(services, most=20_000)
    assert len(result.citations) >= 10_000
    assert "Citing works that only OpenAlex counts: 52;" in " ".join(result.notes)


# -- bad times -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [429, (429, {"Retry-After": "0"}), 500, 503, "cut", b"{]", b"", b'"text"'], ids=repr
)
@pytest.mark.parametrize("service", ["openalex", "s2"])
def test_a_fault_that_passes_is_not_noticed(services, service, fault):
    services.faults[service] = [fault, fault]
    result = found(services)
    assert len(merge(result.citations).works) == 3 and result.notes == []


@pytest.mark.parametrize(
    "fault", [b"Rate exceeded.", b"<feed>", b"<html/>", b"\xff\xfe\x00", 500, "cut"], ids=repr
)
def test_a_feed_that_is_not_one_is_asked_for_again(services, fault):
    services.faults["arxiv"] = [fault]
    assert merge(found(services).centre).works[0].comment == "12 pages, 3 figures"


def test_a_service_that_stays_broken_is_named_and_the_others_answer(services):
    services.faults["openalex"] = [500] * 4
    result = found(services)
    assert titles(result.citations) == ["Cites all", "Only in Semantic Scholar"]
    assert result.notes == ["OpenAlex could not be used: HTTP 500; try again later."]
    assert len(services.asked("openalex")) == 4  # bounded


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that were made, in seconds; they are not waited for."""
    made = []
    monkeypatch.setattr(time, "sleep", made.append)
    return made


def test_the_wait_that_a_service_asks_for_is_kept(services, pauses):
    services.faults["s2"] = [(429, {"Retry-After": "7"}), 429, 500]
    found(services, first_wait=100.0)
    asked, *own = [pause for pause in pauses if pause >= 7]
    assert asked == 7
    assert own == []  # 150 s would be too long, so the service is given up
    services.faults["s2"] = [429, 500, 500]
    pauses.clear()
    found(services, first_wait=8.0)
    first, second, third = [pause for pause in pauses if pause > 1]
    assert 6 <= first <= 10 and 12 <= second <= 20 and 24 <= third <= 40


@pytest.mark.parametrize("after", ["3600", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_nobody_waits_an_hour(services, after):
    services.faults["s2"] = [(429, {"Retry-After": after})]
    assert "Semantic Scholar could not be used: HTTP 429, asks to wait " in notes(services)
    assert len(services.asked("s2")) == 1


def test_a_wrong_retry_after_is_ignored(services):
    services.faults["s2"] = [(429, {"Retry-After": "soon"}), (503, {"Retry-After": "-1"})]
    assert found(services).notes == []


def test_answers_of_ten_megabytes_are_read_and_larger_ones_refused(services, monkeypatch):
    services.works["scholar"].abstract = "growth " * 1_500_000
    result = found(services)
    assert sorted(len(work.abstract or "") for work in result.citations)[-1] == 20_000
    monkeypatch.setattr("normscope.literature.sources.service.LARGEST", 1_000_000)
    assert "too large: more than 1 MB" in notes(services)


def test_a_service_that_refuses_is_quoted(services):
    services.faults["openalex"] = [(401, {})]
    assert "OpenAlex refused the request with HTTP 401" in notes(services)
    services.faults["openalex"] = [429] * 4
    said = notes(services)
    assert said.endswith("HTTP 429; try again later; a free key in OPENALEX_API_KEY allows more requests.")
    services.faults["openalex"] = [429] * 4
    assert "free key" not in notes(services, openalex_key="KEY")


def test_redirects_to_other_hosts_are_not_followed(services):
    services.faults["openalex"] = ["moved"]
    assert "OpenAlex refused the request with HTTP 302" in notes(services)


BOMB = b"""<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol">%s]>
<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>http://arxiv.org/abs/2101.00001</id><title>&l9;</title></entry>
</feed>""" % b"".join(
    b'<!ENTITY l%d "%s">' % (i, b"&l%d;" % (i - 1) * 10 if i else b"&lol;") for i in range(10)
)


@pytest.mark.parametrize(
    "bomb", [BOMB, BOMB.decode().replace('"1.0"', '"1.0" encoding="UTF-16"').encode("utf-16")]
)
def test_entities_that_grow_are_refused(services, bomb):
    services.faults["arxiv"] = [bomb] * 4
    assert "arXiv could not be used: the answer" in notes(services)


def test_external_entities_are_not_read(services, tmp_path):
    (tmp_path / "secret").write_text("secret")
    text = atom(services.works["centre"]).replace("Growth of norms", "&file;")
    text = text.replace(
        "<feed", f'<!DOCTYPE feed [<!ENTITY file SYSTEM "file://{tmp_path}/secret">]><feed', 1
    )
    services.faults["arxiv"] = [text.encode()] * 4
    result = found(services)
    assert "secret" not in str(result) and "defines entities of its own" in " ".join(result.notes)


def test_an_error_that_arxiv_reports_as_an_entry_is_no_work(services):
    services.faults["arxiv"] = [ERROR_ENTRY.encode()]
    assert "arXiv does not know 2101.00001." in notes(services)


def test_another_entry_than_the_one_asked_for_is_no_work(services):
    services.faults["arxiv"] = [atom(services.works["older"]).encode()]
    assert merge(found(services).centre).works[0].title == "Growth of norms"


HOSTILE = "<script>alert(1)</script> \u202eevil\u202c \x1b[31m &amp; </title>\ud800 \x00"


def test_hostile_titles_are_shown_without_control_characters(services):
    services.works["old"].title = HOSTILE
    services.works["old"].authors = ("<img src=x>\x07", "", "\u200b")
    (work,) = [work for work in merge(found(services).references).works if work.id == "doi:10.1000/old"]
    assert work.title == "<script>alert(1)</script> evil [31m & ?"
    assert work.authors == ("<img src=x>",)
    assert all(c.isprintable() for c in work.title + "".join(work.authors))
    work.title.encode("utf-8")


@pytest.mark.parametrize("empty", [None, [], "text", 3, {"a": None}, [None, 3]], ids=repr)
def test_null_and_wrong_fields_are_gaps(services, empty):
    alex = services.alex(services.works["both"])
    wrong = {name: empty for name in alex if name not in ("id", "title")}
    services.alex = lambda record: (
        {**alex, **wrong} if record is services.works["both"] else Services.alex(services, record)
    )
    paper = dict.fromkeys(services.paper(services.works["both"]), empty) | {"title": "Cites all"}
    services.paper = lambda record: (
        paper if record is services.works["both"] else Services.paper(services, record)
    )
    result = found(services)
    assert "Cites all" in titles(result.citations) and result.notes == []


def test_works_without_title_or_id_are_left_out(services):
    services.works["both"].title = None
    assert "Only in OpenAlex" in titles(found(services).citations)


def test_withheld_references_are_none(services):
    centre = services.works["centre"]
    services.faults["openalex"] = [500] * 4
    page = json.dumps({"offset": 0, "data": None}).encode()
    services.faults["s2"] = [json.dumps(services.paper(centre)).encode(), page]
    assert found(services).references == []


def test_a_next_page_that_never_ends_is_left(services):
    page = {"offset": 0, "next": 0, "data": []}
    services.faults["s2"] = [
        json.dumps(services.paper(services.works["centre"])).encode(),
        json.dumps(page).encode(),
    ]
    assert len(merge(found(services).references).works) == 2  # from OpenAlex


def test_deep_json_is_refused(services):
    services.faults["s2"] = [b"[" * 200_000] * 4
    assert "Semantic Scholar could not be used: the answer is not JSON" in notes(services)


def test_an_answer_without_a_list_is_a_fault_not_an_empty_list(services):
    services.faults["s2"] = [json.dumps(services.paper(services.works["centre"])).encode()] + [b"{}"] * 4
    centre = json.dumps(services.alex(services.works["centre"])).encode()
    services.faults["openalex"] = [centre] + [b'{"results": null}'] * 4
    said = notes(services)
    assert said.count("the answer has no list of works") == 2


def test_all_pages_are_read_where_the_count_is_missing(services):
    for i in range(150):
        services.works[f"c{i}"] = Record(f"Number {i}", openalex=f"W4{i:05}", cites=["centre"])
    centre = services.works["centre"]
    citing = [services.alex(each) for each in services.citing(centre, "openalex")]
    pages = [{"meta": None, "results": each} for each in ([], citing[:100])]
    answers = [services.alex(centre), *pages]
    services.faults["openalex"] = [json.dumps(each).encode() for each in answers]
    assert len(merge(found(services).citations).works) == 153


def test_pages_without_works_are_not_followed(services):
    centre = json.dumps(services.paper(services.works["centre"])).encode()
    empty = [json.dumps({"offset": i, "next": i + 1, "data": []}).encode() for i in range(20)]
    services.faults["s2"] = [centre, *empty]
    found(services)
    assert len(services.asked("s2")) == 3


def test_a_key_that_a_service_repeats_is_not_shown(services):
    handle = services.server.RequestHandlerClass
    handle.openalex = lambda self, *_: self.answer(401, f"wrong: {self.headers['Authorization']}")
    handle.s2 = lambda self, *_: self.answer(403, f"wrong: {self.headers['x-api-key']}")
    said = notes(services, openalex_key="KEY-ONE", semantic_scholar_key="KEY-TWO")
    assert "KEY-" not in said and "wrong: Bearer …" in said


def test_an_answer_that_drips_is_left(services, monkeypatch):
    sent = []

    def drip(self, *_):
        self.send_response(200)
        self.send_header("Content-Length", "60")
        self.end_headers()
        for _ in range(60):
            self.wfile.write(b" ")
            sent.append(b" ")
            time.sleep(0.02)

    services.server.RequestHandlerClass.arxiv = drip
    monkeypatch.setattr("normscope.literature.sources.service.LONGEST_ANSWER", 0.1)
    assert "the answer took longer than 0.1 s" in notes(services)
    assert len(sent) < 4 * 60  # nobody waited for the end of an answer


def test_a_preprint_that_arxiv_does_not_know_yet_is_asked_for_again(services, tmp_path):
    cache = tmp_path / "c.db"
    services.faults["arxiv"] = [atom(services.works["older"]).encode()]
    assert "arXiv does not know" in notes(services, cache=cache)
    with sqlite3.connect(cache) as file:
        file.execute("UPDATE answer SET fetched = fetched - 2 * 86400")
    assert "arXiv does not know" not in notes(services, cache=cache)


# -- nobody there ----------------------------------------------------------------------------------


def test_no_network_is_one_sentence(tmp_path):
    closed = "http://127.0.0.1:9"
    access = Access(arxiv=closed, openalex=closed, semantic_scholar=closed, cache=tmp_path / "cache.db")
    with pytest.raises(ServiceError) as error:
        look_around(Clients(access), "arxiv:2101.00001", Reach())
    text = str(error.value)
    assert text.startswith(
        "arxiv:2101.00001 is neither bundled nor kept from before, and cannot be fetched: arXiv"
    )
    assert "bundled works (2010.09697)" in text and "\n" not in text


def test_a_work_that_nobody_knows_is_one_sentence(services):
    with pytest.raises(
        LiteratureError, match="arXiv, Semantic Scholar and OpenAlex do not know arxiv:2101.99999"
    ):
        found(services, "arxiv:2101.99999")


def test_a_work_that_one_service_knows_is_enough(services):
    services.works["centre"] = Record("Preprint", arxiv="2101.00001")
    result = found(services)
    assert titles(result.centre) == ["Preprint"]
    assert result.notes == ["Semantic Scholar does not know this work.", "OpenAlex does not know this work."]


# -- the cache ---------------------------------------------------------------------------------------


def test_nobody_is_asked_twice_and_the_age_is_said(services, tmp_path):
    cache = tmp_path / "new" / "literature.db"
    first = found(services, cache=cache)
    count = len(services.requests)
    again = found(services, cache=cache, offline=True)
    assert len(services.requests) == count
    assert merge(again.works()) == merge(first.works())
    assert "OpenAlex answered just now; --refresh asks again." in again.notes
    with sqlite3.connect(cache) as file:
        file.execute("UPDATE answer SET fetched = fetched - 3 * 86400")
    assert (
        "arXiv answered 3 days ago; --refresh asks again." in found(services, cache=cache, offline=True).notes
    )
    assert found(services, cache=cache, refresh=True).notes == []
    assert len(services.requests) == 2 * count


def test_failures_are_not_kept(services, tmp_path):
    services.faults["openalex"] = [b"{]"] * 4
    found(services, cache=tmp_path / "c.db")
    assert found(services, cache=tmp_path / "c.db").citations[0].title
    assert titles(found(services, cache=tmp_path / "c.db", offline=True).citations)[1] == "Only in OpenAlex"


def test_offline_asks_nobody(services, tmp_path):
    with pytest.raises(ServiceError, match=r"arXiv was not asked \(--offline\)"):
        found(services, cache=tmp_path / "c.db", offline=True)
    assert services.requests == [] and not (tmp_path / "c.db").exists()


@pytest.mark.parametrize("content", [b"not a database", b""])
def test_a_cache_that_is_broken_is_said_and_not_needed(services, tmp_path, content):
    (tmp_path / "c.db").write_bytes(content)
    result = found(services, cache=tmp_path / "c.db")
    assert len(merge(result.citations).works) == 3
    assert bool(content) == any("cannot be used" in note for note in result.notes)
    assert not content or (tmp_path / "c.db").read_bytes() == content


def test_a_cache_in_a_place_that_is_a_file_is_said(services, tmp_path):
    (tmp_path / "file").write_text("")
    assert "Answers were not kept" in notes(services, cache=tmp_path / "file" / "c.db")


# -- manners -----------------------------------------------------------------------------------------


def test_keys_and_address_are_sent_and_never_stored(services, tmp_path):
    cache = tmp_path / "c.db"
    access = services.access(
        mailto="me@example.org", openalex_key="KEY-ONE", semantic_scholar_key="KEY-TWO", cache=cache
    )
    result = look_around(Clients(access), "arxiv:2101.00001", Reach())
    for path, headers in services.requests:
        assert "me@example.org" in headers["User-Agent"] and headers["User-Agent"].startswith("normscope/")
        assert "KEY" not in path and "example.org" not in path
        service = path.split("/")[1]
        sent = [value for value in headers.values() if "KEY" in value]
        assert sent == {"openalex": ["Bearer KEY-ONE"], "s2": ["KEY-TWO"], "arxiv": []}[service]
    assert b"KEY-" not in cache.read_bytes()
    assert "KEY-" not in repr(access) + repr(result)


def test_settings_come_from_the_environment(tmp_path):
    given = {
        "S2_API_KEY": " two\n",
        "OPENALEX_API_KEY": "one",
        "NORMSCOPE_MAILTO": "me@example.org",
        "XDG_CACHE_HOME": str(tmp_path),
        "NORMSCOPE_ARXIV_URL": "http://localhost:1/",
    }
    access = access_from_environment(environment=given)
    assert (access.semantic_scholar_key, access.openalex_key, access.mailto) == (
        "two",
        "one",
        "me@example.org",
    )
    assert access.cache == tmp_path / "normscope" / "literature.db" and access.arxiv == "http://localhost:1"
    assert cache_path({"NORMSCOPE_CACHE": str(tmp_path / "own")}) == tmp_path / "own" / "literature.db"
    assert access_from_environment(environment={}).arxiv == "https://export.arxiv.org"


def test_wrong_settings_are_refused_without_showing_secrets():
    with pytest.raises(LiteratureError.__base__, match="NORMSCOPE_ARXIV_URL must be an address"):
        access_from_environment(environment={"NORMSCOPE_ARXIV_URL": "file:///etc"})
    with pytest.raises(LiteratureError.__base__) as error:
        access_from_environment(environment={"S2_API_KEY": "secret\nX-Evil: 1"})
    assert "secret" not in str(error.value)


def test_public_services_are_asked_at_their_pace():
    access = Access()
    assert access.pause(access.arxiv) >= 3 and access.pause(access.semantic_scholar) >= 1
    assert access.pause("http://127.0.0.1:8000") == 0


def test_a_pause_between_two_requests_is_kept(services, pauses, monkeypatch):
    monkeypatch.setitem(PAUSES, f"{services.url}/s2", 100.0)
    found(services)
    made = [pause for pause in pauses if pause > 0]
    assert len(made) == len(services.asked("s2")) - 1 and all(90 < pause <= 100 for pause in made)
