"""What commands cost on large runs: wall time, processor time and peak memory, each in a process of its own.

    python -m benchmarks load                       # everything, about ten minutes
    python -m benchmarks load --only scanned,many   # some of the cases
    python -m benchmarks load --keep FOLDER         # files that are there are not made again

Cases: `scanned` (1,000 checkpoints × 2,000 tensors), `wide` (a folder of 20 checkpoints × 20,000 tensors),
`many` (folders of 1,000 and of 10,000 checkpoints × 100 tensors), `live` (100,000 records × 50 tensors).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.load_files import checkpoint_folder, live_run, scanned_run

# VmHWM, not ru_maxrss: the latter is inherited from the process that started this one.
CHILD = """
import json, sys, time
from pathlib import Path
report, words = sys.argv[1], sys.argv[2:]
began = time.perf_counter()
from normscope.cli.app import main
sys.argv = ["normscope", *words]
code = 0
try:
    main()
except SystemExit as end:
    code = end.code or 0
seconds = time.perf_counter() - began
lines = Path("/proc/self/status").read_text().splitlines()
peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
Path(report).write_text(json.dumps([code, seconds, time.process_time(), peak]))
"""


def measure(folder, label, *words):
    """Run one command in a child process and print what it cost."""
    report, out = folder / "cost.json", folder / "out.txt"
    with out.open("wb") as stdout:
        words = [str(word) for word in words]
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(report), *words],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
    code, seconds, busy, peak = json.loads(report.read_text())
    print(f"  {label:28} {seconds:6.1f} s {busy:6.1f} s processor {peak:6.0f} MB", flush=True)
    if code:
        print(f"    exit {code}: {done.stderr.strip()[-300:]}", flush=True)


def made(path, make, *sizes):
    """The path, after making what is to be there, unless it is there."""
    if not path.exists():
        make(path, *sizes)
    return path


READERS = {
    "show": ("show", "RUN"),
    "show --json": ("show", "RUN", "--json"),
    "show --by layer --json": ("show", "RUN", "--by", "layer", "--json"),
    "fit": ("fit", "RUN"),
    "fit --by layer": ("fit", "RUN", "--by", "layer"),
    "forecast": ("forecast", "RUN", "--to", "2000000"),
    "advise": ("advise", "RUN"),
    "audit": ("audit", "RUN"),
    "watch --once": ("watch", "RUN", "--once"),
    "export, CSV": ("export", "RUN", "-o", "OUT/export.csv"),
    "export, Parquet": ("export", "RUN", "-o", "OUT/export.parquet"),
    "report": ("report", "RUN", "-o", "OUT/report.html"),
}


def readers(folder, run, names=tuple(READERS)):
    """Every command that reads a run file."""
    for name in names:
        words = [word.replace("RUN", str(run)).replace("OUT", str(folder)) for word in READERS[name]]
        measure(folder, name, *words)


def scanned(folder):
    print("1,000 checkpoints × 2,000 tensors, run file", flush=True)
    run = made(folder / "scanned.db", scanned_run, 1000, 2000)
    other = made(folder / "other.db", scanned_run, 1000, 2000, 10_000)
    print(f"  {run.stat().st_size / 1e6:.0f} MB")
    measure(folder, "an empty command", "--version")
    readers(folder, run)
    measure(folder, "compare, two such runs", "compare", run, other)


def wide(folder):
    print("20 checkpoints × 20,000 tensors, folder", flush=True)
    series = made(folder / "wide", checkpoint_folder, 20, 20_000)
    run = folder / "wide.db"
    run.unlink(missing_ok=True)
    measure(folder, "scan", "scan", series, "--run", run)
    measure(folder, "scan again", "scan", series, "--run", run)
    measure(folder, "audit of the folder", "audit", series)
    readers(folder, run, ("show", "fit", "report"))


def many(folder):
    for count in (1000, 10_000):
        print(f"{count:,} checkpoints × 100 tensors, folder", flush=True)
        series = made(folder / f"many{count}", checkpoint_folder, count, 100)
        run = folder / f"many{count}.db"
        run.unlink(missing_ok=True)
        measure(folder, "scan", "scan", series, "--run", run)
        readers(folder, run)
        measure(folder, "audit of the folder", "audit", series)


def live(folder):
    print("100,000 records × 50 tensors, run file", flush=True)
    run = made(folder / "live.db", live_run, 100_000, 50)
    print(f"  {run.stat().st_size / 1e6:.0f} MB")
    readers(folder, run)


CASES = {"scanned": scanned, "wide": wide, "many": many, "live": live}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks load")
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args(sys.argv[2:])
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(exist_ok=True)
        for case in options.only.split(","):
            CASES[case](folder)
