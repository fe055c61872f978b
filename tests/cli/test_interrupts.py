"""Ctrl-C in a real process: one sentence that says how to continue, exit code 130, no traceback."""

import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cli.calling import SMALL
from tests.conftest import random_walk, save_series

CALL = [sys.executable, "-m", "normscope"]


class Stalled:
    """A web server that answers nothing, and says when it was asked."""

    def __enter__(self):
        asked, ended = threading.Event(), threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.set()
                ended.wait(60)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_):
                pass

        self.asked, self._ended = asked, ended
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/step_1.safetensors"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()


def interrupted(process):
    """Press Ctrl-C, and return what was printed on stderr."""
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    return stderr


def start(*words, cwd):
    command = [*CALL, *map(str, words)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("command", ["report", "scan", "audit", "spectrum"])
def test_a_command_that_is_interrupted_says_how_to_continue(command, tmp_path):
    with Stalled() as server:
        process = start(command, server.url, cwd=tmp_path)
        assert server.asked.wait(60)
        said = interrupted(process)
    assert said.startswith("normscope: interrupted: ") and said.count("\n") == 1
    assert "run file" in said and "the same command continues from there" in said


@pytest.mark.slow
def test_a_scan_that_was_interrupted_is_continued_by_the_same_report(tmp_path):
    """The page of an interrupted and continued report has the norms of one that was not."""
    save_series(tmp_path / "series", random_walk(range(0, 400, 10)))
    process = start("report", "series", "-o", "page.html", cwd=tmp_path)
    while process.poll() is None and not (tmp_path / "series.db").exists():
        time.sleep(0.01)
    said = interrupted(process)
    assert "the same command continues" in said and not (tmp_path / "page.html").exists()
    done = subprocess.run([*CALL, "report", "series", "-o", "page.html"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0 and (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_a_training_that_is_interrupted_says_what_is_kept(tmp_path):
    process = start("train", "--steps", 100_000, *SMALL, "-o", "run", cwd=tmp_path)
    while process.poll() is None and not (tmp_path / "run" / "run.db").exists():
        time.sleep(0.01)
    assert "the training is saved up to its last checkpoint" in interrupted(process)
