"""Web servers that fail, lie or drag on: the numbers are right, or there is an error that says why.

Each behaviour is a function of one request; the table says what must come of it.
"""

import gzip
import socket
import time

import pytest
import torch
from safetensors.torch import save

from normscope.checkpoints import open_series
from normscope.checkpoints.ranges import web_connections
from normscope.checkpoints.ranges.range_answers import counted
from normscope.checkpoints.ranges.retry import Retry, fetch_all
from normscope.checkpoints.storage import web
from normscope.errors import CheckpointError, ReplacedCheckpoint

from .crafted_server import NEW, OLD, CraftedServer

PATIENT = Retry(attempts=4, first=0.01, longest=0.02)
QUICK = Retry(attempts=2, first=0.01, longest=0.02, idle=0.3, answer=0.6, slowest=10_000_000)


def tensors(seed=3):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"embed": (300, 64), "w": (64, 640), "b": (64,), "head": (2000, 64)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


DATA, OTHER = save(tensors(3)), save(tensors(4))


# -- servers whose files are read -------------------------------------------------------


def honest(r):
    if r.headers.get("If-Match", r.etag) != r.etag:
        r.head(412, ("Content-Length", 0))
    else:
        r.part()


def weak_etag(r):
    r.etag, r.modified = 'W/"v1"', OLD
    assert "If-Match" not in r.headers, "If-Match never matches a weak ETag"
    assert r.number == 0 or r.headers["If-Unmodified-Since"] == OLD
    r.part()


def unquoted_etag(r):
    r.etag = "v1"
    assert "If-Match" not in r.headers
    r.part()


def only_last_modified(r):
    r.etag, r.modified = "", OLD
    r.part()


def no_identity(r):
    r.etag = ""
    r.part()


def another_date_beside_an_equal_etag(r):
    r.modified = OLD if r.number % 2 else NEW
    r.part()


def parts_of_at_most_30000_bytes(r):
    start, stop = r.asked
    stop = min(stop, start + 30_000)
    r.part(body=r.data[start:stop], span=f"bytes {start}-{stop - 1}/{len(r.data)}")


def chunked(r):
    start, stop = r.asked
    r.head(
        206, ("Transfer-Encoding", "chunked"), ("ETag", r.etag),
        ("Content-Range", f"bytes {start}-{stop - 1}/{len(r.data)}"),
    )  # fmt: skip
    for at in range(start, stop, 10_000):
        piece = r.data[at : min(at + 10_000, stop)]
        r.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    r.wfile.write(b"0\r\n\r\n")


def closes_and_says_so(r):
    r.part(("Connection", "close"))
    r.hang_up()


def closes_without_a_word(r):
    r.part()
    r.hang_up()


def no_length_and_closes(r):
    r.part(length="")
    r.hang_up()


def total_left_open_later(r):
    start, stop = r.asked
    r.part(span=f"bytes {start}-{stop - 1}/*" if r.number else None)


def identity_encoding(r):
    r.part(("Content-Encoding", "identity"))


def cut_every_second_time(r):
    start, stop = r.asked
    if r.number % 2:
        r.part(body=r.data[start : (start + stop) // 2], length=stop - start)
        r.hang_up()
    else:
        r.part()


def busy_every_second_time(r):
    if r.number % 2 == 0:
        r.head(503, ("Content-Length", 4))
        r.wfile.write(b"busy")
    else:
        r.part()


def redirected_on_the_same_server(r):
    if not r.path.startswith("/elsewhere"):
        r.head(307, ("Location", "/elsewhere/x"), ("Content-Length", 0))
    else:
        r.part()


def redirected_to_an_address_that_expires(r):
    if not r.path.startswith("/signed"):
        r.head(302, ("Location", f"/signed/{r.number}"), ("Content-Length", 0))
    elif r.number > int(r.path.rsplit("/", 1)[1]) + 2:
        r.head(403, ("Content-Length", 0))
    else:
        r.part()


def early_hints(r):
    r.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n" * 3)
    r.part()


def spaces_around_values(r):
    start, stop = r.asked
    r.part(span=f"  bytes {start}-{stop - 1}/{len(r.data)}  ")


def in_chunks(r, sizes, end=b"0\r\n\r\n"):
    """The range in two chunks, and what is said of their sizes: functions of them."""
    start, stop = r.asked
    span = f"bytes {start}-{stop - 1}/{len(r.data)}"
    r.head(206, ("Transfer-Encoding", "chunked"), ("ETag", r.etag), ("Content-Range", span))
    middle = (start + stop) // 2
    for told, piece in zip(sizes, (r.data[start:middle], r.data[middle:stop]), strict=True):
        r.wfile.write(told(len(piece)) + b"\r\n" + piece + b"\r\n")
    r.wfile.write(end)
    r.hang_up()


def exactly(size):
    return b"%x" % size


def chunks_that_are_longer_than_they_say(r):
    in_chunks(r, [lambda size: b"%x" % (size - 5), exactly])


def chunks_that_are_shorter_than_they_say(r):
    in_chunks(r, [lambda size: b"%x" % (size + 5), exactly], b"")


def wrong_chunks_every_second_time(r):
    broken = (chunks_that_are_longer_than_they_say, chunks_that_are_shorter_than_they_say)
    broken[r.number // 2 % 2](r) if r.number % 2 else r.part()


def cut_in_the_headers(r):
    start, stop = r.asked
    r.wfile.write(
        f"HTTP/1.1 206 Part\r\nETag: {r.etag}\r\nContent-Range: bytes {start}-{stop - 1}/12".encode()
    )
    r.hang_up()


def cut_in_the_headers_every_second_time(r):
    cut_in_the_headers(r) if r.number % 2 == 0 else r.part()


RIGHT = [
    early_hints, spaces_around_values, wrong_chunks_every_second_time, cut_in_the_headers_every_second_time,
    honest, weak_etag, unquoted_etag, only_last_modified, no_identity, another_date_beside_an_equal_etag,
    parts_of_at_most_30000_bytes, chunked, closes_and_says_so, closes_without_a_word, no_length_and_closes,
    total_left_open_later, identity_encoding, cut_every_second_time, busy_every_second_time,
    redirected_on_the_same_server, redirected_to_an_address_that_expires,
]  # fmt: skip


# -- files that are replaced ------------------------------------------------------------


def replaced_and_honest(r):
    if r.number:
        r.data, r.etag = OTHER, '"v2"'
    honest(r)


def replaced_and_conditions_ignored(r):
    if r.number:
        r.data, r.etag = OTHER, '"v2"'
    r.part()


def replaced_under_a_weak_etag(r):
    r.etag = 'W/"v2"' if r.number else 'W/"v1"'
    r.data = OTHER if r.number else DATA
    r.part()


def replaced_with_another_date(r):
    r.etag, r.modified = "", NEW if r.number else OLD
    r.data = OTHER if r.number else DATA
    r.part()


def replaced_by_a_longer_file(r):
    r.etag = ""
    r.data = DATA + bytes(100) if r.number else DATA
    r.part()


def replaced_by_a_shorter_file(r):
    r.etag = ""
    if r.number:
        r.head(416, ("Content-Range", "bytes */100"), ("Content-Length", 0))
    else:
        r.part()


def deleted(r):
    r.head(404, ("Content-Length", 0)) if r.number else r.part()


def replaced_where_it_redirects_to(r):
    if not r.path.startswith("/v"):
        r.head(302, ("Location", "/v/x"), ("Content-Length", 0))
    else:
        r.etag, r.data = ('"v2"', OTHER) if r.number > 1 else ('"v1"', DATA)
        r.part()


REPLACED = [
    replaced_and_honest, replaced_and_conditions_ignored, replaced_under_a_weak_etag,
    replaced_with_another_date, replaced_by_a_longer_file, replaced_by_a_shorter_file, deleted,
    replaced_where_it_redirects_to,
]  # fmt: skip


# -- answers that are not believed ------------------------------------------------------


def first_answer_honest(behaviour):
    """The behaviour, after a first answer that looks well."""

    def later(r):
        r.part() if r.number == 0 else behaviour(r)

    later.__name__ = behaviour.__name__
    return later


def etag_is_left_out(r):
    r.part(identity=False)


def another_range(r):
    start, stop = r.asked
    r.part(body=r.data[: stop - start], span=f"bytes 0-{stop - start - 1}/{len(r.data)}")


def range_of_the_right_length_elsewhere(r):
    start, stop = r.asked
    r.part(span=f"bytes {start + 4}-{stop + 3}/{len(r.data)}")


def range_that_ends_too_late(r):
    start, stop = r.asked
    r.part(span=f"bytes {start}-{stop + 9}/{len(r.data)}")


def no_content_range(r):
    r.part(span="")


def content_range_is_nonsense(r):
    r.part(span="bytes one-two/three")


def content_range_in_other_units(r):
    start, stop = r.asked
    r.part(span=f"items {start}-{stop - 1}/{len(r.data)}")


def two_content_ranges(r):
    r.part(("Content-Range", "bytes 0-9/10"))


def two_content_lengths(r):
    r.part(("Content-Length", "7"))


def two_etags(r):
    r.part(("ETag", '"v2"'))


def multipart(r):
    r.part(("Content-Type", "multipart/byteranges; boundary=x"), span="")


def endless(r):
    r.part(length="")
    r.hang_up()
    for _ in range(100_000):
        r.wfile.write(bytes(1 << 20))


def endless_chunks(r):
    start, stop = r.asked
    span = f"bytes {start}-{stop - 1}/{len(r.data)}"
    r.head(206, ("Transfer-Encoding", "chunked"), ("ETag", r.etag), ("Content-Range", span))
    for _ in range(100_000):
        r.wfile.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")


def endless_trailers(r):
    start, stop = r.asked
    span = f"bytes {start}-{stop - 1}/{len(r.data)}"
    r.head(206, ("Transfer-Encoding", "chunked"), ("ETag", r.etag), ("Content-Range", span))
    r.wfile.write(b"5\r\n12345\r\n0\r\n")
    for _ in range(100_000_000):
        r.wfile.write(b"X-More: yes\r\n" * 1000)


def longer_than_the_range(r):
    start, stop = r.asked
    r.part(body=r.data[start:stop] + b"more")


def a_negative_length(r):
    r.part(length="-5")


def a_huge_length(r):
    r.part(length="9" * 40)


def a_negative_chunk(r):
    start, stop = r.asked
    span = f"bytes {start}-{stop - 1}/{len(r.data)}"
    r.head(206, ("Transfer-Encoding", "chunked"), ("ETag", r.etag), ("Content-Range", span))
    r.wfile.write(b"-5\r\n" + bytes(300))
    r.hang_up()


def sizes_with_a_sign(r):
    in_chunks(r, [lambda size: b"+%x" % size, exactly])


def sizes_with_a_prefix(r):
    in_chunks(r, [lambda size: b"0x%x" % size, exactly])


def neither_version_nor_length(r):
    start, stop = r.asked
    r.part(span=f"bytes {start}-{stop - 1}/*", identity=False)


def redirected_to_half_an_address(r):
    r.head(302, ("Location", "http://["), ("Content-Length", 0))


def redirected_to_a_port_that_is_no_number(r):
    r.head(302, ("Location", "http://127.0.0.1:port/"), ("Content-Length", 0))


def control_characters(r):
    r.part(span="\x1b[2Jbytes\x07")


def chunks_of_nonsense(r):
    start, stop = r.asked
    span = f"bytes {start}-{stop - 1}/{len(r.data)}"
    r.head(206, ("Transfer-Encoding", "chunked"), ("ETag", r.etag), ("Content-Range", span))
    r.wfile.write(b"zz\r\n" + bytes(300))
    r.hang_up()


def one_byte_per_connection(r):
    start, stop = r.asked
    r.part(body=r.data[start : start + 1], length=stop - start)
    r.hang_up()


def whole_file_later(r):
    r.part(status=200, span="", body=r.data)


def gzip_encoded(r):
    start, stop = r.asked
    r.part(("Content-Encoding", "gzip"), body=gzip.compress(r.data[start:stop]))


def deflate_encoded(r):
    r.part(("Content-Encoding", "deflate"))


def gzip_as_a_transfer_encoding(r):
    r.part(("Transfer-Encoding", "gzip, chunked"))


def drip_in_the_body(r):
    start, stop = r.asked
    r.part(body=b"", length=stop - start)
    r.drip(r.data[start:stop])


def drip_in_the_headers(r):
    r.drip(b"HTTP/1.1 206 Partial\r\n" + b"X-Long: " + b"x" * 10_000)


def silence(r):
    time.sleep(2)
    r.hang_up()


def silence_in_the_body(r):
    start, stop = r.asked
    r.part(body=b"", length=stop - start)
    time.sleep(2)
    r.hang_up()


def endless_headers(r):
    r.wfile.write(b"HTTP/1.1 206 Partial\r\n")
    for n in range(100_000):
        r.wfile.write(b"X-%d: yes\r\n" % n)


def a_header_of_a_megabyte(r):
    r.part(("X-Long", "x" * (1 << 20)))


def continue_without_end(r):
    for _ in range(100_000_000):
        r.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def switches_to_another_protocol(r):
    r.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n")
    r.part()


def not_http(r):
    r.wfile.write(b"\x00\x01SSH-2.0-OpenSSH\r\n" * 10)
    r.hang_up()


def closes_at_once(r):
    r.hang_up()


def never_recovers(r):
    r.head(500, ("Content-Length", 0))


def denied_later(r):
    r.head(403, ("Content-Length", 0))


def no_content(r):
    r.head(204)


def not_modified(r):
    r.head(304)


def redirected_to_a_file(r):
    r.head(302, ("Location", "file:///etc/passwd"), ("Content-Length", 0))


def redirected_to_ftp(r):
    r.head(302, ("Location", "ftp://127.0.0.1/x"), ("Content-Length", 0))


def redirected_to_nowhere(r):
    r.head(302, ("Content-Length", 0))


def redirected_in_a_circle(r):
    r.head(307, ("Location", f"/{r.number}"), ("Content-Length", 0))


NOT_BELIEVED = {
    etag_is_left_out: "no ETag",
    another_range: "sent bytes 0-",
    range_of_the_right_length_elsewhere: "the server sent bytes",
    range_that_ends_too_late: "the server sent bytes",
    no_content_range: "an unknown range",
    content_range_is_nonsense: "one-two/three",
    content_range_in_other_units: "items",
    two_content_ranges: "bytes 0-9/10",
    two_content_lengths: "announced",
    two_etags: "was replaced",
    multipart: "an unknown range",
    endless: "more bytes than requested",
    endless_chunks: "more bytes than requested",
    endless_trailers: "more than 100 lines",
    longer_than_the_range: "announced",
    a_negative_length: "announced -5",
    a_huge_length: "announced 999",
    a_negative_chunk: "other sizes than it says",
    chunks_that_are_longer_than_they_say: "other sizes than it says",
    sizes_with_a_sign: "other sizes than it says",
    sizes_with_a_prefix: "other sizes than it says",
    cut_in_the_headers: "ended in its headers",
    control_characters: r"x1b\[2Jbytes",
    redirected_to_half_an_address: "only https:// and http://",
    redirected_to_a_port_that_is_no_number: "only https:// and http://",
    chunks_of_nonsense: "after 2 attempts",
    one_byte_per_connection: "after 2 attempts",
    whole_file_later: "ignores range requests",
    gzip_encoded: r"compressed \(gzip\)",
    deflate_encoded: r"compressed \(deflate\)",
    gzip_as_a_transfer_encoding: "compressed",
    drip_in_the_body: "took too long",
    drip_in_the_headers: "took too long",
    silence: "sent nothing for 0.3 seconds",
    silence_in_the_body: "sent nothing for 0.3 seconds",
    endless_headers: "more than 100 headers",
    a_header_of_a_megabyte: "header line",
    continue_without_end: "after 2 attempts",
    switches_to_another_protocol: "answered 101",
    not_http: "after 2 attempts",
    closes_at_once: "after 2 attempts",
    never_recovers: "after 2 attempts: the server answered 500",
    denied_later: r"denies access \(it answered 403\)",
    no_content: "answered 204",
    not_modified: "answered 304",
    redirected_to_a_file: "only https:// and http://",
    redirected_to_ftp: "only https:// and http://",
    redirected_to_nowhere: "redirects to nowhere",
    redirected_in_a_circle: "more than 10 times",
}


# -- first answers that are refused -----------------------------------------------------


def whole_file(r):
    r.part(status=200, span="", body=r.data)


def whole_file_of_unknown_length(r):
    r.part(status=200, span="", body=r.data, length="")
    r.hang_up()


def unknown_total(r):
    start, stop = r.asked
    r.part(span=f"bytes {start}-{stop - 1}/*")


def not_found(r):
    r.head(404, ("Content-Length", 0))


def unauthorized(r):
    r.head(401, ("Content-Length", 0))


def empty(r):
    r.head(416, ("Content-Range", "bytes */0"), ("Content-Length", 0))


def beginning_cannot_be_read(r):
    r.head(416, ("Content-Range", "bytes */50000"), ("Content-Length", 0))


REFUSED = {
    whole_file: "ignores range requests. Download it first",
    whole_file_of_unknown_length: "does not say how large",
    unknown_total: "does not say how large",
    not_found: "does not have it",
    unauthorized: "denies access",
    empty: "step_3",
    beginning_cannot_be_read: "416",
    **{each: text for each, text in NOT_BELIEVED.items() if each not in (etag_is_left_out, two_etags)},
}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(web, "RETRY", PATIENT)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(web, "RETRY", QUICK)


def read_all(url):
    (entry,) = open_series(url).entries
    checkpoint = entry.open()
    found = {
        name: b"".join(
            bytes(checkpoint.read(name, at, min(at + 70_000, tensor.nbytes)))
            for at in range(0, tensor.nbytes, 70_000)
        )
        for name, tensor in checkpoint.tensors.items()
    }
    checkpoint.close()
    return found


def named(behaviours):
    return {"argvalues": list(behaviours), "ids": lambda each: getattr(each, "__name__", "")}


@pytest.mark.parametrize("behaviour", **named(RIGHT))
def test_files_that_are_read(behaviour):
    with CraftedServer(DATA, behaviour).serving() as server:
        assert read_all(server.url) == {name: value.numpy().tobytes() for name, value in tensors().items()}


@pytest.mark.parametrize("behaviour", **named(REPLACED))
def test_files_that_are_replaced(behaviour):
    with (
        CraftedServer(DATA, behaviour).serving() as server,
        pytest.raises(ReplacedCheckpoint, match=r"step_3\.safetensors was replaced while it was read"),
    ):
        read_all(server.url)


@pytest.mark.parametrize("behaviour", **named(NOT_BELIEVED))
def test_answers_that_are_not_believed(quick, behaviour):
    started = time.monotonic()
    with (
        CraftedServer(DATA, first_answer_honest(behaviour)).serving() as server,
        pytest.raises(CheckpointError, match=NOT_BELIEVED[behaviour]) as error,
    ):
        read_all(server.url)
    assert "step_3.safetensors" in str(error.value)
    assert len(str(error.value)) < 500
    assert str(error.value).isprintable()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("behaviour", **named(REFUSED))
def test_first_answers_that_are_refused(quick, behaviour):
    started = time.monotonic()
    with (
        CraftedServer(DATA, behaviour).serving() as server,
        pytest.raises(CheckpointError, match=REFUSED[behaviour]),
    ):
        read_all(server.url)
    assert time.monotonic() - started < 10


def test_a_length_is_needed_where_nothing_else_tells_versions_apart():
    """Without ETag, date and length, a longer file in its place would go unnoticed."""

    def behaviour(r):
        r.part(identity=False) if r.number == 0 else neither_version_nor_length(r)

    with (
        CraftedServer(DATA, behaviour).serving() as server,
        pytest.raises(CheckpointError, match="neither which version it is of nor how long"),
    ):
        read_all(server.url)


def test_a_connection_on_which_something_waits_is_not_used_again():
    """What arrives before a request is not its answer."""
    ours, theirs = socket.socketpair()
    timed = web_connections._TimedSocket(ours, web_connections.TimeLimits(1, time.monotonic() + 1))
    with ours, theirs:
        assert timed.silent
        theirs.sendall(b"HTTP/1.1 206 Another\r\n")
        assert not timed.silent


def test_answers_that_are_always_too_slow_are_given_up():
    """Although each of them brings a part of what is left."""

    def fetch(start, stop):
        return counted([bytes(1 + (stop - start) // 4)], stop - start, deadline=0.0)

    with pytest.raises(CheckpointError, match="took too long"):
        fetch_all(fetch, "x", 0, 1000, Retry(attempts=3, first=0.001, longest=0.001))
