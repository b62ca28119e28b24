from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.util.atomic_file import write_atomic
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem


def test_reads_and_writes_are_by_position_even_past_4_gib(tmp_path: Path) -> None:
    far = 2**32 + 17
    with REAL_FILESYSTEM.open(tmp_path / "sparse", create=True) as file:
        file.write_at(b"begin", 0)
        file.writev_at([b"one", bytearray(b"two"), memoryview(b"three")], far)
        assert file.size() == far + 11
        assert file.pread(100, far) == b"onetwothree"
        buffer = bytearray(5)
        assert file.pread_into(buffer, 0) == 5
        assert buffer == b"begin"
        assert file.pread_into(bytearray(50), far) == 11


def test_writev_takes_more_buffers_than_the_system_call(tmp_path: Path) -> None:
    pieces = [bytes([n % 251]) * 3 for n in range(2_500)]
    with REAL_FILESYSTEM.open(tmp_path / "many", create=True) as file:
        assert file.writev_at(pieces, 5) == 7_500
        assert file.pread(10_000, 5) == b"".join(pieces)


def test_a_removed_file_stays_readable_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    with REAL_FILESYSTEM.open(path, create=True) as file:
        file.write_at(b"still here", 0)
        REAL_FILESYSTEM.remove(path)
        REAL_FILESYSTEM.remove(path)
        assert file.pread(99, 0) == b"still here"


class FailingRename(FileSystem):
    def rename(self, source: object, target: object) -> None:
        raise OSError("the machine stopped here")


def test_an_atomic_write_that_dies_before_its_rename_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_atomic(path, b"old")
    with pytest.raises(OSError, match="stopped here"):
        write_atomic(path, b"new", FailingRename())
    assert path.read_bytes() == b"old"
    write_atomic(path, b"n")
    assert path.read_bytes() == b"n"
