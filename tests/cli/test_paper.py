"""`normscope paper`: what it prints, writes and refuses; nothing heavy is loaded."""

import json
import os
import subprocess
import sys

import pytest

import normscope as ns
from normscope.literature.libraries.library_files import read_library
from tests.cli.calling import call, call_json
from tests.literature.service_server import Services, small_world

HEAVY = ("torch", "plotly", "scipy", "numpy", "pandas", "ssl", "rich")


@pytest.fixture
def services(monkeypatch, tmp_path):
    with Services(small_world()) as running:
        yield running.in_environment(monkeypatch, tmp_path / "cache")


def test_the_bundled_paper_as_json_loads_nothing_heavy():
    code = f"""
import runpy, sys
sys.argv = ["normscope", "paper", "2010.09697", "--json"]
try:
    runpy.run_module("normscope", run_name="__main__")
except SystemExit as ended:
    assert not ended.code, ended.code
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    environment = os.environ | {"NORMSCOPE_ARXIV_URL": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    printed, loaded = done.stdout.splitlines()
    document = json.loads(printed)
    assert loaded == "[]"
    assert (len(document["references"]), len(document["citations"])) == (39, 33)
    assert (document["id"], document["year"]) == ("arxiv:2010.09697", 2021)
    assert set(document["terms"][0]) == {"term", "score", "count", "documents", "forms"}
    assert document["summary_by"] == "centrality" and 2 <= len(document["summary"]) <= 3


def test_what_a_person_reads():
    done = call("paper", "2010.09697")
    assert done.code == 0
    expected = (
        "Effects of Parameter Norm Growth",
        "William Merrill",
        "EMNLP 2021",
        "https://arxiv.org/abs/2010.09697",
        "inductive bias",
        "39 references, 33 citing works",
        "was found twice (2023, 2024)",
    )
    for words in expected:
        assert words in done.stdout


def test_control_characters_do_not_reach_the_terminal(services):
    services.works["centre"].title = "Evil \x1b[31m[bold]title[/bold]\u202e"
    printed = call("paper", "2101.00001").stdout
    assert "Evil [31m[bold]title[/bold]" in printed and "\x1b" not in printed and "\u202e" not in printed


@pytest.mark.parametrize("ending", [".bib", ".ris", ".json", ".csv"])
def test_works_are_exported(ending, tmp_path):
    path = tmp_path / f"works{ending}"
    document = call_json("paper", "2010.09697", "--export", path)
    assert document["export"] == str(path) and document["output"] is None
    if ending != ".csv":
        assert len(read_library(path)[0]) == 73
    assert len(path.read_text("utf-8")) > 10_000
    assert f"wrote {path}" in call("paper", "2010.09697", "--export", path).stdout


def test_a_library_becomes_a_network(services, tmp_path):
    (tmp_path / "refs.bib").write_text(
        "@misc{a, title={Growth}, doi={10.1000/growth}}\n@misc{b, title={Old}, doi={10.1000/old}}"
    )
    document = call_json("paper", tmp_path / "refs.bib")
    assert document["id"] is None and document["title"] is None and len(document["further"]) == 2
    assert document["edges"] == [["arxiv:2101.00001", "doi:10.1000/old"]]
    assert "2 works, 1 citation among them" in call("paper", tmp_path / "refs.bib").stdout


def test_a_fetched_paper_opens_offline_afterwards(services):
    first = call_json("paper", "2101.00001", "--depth", 2)
    again = call_json("paper", "2101.00001", "--depth", 2, "--offline")
    assert again["references"] == first["references"] and again["further"] == first["further"]
    assert any("--refresh asks again" in note for note in again["notes"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nonsense"], 2, "'nonsense' is neither a library nor an identifier of a paper"),
        (["2010.09697", "--export", "works.doc"], 2, "--export must end in .bib"),
        (["2010.09697", "--offline", "--refresh"], 2, "contradict each other"),
        (["2010.09697", "--depth", "3"], 2, "--depth"),
        (["2010.09697", "--results", "missing.json"], 2, "--results: missing.json does not exist"),
        (["2010.09697", "--summarize", "false"], 1, "failed with exit code 1"),
        (["2010.09697", "--corpus", "missing"], 2, "the corpus missing does not exist"),
        (["missing.bib"], 2, "missing.bib does not exist"),
        (["2305.13673", "--offline"], 1, "neither bundled nor kept from before"),
    ],
)
def test_mistakes_are_one_sentence(words, code, said, services, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("paper", *words)
    assert done.code == code and said in done.stderr and done.stdout == ""


def test_a_summary_by_the_users_command():
    document = call_json("paper", "2010.09697", "--summarize", "head -c 12")
    assert document["summary"] == ["The capacity"] and document["summary_by"] == "head -c 12"


def test_claims_are_shown_with_the_verdicts_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    claims = call_json("paper", "2010.09697")["claims"]
    assert claims[0]["id"] == "sqrt-growth" and {claim["verdict"] for claim in claims} == {None}
    assert f"{len(claims)} claims not yet run here: normscope replicate" in call("paper", "2010.09697").stdout
    (tested,) = ns.replicate("sqrt-growth", output=tmp_path / "replication").claims
    for words in ([], ["--results", "replication/results.json"]):
        first, *others = call_json("paper", "2010.09697", *words)["claims"]
        assert (first["verdict"], first["detail"]) == (tested.verdict, tested.because)
        assert {claim["verdict"] for claim in others} == {None}
    printed = call("paper", "2010.09697").stdout
    assert tested.verdict in printed and f"{len(others)} other claims not yet run here" in printed


def test_results_without_claims_are_an_error(services, tmp_path):
    (tmp_path / "results.json").write_text('{"claims": []}')
    done = call("paper", "2101.00001", "--results", tmp_path / "results.json")
    assert done.code == 2 and "no claims of this paper are known" in done.stderr


def test_an_export_replaces_neither_the_library_nor_the_page(tmp_path, services):
    library = tmp_path / "refs.bib"
    library.write_text("@misc{my-key, title = {Growth}}")
    done = call("paper", library, "--export", library)
    assert done.code == 2 and "would replace the library" in done.stderr and "my-key" in library.read_text()
    done = call("paper", "2010.09697", "-o", tmp_path / "x.json", "--export", tmp_path / "x.json")
    assert done.code == 2 and "must be two files" in done.stderr
