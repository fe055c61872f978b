"""The tests of the C code with builds that check themselves: `make sanitize`, or

    python -m tests.weights.sanitized_kernel [FOLDER]

AddressSanitizer stops at a read or write outside an array, UndefinedBehaviorSanitizer at signed overflow, bad
shifts, misaligned access and null pointers. The build is in build/sanitize. Tests run once for
each instruction set; one that this processor does not have is left out, and named.
"""

import subprocess
import sys
from pathlib import Path

from tests.linked_package import REPOSITORY, WIDEN, LinkedPackage, library

INSTRUCTION_SETS = ("baseline", "avx2", "avx512")
FLAGS = (
    *("-O1", "-g", "-Wno-psabi", "-fno-math-errno", "-ffp-contract=fast", "-fno-omit-frame-pointer"),
    "-fsanitize=address,undefined,float-cast-overflow,pointer-overflow",
    "-fno-sanitize-recover=all",
)
TESTS = (
    *("weights/test_statistics.py", "weights/test_kernel_blocks.py", "weights/test_live_sums.py"),
    *("weights/test_walk.py", "weights/test_quantised.py", "checkpoints/test_quantised.py"),
    "checkpoints/test_quantised_doubts.py",
)
NOT_THESE = "not older_processors and not two_hundred_million"  # children of their own; gigabytes
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",  # the interpreter's own are not ours
    "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=99",
    "PYTHONMALLOC": "malloc",  # so that every array has an end that the sanitizer knows
}


def missing():
    """Why this machine cannot do it, or None."""
    if not sys.platform.startswith("linux"):
        return "sanitizers are tried on Linux only"
    try:
        return None if library("libasan.so") and library("libubsan.so") else "gcc has no sanitizer libraries"
    except FileNotFoundError:
        return "gcc is not installed"


def build(folder, source=None):
    """A linked package whose C code checks itself."""
    package = LinkedPackage(folder)
    package.compile_kernel(*FLAGS, source=source)
    package.compile(WIDEN, *FLAGS)
    return package


def python(package, instruction_set, *words):
    """Run Python with the checking kernel."""
    preload = f"{library('libasan.so')} {library('libubsan.so')}"
    environment = package.environment(
        **OPTIONS, LD_PRELOAD=preload, NORMSCOPE_INSTRUCTION_SET=instruction_set
    )
    return subprocess.run(
        [sys.executable, *words], check=False, env=environment, cwd=REPOSITORY, capture_output=True, text=True
    )


def has(package, instruction_set):
    """Whether this processor has an instruction set, asked from the kernel."""
    script = "from normscope.weights.sums import _kernel; print(_kernel.__file__, _kernel.INSTRUCTION_SET)"
    done = python(package, instruction_set, "-c", script)
    where, _, found = done.stdout.strip().rpartition(" ")
    if not where.startswith(str(package.folder)):
        raise RuntimeError(f"the checking kernel was not imported: {done.stdout}{done.stderr[-3000:]}")
    return found == instruction_set


def run_tests(package, instruction_set, *words):
    """The finished process of pytest over the tests of the sums and of widened floats."""
    files = [str(REPOSITORY / "tests" / name) for name in TESTS]
    # --capture=sys: a process that a sanitizer ends would lose what pytest holds of its stderr.
    plain = (
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--capture=sys",
        "-k",
        NOT_THESE,
    )
    return python(package, instruction_set, *plain, *words, *files)


def complaint(done):
    """What a sanitizer said, without the frames of the interpreter; empty if it said nothing."""
    lines = done.stderr.splitlines()
    starts = [
        i for i, line in enumerate(lines) if "runtime error:" in line or "ERROR: AddressSanitizer" in line
    ]
    return "\n".join(lines[starts[0] : starts[0] + 8]) if starts else ""


def main():
    reason = missing()
    if reason:
        sys.exit(f"cannot check the kernel here: {reason}")
    package = build(Path(sys.argv[1] if len(sys.argv) > 1 else REPOSITORY / "build/sanitize"))
    failed = False
    for name in INSTRUCTION_SETS:
        if not has(package, name):
            print(f"{name}: left out, this processor does not have it")
            continue
        done = run_tests(package, name)
        failed |= done.returncode != 0
        print(f"{name}: {done.stdout.strip().splitlines()[-1] if done.stdout.strip() else 'no output'}")
        if done.returncode:
            print(complaint(done) or done.stdout[-6000:] + done.stderr[-2000:])
    sys.exit(failed)


if __name__ == "__main__":
    main()
