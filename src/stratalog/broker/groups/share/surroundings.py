"""The inputs of share group rules: settings, topics and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stratalog.broker.groups.modern import TopicHashes, TopicsView
from stratalog.broker.groups.values import Moment

if TYPE_CHECKING:
    from stratalog.config import GroupConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupSettings:
    """Settings of a share group, its own and the broker's; times in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initialize_retry_ms: int = 30_000
    members_max: int = 200

    @classmethod
    def of_config(cls, config: Mapping[str, Any], group: GroupConfig) -> ShareGroupSettings:
        return cls(
            session_timeout_ms=group["share.session.timeout.ms"],
            heartbeat_interval_ms=group["share.heartbeat.interval.ms"],
            assignment_interval_ms=group["share.assignment.interval.ms"],
            initialize_retry_ms=max(
                config["group.share.initialize.retry.interval.ms"], config["offsets.commit.timeout.ms"]
            ),
            members_max=config["group.share.max.size"],
        )


@dataclass(frozen=True, slots=True)
class ShareSurroundings:
    """The inputs of one step of a group."""

    settings: ShareGroupSettings
    topics: TopicsView
    hashes: TopicHashes
    now: Moment
