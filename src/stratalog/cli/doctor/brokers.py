"""Find problems that the brokers of a cluster report. Nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from stratalog.broker import tier_status_field
from stratalog.cli.cluster import PartitionStatus, all_partitions
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.doctor import topic_settings
from stratalog.cli.doctor.diagnosis import Diagnosis, command, one_of, room
from stratalog.cli.log_dirs import describe_log_dirs
from stratalog.cli.out import counted
from stratalog.cli.transactions import active_producers, hanging
from stratalog.errors import KafkaError
from stratalog.jobs import Severity, size_text
from stratalog.util import SYSTEM_CLOCK, join_host_port
from stratalog.wire import ApiKey
from stratalog.wire.client import AuthenticationError, Cluster, RefusedError, UnreachableError, check

#: transaction.max.timeout.ms, as brokers have it by default.
TRANSACTION_MS = 15 * 60 * 1000
#: Upload backlog in bytes from which it is reported, as by the alert StratalogCopiesFallBehind.
BACKLOG_BYTES = 1_000_000_000
_TOPIC: Final = 2
_MIN_ISR: Final = "min.insync.replicas"


def examine_brokers(bootstrap_server: str, command_config: Path | None) -> list[Diagnosis]:
    """Query the brokers of a cluster for partitions, directories, remote tier, transactions and topic settings."""
    found: list[Diagnosis] = []
    try:
        with ClusterOptions(bootstrap_server=bootstrap_server, command_config=command_config).open() as cluster:
            for look in (_fenced, _replicas, _all_directories, _hanging, topic_settings.of_cluster):
                try:
                    found += look(cluster, bootstrap_server)
                except (RefusedError, KafkaError) as error:
                    mend = "see the broker's log; or use a user that may describe the cluster and its topics"
                    found.append(Diagnosis(Severity.WARNING, bootstrap_server, "unknown", str(error), mend))
    except AuthenticationError as error:
        found.append(Diagnosis(Severity.ERROR, bootstrap_server, "refused", str(error), "correct --command-config"))
    except UnreachableError as error:
        mend = "start it (stratalog serve), or correct --bootstrap-server and its protocol"
        found.append(Diagnosis(Severity.ERROR, bootstrap_server, "unreachable", str(error), mend))
    return found


def _fenced(cluster: Cluster, bootstrap_server: str) -> list[Diagnosis]:  # noqa: ARG001
    """Find brokers that are registered but fenced. Brokers before Kafka 4.0 do not report them."""
    answer = cluster.any.call(ApiKey.DESCRIBE_CLUSTER, (0, 2), endpoint_type=1, include_fenced_brokers=True)
    check(answer.error_code, answer.error_message, "cluster")
    return [
        Diagnosis(
            Severity.ERROR,
            f"broker {each.broker_id}",
            "fenced-broker",
            f"it is fenced: the controller gets no heartbeats from it ({join_host_port(each.host, int(each.port))})",
            "start it, or see its log for why it does not reach the controllers",
        )
        for each in answer.brokers
        if getattr(each, "is_fenced", False)
    ]


def _replicas(cluster: Cluster, bootstrap_server: str) -> list[Diagnosis]:
    partitions = all_partitions(cluster.any)
    behind = {each.topic for each in partitions if each.is_behind and not each.is_offline}
    return replicas(partitions, _min_isr(cluster, sorted(behind)), bootstrap_server)


def replicas(
    partitions: Iterable[PartitionStatus], min_isr: Mapping[str, int], bootstrap_server: str
) -> list[Diagnosis]:
    """Diagnose partitions without a leader and partitions whose replicas are not all in sync.

    `min_isr` has min.insync.replicas of their topics.
    """
    ordered = sorted(partitions, key=lambda each: (each.topic, each.partition))
    without = [each for each in ordered if each.is_offline]
    behind = [each for each in ordered if each.is_behind and not each.is_offline]
    refusing = [each for each in behind if len(each.isr) < min_isr.get(each.topic, 1)]
    serving = [each for each in behind if len(each.isr) >= min_isr.get(each.topic, 1)]
    status = command("cluster", "status", "-b", bootstrap_server)
    found = []
    for severity, kind, what, entries in (
        (Severity.ERROR, "offline-partition", "without a leader", without),
        (
            Severity.ERROR,
            "under-min-isr",
            f"with too few replicas in sync for {_MIN_ISR}: acks=all is refused",
            refusing,
        ),
        (Severity.WARNING, "under-replicated", "with replicas that are not in sync", serving),
    ):
        if entries:
            first = entries[0]
            said = (
                f"{counted(len(entries), 'partition')} {what}, first: {first.topic}-{first.partition}, "
                f"in sync {_ids(first.isr)} of {_ids(first.replicas)}"
            )
            mend = f"start the brokers that have the replicas; {status} names them"
            found.append(Diagnosis(severity, bootstrap_server, kind, said, mend))
    return found


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers))) or "none"


def _min_isr(cluster: Cluster, topics: list[str]) -> dict[str, int]:
    """Return min.insync.replicas of the topics that may be described."""
    if not topics:
        return {}
    wanted = [{"resource_type": _TOPIC, "resource_name": each, "configuration_keys": [_MIN_ISR]} for each in topics]
    answer = cluster.any.call(ApiKey.DESCRIBE_CONFIGS, (1, 4), resources=wanted)
    return {
        str(result.resource_name): int(each.value)
        for result in answer.results
        for each in result.configs or ()
        if each.name == _MIN_ISR and each.value is not None
    }


def _all_directories(cluster: Cluster, bootstrap_server: str) -> list[Diagnosis]:
    return [each for broker in sorted(cluster.nodes()) for each in _directories(cluster, broker, bootstrap_server)]


def _directories(cluster: Cluster, broker: int, bootstrap_server: str) -> list[Diagnosis]:
    try:
        directories, fields = describe_log_dirs(broker, cluster.node(broker), None)
    except (UnreachableError, RefusedError) as error:
        return [Diagnosis(Severity.WARNING, f"broker {broker}", "unknown", str(error), "see the log of this broker")]
    found = []
    for each in directories:
        where = f"broker {broker}: {each.log_dir}"
        if int(each.error_code):
            mend = f"mend the disk; then, with the broker stopped: {command('fsck', each.log_dir)}"
            said = f"the directory has failed ({each.error_code.name.upper()}), and its partitions are offline"
            found.append(Diagnosis(Severity.ERROR, where, "failed-directory", said, mend))
        else:
            found += room(where, int(getattr(each, "usable_bytes", 0)), int(getattr(each, "total_bytes", 0)))
    tier_status = fields.get(tier_status_field.TAG)
    return found if tier_status is None else [*found, *_tier(f"broker {broker}", tier_status, bootstrap_server)]


def _tier(where: str, tier_status: bytes, bootstrap_server: str) -> list[Diagnosis]:
    """Diagnose a broker's report of its remote tier: failing tasks and the upload backlog."""
    partitions = json.loads(tier_status)["partitions"]
    failing = [
        f"{each['topic']}-{each['partition']}: {failure['task']} has failed {counted(failure['times'], 'time')} in a "
        f"row: {' '.join(failure['error'].split())}"
        for each in partitions
        for failure in each["failures"]
    ]
    mend = command("tier", "status", "-b", bootstrap_server)
    found = one_of(
        Severity.ERROR, where, "tier-failing", failing, f"{mend} shows details; check the store and its credentials"
    )
    waiting = sorted((each for each in partitions if each["lagBytes"]), key=lambda each: -each["lagBytes"])
    backlog = sum(each["lagBytes"] for each in waiting)
    if backlog >= BACKLOG_BYTES:
        first = waiting[0]
        segments = counted(sum(each["lagSegments"] for each in waiting), "sealed segment")
        said = (
            f"{size_text(backlog)} in {segments} wait to be uploaded, most of {first['topic']}-{first['partition']}: "
            f"{first['text']}"
        )
        mend = f"{mend}; docs/how-to/tiered_storage.md"
        found.append(Diagnosis(Severity.WARNING, where, "tier-backlog", said, mend))
    return found


def _hanging(cluster: Cluster, bootstrap_server: str) -> list[Diagnosis]:
    oldest_ms = SYSTEM_CLOCK.now_ms() - TRANSACTION_MS
    keys = [
        (name, number)
        for name, each in cluster.topics().items()
        for number, partition in each.partitions.items()
        if partition.leader >= 0
    ]
    refused: list[tuple[str, RefusedError]] = []
    producers = active_producers(cluster, keys, lambda name, error: refused.append((name, error)))
    open_ = [each for each in producers if each.start_offset is not None]
    unknown = []
    if refused:
        name, why = refused[0]
        found = f"transactions of {counted(len(refused), 'partition')} cannot be listed, first: {name}: {why}"
        mend = "fix the other findings first; or use a user that may read these topics"
        unknown.append(Diagnosis(Severity.WARNING, bootstrap_server, "unknown", found, mend))
    return unknown + [
        Diagnosis(
            Severity.WARNING,
            f"{each.topic}-{each.partition}",
            "hanging-transaction",
            f"open since offset {each.start_offset}, unknown to every coordinator: readers of committed records stop",
            command(
                *("transactions", "abort", "--topic", each.topic, "--partition", str(each.partition)),
                *("--start-offset", str(each.start_offset), "-b", bootstrap_server),
            ),
        )
        for each in hanging(cluster, [each for each in open_ if each.last_timestamp_ms < oldest_ms])
    ]
