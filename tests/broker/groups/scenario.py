"""A day in the life of some groups, request by request, the same on any broker.

And what it left in `__consumer_offsets`.

The broker must be fresh, with `group.initial.rebalance.delay.ms=0` and 50 partitions of `__consumer_offsets`.
`tests/golden/groups/consumer_offsets.json` holds what Kafka 4.4.0 wrote for it.
"""

from __future__ import annotations

import time
from typing import Any

from tests.support.wire import Wire

from stratalog.wire.api_keys import ApiKey

TOPIC = "orders"
#: A consumer's subscription to TOPIC, version 1: topics, null user data, no owned partitions.
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff\x00\x00\x00\x00"
#: An assignment of partition 0 of TOPIC, version 1.
ASSIGNMENT = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 60_000


def play(bootstrap_servers: str) -> None:
    with (
        Wire(bootstrap_servers, client_id="first") as first,
        Wire(bootstrap_servers, client_id="second") as second,
    ):
        topic_id = _create_topic(first)
        await_coordinator(first)
        _simple_commits(first, topic_id)
        _one_static_member(first)
        _two_members(first, second)
        _deletions(first)


def _create_topic(wire: Wire) -> Any:
    topic = {"name": TOPIC, "num_partitions": 3, "replication_factor": 1}
    created = wire.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=30_000, validate_only=False)
    assert created.topics[0].error_code == 0, created
    return created.topics[0].topic_id


def await_coordinator(wire: Wire) -> None:
    """Ask for a coordinator until there is one; Kafka makes the topic concurrently."""
    for _ in range(300):
        found = wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("any",))
        fetched = wire.call(ApiKey.OFFSET_FETCH, 5, group_id="any", topics=None)
        if found.coordinators[0].error_code == 0 and fetched.error_code == 0:
            return
        time.sleep(0.1)
    raise AssertionError("no coordinator came up")


def commit(wire: Wire, version: int, group: str, offsets: dict[int, tuple[int, str]], **fields: Any) -> Any:
    """Commit {partition: (offset, metadata)} of TOPIC, from version 6 on with leader epoch 7."""
    epoch = {"committed_leader_epoch": 7} if version >= 6 else {}
    topic_id = fields.pop("topic_id", None)
    name = {"name": TOPIC} if topic_id is None else {"topic_id": topic_id}
    member = {"generation_id_or_member_epoch": -1, "member_id": "", **fields}
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata, **epoch}
        for index, (offset, metadata) in offsets.items()
    ]
    response = wire.call(
        ApiKey.OFFSET_COMMIT, version, group_id=group, topics=[{**name, "partitions": partitions}], **member
    )
    return [int(partition.error_code) for topic in response.topics for partition in topic.partitions]


def join(wire: Wire, group: str, member_id: str = "", **fields: Any) -> Any:
    """JoinGroup 9 as a consumer with SUBSCRIPTION."""
    send_join(wire, group, member_id, **fields)
    return wire.receive(ApiKey.JOIN_GROUP, 9)


def send_join(wire: Wire, group: str, member_id: str = "", **fields: Any) -> None:
    values = {
        "session_timeout": SESSION_TIMEOUT_MS,
        "rebalance_timeout": REBALANCE_TIMEOUT_MS,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        **fields,
    }
    wire.send(ApiKey.JOIN_GROUP, 9, group_id=group, member_id=member_id, **values)


def sync(wire: Wire, group: str, joined: Any, assignments: dict[str, bytes], **fields: Any) -> Any:
    given = [{"member_id": member, "assignment": assignment} for member, assignment in assignments.items()]
    return wire.call(
        ApiKey.SYNC_GROUP,
        5,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=given,
        **fields,
    )


def leave(wire: Wire, group: str, member_id: str, instance_id: str | None = None) -> Any:
    member = {"member_id": member_id, "group_instance_id": instance_id, "reason": "done"}
    return wire.call(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[member])


def _simple_commits(wire: Wire, topic_id: Any) -> None:
    assert commit(wire, 8, "simple", {0: (10, ""), 1: (20, "caf\u00e9")}) == [0, 0]
    assert commit(wire, 8, "simple", {0: (11, "again")}) == [0]
    assert commit(wire, 2, "expiring", {2: (5, "soon")}, retention_time=3_600_000) == [0]
    assert commit(wire, 2, "not-expiring", {2: (6, "")}, retention_time=-1) == [0]
    assert commit(wire, 10, "by-id", {0: (2**40, "id")}, topic_id=topic_id) == [0]


def _one_static_member(wire: Wire) -> None:
    group, instance = "static", {"group_instance_id": "one"}
    joined = join(wire, group, **instance)
    assert joined.error_code == 0, joined
    synced = sync(wire, group, joined, {joined.member_id: ASSIGNMENT}, **instance)
    assert synced.error_code == 0, synced
    generation = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
    assert commit(wire, 9, group, {0: (1, "m")}, group_instance_id="one", **generation) == [0]
    again = join(wire, group, **instance)  # comes back under a new id: stored, no new generation
    assert (again.error_code, again.generation_id) == (0, joined.generation_id), again
    assert leave(wire, group, "", "one").members[0].error_code == 0


def _two_members(first: Wire, second: Wire) -> None:
    group = "pair"
    asked = join(first, group)
    assert asked.error_code == 79, asked
    one = join(first, group, asked.member_id)
    assert one.error_code == 0, one
    assert sync(first, group, one, {one.member_id: ASSIGNMENT}).error_code == 0
    two = join(second, group)
    send_join(second, group, two.member_id)
    while _heartbeat(first, group, one) == 0:
        time.sleep(0.05)
    one = join(first, group, one.member_id)
    two = second.receive(ApiKey.JOIN_GROUP, 9)
    assert one.generation_id == two.generation_id, (one, two)
    leader, follower = (one, two) if one.leader == one.member_id else (two, one)
    wires = {one.member_id: first, two.member_id: second}
    shares = {leader.member_id: ASSIGNMENT}  # the follower gets nothing
    assert sync(wires[leader.member_id], group, leader, shares).error_code == 0
    assert sync(wires[follower.member_id], group, follower, {}).assignment == b""
    assert leave(first, group, one.member_id).members[0].error_code == 0
    assert leave(second, group, two.member_id).members[0].error_code == 0


def _heartbeat(wire: Wire, group: str, joined: Any) -> int:
    response = wire.call(
        ApiKey.HEARTBEAT, 4, group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
    )
    return int(response.error_code)


def _deletions(wire: Wire) -> None:
    deleted = wire.call(
        ApiKey.OFFSET_DELETE,
        0,
        group_id="simple",
        topics=[{"name": TOPIC, "partitions": [{"partition_index": 1}]}],
    )
    assert deleted.error_code == 0, deleted
    groups = wire.call(ApiKey.DELETE_GROUPS, 2, groups_names=("expiring", "static"))
    assert [int(result.error_code) for result in groups.results] == [0, 0], groups
