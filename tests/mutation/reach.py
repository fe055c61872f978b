"""Which tests run which functions of the package, and how long they take: each test file is run once.

Calls are traced, not lines: little slower than without. What tests run in other processes is not seen.
"""

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

from tests.linked_package import REPOSITORY


class Recorder:
    """A pytest plugin: what each test that passes has run, as {id: [seconds, [module:line, …]]}."""

    def __init__(self, package):
        self.tests, self._seen, self.passed = {}, set(), False
        self.prefix = str(package.path("")) + os.sep

    def trace(self, frame, event, argument):
        """Remember a call; nothing is traced inside of it."""
        self._seen.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    def pytest_runtest_protocol(self, item):
        self._seen, self._start = set(), time.perf_counter()
        threading.settrace(self.trace)
        sys.settrace(self.trace)

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            sys.settrace(None)
            threading.settrace(None)
            if self.passed:
                self.tests[report.nodeid] = [round(time.perf_counter() - self._start, 3), self._places()]
        elif report.when == "call":
            self.passed = report.passed
        else:
            self.passed = False

    def _places(self):
        inside = [(file, line) for file, line in self._seen if file.startswith(self.prefix)]
        return sorted(f"{file.removeprefix(self.prefix)}:{line}" for file, line in inside)


class Reach:
    """What is known so far, one JSON file per test file; a file that has changed is run again."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path_of(self, test_file):
        return self.folder / (str(test_file.relative_to(REPOSITORY)).replace(os.sep, "-") + ".json")

    def unknown(self):
        """Test files that have not been run as they are now."""
        files = sorted((REPOSITORY / "tests").rglob("test_*.py"))
        return [file for file in files if not self._is_known(file)]

    def _is_known(self, file):
        with contextlib.suppress(OSError, ValueError):
            return json.loads(self.path_of(file).read_text())["changed"] == file.stat().st_mtime_ns
        return False

    def write(self, test_file, tests):
        """Keep what a recorder found."""
        found = {"changed": test_file.stat().st_mtime_ns, "tests": tests}
        self.path_of(test_file).write_text(json.dumps(found))

    def tests(self):
        """{id: (seconds, set of functions)} of all tests."""
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            for name, (seconds, places) in json.loads(path.read_text())["tests"].items():
                if (REPOSITORY / name.partition("::")[0]).exists():
                    found[name] = (seconds, frozenset(places))
        return found


def chosen(tests, mutant, budget):
    """The tests that run the function of a fault, the quickest first, for at most `budget` seconds.

    A fault outside of functions concerns the tests that run anything of its module.
    """
    if mutant.kind == "kernel":
        concerned = [name for name in tests if name.startswith("tests/weights/")]
    elif mutant.function:
        place = f"{mutant.path}:{mutant.function}"
        concerned = [name for name, (_, places) in tests.items() if place in places]
    else:
        concerned = [name for name, (_, places) in tests.items() if _touches(places, mutant.path)]
    concerned.sort(key=lambda name: tests[name][0])
    used, taken = 0.0, []
    for name in concerned:
        used += tests[name][0]
        if taken and used > budget:
            break
        taken.append(name)
    return taken


def _touches(places, path):
    return any(place.startswith(path + ":") for place in places)
