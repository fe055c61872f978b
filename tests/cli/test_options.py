"""One spelling and one meaning per option, examples that parse, and completion in the shell."""

import os
import re
import shlex
from collections import defaultdict
from typing import get_args

import pytest
import typer

from normscope.cli.app import COMMANDS, build
from normscope.lab.config import TokenizerName, TrainConfig, flatten
from normscope.lab.data.languages import LANGUAGES
from normscope.lab.model import SIZES, NormPlacement
from normscope.lab.optimizer_names import OptimizerName
from normscope.lab.training.trainer import TRAINING_DTYPES
from normscope.theory.dynamics.lr_shapes import SCHEDULES
from tests.cli.calling import SMALL, call, call_json, normscope
from tests.theory.make_run import make_run

APP = typer.main.get_command(build())


def options(name):
    return [parameter for parameter in APP.commands[name].params if parameter.param_type_name == "option"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_page_has_a_short_summary_and_examples_that_parse(name):
    command = APP.commands[name]
    assert re.fullmatch(r"[A-Z].{8,60}\.", command.short_help)
    head, *examples = command.epilog.removeprefix("\b\n").splitlines()
    assert head == "Examples:" and examples
    for example in examples:
        program, called, *words = shlex.split(example)
        assert (program, called) == ("normscope", name)
        command.make_context(name, words).close()  # exits with 2 if the example is wrong
        assert example in call(name, "--help").stdout


def test_an_option_is_spelled_alike_everywhere():
    spellings = defaultdict(set)
    for name in COMMANDS:
        for option in options(name):
            spellings[max(option.opts, key=len)].add(tuple(sorted([*option.opts, *option.secondary_opts])))
            assert option.help, f"{name} {option.opts}"
    assert {name: found for name, found in spellings.items() if len(found) > 1} == {}
    assert "--out" not in spellings
    assert spellings["--output"] == {("--output", "-o")}
    assert spellings["--run"] == {("--run", "-r")}


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_defaults_in_the_help_are_those_of_the_config(name):
    values = flatten(TrainConfig()) | {"device": None}
    if name == "sweep":
        values["save"] = "never"  # its cells keep no checkpoints unless asked to
    checked = 0
    for option in options(name):
        stated = re.search(r"\[default: ([\w.:-]+)\]$", option.help)
        if stated and option.name in values and values[option.name] is not None:
            assert stated[1] == str(values[option.name]), option.name
            checked += 1
    assert checked >= 7


@pytest.mark.parametrize(
    ("command", "option", "names"),
    [
        ("train", "--task", LANGUAGES),
        ("train", "--size", SIZES),
        ("train", "--norm", get_args(NormPlacement)),
        ("train", "--tokenizer", get_args(TokenizerName)),
        ("train", "--optimizer", get_args(OptimizerName)),
        ("train", "--schedule", SCHEDULES),
        ("train", "--dtype", TRAINING_DTYPES),
        ("forecast", "--schedule", SCHEDULES),
    ],
)
def test_help_and_completion_offer_the_names_that_exist(command, option, names):
    (found,) = [entry for entry in options(command) if option in entry.opts]
    offered = [
        item.value
        for item in found.shell_complete(
            APP.commands[command].make_context(command, [], resilient_parsing=True), ""
        )
    ]
    assert offered == list(names)
    assert all(name in found.help for name in names)


@pytest.mark.parametrize("command", ["show", "fit", "forecast", "compare"])
def test_every_measure_that_is_offered_can_be_used(command, tmp_path):
    make_run(run := tmp_path / "run.db")
    more = {"forecast": ["--to", 10**6], "compare": [run]}.get(command, [])
    offered = complete(f"normscope {command} run.db --measure ")
    assert len(offered) >= 9 and ("budget" in offered) == (command == "show")
    for name in offered:
        done = call(command, run, *more, "--measure", name)
        assert done.code == 0, done.stderr


def test_the_former_spelling_of_output_still_works(tmp_path):
    trained = call_json("train", "--steps", 1, *SMALL, "--out", tmp_path / "a")
    assert trained["out"] == str(tmp_path / "a")
    exported = call_json("export", trained["run"], f"--out={tmp_path / 'w.csv'}")
    assert exported["output"] == str(tmp_path / "w.csv")
    assert "--out " not in call("train", "--help").stdout


def complete(line):
    """What a shell offers after this line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_NORMSCOPE_COMPLETE": "complete_bash"}
    return normscope(env=os.environ | words).stdout.split()


def test_shells_complete_commands_options_and_values():
    assert complete("normscope s") == ["scan", "show", "serve", "spectrum", "saturate", "sweep"]
    assert complete("normscope train --ou") == ["--output"]
    assert complete("normscope fit run.db --by ") == ["total", "layer", "role", "component", "tensor"]
    script = normscope(env=os.environ | {"_NORMSCOPE_COMPLETE": "source_bash"}).stdout
    assert "complete -o default -F _normscope_completion normscope" in script
    assert "--install-completion" in call("--help").stdout
