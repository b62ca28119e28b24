"""The topics and partitions to read: options subscribe, subscribePattern and assign. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stratalog.errors import UsageError
from stratalog.spark.options.partition_json import TopicPartition, json_assignment
from stratalog.spark.options.reader import BadValueError, OptionReader

#: Kafka's internal topics, which no pattern matches.
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata"}
)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of topic names, a pattern (searched in a topic's name, as in Spark's source), or partitions."""

    topics: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[TopicPartition] | None = None

    def wants_topic(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        if self.pattern is not None:
            return topic not in INTERNAL_TOPICS and self.pattern.search(topic) is not None
        return any(topic == name for name, _ in self.partitions or ())

    def wants(self, topic: str, partition: int) -> bool:
        if self.partitions is not None:
            return (topic, partition) in self.partitions
        return self.wants_topic(topic)

    @property
    def named_topics(self) -> frozenset[str]:
        """Topics requested by name: it is an error if one does not exist."""
        if self.topics is not None:
            return self.topics
        return frozenset(topic for topic, _ in self.partitions or ())


def subscription(reader: OptionReader) -> Subscription:
    topics = reader.parsed("subscribe", _topic_names, "names of topics with commas between")
    pattern = reader.parsed("subscribePattern", _pattern, "a regular expression")
    partitions = reader.parsed("assign", json_assignment, 'partitions by topic, such as {"topicA":[0,1]}')
    given = [each for each in (topics, pattern, partitions) if each is not None]
    if len(given) != 1:
        raise UsageError(
            f"{len(given) or 'none'} of the options subscribe, subscribePattern and assign {'are' if given else 'is'} "
            "set; exactly one says what to read"
        )
    return Subscription(topics, pattern, partitions)


def _topic_names(value: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in value.split(","))
    if "" in names:
        raise ValueError
    return names


def _pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise BadValueError(str(error)) from None
