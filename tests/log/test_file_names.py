"""Names of files and directories are Kafka's, and each is read back as what it was made from."""

from __future__ import annotations

import pytest

from stratalog.log.format import file_names as names


@pytest.mark.parametrize("offset", [0, 1007, 23423423, 2**63 - 1])
@pytest.mark.parametrize(
    ("make", "suffix"),
    [
        (names.log_file, ".log"),
        (names.offset_index_file, ".index"),
        (names.time_index_file, ".timeindex"),
        (names.txn_index_file, ".txnindex"),
        (names.snapshot_file, ".snapshot"),
    ],
)
def test_the_offset_of_a_file_is_in_its_name(offset: int, make, suffix: str) -> None:  # type: ignore[no-untyped-def]
    name = make(offset)
    assert names.parse_file_name(name) == (offset, suffix, "")
    for second in (".deleted", ".cleaned", ".swap"):
        assert names.parse_file_name(name + second) == (offset, suffix, second)


@pytest.mark.parametrize(
    "name",
    [
        "7.log",
        "00000000000000000007",
        "00000000000000000007.log.tmp",
        "x0000000000000000007.log",
        "partition.metadata",
        "",
    ],
)
def test_other_names_are_no_segment_files(name: str) -> None:
    assert names.parse_file_name(name) is None


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-3", ("orders", 3)),
        ("a-b.c_d-10", ("a-b.c_d", 10)),
        ("orders-3.9d2f8a3c5b1e4f60a7c8d9e0f1a2b3c4-delete", None),
        ("orders-3.9d2f8a3c5b1e4f60a7c8d9e0f1a2b3c4-stray", None),
        ("orders-3.9d2f8a3c5b1e4f60a7c8d9e0f1a2b3c4-future", None),
        ("orders", None),
        ("orders-", None),
        ("-1", None),
        ("orders-01", None),
        ("orders--1", ("orders-", 1)),
        ("or ders-1", None),
    ],
)
def test_a_partition_directory_is_a_topic_and_a_number(name: str, parsed: tuple[str, int] | None) -> None:
    assert names.parse_partition_dir(name) == parsed
