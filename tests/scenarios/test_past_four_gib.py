"""A partition beyond 4 GiB behind a broker: served from both tiers over the wire, planned and read for Spark,
dumped."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.log.format.checkpoints import PartitionMetadataFile
from stratalog.log.format.file_names import PARTITION_METADATA, log_file, offset_index_file
from stratalog.records.batch import iter_batches
from stratalog.wire.api_keys import ApiKey
from tests.scenarios.tiered_story import AFTER, GIB, TieredStory, Topic
from tests.spark.partitions import scan
from tests.support.huge_log import (
    FILLER_BYTES,
    RECORDS_IN_LANDMARK,
    HugePartition,
    SparseStorage,
    huge_directory,
    write_huge_partition,
)
from tests.support.wire import Wire

SPLIT_BYTES = GIB


@pytest.fixture
def home() -> Iterator[Path]:
    with huge_directory() as path:
        yield path


def test_remote_log_manager_long_param_fetch_and_everything_around_it(home: Path) -> None:
    """One story, as the directory takes seconds to make: local reads, sizes, copy, local deletion, remote reads."""
    plugin = {
        "remote.log.storage.manager.class.name": f"{SparseStorage.__module__}:{SparseStorage.__name__}",
        "rsm.config.directory": str(home / "store"),
    }
    with TieredStory(home, level=AFTER, settings=plugin) as story:
        topic = story.create_topic(
            "huge", segment_bytes=8 * GIB, local_retention_bytes=-1, remote_log_copy_disable="true"
        )
        huge = put_in_place(story, topic, home / "made" / "huge-0")
        with Wire(story.address) as wire:
            expect_landmarks(wire, topic, huge)
            assert local_size(wire, topic) > huge.size
        expect_spark(huge, path=story.data_dir, subscribe="huge")
        expect_dumped(story.data_dir / "huge-0", huge)

        topic.configure(local_retention_bytes=1, remote_log_copy_disable="false")
        topic.expect_earliest_local_offset(huge.active_base)
        (manifest,) = topic.manifests
        assert (manifest.segment_size_in_bytes, manifest.offset_index_entry_size) == (huge.size, 12)
        with Wire(story.address) as wire:
            expect_landmarks(wire, topic, huge)
            assert local_size(wire, topic) < huge.size
        expect_spark(huge, path=story.data_dir, remote=story.store.url, subscribe="huge")


def put_in_place(story: TieredStory, topic: Topic, made: Path) -> HugePartition:
    """Stop the broker, give it a huge partition in the place of the empty one, and start it again."""
    huge = write_huge_partition(made)
    place = story.data_dir / made.name
    topic_id = PartitionMetadataFile(place / PARTITION_METADATA).read()
    assert topic_id is not None
    story.broker.close()
    shutil.rmtree(place)
    made.rename(place)
    PartitionMetadataFile(place / PARTITION_METADATA).write(topic_id)
    story.restart()
    return huge


def expect_landmarks(wire: Wire, topic: Topic, huge: HugePartition) -> None:
    """Every batch around the borders is fetched by any of its offsets, and found by its time."""
    for base, batch in huge.landmarks.items():
        for offset in (base, base + RECORDS_IN_LANDMARK - 1):
            assert fetch(wire, topic, offset, len(batch)) == batch
        assert offset_of(wire, topic, huge.timestamp_of(base)) == base
    # The batch before the last landmark: so large that the kernel sends it from the file by itself.
    last = max(huge.landmarks)
    (before,) = iter_batches(fetch(wire, topic, last - 1, 1))
    assert (before.base_offset, before.size) == (last - 1, FILLER_BYTES // 2)
    assert before.is_crc_valid


def fetch(wire: Wire, topic: Topic, offset: int, size: int) -> bytes:
    """Asks again as clients do: when the remote tier takes longer than `remote.fetch.max.wait.ms` the answer is
    empty."""
    partition: dict[str, Any] = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": size,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
    }
    for _ in range(20):
        response = wire.call(
            ApiKey.FETCH,
            12,
            replica_id=-1,
            max_wait=5_000,
            min_bytes=1,
            max_bytes=size,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": topic.name, "partitions": [partition]}],
        )
        (found,) = response.responses[0].partitions
        assert found.error_code == 0
        if found.records:
            break
    return bytes(found.records or b"")


def offset_of(wire: Wire, topic: Topic, timestamp_ms: int) -> int:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp_ms}
    response = wire.call(
        ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[{"name": topic.name, "partitions": [wanted]}]
    )
    return int(response.topics[0].partitions[0].offset)


def local_size(wire: Wire, topic: Topic) -> int:
    response = wire.call(ApiKey.DESCRIBE_LOG_DIRS, 1, topics=[{"topic": topic.name, "partitions": [0]}])
    return int(response.results[0].topics[0].partitions[0].partition_size)


def expect_spark(huge: HugePartition, **options: object) -> None:
    """Without a JVM: splits of 1 GiB that together have every offset once, and landmarks read from theirs alone."""
    everything = scan(splitBytes=SPLIT_BYTES, columns="offset", **options)
    assert everything.offsets == list(range(huge.active_base + RECORDS_IN_LANDMARK))
    assert len(everything.plans) >= huge.size // SPLIT_BYTES
    assert max(piece.end_position for plan in everything.plans for piece in plan.pieces) == huge.size
    for base in huge.landmarks:
        few = scan(
            startingOffsets=f'{{"huge": {{"0": {base}}}}}',
            endingOffsets=f'{{"huge": {{"0": {base + RECORDS_IN_LANDMARK}}}}}',
            **options,
        )
        assert few.offsets == list(range(base, base + RECORDS_IN_LANDMARK))
        assert few.rows[0]["key"] == b"key-%d" % base
        assert few.bytes_read < SPLIT_BYTES // 8


def expect_dumped(directory: Path, huge: HugePartition) -> None:
    """The last landmark, found by its position; and every index entry points at its batch."""
    base, position = max(huge.positions.items())
    printed = dump(str(directory / log_file(0)), "--from", f"@{position}")
    assert f"baseOffset: {base} lastOffset: {base + RECORDS_IN_LANDMARK - 1}" in printed
    assert f"position: {position} " in printed
    dump(str(directory / offset_index_file(0)), "--verify-index-only")


def dump(*arguments: str) -> str:
    command = [sys.executable, "-m", "stratalog", "dump", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
