"""Look up the topics that a command line names, and suggest similar names for those that do not exist."""

from __future__ import annotations

import re
from collections.abc import Collection

from stratalog.cli.missing import NothingFoundError, require_topics
from stratalog.errors import TopicAlreadyExistsError, UsageError
from stratalog.wire import ApiKey
from stratalog.wire.client import EARLIEST_OFFSET, Cluster, TopicInfo, check

_TIMEOUT_MS = 30_000
#: A count that the broker chooses.
_DEFAULT = -1


def named_topics(cluster: Cluster, names: Collection[str]) -> dict[str, TopicInfo]:
    """Return these topics. Raises NothingFoundError, which names the nearest, when one does not exist."""
    found = cluster.topics(names)
    if len(found) < len(set(names)):
        require_topics(names, cluster.topics, cluster.any.address)
    return found


def matching_topics(cluster: Cluster, patterns: Collection[str]) -> dict[str, TopicInfo]:
    """Return the topics whose whole names match one of the regular expressions, without internal ones.

    Raises UsageError for what is no regular expression, NothingFoundError when there is no such topic.
    """
    compiled = [topic_pattern(text) for text in patterns]
    found = {
        name: topic
        for name, topic in cluster.topics().items()
        if not topic.is_internal and any(each.fullmatch(name) for each in compiled)
    }
    if not found:
        raise NothingFoundError(f"{cluster.any.address}: no topic matches {' or '.join(patterns)}")
    return found


def topic_pattern(text: str) -> re.Pattern[str]:
    """Return a compiled regular expression. Raises UsageError."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"--regex {text}: {error}") from None


def create_topic(cluster: Cluster, name: str) -> None:
    """Create a topic with the broker's defaults, unless it exists. It can be used when this returns."""
    request = {"name": name, "num_partitions": _DEFAULT, "replication_factor": _DEFAULT, "configs": []}
    (answer,) = cluster.any.call(
        ApiKey.CREATE_TOPICS, (4, 7), topics=[request], timeout=_TIMEOUT_MS, validate_only=False
    ).topics
    if int(answer.error_code) != TopicAlreadyExistsError.code:
        check(answer.error_code, answer.error_message, f"Could not create topic {name}")
        cluster.list_offsets({(name, 0): EARLIEST_OFFSET})
