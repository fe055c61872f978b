"""One writer per run file: the second is told who the first is, and a killed process holds nothing."""

import errno
import json
import os
import platform
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from normscope import writer_lock
from normscope.errors import RunFileBusy, RunFileError
from normscope.run import Run, ScalarRow
from normscope.writer_lock import WriterLock

HOLDER = """
import sys, time
from normscope.run import Run
run = Run.create(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""
FORKING_HOLDER = """
import os, sys, time
from normscope.run import Run
run = Run.create(sys.argv[1])
child = os.fork()
if child == 0:
    {in_child}
    os._exit(0)
{in_parent}
print(child, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


@pytest.fixture
def start():
    """Start a program with the path as its argument, and wait for its first line."""
    processes = []

    def begin(program, path):
        command = [sys.executable, "-c", program, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process, process.stdout.readline().strip()

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def end(process, how):
    process.send_signal(how)
    process.communicate()


def lock_file(path):
    return path.with_name(f".{path.name}.lock")


def test_the_second_writer_is_told_who_holds_the_file(path, start):
    process, _ = start(HOLDER, path)
    began = time.monotonic()
    with pytest.raises(RunFileBusy) as caught:
        Run.create(path)
    assert time.monotonic() - began < 2
    text = str(caught.value)
    assert f"process {process.pid} on {platform.node()}" in text
    assert "since 20" in text and "--run FILE" in text and "run.db" in text
    assert isinstance(caught.value, RunFileError) and caught.value.exit_code == 1
    with pytest.raises(RunFileBusy):
        Run(path, write=True)


def test_readers_never_wait(path, start):
    start(HOLDER, path)
    with Run(path) as run:
        assert run.checkpoints() == []


def test_a_link_to_the_file_is_the_same_file(path, tmp_path, start):
    process, _ = start(HOLDER, path)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "other.db"
    link.symlink_to(path)
    with pytest.raises(RunFileBusy, match=str(process.pid)):
        Run.create(link)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_ends_with_its_process(path, start, how):
    process, _ = start(HOLDER, path)
    end(process, how)
    with Run.create(path):
        assert json.loads(lock_file(path).read_text())["pid"] == os.getpid()
    assert not lock_file(path).exists()


def test_a_child_does_not_keep_the_lock_of_a_killed_parent(path, start):
    """Workers of a data loader are forked, and may outlive their parent by a while."""
    program = FORKING_HOLDER.format(in_child="time.sleep(60)", in_parent="")
    process, child = start(program, path)
    try:
        process.kill()
        process.wait()
        with Run.create(path):
            pass
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_child_cannot_release_the_lock_of_its_parent(path, start):
    program = FORKING_HOLDER.format(in_child="run.close(); del run", in_parent="os.waitpid(child, 0)")
    process, _ = start(program, path)
    with pytest.raises(RunFileBusy, match=f"process {process.pid} "):
        Run.create(path)


def test_one_process_may_open_the_file_several_times(path, start):
    first, second = Run.create(path), Run(path, write=True)
    first.close()
    first.close()
    with second, second.transaction():
        second.write([ScalarRow(1, "loss", 2.0)])
        _, said = start("try:\n    import sys; from normscope.run import Run; Run.create(sys.argv[1])\n"
                        "except Exception as e: print(type(e).__name__)", path)  # fmt: skip
        assert said == "RunFileBusy"
    assert not lock_file(path).exists()


def test_threads_share_the_lock(path):
    def work():
        for _ in range(50):
            with Run.create(path):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not lock_file(path).exists() and not writer_lock._held


CREATOR = """
import sys, time
from normscope.errors import RunFileBusy
from normscope.run import Run, ScalarRow
number = int(sys.argv[2])
for attempt in range(200):
    try:
        with Run.create(sys.argv[1]) as run:
            for step in range(5):
                with run.transaction():
                    run.write([ScalarRow(step, f"of {number}", 1.0)])
        break
    except RunFileBusy:
        time.sleep(0.01)
"""


def test_processes_that_create_a_file_at_once_create_one(path):
    """Whoever is refused tries again; in the end everyone's rows are there and nothing else is."""
    command = [sys.executable, "-c", CREATOR, str(path)]
    processes = [subprocess.Popen([*command, str(number)]) for number in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    with Run(path) as run:
        assert run.query("SELECT count(*), count(DISTINCT name) FROM scalar") == [(20, 4)]
    assert [file.name for file in path.parent.iterdir()] == ["run.db"]


def test_a_run_file_that_was_forgotten_open_is_released(path):
    run = Run.create(path)
    assert lock_file(path).exists()
    del run
    assert not lock_file(path).exists()


def test_a_file_that_cannot_be_opened_is_not_left_locked(path):
    path.write_text("something else, longer than the header of a database " * 9)
    with pytest.raises(RunFileError):
        Run.create(path)
    assert not lock_file(path).exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    folder = tmp_path / "fixed"
    folder.mkdir()
    Run.create(folder / "run.db").close()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with Run(folder / "run.db") as run:
            assert run.checkpoints() == []
        run = Run(folder / "run.db", write=True)
        with pytest.raises(RunFileError, match="cannot write"), run, run.transaction():
            run.write([ScalarRow(1, "loss", 2.0)])
    finally:
        folder.chmod(stat.S_IRWXU)


@pytest.fixture
def no_flock(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(writer_lock.fcntl, "flock", refuse)


def write_holder(path, pid, host):
    holder = {"pid": pid, "host": host, "since": "2026-01-01 00:00:00 +0000", "command": "train.py"}
    lock_file(path).write_text(json.dumps(holder))


def test_without_flock_the_process_decides(path, no_flock, start):
    process, _ = start("print('ready', flush=True); import sys; sys.stdin.read()", path)
    write_holder(path, process.pid, platform.node())
    with pytest.raises(RunFileBusy, match=f"process {process.pid} on .* since 2026"):
        Run.create(path)
    end(process, signal.SIGKILL)
    with Run.create(path):
        assert json.loads(lock_file(path).read_text())["pid"] == os.getpid()
    assert not lock_file(path).exists()


def test_without_flock_another_host_cannot_be_asked(path, no_flock, caplog):
    write_holder(path, os.getpid(), "another-host")
    with Run.create(path) as run, run.transaction():
        run.write([ScalarRow(1, "loss", 2.0)])
    assert "may still be written by process" in caplog.text and "another-host" in caplog.text


def test_a_lock_file_without_contents_is_no_obstacle(path):
    lock_file(path).write_text("{")
    Run.create(path).close()
    assert not lock_file(path).exists()


def test_a_missing_folder_cannot_be_locked_and_is_not_created(tmp_path):
    lock = WriterLock(tmp_path / "gone" / "run.db")
    lock.release()
    assert not (tmp_path / "gone").exists()


def test_a_lock_file_that_somebody_deleted_is_made_again(path, start):
    with Run.create(path) as run:
        lock_file(path).unlink()
        with run.transaction():
            run.set_meta("here", True)
        assert lock_file(path).exists()
        assert start(HOLDER, path)[1] == ""  # refused
        lock_file(path).unlink()
        start(HOLDER, path)
        with pytest.raises(RunFileBusy), run.transaction():
            run.set_meta("here", False)
    with Run(path) as run:
        assert run.meta == {"here": True}


def test_a_fork_may_not_write_with_the_file_of_its_parent(path):
    with Run.create(path) as run:
        child = os.fork()
        if not child:
            try:
                with run.transaction():
                    pass
            except RunFileError as error:
                os._exit(0 if "fork" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
