"""Draw a sample of faults, run the tests against each, and list those that no test noticed."""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.linked_package import PACKAGE, REPOSITORY
from tests.mutation.kernel_mutants import kernel_mutants
from tests.mutation.python_mutants import count_python, python_mutant
from tests.mutation.reach import Reach, Recorder, chosen
from tests.mutation.trials import Workplace, import_libraries, record

FOLDER = REPOSITORY / "build/mutation"
NO_SUCH_TEST = "no match in any of"  # pytest's words: nothing was tried
SUFFIXES = (".py", ".c", ".h")
RECORDING = 600  # seconds that one test file may take when it is recorded


def arguments(words=None):
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", help="files or folders below src/normscope; default: all of it")
    parser.add_argument("--sample", type=int, default=300, help="faults to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--tests", type=float, default=40.0, help="seconds of tests per fault, quickest first"
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="stop then; call again to go on")
    parser.add_argument("--share", default="1/1", help="K/N: every N-th fault of the sample, for N processes")
    parser.add_argument("--record", nargs="*", metavar="FOLDER", help="only see what these tests run")
    parser.add_argument("--survivors", action="store_true", help="try the survivors so far again")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results are kept")
    return parser.parse_args(words)


def files_of(modules):
    """The files that faults are planted in, also those that run only in other processes or draw pages."""
    found = []
    for name in modules or [""]:
        path = PACKAGE / name
        path = path if path.exists() else path.with_suffix(".py")
        if not path.exists():
            sys.exit(f"no such module: {name}; expected a path below {PACKAGE}")
        every = [path] if path.is_file() else sorted(path.rglob("*.*"))
        found += [each for each in every if each.suffix in SUFFIXES and each.name != "__init__.py"]
    return found


def draw(files, size, seed):
    """A random sample of faults: each fault of each file is as likely as any other."""
    places = []
    for file in files:
        if file.suffix == ".py":
            places += [(file, number) for number in range(count_python(file))]
        else:
            places += [(file, mutant) for mutant in kernel_mutants(file)]
    order = random.Random(seed)
    picked = order.sample(places, min(size, len(places)))
    print(f"{len(picked)} of {len(places)} faults in {len(files)} files, seed {seed}", flush=True)
    for file, which in picked:
        yield python_mutant(file, which) if isinstance(which, int) else which


def find_reach(reach, workplace, wanted):
    """Run the test files that are not known yet."""
    for file in reach.unknown():
        place = file.relative_to(REPOSITORY / "tests").as_posix()
        if wanted and not any(place.startswith(prefix) for prefix in wanted):
            continue
        start = time.monotonic()
        tests = record(workplace, Recorder(workplace.package), file, RECORDING)
        reach.write(file, tests)
        print(f"recorded {place}: {len(tests)} tests, {time.monotonic() - start:.0f} s", flush=True)


def tried(workplace, mutant, tests, budget):
    """One fault's result, as it is kept: killed, survived, "time", "not reached" or "does not compile"."""
    names = chosen(tests, mutant, budget)
    found = {name: getattr(mutant, name) for name in ("key", "path", "line", "kind", "before", "after")}
    if not names:
        return {**found, "result": "not reached", "tests": 0}
    limit = 30 + 5 * sum(tests[name][0] for name in names)
    with workplace.planted(mutant) as compiles:
        if not compiles:
            return {**found, "result": "does not compile", "tests": 0}
        code, output, seconds = workplace.run_tests(names, limit)
    passed = code == 0 or NO_SUCH_TEST in output
    result = "survived" if passed else "time" if code == "time" else "killed"
    said = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR", "E "))][-1:]
    measured = {"tests": len(names), "seconds": round(seconds, 1), "said": "".join(said)[:200]}
    return {**found, "result": result, **measured}


def known_results(file):
    """{key: result} of what was tried before; the last one counts."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {each["key"]: each for each in map(json.loads, lines)}


def summary(results):
    """The share of faults that were noticed, by module, and those that were not."""
    counted = [each for each in results if each["result"] != "does not compile"]
    missed = [each for each in counted if each["result"] in ("survived", "not reached")]
    total, lost = Counter(each["path"] for each in counted), Counter(each["path"] for each in missed)
    for each in sorted(missed, key=lambda each: (each["path"], each["line"])):
        print(_line(each))
    for path in sorted(total):
        print(f"{total[path] - lost[path]:4} of {total[path]:4}  {path}")
    kept = len(counted) - len(missed)
    late = sum(each["result"] == "time" for each in counted)  # on a busy machine not all of these are noticed
    share = f"{kept / max(1, len(counted)):.1%}"
    print(f"noticed: {kept} of {len(counted)} = {share}, {late} of them only by running out of time")


def _line(each):
    return (
        f"{each['result']}: {each['path']}:{each['line']} {each['kind']}: {each['before']} -> {each['after']}"
    )


def main():
    asked = arguments()
    end = time.monotonic() + 60 * asked.minutes
    import_libraries()
    place = Path(tempfile.mkdtemp(prefix="mutation-"))
    try:
        workplace, reach = Workplace(place), Reach(asked.folder / "reach")
        find_reach(reach, workplace, asked.record)
        if asked.record is None:
            run_sample(asked, workplace, reach.tests(), end)
    finally:
        shutil.rmtree(place)


def run_sample(asked, workplace, tests, end):
    kept = asked.folder / "results.jsonl"
    part, parts = map(int, asked.share.split("/"))
    results = []
    for number, mutant in enumerate(draw(files_of(asked.modules), asked.sample, asked.seed)):
        if number % parts != part - 1:
            continue
        before = known_results(kept).get(mutant.key)
        again = asked.survivors and before and before["result"] in ("survived", "not reached")
        if before is None or again:
            if time.monotonic() > end:
                print("stopped: out of time; call again to go on")
                break
            before = tried(workplace, mutant, tests, asked.tests)
            with kept.open("a") as file:
                file.write(json.dumps(before) + "\n")
            print(_line(before), flush=True)
        results.append(before)
    summary(results)


if __name__ == "__main__":
    main()
