"""Consumer groups: state, members, and lag in records and in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from stratalog.broker import metrics
from stratalog.broker.server import ApiKey
from stratalog.engine import Partition
from stratalog.errors import GroupIdNotFoundError, StratalogError
from stratalog.log.format import Isolation
from stratalog.records import HEADER_SIZE, MAGIC, MAGIC_AT, RecordBatch
from stratalog.web.declarations import Console
from stratalog.web.fields import choice, whole, words
from stratalog.web.pages.lag_elsewhere import with_lag_elsewhere
from stratalog.web.viewer import ConsoleViewer, check_code

_PAGE_SIZE: Final = 50
#: Only the header of a batch is read.
_HEAD_BYTES: Final = 1
_STATES: Final = (
    "any",
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)

FIELDS = (
    words("q", longest=500, help="Part of the group's name."),
    choice("state", _STATES),
    choice("sort", ("name", "state", "lag")),
    choice("order", ("asc", "desc")),
    whole("page", 1, 1, 100_000),
    whole("size", _PAGE_SIZE, 1, 1000, help="Groups on a page."),
)
GROUP_FIELDS = (words("id", longest=32_767, help="The group."),)


def view(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    query, state = values["q"].lower(), values["state"]
    found = [
        each for each in _listed(viewer) if query in each["id"].lower() and (state == "any" or each["state"] == state)
    ]
    lags = _lags(viewer) if values["sort"] == "lag" else {}
    keys: dict[str, Callable[[dict[str, Any]], Any]] = {
        "name": lambda each: each["id"],
        "state": lambda each: each["state"],
        "lag": lambda each: lags.get(each["id"], 0),
    }
    key = keys[values["sort"]]
    found.sort(key=lambda each: (key(each), each["id"]), reverse=values["order"] == "desc")
    size = values["size"]
    pages = max((len(found) + size - 1) // size, 1)
    page = min(values["page"], pages)
    shown = found[(page - 1) * size : page * size]
    return {"found": len(found), "pageAt": page, "pages": pages, "groups": _with_lags(viewer, shown)}


def _lags(viewer: ConsoleViewer) -> dict[str, float]:
    """Return the lag of all groups without fetching the offsets of each."""
    sources = viewer.on_loop(lambda: metrics.LagSources.of(viewer.broker))
    found: dict[str, float] = {}
    for metric in metrics.LAG_METRICS:
        for sample in metric.read(sources):
            found[sample.labels[0]] = found.get(sample.labels[0], 0) + sample.value
    return found


def group_rows(viewer: ConsoleViewer, topic: str) -> list[dict[str, Any]]:
    return _with_lags(viewer, _listed(viewer), topic)


def _listed(viewer: ConsoleViewer) -> list[dict[str, Any]]:
    answer = viewer.call(ApiKey.LIST_GROUPS, 5)
    check_code(int(answer.error_code))
    return [
        {
            "id": each.group_id,
            "state": each.group_state,
            "type": each.group_type,
            "protocolType": each.protocol_type,
        }
        for each in answer.groups
    ]


def _with_lags(
    viewer: ConsoleViewer, groups: Sequence[Mapping[str, Any]], topic: str | None = None
) -> list[dict[str, Any]]:
    """Return groups with their lag, in one topic or in all; other brokers are asked once for all of them."""
    counts, rows = [], []
    for group in groups:
        own = [row for row in _committed(viewer, group) if topic is None or row["topic"] == topic]
        counts.append(len(own))
        rows += own
    left = iter(with_lag_elsewhere(viewer, rows))
    return [_summed(group, list(islice(left, count))) for group, count in zip(groups, counts, strict=True)]


def _summed(group: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        **group,
        "topics": sorted({row["topic"] for row in rows}),
        "partitions": len(rows),
        **_together(rows),
    }


def _together(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    behind = [row["lagMs"] for row in rows if row["lagMs"] is not None]
    return {"lag": sum(row["lag"] or 0 for row in rows), "lagMs": max(behind) if behind else None}


def _committed(viewer: ConsoleViewer, group: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a group's position in each partition; empty without access."""
    group_id = group["id"]
    if group["type"] == "share":
        return _begun(viewer, group_id)
    answer = viewer.call(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": group_id, "topics": None}]).groups[0]
    if int(answer.error_code):
        return []
    return [
        _row(viewer, topic.name, each.partition_index, each.committed_offset)
        for topic in answer.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    ]


def _begun(viewer: ConsoleViewer, group_id: str) -> list[dict[str, Any]]:
    """Return the start offsets of a share group. Later records may be finished, which its lag leaves out."""
    answer = viewer.call(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[{"group_id": group_id, "topics": None}]
    ).groups[0]
    if int(answer.error_code):
        return []
    rows = []
    for topic in answer.topics:
        for each in topic.partitions:
            if each.start_offset >= 0:
                row = _row(viewer, topic.topic_name, each.partition_index, each.start_offset)
                rows.append({**row, "lag": each.lag} if each.lag >= 0 else row)
    return rows


def _row(viewer: ConsoleViewer, topic: str, number: int, offset: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": topic,
        "partition": number,
        "committedOffset": offset,
        "logStartOffset": None,
        "highWatermark": None,
        "lag": None,
        "lagMs": None,
        "note": "",
    }
    partition = viewer.broker.logs.get(topic, number)
    if partition is None:
        return {**row, "note": viewer.elsewhere(topic, number) or "the partition no longer exists"}
    try:
        log = partition.log
        start, end = log.log_start_offset, log.high_watermark
        row.update(logStartOffset=start, highWatermark=end, lag=max(end - max(offset, start), 0))
        if offset < start:
            row["note"] = f"{start - offset} records were deleted before they were read"
        elif offset > end:
            row["note"] = "the commit is beyond the end of the partition"
        if row["lag"] == 0:
            row["lagMs"] = 0
        elif partition.is_remote(max(offset, start)):
            row["lagMs"] = _remote_age_ms(viewer, partition, max(offset, start))
            row["note"] = row["note"] or "at least: the next record is only in the remote tier"
        else:
            row["lagMs"] = _age_ms(viewer, partition, max(offset, start))
    except StratalogError as error:
        row["note"] = str(error)
    return row


def _age_ms(viewer: ConsoleViewer, partition: Partition, offset: int) -> int | None:
    """Return the age of the first record that the group has not read; None if unknown."""
    data = partition.read(offset, _HEAD_BYTES, isolation=Isolation.HIGH_WATERMARK)
    if data.slice is None:
        return None
    head = data.slice.file.pread(HEADER_SIZE, data.slice.position)
    if len(head) < HEADER_SIZE or head[MAGIC_AT] != MAGIC:
        return None
    batch = RecordBatch(head)
    at_ms = batch.max_timestamp if batch.has_delete_horizon else batch.base_timestamp
    return max(viewer.broker.clock.now_ms() - at_ms, 0) if at_ms >= 0 else None


def _remote_age_ms(viewer: ConsoleViewer, partition: Partition, offset: int) -> int | None:
    """Return the age of the newest record of the remote segment with an offset. Does not query the store."""
    assert partition.remote is not None
    for segment in partition.remote.segments(partition.topic_id_partition):
        if segment.is_readable and segment.start_offset <= offset <= segment.end_offset:
            return max(viewer.broker.clock.now_ms() - segment.max_timestamp_ms, 0)
    return None


def group(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Return one group: its members with their partitions, and its offsets."""
    group_id = values["id"]
    listed = next((each for each in _listed(viewer) if each["id"] == group_id), None)
    if listed is None:
        raise GroupIdNotFoundError("the group does not exist, or access is denied")
    rows = with_lag_elsewhere(viewer, _committed(viewer, listed))
    return {
        **listed,
        "members": _members(viewer, listed),
        "rows": sorted(rows, key=lambda row: (row["topic"], row["partition"])),
        **_together(rows),
    }


def _partitions(assignment: Any) -> list[dict[str, Any]]:
    return [{"topic": each.topic_name, "partitions": list(each.partitions)} for each in assignment.topic_partitions]


def _tasks(assignment: Any) -> list[dict[str, Any]]:
    """Return the tasks of a streams member: subtopologies in the place of topics."""
    kinds = (
        ("task", assignment.active_tasks),
        ("standby", assignment.standby_tasks),
        ("warm-up", assignment.warmup_tasks),
    )
    return [
        {"topic": f"{kind} {each.subtopology_id}", "partitions": list(each.partitions)}
        for kind, tasks in kinds
        for each in tasks
    ]


#: Groups of the newer protocols: the API that describes them, and how it reports a member's assignment.
_DESCRIBED: Final[Mapping[str, tuple[ApiKey, int, Callable[[Any], list[dict[str, Any]]]]]] = {
    "consumer": (ApiKey.CONSUMER_GROUP_DESCRIBE, 0, _partitions),
    "share": (ApiKey.SHARE_GROUP_DESCRIBE, 1, _partitions),
    "streams": (ApiKey.STREAMS_GROUP_DESCRIBE, 0, _tasks),
}


def _members(viewer: ConsoleViewer, listed: Mapping[str, Any]) -> list[dict[str, Any]]:
    group_id = listed["id"]
    described = _DESCRIBED.get(listed["type"])
    if described is not None:
        key, version, assigned = described
        answer = viewer.call(key, version, group_ids=[group_id]).groups[0]
        check_code(int(answer.error_code), answer.error_message)
        return [
            {
                "memberId": member.member_id,
                "instanceId": getattr(member, "instance_id", None),
                "clientId": member.client_id,
                "host": member.client_host.removeprefix("/"),
                "assignment": assigned(member.assignment),
            }
            for member in answer.members
        ]
    answer = viewer.call(ApiKey.DESCRIBE_GROUPS, 5, groups=[group_id]).groups[0]
    check_code(int(answer.error_code))
    return [
        {
            "memberId": member.member_id,
            "instanceId": member.group_instance_id,
            "clientId": member.client_id,
            "host": member.client_host.removeprefix("/"),
            "assignment": _assignment(bytes(member.member_assignment), answer.protocol_type),
        }
        for member in answer.members
    ]


def _assignment(data: bytes, protocol_type: str) -> list[dict[str, Any]]:
    """Parse the assignment of the classic protocol: version, topics with partitions. Returns none for other data."""
    if protocol_type != "consumer":
        return []
    found: list[dict[str, Any]] = []
    try:
        at = 2
        count, at = int.from_bytes(data[at : at + 4], "big"), at + 4
        for _ in range(min(count, 10_000)):
            size = int.from_bytes(data[at : at + 2], "big")
            name, at = data[at + 2 : at + 2 + size].decode(), at + 2 + size
            numbers, at = int.from_bytes(data[at : at + 4], "big"), at + 4
            if at + 4 * numbers > len(data):
                return found
            found.append(
                {
                    "topic": name,
                    "partitions": [int.from_bytes(data[at + 4 * n : at + 4 * n + 4], "big") for n in range(numbers)],
                }
            )
            at += 4 * numbers
    except UnicodeDecodeError:
        return found
    return found
