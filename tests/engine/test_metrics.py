"""The metrics of the engine: their names are those of Kafka 4.4.0's MBeans, or of none, and their values are right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from tests.support.huge_log import huge_directory, write_huge_partition
from tests.support.jmx_exporter import exporter_name

from stratalog.broker.metrics import LAG_METRICS, METRICS as BROKER_METRICS
from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.metrics.catalogue import METRICS, read_metrics
from stratalog.engine.metrics.metric import Metric, MetricKind, exported_name
from stratalog.engine.metrics.metrics_absent import ABSENT
from stratalog.records import record_scan
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.util.uuids import random_uuid

GOLDEN = Path(__file__).parents[1] / "golden" / "metrics" / "mbeans.tsv"
#: Attributes of histograms besides their count and percentiles.
SPREAD = {"Min", "Max", "Mean", "StdDev"}
DECLARED: list[Metric[Any]] = [*METRICS, *BROKER_METRICS, *LAG_METRICS]


@dataclass(frozen=True)
class MBean:
    name: str
    labels: frozenset[str]
    attributes: frozenset[str]


def golden() -> list[MBean]:
    lines = [line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
    parts = [line.split("\t") for line in lines]
    return [
        MBean(name, frozenset(filter(None, labels.split(","))), frozenset(attributes.split()))
        for name, labels, attributes in parts
    ]


def attributes_by_name() -> dict[str, set[str]]:
    """What an MBean has, with and without labels."""
    found: dict[str, set[str]] = {}
    for mbean in golden():
        found.setdefault(mbean.name, set()).update(mbean.attributes)
    return found


def declared_mbeans() -> dict[str, list[Metric[Any]]]:
    found: dict[str, list[Metric[Any]]] = {}
    for metric in DECLARED:
        if metric.mbean:
            found.setdefault(metric.mbean.split(" ")[0], []).append(metric)
    return found


# --- names ------------------------------------------------------------------------------------------------------------


def test_every_name_is_there_once() -> None:
    names = [metric.name for metric in DECLARED]
    assert sorted(set(names)) == sorted(names)


def test_the_rules_are_those_of_the_exporter() -> None:
    assert exported_name("kafka.log:type=Log,name=Size") == "kafka_log_log_size"
    assert (
        exported_name("kafka.server:type=BrokerTopicMetrics,name=RemoteCopyLagBytes")
        == "kafka_server_brokertopicmetrics_remotecopylagbytes"
    )
    assert (
        exported_name("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec")
        == "kafka_server_brokertopicmetrics_bytesin_total"
    )
    assert exported_name("kafka.server:type=RLMCopy", "byte-rate") == "kafka_server_rlmcopy_byte_rate"


@pytest.mark.parametrize("bad", ["", "kafka.log", "kafka.log:name=Size", "type=Log,name=Size"])
def test_what_is_no_mbean_has_no_name(bad: str) -> None:
    with pytest.raises(ValueError, match="is not DOMAIN"):
        exported_name(bad)


def test_every_metric_of_kafkas_has_the_name_that_the_exporter_gives_to_one_of_kafkas_mbeans() -> None:
    attributes = attributes_by_name()
    for metric in DECLARED:
        if not metric.mbean:
            assert metric.name.startswith("stratalog_")
            continue
        name, _, attribute = metric.mbean.partition(" ")
        counts = {"Count": exporter_name(name, "Count"), "Value": exporter_name(name, "Value")}
        attribute = attribute or ("Value" if "Value" in attributes[name] else "Count")
        expected = counts.get(attribute) or exporter_name(name, attribute)
        if attribute in SPREAD:  # the rules pass over them: they follow the name as an attribute without one does
            assert expected is None
            expected = f"{exporter_name(name, 'Value')}_{attribute.lower()}"
        assert attribute in attributes[name], metric.mbean
        assert expected == (f"{metric.name}_count" if metric.kind is MetricKind.TIMER else metric.name)


def test_the_labels_are_kafkas() -> None:
    labels: dict[str, set[frozenset[str]]] = {}
    for mbean in golden():
        labels.setdefault(mbean.name, set()).add(mbean.labels)
    for name, metrics in declared_mbeans().items():
        for metric in metrics:
            # Kafka registers the metrics of a topic when there is something to count.
            of_topics = {frozenset({"topic"})} if "BrokerTopicMetrics" in name else set()
            known = {frozenset(label.replace("-", "_") for label in each) for each in labels[name] | of_topics}
            assert frozenset(metric.labels) in known, name


def test_each_of_kafkas_mbeans_is_ours_or_is_absent_for_a_reason() -> None:
    declared = declared_mbeans()
    missing = []
    for mbean in golden():
        reasons = [absent for absent in ABSENT if fnmatchcase(mbean.name, absent.pattern)]
        if mbean.name not in declared and len(reasons) != 1:
            missing.append((mbean.name, [absent.pattern for absent in reasons]))
    assert missing == []


#: Kafka has them by network thread, and so absent here; these are exported as the sums over the threads.
SUMMED = {"kafka.server:type=socket-server-metrics": {"connection-count"}}


def test_each_attribute_without_a_name_is_ours_too() -> None:
    """What Kafka puts under one MBean without `name=` is declared whole or, for each of its sets of labels, absent."""
    declared = declared_mbeans()
    for name in {mbean.name for mbean in golden() if mbean.name in declared and "name=" not in mbean.name}:
        rows = [mbean for mbean in golden() if mbean.name == name]
        absent = [mbean for mbean in rows if is_absent(mbean)]
        ours = {metric.mbean.partition(" ")[2] for metric in declared[name]}
        kafkas = {attribute for mbean in rows if mbean not in absent for attribute in mbean.attributes}
        assert ours == kafkas | SUMMED.get(name, set())


def is_absent(mbean: MBean) -> bool:
    """Whether an MBean with these labels is absent for a reason, though there are others of its name."""
    name = ",".join([mbean.name, *(f"{label}=*" for label in sorted(mbean.labels))])
    return any(fnmatchcase(name, absent.pattern) for absent in ABSENT)


def test_no_reason_is_left_over() -> None:
    declared = declared_mbeans()
    undeclared = [mbean.name for mbean in golden() if mbean.name not in declared]
    undeclared += [
        ",".join([mbean.name, *(f"{label}=*" for label in sorted(mbean.labels))])
        for mbean in golden()
        if mbean.name in declared and is_absent(mbean)
    ]
    assert [a.pattern for a in ABSENT if not any(fnmatchcase(name, a.pattern) for name in undeclared)] == []


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = LogManager([tmp_path / "data"], BrokerConfig({}), cluster_id="c")
    manager.start([])
    yield manager
    manager.close()


def spec(name: str, partitions: int = 1, **config: Any) -> TopicSpec:
    return TopicSpec(name, random_uuid(), partitions, LogConfig(**config))


def batch(records: int, size: int = 100) -> bytes:
    return bytes(build_batch([Record(at, 1_000, None, bytes(size)) for at in range(records)]))


def values(logs: LogManager) -> dict[tuple[str, ...], float]:
    """By name and values of labels; of a timer how often."""
    return {
        (metric.name, *sample.labels): sample.times if metric.kind is MetricKind.TIMER else sample.value
        for metric, samples in read_metrics(logs)
        for sample in samples
    }


def test_a_log_tells_its_size_segments_and_offsets(logs: LogManager) -> None:
    (partition,) = logs.create_topic(spec("t", segment_bytes=1_500))
    data = batch(10)
    for _ in range(3):
        partition.append(data)
    found = values(logs)
    assert found["kafka_log_log_size", "t", "0"] == 3 * len(data)
    assert found["kafka_log_log_numlogsegments", "t", "0"] == 3
    assert found["kafka_log_log_logstartoffset", "t", "0"] == 0
    assert found["kafka_log_log_logendoffset", "t", "0"] == 30
    assert found["stratalog_log_active_segment_size_bytes", "t", "0"] == len(data)
    assert found["kafka_server_replicamanager_partitioncount",] == 1


def test_retention_is_reported_in_percent_of_its_bound(logs: LogManager) -> None:
    data = batch(10)
    (bounded,) = logs.create_topic(spec("bounded", retention_bytes=2 * len(data)))
    (endless,) = logs.create_topic(spec("endless"))
    for partition in (bounded, endless):
        partition.append(data)
    found = values(logs)
    assert found["kafka_log_log_retentionsizeinpercent", "bounded", "0"] == 50
    assert found["kafka_log_log_retentionsizeinpercent", "endless", "0"] == 0


def test_traffic_is_counted_by_topic_and_the_total_survives_a_deletion(logs: LogManager) -> None:
    data = batch(7)
    for name, times in (("a", 2), ("b", 3)):
        for partition in logs.create_topic(spec(name, 2)):
            for _ in range(times):
                partition.append(data)
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    found = values(logs)
    assert (found[name, "a"], found[name, "b"], found[name, ""]) == (28, 42, 70)
    assert found["kafka_server_brokertopicmetrics_bytesin_total", "b"] == 6 * len(data)
    logs.delete_topic("b")
    found = values(logs)
    assert (name, "b") not in found
    assert found[name, ""] == 70


def test_appends_in_a_group_count_like_single_ones(logs: LogManager) -> None:
    (partition,) = logs.create_topic(spec("t"))
    data = batch(5)
    partition.append(data)
    record_scan.load_native()  # until then each request is appended by itself
    assert partition.append_group([memoryview(bytearray(data)) for _ in range(4)]) is not None
    found = values(logs)
    assert found["kafka_server_brokertopicmetrics_messagesin_total", "t"] == 25
    assert found["kafka_server_brokertopicmetrics_bytesin_total", "t"] == 5 * len(data)
    assert found["kafka_server_brokertopicmetrics_totalproducerequests_total", "t"] == 5


def test_flushes_are_counted_and_those_of_a_deleted_topic_stay(logs: LogManager) -> None:
    name = "kafka_log_logflushstats_logflushrateandtimems"
    (partition,) = logs.create_topic(spec("t"))
    for expected in (1, 2):
        partition.append(batch(1))
        partition.log.flush()
        assert values(logs)[name,] == expected
    logs.delete_topic("t")
    assert values(logs)[name,] == 2


def test_sizes_past_four_gib_are_exact() -> None:
    with huge_directory() as home:
        huge = write_huge_partition(home / "t-0")
        (home / ".kafka_cleanshutdown").write_bytes(b"")
        manager = LogManager([home], BrokerConfig({}), cluster_id="c")
        try:
            manager.start([spec("t", segment_bytes=2**40, retention_ms=-1, use_large_index_format=True)])
            found = values(manager)
        finally:
            manager.close()
    assert huge.size > 2**32
    assert found["stratalog_log_largest_segment_size_bytes", "t", "0"] == huge.size
    assert found["kafka_log_log_size", "t", "0"] > huge.size


def test_a_failed_directory_is_reported(logs: LogManager, tmp_path: Path) -> None:
    logs.create_topic(spec("t", 3))
    directory = logs.dirs.paths[0]
    logs.dirs.fail(directory, "it broke")
    logs.put_offline(directory)
    found = values(logs)
    assert found["kafka_log_logmanager_offlinelogdirectorycount",] == 1
    assert found["kafka_log_logmanager_logdirectoryoffline", str(directory)] == 1
    assert found["kafka_server_replicamanager_offlinereplicacount",] == 3
    assert ("kafka_log_log_size", "t", "0") not in found


def test_one_replica_in_sync_is_as_many_as_min_insync_replicas_can_ask_for(logs: LogManager) -> None:
    logs.create_topic(spec("two", min_insync_replicas=2))
    logs.create_topic(spec("one"))
    found = values(logs)
    for topic in ("one", "two"):
        assert found["kafka_cluster_partition_underminisr", topic, "0"] == 0
        assert found["kafka_cluster_partition_atminisr", topic, "0"] == 1
    assert found["kafka_server_replicamanager_underminisrpartitioncount",] == 0
    assert found["kafka_server_replicamanager_atminisrpartitioncount",] == 2


def test_a_cleaning_is_reported(tmp_path: Path) -> None:
    config = BrokerConfig({"log.cleaner.backoff.ms": "20", "log.cleaner.dedupe.buffer.size": "1048576"})
    manager = LogManager([tmp_path / "data"], config, cluster_id="c")
    manager.start([])
    try:
        compacted: dict[str, Any] = {"cleanup_policy": frozenset({"compact"}), "min_cleanable_dirty_ratio": 0.01}
        (partition,) = manager.create_topic(spec("t", segment_bytes=1_500, **compacted))
        batch = [Record(at, 1_000, b"%d" % (at % 3), bytes(100)) for at in range(10)]
        end = time.monotonic() + 60
        # The gauge tells of the last cleaning; one that began amid these appends may have kept all of them.
        while not 0 < (found := values(manager))["kafka_log_logcleaner_cleaner_recopy_percent",] < 100:
            assert time.monotonic() < end
            for _ in range(6):
                partition.append(build_batch(batch))
            time.sleep(0.02)
    finally:
        manager.close()
    assert found["kafka_log_logcleaner_deadthreadcount",] == 0
    assert found["kafka_log_logcleanermanager_time_since_last_run_ms",] < 60_000
    assert found["kafka_log_logcleanermanager_uncleanable_partitions_count", str(tmp_path / "data")] == 0
