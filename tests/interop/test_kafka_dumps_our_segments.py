"""kafka-dump-log reads the segments and indexes that we write, without complaint, and finds in them what we put
there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stratalog.records.batch import iter_batches
from tests.interop.contents import Written, write_partition
from tests.support.reference_kafka import dump_log, require_reference_kafka

pytestmark = pytest.mark.interop

COMPLAINTS = re.compile(
    r"mismatch|invalid|exception|found timestamp|isvalid: false|out of order|corrupt", re.IGNORECASE
)


@pytest.fixture(scope="module", autouse=True)
def _kafka_tools() -> None:
    require_reference_kafka()


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written]:
    directory = tmp_path_factory.mktemp("ours") / "everything-0"
    return directory, write_partition(directory, leader_epochs=(0, 3, 4), rounds=2)


def dump(directory: Path, suffix: str, *options: str) -> str:
    files = sorted(str(path) for path in directory.glob(f"*{suffix}"))
    assert files, f"no {suffix} in {directory}"
    return dump_log(["--files", ",".join(files), *options])


def test_it_reads_every_record_of_every_segment(partition: tuple[Path, Written]) -> None:
    directory, written = partition
    printed = dump(directory, ".log", "--print-data-log")
    assert not COMPLAINTS.search(printed)
    rows = re.findall(
        r"^\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+) ", printed, re.MULTILINE
    )
    markers = len(re.findall(r"endTxnMarker", printed))
    assert len(rows) == len(written.all) + markers
    found = [tuple(map(int, row)) for row in rows]
    expected = [
        (
            r.offset,
            r.timestamp_ms,
            -1 if r.key is None else len(r.key),
            -1 if r.value is None else len(r.value),
        )
        for r in written.all
    ]
    offsets = {row[0] for row in expected}
    assert [row for row in found if row[0] in offsets] == expected


def test_it_sees_the_batches_as_we_wrote_them(partition: tuple[Path, Written]) -> None:
    directory, _ = partition
    printed = dump(directory, ".log")
    assert not COMPLAINTS.search(printed)
    rows = re.findall(
        r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* partitionLeaderEpoch: (\d+) .* compresscodec: (\w+) "
        r"crc: (\d+) isvalid: true",
        printed,
        re.MULTILINE,
    )
    ours = [
        (b.base_offset, b.last_offset, b.record_count, b.partition_leader_epoch, b.codec.name.lower(), b.crc)
        for path in sorted(directory.glob("*.log"))
        for b in iter_batches(path.read_bytes())
    ]
    assert [(int(a), int(b), int(c), int(d), codec, int(crc)) for a, b, c, d, codec, crc in rows] == ours
    assert {row[4] for row in ours} == {"none", "gzip", "snappy", "lz4", "zstd"}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("option", ["--verify-index-only", "--index-sanity-check"])
def test_its_index_checks_pass(partition: tuple[Path, Written], suffix: str, option: str) -> None:
    directory, _ = partition
    printed = dump(directory, suffix, option)
    passed = option == "--index-sanity-check"
    assert printed.count("passed sanity check") == (len(list(directory.glob(f"*{suffix}"))) if passed else 0)
    assert not COMPLAINTS.search(printed)


def test_it_reads_aborted_transactions_and_producer_snapshots(partition: tuple[Path, Written]) -> None:
    directory, _ = partition
    aborted = dump(directory, ".txnindex")
    assert aborted.count("producerId: 4002 ") == 6
    assert "producerId: 4001 " not in aborted
    producers = dump(directory, ".snapshot")
    assert "producerId: 4000 producerEpoch: 0" in producers
    assert not COMPLAINTS.search(aborted + producers)
