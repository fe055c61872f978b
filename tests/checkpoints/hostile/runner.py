"""Scans folders, each in a child process of its own, and reports exit code, time, memory and what was said.

Reads one folder per line and answers with one line of JSON. The modules are loaded once; a child is a fork.
"""

import contextlib
import functools
import gc
import io
import json
import os
import resource
import signal
import sys
import tempfile
import time

import numpy

SECONDS = 60
ADDRESS_SPACE = 3 << 30


def warm_up() -> None:
    """Scan a sound file in this process, so that the children find everything loaded."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        numpy.savez(f"{folder}/step_1.npz", w=numpy.ones(2, "f4"))
        sys.argv = ["normscope", "scan", folder, "--run", f"{folder}/run.db"]
        with contextlib.suppress(SystemExit):
            main()


def scan(folder: str) -> None:
    """Scan a folder in this process, which ends with the scan; what it prints goes to files."""
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{folder}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.alarm(SECONDS)
    sys.argv = ["normscope", "scan", folder, "--run", f"{folder}.db"]
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def measured(folder: str) -> dict[str, object]:
    """Scan a folder in a child, and measure that."""
    started = time.monotonic()
    child = os.fork()
    if not child:
        scan(folder)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)  # below 0: killed by a signal
    return {
        "code": code,
        "wall": time.monotonic() - started,
        "cpu": used.ru_utime + used.ru_stime,
        "bytes": used.ru_maxrss * 1024,
    }


if __name__ == "__main__":
    import normscope.cli.app
    from normscope.cli.app import main

    normscope.cli.app.build = functools.cache(normscope.cli.app.build)
    warm_up()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(measured(line.rstrip("\n"))), flush=True)
