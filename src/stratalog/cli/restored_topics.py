"""The topics of a restore in the metadata of the directory that they are restored to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stratalog.broker.metadata import MetadataStore
from stratalog.config import INITIAL_LEVEL, LARGE_SEGMENTS_LEVEL, LogConfig
from stratalog.engine.dirs import is_served
from stratalog.errors import DataDirError, InvalidConfigError
from stratalog.jobs.restore import RestoredTopic
from stratalog.util import SYSTEM_CLOCK


def require_not_served(data_dir: Path) -> None:
    """Raise DataDirError for a directory that a broker serves."""
    if is_served(data_dir):
        raise DataDirError(f"{data_dir} is in use by a broker; stop the broker first")


def level_for(topics: Iterable[RestoredTopic]) -> int:
    """Return the level of `metadata.version` that the topics need."""
    try:
        for topic in topics:
            LogConfig.from_properties(topic.configs, None)
    except InvalidConfigError:
        return LARGE_SEGMENTS_LEVEL
    return INITIAL_LEVEL


def add_topics(store: MetadataStore, topics: Iterable[RestoredTopic]) -> None:
    """Add topics to the metadata of a broker. Those that it has stay as they are."""
    for topic in topics:
        if store.topic(topic.name) is None:
            store.create_topic(
                topic.name,
                topic.partition_count,
                topic.configs,
                created_ms=SYSTEM_CLOCK.now_ms(),
                topic_id=topic.topic_id,
            )
