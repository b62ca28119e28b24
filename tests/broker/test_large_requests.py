"""A large request is worked on in turns of the loop and on worker threads, and its answer is written on one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.access import AccessControl
from stratalog.broker.large_requests import LargeRequests
from stratalog.broker.loop_turns import ELEMENTS_A_TURN, SharedTurns
from stratalog.broker.produce import LargeBatchChecks
from stratalog.broker.server import RequestContext, message_calls
from stratalog.broker.server.server import Broker
from stratalog.config import STANDARD_AUTHORIZER
from stratalog.errors import GroupAuthorizationFailedError
from stratalog.wire import ApiKey, write_response

COUNT = 1_000
NAMES = [f"name-{number}" for number in range(COUNT)]
NUMBERS = list(range(COUNT))
CASES: list[tuple[ApiKey, int, dict[str, Any]]] = [
    (ApiKey.OFFSET_FETCH, 7, {"group_id": "g", "topics": [{"name": "a", "partition_indexes": NUMBERS}]}),
    (ApiKey.OFFSET_FETCH, 9, {"groups": [{"group_id": name, "topics": []} for name in NAMES]}),
    (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": NAMES}),
    (ApiKey.DESCRIBE_GROUPS, 5, {"groups": NAMES}),
    (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {"topics": [{"topic": "a", "partitions": [{"partition": number, "leader_epoch": 0} for number in NUMBERS]}]},
    ),
    (ApiKey.DELETE_GROUPS, 2, {"groups_names": NAMES}),
    (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "a", "partition_indexes": NUMBERS}]}),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": NAMES}),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": NAMES, "include_authorized_operations": False}),
    (ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": NAMES, "include_authorized_operations": False}),
    (ApiKey.DELETE_TOPICS, 4, {"topic_names": NAMES, "timeout": 1000}),
    (
        ApiKey.ELECT_LEADERS,
        2,
        {"election_type": 0, "topic_partitions": [{"topic": "a", "partitions": NUMBERS}], "timeout": 1000},
    ),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": [{"name": "a", "partitions": [{"partition_index": n, "replicas": [0]} for n in NUMBERS]}]},
    ),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": name} for name in NAMES]}),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, {"groups": [{"group_id": name, "topics": []} for name in NAMES]}),
    (ApiKey.STREAMS_GROUP_DESCRIBE, 0, {"group_ids": NAMES, "include_authorized_operations": False}),
    (ApiKey.METADATA, 9, {"topics": [{"name": name} for name in NAMES], "allow_auto_topic_creation": False}),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": name} for name in NAMES]}),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"topics": [{"topic": name, "partitions": []} for name in NAMES]}),
    (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": name, "partition_indexes": []} for name in NAMES]}),
    (
        ApiKey.CREATE_PARTITIONS,
        3,
        {"topics": [{"name": name, "count": 2} for name in NAMES], "timeout": 1000, "validate_only": True},
    ),
    (
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        {
            "transactional_id": "t",
            "group_id": "g",
            "producer_id": 1,
            "producer_epoch": 0,
            "topics": [{"name": "a", "partitions": [{"partition_index": n, "committed_offset": 1} for n in NUMBERS]}],
        },
    ),
]
#: Requests whose work is on worker threads.
BESIDE: list[tuple[ApiKey, int, dict[str, Any]]] = [
    (ApiKey.LEAVE_GROUP, 4, {"group_id": "g", "members": [{"member_id": name} for name in NAMES]}),
    (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {
            "v3_and_below_transactional_id": "t",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": "a", "partitions": NUMBERS * 2}, {"name": "b", "partitions": NUMBERS}],
        },
    ),
    (
        ApiKey.OFFSET_DELETE,
        0,
        {"group_id": "g", "topics": [{"name": "a", "partitions": [{"partition_index": n} for n in NUMBERS * 2]}]},
    ),
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": name}], "ops": []} for name in NAMES],
            "validate_only": True,
        },
    ),
    (
        ApiKey.CREATE_ACLS,
        3,
        {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": name,
                    "resource_pattern_type": 3,
                    "principal": "User:a",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
                for name in NAMES
            ]
        },
    ),
    (
        ApiKey.DELETE_ACLS,
        3,
        {
            "filters": [
                {
                    "resource_type_filter": 2,
                    "resource_name_filter": name,
                    "pattern_type_filter": 3,
                    "operation": 3,
                    "permission_type": 3,
                }
                for name in NAMES
            ]
        },
    ),
    # More partitions than a request may create: each topic is refused.
    (
        ApiKey.CREATE_TOPICS,
        5,
        {
            "topics": [{"name": name, "num_partitions": 20, "replication_factor": 1} for name in NAMES],
            "timeout": 1000,
            "validate_only": True,
        },
    ),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker, Wire(broker.bootstrap_servers) as client:
        client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        client.call(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["t"])
        topic = {"name": "known", "num_partitions": 1, "replication_factor": 1}
        client.call(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout=30_000)
        committed = {"name": "known", "partitions": [{"partition_index": 0, "committed_offset": 0}]}
        client.call(ApiKey.OFFSET_COMMIT, 7, group_id="g", generation_id_or_member_epoch=-1, topics=[committed])
        yield broker


@pytest.mark.parametrize(("key", "version", "values"), CASES, ids=lambda value: getattr(value, "name", None))
def test_others_have_their_turn_within_a_large_request(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, key: ApiKey, version: int, values: dict[str, Any]
) -> None:
    turns: list[SharedTurns] = []
    writers: list[str] = []
    wait = SharedTurns.next

    async def noted_turn(given: SharedTurns, order: int | None = None) -> int:
        turns.append(given)
        return await wait(given, order)

    def noted(*arguments: Any) -> bytes:
        writers.append(threading.current_thread().name)
        return write_response(*arguments)

    with Wire(broker.bootstrap_servers) as client:
        client.call(key, version, **values)  # imports what it needs
        monkeypatch.setattr(SharedTurns, "next", noted_turn)
        monkeypatch.setattr(message_calls, "write_response", noted)
        response = client.call(key, version, **values)
        client.call(ApiKey.API_VERSIONS, 0)
    assert len(turns) == COUNT // ELEMENTS_A_TURN
    if key in (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        return  # an answer in parts that are written one by one
    assert COUNT in _sizes_of_arrays(response)
    large, small = writers
    assert large.startswith("stratalog-worker")
    assert not small.startswith("stratalog-worker")


@pytest.mark.parametrize(("key", "version", "values"), BESIDE, ids=lambda value: getattr(value, "name", None))
def test_a_large_request_is_worked_on_beside_the_loop(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, key: ApiKey, version: int, values: dict[str, Any]
) -> None:
    makers: list[str] = []
    make = RequestContext.make

    def noted(ctx: RequestContext, name: str, /, **fields: Any) -> Any:
        makers.append(threading.current_thread().name)
        return make(ctx, name, **fields)

    with Wire(broker.bootstrap_servers) as client:
        client.call(key, version, **values)  # imports what it needs
        monkeypatch.setattr(RequestContext, "make", noted)
        client.call(key, version, **values)
    assert len(makers) >= COUNT
    assert {name.rsplit("_", 1)[0] for name in makers} == {"stratalog-worker"}


def test_large_requests_wait_unread_until_others_are_answered() -> None:
    begun: list[str] = []

    def start(name: str) -> Callable[[], bool]:
        return lambda: begun.append(name) is None and name != "gone"

    large = LargeRequests(at_once_bytes=100)
    large.begin(500, start("larger than all"))
    large.begin(60, start("a"))
    large.begin(30, start("gone"))
    large.begin(40, start("b"))
    large.begin(10, start("c"))
    assert begun == ["larger than all"]
    large.end(500)
    assert begun[1:] == ["a", "gone", "b"]
    large.end(60)
    assert begun[4:] == ["c"]
    large.end(40)
    large.end(10)
    large.begin(500, start("the next"))
    assert begun[5:] == ["the next"]


def test_requests_of_many_clients_are_all_answered(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.services.large_requests, "_at_once_bytes", 50_000)
    names = [f"{name}-{'x' * 40}" for name in NAMES]
    with ExitStack() as stack:
        clients = [stack.enter_context(Wire(broker.bootstrap_servers)) for _ in range(8)]
        leaving = [stack.enter_context(Wire(broker.bootstrap_servers)) for _ in range(4)]
        for client in (*leaving, *clients):
            client.send(ApiKey.DESCRIBE_GROUPS, 5, groups=names)
        for client in leaving:
            client.close()
        for client in clients:
            assert len(client.receive(ApiKey.DESCRIBE_GROUPS, 5).groups) == COUNT
    wait_until(lambda: not broker.services.large_requests._begun_bytes, "the last one has ended")
    assert broker.services.large_batches.has_room(1 << 40)


def test_without_memory_for_copies_a_request_is_answered_in_one_piece(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_turns: SharedTurns, _order: int | None = None) -> int:
        raise AssertionError("others had their turn")

    names = [f"{name}-{'x' * 40}" for name in NAMES]
    with Wire(broker.bootstrap_servers) as client:
        expected = client.call(ApiKey.DESCRIBE_GROUPS, 5, groups=names)
        monkeypatch.setattr(SharedTurns, "next", never)
        monkeypatch.setattr(LargeBatchChecks, "has_room", lambda _checks, _size: False)
        assert client.call(ApiKey.DESCRIBE_GROUPS, 5, groups=names) == expected


def test_access_is_checked_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    allows = AccessControl.allows

    def noted(control: AccessControl, *arguments: Any, **options: Any) -> bool:
        threads.append(threading.current_thread().name.rsplit("_", 1)[0])
        return allows(control, *arguments, **options)

    monkeypatch.setattr(AccessControl, "allows", noted)
    config = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:other"}
    with Broker(tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as client:
        client.call(ApiKey.DESCRIBE_GROUPS, 5, groups=["one"])
        assert set(threads) == {"stratalog-broker"}
        threads.clear()
        groups = client.call(ApiKey.DESCRIBE_GROUPS, 5, groups=NAMES).groups
        assert [group.error_code for group in groups] == [GroupAuthorizationFailedError.code] * COUNT
        assert len(threads) == COUNT
        assert set(threads) == {"stratalog-worker"}


def _sizes_of_arrays(message: Any) -> Iterator[int]:
    for name in type(message).__dataclass_fields__:
        value = getattr(message, name)
        if isinstance(value, tuple) and value:
            yield len(value)
            if hasattr(value[0], "__dataclass_fields__"):
                yield from _sizes_of_arrays(value[0])


def test_few_elements_take_no_turn(broker: Broker) -> None:
    few = range(ELEMENTS_A_TURN - 1)

    async def first(ctx: RequestContext) -> list[int]:
        return [element async for element in ctx.in_turns(few)]

    coroutine = first(RequestContext(broker.services, ApiKey.METADATA, 9))
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value == list(few)


def test_the_oldest_large_request_continues_first() -> None:
    done: list[str] = []

    async def work(name: str, turns: SharedTurns) -> None:
        order: int | None = None
        for number in range(3):
            order = await turns.next(order)
            done.append(f"{name}{number}")

    async def all_of_them() -> list[int]:
        turns = SharedTurns(asyncio.get_running_loop())
        works = [asyncio.ensure_future(work(name, turns)) for name in "abc"]
        given_up = asyncio.ensure_future(work("x", turns))
        await asyncio.sleep(0)
        given_up.cancel()
        counts = []
        while not all(each.done() for each in works):
            before = len(done)
            await asyncio.sleep(0)
            counts.append(len(done) - before)
        return counts

    counts = asyncio.run(all_of_them())
    assert max(counts) == 1
    assert done == [f"{name}{number}" for name in "abc" for number in range(3)]


def test_a_client_that_leaves_while_its_answer_is_written_hurts_no_one(broker: Broker) -> None:
    for _ in range(5):
        with Wire(broker.bootstrap_servers) as gone:
            gone.send(ApiKey.DESCRIBE_GROUPS, 5, groups=NAMES * 5)
    with Wire(broker.bootstrap_servers) as client:
        client.send(ApiKey.DESCRIBE_GROUPS, 5, groups=NAMES)
        client.send(ApiKey.API_VERSIONS, 0)
        assert len(client.receive(ApiKey.DESCRIBE_GROUPS, 5).groups) == COUNT
        assert client.receive(ApiKey.API_VERSIONS, 0).api_keys
