"""Mappings of files of equal size do not compete for the same sets of the cache."""

import os
import subprocess
import sys
from itertools import pairwise

import pytest

from normscope.checkpoints.storage import page_mapping
from normscope.checkpoints.storage.page_mapping import HUGE_PAGE, map_file

PLACES = """
import os, sys
import numpy as np
from normscope.checkpoints.storage import page_mapping
from normscope.checkpoints.storage.page_mapping import HUGE_PAGE, map_file
descriptor = os.open(sys.argv[1], os.O_RDONLY)
found = [map_file(descriptor) for _ in range(12)]
print(*(np.frombuffer(mapping.view, np.uint8, 1).ctypes.data // HUGE_PAGE for mapping in found))
"""


def empty(path, size):
    path.write_bytes(b"")
    os.truncate(path, size)
    return path


def mapped(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return map_file(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels place mappings in other ways")
@pytest.mark.parametrize("pages", [128, 129, 256])
def test_equal_files_are_an_odd_number_of_huge_pages_apart(tmp_path, pages):
    """In a separate process, whose address space has few gaps."""
    path = empty(tmp_path / "x", pages * HUGE_PAGE)
    output = subprocess.run([sys.executable, "-c", PLACES, path], capture_output=True, text=True, check=True)
    places = [int(word) for word in output.stdout.split()]
    assert len(places) == 12
    assert all((a - b) % 2 for a, b in pairwise(places))


def test_a_small_file_needs_no_spacer(tmp_path):
    path = empty(tmp_path / "x", 1000)
    assert [mapped(path).spacers for _ in range(4)] == [[], [], [], []]


def test_mapped_again_and_again(tmp_path):
    path = empty(tmp_path / "x", 4 * HUGE_PAGE)
    assert {bytes(mapped(path).view[-3:]) for _ in range(50)} == {bytes(3)}


def test_a_profiler_that_holds_frames_does_no_harm(tmp_path, monkeypatch):
    """Dask samples its workers all the time: a view in a sampled frame keeps a mapping from being closed."""
    path = empty(tmp_path / "x", 4 * HUGE_PAGE)
    views, first_page = [], page_mapping._first_page

    def sampled(file):
        views.append(memoryview(file))
        return first_page(file)

    monkeypatch.setattr(page_mapping, "_first_page", sampled)
    monkeypatch.setattr(page_mapping, "_conflicts", lambda page, other: len(views) % 4 != 0)
    assert len(mapped(path).spacers) == 3
