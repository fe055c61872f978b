"""A copy of the package made of links, in which single files can be replaced: other builds, planted faults.

Python finds it before the installed package if its folder comes first in PYTHONPATH; child processes do too.
"""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "src/normscope"
KERNEL = Path("weights/sums/_kernel.c")
WIDEN = Path("checkpoints/formats/quantised/unpacking/_widen.c")


class LinkedPackage:
    """The package as links below `folder`."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        for path in PACKAGE.rglob("*"):
            if "__pycache__" not in path.parts:
                self.restore(path.relative_to(PACKAGE))

    def path(self, name):
        return self.folder / "normscope" / name

    def restore(self, name):
        """Let a file be the package's own again."""
        if (PACKAGE / name).is_dir():
            self.path(name).mkdir(parents=True, exist_ok=True)
            return
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).unlink(missing_ok=True)
        self.path(name).symlink_to(PACKAGE / name)

    def replace(self, name, text):
        """Give a file another text."""
        self.path(name).unlink(missing_ok=True)
        self.path(name).write_text(text)

    def compile_kernel(self, *flags, source=None):
        """Compile the kernel into the copy; `source` gives its files another text ({name: text})."""
        for name, text in (source or {}).items():
            self.replace(KERNEL.with_name(name), text)
        self.compile(KERNEL, *flags)

    def compile(self, source, *flags):
        """Compile an extension into the copy, with these flags."""
        built = self.path(source.with_suffix(".abi3.so"))
        built.unlink(missing_ok=True)
        include = sysconfig.get_path("include")
        words = ["gcc", "-shared", "-fPIC", f"-I{include}", *flags, str(self.path(source))]
        subprocess.run([*words, "-o", str(built)], check=True, capture_output=True, text=True)

    def environment(self, **more):
        """The environment in which Python imports the copy."""
        paths = [str(self.folder), str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


def library(name):
    """Where the compiler has one of its libraries, or None."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], check=False, capture_output=True, text=True)
    path = Path(shlex.split(found.stdout)[0]) if found.stdout.strip() else Path(name)
    return path.resolve() if path.is_absolute() and path.exists() else None
