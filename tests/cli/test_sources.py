"""Every command that reads a series reads every kind of source, and says what one of them lacks."""

import json
import sqlite3

import pytest

from tests.cli.calling import SMALL, call
from tests.conftest import random_walk, save_series

STEPS = list(range(0, 2001, 200))
COMMANDS = [
    ("show", "{}"),
    ("fit", "{}"),
    ("forecast", "{}", "--to", "600000"),
    ("advise", "{}"),
    ("export", "{}", "-o", "out.csv"),
    ("compare", "{}", "{}"),
]
KINDS = ("run.db", "trained", "grid@lr=0.01", "log.csv", "log.jsonl", "hf", "t5-base")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """One source of every kind, and things that are none."""
    folder = tmp_path_factory.mktemp("sources")
    save_series(folder / "checkpoints", random_walk(STEPS))
    rows = [(step, 3 + step**0.5) for step in STEPS]
    (folder / "log.csv").write_text("step,norm\n" + "".join(f"{s},{v}\n" for s, v in rows))
    (folder / "log.jsonl").write_text("".join(json.dumps({"step": s, "norm": v}) + "\n" for s, v in rows))
    (folder / "hf").mkdir()
    history = {"log_history": [{"step": s, "param_norm": v} for s, v in rows]}
    (folder / "hf" / "trainer_state.json").write_text(json.dumps(history))
    (folder / "binary.bin").write_bytes(bytes(range(256)))
    (folder / "empty").mkdir()
    with sqlite3.connect(folder / "other.db") as db:
        db.execute("CREATE TABLE t (a)")
    db.close()
    for words in (
        ["scan", "checkpoints", "--run", "run.db"],
        ["train", "--steps", 20, "--save", "every:4", "-o", "trained", *SMALL],
        ["sweep", "--lr", "0.01,0.03", "--steps", 6, *SMALL, "-o", "grid"],
    ):
        done = call(*words, cwd=folder)
        assert done.code == 0, done.stderr
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_every_command_reads_every_kind(words, kind, place):
    done = call(*(word.format(kind) for word in words), cwd=place)
    assert done.code == 0, done.stderr
    assert done.stdout


LACKING = [
    (("show", "log.csv", "--by", "layer"), "has no groups"),
    (("show", "t5-base", "--by", "layer"), "has no groups"),
    (("show", "grid@lr=0.01", "--by", "layer"), "only the norms that were recorded during training"),
    (("show", "grid@lr=0.01", "--measure", "budget"), "measure='budget' cannot be used"),
    (("show", "log.csv", "--measure", "cosine"), "has no column 'cosine'; it has step, norm"),
    (("show", "hf", "--stage", "x"), "has no stages"),
    (("compare", "log.csv", "t5-base", "--by", "layer"), "has no groups"),
    (("export", "run.db", "--measure", "norm"), "all statistics of a run are written"),
]


@pytest.mark.parametrize(("words", "sentence"), LACKING, ids=lambda part: str(part)[:40])
def test_what_a_source_lacks_is_said_in_a_sentence(words, sentence, place):
    done = call(*words, cwd=place)
    assert done.code == 2 and sentence in done.stderr and done.stderr.count("\n") == 1


READERS = (*COMMANDS, ("report", "{}"), ("watch", "{}"))
MEASURERS = [("scan", "{}"), ("audit", "{}"), ("spectrum", "{}"), ("saturate", "{}"), ("homogeneity", "{}")]
MISTAKES = {
    "missing.db": (2, "missing.db"),
    "empty": (2, "empty"),
    "binary.bin": (1, "binary.bin is not"),
    "other.db": (1, "other.db is"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("words", [*READERS, *MEASURERS], ids=lambda words: words[0])
def test_one_mistake_has_one_exit_code_in_all_commands(words, mistake, place):
    on_disk = "./" if words in MEASURERS[3:] else ""  # without ./ it may be a name on the hub
    code, said = MISTAKES[mistake]
    done = call(*(word.format(on_disk + mistake) for word in words), cwd=place)
    assert done.code == code, done.stderr
    assert said in done.stderr and done.stderr.count("\n") == 1
    assert not (place / "report.html").exists() and not (place / "missing.db").exists()


WRITERS = [
    ("scan", "checkpoints", "--run", "{}"),
    ("audit", "checkpoints", "--run", "{}"),
    ("spectrum", "checkpoints", "--run", "{}"),
    ("report", "checkpoints", "--run", "{}"),
]


@pytest.mark.parametrize(
    ("given", "code"), [("nowhere/x.db", 2), ("empty", 2), ("other.db", 1), ("log.csv", 1)]
)
@pytest.mark.parametrize("words", WRITERS, ids=lambda words: words[0])
def test_a_run_file_that_cannot_be_written_is_a_sentence(words, given, code, place):
    done = call(*(word.format(given) for word in words), cwd=place)
    assert done.code == code, done.stderr
    assert given in done.stderr and done.stderr.count("\n") == 1
    assert not (place / "nowhere").exists()


@pytest.mark.parametrize(
    "words",
    [
        *([name, "run.db", "--since", "soon"] for name in ("show", "fit", "advise")),
        *([name, "run.db", "--by", "colour"] for name in ("show", "fit", "watch")),
        *([name, "run.db", "--scope", "most"] for name in ("show", "fit", "advise", "forecast", "watch")),
        ["compare", "run.db", "run.db", "--scope", "most"],
        ["compare", "run.db", "run.db", "--by", "colour"],
        *(
            [name, "checkpoints", "--steps", "a"]
            for name in ("scan", "audit", "spectrum", "report", "saturate")
        ),
        *([name, "checkpoints", "--pattern", "("] for name in ("scan", "audit", "spectrum", "report")),
        ["spectrum", "checkpoints", "--scope", "most"],
        ["spectrum", "checkpoints", "--of", "colour"],
        ["export", "run.db", "-o", "out.txt"],
        ["train", "--set", "foo=1"],
        ["sweep", "--vary", "foo=1,2"],
    ],
    ids=" ".join,
)
def test_a_wrong_value_of_an_option_is_a_wrong_call(words, place):
    done = call(*words, cwd=place)
    assert done.code == 2, done.stdout + done.stderr


def test_a_field_that_nothing_resembles_suggests_nothing(place):
    done = call("train", "--set", "foo=1", cwd=place)
    assert "did you mean" not in done.stderr and "it has" in done.stderr and "n_layers" in done.stderr
