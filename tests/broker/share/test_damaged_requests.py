"""Requests of share groups, cut at each byte and with each byte flipped: no error of our own, and all goes on.

They name a topic, a group, a member and a session that are there, so that most of them get far.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.frames import request_frame
from tests.broker.share.fetch_cases import CONFIG, FetchTalk, of
from tests.broker.test_torture_of_the_wire import assert_serves, connect, end, open_connections, own_errors
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.wire.api_keys import ApiKey

KEYS = [each for each in ApiKey if 76 <= each <= 79 or 83 <= each <= 87 or 90 <= each <= 92]
#: By default one byte of so many is damaged.
SAMPLE = 11


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = {**CONFIG, "socket.request.max.bytes": "10000"}
    with Broker(data_dir=tmp_path_factory.mktemp("data"), config=config) as broker:
        broker.services.topics.create("good", 1)
        with Wire(broker.bootstrap_servers) as wire:
            FetchTalk(wire).topic("t", 10, 10, group="g")
        yield broker


def asked_of(topic_id: Any) -> dict[tuple[ApiKey, int], dict[str, Any]]:
    """Each request of share groups, in its highest version."""
    acknowledged = {"first_offset": 0, "last_offset": 3, "acknowledge_types": [1, 2, 3, 0]}
    part = {"partition_index": 0, "acknowledgement_batches": [acknowledged]}
    session = {"group_id": "g", "member_id": "m", "share_session_epoch": 1,
               "topics": [{"topic_id": topic_id, "partitions": [part]}]}  # fmt: skip

    def states(**fields: Any) -> dict[str, Any]:
        return {"group_id": "g", "topics": [{"topic_id": topic_id, "partitions": [{"partition": 0, **fields}]}]}

    batch = {"first_offset": 0, "last_offset": 9, "delivery_state": 3, "delivery_count": 1}
    written = {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "delivery_complete_count": 1,
               "state_batches": [batch]}  # fmt: skip
    offset = {"partition_index": 0, "start_offset": 5}
    return {
        (ApiKey.SHARE_GROUP_HEARTBEAT, 1): {"group_id": "h", "member_id": "m" * 22, "member_epoch": 0, "rack_id": None,
                                            "subscribed_topic_names": ["t"]},
        (ApiKey.SHARE_GROUP_DESCRIBE, 1): {"group_ids": ["g", "h"], "include_authorized_operations": True},
        (ApiKey.SHARE_FETCH, 2): {**session, "max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "max_records": 5,
                                  "batch_size": 5, "share_acquire_mode": 0, "is_renew_ack": False,
                                  "forgotten_topics_data": [{"topic_id": topic_id, "partitions": [1]}]},
        (ApiKey.SHARE_ACKNOWLEDGE, 2): {**session, "is_renew_ack": False},
        (ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0): states(state_epoch=0, start_offset=0),
        (ApiKey.READ_SHARE_GROUP_STATE, 0): states(leader_epoch=0),
        (ApiKey.WRITE_SHARE_GROUP_STATE, 1): states(**written),
        (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1): states(leader_epoch=0),
        (ApiKey.DELETE_SHARE_GROUP_STATE, 0): states(),
        (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1): {
            "groups": [{"group_id": "g", "topics": [{"topic_name": "t", "partitions": [0]}]}]},
        (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0): {
            "group_id": "i", "topics": [{"topic_name": "t", "partitions": [offset]}]},
        (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0): {"group_id": "i", "topics": [{"topic_name": "t"}]},
    }  # fmt: skip


def frames(body: bytes, begin: int, step: int) -> Iterator[bytes]:
    """A request cut at bytes, once with its size and once with that of what is left, and with these bytes flipped."""
    whole = struct.pack(">i", len(body)) + body
    for position in range(8 + begin, len(body), step):
        yield whole[: 4 + position]
        yield struct.pack(">i", position) + body[:position]
        for flip in (0xFF, 0x80, 0x01):
            flipped = bytearray(whole)
            flipped[4 + position] ^= flip
            yield bytes(flipped)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_what_is_cut_or_flipped_harms_no_client(broker: Broker, caplog: pytest.LogCaptureFixture, key: ApiKey) -> None:
    _damage(broker, caplog, key, int(key) % SAMPLE, SAMPLE)


@pytest.mark.soak
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_what_is_cut_or_flipped_anywhere_harms_no_client(
    broker: Broker, caplog: pytest.LogCaptureFixture, key: ApiKey
) -> None:
    _damage(broker, caplog, key, 0, 1)


def _damage(broker: Broker, caplog: pytest.LogCaptureFixture, key: ApiKey, begin: int, step: int) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        talk = FetchTalk(wire)
        talk.know_topics()
        (version, fields) = next((at[1], said) for at, said in asked_of(talk.id_of("t")).items() if at[0] is key)
        body = bytes(request_frame(key, version, fields))
        for number, frame in enumerate(frames(body, begin, step)):
            if number % 50 == 0:
                talk.delete("forget", 0, group="g", topic_id=talk.id_of("t"))  # a flipped epoch may be beyond all
                talk.begin("g", "t")
                talk.fetch("open", "g", "m", 0, "t", wait=0, min_bytes=0)
                talk.answers.clear()
            sock = connect(broker)
            sock.sendall(frame)
            end(sock)
    assert_serves(broker)
    wait_until(lambda: open_connections() == 0, "the connections to go")
    assert own_errors(caplog) == []
    with Wire(broker.bootstrap_servers) as wire:
        talk = FetchTalk(wire)
        talk.know_topics()
        group = f"after {key.name} {step}"
        talk.begin(group, "t")
        talk.fetch("begin", group, "a", 0, "t")
        answer = talk.acknowledge("all", group, "a", 1, of("t", (0, 9, [1])))
        assert answer.error_code == 0
