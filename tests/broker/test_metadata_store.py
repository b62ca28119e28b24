"""The embedded metadata store: what was acknowledged is there after a restart, and bad files are refused in one
line."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stratalog.broker.metadata.store import FinalizedFeatures, MetadataStore, Topic
from stratalog.broker.metadata.store_file import FORMAT_VERSION, STORE_FILE
from stratalog.config.metadata_version import INITIAL_LEVEL, LEVEL_MAX, level_for_release, level_name
from stratalog.errors import (
    DataDirError,
    InvalidPartitionsError,
    InvalidUpdateVersionError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)


def reopen(store: MetadataStore) -> MetadataStore:
    store.close()
    return MetadataStore.open(store.path.parent)


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path)
    topic = store.create_topic("flights", 6, {"retention.ms": "1000"}, created_ms=42)
    store.set_broker_configs(1, {"log.cleaner.threads": "2"})
    store.set_broker_configs(None, {"min.topic.segment.ms": "7"})
    store.finalize({"metadata.version": 32})
    cluster_id = store.cluster_id
    again = reopen(store)
    assert again.cluster_id == cluster_id
    assert again.metadata_version == 32
    assert again.topics() == [topic]
    assert again.topic("flights") == topic == again.topic_by_id(topic.topic_id)
    assert again.broker_configs(1) == {"log.cleaner.threads": "2"}
    assert again.broker_configs(None) == {"min.topic.segment.ms": "7"}
    assert again.broker_configs(2) == {}
    again.close()


def modes(directory: Path) -> dict[str, int]:
    return {each.name: each.stat().st_mode & 0o777 for each in directory.iterdir()}


def test_only_its_owner_may_read_a_store(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path)
    store.change_credentials("scram", {"SCRAM-SHA-256/alice": "secret"})
    assert modes(tmp_path).keys() >= {STORE_FILE, f"{STORE_FILE}-wal"}
    assert set(modes(tmp_path).values()) == {0o600}
    store.close()


def test_a_store_that_all_could_read_is_its_owners_once_it_has_credentials(tmp_path: Path) -> None:
    MetadataStore.open(tmp_path).close()
    (tmp_path / STORE_FILE).chmod(0o644)
    store = MetadataStore.open(tmp_path)
    store.finalize({"metadata.version": 31})
    assert set(modes(tmp_path).values()) == {0o644}  # the user's own choice, as long as nothing is secret
    store.change_credentials("scram", {"SCRAM-SHA-256/alice": "secret"})
    assert set(modes(tmp_path).values()) == {0o600}
    store.close()


def test_a_store_without_an_epoch_of_features_begins_at_0(tmp_path: Path) -> None:
    """A store of before UpdateFeatures reported one."""
    MetadataStore.open(tmp_path).close()
    with sqlite3.connect(tmp_path / STORE_FILE) as db:
        db.execute("DELETE FROM meta WHERE key = 'features.epoch'")
    store = MetadataStore.open(tmp_path)
    assert store.features == FinalizedFeatures(
        31, 0, {"group.version": 1, "share.version": 2, "streams.version": 1, "transaction.version": 2}
    )
    store.finalize({"metadata.version": 31})
    assert store.features.epoch == 0
    store.finalize({"metadata.version": 32})
    store = reopen(store)
    assert store.features == FinalizedFeatures(
        32, 1, {"group.version": 1, "share.version": 2, "streams.version": 1, "transaction.version": 2}
    )
    store.close()


def test_a_new_store_starts_below_large_segments(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path)
    assert store.metadata_version == INITIAL_LEVEL == 31
    assert store.topics() == []
    store.close()


def test_cluster_id_and_level_are_only_for_a_new_store(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path, cluster_id="AAAAAAAAQQAAAAAAAAAAAQ", metadata_version=32)
    assert (store.cluster_id, store.metadata_version) == ("AAAAAAAAQQAAAAAAAAAAAQ", 32)
    store.close()
    again = MetadataStore.open(tmp_path, cluster_id="BBBBBBBBQQAAAAAAAAAAAQ", metadata_version=7)
    assert (again.cluster_id, again.metadata_version) == ("AAAAAAAAQQAAAAAAAAAAAQ", 32)
    again.close()


def test_changes_are_there_after_a_kill(tmp_path: Path) -> None:
    """A second connection sees only what is committed: what a process killed now would leave behind."""
    store = MetadataStore.open(tmp_path)
    topic = store.create_topic("a", 1, created_ms=1)
    survivor = MetadataStore.open(tmp_path)
    assert survivor.topics() == [topic]
    survivor.close()
    store.close()


def test_a_deletion_that_was_begun_is_found_at_the_next_start(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path)
    topic = store.create_topic("a", 3, created_ms=1)
    store.begin_delete_topic("a")
    assert store.topic("a") is None
    assert store.topic_by_id(topic.topic_id) is None
    with pytest.raises(TopicAlreadyExistsError, match="marked for deletion"):
        store.create_topic("a", 1, created_ms=2)
    store = reopen(store)
    assert store.topics() == []
    assert store.deleting_topics() == [topic]
    store.finish_delete_topic(topic.topic_id)
    assert store.deleting_topics() == []
    assert store.create_topic("a", 1, created_ms=2).topic_id != topic.topic_id
    store = reopen(store)
    assert [t.partition_count for t in store.topics()] == [1]
    store.close()


def test_finishing_a_deletion_that_never_began_harms_nothing(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path)
    topic = store.create_topic("a", 1, created_ms=1)
    store.finish_delete_topic(topic.topic_id)
    store = reopen(store)
    assert store.topics() == [topic]
    store.close()


def test_errors_name_the_topic(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path)
    store.create_topic("a", 2, created_ms=1)
    with pytest.raises(TopicAlreadyExistsError, match=r"Topic 'a' already exists\."):
        store.create_topic("a", 2, created_ms=1)
    with pytest.raises(UnknownTopicOrPartitionError, match="'b'"):
        store.set_topic_configs("b", {})
    with pytest.raises(UnknownTopicOrPartitionError, match="'b'"):
        store.begin_delete_topic("b")
    with pytest.raises(InvalidPartitionsError, match="currently has 2"):
        store.set_partition_count("a", 2)
    store.close()


def test_producer_id_blocks_never_overlap_even_across_restarts_and_threads(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path)
    taken: list[int] = []

    def take() -> None:
        for _ in range(20):
            block = store.allocate_producer_ids(10)
            taken.extend(range(block.first, block.first + block.size))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = reopen(store)
    block = store.allocate_producer_ids()
    taken.extend(range(block.first, block.first + block.size))
    assert len(set(taken)) == len(taken) == 4 * 20 * 10 + 1000
    store.close()


def test_a_store_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    MetadataStore.open(tmp_path).close()
    with sqlite3.connect(tmp_path / STORE_FILE) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'format.version'", (str(FORMAT_VERSION + 1),))
    db.close()
    with pytest.raises(DataDirError, match=r"format version 2.*newer stratalog"):
        MetadataStore.open(tmp_path)


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / STORE_FILE).write_bytes(content)
    with pytest.raises(DataDirError, match=r"stratalog\.sqlite is damaged"):
        MetadataStore.open(tmp_path)
    assert (tmp_path / STORE_FILE).read_bytes() == content


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / STORE_FILE) as db:
        db.execute("CREATE TABLE songs (name TEXT)")
    db.close()
    with pytest.raises(DataDirError, match="damaged: no such table: meta"):
        MetadataStore.open(tmp_path)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataDirError, match="cannot be opened"):
        MetadataStore.open(tmp_path / "file" / "data")


def test_a_failed_change_changes_nothing(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path)
    store.create_topic("a", 1, created_ms=1)
    other = sqlite3.connect(tmp_path / STORE_FILE, isolation_level=None)
    store._db.execute("PRAGMA busy_timeout = 0")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(KafkaStorageError, match="cannot be written"):
        store.create_topic("b", 1, created_ms=1)
    with pytest.raises(KafkaStorageError):
        store.set_topic_configs("a", {"retention.ms": "1"})
    other.execute("ROLLBACK")
    other.close()
    assert [(t.name, dict(t.configs)) for t in store.topics()] == [("a", {})]
    store = reopen(store)
    assert [(t.name, dict(t.configs)) for t in store.topics()] == [("a", {})]
    store.close()


@pytest.mark.parametrize(
    ("release", "level"),
    [
        ("4.4", 33),
        ("4.4-IV0", 31),
        ("4.4-IV1", 32),
        ("4.4-IV2", 33),
        ("4.3", 30),
        ("4.0", 25),
        ("3.3-IV3", 7),
    ],
)
def test_levels_have_kafkas_names(release: str, level: int) -> None:
    assert level_for_release(release) == level
    assert level_name(level).startswith(release)


@pytest.mark.parametrize("level", [6, LEVEL_MAX + 1, -1])
def test_unsupported_levels_are_refused(tmp_path: Path, level: int) -> None:
    with pytest.raises(InvalidUpdateVersionError, match=str(level)):
        MetadataStore.open(tmp_path, metadata_version=level)
    with pytest.raises(InvalidUpdateVersionError):
        level_for_release("9.9")


NAMES = st.sampled_from(["a", "b", "c"])
CONFIGS = st.dictionaries(st.sampled_from(["retention.ms", "ключ"]), st.text(max_size=5), max_size=2)


class StoreAgainstModel(RuleBasedStateMachine):
    """After any sequence of changes and restarts the store holds what a plain dictionary holds."""

    directory: Path

    def __init__(self) -> None:
        super().__init__()
        (self.directory / STORE_FILE).unlink(missing_ok=True)
        self.store = MetadataStore.open(self.directory)
        self.topics: dict[str, Topic] = {}
        self.deleting: dict[str, Topic] = {}

    @rule(name=NAMES, count=st.integers(1, 9), configs=CONFIGS)
    def create(self, name: str, count: int, configs: dict[str, str]) -> None:
        if name in self.topics or name in self.deleting:
            with pytest.raises(TopicAlreadyExistsError):
                self.store.create_topic(name, count, configs, created_ms=5)
        else:
            self.topics[name] = self.store.create_topic(name, count, configs, created_ms=5)

    @rule(name=NAMES, configs=CONFIGS)
    def configure(self, name: str, configs: dict[str, str]) -> None:
        if name in self.topics:
            self.topics[name] = self.store.set_topic_configs(name, configs)
            assert self.topics[name].configs == configs

    @rule(name=NAMES, more=st.integers(1, 5))
    def grow(self, name: str, more: int) -> None:
        if name in self.topics:
            self.topics[name] = self.store.set_partition_count(name, self.topics[name].partition_count + more)

    @rule(name=NAMES)
    def begin_delete(self, name: str) -> None:
        if name in self.topics:
            self.deleting[name] = self.topics.pop(name)
            self.store.begin_delete_topic(name)

    @rule(name=NAMES)
    def finish_delete(self, name: str) -> None:
        if name in self.deleting:
            self.store.finish_delete_topic(self.deleting.pop(name).topic_id)

    @rule()
    def restart(self) -> None:
        self.store = reopen(self.store)

    @invariant()
    def agrees(self) -> None:
        assert {t.name: t for t in self.store.topics()} == self.topics
        assert {t.name: t for t in self.store.deleting_topics()} == self.deleting
        assert all(self.store.topic_by_id(t.topic_id) == t for t in self.topics.values())

    def teardown(self) -> None:
        self.store.close()


def test_the_store_agrees_with_a_model(tmp_path: Path) -> None:
    StoreAgainstModel.directory = tmp_path
    StoreAgainstModel.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
    StoreAgainstModel.TestCase("runTest").runTest()


@settings(deadline=None, max_examples=20)
@given(topic_id=st.uuids())
def test_any_topic_id_is_kept(tmp_path_factory: pytest.TempPathFactory, topic_id: UUID) -> None:
    """The id of a topic that came from elsewhere (a restored directory) is kept as it is."""
    store = MetadataStore.open(tmp_path_factory.mktemp("store"))
    store.create_topic("t", 1, created_ms=0, topic_id=topic_id)
    store = reopen(store)
    found = store.topic_by_id(topic_id)
    assert found is not None
    assert found.name == "t"
    store.close()
