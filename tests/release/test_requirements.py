"""constraints.txt pins what pyproject.toml declares, and nothing else."""

import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .requirements import ROOT, declared, reachable

LINES = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
PINS = [Requirement(line.partition("#")[0]) for line in LINES if not line.startswith("#")]
PINNED = {canonicalize_name(pin.name) for pin in PINS}


@pytest.fixture(scope="module")
def needed():
    return reachable(declared(["all", "dev"]))


def test_every_pin_is_needed_by_something_declared(needed):
    assert sorted(needed & PINNED) == sorted(PINNED), "run: make constraints"


def test_every_dependency_is_pinned(needed):
    assert sorted(PINNED & needed) == sorted(needed), "run: make constraints"


def test_pins_are_exact_and_satisfy_what_is_declared():
    versions = {canonicalize_name(pin.name): re.fullmatch(r"==([^+]+)", str(pin.specifier)) for pin in PINS}
    assert [name for name, exact in versions.items() if exact is None] == []
    for wanted in declared(["all", "dev"]):
        pinned = versions[canonicalize_name(wanted.name)][1]
        assert wanted.specifier.contains(pinned, prereleases=True), f"{wanted} but {pinned} is pinned"


def test_torch_is_the_build_that_can_be_installed():
    assert "torch==2.13.0" in [str(pin) for pin in PINS]


@pytest.mark.slow
def test_the_core_needs_no_optional_package():
    words = [sys.executable, "-m", "tests.release.core_only"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "need only the core dependencies" in done.stdout
    assert int(re.search(r"refused: (\d+)", done.stdout)[1]) > 50, (
        "pytest and transformers should be refused here"
    )
