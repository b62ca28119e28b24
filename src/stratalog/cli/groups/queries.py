"""Query groups of all types in one form."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from stratalog.cli.groups.share_offsets import share_offsets
from stratalog.cli.missing import NothingFoundError, require_named
from stratalog.errors import UsageError
from stratalog.wire import ApiKey
from stratalog.wire.client import EARLIEST_OFFSET, LATEST_OFFSET, Cluster, Coordinators, GroupOffset, check

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
#: Types of groups that commit with OffsetCommit.
WITH_COMMITS: Final = (CLASSIC, CONSUMER)
#: Types of groups whose offsets can be set; of a share group they are its start offsets.
WITH_OFFSETS: Final = (*WITH_COMMITS, SHARE)

_GROUP_ID_NOT_FOUND: Final = 69
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group as ListGroups has it. `coordinator` is the broker that listed it."""

    name: str
    type: str
    state: str
    protocol: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and its partitions. `epoch` is None in classic groups."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    assignment: Mapping[str, tuple[int, ...]]

    @property
    def partitions(self) -> int:
        return sum(map(len, self.assignment.values()))


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A group with its members. `epoch` is None in classic groups."""

    summary: GroupSummary
    assignor: str
    epoch: int | None
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The progress of a group in a partition. None means unknown: no commit, or a deleted topic.

    Of a share group `committed` is where it begins; some records behind that are done, which `told_lag` leaves out.
    """

    topic: str
    partition: int
    committed: int | None
    start: int | None
    end: int | None
    metadata: str
    member: GroupMember | None
    told_lag: int | None = None

    @property
    def lag(self) -> int | None:
        if self.told_lag is not None:
            return self.told_lag
        return None if self.committed is None or self.end is None else max(self.end - self.committed, 0)


def list_groups(cluster: Cluster, states: Collection[str] = (), types: Collection[str] = ()) -> dict[str, GroupSummary]:
    """Return the groups of all brokers, by name; only of the given states and types, if any."""
    found = {}
    for broker in sorted(cluster.nodes()):
        answer = cluster.node(broker).call(
            ApiKey.LIST_GROUPS, (4 if states else 5 if types else 0, 5), states_filter=states, types_filter=types
        )
        check(answer.error_code)
        for group in answer.groups:
            found[str(group.group_id)] = GroupSummary(
                str(group.group_id),
                str(getattr(group, "group_type", "") or CLASSIC).lower(),
                str(getattr(group, "group_state", "")),
                str(group.protocol_type),
                broker,
            )
    return dict(sorted(found.items()))


def named_groups(cluster: Cluster, names: Collection[str]) -> list[GroupSummary]:
    """Return these groups, or all without names. Raises NothingFoundError, which names the nearest."""
    known = list_groups(cluster)
    require_named("group", names, lambda: known, cluster.any.address)
    return [known[name] for name in dict.fromkeys(names)] if names else list(known.values())


def details(cluster: Cluster, group: GroupSummary) -> GroupDetails:
    """Return a group with its members. Raises NothingFoundError if it no longer exists."""
    if group.type == CONSUMER:
        return _modern_details(cluster, group, ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1))
    if group.type == SHARE:
        return _modern_details(cluster, group, ApiKey.SHARE_GROUP_DESCRIBE, (1, 1))
    if group.type == CLASSIC:
        return _classic_details(cluster, group)
    return GroupDetails(group, "", None, ())


def _classic_details(cluster: Cluster, group: GroupSummary) -> GroupDetails:
    client = Coordinators(cluster).of_group(group.name)
    (answer,) = client.call(ApiKey.DESCRIBE_GROUPS, (0, 6), groups=(group.name,)).groups
    if int(answer.error_code) == _GROUP_ID_NOT_FOUND or answer.group_state == "Dead":
        raise NothingFoundError(f"{cluster.any.address}: group {group.name} is gone")
    check(answer.error_code, getattr(answer, "error_message", None), f"Group {group.name}")
    members = tuple(
        GroupMember(
            str(each.member_id),
            getattr(each, "group_instance_id", None),
            str(each.client_id),
            str(each.client_host),
            None,
            _assignment(bytes(each.member_assignment or b"")) if answer.protocol_type == "consumer" else {},
        )
        for each in answer.members
    )
    summary = GroupSummary(
        group.name, group.type, str(answer.group_state), str(answer.protocol_type), group.coordinator
    )
    return GroupDetails(summary, str(answer.protocol_data), None, members)


def _modern_details(cluster: Cluster, group: GroupSummary, describe: ApiKey, versions: tuple[int, int]) -> GroupDetails:
    client = Coordinators(cluster).of_group(group.name)
    (answer,) = client.call(describe, versions, group_ids=(group.name,)).groups
    if int(answer.error_code) == _GROUP_ID_NOT_FOUND:
        raise NothingFoundError(f"{cluster.any.address}: group {group.name} is gone")
    check(answer.error_code, answer.error_message, f"Group {group.name}")
    members = tuple(
        GroupMember(
            str(each.member_id),
            getattr(each, "instance_id", None),
            str(each.client_id),
            str(each.client_host),
            int(each.member_epoch),
            {str(part.topic_name): tuple(map(int, part.partitions)) for part in each.assignment.topic_partitions},
        )
        for each in answer.members
    )
    summary = GroupSummary(group.name, group.type, str(answer.group_state), group.protocol, group.coordinator)
    return GroupDetails(summary, str(answer.assignor_name), int(answer.group_epoch), members)


def _assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Decode an assignment by a classic leader: partitions by topic, none if malformed."""
    found: dict[str, tuple[int, ...]] = {}
    try:
        (topics,) = _INT32.unpack_from(data, _INT16.size)
        at = _INT16.size + _INT32.size
        for _ in range(topics):
            (size,) = _INT16.unpack_from(data, at)
            at += _INT16.size
            name = data[at : at + size].decode()
            at += size
            (count,) = _INT32.unpack_from(data, at)
            at += _INT32.size
            found[name] = struct.unpack_from(f">{count}i", data, at)
            at += count * _INT32.size
    except (struct.error, UnicodeDecodeError):
        return {}
    return found


def lags(cluster: Cluster, group: GroupDetails) -> list[PartitionLag]:
    """Return the progress of a group in each partition with a commit or an assigned member.

    Members of a share group share partitions, so no owner is reported.
    """
    if group.summary.type == SHARE:
        begun = share_offsets(cluster, group.summary.name)
        committed = {key: GroupOffset(each.start, "") for key, each in begun.items()}
    else:
        begun = {}
        committed = Coordinators(cluster).committed(group.summary.name)
    owners = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    keys = sorted({*committed, *owners})
    topics = cluster.topics({topic for topic, _ in keys})
    there = [(topic, number) for topic, number in keys if topic in topics and number in topics[topic].partitions]
    starts, ends = (
        cluster.list_offsets(dict.fromkeys(there, special)) if there else {}
        for special in (EARLIEST_OFFSET, LATEST_OFFSET)
    )
    found = []
    for key in keys:
        offset = committed.get(key)
        known = key in ends
        found.append(
            PartitionLag(
                *key,
                committed=None if offset is None or offset.offset < 0 else offset.offset,
                start=starts[key].offset if known else None,
                end=ends[key].offset if known else None,
                metadata="" if offset is None else offset.metadata,
                member=None if group.summary.type == SHARE else owners.get(key),
                told_lag=begun[key].lag if key in begun else None,
            )
        )
    return found


def require_offsets(group: GroupSummary) -> None:
    """Raise UsageError for a group of a type without offsets."""
    if group.type not in WITH_OFFSETS:
        raise UsageError(
            f"group {group.name} is a {group.type} group; offsets are those of classic, consumer and share groups"
        )
