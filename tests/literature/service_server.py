"""A server that speaks the APIs of arXiv, OpenAlex and Semantic Scholar, and fails on demand."""

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlparse
from xml.sax.saxutils import escape

from normscope.literature.sources.access import Access

MOVED = "https://elsewhere.example/"


@dataclass
class Record:
    """A work as the services know it; a service whose id is None does not have it."""

    title: str | None
    authors: tuple = ("Ada Example", "Bo Sample")
    year: int | None = 2020
    arxiv: str | None = None
    doi: str | None = None
    openalex: str | None = None
    s2: str | None = None
    abstract: str | None = None
    venue: str | None = None
    cites: list = field(default_factory=list)


def atom(record):
    """A feed with one entry, as export.arxiv.org/api/query answers."""
    authors = "".join(f"<author><name>{escape(name)}</name></author>" for name in record.authors)
    doi = (
        f'<arxiv:doi xmlns:arxiv="http://arxiv.org/schemas/atom">{record.doi}</arxiv:doi>'
        if record.doi
        else ""
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
  <link href="http://arxiv.org/api/query?id_list%3D{record.arxiv}" rel="self" type="application/atom+xml"/>
  <title type="html">ArXiv Query: search_query=&amp;id_list={record.arxiv}&amp;max_results=1</title>
  <id>http://arxiv.org/api/G79xvO0tGdRYEe8vHn0XokC5HLI</id>
  <updated>2025-08-21T00:00:00-04:00</updated>
  <opensearch:totalResults xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">1</opensearch:totalResults>
  <entry>
    <id>http://arxiv.org/abs/{record.arxiv}v3</id>
    <updated>{record.year + 1}-08-12T11:56:51Z</updated>
    <published>{record.year}-06-14T15:35:46Z</published>
    <title>{escape(record.title)}</title>
    <summary>  {escape(record.abstract or "")}
    </summary>
    {authors}
    <arxiv:comment xmlns:arxiv="http://arxiv.org/schemas/atom">12 pages, 3 figures</arxiv:comment>
    {doi}
    <link href="http://arxiv.org/abs/{record.arxiv}v3" rel="alternate" type="text/html"/>
    <arxiv:primary_category xmlns:arxiv="http://arxiv.org/schemas/atom" term="cs.LG"/>
    <category term="cs.LG" scheme="http://arxiv.org/schemas/atom"/>
    <category term="stat.ML" scheme="http://arxiv.org/schemas/atom"/>
  </entry>
</feed>"""


NO_ENTRY = '<feed xmlns="http://www.w3.org/2005/Atom"><title>ArXiv Query</title></feed>'
ERROR_ENTRY = """<feed xmlns="http://www.w3.org/2005/Atom"><entry>
<id>http://arxiv.org/api/errors#incorrect_id_format_for_1</id><title>Error</title>
<summary>incorrect id format for 1</summary></entry></feed>"""


def inverted(text):
    places = {}
    for i, word in enumerate(text.split()):
        places.setdefault(word, []).append(i)
    return places


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Ignore clients that close the connection: that is part of the test."""


class Services:
    """Works by name; `faults` of each service are used up one by one, `requests` are what was asked."""

    def __init__(self, works):
        self.works = works
        self.faults = {"arxiv": [], "openalex": [], "s2": []}
        self.requests = []
        self.lock = threading.Lock()

    def __enter__(self):
        self.server = Server(("127.0.0.1", 0), handler(self))
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def access(self, **more):
        hosts = {"arxiv": "arxiv", "openalex": "openalex", "semantic_scholar": "s2"}
        places = {name: f"{self.url}/{path}" for name, path in hosts.items()}
        return Access(**(places | {"first_wait": 0.01, "timeout": 5.0} | more))

    def in_environment(self, monkeypatch, cache):
        """Make every call of this process ask these services."""
        monkeypatch.setenv("NORMSCOPE_ARXIV_URL", f"{self.url}/arxiv")
        monkeypatch.setenv("NORMSCOPE_OPENALEX_URL", f"{self.url}/openalex")
        monkeypatch.setenv("NORMSCOPE_SEMANTICSCHOLAR_URL", f"{self.url}/s2")
        monkeypatch.setenv("NORMSCOPE_CACHE", str(cache))
        return self

    def asked(self, service):
        return [path for path, _ in self.requests if path.startswith(f"/{service}/")]

    def named(self, field, value):
        wanted = str(value).lower()
        return next(
            (each for each in self.works.values() if str(getattr(each, field)).lower() == wanted), None
        )

    # -- OpenAlex -------------------------------------------------------------------------

    def alex(self, record):
        """A work as api.openalex.org/works answers."""
        cited = [self.works[name].openalex for name in record.cites]
        preprint = f"https://doi.org/10.48550/arxiv.{record.arxiv}" if record.arxiv else None
        doi = f"https://doi.org/{record.doi}" if record.doi else preprint
        place = {
            "is_oa": True,
            "landing_page_url": doi,
            "source": {"id": "https://openalex.org/S1", "display_name": record.venue}
            if record.venue
            else None,
            "license": "cc-by",
        }
        copy = (
            {"landing_page_url": f"http://arxiv.org/abs/{record.arxiv}", "source": None}
            if record.arxiv
            else None
        )
        return {
            "id": f"https://openalex.org/{record.openalex}",
            "doi": doi,
            "ids": {"openalex": f"https://openalex.org/{record.openalex}", "mag": "2741809807"},
            "title": record.title,
            "publication_year": record.year,
            "publication_date": f"{record.year}-02-13" if record.year else None,
            "authorships": [
                {
                    "author_position": "first",
                    "author": {"id": "https://openalex.org/A1", "display_name": name},
                }
                for name in record.authors
            ],
            "primary_location": place,
            "locations": [place, *([copy] if copy else [])],
            "abstract_inverted_index": inverted(record.abstract) if record.abstract else None,
            "referenced_works": [f"https://openalex.org/{each}" for each in cited if each],
            "cited_by_count": len(self.citing(record, "openalex")) if record.arxiv else 0,
        }

    def citing(self, record, service):
        name = next(key for key, each in self.works.items() if each is record)
        return [each for each in self.works.values() if getattr(each, service) and name in each.cites]

    def alex_filter(self, condition):
        field, _, value = condition.partition(":")
        values = value.split("|")
        assert len(values) <= 100
        if field == "cites":
            return self.citing(self.named("openalex", value), "openalex")
        if field == "openalex":
            found = (self.named("openalex", each) for each in values)
            return [each for each in found if each]
        assert field == "doi"
        return [each for each in map(self.by_doi, values) if each and each.openalex]

    def by_doi(self, doi):
        if doi.lower().startswith("10.48550/arxiv."):
            found = self.named("arxiv", doi[15:])
            return found if found and not found.doi else None
        return self.named("doi", doi)

    # -- Semantic Scholar -----------------------------------------------------------------

    def paper(self, record):
        """A paper as api.semanticscholar.org/graph/v1 answers."""
        ids = {"ArXiv": record.arxiv, "DOI": record.doi, "CorpusId": id(record) % 10**9}
        return {
            "paperId": record.s2,
            "externalIds": {name: value for name, value in ids.items() if value},
            "title": record.title,
            "abstract": record.abstract,
            "venue": record.venue or "",
            "year": record.year,
            "publicationDate": None,
            "authors": [{"authorId": str(i), "name": name} for i, name in enumerate(record.authors)],
        }

    def s2_named(self, name):
        kind, colon, value = name.partition(":")
        fields = {"ARXIV": "arxiv", "DOI": "doi"}
        record = self.named(fields[kind.upper()], value) if colon else self.named("s2", name)
        return record if record and record.s2 else None


def handler(services):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, body, headers=None, length=None):
            data = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data) if length is None else length))
            self.end_headers()
            self.wfile.write(data)
            if length is not None and length > len(data):
                self.close_connection = True

        def json(self, document, status=200):
            self.answer(status, json.dumps(document))

        def do_GET(self):
            parsed = urlparse(self.path)
            service, _, path = unquote(parsed.path).strip("/").partition("/")
            query = {name: values[0] for name, values in parse_qs(parsed.query).items()}
            with services.lock:
                services.requests.append((self.path, dict(self.headers)))
                fault = services.faults[service].pop(0) if services.faults[service] else None
            if fault is not None:
                return self.fail(fault)
            return getattr(self, service)(path, query)

        def fail(self, fault):
            if isinstance(fault, bytes):
                return self.answer(200, fault)
            if fault == "cut":
                return self.answer(200, b'{"results": [', length=5000)
            if fault == "moved":
                return self.answer(302, b"", {"Location": MOVED})
            status, headers = fault if isinstance(fault, tuple) else (fault, {})
            return self.answer(status, b'{"message": "Too Many Requests", "code": "429"}', headers)

        def arxiv(self, path, query):
            assert path == "api/query"
            record = services.named("arxiv", query["id_list"])
            self.answer(200, atom(record) if record else NO_ENTRY)

        def openalex(self, path, query):
            if path == "works":
                return self.alex_list(query)
            name = path.removeprefix("works/")
            record = (
                services.by_doi(name[4:]) if name.startswith("doi:") else services.named("openalex", name)
            )
            if not record or not record.openalex:
                return self.answer(404, "<!doctype html><title>404 Not Found</title>")
            return self.json(self.selected(services.alex(record), query))

        def alex_list(self, query):
            size, page = int(query["per_page"]), int(query["page"])
            if size > 100 or size * page > 10_000:
                return self.json({"error": "Pagination error.", "message": "Maximum results size"}, 403)
            found = services.alex_filter(query["filter"])
            some = found[(page - 1) * size : page * size]
            meta = {"count": len(found), "db_response_time_ms": 12, "page": page, "per_page": size}
            return self.json(
                {"meta": meta, "results": [self.selected(services.alex(each), query) for each in some]}
            )

        def selected(self, work, query):
            return {name: value for name, value in work.items() if name in query["select"].split(",")}

        def s2(self, path, query):
            name, _, what = path.removeprefix("graph/v1/paper/").rpartition("/")
            if what not in ("references", "citations"):
                name, what = path.removeprefix("graph/v1/paper/"), None
            record = services.s2_named(name)
            if not record:
                return self.json({"error": f"Paper with id {name} not found"}, 404)
            if what is None:
                cited = {"citationCount": len(services.citing(record, "s2"))}
                return self.json(services.paper(record) | cited)
            return self.json(self.s2_page(record, what, query))

        def s2_page(self, record, what, query):
            offset, limit = int(query["offset"]), int(query["limit"])
            assert limit <= 1000 and offset + limit <= 9999
            if what == "references":
                found, field = [services.works[name] for name in record.cites], "citedPaper"
            else:
                found, field = services.citing(record, "s2"), "citingPaper"
            some = [{field: services.paper(each)} for each in found[offset : offset + limit]]
            more = {"next": offset + limit} if offset + limit < len(found) else {}
            return {"offset": offset, **more, "data": some}

    return Handler


def small_world():
    """A paper with references and citing works; not every service knows each of them."""
    text = "Norms grow. We measure the norm growth of networks. The norm growth follows a square root."
    return {
        "centre": Record(
            "Growth of norms",
            arxiv="2101.00001",
            doi="10.1000/growth",
            openalex="W1000",
            s2="a" * 40,
            abstract=text,
            venue="TACL",
            cites=["old", "older"],
        ),
        "old": Record(
            "An old work",
            ("C. Cited",),
            2015,
            doi="10.1000/old",
            openalex="W1001",
            s2="b" * 40,
            cites=["root"],
        ),
        "older": Record(
            "An older work",
            ("D. Cited",),
            2010,
            arxiv="1001.00002",
            openalex="W1002",
            s2="c" * 40,
            cites=["root"],
        ),
        "both": Record(
            "Cites all", ("E. Citer",), 2022, openalex="W1003", s2="d" * 40, cites=["centre", "old"]
        ),
        "alex": Record("Only in OpenAlex", ("F. Citer",), 2023, openalex="W1004", cites=["centre", "both"]),
        "scholar": Record("Only in Semantic Scholar", ("G. Citer",), 2024, s2="e" * 40, cites=["centre"]),
        "root": Record(
            "The root of it all", ("H. Root",), 1990, doi="10.1000/root", openalex="W1005", cites=[]
        ),
    }
