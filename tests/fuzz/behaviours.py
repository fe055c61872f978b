"""What a web server may do with an answer: each entry draws what it needs, and later changes a reply with it.

`HARMLESS` ones keep an answer right. `PASSING` ones spoil it in a way that a second attempt mends (those of
`LATER` only after the first answer). `OTHERS` may end a reading. Those of `ALONE` send other bytes than were
asked for, and say so in a header or by their framing: with another change they might not say it any more.
"""

import gzip
import zlib

from .mutations import EXTREMES, damaged

HOUR = 3600


def _span(reply):
    """Start, last byte and total of a Content-Range, or numbers in their place."""
    given = reply.get("content-range").strip().removeprefix("bytes ")
    span, _, total = given.partition("/")
    start, _, last = span.partition("-")
    return [int(text) if text.isdigit() else 0 for text in (start, last, total)]


# -- what each draws --------------------------------------------------------------------


def nothing(rng):
    return []


def some(*choices):
    return lambda rng: [rng.choice(choices)]


def part(rng):
    return [round(rng.random(), 3)]


def strange_number(rng):
    return [
        str(
            rng.choice(
                (*EXTREMES, -1, -5, "", "x", "0x10", "1e3", "+5", "1_0", "٣", "5, 5", "9" * 5000, "5.0", " ")
            )
        )
    ]


def strange_text(rng):
    return [
        rng.choice(
            (
                "", '"', '""', "W/", 'W/""', "*", '"v1", "v2"', "\x01\x1b[2J", "é", "x" * 3000, "\x00", "-",
                '"a b"',
                '"../../etc"', "=1+1", "w/\"v1\"", "\x85", "\x1c", "a\rETag: b", "\u202e",
            )
        )
    ]  # fmt: skip


def strange_date(rng):
    return [
        rng.choice(
            (
                "Mon, 02 Nov 2026 10:00:00 GMT", "yesterday", "0", "", "Mon, 99 Nov 2026 10:00:00 GMT",
                "Mon, 02 Nov 0000 10:00:00 GMT", "Mon, 02 Nov 99999 10:00:00 GMT", "\x01",
                "1 Jan 1 00:00 -9999",
                "Mon, 02 Nov 2026 10:00:00 +99999999999", "Sun, 06 Nov 1994 08:49:37 -0000", "x" * 3000,
                "é", ", , ,",
                "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2359", "Nov 2026", "( ( (", "-",
            )
        )
    ]  # fmt: skip


def wait(rng):
    own = ("0", "0.01", "1", "600", "999999999", "9" * 400, "-1", "nan", "inf", "1e9", "٣", ".", "1.", "")
    return [rng.choice(own)] if rng.random() < 0.5 else strange_date(rng)


def short_wait(rng):
    return [rng.choice(("0", "0.01", "-1", "nan", "soon", "", "Thu, 01 Jan 1970 00:00:00 GMT"))]


def span_change(rng):
    kind = rng.choice(("start", "last", "total", "all", "unit", "raw"))
    if kind == "raw":
        return [kind, rng.choice(("", "bytes", "bytes */*", "bytes 0-/9", "bytes -5-9/100", "bytes 9-0/100",
        "\x00", "-",
                                  "bytes 0-0/0", "bytes=0-9/10", "bytes 0-9", "none", "bytes */0",
                                  "bytes */7",
                                  f"bytes 0-{10**18}/{10**18}", f"bytes 0-9/{'9' * 5000}",
                                  "bytes 0-4095/4096, bytes 1-2/3",
                                  "bytes ٠-٩/٩٩"))]  # fmt: skip
    if kind == "unit":
        return [kind, rng.choice(("items", "BYTES", "byte", "bytes ", "", "none"))]
    shift = rng.choice((-4096, -100, -8, -4, -1, 1, 4, 8, 100, 4096, 65536, *EXTREMES[-12:]))
    return [kind, shift]


def moved(rng):
    own = ("/moved/1", "http:/moved/1", "HTTP:/moved/1", "//:/moved/1", "user:/moved/1", "query")
    return [rng.choice(own)] if rng.random() < 0.6 else [f"/moved/{rng.randrange(1, 10)}"]


def elsewhere(rng):
    return [
        rng.choice(
            (
                "", "-", "file:///etc/passwd", "ftp://127.0.0.1/x", "http://127.0.0.1:1/x", "/loop", "?",
                "#", "..", "http://",
                "http://[", "http://[::1", "http://h:99999999/", "http://h:port/", "http://127.0.0.1:-1/", "https://127.0.0.1:1/",
                "http:///x", "//", "javascript:alert(1)", "data:,x", "/\x01\x1b[2J", "/a b",
                "/" + "a" * 60_000, "/\x7f\x00", "/é",
                "http://\x01/", "http://é.invalid/", "http://127.0.0.1:1\\@x/", "http://%31/", "/moved/12", "http://user:pw@127.0.0.1:1/",
                "http://a..b/", "http://" + "a" * 300 + "/", "http://*", "\ud83d", "http://[v1.x]/",
                "http://1::2/", "s3://b/c", "hf://a/b",
            )
        )
    ]  # fmt: skip


def sizes(rng):
    return [rng.choice((1, 7, 100, 1000, 4096, 30_000, 1 << 20))]


def header_lines(rng):
    return [
        rng.choice(
            (
                [["X-Long", "x" * 60_000]], [["X-Long", "x" * 70_000]], [[f"X-{n}", "y"] for n in range(60)],
                [[f"X-{n}", "y"] for n in range(150)], [["", "x"]], [["X\x00", "\x00\x01"]],
                [["no colon\r\nX", "y"]],
                [["X", "y\r\n folded"]], [["X", "y\rContent-Length: 3"]], [["X", "\x85\x1c\x0b\x0c"]],
                [[" X", "y"]],
                [["Set-Cookie", "a=b"], ["Set-Cookie", "c=d"]], [["Content-Type",
                "multipart/x; boundary=" + "b" * 5000]],
                [["Connection", "keep-alive, close"]], [["Keep-Alive", "timeout=0"]], [["Trailer", "ETag"]],
                [["X", "é" * 99]],
                [["Vary", "*"], ["Age", "-1"]], [["Accept-Ranges", "none"]], [["Content-Location", "http://["]],
                [["X\r\n\r\nHTTP/1.1 206 x", "y"]], [["Content-Type", "text/html; charset=\x00"]],
            )
        )
    ]  # fmt: skip


def opening(rng):
    return [
        rng.choice(
            (
                "HTTP/1.1 206", "HTTP/1.0 206 x", "HTTP/0.9 206 x", "HTTP/1.9 206 x", "HTTP/2 206 x",
                "HTTP/1.1 0206 x", "HTTP/1.1 2٠6 x",
                "HTTP/1.1 99 x", "HTTP/1.1 1000 x", "HTTP/1.1 -206 x", "HTTP/1.1", "", "206",
                "HTTP/1.1 206 " + "x" * 70_000, "\x00\x01",
                "SSH-2.0-OpenSSH", "HTTP/1.1 200 OK\rX: y", "HTTP/1.1 2_06 x", "HTTP/1.1  206  x",
                "http/1.1 206 x", "HTTP/1.1 206\x85x",
            )
        )
    ]  # fmt: skip


def interim(rng):
    return [rng.choice((100, 102, 103, 199)), rng.choice((1, 1, 2, 5, 300, 20_000))]


# -- what each does to a reply ----------------------------------------------------------


def in_chunks(reply, size, trailer=""):
    reply.framing, reply.chunk = "chunked", max(size, len(reply.body) // 500)


def until_closed(reply):
    reply.framing = "close"
    reply.drop("Content-Length")


def in_small_writes(reply, size):
    reply.piece = max(size, len(reply.body) // 200)


def short(reply, share):
    """Fewer bytes than were asked for, and honest about it."""
    if len(reply.body) > 1 and reply.get("content-range"):
        start, total = _span(reply)[0], reply.get("content-range").strip().rpartition("/")[2]
        count = max(1, int(len(reply.body) * (0.2 + 0.8 * share)))
        reply.body = reply.body[:count]
        reply.put("Content-Range", f"bytes {start}-{start + count - 1}/{total}")


def total_left_open(reply):
    if reply.get("content-range"):
        reply.put("Content-Range", reply.get("content-range").rpartition("/")[0] + "/*")


def upper_case(reply):
    reply.headers = [(key.upper(), f"  {value} ") for key, value in reply.headers]
    reply.headers = [
        (key if key != "CONTENT-LENGTH" else "Content-Length", value) for key, value in reply.headers
    ]


def put(name):
    return lambda reply, value: reply.put(name, value)


def with_status(reply, status, body=b"busy"):
    reply.status, reply.body = status, body
    reply.drop("Content-Range")


def busy(reply, status, pause):
    with_status(reply, status)
    reply.put("Retry-After", pause)


def limited(reply, status, pause):
    with_status(reply, status)
    reply.put("RateLimit", f'"api";r=0;t={pause}')


def reset(reply, share):
    reply.cut = share


def closed_early(reply, share):
    reply.cut, reply.resets = share, False


def another_length(reply, length):
    reply.headers.append(("Content-Length", length))


def shifted_length(reply, shift):
    reply.headers.append(("Content-Length", str(len(reply.body) + shift)))


def two_lengths(reply, length):
    reply.headers += [("Content-Length", str(len(reply.body))), ("Content-Length", length)]


def another_span(reply, kind, change):
    if not reply.get("content-range"):
        return
    start, last, total = _span(reply)
    if kind in ("raw", "unit"):
        text = change if kind == "raw" else f"{change} {start}-{last}/{total}"
    else:
        start += change * (kind in ("start", "all"))
        last += change * (kind in ("last", "all"))
        total += change * (kind == "total")
        text = f"bytes {start}-{last}/{total}"
    reply.put("Content-Range", text)


def second_span(reply, kind, change):
    before = reply.headers[:]
    another_span(reply, kind, change)
    reply.headers += [pair for pair in before if pair[0] == "Content-Range"]


def without(name):
    return lambda reply: reply.drop(name)


def twice(name):
    return lambda reply: reply.headers.extend([pair for pair in reply.headers if pair[0] == name])


def more_bytes(reply, size):
    reply.body += bytes(size)


def bytes_after(reply, what):
    reply.after = {"zeros": bytes(500), "line": b"\r\n"}.get(what) or reply.as_bytes("GET")


def endless(reply, what):
    reply.endless = what
    reply.drop("Content-Length")
    reply.framing = "raw" if what == "body" else "close"


def stalls(reply, share):
    reply.stall = (share, 30)


def pauses(reply, share):
    reply.stall = (share, 0.01)


def broken_chunks(reply, kind, size):
    """Chunks whose sizes are not those of the bytes that follow, or no numbers."""
    data, framing = reply.body, b""
    step = max(size, len(data) // 50 + 2)
    for number, at in enumerate(range(0, len(data), step)):
        piece = data[at : at + step]
        told = b"%x" % len(piece)
        if number == 1 or len(data) <= step:
            told = {"more": b"%x" % (len(piece) + 5), "less": b"%x" % max(1, len(piece) - 5),
            "negative": b"-5",
                    "sign": b"+5", "prefix": b"0x10", "nonsense": b"zz", "huge": b"f" * 30, "none": b"",
                    "underscore": b"1_0", "long": b"0" * 70_000, "signed": b"7fffffffffffffff"}.get(kind,
                    told)  # fmt: skip
        framing += (
            told + (b"\n" if kind == "bare" else b"\r\n") + piece + (b"" if kind == "joined" else b"\r\n")
        )
    end = (
        b""
        if kind == "unfinished"
        else b"0\r\n" + (b"X: y\r\n" * 30_000 if kind == "trailers" else b"") + b"\r\n"
    )
    reply.drop("Content-Length")
    reply.put("Transfer-Encoding", "chunked")
    reply.framing, reply.body, reply.hang_up = "raw", framing + end, True


def compressed(reply, kind):
    bodies = {"gzip": gzip.compress(reply.body, 1), "deflate": zlib.compress(reply.body, 1), "bomb": BOMB,
    "false": reply.body,
              "cut": gzip.compress(reply.body, 1)[:-20], "damaged": BOMB[:50] + bytes(50)}  # fmt: skip
    reply.body = bodies[kind]
    reply.put("Content-Encoding", "deflate" if kind == "deflate" else "gzip")


def transfer_compressed(reply, coding):
    reply.put("Transfer-Encoding", coding)
    reply.body = gzip.compress(reply.body, 1)
    reply.hang_up = True
    reply.framing = "close"


def multipart(reply):
    span = reply.get("content-range")
    reply.drop("Content-Range")
    reply.put("Content-Type", "multipart/byteranges; boundary=x")
    reply.body = (
        b"--x\r\nContent-Range: "
        + span.encode("latin-1", "replace")
        + b"\r\n\r\n"
        + reply.body
        + b"\r\n--x--\r\n"
    )


def page_bytes(reply, seed):
    """A page with damaged text: whatever it lists, and however."""
    from random import Random

    if not reply.get("content-range"):
        reply.body = damaged(Random(seed), reply.body, 3)


def more_links(reply, link):
    if b"<html" in reply.body:
        reply.body = reply.body.replace(
            b"</html>", b"<a href='" + link.encode("utf-8", "replace") + b"'>x</a></html>"
        )
    elif b"<Contents>" in reply.body:
        entry = f"<Contents><Key>{link}</Key></Contents><Contents>".encode("utf-8", "replace")
        reply.body = reply.body.replace(b"<Contents>", entry, 1)


def next_page(reply, token):
    """A listing that goes on: with the same page for ever, or with empty ones."""
    if b"</ListBucketResult>" in reply.body:
        more = (
            f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>".encode()
        )
        body = (
            b"<ListBucketResult>"
            if token.startswith("empty")
            else reply.body.replace(b"</ListBucketResult>", b"")
        )
        reply.body = body + more + b"</ListBucketResult>"


def redirect(reply, place):
    reply.redirect = place


def before(reply, status, count):
    reply.before = b"HTTP/1.1 %d Wait\r\nX: y\r\n\r\n" % status * count


def headers(reply, pairs):
    reply.headers += [tuple(pair) for pair in pairs]


def first_line(reply, text):
    reply.opening = text


BOMB = gzip.compress(bytes(1 << 24), 9)
LINKS = (
    "http://[", "//[", "http://h:x/", "step_7.safetensors", "../step_1.safetensors", "step_1.safetensors/",
    "%00", "%0a.safetensors",
    "%1b%5b2J.safetensors", "step_1%2fx.safetensors", "?x", "x" * 5000 + ".safetensors", "é", "%ff", ".",
    "..", "%2e%2e/", "/", "javascript:x",
    "http://127.0.0.1:1/step_9.safetensors", "a/b", "model.safetensors.index.json", "&#0;", "&#x110000;",
    "\x01", "%ED%A0%80", "step_1/",
)  # fmt: skip

# name: (draws, does)
HARMLESS = {
    "chunks": (sizes, in_chunks),
    "until closed": (nothing, until_closed),
    "small writes": (sizes, in_small_writes),
    "short": (part, short),
    "another case": (nothing, upper_case),
    "identity": (nothing, lambda reply: reply.put("Content-Encoding", "identity")),
    "continue": (lambda rng: [rng.choice((100, 102, 103)), rng.choice((1, 2, 5))], before),
    "hangs up": (nothing, lambda reply: setattr(reply, "hang_up", True)),
    "says that it closes": (
        nothing,
        lambda reply: (reply.put("Connection", "close"), setattr(reply, "hang_up", True)),
    ),
    "moved": (moved, redirect),
    "pauses": (part, pauses),
    "old protocol": (
        nothing,
        lambda reply: (setattr(reply, "opening", "HTTP/1.0 {status} x"), until_closed(reply)),
    ),
    "no reason": (nothing, lambda reply: setattr(reply, "opening", "HTTP/1.1 {status}")),
    "cookies": (
        nothing,
        lambda reply: headers(reply, [["Set-Cookie", "a=b"], ["Set-Cookie", "c=d"], ["Vary", "*"]]),
    ),
    "bytes after": (some("zeros", "line"), bytes_after),
}
HARMLESS_LATER = {"total left open": (nothing, total_left_open)}
PASSING = {
    "busy": (lambda rng: [rng.choice((408, 425, 429, 500, 502, 503, 504)), *short_wait(rng)], busy),
    "reset": (part, reset),
    "closed early": (part, closed_early),
    "nothing": (nothing, lambda reply: reset(reply, 0)),
    "length shifted": (some(-100, -1, 1, 100), shifted_length),
    "broken chunks": (
        lambda rng: [
            rng.choice(("more", "less", "negative", "sign", "prefix", "nonsense", "huge", "none",
            "underscore", "long",
                        "signed", "bare", "joined", "unfinished", "trailers")),
            *sizes(rng),
        ],
        broken_chunks,
    ),
    "not http": (some("", "SSH-2.0-OpenSSH", "\x00\x01", "HTTP/2 206 x", "HTTP/1.1"), first_line),
    "too many headers": (nothing, lambda reply: headers(reply, [[f"X-{n}", "y"] for n in range(150)])),
    "stalls": (part, stalls),
}  # fmt: skip
LATER = {
    "no content range": (nothing, without("Content-Range")),
    "another start": (some(-8, -1, 1, 8, 4096), lambda reply, shift: another_span(reply, "start", shift)),
    "a range elsewhere": (some(-8, -1, 1, 8, 4096), lambda reply, shift: another_span(reply, "all", shift)),
    "no etag": (nothing, without("ETag")),
    "multipart": (nothing, multipart),
    "more bytes": (some(1, 100, 100_000), more_bytes),
}
OTHERS = {
    "answer after": (some("answer"), bytes_after),
    "status": (some(101, 199, 200, 201, 203, 204, 205, 206, 226, 299, 300, 304, 305, 306, 400, 401, 403,
    404, 405, 406, 407, 409, 410,
                    411, 412, 413, 414, 416, 417, 418, 421, 423, 426, 428, 431, 451, 499, 501, 505, 507,
                    511, 520, 599, 999), with_status),
    "status alone": (some(199, 200, 203, 204, 205, 304, 412, 416, 500), lambda reply, status: setattr(reply,
    "status", status)),
    "busy for long": (lambda rng: [rng.choice((429, 503)), *wait(rng)], busy),
    "limited": (lambda rng: [rng.choice((429, 503)), *wait(rng)], limited),
    "content range": (span_change, another_span),
    "two content ranges": (span_change, second_span),
    "content length": (strange_number, another_length),
    "two content lengths": (strange_number, two_lengths),
    "etag": (strange_text, put("ETag")),
    "etag twice": (nothing, twice("ETag")),
    "range twice": (nothing, twice("Content-Range")),
    "no identity": (nothing, lambda reply: (reply.drop("ETag"), reply.drop("Last-Modified"))),
    "last modified": (strange_date, put("Last-Modified")),
    "encoding": (some("gzip", "deflate", "bomb", "false", "cut", "damaged"), compressed),
    "transfer encoding": (some("gzip", "gzip, chunked", "chunked, chunked", "Chunked ", "x", "\x00",
    "identity, gzip"), transfer_compressed),
    "moved elsewhere": (elsewhere, redirect),
    "headers": (header_lines, headers),
    "status line": (opening, first_line),
    "before": (interim, before),
    "endless": (some("body", "body", "headers"), endless),
    "page bytes": (lambda rng: [rng.randrange(1 << 30)], page_bytes),
    "links": (some(*LINKS), more_links),
    "next page": (some("same", "empty", "x&amp;y", ""), next_page),
}  # fmt: skip
ALONE = {
    "broken chunks",
    "encoding",
    "transfer encoding",
    "multipart",
    "a range elsewhere",
    "endless",
    "more bytes",
}
SLOW = {"stalls", "endless", "before"}
"""Those that may last as long as the limits allow."""
ALL = HARMLESS | HARMLESS_LATER | PASSING | LATER | OTHERS
