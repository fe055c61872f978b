"""A package that adds a measure, a law and a format, really installed: the one of docs/extending.md."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from normscope import plugins as module
from normscope.errors import PluginError
from normscope.plugins import GROUPS, plugins
from tests.cli.calling import call_json, normscope
from tests.conftest import random_walk, save_series

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The environment of a process in which the page's package is installed."""
    text = PAGE.read_text("utf-8")
    project, *_ = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (module,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    (source / "pyproject.toml").write_text(project)
    (source / "normscope_example.py").write_text(module)
    words = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", target, source]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)
    return os.environ | {"PYTHONPATH": str(target)}


@pytest.fixture
def extended(installed, monkeypatch):
    """This process, with the page's package installed until the test ends."""
    with monkeypatch.context() as patch:
        patch.syspath_prepend(installed["PYTHONPATH"])
        plugins.cache_clear()
        yield
    sys.modules.pop("normscope_example", None)
    plugins.cache_clear()


def test_the_command_lists_them(installed):
    rows = json.loads(normscope("plugins", "--json", env=installed).stdout)
    found = {(row["group"], row["name"], row["package"]) for row in rows}
    example = "normscope-example"
    assert found == {
        ("measures", "spectral-norm", example),
        ("laws", "cube-root", example),
        ("formats", "raw", example),
    }


def test_a_measure_is_recorded_and_shown(extended, tmp_path):
    states = random_walk([0, 10, 100])
    folder, path = save_series(tmp_path / "series", states), tmp_path / "run.db"
    call_json("scan", folder, "--run", path)
    rows = call_json("show", path, "--measure", "spectral-norm", "--by", "tensor", "--scope", "all")
    values = {(row["step"], row["group"]): row["value"] for row in rows}
    expected = {
        (step, name): torch.linalg.svdvals(value).max().item()
        for step, state in states.items()
        for name, value in state.items()
        if value.dim() == 2
    }
    assert values.keys() == expected.keys()
    assert list(values.values()) == pytest.approx([expected[key] for key in values], rel=1e-5)
    fit = call_json("fit", path, "--measure", "spectral-norm")
    assert fit["points"] == 3


def test_a_measure_is_drawn_in_the_report(extended, tmp_path):
    folder, path = save_series(tmp_path / "series", random_walk([0, 10, 100])), tmp_path / "run.db"
    call_json("scan", folder, "--run", path)
    call_json("report", path, "-o", tmp_path / "report.html")
    assert "spectral-norm" in (tmp_path / "report.html").read_text("utf-8")


def test_a_law_is_chosen_where_it_holds(request, tmp_path):
    steps = np.arange(0, 60000, 600)
    noise = np.random.default_rng(0).normal(0, 0.01, len(steps))
    lines = [f"{step},{value}" for step, value in zip(steps, 5 + 2 * np.cbrt(steps) + noise, strict=True)]
    (tmp_path / "log.csv").write_text("\n".join(["step,norm", *lines]))
    assert call_json("fit", tmp_path / "log.csv")["best"] != "cube-root"
    request.getfixturevalue("extended")
    assert call_json("fit", tmp_path / "log.csv")["best"] == "cube-root"


def test_a_format_is_read(extended, tmp_path):
    for step in (1, 20):
        (tmp_path / f"step_{step}.raw").write_bytes(b"RAW1" + np.full(4, step, "<f4").tobytes())
    call_json("scan", tmp_path, "--run", tmp_path / "run.db")
    rows = call_json("show", tmp_path / "run.db", "--scope", "all")
    assert [(row["step"], row["value"]) for row in rows] == [(1, 2.0), (20, 40.0)]


@pytest.mark.parametrize("group", GROUPS)
def test_a_package_that_cannot_be_imported_is_named(install_plugins, monkeypatch, group):
    install_plugins(group, broken=None)
    (entry,) = module.entry_points(f"normscope.{group}")
    monkeypatch.setattr(entry, "load", lambda: 1 / 0)
    with pytest.raises(PluginError, match="'broken' of the package norm-extras cannot be loaded: Zero"):
        plugins(group)


def test_two_packages_with_one_name(install_plugins, monkeypatch):
    install_plugins("laws", twice=1)
    entries = module.entry_points("normscope.laws")
    monkeypatch.setattr(module, "entry_points", lambda group: entries * 2)
    with pytest.raises(PluginError, match="two packages add the law 'twice': norm-extras and norm-extras"):
        plugins("laws")
