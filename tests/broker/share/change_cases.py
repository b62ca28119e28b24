"""What changes under members of share groups while they read, for Kafka (which makes the golden answers) and for us."""

from __future__ import annotations

import time
from typing import Any

from tests.broker.groups.consumer_cases import WAIT_S
from tests.broker.share.fetch_cases import ACCEPT, REJECT, RELEASE, FetchTalk, of
from tests.broker.share.state_cases import StateTalk, await_coordinator
from tests.support.wire import Wire

from stratalog.wire.api_keys import ApiKey

CONFIG = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.partition.max.record.locks": "100",
    "share.coordinator.state.topic.num.partitions": "1",
}


class ChangeTalk(FetchTalk):
    def plain(self, value: Any) -> Any:
        told = super().plain(value)
        if isinstance(told, dict) and "port" in told:  # of a broker that is named
            return [told["node_id"], told["host"], told["rack"]]
        return told


def limits_change(talk: FetchTalk) -> None:
    """Fewer locks and fewer deliveries than there are already; then more of both."""
    talk.topic("limits", 90, 90, 90, group="limits")
    talk.fetch("limits: two batches", "limits", "a", 0, "limits", records=180)
    talk.configure("limits", share_partition_max_record_locks="100", share_delivery_count_limit="2")
    talk.fetch("limits: no more of them", "limits", "a", 1, wait=100)
    talk.acknowledge("limits: released", "limits", "a", 2, of("limits", (0, 99, [RELEASE])))
    talk.fetch("limits: again", "limits", "a", 3)
    talk.acknowledge("limits: released twice", "limits", "a", 4, of("limits", (0, 9, [RELEASE])))
    talk.stored("limits: some are spent", "limits", "limits")
    talk.configure("limits", share_partition_max_record_locks="4000", share_delivery_count_limit="10")
    talk.acknowledge("limits: not spent any more", "limits", "a", 5, of("limits", (10, 19, [RELEASE])))
    talk.fetch("limits: both", "limits", "a", 6)
    talk.acknowledge("limits: all", "limits", "a", 7, of("limits", (10, 269, [ACCEPT])))
    talk.stored("limits: state", "limits", "limits")


def begun_again(talk: FetchTalk) -> None:
    """The state begins elsewhere, in a later epoch, while members have records."""
    talk.topic("again", 10, 10, group="again")
    talk.fetch("again: begin", "again", "a", 0, "again", records=5)
    talk.initialize("again: elsewhere", 0, epoch=3, offset=10, group="again", topic_id=talk.id_of("again"))
    talk.acknowledge("again: what it had", "again", "a", 1, of("again", (0, 9, [ACCEPT])))
    talk.acknowledge("again: once more", "again", "a", 2, of("again", (0, 9, [ACCEPT])))
    talk.fetch("again: from there", "again", "a", 3)
    talk.acknowledge("again: all", "again", "a", 4, of("again", (10, 19, [ACCEPT])))
    talk.stored("again: state", "again", "again")
    talk.delete("again: deleted", 0, group="again", topic_id=talk.id_of("again"))
    talk.produce("again", 5)
    talk.fetch("again: without a state", "again", "a", 5, wait=2_000)
    talk.acknowledge("again: words without a state", "again", "a", 6, of("again", (20, 24, [ACCEPT])))
    talk.fetch("again: still without", "again", "a", 7, wait=100)


def strange_states(talk: FetchTalk) -> None:
    """What a writer of states may say that no leader says."""
    talk.topic("strange", 10, 10)
    states = {
        "overlapping": ((0, 5, 0, 1), (3, 9, 2, 2)),
        "acquired": ((0, 4, 1, 2), (5, 9, 0, 1)),
        "with gaps": ((2, 3, 2, 1), (8, 9, 4, 1)),
        "beyond the end": ((0, 99, 0, 1),),
        "all done": ((0, 19, 2, 1),),
        "often": ((0, 9, 0, 200),),
        "negative": ((-5, 3, 0, 1),),
    }
    for name, batches in states.items():
        group = f"strange {name}"
        talk.begin(group, "strange")
        talk.write(f"{group}: written", 0, 0, *batches, group=group, topic_id=talk.id_of("strange"))
        talk.fetch(f"{group}: begin", group, "a", 0, "strange", wait=300 if name == "all done" else 5_000)
        talk.acknowledge(f"{group}: all", group, "a", 1, of("strange", (0, 19, [ACCEPT])))
        talk.stored(f"{group}: state", group, "strange")


def made_again(talk: FetchTalk) -> None:
    """A topic is deleted and one of the same name is made: its records are others."""
    talk.topic("anew", 10, group="anew")
    talk.fetch("anew: begin", "anew", "a", 0, "anew")
    old = talk.id_of("anew")
    talk.wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"topic_id": old}], timeout=10_000)
    deadline = time.monotonic() + WAIT_S
    while "anew" in talk.names.values():
        assert time.monotonic() < deadline
        talk.names.clear()
        talk.know_topics()
    talk.topic("anew", 3)
    talk.fetch("anew: the old one", "anew", "a", 1, wait=100)
    talk.fetch("anew: the new one, not begun", "anew", "a", 2, "anew", wait=1_000)
    talk.begin("anew", "anew")
    talk.fetch("anew: the new one", "anew", "a", 3, "anew", wait=5_000)
    talk.acknowledge("anew: all", "anew", "a", 4, of("anew", (0, 2, [REJECT])))
    talk.stored("anew: state", "anew", "anew")


def isolation_changes(talk: FetchTalk) -> None:
    """An aborted and an open transaction, read by a group that changes what it wants to see."""
    wire = talk.wire
    talk.topic("iso", 3, group="iso")
    deadline = time.monotonic() + WAIT_S
    while True:
        wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["tx"])  # its topic is made then
        made = wire.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="tx", transaction_timeout=60_000, producer_id=-1,
                         producer_epoch=-1)  # fmt: skip
        if made.error_code == 0:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    producer = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}

    def add() -> None:
        while True:
            said = {"transactional_id": "tx", **producer, "topics": [{"name": "iso", "partitions": [0]}]}
            fields = {f"v3_and_below_{name}": each for name, each in said.items()}
            answer = wire.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **fields)
            if answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0:
                return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    add()
    talk.produce("iso", 4, base_sequence=0, is_transactional=True, **producer)
    wire.call(ApiKey.END_TXN, 3, transactional_id="tx", committed=False, **producer)
    add()
    talk.produce("iso", 5, base_sequence=4, is_transactional=True, **producer)
    talk.produce("iso", 2)
    talk.fetch("iso: uncommitted", "iso", "a", 0, "iso", records=4)
    talk.acknowledge("iso: released", "iso", "a", 1, of("iso", (0, 6, [RELEASE])))
    talk.configure("iso", share_isolation_level="read_committed")
    talk.fetch("iso: committed", "iso", "a", 2, wait=1_000)
    talk.fetch("iso: nothing more", "iso", "a", 3, wait=300)
    talk.stored("iso: state", "iso", "iso")
    wire.call(ApiKey.END_TXN, 3, transactional_id="tx", committed=True, **producer)
    talk.fetch("iso: the rest", "iso", "a", 4, wait=5_000, min_bytes=250)
    talk.configure("iso", share_isolation_level="read_uncommitted")
    talk.fetch("iso: all is out", "iso", "a", 5, wait=300)


def run(bootstrap_servers: str) -> dict[str, Any]:
    with Wire(bootstrap_servers) as wire:
        first = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        wire.call(ApiKey.CREATE_TOPICS, 7, topics=[first], timeout=10_000, validate_only=False)
        await_coordinator(StateTalk(wire))
        talk = ChangeTalk(wire)
        for scenario in (limits_change, begun_again, strange_states, made_again, isolation_changes):
            scenario(talk)
    return talk.answers
