"""`fsck` on the log directory of a real Kafka: it has no findings there, and what it repaired Kafka serves whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.cli.main import run
from stratalog.jobs.fsck.run import fsck as check
from stratalog.log.format.checkpoints import RECOVERY_POINTS, OffsetCheckpoint
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.interop.contents import Written, write_partition
from tests.interop.test_kafka_serves_our_directory import COMPLAINT, consume_both_ways, create, put_in_place
from tests.support.reference_kafka import ReferenceKafka

pytestmark = pytest.mark.interop

TOPIC = "ours-repaired"


def fsck(*arguments: object) -> int:
    return run(["fsck", *map(str, arguments)])


def damage(partition: Path) -> None:
    """A torn tail, and something wrong with every file that follows from the log."""
    logs = sorted(partition.glob("*.log"))
    with logs[-1].open("ab") as file:
        file.write(b"\0\0\0\0\0\0\x27\x0f and what was torn off")
    logs[0].with_suffix(".index").unlink()
    flip(logs[1].with_suffix(".index"), 6)
    flip(logs[1].with_suffix(".timeindex"), 5)
    flip(sorted(partition.glob("*.txnindex"))[0], 20)
    for path in partition.glob("*.snapshot"):
        flip(path, 25)
    (partition / "leader-epoch-checkpoint").write_bytes(b"0\n9\n")


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


@pytest.fixture(scope="module")
def written(kafka: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Our partition, damaged and repaired, in the place of Kafka's; Kafka runs again."""
    ours = tmp_path_factory.mktemp("repaired") / f"{TOPIC}-0"
    written = write_partition(ours, rounds=16)
    create(kafka, TOPIC)
    assert fsck(kafka.data_dir) == 2  # Kafka holds the lock of its directory
    with kafka.stopped() as data:
        assert fsck(data) == 0
        put_in_place(kafka, ours)
        checkpoint = OffsetCheckpoint(data / RECOVERY_POINTS)
        end_offset = check([ours], REAL_FILESYSTEM).partitions[0].log_end_offset
        checkpoint.write(checkpoint.read() | {(TOPIC, 0): end_offset})
        damage(data / ours.name)
        assert fsck(data) == 1
        assert fsck(data, "--repair", "--yes") == 0
        assert fsck(data) == 0
        assert list((data / ours.name).glob("*.log.*.cut"))
    return written


def test_its_consumers_get_every_record(kafka: ReferenceKafka, written: Written) -> None:
    consumed = consume_both_ways(kafka, TOPIC)
    assert consumed[TOPIC, False] == written.all
    assert consumed[TOPIC, True] == written.committed


def test_it_says_nothing_against_it(kafka: ReferenceKafka, written: Written) -> None:
    assert written.all
    lines = kafka.log_path.read_text(errors="replace").splitlines()
    assert [line for line in lines if TOPIC in line and COMPLAINT.search(line)] == []


def test_a_directory_that_kafka_left_when_it_was_killed_has_no_errors(
    kafka: ReferenceKafka, written: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its indexes have their full size then, and its checkpoints are older than its logs."""
    assert written.all
    kafka.kill()
    try:
        status = fsck(kafka.data_dir)
        found = capsys.readouterr().out
    finally:
        kafka.start()
    assert status == 0, found
