"""A request of many elements is processed in turns of the loop, and its answer is written on a worker thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.wire import Wire

from stratalog.broker import loop_turns
from stratalog.broker.loop_turns import in_turns
from stratalog.broker.server import message_calls
from stratalog.broker.server.server import Broker
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
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker, Wire(broker.bootstrap_servers) as client:
        client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        client.call(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["t"])
        yield broker


@pytest.mark.parametrize(("key", "version", "values"), CASES, ids=lambda value: getattr(value, "name", None))
def test_others_have_their_turn_within_a_large_request(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, key: ApiKey, version: int, values: dict[str, Any]
) -> None:
    turns: list[threading.Thread] = []
    writers: list[str] = []
    sleep = asyncio.sleep

    class Asyncio:
        @staticmethod
        async def sleep(seconds: float) -> None:
            turns.append(threading.current_thread())
            await sleep(seconds)

    def noted(*arguments: Any) -> bytes:
        writers.append(threading.current_thread().name)
        return write_response(*arguments)

    with Wire(broker.bootstrap_servers) as client:
        client.call(key, version, **values)  # imports what it needs
        monkeypatch.setattr(loop_turns, "asyncio", Asyncio)
        monkeypatch.setattr(message_calls, "write_response", noted)
        response = client.call(key, version, **values)
        client.call(ApiKey.API_VERSIONS, 0)
    assert COUNT in _sizes_of_arrays(response)
    assert len(turns) == COUNT // loop_turns._ELEMENTS_A_TURN
    large, small = writers
    assert large.startswith("stratalog-worker")
    assert not small.startswith("stratalog-worker")


def _sizes_of_arrays(message: Any) -> Iterator[int]:
    for name in type(message).__dataclass_fields__:
        value = getattr(message, name)
        if isinstance(value, tuple) and value:
            yield len(value)
            if hasattr(value[0], "__dataclass_fields__"):
                yield from _sizes_of_arrays(value[0])


def test_few_elements_take_no_turn() -> None:
    async def first() -> list[int]:
        return [element async for element in in_turns(range(loop_turns._ELEMENTS_A_TURN - 1))]

    coroutine = first()
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value == list(range(loop_turns._ELEMENTS_A_TURN - 1))


def test_a_client_that_leaves_while_its_answer_is_written_hurts_no_one(broker: Broker) -> None:
    for _ in range(5):
        with Wire(broker.bootstrap_servers) as gone:
            gone.send(ApiKey.DESCRIBE_GROUPS, 5, groups=NAMES * 5)
    with Wire(broker.bootstrap_servers) as client:
        client.send(ApiKey.DESCRIBE_GROUPS, 5, groups=NAMES)
        client.send(ApiKey.API_VERSIONS, 0)
        assert len(client.receive(ApiKey.DESCRIBE_GROUPS, 5).groups) == COUNT
        assert client.receive(ApiKey.API_VERSIONS, 0).api_keys
