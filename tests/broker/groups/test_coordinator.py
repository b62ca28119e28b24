"""The coordinator: what it does with its log, its timers and its clients' connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.broker.groups.scenario import (
    ASSIGNMENT,
    SUBSCRIPTION,
    await_coordinator,
    commit,
    join,
    send_join,
    sync,
)
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.groups.coordinator import GroupCoordinator
from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.records import (
    GroupKey,
    OffsetKey,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from stratalog.broker.server.server import Broker
from stratalog.engine.partition import Partition
from stratalog.errors import KafkaStorageError, MessageTooLargeError
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.wire.api_keys import ApiKey

T = TypeVar("T")
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.min.session.timeout.ms": "1",
    "offsets.retention.minutes": "10",
}
RETENTION_MS = 600_000
ZERO = TopicPartition("orders", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        broker.services.topics.create("orders", 2)
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        await_coordinator(wire)
        yield wire


def on_loop(broker: Broker, function: Callable[[], T]) -> T:
    """Run a function where the coordinator lives."""

    async def run() -> T:
        return function()

    return asyncio.run_coroutine_threadsafe(run(), broker.services.loop).result(30)


def fetched(wire: Wire, group: str, partition: int = 0) -> int:
    topics = [{"name": "orders", "partition_indexes": (partition,)}]
    answer = wire.call(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": group, "topics": topics}])
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def groups(wire: Wire, *states: str) -> list[str]:
    return [group.group_id for group in wire.call(ApiKey.LIST_GROUPS, 5, states_filter=states).groups]


# --- expiry -----------------------------------------------------------------------------------------------------------


def test_commits_of_simple_consumers_expire_one_by_one_and_their_group_with_the_last(
    tmp_path: Path, clock: ManualClock
) -> None:
    with (
        Broker(data_dir=tmp_path, config=CONFIG, clock=clock) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        broker.services.topics.create("orders", 2)
        commit(wire, 8, "g", {0: (1, "")})
        clock.advance(RETENTION_MS - 1)
        commit(wire, 8, "g", {1: (2, "")})
        assert on_loop(broker, lambda: sum(broker.services.groups.expire())) == 0
        clock.advance(1)
        assert on_loop(broker, lambda: sum(broker.services.groups.expire())) == 1
        assert (fetched(wire, "g", 0), fetched(wire, "g", 1)) == (-1, 2)
        clock.advance(RETENTION_MS)
        assert on_loop(broker, lambda: sum(broker.services.groups.expire())) == 1
        assert groups(wire) == []
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        assert not broker.services.groups.classics.groups()
        assert not broker.services.groups.commits.committed.groups()


def test_a_commit_with_an_expiry_of_its_own_goes_by_that(tmp_path: Path, clock: ManualClock) -> None:
    with (
        Broker(data_dir=tmp_path, config=CONFIG, clock=clock) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        broker.services.topics.create("orders", 2)
        commit(wire, 2, "g", {0: (1, "")}, retention_time=5_000)
        commit(wire, 2, "h", {0: (1, "")}, retention_time=RETENTION_MS * 9)
        clock.advance(5_000)
        assert on_loop(broker, lambda: sum(broker.services.groups.expire())) == 1
        clock.advance(RETENTION_MS)
        assert on_loop(broker, lambda: sum(broker.services.groups.expire())) == 0
        assert groups(wire) == ["h"]


def test_a_group_with_members_keeps_the_commits_for_what_it_reads(tmp_path: Path, clock: ManualClock) -> None:
    config = {**CONFIG, "offsets.retention.minutes": "1"}
    with (
        Broker(data_dir=tmp_path, config=config, clock=clock) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        broker.services.topics.create("orders", 2)
        broker.services.topics.create("other", 1)
        member = _alone(wire, "g", session_timeout=600_000)
        commit(wire, 9, "g", {0: (1, "")}, generation_id_or_member_epoch=1, member_id=member)
        topics = [{"name": "other", "partitions": [{"partition_index": 0, "committed_offset": 5}]}]
        wire.call(
            ApiKey.OFFSET_COMMIT,
            9,
            group_id="g",
            topics=topics,
            generation_id_or_member_epoch=1,
            member_id=member,
        )
        clock.advance(60_000)
        assert on_loop(broker, lambda: sum(broker.services.groups.expire())) == 1  # `other`, which no one reads
        assert fetched(wire, "g") == 1
        wire.call(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": member}])
        assert (
            on_loop(broker, lambda: sum(broker.services.groups.expire())) == 0
        )  # ages from now on, since the group went empty
        clock.advance(60_000)
        assert on_loop(broker, lambda: sum(broker.services.groups.expire())) == 1
        assert groups(wire) == []


def _alone(wire: Wire, group: str, **fields: Any) -> str:
    """A dynamic member alone in a stable group; its id."""
    joined = join(wire, group, join(wire, group, **fields).member_id, **fields)
    assert joined.error_code == 0, joined
    assert sync(wire, group, joined, {joined.member_id: ASSIGNMENT}).assignment == ASSIGNMENT
    return str(joined.member_id)


# --- the log ----------------------------------------------------------------------------------------------------------


def test_the_topic_is_made_for_the_first_group_as_kafka_configures_it(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert broker.services.metadata.topic("__consumer_offsets") is None
        wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))
        topic = broker.services.metadata.topic("__consumer_offsets")
        assert topic is not None
        assert topic.partition_count == 50
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }


def test_many_who_ask_at_once_get_one_topic(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        wires = [Wire(broker.bootstrap_servers) for _ in range(8)]
        for wire in wires:
            wire.send(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))
        answers = [wire.receive(ApiKey.FIND_COORDINATOR, 4).coordinators[0] for wire in wires]
        assert {(answer.error_code, answer.port) for answer in answers} == {(0, broker.services.listener.port)}
        for wire in wires:
            wire.close()


def _partition(broker: Broker) -> Partition:
    partition = broker.services.partition("__consumer_offsets", 0)
    assert partition is not None
    return partition


def _batch(*entries: tuple[bytes, bytes | None], **fields: Any) -> bytes:
    return build_batch([Record(at, 1, key, value) for at, (key, value) in enumerate(entries)], **fields)


def _commit(group: str, offset: int) -> tuple[bytes, bytes]:
    return encode_offset_key(OffsetKey(group, ZERO)), encode_offset_value(CommittedOffset(offset, "", 1))


def test_a_start_reads_the_latest_of_each_key_and_passes_over_damage(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        await_coordinator(wire)
        partition = _partition(broker)
        gone = _commit("gone", 9)
        partition.append(_batch(_commit("a", 1), _commit("b", 1), gone), origin="coordinator")
        partition.append(_batch(_commit("a", 2), (gone[0], None)), origin="coordinator")
        damaged = [
            (b"\x00", b"\x00\x03"),  # a key cut short
            (encode_offset_key(OffsetKey("cut", ZERO)), b"\x00\x03\x00"),
            (encode_group_key(GroupKey("future")), b"\x00\x63"),
            (b"\x00\x09\x00\x01x", b"of another kind of group"),
        ]
        partition.append(_batch(*damaged), origin="coordinator")
        partition.append(_batch(_commit("c", 3)), origin="coordinator")
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        offsets = broker.services.groups.commits.committed
        found = {group: offsets.of_group(group)[ZERO].offset for group in offsets.groups()}
        assert found == {"a": 2, "b": 1, "c": 3}
        assert sorted(group.group_id for group in broker.services.groups.classics.groups()) == ["a", "b", "c"]


def test_a_start_counts_what_transactions_have_committed_and_nothing_else(tmp_path: Path) -> None:
    config = {**CONFIG, "transaction.partition.verification.enable": "false"}
    with Broker(data_dir=tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        await_coordinator(wire)
        partition = _partition(broker)

        def transaction(producer: int, *entries: tuple[bytes, bytes | None]) -> None:
            fields = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": 0,
                "is_transactional": True,
            }
            partition.append(_batch(*entries, **fields), origin="coordinator")

        def end(producer: int, kind: ControlType) -> None:
            marker = end_transaction_marker(
                kind, producer_id=producer, producer_epoch=0, timestamp_ms=1, coordinator_epoch=0
            )
            partition.append(marker, origin="coordinator")

        transaction(1, _commit("committed", 1))
        transaction(2, _commit("aborted", 1))
        transaction(3, _commit("open", 1))
        transaction(4, _commit("overtaken", 1))
        partition.append(_batch(_commit("overtaken", 2)), origin="coordinator")
        for producer, kind in ((1, ControlType.COMMIT), (2, ControlType.ABORT), (4, ControlType.COMMIT)):
            end(producer, kind)
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        offsets = broker.services.groups.commits.committed
        found = {group: offsets.of_group(group)[ZERO].offset for group in offsets.groups()}
        assert found == {"committed": 1, "overtaken": 2}
        assert broker.services.groups.commits.pending.is_pending("open", ZERO)
        assert not broker.services.groups.commits.pending.is_pending("aborted", ZERO)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaStorageError("full"), 16),
        (OSError(28, "No space left on device"), 16),
        (MessageTooLargeError("big"), -1),
    ],
)
def test_what_cannot_be_stored_is_not_acknowledged(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    member = _alone(wire, "g", session_timeout=60_000)
    commit(wire, 8, "simple", {0: (1, "")})

    def refuse(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(_partition(broker), "append", refuse)
        assert commit(wire, 8, "simple", {0: (2, ""), 1: (3, "")}) == [code, code]
        assert join(wire, "new").error_code == code
        deleted = wire.call(ApiKey.DELETE_GROUPS, 2, groups_names=("simple",))
        assert deleted.results[0].error_code == code
        joined = join(wire, "g", member, session_timeout=60_000)
        synced = sync(wire, "g", joined, {member: ASSIGNMENT})
        assert (synced.error_code, synced.assignment) == (code, b"")
    assert fetched(wire, "simple") == 1
    assert sorted(groups(wire)) == ["g", "simple"]
    joined = join(wire, "g", member, session_timeout=60_000)
    assert sync(wire, "g", joined, {member: ASSIGNMENT}).assignment == ASSIGNMENT


# --- timers and connections -------------------------------------------------------------------------------------------


def test_a_member_that_falls_silent_is_out(wire: Wire) -> None:
    _alone(wire, "g", session_timeout=200)
    wait_until(lambda: groups(wire, "Empty") == ["g"], "its session ends")


def test_a_client_that_hangs_up_while_it_waits_does_not_disturb_the_others(broker: Broker, wire: Wire) -> None:
    leader = _alone(wire, "g", session_timeout=30_000)
    with Wire(broker.bootstrap_servers) as impatient:
        asked = join(impatient, "g")
        send_join(impatient, "g", asked.member_id, rebalance_timeout=500)
        wait_until(lambda: groups(wire, "PreparingRebalance") == ["g"], "a rebalance begins")
    joined = join(wire, "g", leader, session_timeout=30_000, rebalance_timeout=500)
    assert joined.error_code == 0
    assert {member.member_id for member in joined.members} == {leader, asked.member_id}


def test_a_close_while_members_wait_ends_their_connections(broker: Broker, wire: Wire) -> None:
    _alone(wire, "g", session_timeout=30_000)
    with Wire(broker.bootstrap_servers) as waiting:
        send_join(waiting, "g", join(waiting, "g").member_id)
        wait_until(lambda: groups(wire, "PreparingRebalance") == ["g"], "a rebalance begins")
        broker.close()
        with pytest.raises(OSError):
            waiting.receive(ApiKey.JOIN_GROUP, 9)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_requests_that_no_group_can_answer(wire: Wire) -> None:
    assert join(wire, "").error_code == 24
    assert join(wire, "g", session_timeout=0).error_code == 26
    assert join(wire, "g", session_timeout=1_800_001).error_code == 26
    assert join(wire, "g", "m").error_code == 25
    beat = {"generation_id": 1, "member_id": "m"}
    assert wire.call(ApiKey.HEARTBEAT, 4, group_id="", **beat).error_code == 24
    assert wire.call(ApiKey.HEARTBEAT, 4, group_id="none", **beat).error_code == 25
    asked = {"generation_id": 1, "member_id": "m", "protocol_type": "consumer"}
    assert wire.call(ApiKey.SYNC_GROUP, 5, group_id="none", protocol_name="range", **asked).error_code == 25
    assert wire.call(ApiKey.SYNC_GROUP, 5, group_id="none", protocol_name=None, **asked).error_code == 23
    assert wire.call(ApiKey.LEAVE_GROUP, 2, group_id="none", member_id="m").error_code == 25
    left = wire.call(ApiKey.LEAVE_GROUP, 5, group_id="none", members=[{"member_id": "m"}])
    assert (left.error_code, left.members[0].error_code) == (0, 25)
    deleted = wire.call(ApiKey.DELETE_GROUPS, 2, groups_names=("none", "none"))
    assert [result.error_code for result in deleted.results] == [69]
    assert wire.call(ApiKey.OFFSET_DELETE, 0, group_id="none", topics=()).error_code == 69


def test_commits_that_are_refused(wire: Wire) -> None:
    assert commit(wire, 9, "g", {0: (1, "x" * 4097), 1: (2, "x" * 4096), 7: (3, "")}) == [12, 0, 3]
    generation = {"generation_id_or_member_epoch": 1, "member_id": "m"}
    assert commit(wire, 9, "none", {0: (1, "")}, **generation) == [69]
    assert commit(wire, 8, "none", {0: (1, "")}, **generation) == [22]
    assert commit(wire, 9, "g", {0: (1, "")}, **generation) == [25]
    topics = [{"name": "nowhere", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    answer = wire.call(ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    assert answer.topics[0].partitions[0].error_code == 3
    assert fetched(wire, "g", 0) == -1


def test_offsets_of_a_topic_that_is_subscribed_to_are_not_deleted(wire: Wire) -> None:
    assert b"orders" in SUBSCRIPTION
    member = _alone(wire, "g", session_timeout=30_000)
    commit(wire, 9, "g", {0: (1, "")}, generation_id_or_member_epoch=1, member_id=member)
    topics = [{"name": "orders", "partitions": [{"partition_index": 0}, {"partition_index": 9}]}]
    answer = wire.call(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
    assert [part.error_code for part in answer.topics[0].partitions] == [86, 3]
    assert fetched(wire, "g") == 1


def test_share_groups_have_no_coordinator_and_the_answer_is_kafkas(wire: Wire) -> None:
    (answer,) = wire.call(ApiKey.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=("k",)).coordinators
    assert answer.error_code == 42
    assert answer.error_message == ""


# --- errors that no one expects ---------------------------------------------------------------------------------------


def test_a_groups_timer_goes_on_after_any_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that do not come back are removed, though the first turn failed."""
    monkeypatch.setattr("stratalog.broker.groups.classic_coordinator._RETRY_MS", 10)
    plain = ClassicGroup.on_time
    failures: list[str] = []

    def fails_once(self: ClassicGroup, now: Any) -> Any:
        if not failures:
            failures.append(self.group_id)
            raise RuntimeError("on purpose")
        return plain(self, now)

    with Wire(broker.bootstrap_servers) as wire:
        await_coordinator(wire)
        monkeypatch.setattr(ClassicGroup, "on_time", fails_once)
        _alone(wire, "g", session_timeout=200)
        group = broker.services.groups.classics.groups()[0]
        wait_until(lambda: failures == ["g"] and not len(list(group.members)), "the member goes")


def test_old_commits_are_looked_for_again_after_any_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    def fails(_: GroupCoordinator) -> Iterator[int]:
        turns.append(1)
        raise RuntimeError("on purpose")

    monkeypatch.setattr(GroupCoordinator, "expire", fails)
    with Broker(data_dir=tmp_path, config={**CONFIG, "offsets.retention.check.interval.ms": "1"}):
        wait_until(lambda: len(turns) > 1, "commits are looked for twice")
