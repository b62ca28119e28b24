"""`dump` beside the real kafka-dump-log, on logs of every kind that we write ourselves."""

from __future__ import annotations

import random
import struct
import uuid
from pathlib import Path

import pytest
from tests.cli.dump_cases import LOG_NAME, T0, write_log
from tests.support.reference_kafka import dump_log, require_reference_kafka

from stratalog.cli.main import run
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.api.interfaces import (
    CustomMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from stratalog.remote.api.segment_state import RemoteLogSegmentState, RemotePartitionDeleteState
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.metadata.serde import encode

pytestmark = pytest.mark.interop

Captured = pytest.CaptureFixture[bytes]


@pytest.fixture(autouse=True)
def _reference(monkeypatch: pytest.MonkeyPatch) -> None:
    require_reference_kafka()
    monkeypatch.setenv("LC_ALL", "C.UTF-8")  # the tool prints in the locale's encoding


def assert_same(capture: Captured, files: list[Path], *options: str) -> str:
    status = run(["dump", *map(str, files), *options])
    ours = (
        capture.readouterr().out.decode().replace("\r\n", "\n").replace("\r", "\n")
    )  # as reading the tool's output as text does
    assert status == 0
    assert ours == dump_log(["--files", ",".join(map(str, files)), *options])
    return ours


@pytest.mark.parametrize(
    "options", [(), ("--deep-iteration",), ("--print-data-log",), ("--print-data-log", "--skip-record-metadata")]
)
def test_random_logs_are_printed_the_same(
    capfdbinary: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Codecs, headers, nulls, malformed text, gaps, markers, append times, wrapping sequences: equal to the byte."""
    files = [write_log(tmp_path / str(seed), seed, count=25) for seed in range(12)]
    plain = assert_same(capfdbinary, files, *options)
    monkeypatch.setattr("stratalog.cli.dump.log_dump.BULK_SIZE_MIN", 0)
    assert run(["dump", *map(str, files), *options]) == 0
    assert capfdbinary.readouterr().out.decode().replace("\r\n", "\n").replace("\r", "\n") == plain


def test_remote_log_metadata_is_printed_the_same(capfdbinary: Captured, tmp_path: Path) -> None:
    partition = TopicIdPartition(uuid.UUID(int=2**100 + 7), "orders", 3)
    segment_id = RemoteLogSegmentId(partition, uuid.UUID(int=2**110 + 9))
    state, deletion = RemoteLogSegmentState, RemotePartitionDeleteState
    events: list[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata] = [
        RemoteLogSegmentMetadata(segment_id, 0, 99, T0, 1, T0 + 1, 1000, {0: 0, 5: 50}),
        RemoteLogSegmentMetadata(
            segment_id, 0, 99, T0, 1, T0 + 1, 1000, {7: 0}, custom_metadata=CustomMetadata(b"abc")
        ),
        RemoteLogSegmentMetadataUpdate(segment_id, T0 + 2, None, state.COPY_SEGMENT_FINISHED, 1),
        RemoteLogSegmentMetadataUpdate(segment_id, T0 + 2, CustomMetadata(b""), state.DELETE_SEGMENT_STARTED, 1),
        RemotePartitionDeleteMetadata(partition, deletion.DELETE_PARTITION_MARKED, T0 + 3, 1),
    ]
    path = tmp_path / LOG_NAME
    records = [Record(n, T0, None, encode(event)) for n, event in enumerate(events)]
    path.write_bytes(build_batch(records, base_offset=0))
    printed = assert_same(capfdbinary, [path], "--remote-log-metadata-decoder")
    assert printed.count("payload: Remote") == len(events)


def test_what_no_decoder_can_read_is_reported_in_its_place(capfdbinary: Captured, tmp_path: Path) -> None:
    """Unknown types and tombstones as Kafka says them; damaged bytes are reported too, in other words than Java's."""
    path = tmp_path / LOG_NAME
    key = struct.pack(">hh5sh4si", 1, 5, b"group", 4, b"logs", 0)
    records = [Record(0, T0, struct.pack(">h", 99), b""), Record(1, T0, key, None)]
    path.write_bytes(build_batch(records, base_offset=0))
    printed = assert_same(capfdbinary, [path], "--offsets-decoder")
    assert "Unknown record type 99 at offset 0, skipping." in printed
    assert "<DELETE>" in printed
    path.write_bytes(build_batch([Record(0, T0, key[:-1], b"\0\1"), Record(1, T0, key, b"\0\1\0")], base_offset=0))
    assert run(["dump", str(path), "--offsets-decoder"]) == 0
    ours = capfdbinary.readouterr().out.decode()
    theirs = dump_log(["--files", str(path), "--offsets-decoder"])
    assert ours.count("Error at offset") == theirs.count("Error at offset") == 2


def test_an_index_that_lies_and_one_in_use_are_printed_the_same(capfdbinary: Captured, tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    batches = [build_batch([Record(n, T0 + n, None, b"v" * 50)], base_offset=n) for n in range(6)]
    log.write_bytes(b"".join(batches))
    size = len(batches[0])
    index, times = log.with_suffix(".index"), log.with_suffix(".timeindex")
    index.write_bytes(struct.pack(">iiiiii", 1, size, 4, 2 * size, 5, 5 * size) + bytes(80))
    times.write_bytes(struct.pack(">qiqiqi", T0 + 1, 1, T0 + 9, 2, T0 + 3, 3) + bytes(120))
    for options in ((), ("--verify-index-only",), ("--index-sanity-check",)):
        run(["dump", str(index), str(times), *options])
        ours = capfdbinary.readouterr().out.decode()
        # the sanity check ends the tool with an exception: for it, the zeros of an index in use are damage
        assert ours == dump_log(["--files", f"{index},{times}", *options], check=False)


def test_the_rest_behind_the_last_batch_is_reported_the_same(capfdbinary: Captured, tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    batch = build_batch([Record(0, T0, None, b"v" * 50)], base_offset=0)
    chosen = random.Random(3)
    for rest in (1, 16, 17, 18, 60, 61, len(batch) - 1, chosen.randrange(1, len(batch))):
        log.write_bytes(batch + batch[:rest])
        assert run(["dump", str(log)]) == 1
        assert capfdbinary.readouterr().out.decode() == dump_log(["--files", str(log)])
