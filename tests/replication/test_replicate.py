"""A replication as a whole: killed and continued, kept, listed, refused where it must be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

import normscope as ns
from normscope.errors import RunFileError, UsageError
from normscope.replication.claim_files import chosen_claims, known_claims
from normscope.replication.claim_lines import claim_lines
from normscope.replication.claim_list import list_claims
from normscope.replication.job_options import command_of
from normscope.replication.replicate import judge, plan_jobs
from normscope.replication.results_file import read_results, write_results
from normscope.replication.trial_costs import shown_time
from tests.cli.calling import call, call_json
from tests.replication import tiny_replication
from tests.replication.trial_documents import all_documents


def results(folder):
    """The results without what differs from run to run: how long it took."""
    document = json.loads((folder / "results.json").read_text("utf-8"))
    for claim in document["claims"]:
        del claim["seconds"]
    return document


def killed_after(folder, finished):
    """Start the replication in a process of its own, and kill it when so many trainings are finished."""
    process = subprocess.Popen([sys.executable, "-m", "tests.replication.tiny_replication", str(folder)])
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if len(list(folder.glob("experiments/*/cells/*/result.json"))) >= finished:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.05)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_killed_three_times_it_gives_the_same_results(tmp_path):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    for finished in (1, 4, 8):
        killed_after(broken, finished)
    done = subprocess.run(
        [sys.executable, "-m", "tests.replication.tiny_replication", str(broken)], check=False
    )
    assert done.returncode == 0
    found = tiny_replication.replicate(straight)
    assert {claim.id for claim in found.claims} == set(tiny_replication.CLAIMS)
    assert results(broken) == results(straight)
    again = tiny_replication.replicate(straight)
    assert again.claims[0].seconds < 60
    assert results(straight) == results(broken)


def test_results_of_other_claims_stay(tmp_path):
    ns.replicate("sqrt-growth", output=tmp_path)
    found = ns.replicate("direction", output=tmp_path)
    assert [claim.id for claim in found.claims] == ["sqrt-growth", "direction"]
    assert found.counts == {"confirmed in part": 1, "confirmed": 1}
    assert found.to_pandas().shape[0] == 2


def test_results_have_the_documented_fields(tmp_path):
    ns.replicate("sqrt-growth", output=tmp_path)
    (claim,) = json.loads((tmp_path / "results.json").read_text("utf-8"))["claims"]
    assert {"id", "verdict", "paper", "released", "corrected", "seeds", "preset", "seconds"} <= set(claim)
    assert claim["corrected"]["exponent"]["low"] < 0.56 < claim["corrected"]["exponent"]["high"]


def _without_numbers(document):
    rows = [{**row, "cosine": None} for row in document.get("saturation", ())]
    heads = [{**row, "type": "undecided", "positions": None} for row in document.get("heads", ())]
    return {**document, **({"saturation": rows} if rows else {}), **({"heads": heads} if heads else {})}


def _without_results(document):
    kept = ("changes", "length", "lr", "weight_decay")
    return {name: document[name] for name in kept if name in document} | {"status": "failed", "error": "x"}


@pytest.mark.parametrize("change", [_without_numbers, _without_results])
@pytest.mark.parametrize("several", [1, 1000])
def test_one_number_that_is_missing_does_not_lose_the_results(tmp_path, change, several):
    """Saturation of a network with huge parameters is null; hours of training must not end in an error."""
    documents = {
        name: found
        if "seed" not in found[0]["changes"]
        else [*map(change, found[:several]), *found[several:]]
        for name, found in all_documents(tmp_path).items()
    }
    results = [judge(claim, documents, "quick", {}) for claim in known_claims().values()]
    write_results(tmp_path / "results.json", results)
    assert len(read_results(tmp_path / "results.json")) == len(known_claims())


@pytest.mark.parametrize("text", ["", "[]", '{"claims": [{}]}', '{"claims": 3}', "no json"])
def test_a_damaged_results_file_is_one_sentence(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(RunFileError, match="move it away"):
        read_results(tmp_path / "results.json")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "fast"}, "preset must be one of"),
        ({"seeds": 0}, "seeds"),
        ({"valid": "valid.txt"}, "no effect without text"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(UsageError, match=message):
        ns.ReplicationConfig(**settings)


def test_a_damaged_results_file_is_said_before_anything_is_run(tmp_path):
    (tmp_path / "results.json").write_text("no json")
    with pytest.raises(RunFileError, match="move it away"):
        ns.replicate("sqrt-growth", output=tmp_path, progress=lambda *_: pytest.fail("it was run"))


def places(tmp_path, **settings):
    """Where the trials of each experiment are kept."""
    jobs = plan_jobs(chosen_claims(()), ns.ReplicationConfig(**settings), tmp_path)
    return {job.experiment.id: job.context.folder for job in jobs}


def test_another_text_is_another_experiment_and_only_where_it_is_read(tmp_path):
    """A text that was edited must not be answered from what an earlier one gave."""
    text = tmp_path / "text.txt"
    text.write_text("one text\n" * 50)
    before, plain = places(tmp_path, text=str(text)), places(tmp_path)
    text.write_text("two text\n" * 50)
    after = places(tmp_path, text=str(text))
    reading = {name for name in plain if plain[name] != before[name]}
    assert reading == {
        *("language-models", "pretrained", "held-norm"),
        *("rate-and-decay", "rate-and-decay-released"),
    }
    assert {name for name in plain if after[name] != before[name]} == reading


def test_another_model_trains_nothing_again(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_bytes(b"1")
    before, plain = places(tmp_path, models=(str(folder),)), places(tmp_path)
    assert {name for name in plain if plain[name] != before[name]} == {"pretrained"}
    (folder / "weights").write_bytes(b"12")
    assert places(tmp_path, models=(str(folder),))["pretrained"] != before["pretrained"]


def test_the_command_of_a_row_has_the_options_that_it_was_run_with(tmp_path):
    jobs = plan_jobs(chosen_claims(["growth"]), ns.ReplicationConfig(), tmp_path)
    given = ns.ReplicationConfig(seeds=5, text="a text.txt", models=("bert",)).given
    expected = "normscope replicate growth --preset quick --seeds 5 --text 'a text.txt'"
    assert command_of("growth", "quick", jobs, given) == expected
    jobs = plan_jobs(chosen_claims(["sqrt-growth"]), ns.ReplicationConfig(), tmp_path)
    assert (
        command_of("sqrt-growth", "full", jobs, given)
        == "normscope replicate sqrt-growth --preset full --yes"
    )
    found = ns.replicate("homogeneity", output=tmp_path, config=ns.ReplicationConfig(seeds=2))
    assert found.claims[0].command == "normscope replicate homogeneity --preset quick --seeds 2"
    assert found.claims[0].seeds == 2


def test_full_says_what_it_costs_and_must_be_confirmed(tmp_path):
    with pytest.raises(UsageError, match=r"about 2 min on this machine.*--yes"):
        ns.replicate("homogeneity", output=tmp_path / "out", config=ns.ReplicationConfig(preset="full"))
    assert not (tmp_path / "out").exists()


def test_lines_for_a_paper(tmp_path):
    lines = claim_lines("arxiv:2010.09697")
    assert [line.id for line in lines] == list(known_claims())
    assert {line.verdict for line in lines} == {None}
    ns.replicate("sqrt-growth", output=tmp_path)
    first = claim_lines("arXiv:2010.09697", tmp_path / "results.json")[0]
    assert (first.verdict, first.command) == ("confirmed in part", "normscope replicate sqrt-growth")
    assert claim_lines("arxiv:1706.03762") == ()


def test_the_list_counts_what_is_shared_once(tmp_path):
    found = list_claims(["sqrt-growth", "direction"], tmp_path)
    assert found.seconds["quick"] == found.claims[0].seconds["quick"] == found.claims[1].seconds["quick"]
    assert [claim.verdict for claim in found.claims] == [None, None]
    ns.replicate("direction", output=tmp_path)
    assert [claim.verdict for claim in list_claims(["sqrt-growth", "direction"], tmp_path).claims][1]


def test_durations():
    assert [shown_time(s) for s in (0.4, 59, 120, 7200, 1e6)] == ["0.4 s", "59 s", "2 min", "2 h", "12 days"]


def test_the_command(tmp_path):
    done = call("replicate", "sqrt-growth", "-o", tmp_path / "out")
    assert done.code == 0, done.stderr
    assert "confirmed in part" in done.stdout
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    listed = call("replicate", "sqrt-growth", "--list", "-o", tmp_path / "out")
    assert "sqrt-growth" in listed.stdout
    assert "confirmed in part" in listed.stdout
    document = call_json("replicate", "sqrt-growth", "--list", "-o", tmp_path / "out")
    assert document["claims"][0]["seconds"]["quick"] > 0


@pytest.mark.parametrize(
    "words",
    [
        ["sqrt"],
        ["sqrt-growth", "--yes"],
        ["homogeneity", "--preset", "full"],
        ["growth", "--preset", "slow"],
        ["sqrt-growth", "--list", "--engine", "ray"],
        ["sqrt-growth", "--list", "--preset", "quick"],
        ["pretrained", "--list", "--model", "bert-base-uncased"],
        ["growth", "--list", "--text", "README.md"],
        ["sqrt-growth", "--seeds", "0"],
        ["sqrt-growth", "--seeds", "3"],
        ["sqrt-growth", "--engine", "ray"],
        ["counting", "--text", "README.md"],
        ["heads", "--model", "bert-base-uncased"],
        ["pretrained", "--text", "README.md", "--valid", "README.md"],
    ],
)
def test_wrong_calls(words, tmp_path):
    done = call("replicate", *words, "-o", tmp_path / "out")
    assert done.code == 2
    assert done.stderr.startswith("normscope: ")
    assert not (tmp_path / "out").exists()
