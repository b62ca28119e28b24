"""The inputs of consumer group rules: settings, topics and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from stratalog.broker.groups.values import Moment

if TYPE_CHECKING:
    from stratalog.broker.groups.modern import TopicHashes, TopicsView
    from stratalog.config import GroupConfig


class MigrationPolicy(Enum):
    """Which groups with members may be converted; empty ones always may."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """Settings of a consumer protocol group, its own and the broker's; times in milliseconds.

    The first of `assignors` is the default.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    regex_refresh_interval_ms: int = 600_000
    members_max: int = 2**31 - 1
    classic_members_max: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    @classmethod
    def of_config(cls, config: Mapping[str, Any], group: GroupConfig) -> ConsumerGroupSettings:
        return cls(
            session_timeout_ms=group["consumer.session.timeout.ms"],
            heartbeat_interval_ms=group["consumer.heartbeat.interval.ms"],
            assignment_interval_ms=group["consumer.assignment.interval.ms"],
            regex_refresh_interval_ms=config["group.consumer.regex.refresh.interval.ms"],
            members_max=config["group.consumer.max.size"],
            classic_members_max=config["group.max.size"],
            assignors=assignor_names(config),
            migration_policy=MigrationPolicy(config["group.consumer.migration.policy"].lower()),
        )


def assignor_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the short names of the broker's assignors, which may be configured by Kafka's class names."""
    return tuple(
        [name.rpartition(".")[2].removesuffix("Assignor").lower() for name in config["group.consumer.assignors"]]
    )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The inputs of one step of a group."""

    settings: ConsumerGroupSettings
    topics: TopicsView
    hashes: TopicHashes
    now: Moment

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self.topics.topic_by_id(topic_id)
        return None if topic is None else topic.name
