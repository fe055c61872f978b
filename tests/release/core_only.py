"""Prove that the first path through normscope needs nothing but the core dependencies.

    python -m tests.release.core_only

In an environment that has more, imports of everything else are refused, so that the proof is the same.
"""

import contextlib
import importlib.metadata
import io
import re
import sys
import tempfile
from importlib.abc import MetaPathFinder
from pathlib import Path


class Refuse(MetaPathFinder):
    """Refuses to find some top-level modules, as if they were not installed."""

    def __init__(self, names):
        self.names = frozenset(names)

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {fullname!r} (refused)", name=fullname)


def canonical(name):
    """The spelling by which the package index compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def core_distributions():
    """The installed packages that normscope's own requirements lead to, by name."""
    waiting, found = ["normscope"], set()
    while waiting:
        name = canonical(waiting.pop())
        if name in found:
            continue
        found.add(name)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            lines = importlib.metadata.requires(name) or []
            waiting += [re.match(r"[\w.-]+", line)[0] for line in lines if "extra ==" not in line]
    return found


def optional_modules():
    """The top-level modules that only packages outside the core install."""
    core, homes = core_distributions(), importlib.metadata.packages_distributions()
    return {module for module, owners in homes.items() if core.isdisjoint(map(canonical, owners))}


def normscope(*words):
    """What a command prints."""
    from normscope.cli.app import main

    printed = io.StringIO()
    sys.argv = ["normscope", *words]
    with contextlib.redirect_stdout(printed):
        try:
            main()
        except SystemExit as end:
            assert not end.code, f"normscope {' '.join(words)} ended with {end.code}"
    return printed.getvalue()


def save_series(folder):
    """Three small checkpoints."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    state = {f"h.{layer}.attn.c_proj.weight": torch.ones(8, 8) for layer in range(2)}
    for step in (0, 10, 100):
        save_file(
            {name: value * (1 + step) for name, value in state.items()}, folder / f"step_{step}.safetensors"
        )


def first_path(folder):
    """Import, help, fit, scan, show, fit of the scan, report."""
    import normscope as package

    assert "torch" not in sys.modules, "import normscope loaded torch"
    assert "scan" in normscope("--help")
    assert "sums by" in normscope("--version")
    assert "power" in normscope("fit", "t5-base")
    save_series(folder / "series")
    run, page = folder / "run.db", folder / "report.html"
    normscope("scan", str(folder / "series"), "--run", str(run))
    assert "100" in normscope("show", str(run))
    normscope("report", str(run), "-o", str(page))
    assert "plotly" in page.read_text("utf-8").lower()
    return package.__version__


if __name__ == "__main__":
    missing = optional_modules()
    sys.meta_path.insert(0, Refuse(missing))
    with tempfile.TemporaryDirectory() as scratch:
        version = first_path(Path(scratch))
    print(f"normscope {version}: import, help, fit, scan, show and report need only the core dependencies")
    print(f"modules of other packages that were refused: {len(missing)}")
