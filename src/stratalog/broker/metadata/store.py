"""The cluster's metadata in one SQLite file, `stratalog.sqlite` in the first data directory.

A change is durable when the method returns (write-ahead log, synchronous=FULL); after a crash, the store has all or
nothing of a change. Readers never wait: topics are in a map that may be read while it changes, broker configurations in
immutable mappings that a change replaces.

The deletion of a topic has two steps, so that startup can finish it after a crash between the store and the data
directories: `begin_delete_topic` hides the topic (its name stays reserved), and `finish_delete_topic` removes it once
its directories are deleted. `deleting_topics` returns what startup has to finish.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

from stratalog.broker.access import Acl, acl_of
from stratalog.broker.metadata.store_file import (
    FEATURES_EPOCH,
    STORE_FILE,
    make_private,
    open_file,
    raise_clearer,
)
from stratalog.broker.metadata.topic_map import Topic, TopicLookup
from stratalog.broker.quotas import QuotaEntity
from stratalog.config import (
    INITIAL_LEVEL,
    METADATA_VERSION,
    OTHER_FEATURES,
    is_large_index_format_supported,
    level_name,
)
from stratalog.errors import (
    InvalidPartitionsError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from stratalog.util import random_uuid, uuid_to_base64

__all__ = ["FinalizedFeatures", "MetadataStore", "ProducerIdBlock", "Topic"]

#: Number of producer ids that a broker allocates at a time, as in Kafka's `ProducerIdsBlock`.
PRODUCER_ID_BLOCK_SIZE = 1000

#: Row of `meta`: see `good_topic_defaults`.
_GOOD_DEFAULTS = "topic.defaults.good"

_ACL_COLUMNS = tuple(each.name for each in fields(Acl))

#: The row of `broker_configs` for all brokers (in AlterConfigs: the broker named "").
_CLUSTER_DEFAULT = ""


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """Finalized levels of features, and an epoch that is incremented by every change: clients keep the newest.

    `others` has the features besides `metadata.version`; a feature at level 0 is not in it.
    """

    metadata_version: int
    epoch: int
    others: Mapping[str, int] = field(default_factory=dict)

    def level(self, feature: str) -> int:
        return self.metadata_version if feature == METADATA_VERSION else self.others.get(feature, 0)


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids `first` to `first + size - 1`, never allocated before."""

    first: int
    size: int


class MetadataStore(TopicLookup):
    """The open store. Thread-safe."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._db = connection
        self._lock = threading.RLock()
        #: Number of changes since it was opened.
        self.changes = 0
        self._load()

    # --- life ---------------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls, directory: Path, *, cluster_id: str | None = None, metadata_version: int = INITIAL_LEVEL
    ) -> MetadataStore:
        """Open the store of a data directory, or create it.

        `cluster_id` (default: random) and `metadata_version` are for a new store only. Raises DataDirError if the
        directory is not writable, the file is damaged, or a newer stratalog wrote it.
        """
        path = Path(directory) / STORE_FILE
        connection = open_file(path, cluster_id or uuid_to_base64(random_uuid()), metadata_version)
        try:
            return cls(connection, path)
        except BaseException as error:  # noqa: BLE001
            connection.close()
            raise_clearer(path, error)

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            self._db.close()

    def _load(self) -> None:
        meta = dict(self._db.execute("SELECT key, value FROM meta"))
        self._cluster_id: str = meta["cluster.id"]
        # One object, so that readers always see a level with the epoch of the same change.
        others = {name: int(meta[name]) for name in OTHER_FEATURES if int(meta.get(name, 0))}
        self._features = FinalizedFeatures(
            int(meta[METADATA_VERSION]), int(meta.get(FEATURES_EPOCH, 0)), MappingProxyType(others)
        )
        topics: dict[str, Topic] = {}
        deleting: dict[UUID, Topic] = {}
        for topic_id, name, partition_count, configs, created_ms, doomed in self._db.execute(
            "SELECT topic_id, name, partition_count, configs, created_ms, deleting FROM topics"
        ):
            topic = Topic(name, UUID(bytes=topic_id), partition_count, _frozen(json.loads(configs)), created_ms)
            if doomed:
                deleting[topic.topic_id] = topic
            else:
                topics[name] = topic
        super().__init__(topics.values())
        self._deleting = deleting
        self.reserved_producer_id_max = -1
        self._good_defaults = _frozen(json.loads(meta.get(_GOOD_DEFAULTS, "{}")))
        self._broker_configs = {
            broker: _frozen(json.loads(configs))
            for broker, configs in self._db.execute("SELECT broker, configs FROM broker_configs")
        }
        self._resource_configs = {
            (resource_type, name): _frozen(json.loads(configs))
            for resource_type, name, configs in self._db.execute(
                "SELECT type, name, configs FROM resource_configs ORDER BY type, name"
            )
        }

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """Run one durable transaction under the lock. After a KafkaStorageError nothing has changed."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
                self.changes += 1
            except sqlite3.Error as error:
                self._roll_back()
                raise KafkaStorageError(f"{self.path} cannot be written: {error}") from error
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            return  # closed or lost: there is nothing to roll back

    # --- the cluster --------------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def features(self) -> FinalizedFeatures:
        return self._features

    @property
    def metadata_version(self) -> int:
        """The finalized level of `metadata.version`."""
        return self._features.metadata_version

    @property
    def large_segments(self) -> bool:
        """Whether segments may exceed 2 GiB, and offset indexes have 12-byte entries (KIP-1333)."""
        return is_large_index_format_supported(self._features.metadata_version)

    def finalize(self, levels: Mapping[str, int]) -> None:
        """Finalize levels of features together, and increment the epoch if one has changed.

        Raises InvalidUpdateVersionError for an unsupported level of `metadata.version`, ValueError for an unknown
        feature.
        """
        with self._lock:
            old = self._features
            changed = {name: level for name, level in levels.items() if level != old.level(name)}
            if not changed:
                return
            metadata_version = changed.pop(METADATA_VERSION, old.metadata_version)
            level_name(metadata_version)
            if changed.keys() - OTHER_FEATURES.keys():
                raise ValueError(f"no such features: {sorted(changed.keys() - OTHER_FEATURES.keys())}")
            others = {name: level for name, level in {**old.others, **changed}.items() if level}
            rows = {METADATA_VERSION: metadata_version, FEATURES_EPOCH: old.epoch + 1, **changed}
            with self._change() as db:
                db.executemany(
                    "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)",
                    [(key, str(value)) for key, value in rows.items()],
                )
            self._features = FinalizedFeatures(metadata_version, old.epoch + 1, MappingProxyType(others))

    def allocate_producer_ids(self, size: int = PRODUCER_ID_BLOCK_SIZE) -> ProducerIdBlock:
        """Allocate the next block of producer ids permanently."""
        with self._change() as db:
            (first,) = db.execute("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'producer.ids.next'").fetchone()
            db.execute("UPDATE meta SET value = ? WHERE key = 'producer.ids.next'", (str(first + size),))
        return ProducerIdBlock(first, size)

    def reserve_producer_ids(self, used_max: int) -> None:
        """Skip producer ids up to `used_max`, the largest one in logs; -1 for none."""
        with self._change() as db:
            db.execute(
                "UPDATE meta SET value = ? WHERE key = 'producer.ids.next' AND CAST(value AS INTEGER) <= ?",
                (str(used_max + 1), used_max),
            )
        self.reserved_producer_id_max = max(self.reserved_producer_id_max, used_max)

    # --- topics -------------------------------------------------------------------------------------------------------

    def colliding_topic(self, name: str) -> str | None:
        """Return another topic's name that differs from `name` only in '.' and '_'."""
        return self._topics.colliding(name)

    def deleting_topics(self) -> list[Topic]:
        """Return topics whose deletion is not finished."""
        with self._lock:
            return sorted(self._deleting.values(), key=lambda topic: topic.name)

    def create_topic(
        self,
        name: str,
        partition_count: int,
        configs: Mapping[str, str] | None = None,
        *,
        created_ms: int,
        topic_id: UUID | None = None,
    ) -> Topic:
        """Add a topic, with a random id unless one is given. The caller validates the name and configs.

        Raises TopicAlreadyExistsError even while a topic of that name is being deleted.
        """
        with self._lock:
            if self._topics.get(name) is not None:
                raise TopicAlreadyExistsError(f"Topic '{name}' already exists.")
            if any(topic.name == name for topic in self._deleting.values()):
                raise TopicAlreadyExistsError(f"Topic '{name}' is marked for deletion.")
            topic = Topic(name, topic_id or random_uuid(), partition_count, _frozen(configs or {}), created_ms)
            with self._change() as db:
                db.execute(
                    "INSERT INTO topics (topic_id, name, partition_count, configs, created_ms) VALUES (?, ?, ?, ?, ?)",
                    (topic.topic_id.bytes, name, partition_count, _json(topic.configs), created_ms),
                )
            self._topics.put(topic)
            return topic

    def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        """Replace a topic's settings; UnknownTopicOrPartitionError if it does not exist."""
        with self._lock:
            topic = replace(self._known(name), configs=_frozen(configs))
            with self._change() as db:
                db.execute("UPDATE topics SET configs = ? WHERE topic_id = ?", (_json(configs), topic.topic_id.bytes))
            self._topics.put(topic)
            return topic

    def set_partition_count(self, name: str, partition_count: int) -> Topic:
        """Add partitions to a topic; InvalidPartitionsError unless the count increases."""
        with self._lock:
            old = self._known(name)
            if partition_count <= old.partition_count:
                raise InvalidPartitionsError(
                    f"The topic {name} currently has {old.partition_count} partition(s); "
                    f"{partition_count} would not be an increase."
                )
            topic = replace(old, partition_count=partition_count)
            with self._change() as db:
                db.execute(
                    "UPDATE topics SET partition_count = ? WHERE topic_id = ?",
                    (partition_count, topic.topic_id.bytes),
                )
            self._topics.put(topic)
            return topic

    def begin_delete_topic(self, name: str) -> Topic:
        """Start a deletion: the topic disappears for clients, and startup will finish it if needed."""
        with self._lock:
            topic = self._known(name)
            with self._change() as db:
                db.execute("UPDATE topics SET deleting = 1 WHERE topic_id = ?", (topic.topic_id.bytes,))
            self._deleting[topic.topic_id] = topic
            self._topics.remove(name)
            return topic

    def finish_delete_topic(self, topic_id: UUID) -> None:
        """Finish a deletion after the data is deleted; an id that is not being deleted is ignored."""
        with self._lock:
            with self._change() as db:
                db.execute("DELETE FROM topics WHERE topic_id = ? AND deleting = 1", (topic_id.bytes,))
            self._deleting.pop(topic_id, None)

    def _known(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
        return topic

    # --- access rules -------------------------------------------------------------------------------------------------

    def acls(self) -> list[Acl]:
        """Return the access rules, oldest first. Reads the file."""
        with self._lock:
            rows = self._db.execute(f"SELECT {', '.join(_ACL_COLUMNS)} FROM acls ORDER BY rowid").fetchall()
        return [acl_of(**dict(zip(_ACL_COLUMNS, row, strict=True))) for row in rows]

    def add_acls(self, acls: Iterable[Acl]) -> None:
        """Add access rules, except those that exist."""
        values = ", ".join("?" * len(_ACL_COLUMNS))
        with self._change() as db:
            db.executemany(
                f"INSERT OR IGNORE INTO acls ({', '.join(_ACL_COLUMNS)}) VALUES ({values})", map(_acl_row, acls)
            )

    def remove_acls(self, acls: Iterable[Acl]) -> None:
        """Delete access rules; ones that do not exist are ignored."""
        condition = " AND ".join(f"{column} = ?" for column in _ACL_COLUMNS)
        with self._change() as db:
            db.executemany(f"DELETE FROM acls WHERE {condition}", map(_acl_row, acls))

    # --- quotas of clients --------------------------------------------------------------------------------------------

    def client_quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas by entity and key. Reads the file."""
        with self._lock:
            rows = self._db.execute("SELECT entity, key, value FROM client_quotas ORDER BY entity, key").fetchall()
        found: dict[QuotaEntity, dict[str, float]] = {}
        for entity, key, value in rows:
            parts = tuple((kind, name) for kind, name in json.loads(entity))
            found.setdefault(parts, {})[key] = value
        return found

    def change_client_quotas(self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]) -> None:
        """Put quotas by entity and key, or (None) delete them, in one change."""
        with self._change() as db:
            for entity, values in changes.items():
                row = json.dumps(entity)
                for key, value in values.items():
                    if value is None:
                        db.execute("DELETE FROM client_quotas WHERE entity = ? AND key = ?", (row, key))
                    else:
                        db.execute("INSERT OR REPLACE INTO client_quotas VALUES (?, ?, ?)", (row, key, value))

    # --- dynamic broker configurations --------------------------------------------------------------------------------

    def broker_configs(self, node_id: int | None) -> Mapping[str, str]:
        """Return the dynamic settings of one broker, or (None) of all."""
        return self._broker_configs.get(_broker_row(node_id), _frozen({}))

    def set_broker_configs(self, node_id: int | None, configs: Mapping[str, str]) -> None:
        """Replace the dynamic settings of one broker, or (None) of all."""
        row = _broker_row(node_id)
        make_private(self.path)  # they may include passwords of key stores
        with self._lock:
            with self._change() as db:
                db.execute(
                    "INSERT INTO broker_configs (broker, configs) VALUES (?, ?)"
                    " ON CONFLICT (broker) DO UPDATE SET configs = excluded.configs",
                    (row, _json(configs)),
                )
            self._broker_configs = {**self._broker_configs, row: _frozen(configs)}

    # --- configurations of other resources ----------------------------------------------------------------------------

    def resource_configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return a resource's settings; groups and client metrics, by Kafka's number of their type."""
        return self._resource_configs.get((resource_type, name), _frozen({}))

    def configured_resources(self, resource_type: int) -> list[str]:
        """Return the names of resources of a type that have settings."""
        return [name for each, name in self._resource_configs if each == resource_type]

    def set_resource_configs(self, resource_type: int, name: str, configs: Mapping[str, str]) -> None:
        """Replace a resource's settings. A resource without settings is removed."""
        with self._lock:
            after = {key: each for key, each in self._resource_configs.items() if key != (resource_type, name)}
            with self._change() as db:
                if configs:
                    after[resource_type, name] = _frozen(configs)
                    row = (resource_type, name, _json(configs))
                    db.execute("INSERT OR REPLACE INTO resource_configs VALUES (?, ?, ?)", row)
                else:
                    db.execute("DELETE FROM resource_configs WHERE type = ? AND name = ?", (resource_type, name))
            self._resource_configs = after

    # --- credentials --------------------------------------------------------------------------------------------------

    def credentials(self, kind: str) -> dict[str, str]:
        """Return the credentials of one kind, by name. Reads the file."""
        with self._lock:
            return dict(self._db.execute("SELECT name, value FROM credentials WHERE kind = ?", (kind,)))

    def change_credentials(self, kind: str, changes: Mapping[str, str | None]) -> None:
        """Put credentials of one kind, or (None) delete them, in one change. Only the file's owner may read it then."""
        make_private(self.path)
        with self._change() as db:
            for name, value in changes.items():
                if value is None:
                    db.execute("DELETE FROM credentials WHERE kind = ? AND name = ?", (kind, name))
                else:
                    db.execute("INSERT OR REPLACE INTO credentials VALUES (?, ?, ?)", (kind, name, value))

    # --- defaults of topics -------------------------------------------------------------------------------------------

    @property
    def good_topic_defaults(self) -> Mapping[str, str]:
        """The broker's last topic defaults that were valid for every topic, by broker key; empty if there were none."""
        return self._good_defaults

    def keep_good_topic_defaults(self, defaults: Mapping[str, str]) -> None:
        """Store the broker's topic defaults, which are valid for every topic, if they have changed."""
        with self._lock:
            if defaults == self._good_defaults:
                return
            with self._change() as db:
                db.execute(
                    "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)",
                    (_GOOD_DEFAULTS, _json(defaults)),
                )
            self._good_defaults = _frozen(defaults)


def _acl_row(acl: Acl) -> tuple[int | str, ...]:
    return (
        int(acl.resource_type),
        acl.name,
        int(acl.pattern_type),
        acl.principal,
        acl.host,
        int(acl.operation),
        int(acl.permission),
    )


def _broker_row(node_id: int | None) -> str:
    return _CLUSTER_DEFAULT if node_id is None else str(node_id)


def _frozen(configs: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(configs))


def _json(configs: Mapping[str, str]) -> str:
    return json.dumps(dict(configs), sort_keys=True)
