"""Metrics of the remote tier after known work, and while the store fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.remote.world import MemoryMetadataLog

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.metrics.catalogue import read_metrics
from stratalog.engine.metrics.metric import MetricKind
from stratalog.engine.partition import Partition
from stratalog.engine.tiering.tier_status import status_json, tier_statuses
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.tier.manager import RemoteLogManager
from stratalog.remote.tier.status import Reason
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, StoreFault
from stratalog.util.uuids import random_uuid

CONFIG = BrokerConfig({"remote.log.manager.task.interval.ms": "20", "log.initial.task.delay.ms": "3600000"})
TIERED = LogConfig(segment_bytes=1_500, retention_ms=-1, remote_storage_enable=True)
BATCH = bytes(build_batch([Record(at, 1_000, None, bytes(100)) for at in range(10)]))
BY_TOPIC = "kafka_server_brokertopicmetrics_"


class Tiered:
    """A log manager with a remote tier over a store that fails when it is asked to; `begin` lets the tasks run."""

    def __init__(self, path: Path) -> None:
        self.faults = FaultPlan()
        self.logs = LogManager([path / "data"], CONFIG, cluster_id="c")
        self.logs.start([])
        store = FaultyObjectStore(ObjectStore.from_url("memory:///"), self.faults)
        self.remote = RemoteLogManager(
            ObjectStoreRemoteStorageManager(store),
            TopicBasedRemoteLogMetadataManager(MemoryMetadataLog()),
            CONFIG,
            path / "cache",
        )
        self.logs.attach_remote(self.remote)

    def topic(self, name: str = "t", batches: int = 3) -> Partition:
        """A topic of one partition with as many segments as batches, the last one active."""
        (partition,) = self.logs.create_topic(TopicSpec(name, random_uuid(), 1, TIERED))
        for _ in range(batches):
            partition.append(BATCH)
        return partition

    def values(self) -> dict[tuple[str, ...], float]:
        return {
            (metric.name, *sample.labels): sample.times if metric.kind is MetricKind.TIMER else sample.value
            for metric, samples in read_metrics(self.logs)
            for sample in samples
        }

    def when(self, happened: Callable[[dict[tuple[str, ...], float]], bool]) -> dict[tuple[str, ...], float]:
        """The values once something has happened."""
        end = time.monotonic() + 60
        while not happened(found := self.values()):
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[Tiered]:
    made = Tiered(tmp_path)
    yield made
    made.faults.heal()
    made.logs.close()


def test_copies_are_counted_by_segment_and_byte(tiered: Tiered) -> None:
    tiered.topic()
    before = tiered.values()
    assert before[BY_TOPIC + "remotecopylagsegments", "t"] == 2
    assert before[BY_TOPIC + "remotecopylagbytes", ""] == 2 * len(BATCH)
    tiered.remote.start()
    found = tiered.when(lambda values: values[BY_TOPIC + "remotecopybytes_total", ""] == 2 * len(BATCH))
    assert found[BY_TOPIC + "remotecopyrequests_total", "t"] == 2
    assert found[BY_TOPIC + "remotecopyerrors_total", "t"] == 0
    assert found[BY_TOPIC + "remotecopylagsegments", "t"] == 0
    assert found["stratalog_tier_remote_segments", "t", "0"] == 2
    assert found["stratalog_tier_highest_remote_offset", "t", "0"] == 19
    assert found["stratalog_tier_status", "t", "0", Reason.ACTIVE_SEGMENT.value] == 1


def test_reads_of_the_remote_tier_are_counted(tiered: Tiered) -> None:
    partition = tiered.topic()
    tiered.remote.start()
    tiered.when(lambda values: values["stratalog_tier_remote_segments", "t", "0"] == 2)
    assert len(partition.read_remote(0, len(BATCH)).records) == len(BATCH)
    found = tiered.values()
    assert found[BY_TOPIC + "remotefetchrequests_total", "t"] == 1
    assert found[BY_TOPIC + "remotefetchbytes_total", ""] == len(BATCH)
    assert found["kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems",] == 1
    assert found["stratalog_tier_index_cache_entries",] == 1


@pytest.mark.parametrize("fault", [StoreFault.DENIED, StoreFault.UNAVAILABLE])
def test_copies_that_fail_are_counted_and_say_why(tiered: Tiered, fault: StoreFault) -> None:
    tiered.faults.always(fault)
    tiered.topic()
    tiered.remote.start()
    found = tiered.when(lambda values: values.get(("stratalog_tier_failures_in_a_row", "t", "0", "copy"), 0) >= 2)
    assert found[BY_TOPIC + "remotecopyerrors_total", "t"] >= 2
    assert found[BY_TOPIC + "remotecopybytes_total", ""] == 0
    assert found[BY_TOPIC + "remotecopylagsegments", "t"] == 2
    assert found["stratalog_tier_status", "t", "0", "failing"] == 1
    (status,) = tier_statuses(tiered.logs)
    word = "denied" if fault is StoreFault.DENIED else "503"
    assert status.is_failing
    assert word in status.failures[0].error
    reported = status_json([status])
    assert reported["failing"] == 1
    assert word in reported["partitions"][0]["failures"][0]["error"]


def test_a_store_that_is_back_ends_the_failure(tiered: Tiered) -> None:
    tiered.faults.always(StoreFault.UNAVAILABLE)
    tiered.topic()
    tiered.remote.start()
    tiered.when(lambda values: values["stratalog_tier_unreachable_seconds",] > 0)
    tiered.faults.heal()
    found = tiered.when(lambda values: values["stratalog_tier_remote_segments", "t", "0"] == 2)
    assert ("stratalog_tier_failures_in_a_row", "t", "0", "copy") not in found
    assert tiered.when(lambda values: values["stratalog_tier_unreachable_seconds",] == 0)


def test_a_copy_that_hangs_is_copying_and_its_lag_stays(tiered: Tiered) -> None:
    tiered.faults.always(StoreFault.HANG)
    tiered.topic()
    tiered.remote.start()
    tiered.faults.wait_for_steps(1)
    found = tiered.when(lambda values: ("stratalog_tier_status", "t", "0", "copying") in values)
    assert found[BY_TOPIC + "remotecopylagbytes", "t"] == 2 * len(BATCH)


def test_without_a_remote_tier_its_metrics_are_zero_or_missing(tmp_path: Path) -> None:
    logs = LogManager([tmp_path / "data"], CONFIG, cluster_id="c")
    logs.start([])
    try:
        (partition,) = logs.create_topic(TopicSpec("t", random_uuid(), 1, TIERED))
        partition.append(BATCH)
        (status,) = tier_statuses(logs)
        assert status.reason is Reason.DISABLED
        assert "remote.log.storage.system.enable" in status.text
        samples = {metric.name: list(found) for metric, found in read_metrics(logs)}
    finally:
        logs.close()
    assert [sample.value for sample in samples[BY_TOPIC + "remotecopybytes_total"]] == [0]
    assert samples["kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize"] == []
