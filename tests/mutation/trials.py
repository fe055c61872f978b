"""Run tests in a fork of a process that has imported the libraries: against a fault, or to record them."""

import compileall
import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.linked_package import KERNEL, REPOSITORY, LinkedPackage

LIBRARIES = (
    *("numpy", "scipy.optimize", "scipy.stats", "scipy.special", "scipy.linalg"),
    *("torch", "safetensors.torch", "pytest", "plotly.graph_objects", "jinja2", "typer", "rich.console"),
)
KERNEL_FLAGS = ("-O1", "-g0", "-Wno-psabi", "-fno-math-errno", "-ffp-contract=fast")
MEMORY = 12 << 30  # bytes of address space: a fault may ask for any amount
PLAIN = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=line")


def import_libraries():
    """Import what most tests need, but nothing of the package itself."""
    for name in LIBRARIES:
        importlib.import_module(name)


class Workplace:
    """A linked package to plant faults in."""

    def __init__(self, folder):
        self.package = LinkedPackage(folder)
        compileall.compile_dir(self.package.path(""), quiet=1)

    @contextlib.contextmanager
    def planted(self, mutant):
        """The package with a fault; False if it does not compile."""
        name = Path(mutant.path)
        built = KERNEL.with_name("_kernel.abi3.so")
        try:
            if mutant.kind == "kernel":
                with contextlib.suppress(subprocess.CalledProcessError):
                    self.package.compile_kernel(*KERNEL_FLAGS, source={name.name: mutant.text})
                yield self.package.path(built).exists()
            else:
                self.package.replace(name, mutant.text)
                yield True
        finally:
            self.package.restore(name)
            if mutant.kind == "kernel":
                self.package.restore(built)

    def run(self, words, seconds, plugins=()):
        """Run pytest in a fork: its exit code ("time" if it was stopped), its output, and its seconds."""
        start = time.monotonic()
        with tempfile.NamedTemporaryFile("w+") as output:
            child = os.fork()
            if child == 0:
                self._become_pytest(words, output.fileno(), plugins)
            code = _wait(child, start + seconds)
            output.seek(0)
            return code, output.read(), time.monotonic() - start

    def run_tests(self, names, seconds):
        """The same for a list of tests, which may be too long for a command line."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
            listed.write("\n".join(names))
            listed.flush()
            return self.run([f"@{listed.name}"], seconds)

    def _become_pytest(self, words, output, plugins):
        code = 70
        try:
            os.setsid()
            os.dup2(output, 1)
            os.dup2(output, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            os.environ.update(self.package.environment(PYTHONDONTWRITEBYTECODE="1"))
            sys.dont_write_bytecode = True  # two faults of one size within a second would be one to Python
            sys.path[:0] = [str(self.package.folder), str(REPOSITORY)]
            os.chdir(REPOSITORY)
            import pytest

            code = int(pytest.main([*PLAIN, *words], plugins=list(plugins)))
        except BaseException:  # whatever it is: this process is a copy of another, and must end here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _wait(child, deadline):
    """The exit code of a child, or "time"; whatever it has started ends with it."""
    pause = 0.01
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        late = time.monotonic() > deadline
        if done or late:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            if done:
                return os.waitstatus_to_exitcode(status)
            os.waitpid(child, 0)
            return "time"
        time.sleep(pause)
        pause = min(0.2, pause * 1.5)


class _Keep:
    """Writes what a recorder has found when the session ends."""

    def __init__(self, recorder, path):
        self.recorder, self.path = recorder, path

    def pytest_sessionfinish(self):
        Path(self.path).write_text(json.dumps(self.recorder.tests))


def record(workplace, recorder, test_file, seconds):
    """What each test of a file runs. Tests that fail or are not reached in time are left out."""
    with tempfile.NamedTemporaryFile() as file:
        keep = _Keep(recorder, file.name)
        words = ["--maxfail=1000", str(test_file)]
        workplace.run(words, seconds, plugins=[recorder, keep])
        text = Path(file.name).read_text()
        return json.loads(text) if text else {}
