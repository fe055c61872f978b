"""Build the native kernel. Everything else about the package is declared in pyproject.toml.

The kernel is optional: where it cannot be compiled, the package computes the same sums with torch.
The environment variable NORMSCOPE_KERNEL decides what a build does about it:

    auto     (the default) compile it, and go on without it when that fails
    require  compile it, or fail
    never    do not try

A wheel that contains the kernel is tagged cp311-abi3-PLATFORM: one file for Python 3.11 and later.
A wheel without it runs anywhere and is tagged py3-none-any.
"""

import os
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import OptionError, PlatformError

KERNEL = Extension(
    "normscope.weights.sums._kernel",
    sources=["src/normscope/weights/sums/_kernel.c"],
    depends=[
        f"src/normscope/weights/sums/_{name}.h" for name in ("chain", "guard", "lanes", "live", "places")
    ],
    extra_compile_args=["-O3", "-g0", "-Wno-psabi", "-fno-math-errno", "-ffp-contract=fast"],
    py_limited_api=True,
)

_UNPACKING = "normscope.checkpoints.formats.quantised.unpacking"
WIDENING = Extension(
    f"{_UNPACKING}._widen",
    sources=[f"src/{_UNPACKING.replace('.', '/')}/_widen.c"],
    extra_compile_args=["-O3", "-g0", "-fno-math-errno", "-fno-trapping-math"],
    py_limited_api=True,
)


def extensions() -> list[Extension]:
    """The compiled parts, unless they are not wanted or this Python has no stable ABI to compile them for."""
    wish = os.environ.get("NORMSCOPE_KERNEL") or "auto"
    if wish not in ("auto", "require", "never"):
        raise OptionError(f"NORMSCOPE_KERNEL must be auto, require or never; got {wish!r}.")
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    if wish == "require" and free_threaded:
        raise PlatformError("NORMSCOPE_KERNEL=require: free-threaded Python has no stable ABI.")
    KERNEL.optional = WIDENING.optional = wish == "auto"
    return [] if wish == "never" or free_threaded else [KERNEL, WIDENING]


class BuildKernel(build_ext):
    """Compile the kernel, and know afterwards whether that worked."""

    def run(self) -> None:
        """Compile; an old result is removed first, so that what is there then is from this build."""
        for path in self._compiled():
            path.unlink(missing_ok=True)
        super().run()

    def complete(self) -> bool:
        """Return whether every extension that was asked for has been compiled."""
        return all(path.exists() for path in self._compiled())

    def _compiled(self) -> list[Path]:
        return [Path(self.build_lib, self.get_ext_filename(each.name)) for each in self.extensions]


class TaggedWheel(bdist_wheel):
    """A wheel tagged for what is in it, which is known only once the compiler has run."""

    def run(self) -> None:
        """Build first, then decide between a platform wheel and a pure one."""
        if not self.skip_build:
            self.run_command("build")
        if self.distribution.has_ext_modules() and not self.get_finalized_command("build_ext").complete():
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


found = extensions()
setup(
    ext_modules=found,
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": TaggedWheel},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if found else {},
)
