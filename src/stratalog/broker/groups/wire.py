"""What the group APIs share: reading times, naming topics by id or name, authorized operations."""

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

#: "Not asked for", in the fields of authorized operations.
OPERATIONS_UNKNOWN = -(2**31)
#: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: all that there is to do with a group; a bit for each
#: operation.
GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def to_ms(duration: datetime.timedelta) -> int:
    """Milliseconds of a duration as kio gives it."""
    return duration // _MILLISECOND


def answered_topics(
    topics: Iterable[Any], key_of: Callable[[Any], Any], *, as_asked: bool, kept: Container[int] = ()
) -> list[tuple[Any, list[tuple[int, int, Any]]]]:
    """Return the topics of an answer, each by its key with (topic number, partition number, partition) of the request.

    Kafka's coordinator answers topics as they were asked for. Once some were refused before it was asked, the answers
    are joined, and each topic is there once. Topics without partitions are left out but for
    those whose numbers are in `kept`.
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
    """Return the topic that a part of a request names, and the error code of its partitions when there is none."""
    if by_id:
        topic = None if requested.topic_id is None else broker.metadata.topic_by_id(requested.topic_id)
        return topic, 0 if topic is not None else UnknownTopicIdError.code
    topic = broker.metadata.topic(requested.name)
    return topic, 0 if topic is not None else UnknownTopicOrPartitionError.code


def check_consumer_protocol(broker: BrokerServices) -> None:
    """Raise UnsupportedVersionError unless groups of the consumer protocol (KIP-848) are switched on."""
    _check_protocol(broker, "consumer", GROUP_VERSION)


def check_streams_protocol(broker: BrokerServices) -> None:
    """Raise UnsupportedVersionError unless streams groups (KIP-1071) are switched on."""
    _check_protocol(broker, "streams", STREAMS_VERSION)


def check_share_protocol(broker: BrokerServices) -> None:
    """Raise UnsupportedVersionError unless share groups (KIP-932) are switched on."""
    _check_feature(broker, SHARE_VERSION)


def _check_protocol(broker: BrokerServices, protocol: str, feature: str) -> None:
    if protocol not in broker.config["group.coordinator.rebalance.protocols"]:
        raise UnsupportedVersionError("The version of API is not supported.")
    _check_feature(broker, feature)


def _check_feature(broker: BrokerServices, feature: str) -> None:
    if broker.metadata.features.level(feature) < 1:
        raise UnsupportedVersionError("The version of API is not supported.")
