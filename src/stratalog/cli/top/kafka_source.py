"""What every Kafka broker reports of a cluster: offsets, sizes on disk, replicas, groups. No request times.

Rates are differences between two looks: records by the ends of partitions, bytes by the growth of their leaders' logs.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from stratalog.broker import TAG as REMOTE_SIZES_TAG, decode, tier_status_field
from stratalog.cli.cluster import PartitionStatus, all_partitions
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.groups import WITH_COMMITS, GroupSummary, list_groups
from stratalog.cli.log_dirs import describe_log_dirs
from stratalog.cli.out import counted
from stratalog.cli.top.snapshot import ROWS, TopOrder, TopSnapshot
from stratalog.cli.web_address import NotOursError
from stratalog.errors import KafkaError
from stratalog.util import SYSTEM_CLOCK, Clock
from stratalog.wire.client import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AuthenticationError,
    Cluster,
    Coordinators,
    RefusedError,
    TopicPartition,
    UnreachableError,
)

#: The timeout of a request, whatever the client properties say.
_TIMEOUT_S: Final = 10.0
#: The next look tries again.
_TRIES_S: Final = 1.0
_RATES_KEPT: Final = 300
#: Each costs the broker a request.
_GROUPS_MAX: Final = 200
#: Internal topics that brokers do not mark as internal, such as that of the remote tier's metadata.
_INTERNAL: Final = "__"
_SORTS: Final[Mapping[TopOrder, str]] = {
    TopOrder.IN: "bytesInRate",
    TopOrder.OUT: "bytesInRate",  # only the broker itself knows what it sends
    TopOrder.RECORDS: "records",
    TopOrder.LOCAL: "localBytes",
    TopOrder.UPLOAD: "uploadBytes",
}


@dataclass(slots=True)
class _Disks:
    """What the brokers report of their directories."""

    directories: list[dict[str, Any]] = field(default_factory=list)
    #: Bytes of all replicas, by topic.
    local: dict[str, int] = field(default_factory=dict)
    #: Bytes of the leader's log.
    led: dict[TopicPartition, int] = field(default_factory=dict)
    remote: dict[TopicPartition, int] = field(default_factory=dict)
    tier: list[dict[str, Any]] = field(default_factory=list)
    is_tiered: bool = False
    #: Brokers that do not respond, and why.
    silent: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Counts:
    """The counters from which rates are computed."""

    at: float
    ends: Mapping[TopicPartition, int]
    led: Mapping[TopicPartition, int]


class KafkaSource:
    """Looks at a cluster by Kafka's protocol. Raises UsageError for addresses or properties that are wrong."""

    kind: Final = "bootstrapServer"

    def __init__(self, bootstrap_server: str, command_config: Path | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = bootstrap_server
        self._clock = clock
        options = ClusterOptions(bootstrap_server=bootstrap_server, command_config=command_config).connection()
        self._options = replace(
            options,
            connect_timeout_s=min(options.connect_timeout_s, _TIMEOUT_S),
            request_timeout_s=min(options.request_timeout_s, _TIMEOUT_S),
            api_timeout_s=_TRIES_S,
        )
        self._cluster: Cluster | None = None
        self._before: _Counts | None = None
        self._rates: deque[dict[str, Any]] = deque(maxlen=_RATES_KEPT)

    @property
    def has_rates(self) -> bool:
        """Return whether there are two looks to compute a rate from."""
        return bool(self._rates)

    def look(self, order: TopOrder) -> TopSnapshot:
        """Take a look. Raises UnreachableError, or NotOursError if a retry does not help."""
        try:
            if self._cluster is None:
                self._cluster = Cluster(self._options)
            return self._look(self._cluster, order)
        except AuthenticationError as error:
            self.close()
            raise NotOursError(str(error)) from error
        except (UnreachableError, RefusedError, KafkaError) as error:
            self.close()
            raise UnreachableError(str(error)) from error

    def close(self) -> None:
        """Close the connections and forget the counters. The next look starts afresh."""
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = self._before = None

    def _look(self, cluster: Cluster, order: TopOrder) -> TopSnapshot:
        topics = cluster.topics()
        partitions = all_partitions(cluster.any)
        starts, ends = _offsets(cluster, partitions)
        at = self._clock.monotonic()
        disks = _disks(cluster, partitions)
        now = _Counts(at, ends, disks.led)
        before, self._before = self._before, now
        rates = _rates(before, now)
        shown = [
            _topic(name, len(each.partitions), starts, ends, disks, rates)
            for name, each in topics.items()
            if not each.is_internal and not name.startswith(_INTERNAL)
        ]
        if rates is not None:
            self._rates.append(
                {
                    "atMs": self._clock.now_ms(),
                    "bytesIn": sum(each[0] for each in rates.values()),
                    "recordsIn": sum(each[1] for each in rates.values()),
                }
            )
        groups = _groups(cluster, ends)
        waiting = [each for each in disks.tier if each["uploadSegments"] or each["isFailing"]]
        return TopSnapshot(
            at_ms=self._clock.now_ms(),
            broker={
                "nodeId": None,
                "brokers": len(cluster.nodes()),
                "clusterId": cluster.cluster_id(),
                "bootstrapServers": self.name,
                "isStalled": False,
            },
            rates=tuple(self._rates),
            requests=(),
            numbers={
                "topics": len(shown),
                "partitions": len(partitions),
                "records": sum(ends[key] - starts[key] for key in ends),
                "localBytes": sum(disks.local.values()),
                "remoteBytes": sum(disks.remote.values()),
                "uploadBytes": sum(each["uploadBytes"] for each in disks.tier),
                "uploadSegments": sum(each["uploadSegments"] for each in disks.tier),
                "deleteBytes": None,
                "deleteSegments": None,
                "offline": sum(each.is_offline for each in partitions),
            },
            disks=tuple(disks.directories),
            attention=tuple(_attention(partitions, disks)),
            topics_found=len(shown),
            topics=tuple(_sorted(shown, order)[:ROWS]),
            groups_found=None if groups is None else len(groups),
            groups=() if groups is None else tuple(groups[:ROWS]),
            tier={"rows": waiting} if disks.is_tiered else None,
        )


def _offsets(
    cluster: Cluster, partitions: Iterable[PartitionStatus]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the start and end offsets of partitions, without those that do not report them."""
    led = [(each.topic, each.partition) for each in partitions if not each.is_offline]
    starts, ends = (
        {key: each.offset for key, each in cluster.offsets_now(dict.fromkeys(led, special)).items()}
        for special in (EARLIEST_OFFSET, LATEST_OFFSET)
    )
    return starts, {key: max(end, starts[key]) for key, end in ends.items() if key in starts}


# --- disks and the remote tier ----------------------------------------------------------------------------------------


def _disks(cluster: Cluster, partitions: Iterable[PartitionStatus]) -> _Disks:
    found = _Disks()
    leaders = {(each.topic, each.partition): each.leader for each in partitions}
    brokers = sorted(cluster.nodes())
    for broker in brokers:
        try:
            directories, fields = describe_log_dirs(broker, cluster.node(broker), None)
        except (UnreachableError, RefusedError) as error:
            found.silent[broker] = str(error)
            continue
        for each in directories:
            name = str(each.log_dir) if len(brokers) == 1 else f"broker {broker}: {each.log_dir}"
            found.directories.append(_directory(name, each))
            for topic, number, size in _replicas(each):
                found.local[topic] = found.local.get(topic, 0) + size
                if leaders.get((topic, number)) == broker:
                    found.led[topic, number] = size
        sizes, directory = fields.get(REMOTE_SIZES_TAG), fields.get(tier_status_field.TAG)
        if sizes is not None:
            found.remote.update(decode(sizes))
        if directory is not None:
            found.is_tiered = True
            found.tier += map(_tier_row, json.loads(directory)["partitions"])
    return found


def _directory(name: str, directory: Any) -> dict[str, Any]:
    total, usable = int(getattr(directory, "total_bytes", -1)), int(getattr(directory, "usable_bytes", -1))
    is_known = total >= 0
    return {
        "path": name,
        "offline": directory.error_code.name.upper() if int(directory.error_code) else None,
        "logBytes": sum(size for _, _, size in _replicas(directory)),
        "totalBytes": total if is_known else None,
        "usedBytes": total - usable if is_known else None,
        "freeBytes": usable if is_known else None,
    }


def _replicas(directory: Any) -> Iterator[tuple[str, int, int]]:
    """Yield topic, partition and bytes of the replicas that serve from a directory, without future replicas."""
    for topic in directory.topics:
        for each in topic.partitions:
            if not each.is_future_key:
                yield str(topic.name), int(each.partition_index), int(each.partition_size)


def _tier_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "isFailing": row["isFailing"],
        "uploadSegments": row["lagSegments"],
        "uploadBytes": row["lagBytes"],
        "reason": row["reason"],
        "failures": row["failures"],
    }


def _attention(partitions: Iterable[PartitionStatus], disks: _Disks) -> Iterator[dict[str, Any]]:
    def about(severity: str, title: str, text: str) -> dict[str, Any]:
        return {"severity": severity, "title": title, "text": text, "link": None}

    for broker, why in disks.silent.items():
        yield about("bad", f"Broker {broker} does not report its log directories", why)
    without = [each for each in partitions if each.is_offline]
    if without:
        first = f"first: {without[0].topic}-{without[0].partition}"
        yield about("bad", f"{counted(len(without), 'partition')} without a leader", first)
    failing = [each for each in disks.tier if each["isFailing"]]
    if failing:
        first = f"first: {failing[0]['topic']}-{failing[0]['partition']}"
        yield about("bad", f"The remote tier fails for {counted(len(failing), 'partition')}", first)
    behind = [each for each in partitions if each.is_behind and not each.is_offline]
    if behind:
        first = f"first: {behind[0].topic}-{behind[0].partition}"
        yield about("warn", f"{counted(len(behind), 'partition')} with replicas that are not in sync", first)


# --- topics and groups ------------------------------------------------------------------------------------------------


def _rates(before: _Counts | None, now: _Counts) -> dict[str, tuple[float, float]] | None:
    """Return bytes and records a second by topic; None before there are two looks."""
    if before is None or now.at <= before.at:
        return None
    seconds = now.at - before.at
    found: dict[str, tuple[float, float]] = {}
    for key, end in now.ends.items():
        records = max(end - before.ends.get(key, 0), 0) / seconds
        # Retention shrinks a log, which then shows nothing of what came in.
        grown = max(now.led.get(key, 0) - before.led.get(key, 0), 0) / seconds
        sums = found.get(key[0], (0.0, 0.0))
        found[key[0]] = (sums[0] + grown, sums[1] + records)
    return found


def _topic(
    name: str,
    partitions: int,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    disks: _Disks,
    rates: Mapping[str, tuple[float, float]] | None,
) -> dict[str, Any]:
    keys = [(name, number) for number in range(partitions)]
    bytes_in, records_in = (None, None) if rates is None else rates.get(name, (0.0, 0.0))
    return {
        "name": name,
        "partitions": partitions,
        "records": sum(ends[key] - starts[key] for key in keys if key in ends),
        "localBytes": disks.local.get(name, 0),
        "remoteBytes": sum(disks.remote.get(key, 0) for key in keys),
        "uploadBytes": sum(each["uploadBytes"] for each in disks.tier if each["topic"] == name),
        "bytesInRate": bytes_in,
        "bytesOutRate": None,
        "recordsInRate": records_in,
    }


def _sorted(topics: list[dict[str, Any]], order: TopOrder) -> list[dict[str, Any]]:
    by_name = sorted(topics, key=lambda each: str(each["name"]))
    if order is TopOrder.NAME:
        return by_name
    return sorted(by_name, key=lambda each: each[_SORTS[order]] or 0, reverse=True)


def _groups(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> list[dict[str, Any]] | None:
    """Return groups by lag, largest first; None if they are hidden from this user or a broker does not respond."""
    try:
        listed = list_groups(cluster)
    except (RefusedError, UnreachableError):
        return None
    coordinators = Coordinators(cluster)
    rows = [_group(coordinators, each, ends if at < _GROUPS_MAX else None) for at, each in enumerate(listed.values())]
    return sorted(rows, key=lambda each: -(each["lag"] or 0))


def _group(
    coordinators: Coordinators, group: GroupSummary, ends: Mapping[TopicPartition, int] | None
) -> dict[str, Any]:
    committed: dict[TopicPartition, int] = {}
    is_known = ends is not None and group.type in WITH_COMMITS
    if is_known:
        try:
            commits = coordinators.committed(group.name)
        except (KafkaError, RefusedError, UnreachableError):
            is_known = False
        else:
            committed = {key: each.offset for key, each in commits.items() if each.offset >= 0}
    return {
        "id": group.name,
        "state": group.state,
        "type": group.type,
        "lag": sum(max((ends or {}).get(key, at) - at, 0) for key, at in committed.items()) if is_known else None,
        "lagMs": None,
        "topics": sorted({topic for topic, _ in committed}),
    }
