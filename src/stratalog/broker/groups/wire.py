"""Helpers of the group APIs: durations, topics by name or id, authorized operations."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any

from stratalog.config import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from stratalog.errors import UnknownTopicIdError, UnknownTopicOrPartitionError, UnsupportedVersionError

if TYPE_CHECKING:
    from stratalog.broker.metadata import Topic
    from stratalog.broker.services import BrokerServices

_MILLISECOND = datetime.timedelta(milliseconds=1)

#: "Not requested", in fields of authorized operations.
OPERATIONS_UNKNOWN = -(2**31)
#: All operations on groups, one bit each: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def to_ms(duration: datetime.timedelta) -> int:
    """Return the milliseconds of a duration from kio."""
    return duration // _MILLISECOND


def answered_topics(
    topics: Iterable[Any], key_of: Callable[[Any], Any], *, as_asked: bool, kept: Container[int] = ()
) -> list[tuple[Any, list[tuple[int, int, Any]]]]:
    """Return the topics of a response, each by its key with (topic number, partition number, partition) of the request.

    Kafka's coordinator returns topics in the order of the request. If some were refused before, the results are merged,
    and each topic appears once. Topics without partitions are left out, except those with numbers in `kept`.
    """
    answers: list[tuple[Any, list[tuple[int, int, Any]]]] = []
    known: dict[Any, list[tuple[int, int, Any]]] = {}
    for at, topic in enumerate(topics):
        entries = [(at, number, partition) for number, partition in enumerate(topic.partitions)]
        key = key_of(topic)
        if not entries and at not in kept:
            continue
        if key in known and not as_asked:
            known[key].extend(entries)
        else:
            known[key] = entries
            answers.append((key, entries))
    return answers


def requested_topic(broker: BrokerServices, requested: Any, *, by_id: bool) -> tuple[Topic | None, int]:
    """Return the topic of a part of a request, and the error code of its partitions if it does not exist."""
    if by_id:
        topic = None if requested.topic_id is None else broker.metadata.topic_by_id(requested.topic_id)
        return topic, 0 if topic is not None else UnknownTopicIdError.code
    topic = broker.metadata.topic(requested.name)
    return topic, 0 if topic is not None else UnknownTopicOrPartitionError.code


def check_consumer_protocol(broker: BrokerServices) -> None:
    """Raise UnsupportedVersionError unless the consumer protocol (KIP-848) is enabled."""
    _check_protocol(broker, "consumer", GROUP_VERSION)


def check_streams_protocol(broker: BrokerServices) -> None:
    """Raise UnsupportedVersionError unless streams groups (KIP-1071) are enabled."""
    _check_protocol(broker, "streams", STREAMS_VERSION)


def check_share_protocol(broker: BrokerServices) -> None:
    """Raise UnsupportedVersionError unless share groups (KIP-932) are enabled."""
    _check_feature(broker, SHARE_VERSION)


def _check_protocol(broker: BrokerServices, protocol: str, feature: str) -> None:
    if protocol not in broker.config["group.coordinator.rebalance.protocols"]:
        raise UnsupportedVersionError("The version of API is not supported.")
    _check_feature(broker, feature)


def _check_feature(broker: BrokerServices, feature: str) -> None:
    if broker.metadata.features.level(feature) < 1:
        raise UnsupportedVersionError("The version of API is not supported.")
