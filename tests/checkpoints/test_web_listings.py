"""Folders of web servers: index pages as nginx, Apache and Python write them, and buckets over http."""

import functools
import http.server
import os
import threading
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import save

from normscope.checkpoints import open_series
from normscope.checkpoints.ranges.retry import Retry
from normscope.checkpoints.storage import web
from normscope.checkpoints.storage.web_listing import linked_names
from normscope.errors import CheckpointError

from .crafted_server import CraftedServer
from .test_fsspec import Ranges, s3  # noqa: F401

NGINX = """<html><head><title>Index of /run/</title></head><body><h1>Index of /run/</h1><hr><pre>
<a href="../">../</a>
<a href="step_10.safetensors">step_10.safetensors</a>      02-Nov-2026 10:00   1234
<a href="step%2020/">step 20/</a>                            02-Nov-2026 10:00      -
</pre></body></html>"""
APACHE = """<table><tr><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Last modified</a></th></tr>
<tr><td><a href="/">Parent Directory</a></td></tr>
<tr><td><a href="step_10.safetensors">step_10.saf..&gt;</a></td></tr>
<tr><td><A HREF="/run/step%2020/">step 20/</A></td></tr></table>"""
HOSTILE = """<a href="http://elsewhere/run/step_1">x</a><a href="//elsewhere/run/step_2">x</a>
<a href="../run/..%2f..%2fetc/">x</a><a href="javascript:step_3">x</a><a href="a/b/step_4">x</a>
<a href="http://[">x</a><a href="//h:port/">x</a>
<a href="">x</a><a href=".">x</a><a href="/run/%2e%2e">x</a><a href="https://host/run/step_5">x</a><a>x</a>"""


@pytest.mark.parametrize("page", [NGINX, APACHE])
def test_names_in_index_pages(page):
    assert linked_names(page, "http://host/run/") == ["step 20/", "step_10.safetensors"]


def test_links_that_lead_elsewhere_do_not_count():
    assert linked_names(HOSTILE, "http://host/run/") == []


def tensors(step):
    return {"w": torch.full((8, 8), float(step)), "v": torch.ones(3, 5)}


class Pages(Ranges):
    """Files by ranges, and Python's own pages for folders."""

    def do_GET(self):  # noqa: N802
        listed = http.server.SimpleHTTPRequestHandler if self.path.endswith("/") else Ranges
        listed.do_GET(self)


@contextmanager
def serving(folder):
    handler = functools.partial(Pages, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def check(series, steps):
    assert [entry.step for entry in series.entries] == steps
    for entry in series.entries:
        found = bytes(entry.open().read("w", 0, 256))
        assert found == tensors(entry.step)["w"].numpy().tobytes()


def test_folders_of_pythons_own_pages(tmp_path):
    for step in (3, 20):
        folder = tmp_path / "my run" / "checkpoints" / f"step_{step}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(save(tensors(step)))
    with serving(tmp_path) as root:
        check(open_series(f"{root}/my%20run/"), [3, 20])
        check(open_series(f"{root}/my%20run/checkpoints/step_2*/"), [20])
        check(open_series(f"{root}/my%20run/*/step_*/*.safetensors"), [3, 20])
        with pytest.raises(CheckpointError, match="matches nothing"):
            open_series(f"{root}/my%20run/epoch_*")


def test_a_server_that_lists_nothing_says_what_to_type():
    def behaviour(r):
        r.head(403, ("Content-Length", 0))

    with (
        CraftedServer(b"", behaviour).serving() as server,
        pytest.raises(CheckpointError, match=r"cannot be listed: it answered 403.*s3://BUCKET/FOLDER"),
    ):
        open_series(f"{server.root}/run/")


def test_a_bucket_that_answers_xml(s3):  # noqa: F811
    """Its keys come in pages; the address has the bucket in its path, as those of many servers do."""
    import boto3

    root = os.environ["AWS_ENDPOINT_URL"]
    client = boto3.client("s3")
    for step in range(7):
        key = f"models/run & more/step_{step}/model.safetensors"
        client.put_object(Bucket="bucket", Key=key, Body=save(tensors(step)), ACL="public-read")
    client.close()
    check(open_series(f"{root}/bucket/models/run%20&%20more/"), list(range(7)))
    check(open_series(f"{root}/bucket/models/run%20&%20more/step_*/"), list(range(7)))


BUCKET = "<ListBucketResult><Contents><Key>run/step_1.safetensors</Key></Contents>"
TOKEN = "<NextContinuationToken>{}</NextContinuationToken></ListBucketResult>"


def page_of(text):
    """A behaviour that answers every question for keys with a text, which depends on the request's number."""

    def behaviour(r):
        found = text(r.number).encode() if "list-type" in r.path else b""
        r.head(200 if found else 404, ("Content-Type", "application/xml"), ("Content-Length", len(found)))
        r.wfile.write(found)

    return behaviour


@pytest.mark.parametrize("text", [
    lambda number: BUCKET + TOKEN.format("same"),
    lambda number: "<ListBucketResult>" + TOKEN.format(number),
])  # fmt: skip
def test_listings_that_go_on_for_ever(text):
    with CraftedServer(b"", page_of(text)).serving() as server:
        with pytest.raises(CheckpointError, match="go on without end"):
            open_series(f"{server.root}/run/")
        assert len(server.requests) < 30


def test_a_server_that_is_busy_is_asked_for_its_page_again(monkeypatch):
    monkeypatch.setattr(web, "RETRY", Retry(attempts=3, first=0.01, longest=0.01))
    page, file = b"<a href='step_1.safetensors'>x</a>", save(tensors(1))

    def behaviour(r):
        if not r.path.endswith("/"):
            r.part()
        else:
            busy = r.number < 2
            r.head(503 if busy else 200, ("Content-Type", "text/html"), ("Content-Length", len(page)))
            r.wfile.write(bytes(len(page)) if busy else page)

    with CraftedServer(file, behaviour).serving() as server:
        check(open_series(f"{server.root}/run/"), [1])


def test_a_page_that_is_cut_is_asked_for_again(monkeypatch):
    """Half a page lists half of the files."""
    monkeypatch.setattr(web, "RETRY", Retry(attempts=3, first=0.01, longest=0.01))
    page = b"<html><a href='step_1.safetensors'>1</a><a href='step_2.safetensors'>2</a></html>"
    data = save(tensors(1))

    def behaviour(r):
        if r.path.endswith("/"):
            r.head(200, ("Content-Type", "text/html"), ("Content-Length", len(page)))
            r.wfile.write(page[: 40 if r.number == 0 else None])
            r.hang_up()
        else:
            r.part()

    with CraftedServer(data, behaviour).serving() as server:
        assert [entry.step for entry in open_series(f"{server.root}/run/").entries] == [1, 2]
