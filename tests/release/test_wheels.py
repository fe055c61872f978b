"""A wheel is tagged for what is in it, and works where there is no compiler."""

import shutil
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from .builds import ROOT, build, contents, fresh_environment, in_environment, run_build, source_tree

VERSION = (ROOT / "src/normscope/_version.py").read_text("utf-8").split('"')[-2]
KERNEL = "normscope/weights/sums/_kernel.abi3.so"
NO_COMPILER = {"CC": "/bin/false"}
needs_compiler = pytest.mark.skipif(
    not (shutil.which("gcc") or shutil.which("clang")), reason="no GCC or Clang to build the kernel with"
)


@pytest.mark.slow
@needs_compiler
def test_a_wheel_built_with_a_compiler_is_native_and_serves_all_later_pythons(tmp_path):
    wheel = build(source_tree(tmp_path), "--wheel")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name == f"normscope-{VERSION}-cp311-abi3-{platform}.whl"
    files = contents(wheel)
    assert KERNEL in files
    assert b"Root-Is-Purelib: false" in files[f"normscope-{VERSION}.dist-info/WHEEL"]
    bin_folder = fresh_environment(tmp_path / "venv", wheel)
    assert in_environment(bin_folder, "normscope", "--version").startswith(
        f"normscope {VERSION}, sums by native"
    )
    where = in_environment(bin_folder, "python", "-c", "import normscope; print(normscope.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path)


@pytest.mark.slow
def test_a_wheel_built_without_a_compiler_is_pure_and_computes_with_torch(tmp_path):
    tree = source_tree(tmp_path)
    plant_an_old_kernel(tree)
    wheel = build(tree, "--wheel", **NO_COMPILER)
    assert wheel.name == f"normscope-{VERSION}-py3-none-any.whl"
    files = contents(wheel)
    assert not [name for name in files if name.endswith((".so", ".c", ".h"))]
    assert not [name for name in files if ".data/" in name]
    assert b"Root-Is-Purelib: true" in files[f"normscope-{VERSION}.dist-info/WHEEL"]
    bin_folder = fresh_environment(tmp_path / "venv", wheel)
    assert (
        in_environment(bin_folder, "normscope", "--version").strip() == f"normscope {VERSION}, sums by torch"
    )


def plant_an_old_kernel(tree):
    """Leave what an earlier build with a compiler leaves behind."""
    old = tree / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}" / KERNEL
    old.parent.mkdir(parents=True)
    old.write_bytes(b"from an earlier build")


@pytest.mark.slow
def test_the_sdist_is_complete_and_gives_the_same_wheel_as_the_tree(tmp_path):
    tree = source_tree(tmp_path)
    sdist = build(tree, "--sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    unpacked = tmp_path / "unpacked" / f"normscope-{VERSION}"
    missing = [
        name
        for name in (
            "LICENSE",
            "README.md",
            "CHANGELOG.md",
            "CITATION.cff",
            "SECURITY.md",
            "constraints.txt",
            "setup.py",
            "src/normscope/py.typed",
            "src/normscope/data/t5-base.csv",
            "src/normscope/data/README.md",
            "src/normscope/views/page/template.html",
            "src/normscope/checkpoints/formats/quantised/unpacking/_widen.c",
            "src/normscope/weights/sums/_kernel.c",
            "src/normscope/weights/sums/_kernel.pyi",
            "src/normscope/weights/sums/_lanes.h",
            "tests/conftest.py",
            "docs/index.md",
        )
        if not (unpacked / name).exists()
    ]
    assert missing == []
    from_sdist = contents(build(unpacked, "--wheel", NORMSCOPE_KERNEL="never"))
    assert from_sdist == contents(build(tree, "--wheel", NORMSCOPE_KERNEL="never"))
    package = {path.relative_to(tree / "src").as_posix() for path in package_files(tree)}
    assert package == {name for name in from_sdist if name.startswith("normscope/")}


def package_files(tree):
    """Every file of the package but the C sources, which a wheel does not need."""
    files = [path for path in (tree / "src/normscope").rglob("*") if path.is_file()]
    return [path for path in files if path.suffix not in (".c", ".h")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wish", "message"),
    [("require", "_kernel"), ("maybe", "NORMSCOPE_KERNEL must be auto, require or never")],
)
def test_a_kernel_that_is_required_must_compile(tmp_path, wish, message):
    done = run_build(source_tree(tmp_path), "--wheel", NORMSCOPE_KERNEL=wish, **NO_COMPILER)
    assert done.returncode != 0
    assert message in done.stdout + done.stderr


@pytest.mark.slow
@needs_compiler
def test_a_native_wheel_from_the_sdist_is_the_one_from_the_tree(tmp_path):
    tree = source_tree(tmp_path)
    from_tree = contents(build(tree, "--wheel", NORMSCOPE_KERNEL="require"))
    shutil.rmtree(tree / "dist")
    done = run_build(tree, NORMSCOPE_KERNEL="require")
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = (tree / "dist").glob("*.whl")
    assert contents(wheel).keys() == from_tree.keys()
