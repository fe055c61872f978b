"""Files behind fsspec: in memory, on a web server, and in S3 as moto serves it, with faults."""

import functools
import http.server
import threading
import urllib.request

import pytest
import torch
from safetensors.torch import save

from normscope.checkpoints import open_series
from normscope.checkpoints.ranges import range_file
from normscope.checkpoints.ranges.range_file import CHUNK, RangeFile
from normscope.checkpoints.ranges.retry import Retry, Transient
from normscope.checkpoints.storage import fsspec as fsspec_folders
from normscope.checkpoints.storage import web
from normscope.errors import CheckpointError, CorruptCheckpoint, ReplacedCheckpoint

fsspec = pytest.importorskip("fsspec")


def tensors(step):
    generator = torch.Generator().manual_seed(step)
    shapes = {"embed": (300, 64), "w": (64, 640), "b": (64,), "head": (2000, 64)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def check(series, steps):
    assert [entry.step for entry in series.entries] == steps
    for entry in series.entries:
        checkpoint = entry.open()
        for name, values in tensors(entry.step).items():
            whole = values.numpy().tobytes()
            parts = [
                checkpoint.read(name, a, min(a + 70_000, len(whole))) for a in range(0, len(whole), 70_000)
            ]
            assert b"".join(parts) == whole
        assert checkpoint.digest
        checkpoint.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for module in (fsspec_folders, web):
        monkeypatch.setattr(module, "RETRY", Retry(attempts=4, first=0.01, longest=0.05))


@pytest.fixture
def memory():
    filesystem = fsspec.filesystem("memory")
    for step in (5, 40):
        filesystem.pipe(f"/run/step_{step}/model.safetensors", save(tensors(step)))
        filesystem.pipe(f"/run/step_{step}/config.json", b"{}")
    yield filesystem
    filesystem.rm("/run", recursive=True)


def test_memory(memory):
    check(open_series("memory://run"), [5, 40])
    check(open_series("memory://run/step_40"), [40])
    check(open_series("memory://run/step_40/model.safetensors"), [40])
    check(open_series(["memory://run/step_40", "memory://run/step_5"]), [5, 40])


def test_what_is_not_there(memory):
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_series("memory://gone")
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_series("nosuchscheme://bucket/x")
    memory.pipe("/run/empty/notes.txt", b"x")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        open_series("memory://run/empty")


class Ranges(http.server.SimpleHTTPRequestHandler):
    """A web server that knows ranges, which Python's does not."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.translate_path(self.path)
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read()
        start, stop = self.headers.get("Range", f"bytes=0-{len(data) - 1}").removeprefix("bytes=").split("-")
        start, stop = int(start), min(int(stop) + 1, len(data))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        self.wfile.write(data[start:stop])


def test_a_web_server(tmp_path):
    pytest.importorskip("aiohttp")
    (tmp_path / "step_3.safetensors").write_bytes(save(tensors(3)))
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Ranges, directory=tmp_path)
    ) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        check(open_series(f"http://127.0.0.1:{server.server_address[1]}/step_3.safetensors"), [3])
        server.shutdown()


class Faulty:
    """Makes every n-th response of an application fail."""

    def __init__(self, application):
        self.application, self.faults, self.requests = application, [], []

    def __call__(self, environ, start_response):
        self.requests.append(environ["PATH_INFO"])
        is_data = environ.get("HTTP_RANGE") and environ["REQUEST_METHOD"] == "GET"
        fault = self.faults.pop(0) if is_data and self.faults else None
        if isinstance(fault, int):
            start_response(f"{fault} Busy", [("Content-Length", "0")])
            return [b""]
        answer = list(self.application(environ, start_response))
        return [b"".join(answer)[:1000]] if fault == "cut" else answer


@pytest.fixture
def s3(monkeypatch):
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    import boto3
    import s3fs
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    application = Faulty(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST")).close()
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
    client.create_bucket(Bucket="bucket")
    for step in (7, 100, 20):
        client.put_object(Bucket="bucket", Key=f"run/step_{step}.safetensors", Body=save(tensors(step)))
    client.put_object(Bucket="bucket", Key="run/README.md", Body=b"hello")
    s3fs.S3FileSystem.clear_instance_cache()
    yield application
    client.close()
    server.shutdown()
    thread.join()
    server.server_close()


def test_s3(s3):
    check(open_series("s3://bucket/run"), [7, 20, 100])
    check(open_series("s3://bucket/run/step_20.safetensors"), [20])


def test_globs_in_addresses(s3, memory):
    check(open_series("s3://bucket/run/step_*0.safetensors"), [20, 100])
    check(open_series("s3://bucket/*/step_7.*"), [7])
    check(open_series("memory://run/step_*"), [5, 40])
    check(open_series("memory://run/**/model.safetensors"), [5, 40])
    with pytest.raises(CheckpointError, match=r"matches nothing; s3://bucket/run/ has README.md, step_100"):
        open_series("s3://bucket/run/epoch_*")


def test_many_s3_folders_are_listed_with_a_few_requests(s3):
    """Also those below checkpoints/, which nobody named; not one request per folder."""
    import boto3

    client = boto3.client("s3")
    for step in range(150):
        key = f"many/checkpoints/step_{step}/model.safetensors"
        client.put_object(Bucket="bucket", Key=key, Body=save({"w": torch.ones(2, 2)}))
    client.close()
    s3.requests.clear()
    series = open_series("s3://bucket/many")
    assert [entry.step for entry in series.entries] == list(range(150))
    assert len(s3.requests) < 8
    assert series.entries[3].source == "s3://bucket/many/checkpoints/step_3/model.safetensors"


@pytest.mark.slow
@pytest.mark.parametrize("fault", [500, 503, "cut"])
def test_s3_with_faults(s3, fault):
    series = open_series("s3://bucket/run/step_20.safetensors")
    s3.faults = [fault, None, fault, fault, None, None, fault]
    check(series, [20])
    assert s3.faults == []


def put(content, **options):
    import boto3

    client = boto3.client("s3", region_name="us-east-1")
    if options.get("versions"):
        client.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    client.put_object(Bucket="bucket", Key="run/step_20.safetensors", Body=content)
    client.close()


def test_an_s3_object_that_is_replaced(s3):
    """Without versions, the ETag notices; the next scan reads the new object."""
    checkpoint = open_series("s3://bucket/run").entries[1].open()
    assert checkpoint.read("b", 0, 256) == tensors(20)["b"].numpy().tobytes()
    put(save(tensors(21)))
    with pytest.raises(ReplacedCheckpoint, match=r"s3://bucket/run/step_20\.safetensors was replaced"):
        checkpoint.read("head", 0, tensors(20)["head"].nbytes)
    again = open_series("s3://bucket/run").entries[1].open()
    assert again.digest != checkpoint.digest
    assert again.read("b", 0, 256) == tensors(21)["b"].numpy().tobytes()


def test_an_s3_object_is_read_to_the_end_where_versions_are_kept(s3):
    put(save(tensors(20)), versions=True)
    series = open_series("s3://bucket/run/step_20.safetensors")
    checkpoint = series.entries[0].open()
    listed = open_series("s3://bucket/run").entries[1].open()
    put(save(tensors(21)))
    for pinned in (checkpoint, listed):
        for name, values in tensors(20).items():
            assert pinned.read(name, 0, values.nbytes) == values.numpy().tobytes()


def test_an_s3_object_that_is_deleted(s3):
    import boto3

    checkpoint = open_series("s3://bucket/run").entries[1].open()
    client = boto3.client("s3", region_name="us-east-1")
    client.delete_object(Bucket="bucket", Key="run/step_20.safetensors")
    client.close()
    with pytest.raises(ReplacedCheckpoint, match="moved or deleted"):
        checkpoint.read("head", 0, tensors(20)["head"].nbytes)


def test_a_scan_of_a_replaced_s3_object(s3, tmp_path):
    """The run file knows the object's ETag: what was measured of another version is measured again."""
    from normscope.weights.scan.scan import scan

    scan("s3://bucket/run", tmp_path / "run.db").close()
    put(save(tensors(21)))
    with scan("s3://bucket/run", tmp_path / "run.db") as run:
        ((found,),) = run.query(
            "SELECT sumsq FROM weight JOIN tensor ON tensor = id WHERE step = 20 AND name = 'head'"
        )
    assert found == pytest.approx(tensors(21)["head"].double().square().sum().item(), rel=1e-7)


def test_a_missing_bucket(s3):
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_series("s3://nobucket/run")


class Store:
    """Bytes that are fetched by ranges, and a list of what was fetched."""

    def __init__(self, data, faults=()):
        self.data, self.faults, self.asked = data, list(faults), []

    def __call__(self, start, stop):
        fault = self.faults.pop(0) if self.faults else None
        self.asked.append((start, stop))
        if fault == "none":
            raise Transient("nothing")
        yield self.data[start : (start + stop) // 2]
        if fault == "half":
            raise Transient("cut")
        yield self.data[(start + stop) // 2 : stop]


def test_ranges_are_merged_and_edges_cached(monkeypatch):
    monkeypatch.setattr(range_file, "header_guess", range_file.HeaderGuess())
    data = bytes(range(256)) * 4096
    store = Store(data)
    file = RangeFile("f", len(data), store)
    assert bytes(file.read(10, 20)) == data[10:20]
    assert bytes(file.read(30, 5 * CHUNK + 7)) == data[30 : 5 * CHUNK + 7]
    assert bytes(file.read(5 * CHUNK + 7, 6 * CHUNK)) == data[5 * CHUNK + 7 : 6 * CHUNK]
    assert store.asked == [(0, CHUNK), (CHUNK, 6 * CHUNK)]
    with pytest.raises(CorruptCheckpoint):
        file.read(0, len(data) + 1)


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(range_file.edge_chunks, "limit", 3 * CHUNK)
    data = bytes(50 * CHUNK)
    file = RangeFile("f", len(data), Store(data))
    for chunk in range(50):
        file.read(chunk * CHUNK, chunk * CHUNK + 5)
    assert file.cached_chunks == 3
    file.close()
    assert file.cached_chunks == 0


def test_reading_continues_after_a_broken_connection():
    data = bytes(range(256)) * 256
    store = Store(data, ["half", "none", "half"])
    file = RangeFile("f", len(data), store, retry=Retry(attempts=3, first=0.001))
    assert bytes(file.read(0, len(data))) == data
    half = len(data) // 2
    assert store.asked == [
        (0, len(data)),
        (half, len(data)),
        (half, len(data)),
        (half + half // 2, len(data)),
    ]


def test_giving_up_says_so():
    store = Store(b"x" * 10, ["none"] * 10)
    with pytest.raises(CheckpointError, match="f could not be read after 3 attempts: nothing"):
        RangeFile("f", 10, store, retry=Retry(attempts=3, first=0.001)).read(0, 5)
    assert len(store.asked) == 3


def test_cached_chunks_of_one_file_are_never_used_for_another():
    for value in range(200):  # each is gone, and its memory used again, before the next is made
        assert bytes(RangeFile("f", 10, Store(bytes([value]) * 10)).read(0, 1)) == bytes([value])
