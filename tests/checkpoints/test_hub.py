"""Hugging Face repositories through the real client, from a server that fails on demand."""

import contextlib
import hashlib
import importlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from normscope.checkpoints import open_series
from normscope.checkpoints.ranges import range_file
from normscope.checkpoints.ranges.retry import Retry
from normscope.checkpoints.storage import hub_files
from normscope.checkpoints.storage.hub import parse_address
from normscope.checkpoints.storage.hub_listing import step_in_message
from normscope.errors import CheckpointError, ReplacedCheckpoint, UsageError

from .hub_server import Hub

huggingface_hub = pytest.importorskip("huggingface_hub")


def tensors(step):
    generator = torch.Generator().manual_seed(step)
    shapes = {"embed": (300, 64), "layer.w": (64, 640), "layer.b": (64,), "norm": (64,), "head": (3000, 64)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def pytorch_bytes(step, tmp_path, **options):
    torch.save({"model": tensors(step)}, tmp_path / "m.bin", **options)
    return (tmp_path / "m.bin").read_bytes()


@pytest.fixture
def hub(monkeypatch):
    revisions = {
        f"step{step}": {
            "config.json": b"{}",
            "model.safetensors": save(tensors(step)),
            "README.md": b"#",
            "a.txt": b"",
        }
        for step in (0, 1000, 512)
    }
    revisions["main"] = revisions["step1000"]
    with Hub({"owner/name": revisions}) as server:
        constants = importlib.import_module("huggingface_hub.constants")
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(hub_files, "RETRY", Retry(attempts=4, first=0.01, longest=0.05))
        monkeypatch.setenv("HF_TOKEN", "hf_secret_token")
        yield server
        huggingface_hub.close_session()


def read_all(checkpoint, block=50_000):
    found = {}
    for name, tensor in checkpoint.tensors.items():
        parts = (
            checkpoint.read(name, a, min(a + block, tensor.nbytes)) for a in range(0, tensor.nbytes, block)
        )
        found[name] = b"".join(parts)
    return found


def expected(step):
    return {name: values.numpy().tobytes() for name, values in tensors(step).items()}


def test_revisions_make_a_series(hub):
    series = open_series("hf://owner/name", revisions="step*")
    assert [entry.step for entry in series.entries] == [0, 512, 1000]
    assert series.entries[1].source == "hf://owner/name@step512/model.safetensors"
    for entry in series.entries:
        checkpoint = entry.open()
        assert read_all(checkpoint) == expected(entry.step)
        assert len(checkpoint.digest) == 64
    assert not hub.fetched_twice()


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["shards", "numpy_2", "jax_tuple", "t5x"])
def test_trees_of_flax_and_jax(hub, layout):
    """Msgpack, pickles and T5X's mixture, by ranges, against the same files in a folder."""
    if layout == "t5x":
        pytest.importorskip("tensorstore")
    folder = Path(__file__).parent / "fixtures" / "flax" / layout
    files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    hub.repositories["owner/trees"] = {"main": files}
    here, there = open_series(folder).entries, open_series("hf://owner/trees").entries
    assert [entry.step for entry in here] == [entry.step for entry in there]
    for ours, remote in zip(here, there, strict=True):
        opened = remote.open()
        assert read_all(opened) == read_all(ours.open())
        opened.close()


def test_headers_come_first(hub, monkeypatch):
    """The first file is asked for 64 kB, the next ones for as much as its header took."""
    monkeypatch.setattr(range_file, "header_guess", range_file.HeaderGuess())
    for entry in open_series("hf://owner/name", revisions=["step0", "step51*"]).entries:
        entry.open()
    assert sorted(stop - start for _, start, stop in hub.sent) == [4096, 64 * 1024]
    assert sum(path.startswith("/storage") for _, path in hub.requests) == 2


def test_addresses(hub):
    assert [e.step for e in open_series("hf://owner/name@step512").entries] == [512]
    with pytest.raises(CheckpointError, match="--steps"):
        open_series("hf://owner/name")
    assert [e.step for e in open_series("hf://owner/name", steps=[7]).entries] == [7]


@pytest.mark.parametrize("fault", ["cut", "short", "long", "wrong range", 500, 503, (429, "0")], ids=str)
def test_faults_change_no_number(hub, fault):
    (entry,) = open_series("hf://owner/name", revisions="step512").entries
    hub.faults = [fault, None, fault, None, None, fault, fault]
    assert read_all(entry.open()) == expected(512)
    assert hub.faults == []
    assert not hub.fetched_twice(), "what arrived was fetched again"


def test_retry_after_is_obeyed(hub):
    (entry,) = open_series("hf://owner/name", revisions="step0").entries
    hub.faults = [(429, "1")]
    started = time.monotonic()
    entry.open()
    assert time.monotonic() - started >= 1


def test_the_api_may_be_busy_too(hub):
    hub.api_faults = [500, 429, 503]
    (entry,) = open_series("hf://owner/name", revisions="step0").entries
    hub.api_faults = [502]
    assert read_all(entry.open()) == expected(0)


def test_an_expired_address_is_asked_for_again(hub):
    (entry,) = open_series("hf://owner/name", revisions="step0").entries
    checkpoint = entry.open()
    hub.expired.add(hub.locations)
    assert read_all(checkpoint) == expected(0)


def test_a_server_that_never_recovers(hub):
    (entry,) = open_series("hf://owner/name", revisions="step0").entries
    hub.faults = [500] * 50
    with pytest.raises(CheckpointError, match="after 4 attempts: the server answered 500"):
        entry.open()


def test_what_is_not_there(hub):
    with pytest.raises(CheckpointError, match="no revision that matches nope"):
        open_series("hf://owner/name", revisions="nope*")
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_series("hf://owner/other")
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_series("hf://owner/name@gone")


@pytest.mark.parametrize("options", [{"steps": [7]}, {"revisions": "main", "steps": [7]}], ids=str)
def test_a_branch_that_moves_is_read_at_one_commit(hub, options):
    """Headers, data and a file opened later are all of the commit that was resolved once."""
    series = open_series("hf://owner/name", **options)
    checkpoint = series.entries[0].open()
    hub.repositories["owner/name"]["main"] = {"model.safetensors": save(tensors(99))}
    assert read_all(checkpoint) == expected(1000)
    assert read_all(series.entries[0].open()) == expected(1000)
    resolved = [path for _, path in hub.requests if "/resolve/" in path or "/tree/" in path]
    assert resolved
    assert not any("/main" in path for path in resolved)
    assert sum(path.endswith("/revision/main") for _, path in hub.requests) == ("revisions" not in options)


def test_a_scan_while_a_branch_moves(hub, tmp_path):
    """The rows are of one commit; the next scan sees that the branch has moved, and measures it again."""
    from normscope.weights.scan.scan import scan

    def moved(done, total, note):
        hub.repositories["owner/name"]["step512"] = {"model.safetensors": save(tensors(99))}

    def sumsq(run):
        sql = "SELECT step, sumsq FROM weight JOIN tensor ON tensor = id WHERE name = 'head' ORDER BY step"
        return [value for _, value in run.query(sql)]

    def true(*steps):
        return [pytest.approx(tensors(s)["head"].double().square().sum().item(), rel=1e-7) for s in steps]

    with scan("hf://owner/name", tmp_path / "run.db", revisions="step*", progress=moved) as run:
        assert sumsq(run) == true(0, 512, 1000)
    with scan("hf://owner/name", tmp_path / "run.db", revisions="step*") as run:
        assert sumsq(run) == true(0, 99, 1000)


def test_a_commit_is_not_resolved(hub):
    commit = hub.commit("owner/name", "step512")
    (entry,) = open_series(f"hf://owner/name@{commit}", steps=[7]).entries
    assert read_all(entry.open()) == expected(512)
    assert not any("/revision/" in path for _, path in hub.requests)


@pytest.mark.parametrize("xet", [True, False])
def test_files_in_xet_storage_are_read_by_ranges_too(hub, xet):
    hub.xet = xet
    (entry,) = open_series("hf://owner/name", revisions="step512").entries
    assert read_all(entry.open()) == expected(512)


def test_listings_come_in_pages(hub):
    hub.page = 1
    assert [entry.step for entry in open_series("hf://owner/name", revisions="step*").entries] == [
        0,
        512,
        1000,
    ]
    assert sum("/refs?" in path and "cursor" in path for _, path in hub.requests) == 3


def test_a_listing_does_not_lead_the_token_to_another_host(hub):
    hub.next_host = hub.storage_url
    with pytest.raises(CheckpointError, match="its listing continues on another host"):
        open_series("hf://owner/name", revisions="step*")
    assert all(path.count("cursor") == 0 for _, path in hub.requests)


def test_the_hub_calls_a_file_by_another_hash_than_it_listed(hub, monkeypatch):
    (entry,) = open_series("hf://owner/name", revisions="step512").entries
    commit = hub.commit("owner/name", "step512")
    hub.snapshots[commit]["model.safetensors"] = save(tensors(99))
    with pytest.raises(ReplacedCheckpoint, match="its hash was"):
        entry.open()


def test_folders_of_checkpoints_are_found_and_matched(hub):
    files = {f"checkpoints/step_{s}/model.safetensors": save(tensors(s)) for s in (1, 20, 3)}
    hub.repositories["owner/folders"] = {"main": {**files, "README.md": b"#", "config.json": b"{}"}}
    for address in ("hf://owner/folders", "hf://owner/folders/checkpoints", "hf://owner/folders@main"):
        assert [entry.step for entry in open_series(address).entries] == [1, 3, 20]
    series = open_series("hf://owner/folders/checkpoints/step_?*/*.safetensors")
    assert [entry.step for entry in series.entries] == [1, 3, 20]
    assert [e.step for e in open_series("hf://owner/folders/checkpoints/step_2*").entries] == [20]
    assert read_all(open_series("hf://owner/folders").entries[1].open()) == expected(3)


def test_empty_files_and_names_of_one_letter_are_files(hub):
    files = {"model.safetensors": save(tensors(7)), ".gitattributes": b"", "a": b"", "b": b"x"}
    hub.repositories["owner/small"] = {"step7": files}
    (entry,) = open_series("hf://owner/small", revisions="step7").entries
    assert read_all(entry.open()) == expected(7)


TITLES = {
    "Training in progress, step 500": 500,
    "step 1,000": 1000,
    "Upload checkpoint-2000 with huggingface_hub": 2000,
    "iter_0030": 30,
    "initial commit": None,
    "End of training": None,
    "Fix steps 1 and 2": 1,
    "step 5 of run, step 6": None,
    "version 1.5": None,
    "step 1.5 of the plan": None,
}


@pytest.mark.parametrize(("title", "step"), TITLES.items())
def test_steps_in_the_messages_of_commits(title, step):
    assert step_in_message(title) == step


def test_commits_of_a_branch_make_a_series(hub, tmp_path):
    """The latest commit of a step is read; the others are named; the addresses can be opened again."""
    from normscope.weights.scan.scan import scan

    def model(step):
        return {"model.safetensors": save(tensors(step)), "README.md": b"#"}

    hub.history["main"] = [
        ("End of training", model(9)),
        ("Training in progress, step 1000", model(1000)),
        ("Training in progress, step 500", model(500)),
        ("step 250: only the card", {"README.md": b"# 250"}),
        ("Training in progress, step 500 ", model(7)),
        ("initial commit", {"README.md": b""}),
    ]
    series = open_series("hf://owner/name", revisions="commits:main")
    assert [entry.step for entry in series.entries] == [500, 1000]
    for entry in series.entries:
        assert read_all(entry.open()) == expected(entry.step)
        again = open_series(entry.source, steps=[entry.step]).entries[0]
        assert read_all(again.open()) == expected(entry.step)
    assert [each.label for each in series.left_out] == ["step250"]
    assert "3 commits of hf://owner/name@main are left out" in series.notes[0]
    assert "'End of training'" in series.notes[0]
    scan("hf://owner/name", tmp_path / "run.db", revisions="commits:main").close()
    hub.history["main"] = [("Upload model", model(1))]
    with pytest.raises(CheckpointError, match="names a step in its message.*'Upload model'"):
        open_series("hf://owner/name", revisions="commits:")


def test_a_model_without_a_step_tells_how_series_are_named(hub):
    with pytest.raises(CheckpointError, match="commits:BRANCH"):
        open_series("hf://owner/name", revisions="epoch*")
    with pytest.raises(CheckpointError, match=r"--revisions 'step\*'.*--revisions commits:main"):
        open_series("hf://owner/name")


def test_a_gated_repository_whose_small_files_are_redirected(hub):
    """The token follows relative redirects on the hub; the server refuses it at the storage."""
    hub.gated = "Log in."
    hub.small = {"model.safetensors"}
    (entry,) = open_series("hf://owner/name", revisions="step512").entries
    assert read_all(entry.open()) == expected(512)
    assert any("/resolve-cache/" in path for method, path in hub.requests if method == "GET")
    hub.small = set()
    (entry,) = open_series("hf://owner/name", revisions="step0").entries
    assert read_all(entry.open()) == expected(0)


def test_a_gated_repository_without_a_token(hub, monkeypatch):
    hub.gated = "Please log in."
    monkeypatch.setenv("HF_TOKEN", "hf_wrong_token")
    with pytest.raises(CheckpointError, match=r"Cannot access gated repo.*Please log in\.") as error:
        open_series("hf://owner/name")
    assert "Client Error" not in str(error.value)
    assert "Request ID" not in str(error.value)


def test_the_sentences_of_the_hub_are_kept(hub):
    with pytest.raises(CheckpointError, match="Repository Not Found"):
        open_series("hf://owner/other")
    with pytest.raises(CheckpointError, match="Revision Not Found"):
        open_series("hf://owner/name@gone")


def test_a_storage_without_ranges_is_said_at_the_first_answer(hub):
    hub.ignores_ranges = True
    (entry,) = open_series("hf://owner/name", revisions="step512").entries
    with pytest.raises(CheckpointError, match="ignores range requests"):
        entry.open()
    assert sum(path.startswith("/storage") for _, path in hub.requests) == 1


@pytest.mark.slow
def test_the_rate_limit_of_the_api_is_waited_for(hub):
    hub.api_faults = [(429, '"api";r=0;t=1')]
    started = time.monotonic()
    open_series("hf://owner/name", revisions="step0")
    assert time.monotonic() - started >= 1


def test_a_hub_that_is_not_there(monkeypatch):
    with Hub({}) as gone:
        address = gone.url
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", address)
    started = time.monotonic()
    with pytest.raises(CheckpointError, match="owner/name cannot be read: the connection was refused"):
        open_series("hf://owner/name", revisions="step*")
    assert time.monotonic() - started < 3
    huggingface_hub.close_session()


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:8000", "https://"])
def test_an_endpoint_that_is_no_address_is_refused_at_once(endpoint, monkeypatch):
    monkeypatch.setattr(importlib.import_module("huggingface_hub.constants"), "ENDPOINT", endpoint)
    started = time.monotonic()
    with pytest.raises(UsageError, match=f"HF_ENDPOINT is '{endpoint}'; expected an address"):
        open_series("hf://owner/name", revisions="step*")
    assert time.monotonic() - started < 3
    huggingface_hub.close_session()


@pytest.mark.parametrize("address", ["hf://", "hf://name", "hf:///x", "hf://a//b"])
def test_invalid_addresses(address):
    with pytest.raises(UsageError, match="OWNER/NAME"):
        parse_address(address)


def test_revisions_belong_to_the_hub(tmp_path):
    with pytest.raises(UsageError, match="Revisions"):
        open_series(tmp_path, revisions="step*")


def test_pickles_and_shards(hub, tmp_path):
    halves = [dict(list(tensors(3).items())[i::2]) for i in range(2)]
    names = [f"model-0000{i + 1}-of-00002.safetensors" for i in range(2)]
    weight_map = {name: names[i] for i in range(2) for name in halves[i]}
    index = json.dumps({"weight_map": weight_map}).encode()
    hub.repositories["owner/name"] |= {
        "iter1": {"pytorch_model.bin": pytorch_bytes(1, tmp_path)},
        "iter2": {"pytorch_model.bin": pytorch_bytes(2, tmp_path, _use_new_zipfile_serialization=False)},
        "iter3": {
            "model.safetensors.index.json": index,
            names[0]: save(halves[0]),
            names[1]: save(halves[1]),
        },
    }
    for entry in open_series("hf://owner/name", revisions="iter*").entries:
        assert read_all(entry.open()) == expected(entry.step)
    assert not hub.fetched_twice()


def test_a_scan_of_the_hub_equals_a_local_scan(hub, tmp_path, monkeypatch):
    """Row for row, whatever goes wrong on the way; and each byte is fetched once."""
    from normscope.weights.scan.scan import ScanConfig, scan

    monkeypatch.setattr(hub_files, "RETRY", Retry(attempts=9, first=0.01, longest=0.05))

    for revision, files in hub.repositories["owner/name"].items():
        (tmp_path / "local" / revision).mkdir(parents=True)
        (tmp_path / "local" / revision / "model.safetensors").write_bytes(files["model.safetensors"])
    hub.faults = ["cut", None, 500, "short", None, (429, "0"), "long", "wrong range"]
    scan("hf://owner/name", tmp_path / "hub.db", ScanConfig(revisions="step*")).close()
    scan(tmp_path / "local", tmp_path / "local.db").close()
    columns = "step, prev_step, tensor, sumsq, dot, sumsq_delta, dot_init, absmax, nonfinite"
    query = f"select {columns} from weight order by 1, 2, 3"
    rows = []
    for name in ("hub.db", "local.db"):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as database:
            rows.append(database.execute(query).fetchall())
    assert len(rows[0]) == 15
    assert rows[0] == rows[1]
    assert not hub.fetched_twice()
    assert hub.faults == []


def test_the_environment_variable_in_a_process_of_its_own(hub, tmp_path):
    code = (
        "import hashlib\n"
        "from normscope.checkpoints import open_series\n"
        "for entry in open_series('hf://owner/name', revisions='step*').entries:\n"
        "    checkpoint = entry.open()\n"
        "    data = b''.join(bytes(checkpoint.read(n, 0, t.nbytes)) for n, t in checkpoint.tensors.items())\n"
        "    print(entry.step, hashlib.sha256(data).hexdigest())\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    lines = [f"{s} {hashlib.sha256(b''.join(expected_in_file_order(s))).hexdigest()}" for s in (0, 512, 1000)]
    assert run.stdout.splitlines() == lines
    assert not list(tmp_path.rglob("*.safetensors")), "nothing is put into the cache"


def expected_in_file_order(step):
    data = save(tensors(step))
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return [data[8 + length :][slice(*info["data_offsets"])] for info in header.values()]


@pytest.fixture
def orbax(hub):
    """The repository with the revisions of an Orbax series beside the others, and its local path."""
    pytest.importorskip("tensorstore")
    here = Path(__file__).parent / "fixtures" / "orbax" / "ocdbt"
    for step in (100, 200):
        files = [path for path in (here / str(step)).rglob("*") if path.is_file()]
        hub.repositories["owner/name"][f"checkpoint_{step}"] = {
            str(path.relative_to(here / str(step))): path.read_bytes() for path in files
        }
    return here


@pytest.mark.slow
def test_orbax_through_a_failing_hub(hub, orbax):
    """tensorstore reads what our own retries have put together."""
    local = {entry.step: read_all(entry.open()) for entry in open_series(orbax).entries}
    hub.faults = ["cut", None, 500, "short", (429, "0"), None, "long", "wrong range"]
    for entry in open_series("hf://owner/name", revisions="checkpoint*").entries:
        checkpoint = entry.open()
        assert read_all(checkpoint) == local[entry.step]
        checkpoint.close()
    assert hub.faults == []
    assert not hub.fetched_twice()


def test_orbax_from_a_hub_that_never_recovers(hub, orbax):
    entry, _ = open_series("hf://owner/name", revisions="checkpoint*").entries
    hub.faults = [500] * 50
    with pytest.raises(CheckpointError, match="after 4 attempts: the server answered 500"):
        entry.open()


def test_a_run_file_of_a_hub_series(hub, tmp_path):
    """Revisions are read in parts and together; another repository is another series."""
    from normscope.errors import AnotherSeries
    from normscope.weights.scan.scan import scan

    run = tmp_path / "run.db"
    scan("hf://owner/name", run, revisions="step*").close()
    with scan("hf://owner/name", run, revisions="step1000") as again:
        assert [row.step for row in again.checkpoints()] == [0, 512, 1000]
        assert again.query("SELECT count(*) FROM weight WHERE dot_init IS NULL") == [(0,)]
    other = {f"step{step}": {"model.safetensors": save(tensors(step + 1))} for step in (0, 512)}
    hub.repositories["owner/other"] = {**other, "main": other["step512"]}
    with pytest.raises(AnotherSeries, match="hf://owner/name, and hf://owner/other is another series"):
        scan("hf://owner/other", run, revisions="step*")


@pytest.mark.parametrize("changed", [
    {"size": "12"}, {"size": 1e300}, {"size": -1}, {"size": 10**40}, {"size": None}, {"path": 3},
    {"path": ""},
    {"path": "/" * 100_000}, {"path": "\ud800"}, {"lfs": []}, {"lfs": {"oid": 5}}, {"lfs": "x"}, {"oid": 5,
    "lfs": None},
])  # fmt: skip
def test_listings_with_entries_of_other_types(hub, changed):
    describe = hub.describe
    hub.describe = lambda path, data: describe(path, data) | changed
    with pytest.raises(
        CheckpointError, match=r"hf://owner/name@step512 cannot be read: the hub's answer contains"
    ):
        open_series("hf://owner/name@step512")


@pytest.mark.parametrize("page", [
    b"[" * 200_000, b"{}", b"null", b"<html>", b"[1]", b"[null]", b'["x"]', b"[]" * 9, b"\xff\xfe",
    b"[" + b"[]," * 1_000_000 + b"[]]",
    b"[" + b"9" * 5000 + b"]", b" " * 17_000_000,
])  # fmt: skip
def test_pages_that_are_no_listing(hub, monkeypatch, page):
    monkeypatch.setattr(
        json, "dumps", lambda value: page.decode("latin-1") if isinstance(value, list) else "{}"
    )
    with pytest.raises(CheckpointError, match=r"name.* cannot be read: the hub's answer contains"):
        open_series(f"hf://owner/name@{hub.commit('owner/name', 'step512')}")


def test_listings_of_the_hub_that_go_on_for_ever(hub):
    hub.page = 0
    with pytest.raises(CheckpointError, match="its listing goes on without end"):
        open_series("hf://owner/name", revisions="step*")
    assert len(hub.requests) < 100


def test_steps_in_messages_are_no_longer_than_steps_can_be():
    assert step_in_message("step " + "9" * 5000) is None
