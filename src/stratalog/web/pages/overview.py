"""The first page: problems, rates, tiers and disks; on an empty broker, how to connect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from stratalog.broker.server import ApiKey
from stratalog.web.declarations import Console
from stratalog.web.pages.partition_numbers import TierNumbers, numbers_by_topic, total
from stratalog.web.sampler import points_json, requests_json
from stratalog.web.viewer import BrokerStalledError, ConsoleViewer

_DISK_WARN: Final = 0.85
_DISK_BAD: Final = 0.95
_STALL_MS: Final = 1000.0
_RANK: Final = {"bad": 0, "warn": 1, "info": 2}


def view(viewer: ConsoleViewer, console: Console, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary of the broker's state."""
    broker = viewer.broker
    points = console.sampler.points
    stalled = console.sampler.waits_now_ms() > _STALL_MS
    if not stalled:
        try:
            viewer.on_loop(lambda: None)
        except BrokerStalledError:
            stalled = True
    if stalled and broker.access is not None:
        raise BrokerStalledError("the broker's event loop does not respond, so access cannot be checked")
    sees_all = stalled or viewer.may_cluster()
    names = viewer.topics()
    by_topic = numbers_by_topic(broker.logs, names)
    sums = total(by_topic.values())
    disks = list(_disks(viewer)) if sees_all and not stalled else []
    users = [name for name in names if not name.startswith("__")]
    attention = [*_attention(viewer, console, by_topic, disks, stalled=stalled, sees_all=sees_all)]
    return {
        "clusterId": broker.cluster_id,
        "nodeId": broker.node_id,
        "bootstrapServers": console.bootstrap_servers,
        "atMs": broker.clock.now_ms(),
        "isStalled": stalled,
        "topicCount": len(users),
        "internalTopicCount": len(names) - len(users),
        "numbers": sums.json(),
        "isTiered": broker.logs.remote is not None,
        "rates": points_json(points) if sees_all else [],
        "requests": requests_json(console.sampler.requests()) if sees_all else [],
        "disks": disks,
        "attention": sorted(attention, key=lambda each: _RANK[each["severity"]]),
        "busiest": _busiest(console, users),
    }


def _busiest(console: Console, names: list[str]) -> list[dict[str, Any]]:
    rates = console.sampler.topic_rates
    ranked = sorted(((name, rates.get(name, (0.0, 0.0, 0.0))) for name in names), key=lambda e: -(e[1][0] + e[1][1]))
    return [{"topic": name, "bytesIn": each[0], "bytesOut": each[1], "recordsIn": each[2]} for name, each in ranked[:5]]


def _disks(viewer: ConsoleViewer) -> Iterator[dict[str, Any]]:
    dirs = viewer.broker.logs.dirs
    sizes: dict[str, int] = {}
    for partition in viewer.broker.logs.partitions():
        if partition.failure is None:
            directory = str(partition.log.directory.parent)
            sizes[directory] = sizes.get(directory, 0) + partition.log.size_bytes
    answer = viewer.call(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=())
    for each in answer.results:
        is_known = each.total_bytes >= 0
        yield {
            "path": each.log_dir,
            "offline": dirs.offline.get(Path(each.log_dir)),
            "logBytes": sizes.get(each.log_dir, 0),
            "totalBytes": each.total_bytes if is_known else None,
            "usedBytes": each.total_bytes - each.usable_bytes if is_known else None,
            "freeBytes": each.usable_bytes if is_known else None,
        }


def _attention(
    viewer: ConsoleViewer,
    console: Console,
    by_topic: Mapping[str, TierNumbers],
    disks: list[dict[str, Any]],
    *,
    stalled: bool,
    sees_all: bool,
) -> Iterator[dict[str, Any]]:
    def about(severity: str, title: str, text: str, link: str | None = None) -> dict[str, Any]:
        return {"severity": severity, "title": title, "text": text, "link": link}

    waits = console.sampler.waits_now_ms()
    if stalled or waits > _STALL_MS:
        yield about(
            "bad",
            "The broker does not respond",
            f"Its event loop has not responded for {max(waits, 0) / 1000:.0f} s. Clients wait. Check CPU, "
            "memory and disks; /health/live returns 503, so that a service manager can restart it.",
        )
    for disk in disks:
        if disk["offline"] is not None:
            yield about(
                "bad", f"The log directory {disk['path']} is offline",
                f"{disk['offline']}. Its partitions are not served. Repair the disk, then restart the broker.",
            )  # fmt: skip
        elif disk["totalBytes"]:
            share = disk["usedBytes"] / disk["totalBytes"]
            if share >= _DISK_WARN:
                yield about(
                    "bad" if share >= _DISK_BAD else "warn", f"The disk of {disk['path']} is {share:.0%} full",
                    "Lower retention.ms or retention.bytes of the largest topics, lower local.retention.ms of tiered "
                    "ones, or add disk. A full disk takes the directory offline.",
                    "/topics?sort=local&order=desc",
                )  # fmt: skip
    failing = sorted(name for name, each in by_topic.items() if each.failing)
    if failing:
        yield about(
            "bad", f"The remote tier fails for {_names(failing)}",
            "Segments stay local and are tried again; nothing is lost, but disks fill. See the tier page for the "
            "reasons.",
            "/tier?show=failing",
        )  # fmt: skip
    offline = sorted(name for name, each in by_topic.items() if each.offline)
    if offline:
        yield about("bad", f"Partitions of {_names(offline)} are offline", "Clients get KAFKA_STORAGE_ERROR for them.")
    if sees_all and not stalled:
        loading = [
            name
            for name, coordinator in (("groups", viewer.broker.groups), ("transactions", viewer.broker.transactions))
            if not coordinator.loading.is_over
        ]
        if loading:
            yield about(
                "info", f"The broker is still loading its {' and '.join(loading)}",
                "Their clients have to retry until then.",
            )  # fmt: skip
    refused = viewer.broker.logs.traffic.total().invalid_crc
    if sees_all and refused:
        yield about(
            "warn", f"{refused} damaged batches were rejected",
            "Their CRC did not match. Check the network and memory of the clients named in the log.",
            "/events",
        )  # fmt: skip


def _names(names: list[str]) -> str:
    more = f" and {len(names) - 3} more topics" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
