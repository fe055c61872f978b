"""Every command in the README and the docs is run, or says what it needs that is not here."""

import re
import shutil

import pytest
import typer

from normscope.cli.app import COMMANDS, build
from tests.cli.calling import call
from tests.documented.collected import ROOT, collected, commands_of, words
from tests.documented.how_run import INSTEAD, NEEDS, as_run, lacking

PAGES_OF = collected()
RUN = [command for command in PAGES_OF if not lacking(command)]


def test_the_tables_name_only_documented_commands():
    assert (set(INSTEAD) | set(NEEDS)) - set(PAGES_OF) == set()
    assert set(INSTEAD) & set(NEEDS) == set()


def test_commands_are_found_in_every_form():
    text = "a `normscope show run.db` b\n\n    normscope fit run.db   # why\n"
    text += "\n```console\n$ normscope demo  # x\nout\n```\n"
    assert commands_of(text) == ["normscope demo", "normscope fit run.db", "normscope show run.db"]
    assert commands_of("```python\nnormscope fit x\n```\nnormscope tells you\n") == []


@pytest.mark.parametrize("command", [c for c in PAGES_OF if words(c)[0] != "--version"])
def test_every_option_exists(command):
    name, *rest = words(as_run(command))
    assert name in COMMANDS, PAGES_OF[command]
    typer.main.get_command(build()).commands[name].make_context(name, rest)


def test_what_a_reason_names_exists():
    for reason in NEEDS.values():
        for path in re.findall(r"tests/[\w/]+(?:\.py)?", reason):
            assert (ROOT / path).exists(), reason


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    pytest.importorskip("transformers")
    from tests.documented.prepared import prepare

    return prepare(tmp_path_factory.mktemp("documented"))


@pytest.mark.slow
@pytest.mark.parametrize("command", RUN)
def test_a_documented_command_runs(command, place, tmp_path, monkeypatch):
    """In a fresh copy of the prepared folder; run.db is there for the commands that name it."""
    here = tmp_path / "here"
    shutil.copytree(place, here, symlinks=True)
    if "run.db" not in as_run(command) or "--run run.db" in command:
        (here / "run.db").unlink()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    done = call(*words(as_run(command)), cwd=here)
    unsound = words(command)[0] == "audit"  # 1 says that the series is not sound
    assert done.code in ((0, 1) if unsound else (0,)), done.stderr
    assert done.stdout
