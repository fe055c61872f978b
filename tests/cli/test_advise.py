"""normscope advise: what is printed, its JSON, and what is refused."""

import pytest

import normscope as ns
from tests.cli.calling import call, call_json
from tests.theory.advised_runs import Recorded, record


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    how = Recorded(lr=0.01, decay=0.02, steps=1000)
    return record(tmp_path_factory.mktemp("runs") / "run.db", how)


def test_every_sentence_has_its_confidence_and_command(path):
    done, found = call("advise", path), ns.advise(path)
    assert done.code == 0
    lines = done.stdout.splitlines()
    for each in found:
        at = lines.index(f"{each.severity:6} {each.sentence}")
        assert lines[at + 1].split() == ["confidence", *each.certainty.split(), *each.command.split()]
    assert [line for line in lines if line.startswith("note: ")] == [
        f"note: {each}" for each in found.unknown
    ]


def test_json_is_the_result(path):
    document, found = call_json("advise", path), ns.advise(path)
    assert document["last_step"] == found.last_step == 1000
    assert [each["sentence"] for each in document["advice"]] == list(found.sentences)
    assert document["advice"][0]["evidence"] == pytest.approx(dict(found[0].evidence))
    assert "size" not in document["advice"][0]


def test_a_log_is_judged_by_its_norms_alone(tmp_path):
    log = tmp_path / "norms.csv"
    log.write_text("step,norm\n" + "".join(f"{100 * i},{10 + i**0.5}\n" for i in range(40)), "utf-8")
    done = call("advise", log)
    assert done.stdout.startswith(
        "fine   Nothing is certain enough to act on, as far as norms alone can tell"
    )
    assert "note: Learning rates were not recorded" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--column", "rms"), "measure='rms' does not apply"),
        (("--stage", "two"), "no stages"),
        (("--until", 3), "1 of 101 points are left"),
        (("--since", 900, "--until", 100), "no step is both"),
    ],
)
def test_what_cannot_be_used_is_refused(words, message, path):
    done = call("advise", path, *words)
    assert done.code in (1, 2)
    assert message in done.stderr and done.stdout == ""


def test_one_that_does_not_exist_is_refused(tmp_path):
    done = call("advise", tmp_path / "absent.db")
    assert done.code == 2 and "does not exist" in done.stderr
