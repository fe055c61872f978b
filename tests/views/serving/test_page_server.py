"""The server of `normscope serve`: this machine alone, the token alone, reading alone."""

import gzip
import http.client
import socket

import pytest

from normscope.errors import CorruptRunFile, UsageError
from normscope.views.serving.page_server import PageAnswer, PageServer
from tests.views.serving.running import running

LONG = b"x" * 5000


def answers(path, query):
    if path == "broken":
        raise CorruptRunFile("run.db is damaged")
    return {
        "": PageAnswer(b"overview"),
        "run/a b/": PageAnswer(LONG),
        "q": PageAnswer(query.get("n", "").encode()),
    }.get(path)


@pytest.fixture(scope="module")
def server():
    with running(answers) as server:
        yield server


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.request(
        method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, dict(answer.getheaders())


def test_pages_are_below_the_token_and_nowhere_else(server):
    assert ask(server, f"/{server.token}/")[:2] == (200, b"overview")
    assert ask(server, f"/{server.token}/q?n=4")[1] == b"4"
    for path in ("/", "", "/x/", f"/{server.token[:-1]}/", f"/{server.token}x/", "/%00/"):
        assert ask(server, path)[0] in (400, 404), path
    assert ask(server, f"/{server.token}/../../etc/passwd")[0] == 404


def test_a_token_cannot_be_guessed():
    with PageServer(answers) as one, PageServer(answers) as other:
        assert one.token != other.token
        assert len(one.token) >= 24


def test_it_listens_on_the_loopback_interface_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    others = {each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in others - {"127.0.0.1"}:
        if not address.startswith("127."):
            with pytest.raises(OSError), socket.create_connection((address, server.server_address[1]), 1):
                pass


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.x", ""]
)
def test_a_name_that_a_stranger_resolves_to_this_machine_is_refused(server, host):
    assert ask(server, f"/{server.token}/", Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8700"])
def test_the_end_of_a_tunnel_is_this_machine(server, host):
    assert ask(server, f"/{server.token}/", Host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_but_reading(server, method):
    assert ask(server, f"/{server.token}/", method)[0] == 501


def test_headers_keep_pages_out_of_frames_caches_and_referrers(server):
    status, body, headers = ask(server, f"/{server.token}/", "HEAD")
    assert (status, body) == (200, b"")
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in headers


def test_long_pages_are_sent_compressed_if_the_browser_reads_that(server):
    path = f"/{server.token}/run/a%20b/"
    assert ask(server, path)[1] == LONG
    _, body, headers = ask(server, path, Accept_Encoding="gzip, br")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == LONG


def test_what_is_wrong_with_a_run_is_a_sentence(server):
    status, body, headers = ask(server, f"/{server.token}/broken")
    assert (status, body) == (500, b"run.db is damaged\n")
    assert headers["Content-Type"].startswith("text/plain")


def test_a_port_that_is_taken_is_said(server):
    with pytest.raises(UsageError, match="--port"):
        PageServer(answers, server.server_address[1])
    with pytest.raises(UsageError, match="--port"):
        PageServer(answers, 70_000)
