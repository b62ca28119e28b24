"""Each kind of finding: a good directory with that one damage has that one finding."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from stratalog.jobs import Severity
from stratalog.jobs.fsck.findings import FileFinding, FsckKind
from stratalog.log.format import producer_snapshot
from stratalog.log.format.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
    PartitionMetadataFile,
    decode_epochs,
    encode_epochs,
)
from stratalog.log.format.file_names import log_file
from stratalog.log.format.values import EpochEntry
from stratalog.log.index import txn_index
from stratalog.records import Record, build_batch
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.testing.legacy_builder import build_legacy
from stratalog.util.checksum import crc32c
from stratalog.util.uuids import random_uuid
from tests.log.check.conftest import META, report_of


def found(*paths: Path) -> list[FileFinding]:
    return report_of(*paths).findings


def only(*paths: Path, count: int = 1) -> FileFinding:
    """The one finding; or so many of one kind, of which the first."""
    findings = found(*paths)
    assert len({one.kind for one in findings}) == 1, findings
    assert len(findings) == count, findings
    return findings[0]


def logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def batches(log: Path) -> list[RecordBatch]:
    return list(iter_batches(log.read_bytes()))


def change(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


@pytest.fixture
def partition(data: Path) -> Path:
    return data / "orders-0"


def test_a_clean_directory_of_kafka_has_none(kafkas: Path) -> None:
    assert found(kafkas) == []


def test_a_clean_directory_of_ours_has_none(data: Path) -> None:
    report = report_of(data)
    assert report.findings == []
    assert [one.name for one in report.partitions] == ["orders-0", "orders-1"]
    assert all(one.segments > 2 and one.batches > 50 for one in report.partitions)


def test_one_partition_directory_can_be_checked_by_itself(partition: Path) -> None:
    report = report_of(partition)
    assert report.findings == []
    assert [one.name for one in report.partitions] == ["orders-0"]


def test_a_log_directory_may_be_named_like_a_partition(data: Path, tmp_path: Path) -> None:
    named = tmp_path / "logs-0"
    data.rename(named)
    for path in named.iterdir():
        if path.is_file():
            path.unlink()
    assert [one.name for one in report_of(named).partitions] == ["orders-0", "orders-1"]


def test_old_messages_are_checked_too(tmp_path: Path) -> None:
    from tests.records.legacy_cases import DIRECTORY

    for number, path in enumerate(sorted(DIRECTORY.glob("*.log"))):
        partition = tmp_path / f"old-{number}"
        partition.mkdir()
        shutil.copy(path, partition / log_file(0))
        kinds = {one.kind for one in found(partition)}
        assert kinds <= {FsckKind.INDEX_MISSING, FsckKind.EPOCHS_DAMAGED}
    log = tmp_path / "old-0" / log_file(0)
    log.write_bytes(b"".join(build_legacy([Record(n, 5, None, b"value")], magic=1) for n in range(3)))
    change(log, len(log.read_bytes()) // 3 + 30, b"\xff")
    assert FsckKind.CORRUPT_BATCH in {one.kind for one in found(log.parent)}


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_with_a_wrong_crc_is_named_with_its_offsets(partition: Path) -> None:
    log = logs(partition)[0]
    batch = batches(log)[3]
    change(log, batch.start + batch.size - 1, b"\xff")
    one = only(partition)
    assert (one.kind, one.severity, one.path, one.position) == (
        FsckKind.CORRUPT_BATCH,
        Severity.ERROR,
        log,
        batch.start,
    )
    assert f"offsets {batch.base_offset} to {batch.last_offset}" in one.found
    assert one.size == batch.size
    assert one.action is None


@pytest.mark.parametrize("damage", [b"\0" * 17, b"\xff" * 17, b"\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\2"])
def test_bytes_that_are_no_batch_are_reported_and_the_scan_goes_on_behind_them(partition: Path, damage: bytes) -> None:
    log = logs(partition)[0]
    all_of_it = batches(log)
    change(log, all_of_it[2].start, damage)
    change(log, all_of_it[5].start + 61, b"\xee\xee")
    first, second = found(partition)
    assert (first.kind, first.position, first.size) == (FsckKind.NO_BATCH, all_of_it[2].start, all_of_it[2].size)
    assert (second.kind, second.position) == (FsckKind.CORRUPT_BATCH, all_of_it[5].start)
    assert first.action is second.action is None


def test_a_torn_tail_of_the_last_segment_is_to_be_cut(partition: Path) -> None:
    log = logs(partition)[-1]
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + b"\0\0\0\0\0\0\0\1 torn")
    one = only(partition)
    assert (one.kind, one.severity, one.position, one.size) == (FsckKind.TORN_TAIL, Severity.ERROR, size, 13)
    assert one.action is not None


def test_zeros_behind_the_last_batch_are_a_torn_tail_too(partition: Path) -> None:
    log = logs(partition)[-1]
    log.write_bytes(log.read_bytes() + bytes(10_000))
    one = only(partition)
    assert (one.kind, one.severity, one.size) == (FsckKind.TORN_TAIL, Severity.WARNING, 10_000)


def test_damage_at_the_end_of_a_log_that_was_closed_is_no_torn_tail(data: Path) -> None:
    """Also when the partition directory is given by itself: what lies beside it says how far it was flushed."""
    partition = data / "orders-0"
    end = report_of(partition).partitions[0].log_end_offset
    log = logs(partition)[-1]
    last = batches(log)[-1]
    change(log, last.start + last.size - 1, b"\xff")
    for paths in (data, partition):
        one = only(paths)
        assert (one.kind, one.severity, one.position, one.size) == (
            FsckKind.LOST_TAIL,
            Severity.ERROR,
            last.start,
            last.size,
        )
        assert f"offsets {last.base_offset} to {end - 1}" in one.expected
        assert one.action is not None
        assert report_of(paths).partitions[0].log_end_offset == end


def test_the_same_bytes_behind_an_earlier_segment_are_no_tail(partition: Path) -> None:
    log = logs(partition)[0]
    log.write_bytes(log.read_bytes() + b"\0\0\0\0\0\0\0\1 torn")
    one = only(partition)
    assert (one.kind, one.action) == (FsckKind.NO_BATCH, None)


def with_header(batch: RecordBatch, at: int, form: str, value: int) -> bytes:
    """A batch with a changed field and the right CRC."""
    data = bytearray(batch.as_memoryview())
    struct.pack_into(form, data, at, value)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.mark.parametrize(("at", "form", "value"), [(57, ">i", 100_000), (57, ">i", -5), (22, ">B", 0x17)])
def test_a_header_that_contradicts_itself_is_reported(partition: Path, at: int, form: str, value: int) -> None:
    log = logs(partition)[0]
    batch = batches(log)[0]
    change(log, 0, with_header(batch, at, form, value))
    one = only(partition)
    assert (one.kind, one.position) == (FsckKind.BATCH_HEADER, 0)


def test_a_batch_that_is_not_behind_the_one_before_is_reported(partition: Path) -> None:
    log = logs(partition)[0]
    third = batches(log)[3]
    change(log, third.start, struct.pack(">q", 1))
    one = next(one for one in found(partition) if one.kind is not FsckKind.INDEX_ENTRY)
    assert (one.kind, one.position) == (FsckKind.BATCH_ORDER, third.start)


def test_a_batch_below_the_base_offset_or_beyond_its_reach_is_reported(tmp_path: Path) -> None:
    for offset, kind in ((99, FsckKind.OFFSET_BELOW_BASE), (100 + 2**31, FsckKind.OFFSET_TOO_FAR)):
        partition = tmp_path / kind.value / "t-0"
        partition.mkdir(parents=True)
        (partition / log_file(100)).write_bytes(build_batch([Record(offset, 5, None, b"v")], base_offset=offset))
        assert kind in {one.kind for one in found(partition)}


def test_damage_all_over_is_cut_short(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    good = [build_batch([Record(n, 5, None, b"v")], base_offset=n) for n in range(201)]
    bad = [data[:-1] + b"\xff" if n < 200 else data for n, data in enumerate(good)]
    (partition / log_file(0)).write_bytes(b"".join(bad))
    corrupt = [one for one in found(partition) if one.kind is FsckKind.CORRUPT_BATCH]
    assert len(corrupt) == 51
    assert corrupt[-1].found == "200 such findings in all"


# --- segments ---------------------------------------------------------------------------------------------------------


def test_overlapping_segments_are_reported(partition: Path) -> None:
    log = logs(partition)[0]
    end = RecordBatch(log.read_bytes(), batches(log)[-1].start).last_offset
    extra = build_batch([Record(end + 1, 5, None, b"v")], base_offset=end + 1, partition_leader_epoch=0)
    log.write_bytes(log.read_bytes() + extra)
    one = next(one for one in found(partition) if one.kind is FsckKind.SEGMENT_OVERLAP)
    assert one.path == log
    assert f"up to {end + 1}" in one.found


def test_a_missing_segment_is_reported(partition: Path) -> None:
    victim = logs(partition)[1]
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        victim.with_suffix(suffix).unlink(missing_ok=True)
    kinds = {one.kind for one in found(partition)}
    assert FsckKind.SEGMENT_GAP in kinds


def test_gaps_that_compaction_left_are_fine(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    for base, offsets in ((0, (0, 4, 7)), (20, (21, 30))):
        (partition / log_file(base)).write_bytes(
            b"".join(build_batch([Record(n, 5, None, b"v")], base_offset=n) for n in offsets)
        )
    assert {one.kind for one in found(partition)} <= {FsckKind.INDEX_MISSING}


def test_a_partition_without_segments_is_reported(data: Path) -> None:
    shutil.rmtree(data / "orders-0")
    (data / "orders-0").mkdir()
    checkpoint_kinds = {FsckKind.CHECKPOINT_OFFSET, FsckKind.BEHIND_RECOVERY_POINT}
    assert {one.kind for one in found(data)} - checkpoint_kinds == {FsckKind.NO_SEGMENTS}


# --- indexes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_reported(partition: Path, suffix: str) -> None:
    path = logs(partition)[0].with_suffix(suffix)
    path.unlink()
    one = only(partition)
    assert (one.kind, one.path) == (FsckKind.INDEX_MISSING, path)
    assert one.action is not None


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_of_odd_size_is_reported(partition: Path, suffix: str) -> None:
    path = logs(partition)[0].with_suffix(suffix)
    path.write_bytes(path.read_bytes() + b"\1")
    assert only(partition).kind is FsckKind.INDEX_DAMAGED


def test_an_index_of_another_segment_is_reported(partition: Path) -> None:
    first, second = logs(partition)[:2]
    shutil.copy(second.with_suffix(".index"), first.with_suffix(".index"))
    findings = found(partition)
    assert findings
    assert {one.kind for one in findings} <= {FsckKind.INDEX_DAMAGED, FsckKind.INDEX_ENTRY}


@pytest.mark.parametrize(("suffix", "size"), [(".index", 8), (".timeindex", 12)])
def test_an_entry_that_the_log_contradicts_is_reported_with_its_position(
    partition: Path, suffix: str, size: int
) -> None:
    path = logs(partition)[0].with_suffix(suffix)
    change(path, 2 * size + 6, b"\x7f")
    one = only(partition)
    assert (one.kind, one.path, one.position) == (FsckKind.INDEX_ENTRY, path, 2 * size)
    assert one.action is not None


def test_an_index_of_a_log_that_is_damaged_in_the_middle_is_not_to_be_rebuilt(partition: Path) -> None:
    log = logs(partition)[0]
    change(log, batches(log)[3].start + 70, b"\xff\xfe")
    log.with_suffix(".index").unlink()
    assert {one.kind: one.action for one in found(partition)} == {
        FsckKind.CORRUPT_BATCH: None,
        FsckKind.INDEX_MISSING: None,
    }


def test_an_entry_for_several_batches_at_once_is_a_note(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    parts = [build_batch([Record(n + i, 5, None, b"v") for i in range(4)], base_offset=n) for n in (0, 4, 8)]
    (partition / log_file(0)).write_bytes(b"".join(parts))
    (partition / "00000000000000000000.index").write_bytes(struct.pack(">ii", 11, len(parts[0])))
    (partition / "00000000000000000000.timeindex").write_bytes(b"")
    one = only(partition)
    assert (one.kind, one.severity) == (FsckKind.INDEX_INEXACT, Severity.NOTE)


# --- transaction indexes, snapshots -----------------------------------------------------------------------------------


def txn_file(partition: Path) -> Path:
    return sorted(partition.glob("*.txnindex"))[0]


def test_a_transaction_index_that_cannot_be_read_is_reported(partition: Path) -> None:
    path = txn_file(partition)
    good = path.read_bytes()
    path.write_bytes(b"\0\7" + good[2:])
    assert (only(partition).kind, only(partition).path) == (FsckKind.TXN_INDEX_DAMAGED, path)
    path.write_bytes(good + b"\0\0\0")
    assert (only(partition).kind, only(partition).position) == (FsckKind.TXN_INDEX_DAMAGED, len(good))
    path.unlink()
    assert only(partition).kind is FsckKind.TXN_INDEX_DAMAGED


@pytest.mark.parametrize("field", ["producer_id", "first_offset", "last_offset", "last_stable_offset"])
def test_an_aborted_transaction_that_the_log_contradicts_is_reported(partition: Path, field: str) -> None:
    path = txn_file(partition)
    entries = list(txn_index.decode_entries(path.read_bytes()))
    wrong = entries[0]._replace(**{field: getattr(entries[0], field) + 1})
    path.write_bytes(b"".join(map(txn_index.encode_entry, [wrong, *entries[1:]])))
    one = only(partition, count=2 if field == "last_offset" else 1)
    assert (one.kind, one.path) == (FsckKind.TXN_INDEX_ENTRY, path)


def test_an_aborted_transaction_that_is_missing_is_reported(partition: Path) -> None:
    path = txn_file(partition)
    path.write_bytes(path.read_bytes()[: -txn_index.ENTRY_SIZE] or b"")
    assert only(partition).found == "no entry"


def test_a_snapshot_that_cannot_be_read_is_reported(partition: Path) -> None:
    path = sorted(partition.glob("*.snapshot"))[0]
    change(path, 12, b"\xff\xff")
    one = only(partition)
    assert (one.kind, one.path) == (FsckKind.SNAPSHOT_DAMAGED, path)
    assert one.action is not None


@pytest.mark.parametrize("field", producer_snapshot.ProducerSnapshotEntry._fields)
def test_a_snapshot_that_the_log_contradicts_is_reported(partition: Path, field: str) -> None:
    path = sorted(partition.glob("*.snapshot"))[-1]
    entries = producer_snapshot.read(path)
    slot = next(n for n, one in enumerate(entries) if one.last_offset >= 0)
    entries[slot] = entries[slot]._replace(**{field: getattr(entries[slot], field) + 1})
    producer_snapshot.write(path, entries)
    one = only(partition)
    assert (one.kind, one.path) == (FsckKind.SNAPSHOT_CONTENT, path)


def test_a_snapshot_behind_the_end_of_the_log_is_reported(partition: Path) -> None:
    path = sorted(partition.glob("*.snapshot"))[-1]
    shutil.copy(path, partition / "00000000000009999999.snapshot")
    assert only(partition).kind is FsckKind.SNAPSHOT_CONTENT


def test_a_producer_that_expired_is_no_contradiction(partition: Path) -> None:
    for path in partition.glob("*.snapshot"):
        entries = producer_snapshot.read(path)
        producer_snapshot.write(path, entries[1:])
    assert found(partition) == []


# --- leader epochs ----------------------------------------------------------------------------------------------------


def epochs_file(partition: Path) -> tuple[Path, list[EpochEntry]]:
    path = partition / "leader-epoch-checkpoint"
    return path, decode_epochs(path.read_bytes())


def test_epochs_that_cannot_be_read_or_are_missing_are_reported(partition: Path) -> None:
    path, _ = epochs_file(partition)
    path.write_bytes(path.read_bytes()[:-3])
    assert only(partition).kind is FsckKind.EPOCHS_DAMAGED
    path.unlink()
    assert only(partition).kind is FsckKind.EPOCHS_DAMAGED


def test_epochs_that_the_log_contradicts_are_reported(partition: Path) -> None:
    path, entries = epochs_file(partition)
    assert [entry.epoch for entry in entries] == [0, 2, 5]
    for wrong in (
        entries[:-1],
        [entries[0], entries[2]],
        [entries[0], EpochEntry(2, entries[1].start_offset + 1), entries[2]],
        [entries[0], EpochEntry(3, entries[1].start_offset), entries[2]],
        [entries[1], entries[0], entries[2]],
        [*entries, EpochEntry(9, 10**9)],
        [],
    ):
        path.write_bytes(encode_epochs(wrong))
        assert only(partition).kind is FsckKind.EPOCHS_CONTENT


def test_the_first_epoch_begins_where_the_log_does(data: Path) -> None:
    """Deleted records move it on, as far as the checkpoint of a clean shutdown says."""
    path, entries = epochs_file(data / "orders-0")
    path.write_bytes(encode_epochs([EpochEntry(0, 50), *entries[1:]]))
    assert only(data).kind is FsckKind.EPOCHS_CONTENT
    OffsetCheckpoint(data / LOG_START_OFFSETS).write({("orders", 0): 50})
    assert found(data) == []


def test_an_epoch_without_records_at_the_end_is_fine(partition: Path) -> None:
    path, entries = epochs_file(partition)
    end = report_of(partition).partitions[0].log_end_offset
    path.write_bytes(encode_epochs([*entries, EpochEntry(9, end)]))
    assert found(partition) == []


def test_a_batch_whose_epoch_descends_is_reported(partition: Path) -> None:
    log = logs(partition)[0]
    batch = batches(log)[2]
    change(log, batch.start + 12, struct.pack(">i", 4))
    kinds = {one.kind: one for one in found(partition)}
    assert set(kinds) == {FsckKind.EPOCH_OF_BATCH, FsckKind.EPOCHS_CONTENT}
    assert kinds[FsckKind.EPOCH_OF_BATCH].position == batch.start
    assert kinds[FsckKind.EPOCHS_CONTENT].action is None  # the batch may be what is wrong


# --- checkpoints and identities ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS])
def test_a_checkpoint_that_cannot_be_read_is_reported(data: Path, name: str) -> None:
    (data / name).write_text("0\n5\norders 0 1\n")
    one = only(data)
    assert (one.kind, one.path) == (FsckKind.CHECKPOINT_DAMAGED, data / name)


def test_an_offset_outside_the_log_is_reported(data: Path) -> None:
    checkpoint = OffsetCheckpoint(data / HIGH_WATERMARKS)
    good = checkpoint.read()
    for offset in (-1, 10**9):
        checkpoint.write(good | {("orders", 1): offset})
        one = only(data)
        assert (one.kind, one.partition) == (FsckKind.CHECKPOINT_OFFSET, "orders-1")


def test_a_checkpoint_of_a_partition_that_is_not_there_is_reported(data: Path) -> None:
    OffsetCheckpoint(data / CLEANER_OFFSETS).write({("gone", 7): 5})
    one = only(data)
    assert (one.kind, one.severity, one.partition) == (FsckKind.CHECKPOINT_UNKNOWN, Severity.WARNING, "gone-7")


def test_records_behind_the_recovery_point_of_a_clean_shutdown_are_reported(data: Path) -> None:
    checkpoint = OffsetCheckpoint(data / RECOVERY_POINTS)
    checkpoint.write(checkpoint.read() | {("orders", 0): 5})
    one = only(data)
    assert (one.kind, one.severity) == (FsckKind.BEHIND_RECOVERY_POINT, Severity.WARNING)
    (data / ".kafka_cleanshutdown").unlink()
    assert found(data) == []


def test_a_topic_id_that_cannot_be_read_is_reported(partition: Path) -> None:
    (partition / "partition.metadata").write_text("version: 1\ntopic_id: x")
    one = only(partition)
    assert (one.kind, one.action) == (FsckKind.TOPIC_ID_DAMAGED, None)


def test_two_topic_ids_of_one_topic_are_reported(data: Path) -> None:
    PartitionMetadataFile(data / "orders-1" / "partition.metadata").write(random_uuid())
    one = only(data)
    assert (one.kind, one.partition) == (FsckKind.TOPIC_ID_DIFFERS, "orders-1")


@pytest.mark.parametrize(
    "text",
    [
        META.replace("=1\nv", "=x\nv"),
        META.replace("version=1", "version=2"),
        META.replace("cluster.id=abc\n", ""),
        META.replace("AAAAAQ", "A"),
        "\xff\xfe",
    ],
)
def test_a_damaged_meta_properties_is_reported(data: Path, text: str) -> None:
    (data / "meta.properties").write_text(text, encoding="latin-1")
    assert only(data).kind is FsckKind.META_DAMAGED


def test_a_damaged_mark_of_a_clean_shutdown_is_reported(data: Path) -> None:
    (data / ".kafka_cleanshutdown").write_text('{"version":7}')
    assert only(data).kind is FsckKind.META_DAMAGED
    (data / ".kafka_cleanshutdown").write_text("")
    assert found(data) == []


def test_log_directories_of_two_installations_are_reported(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    other_meta = META.replace("AAAAAQ", "AAAAAg")
    (other / "meta.properties").write_text(other_meta)
    assert found(data, other) == []
    for wrong in (other_meta.replace("abc", "def"), other_meta.replace("node.id=1", "node.id=2"), META):
        (other / "meta.properties").write_text(wrong)
        assert only(data, other).kind is FsckKind.META_DIFFERS


def test_a_partition_in_two_directories_is_reported(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(data / "orders-0", other / "orders-0")
    (other / "meta.properties").write_text(META.replace("AAAAAQ", "AAAAAg"))
    one = only(data, other)
    assert (one.kind, one.partition) == (FsckKind.DUPLICATE_PARTITION, "orders-0")


def test_replicas_of_brokers_of_a_cluster_are_no_findings(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(data / "orders-0", other / "orders-0")
    for each in (data, other):
        (each / "__cluster_metadata-0").mkdir()
    meta = META.replace("AAAAAQ", "AAAAAg").replace("node.id=1", "node.id=2")
    (other / "meta.properties").write_text(meta)
    assert not {one.kind for one in found(data, other)} & {FsckKind.DUPLICATE_PARTITION, FsckKind.META_DIFFERS}
    (other / "meta.properties").write_text(meta.replace("abc", "def"))
    assert FsckKind.META_DIFFERS in {one.kind for one in found(data, other)}


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "severity"),
    [
        ("notes.txt", FsckKind.FOREIGN_FILE, Severity.WARNING),
        ("00000000000000000000.log.deleted", FsckKind.WAITS_FOR_DELETION, Severity.NOTE),
        ("00000000000000000000.index.cleaned", FsckKind.INTERRUPTED_REPLACEMENT, Severity.WARNING),
        ("00000000000000000000.log.swap", FsckKind.INTERRUPTED_REPLACEMENT, Severity.WARNING),
        ("00000000000000000777.index", FsckKind.ORPHAN_FILE, Severity.WARNING),
        ("00000000000000000000.log.55.cut", FsckKind.KEPT_ASIDE, Severity.NOTE),
        ("leader-epoch-checkpoint.tmp", FsckKind.UNFINISHED_WRITE, Severity.NOTE),
        ("partition.metadata.tmp", FsckKind.UNFINISHED_WRITE, Severity.NOTE),
    ],
)
def test_a_name_in_a_partition_is_reported(partition: Path, name: str, kind: FsckKind, severity: Severity) -> None:
    (partition / name).write_bytes(b"1234567")
    one = only(partition)
    assert (one.kind, one.severity, one.size) == (kind, severity, 7)


@pytest.mark.parametrize(
    ("name", "kind", "severity"),
    [
        ("lost+found", FsckKind.FOREIGN_FILE, Severity.WARNING),
        (f"orders-7.{'0' * 32}-delete", FsckKind.WAITS_FOR_DELETION, Severity.NOTE),
        (f"orders-7.{'0' * 32}-stray", FsckKind.STRAY_PARTITION, Severity.WARNING),
        (f"orders-7.{'0' * 32}-future", FsckKind.STRAY_PARTITION, Severity.WARNING),
    ],
)
def test_a_name_in_a_log_directory_is_reported(data: Path, name: str, kind: FsckKind, severity: Severity) -> None:
    (data / name).mkdir()
    one = only(data)
    assert (one.kind, one.severity) == (kind, severity)


def test_what_a_broker_of_ours_keeps_there_is_no_finding(data: Path) -> None:
    for name in ("stratalog.sqlite", "stratalog.sqlite-wal", ".lock", "bootstrap.checkpoint"):
        (data / name).write_bytes(b"")
    assert found(data) == []


def test_a_file_that_cannot_be_read_is_reported(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stratalog.util.filesystem import FileSystem

    victim = logs(data / "orders-0")[1]
    original = FileSystem.open

    def refuse(self: FileSystem, path: Any, **options: Any) -> Any:
        if Path(path) == victim:
            raise PermissionError(13, "Permission denied", str(path))
        return original(self, path, **options)

    monkeypatch.setattr(FileSystem, "open", refuse)
    one = next(one for one in found(data) if one.kind is FsckKind.UNREADABLE)
    assert (one.path, one.found) == (victim, "Permission denied")


def test_every_kind_has_a_test_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [kind.name for kind in FsckKind if f"Kind.{kind.name}" not in text] == []
