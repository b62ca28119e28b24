"""Interactive queries: the partitions of an application's topics by the endpoints of its members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from stratalog.broker.groups.streams.configured_topology import ConfiguredTopology
from stratalog.broker.groups.streams.surroundings import StreamsSurroundings
from stratalog.broker.groups.streams.values import StreamsMember, UserEndpoint
from stratalog.broker.java_hashing import in_hash_order, string_hash

_Partitions = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class EndpointPartitions:
    """The partitions of a member's active tasks, and of its standby and warm-up tasks."""

    endpoint: UserEndpoint
    active: _Partitions
    standby: _Partitions


def endpoint_partitions(
    members: Iterable[StreamsMember], configured: ConfiguredTopology, around: StreamsSurroundings
) -> tuple[EndpointPartitions, ...]:
    """Return an entry for each member with an endpoint. Missing topics have no partitions."""
    found = []
    for member in members:
        if member.facts.endpoint is None:
            continue
        assigned = member.current.assigned
        copies: dict[str, set[int]] = {}
        for kind in (assigned.standby, assigned.warmup):
            for part, numbers in kind.items():
                copies.setdefault(part, set()).update(numbers)
        active = _partitions(assigned.active, configured, around)
        found.append(EndpointPartitions(member.facts.endpoint, active, _partitions(copies, configured, around)))
    return tuple(found)


def _partitions(
    tasks: Mapping[str, Collection[int]], configured: ConfiguredTopology, around: StreamsSurroundings
) -> _Partitions:
    found = []
    for part_id in in_hash_order(list(tasks), string_hash):
        part = (configured.parts or {}).get(part_id)
        if part is None:
            continue
        for topic in in_hash_order(list(part.source.inputs()), string_hash):
            count = around.partition_count(topic) or 0
            numbers = tuple(sorted(number for number in tasks[part_id] if number < count))
            if numbers:
                found.append((topic, numbers))
    return tuple(found)
