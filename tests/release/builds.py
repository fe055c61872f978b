"""Build and install the package the way a release does, in folders of their own and without a network."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_GENERATED = shutil.ignore_patterns(
    ".*", "__pycache__", "*.so", "*.egg-info", "*.db", "build", "dist", "site", "demo", "out"
)


def source_tree(folder: Path) -> Path:
    """A copy of the sources as in a fresh clone: nothing that was built, cached or installed."""
    return Path(shutil.copytree(ROOT, folder / "tree", ignore=_GENERATED))


def build(tree: Path, *what: str, **environment: str) -> Path:
    """Run `python -m build` in the tree and return the one file of the last kind asked for."""
    done = run_build(tree, *what, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    endings = {"--sdist": "*.tar.gz", "--wheel": "*.whl"}
    [found] = (tree / "dist").glob(endings[what[-1]])
    return found


def run_build(tree: Path, *what: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m build` with the build tools of this environment."""
    clean = {
        key: value for key, value in os.environ.items() if key not in ("NORMSCOPE_KERNEL", "CC", "CFLAGS")
    }
    words = [sys.executable, "-m", "build", "--no-isolation", *what]
    return subprocess.run(words, cwd=tree, env=clean | environment, capture_output=True, text=True)


def contents(wheel: Path) -> dict[str, bytes]:
    """Every file of a wheel by name, but for RECORD (hashes of the others)."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def fresh_environment(folder: Path, wheel: Path) -> Path:
    """A virtual environment with the wheel, which borrows its dependencies; return its bin folder.

    A path in a .pth file is searched for modules, but .pth files found there are not followed: the
    editable normscope of the environment that runs the tests stays invisible.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    own = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(own, "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, str(wheel)], check=True)
    return python.parent


def in_environment(bin_folder: Path, *words: str) -> str:
    """What a command of the environment prints, with no compiler within reach."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL"))}
    environment = clean | {"PATH": str(bin_folder), "CC": "/bin/false"}
    command = [str(bin_folder / words[0]), *words[1:]]
    done = subprocess.run(command, cwd=bin_folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
