"""The inputs of streams group rules: settings, topics and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stratalog.broker.groups.modern import TopicHashes, TopicsView
from stratalog.broker.groups.values import Moment

if TYPE_CHECKING:
    from stratalog.config import GroupConfig

_STANDBY_KEY = "num.standby.replicas"
_TAGS_KEY = "rack.aware.assignment.tags"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupSettings:
    """Settings of a streams group, its own and the broker's; times in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    task_offset_interval_ms: int = 60_000
    acceptable_recovery_lag: int = 10_000
    standby_replicas: int = 0
    rack_aware_tags: tuple[str, ...] = ()
    members_max: int = 2**31 - 1

    @classmethod
    def of_config(cls, config: Mapping[str, Any], group: GroupConfig) -> StreamsGroupSettings:
        return cls(
            session_timeout_ms=group["streams.session.timeout.ms"],
            heartbeat_interval_ms=group["streams.heartbeat.interval.ms"],
            assignment_interval_ms=group["streams.assignment.interval.ms"],
            initial_rebalance_delay_ms=group["streams.initial.rebalance.delay.ms"],
            task_offset_interval_ms=group["streams.task.offset.interval.ms"],
            acceptable_recovery_lag=group["streams.acceptable.recovery.lag"],
            standby_replicas=group["streams.num.standby.replicas"],
            rack_aware_tags=tuple(group["streams.rack.aware.assignment.tags"]),
            members_max=config["group.streams.max.size"],
        )

    def assignment_configs(self) -> tuple[tuple[str, str], ...]:
        """Return the settings that an assignment depends on, as in the group's records."""
        tags = ((_TAGS_KEY, ",".join(self.rack_aware_tags)),) if self.rack_aware_tags else ()
        return ((_STANDBY_KEY, str(self.standby_replicas)), *tags)


@dataclass(frozen=True, slots=True)
class StreamsSurroundings:
    """The inputs of one step of a group.

    `is_delayed`: a new group waits for more members. `is_creating`: some of its topics are being created; it is
    configured again when all of them exist.
    """

    settings: StreamsGroupSettings
    topics: TopicsView
    hashes: TopicHashes
    now: Moment
    is_delayed: bool = False
    is_creating: bool = False

    def partition_count(self, topic: str) -> int | None:
        found = self.topics.topic(topic)
        return None if found is None else found.partition_count
