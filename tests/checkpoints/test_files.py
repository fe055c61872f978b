"""Local files: zero-copy reads, drops, digests, and files that change underneath."""

import os

import pytest

from normscope.checkpoints.storage import local as files
from normscope.checkpoints.storage.local import LocalFile, LocalFolder
from normscope.errors import CheckpointError, CorruptCheckpoint


@pytest.fixture
def data():
    return os.urandom(300_000)


def make(tmp_path, data, name="f"):
    path = tmp_path / name
    path.write_bytes(data)
    return LocalFile(path)


def test_reads_what_is_there(tmp_path, data):
    file = make(tmp_path, data)
    assert file.size == len(data)
    assert bytes(file.read(5, 70_000)) == data[5:70_000] == file.peek(5, 70_000)
    assert bytes(file.read(7, 7)) == b""


def test_a_drop_changes_nothing(tmp_path, data):
    file = make(tmp_path, data)
    before = file.read(0, file.size)
    file.drop(100, 250_000)
    assert bytes(before) == bytes(file.read(0, file.size)) == data


def test_buffers_outlive_the_file(tmp_path, data):
    file = make(tmp_path, data)
    view = file.read(0, 10)
    file.close()
    assert bytes(view) == data[:10]
    assert bytes(file.read(10, 20)) == data[10:20]


def test_an_empty_file(tmp_path):
    file = make(tmp_path, b"")
    assert file.size == 0
    assert bytes(file.read(0, 0)) == b""
    assert file.digest
    with pytest.raises(CorruptCheckpoint, match="truncated"):
        file.read(0, 1)


@pytest.mark.parametrize(("start", "stop"), [(0, 300_001), (-1, 5), (10, 5), (2**63, 2**63 + 1)])
def test_a_range_outside_is_an_error(tmp_path, data, start, stop):
    file = make(tmp_path, data)
    for read in (file.read, file.peek):
        with pytest.raises(CorruptCheckpoint):
            read(start, stop)


def test_a_file_that_shrinks_or_changes_is_an_error_not_a_crash(tmp_path, data):
    file = make(tmp_path, data)
    file.read(0, 1)
    os.truncate(file.path, 1000)
    with pytest.raises(CorruptCheckpoint, match="shorter"):
        file.read(5000, 6000)
    file.close()
    with pytest.raises(CorruptCheckpoint, match="shorter"):
        file.read(0, 10)
    file.path.write_bytes(data + b"more")
    for call in (lambda: file.read(0, 10), lambda: file.borrow(0, 10), file.check_unchanged):
        with pytest.raises(CheckpointError, match="changed"):
            call()


def test_a_missing_file(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        LocalFile(tmp_path / "none")


def test_more_files_than_may_be_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(files.mapped_files, "limit", 4)
    opened = [make(tmp_path, bytes([i]) * 10, str(i)) for i in range(20)]
    for _ in range(2):
        assert [bytes(file.read(0, 1))[0] for file in opened] == list(range(20))
    assert sum(file.is_mapped for file in opened) <= 4


def test_a_digest_is_the_contents_not_the_names(tmp_path, data):
    first, same = make(tmp_path, data, "a"), make(tmp_path, data, "b")
    other = make(tmp_path, data[:-1] + bytes([data[-1] ^ 1]), "c")
    small = make(tmp_path, data[:1000], "d")
    assert first.digest == same.digest
    assert len({first.digest, other.digest, small.digest}) == 3


def test_a_folder_lists_files_and_folders(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    folder = LocalFolder(tmp_path)
    assert list(folder.names()) == ["b", "sub/"]
    assert list(folder.folder("sub/").names()) == []
    assert folder.file("b").size == 1
    with pytest.raises(CheckpointError):
        LocalFolder(tmp_path / "b").names()
