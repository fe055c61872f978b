"""normscope plugins: what installed packages add."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from normscope import plugins
from tests.cli.calling import call, call_json


@dataclass(frozen=True)
class Entry:
    """What normscope uses of an importlib.metadata.EntryPoint."""

    group: str
    name: str
    value: object
    dist = SimpleNamespace(name="my-laws")

    def load(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.fixture
def installed(monkeypatch):
    """A list of the entry points that installed packages declare."""
    declared = []
    monkeypatch.setattr(plugins, "entry_points", lambda group: [e for e in declared if e.group == group])
    plugins.plugins.cache_clear()
    yield declared
    plugins.plugins.cache_clear()


def test_without_plugins_it_says_so(installed):
    assert call("plugins").stdout.startswith("No installed package adds anything to normscope (formats, laws")
    assert call_json("plugins") == []


def test_each_is_listed_with_its_package(installed):
    installed += [Entry("normscope.measures", "trace", sum), Entry("normscope.laws", "cube-root", abs)]
    assert call_json("plugins") == [
        {"group": "laws", "name": "cube-root", "package": "my-laws"},
        {"group": "measures", "name": "trace", "package": "my-laws"},
    ]
    assert "my-laws" in call("plugins").stdout


def test_a_broken_one_is_named(installed):
    installed.append(Entry("normscope.laws", "broken", ModuleNotFoundError("no module scipy2")))
    done = call("plugins")
    assert done.code == 2
    assert "the law 'broken' of the package my-laws cannot be loaded" in done.stderr
