"""Each metric of the remote tier says its own thing: in a world where all of them differ, every single value is
right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.remote.world import MemoryMetadataLog
from tests.util.test_worker_pool import Gate

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.metrics import metrics_remote
from stratalog.engine.metrics.metric import MetricKind
from stratalog.engine.metrics.metrics_remote import RemoteView
from stratalog.engine.partition import Partition
from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.api.interfaces import RemoteLogSegmentMetadata
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.tier.manager import RemoteLogManager
from stratalog.remote.tier.watchdog import StepKind
from stratalog.testing.clock import ManualClock
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, StoreFault
from stratalog.util.uuids import random_uuid

CONFIG = BrokerConfig({"log.initial.task.delay.ms": "3600000", "stratalog.remote.stall.ms": "1000"})
RETENTION_BYTES, LOCAL_RETENTION_BYTES = 20_000, 7_000
TIERED = LogConfig(
    segment_bytes=2**20,
    retention_ms=-1,
    retention_bytes=RETENTION_BYTES,
    local_retention_bytes=LOCAL_RETENTION_BYTES,
    remote_storage_enable=True,
)
#: Sums of these are exact in seconds.
LISTING_MS, LOOKUP_MS = 125, 250
BY_TOPIC = "kafka_server_brokertopicmetrics_"
MANAGER = "kafka_log_remote_remotelogmanager_"
READERS = "kafka_log_remote_remotestoragethreadpool_remotelogreader"
QUOTAS = "kafka_server_remotelogmanager_remote_"

Values = dict[tuple[str, ...], float | tuple[float, int]]


class SlowMetadata(TopicBasedRemoteLogMetadataManager):
    """Takes time by the clock, where it is measured: a list of all segments, and the lookup that begins a read."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryMetadataLog(), clock=clock)
        self._manual = clock

    def list_remote_log_segments(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> list[RemoteLogSegmentMetadata]:
        if leader_epoch is None:
            self._manual.advance(LISTING_MS)
        return super().list_remote_log_segments(partition, leader_epoch)

    def remote_log_segment_metadata(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        self._manual.advance(LOOKUP_MS)
        return super().remote_log_segment_metadata(partition, leader_epoch, offset)


class Still:
    """A broker's logs with a remote tier whose tasks run only when they are asked to, on a clock that stands still."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.faults = FaultPlan()
        #: What keeps threads of pools busy until it is opened.
        self.gate = Gate()
        self.cache = path / "cache"
        self.logs = LogManager([path / "data"], CONFIG, cluster_id="c", clock=self.clock)
        self.logs.start([])
        store = FaultyObjectStore(ObjectStore.from_url("memory:///"), self.faults)
        self.remote = RemoteLogManager(
            ObjectStoreRemoteStorageManager(store), SlowMetadata(self.clock), CONFIG, self.cache, self.clock
        )
        self.logs.attach_remote(self.remote)

    def topic(self, name: str) -> Partition:
        (partition,) = self.logs.create_topic(TopicSpec(name, random_uuid(), 1, TIERED))
        return partition

    def values(self) -> Values:
        """Every metric of the remote tier; of a timer the sum and how often."""
        view = RemoteView(self.logs)
        return {
            (metric.name, *sample.labels): (
                (sample.value, sample.times) if metric.kind is MetricKind.TIMER else sample.value
            )
            for metric in metrics_remote.METRICS
            for sample in metric.read(view)
        }


@pytest.fixture
def still(tmp_path: Path) -> Iterator[Still]:
    made = Still(tmp_path)
    yield made
    made.gate.open.set()
    made.faults.heal()
    made.logs.close()


def fill(partition: Partition, *record_sizes: int) -> list[int]:
    """A sealed segment of one record for each size; the bytes of each."""
    sizes = []
    for size in record_sizes:
        batch = bytes(build_batch([Record(0, 1_000, None, bytes(size))]))
        partition.append(batch)
        partition.log.roll()
        sizes.append(len(batch))
    return sizes


def by_topic(name: str, **values: float) -> Values:
    return {
        (BY_TOPIC + name, ""): sum(values.values()),
        **{(BY_TOPIC + name, topic): value for topic, value in values.items()},
    }


def test_every_metric_of_the_remote_tier_has_the_value_of_its_own_thing(still: Still) -> None:
    remote, clock, faults = still.remote, still.clock, still.faults
    t, u = still.topic("t"), still.topic("u")
    identity = t.topic_id_partition

    # Copies: five of one topic, one of the other.
    sizes, other = fill(t, 100, 230, 470, 950, 1_900), fill(u, 333)
    assert remote.run_once(identity).copied == 5
    assert remote.run_once(u.topic_id_partition).copied == 1

    # Deletions: three segments are to go, the store deletes the first and refuses the second, four times.
    t.log.increment_log_start_offset(3, "records were deleted")
    second = f"/{1:020d}-"
    faults.by(lambda what: StoreFault.DENIED if what.startswith("delete ") and second in what else None)
    for _ in range(4):
        with pytest.raises(RemoteStorageError, match="denied"):
            remote.run_once(identity)

    # Copies that fail, three times, each cleaned up at once; six other segments wait behind the one that is tried.
    local_only = fill(t, 3_100, 700, 600, 500, 400, 300, 200)
    faults.by(lambda what: StoreFault.DENIED if what.startswith("put ") else None)
    for _ in range(3):
        with pytest.raises(RemoteStorageError, match="denied"):
            remote.run_once(identity)

    # Reads: five that go well, one that does not.
    faults.heal()
    read = [len(t.read_remote(offset, 1).records) for offset in (3, 4, 3, 4, 3)]
    assert read[:2] == sizes[3:]
    faults.by(lambda what: StoreFault.UNAVAILABLE if what.startswith("get ") else None)
    with pytest.raises(RetriableRemoteStorageError):
        u.read_remote(0, 1)
    faults.heal()

    # Nothing here makes followers build up state.
    remote.counts.topic("t").aux_state_requests, remote.counts.topic("t").aux_state_errors = 12, 11

    # A copy has failed twice in a row, since five seconds; three tasks stand still.
    clock.advance(60_000)
    for task in ("one", "two", "three"):
        remote.watchdog.watch(identity, task).note(StepKind.STORE, "something")
    for _ in range(2):
        remote.health.failed(identity, "copy", RetriableRemoteStorageError("503"))
    clock.advance(3_000)
    remote.watchdog.look()

    # Quotas, each with an average, a maximum and a rate of its own.
    remote.limits.copy_quota.bytes_per_second, remote.limits.fetch_quota.bytes_per_second = 100, 1_000
    assert remote.limits.copy_quota.acquire(500) == 0
    remote.limits.fetch_quota.record(9_000)
    assert (remote.limits.copy_quota.acquire(1), remote.limits.fetch_quota.shed_ms()) == (4_000, 8_000)
    clock.advance(2_000)
    assert (remote.limits.copy_quota.acquire(1), remote.limits.fetch_quota.shed_ms()) == (3_000, 7_000)

    gate = still.gate
    for _ in range(3):
        remote.limits.readers.submit(gate.work)
    remote.limits.followers.submit(gate.work)
    gate.wait_begun(4)

    readable = sum(sizes[2:])
    everything = readable + sum(local_only)
    expected: Values = {
        **by_topic("remotecopybytes_total", t=sum(sizes), u=sum(other)),
        **by_topic("remotecopyrequests_total", t=8, u=1),
        **by_topic("remotecopyerrors_total", t=3, u=0),
        **by_topic("remotefetchbytes_total", t=sum(read), u=0),
        **by_topic("remotefetchrequests_total", t=5, u=1),
        **by_topic("remotefetcherrors_total", t=0, u=1),
        **by_topic("remotedeleterequests_total", t=8, u=0),
        **by_topic("remotedeleteerrors_total", t=4, u=0),
        **by_topic("buildremotelogauxstaterequests_total", t=12, u=0),
        **by_topic("buildremotelogauxstateerrors_total", t=11, u=0),
        **by_topic("remotecopylagbytes", t=sum(local_only), u=0),
        **by_topic("remotecopylagsegments", t=7, u=0),
        **by_topic("remotedeletelagbytes", t=sum(sizes[1:3]), u=0),
        **by_topic("remotedeletelagsegments", t=2, u=0),
        **by_topic("remotelogmetadatacount", t=4, u=1),
        **by_topic("remotelogsizebytes", t=readable, u=sum(other)),
        **by_topic("remotelogsizecomputationtime", t=LISTING_MS, u=LISTING_MS),
        (READERS + "taskqueuesize",): 0,
        (READERS + "avgidlepercent",): 0.7,
        (MANAGER + "remotelogmanagertasksavgidlepercent",): 0.5,
        (MANAGER + "remotelogreaderfetchrateandtimems",): (6 * LOOKUP_MS, 6),
        (MANAGER + "retentionsizeinpercent", "t", "0"): everything * 100 // RETENTION_BYTES,
        (MANAGER + "retentionsizeinpercent", "u", "0"): sum(other) * 100 // RETENTION_BYTES,
        (MANAGER + "localretentionsizeinpercent", "t", "0"): (
            (sum(sizes) + sum(local_only)) * 100 // LOCAL_RETENTION_BYTES
        ),
        (MANAGER + "localretentionsizeinpercent", "u", "0"): sum(other) * 100 // LOCAL_RETENTION_BYTES,
        ("kafka_server_rlmcopy_byte_rate",): 250,
        ("kafka_server_rlmfetch_byte_rate",): 4_500,
        (QUOTAS + "copy_throttle_time_avg",): 3_500,
        (QUOTAS + "copy_throttle_time_max",): 4_000,
        (QUOTAS + "fetch_throttle_time_avg",): 7_500,
        (QUOTAS + "fetch_throttle_time_max",): 8_000,
        ("stratalog_tier_status", "t", "0", "failing"): 1,
        ("stratalog_tier_status", "u", "0", "up to date"): 1,
        ("stratalog_tier_failures_in_a_row", "t", "0", "copy"): 2,
        ("stratalog_tier_lag_segments", "t", "0"): 7,
        ("stratalog_tier_lag_segments", "u", "0"): 0,
        ("stratalog_tier_lag_bytes", "t", "0"): sum(local_only),
        ("stratalog_tier_lag_bytes", "u", "0"): 0,
        ("stratalog_tier_remote_segments", "t", "0"): 3,
        ("stratalog_tier_remote_segments", "u", "0"): 1,
        ("stratalog_tier_remote_bytes", "t", "0"): readable,
        ("stratalog_tier_remote_bytes", "u", "0"): sum(other),
        ("stratalog_tier_highest_remote_offset", "t", "0"): 4,
        ("stratalog_tier_highest_remote_offset", "u", "0"): 0,
        ("stratalog_tier_unreachable_seconds",): 5,
        ("stratalog_tier_stalled_tasks",): 3,
        ("stratalog_tier_index_cache_bytes",): sum(path.stat().st_size for path in still.cache.iterdir()),
        ("stratalog_tier_index_cache_entries",): 2,
    }
    found = still.values()
    assert found.keys() == expected.keys()
    assert {key: value for key, value in found.items() if value != expected[key]} == {}
    totals = [value for (name, *labels), value in found.items() if name.startswith(BY_TOPIC) and labels == [""]]
    assert len(set(totals)) == len(totals), "two that are mixed up would not be seen"
    assert {name for name, *_ in found} == {metric.name for metric in metrics_remote.METRICS}

    # The queue fills up behind as many readers as there are.
    remote.limits.readers.resize(3)
    for _ in range(4):
        remote.limits.readers.submit(gate.work)
    found = still.values()
    assert found[READERS + "taskqueuesize",] == 4
    assert found[READERS + "avgidlepercent",] == 0
