"""Runs commands, each in a child process of its own, and reports exit code, time, memory and what was said.

Reads one folder to scan per line, or a JSON object with `argv` and `said` (where to write what is printed),
and answers with one line of JSON. The modules are loaded once; a child is a fork.
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


def call(argv: list[str], said: str) -> None:
    """Run a command in this process, which ends with it; what it prints goes to files."""
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{said}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.alarm(SECONDS)
    sys.argv = ["normscope", *argv]
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def measured(line: str) -> dict[str, object]:
    """Run a command in a child, and measure that."""
    request = {"argv": ["scan", line, "--run", f"{line}.db"], "said": line}
    if line.startswith("{"):
        request = json.loads(line)
    started = time.monotonic()
    child = os.fork()
    if not child:
        call(**request)
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
