"""Operations on topics, which update the store, the logs and their listeners, in that order."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from uuid import UUID

from stratalog.broker.metadata import (
    FinalizedFeatures,
    MetadataStore,
    Topic,
    small_broker_index_warnings,
    small_index_warnings,
    small_segment_warnings,
)
from stratalog.config import (
    BrokerConfig,
    LogConfig,
    StoredConfig,
    conflict_warning,
    invalid,
    stored_config,
    topic_advice,
    topic_default_properties,
)
from stratalog.engine import LogManager, Partition, TopicSpec
from stratalog.engine.tiering import NEVER_TIERED, PARTITIONS_KEY, REMOTE_LOG_METADATA_TOPIC, metadata_topic_configs
from stratalog.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicError,
    KafkaStorageError,
    StratalogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from stratalog.util import Clock

logger = logging.getLogger(__name__)

#: A client has made up a producer id from here on: a cluster allocates a thousand at a time.
_ALLOCATED_IDS_MAX = 2**62
_NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicError for an invalid topic name. Source: Kafka's `Topic.validate`."""
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > _NAME_LENGTH_MAX:
        why = f"the length of '{name}' is longer than the max allowed length {_NAME_LENGTH_MAX}"
    elif not _LEGAL_NAME.fullmatch(name):
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidTopicError(f"Topic name is invalid: {why}")


def is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return False
    return True


def _conflicts(topic: Topic, stored: StoredConfig) -> Iterator[str]:
    if stored.problem is not None:
        yield conflict_warning(topic.name, stored.problem)


class TopicManager:
    """Creates, changes and deletes topics. Thread-safe; methods may block on disk, and are durable when they return.

    A partial failure is undone, or finished at the next start.
    """

    def __init__(
        self, store: MetadataStore, logs: LogManager, config: Callable[[], BrokerConfig], clock: Clock
    ) -> None:
        self.store = store
        self._logs = logs
        self._config = config
        self._clock = clock
        self._lock = threading.RLock()
        #: Names of topics that the store has, but not yet all of their partitions.
        self._opening: set[str] = set()

    def log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """Return the typed configuration of a topic with these properties; InvalidConfigError names the problem."""
        large = self.store.large_segments
        return LogConfig.from_properties(configs, self._config(), use_large_index_format=large)

    def new_config(self, configs: Mapping[str, str]) -> LogConfig:
        """Return the `log_config` of new properties, which must also be compatible with the remote tier's plugin."""
        config = self.log_config(configs)
        self._check_positions(config)
        return config

    def _check_positions(self, config: LogConfig) -> None:
        limit = None if self._logs.remote is None else self._logs.remote.position_max
        if limit is not None and config.remote_storage_enable and config.segment_bytes > limit:
            raise invalid(
                "segment.bytes",
                config.segment_bytes,
                f"the storage plugin of the remote tier takes positions up to {limit}: segments of a tiered topic may "
                "not"
                " be larger; set a smaller segment.bytes, or use a plugin without this limit",
            )

    def check_broker_defaults(self, broker: BrokerConfig) -> None:
        """Raise InvalidConfigError if this configuration would make that of a topic inconsistent.

        Topics that are already inconsistent are ignored.
        """
        now = self._config()
        if broker.topic_defaults() == now.topic_defaults():
            return
        refused: dict[str, str] = {}
        with self._lock:
            large = self.store.large_segments
            for topic in self.store.topics():
                try:
                    self._check_positions(
                        LogConfig.from_properties(topic.configs, broker, use_large_index_format=large)
                    )
                except InvalidConfigError as error:
                    if self.in_force(topic).problem is None:
                        refused[topic.name] = str(error)
        if refused:
            name, why = next(iter(refused.items()))
            others = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            raise InvalidConfigError(f"Topic {name}{others} inherits it and is incompatible with it: {why}")

    @property
    def changing(self) -> threading.RLock:
        """Held while topics are created and changed, so that checks against all topics stay valid."""
        return self._lock

    def in_force(self, topic: Topic) -> StoredConfig:
        """Return the effective configuration of an existing topic, even if its settings conflict; never an error."""
        return stored_config(
            topic.configs,
            self._config(),
            self.store.good_topic_defaults,
            use_large_index_format=self.store.large_segments,
        )

    def spec(self, topic: Topic) -> TopicSpec:
        """Return the specification to open a topic's logs with."""
        return TopicSpec(topic.name, topic.topic_id, topic.partition_count, self.in_force(topic).config)

    def specs(self, topics: Iterable[Topic]) -> list[TopicSpec]:
        """Return the `spec` of all topics at startup; store the broker's values as good ones if none conflicts."""
        found = [(topic, self.in_force(topic)) for topic in topics]
        self._warn(warning for topic, stored in found for warning in _conflicts(topic, stored))
        if all(stored.problem is None for _, stored in found):
            try:
                self.store.keep_good_topic_defaults(topic_default_properties(self._config()))
            except KafkaStorageError as error:  # only needed for a later conflict
                logger.warning("The broker's topic defaults cannot be stored: %s", error)
        return [TopicSpec(topic.name, topic.topic_id, topic.partition_count, stored.config) for topic, stored in found]

    def check_new(self, name: str, partition_count: int, configs: Mapping[str, str]) -> None:
        """Raise the errors of `create` for these arguments, without doing anything."""
        check_topic_name(name)
        if self.store.topic(name) is not None:
            raise TopicAlreadyExistsError(f"Topic '{name}' already exists.")
        self._check_collision(name)
        if partition_count < 1:
            raise InvalidPartitionsError("Number of partitions must be larger than 0.")
        self.new_config(configs)

    def check_partition_count(self, name: str, count: int) -> None:
        """Raise InvalidPartitionsError for an internal topic with another count than startup requires.

        Source: a broker with tiering stops if `__remote_log_metadata` has another count than configured.
        """
        wanted = self._config()[PARTITIONS_KEY]
        if name == REMOTE_LOG_METADATA_TOPIC and count != wanted:
            raise InvalidPartitionsError(
                f"{name} has {PARTITIONS_KEY}={wanted} partitions permanently: its events would no longer be found"
            )

    def _check_collision(self, name: str) -> None:
        """Raise InvalidTopicError if another name differs only in '.' and '_': they would share their metrics."""
        other = self.store.colliding_topic(name)
        if other is not None:
            raise InvalidTopicError(f"Topic '{name}' collides with existing topic: {other}")

    def create(self, name: str, partition_count: int | None = None, configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic and its partitions; `num.partitions` by default.

        Raises InvalidTopicError, TopicAlreadyExistsError, InvalidPartitionsError, InvalidConfigError,
        KafkaStorageError; RequestTimedOutError if the broker stops: the topic then exists, with all its partitions from
        the next start on.
        """
        if (
            name == REMOTE_LOG_METADATA_TOPIC and partition_count is None
        ):  # a client has requested it before tiering did
            partition_count, configs = self._config()[PARTITIONS_KEY], metadata_topic_configs(self._config())
        count = self._config()["num.partitions"] if partition_count is None else partition_count
        with self._lock:
            self.check_new(name, count, configs or {})
            self.check_partition_count(name, count)
            self._warn(small_index_warnings(name, configs or {}, self.log_config(configs or {})))
            self._warn(topic_advice(name, configs or {}))
            self._opening.add(name)
            try:
                topic = self.store.create_topic(name, count, configs, created_ms=self._clock.now_ms())
                self._open(topic)
            finally:
                self._opening.discard(name)
            return topic

    def _open(self, topic: Topic) -> None:
        try:
            self._reserve_producer_ids(self._logs.create_topic(self.spec(topic)))
        except (OSError, KafkaStorageError) as error:
            self.delete(topic.name)
            if isinstance(error, KafkaStorageError):
                raise
            raise KafkaStorageError(f"topic {topic.name} cannot be created: {error}") from error

    def served(self) -> list[Topic]:
        """Return all topics, sorted by name; without those that are in creation."""
        return [topic for topic in self.store.topics() if topic.name not in self._opening]

    def served_topic(self, name: str) -> Topic | None:
        """Return the topic of this name; None while it is in creation: some of its partitions have no leader yet."""
        topic = self.store.topic(name)
        return None if name in self._opening else topic

    def served_topic_by_id(self, topic_id: UUID) -> Topic | None:
        """Return the topic of this id; None while it is in creation."""
        topic = self.store.topic_by_id(topic_id)
        return None if topic is None or topic.name in self._opening else topic

    def ensure(self, name: str, partition_count: int, configs: Mapping[str, str] | None = None) -> Topic:
        """Return the topic of this name, created with these arguments if missing."""
        with self._lock:
            return self.store.topic(name) or self.create(name, partition_count, configs)

    def delete(self, name: str) -> None:
        """Delete a topic without commits; `TopicDeletions` also deletes those. UnknownTopicOrPartitionError."""
        with self._lock:
            self.finish_deletion(self.begin_deletion(name))

    def begin_deletion(self, name: str) -> Topic:
        """Delete a topic's data. Its name stays reserved until `finish_deletion`, even across restarts.

        Raises UnknownTopicOrPartitionError if it does not exist.
        """
        with self._lock:
            topic = self.store.begin_delete_topic(name)
            self._logs.delete_topic(name)
            return topic

    def finish_internal_deletions(self) -> None:
        """Finish deletions of internal topics at startup, before they are read or needed."""
        with self._lock:
            for topic in self.store.deleting_topics():
                if topic.name in NEVER_TIERED:
                    self._logs.delete_topic(topic.name)
                    self.finish_deletion(topic)

    def resume_deletions(self) -> list[Topic]:
        """Delete the data of topics whose deletion was interrupted, at startup; return them for `finish_deletion`."""
        with self._lock:
            topics = self.store.deleting_topics()
            for topic in topics:
                self._logs.delete_topic(topic.name)
            return topics

    def finish_deletion(self, topic: Topic) -> None:
        """Remove a topic whose data is deleted: its name is free again."""
        self.store.finish_delete_topic(topic.topic_id)

    def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's settings with immediate effect; after an InvalidConfigError nothing has changed."""
        with self._lock:
            checked = self.new_config(configs)
            self._warn(small_index_warnings(name, configs, checked))
            self._warn(topic_advice(name, configs))
            self.store.set_topic_configs(name, configs)
            self._logs.update_config(name, checked)

    def warn_of_settings(self) -> None:
        """Warn at startup of valid settings that are probably not intended, of the broker and of every topic."""
        broker = self._config()
        self._warn(small_broker_index_warnings(broker))
        for topic in self.store.topics():
            found = self.in_force(topic)
            if found.problem is None:
                self._warn(small_segment_warnings(topic.name, topic.configs, broker))
                self._warn(small_index_warnings(topic.name, topic.configs, found.config))

    @staticmethod
    def _warn(warnings: Iterable[str]) -> None:
        for warning in warnings:
            logger.warning("%s", warning)

    def add_partitions(self, name: str, partition_count: int) -> Topic:
        """Add partitions to a topic; InvalidPartitionsError unless the count increases."""
        with self._lock:
            before = self.store.topic(name)
            topic = self.store.set_partition_count(name, partition_count)
            partitions = self._logs.create_topic(self.spec(topic))
            self._reserve_producer_ids(partitions[before.partition_count if before is not None else 0 :])
            return topic

    def _reserve_producer_ids(self, partitions: Iterable[Partition]) -> None:
        """Skip producer ids in directories that new partitions take over, which may come from another cluster.

        Clients may write any id: those in other partitions are not skipped, nor those that no cluster has got to.
        """
        known = [each.log.active_producers() for each in partitions if each.log.log_end_offset]
        ids = [entry.producer_id for entries in known for entry in entries]
        if used := [each for each in ids if each < _ALLOCATED_IDS_MAX]:
            self.store.reserve_producer_ids(max(used))

    def finalize_features(self, levels: Mapping[str, int], check: Callable[[FinalizedFeatures], None]) -> None:
        """Finalize levels of features and apply them to every log.

        `check` gets the current levels, which do not change concurrently, and raises to refuse the change.
        """
        with self._lock:
            before = self.store.metadata_version
            check(self.store.features)
            self.store.finalize(levels)
            if self.store.metadata_version != before:
                self.refresh_configs()

    def refresh_configs(self) -> None:
        """Apply changed broker defaults, or another level of `metadata.version`, to every topic.

        A topic that cannot be updated is logged and updated at the next start; the others are updated now.
        """
        with self._lock:
            for spec in self.specs(self.store.topics()):
                try:
                    self._logs.update_config(spec.name, spec.config)
                except (OSError, StratalogError):
                    logger.exception("Topic %s keeps its previous configuration", spec.name)

    def known(self, name: str) -> Topic:
        topic = self.store.topic(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
        return topic
