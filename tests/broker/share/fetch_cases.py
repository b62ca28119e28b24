"""Conversations about records of share groups, for Kafka (which makes the golden answers) and for us.

A member is an id that a client made up: the leader of a partition asks nothing of the group. States are begun by
`InitializeShareGroupState`, which is what the group coordinator does. Answers are as JSON has them: records as the
offsets of their batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from tests.broker.groups.consumer_cases import WAIT_S
from tests.broker.share.state_cases import StateTalk, await_coordinator
from tests.support.wire import Wire

from stratalog.records import build_batch, iter_batches
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

#: Short locks, and few sessions.
CONFIG = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.size": "60",
    "group.share.max.share.sessions": "60",
    "share.coordinator.state.topic.num.partitions": "1",
}
GROUP_CONFIG, TOPIC_CONFIG = 32, 2
_FETCH, _ACK = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE
UNKNOWN = UUID("11111111-2222-3333-4444-555555555555")
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LIMIT_REACHED = 133

Ack = tuple[int, int, Sequence[int]]


class FetchTalk(StateTalk):
    """A conversation of members with the leader of partitions."""

    def plain(self, value: Any) -> Any:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return [[batch.base_offset, batch.last_offset] for batch in iter_batches(bytes(value))]
        return super().plain(value)

    # --- what there is ------------------------------------------------------------------------------------------------

    def topic(self, name: str, *batches: int, partitions: int = 1, group: str | None = None, offset: int = 0) -> None:
        """A topic of that name with batches of so many records, and a group that begins with it."""
        made = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        self.wire.call(ApiKey.CREATE_TOPICS, 7, topics=[made], timeout=10_000, validate_only=False)
        deadline = time.monotonic() + WAIT_S
        while name not in self.names.values():
            assert time.monotonic() < deadline, f"{name} is not known"
            time.sleep(0.02)
            self.know_topics()
        for partition in range(partitions):
            self.produce(name, *batches, partition=partition)
            if group is not None:
                self.begin(group, name, partition=partition, offset=offset)

    def begin(self, group: str, topic: str, partition: int = 0, offset: int = 0) -> None:
        begun = {"partition": partition, "state_epoch": 0, "start_offset": offset}
        topics = [{"topic_id": self.id_of(topic), "partitions": [begun]}]
        deadline = time.monotonic() + WAIT_S
        while True:  # the coordinator may hear of a topic later than others
            answer = self.wire.call(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, group_id=group, topics=topics)
            if answer.results[0].partitions[0].error_code == 0:
                return
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)

    def produce(self, topic: str, *batches: int, partition: int = 0, size: int = 10, **more: Any) -> None:
        for count in batches:
            records = build_batch([Record(at, 1_000, None, bytes(size)) for at in range(count)], **more)
            data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
            transactional_id = "tx" if "is_transactional" in more else None
            deadline = time.monotonic() + WAIT_S
            while True:  # the leader of a new topic may hear of it later than others
                answer = self.wire.call(ApiKey.PRODUCE, 9, acks=-1, timeout=10_000, topic_data=data,
                                        transactional_id=transactional_id)  # fmt: skip
                if answer.responses[0].partition_responses[0].error_code == 0:
                    break
                assert time.monotonic() < deadline, answer
                time.sleep(0.02)

    def warm_up(self, group: str, *topics: Any) -> None:
        """Let the leader read what is known of a group, which it does in the background, and hand out nothing."""
        self.fetch("warm", group, "warm", 0, *topics, wait=400, min_bytes=100_000, records=-1)
        del self.answers["warm"]
        self.fetch("warm", group, "warm", -1)
        del self.answers["warm"]

    def configure(self, group: str, **configs: str) -> None:
        """Set configs of a group, with `_` for each dot."""
        entries = [
            {"name": name.replace("_", "."), "config_operation": 0, "value": value} for name, value in configs.items()
        ]
        resource = {"resource_type": GROUP_CONFIG, "resource_name": group, "configs": entries}
        answer = self.wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        assert answer.responses[0].error_code == 0, answer
        time.sleep(0.3)  # it is applied in the background

    # --- requests -----------------------------------------------------------------------------------------------------

    def fetch(self, step: str, group: str | None, member: str | None, epoch: int, /, *topics: Any, **more: Any) -> Any:
        version = more.pop("version", 2)
        forgotten = more.pop("forgotten", ())
        fields: dict[str, Any] = {
            "max_wait": more.pop("wait", 5_000),
            "min_bytes": more.pop("min_bytes", 1),
            "max_bytes": more.pop("max_bytes", 1 << 20),
            "max_records": more.pop("records", 500),
            "batch_size": more.pop("batch", 500),
        }
        if version >= 2:
            fields["share_acquire_mode"] = more.pop("mode", 0)
            fields["is_renew_ack"] = more.pop("renew", False)
        assert not more, more
        return self.ask(
            step,
            _FETCH,
            version,
            group_id=group,
            member_id=member,
            share_session_epoch=epoch,
            topics=[self._asked(*self._parts(topic)) for topic in topics],
            forgotten_topics_data=[
                {"topic_id": self._id(name), "partitions": list(partitions)} for name, *partitions in forgotten
            ],
            **fields,
        )

    def acknowledge(
        self, step: str, group: str | None, member: str | None, epoch: int, /, *topics: Any, **more: Any
    ) -> Any:
        version = more.pop("version", 2)
        fields = {"is_renew_ack": more.pop("renew", False)} if version >= 2 else {}
        assert not more, more
        asked = [self._asked(*self._parts(topic)) for topic in topics]
        return self.ask(
            step, _ACK, version, group_id=group, member_id=member, share_session_epoch=epoch, topics=asked, **fields
        )

    def _id(self, name: str) -> UUID:
        return UNKNOWN if name == "unknown" else self.id_of(name)

    @staticmethod
    def _parts(topic: Any) -> tuple[str, dict[int, Sequence[Ack]]]:
        """A topic by its name, by name and partition, or by name and what is said of each partition."""
        if isinstance(topic, str):
            return topic, {0: ()}
        name, *rest = topic
        if rest and isinstance(rest[0], dict):
            return name, rest[0]
        return name, dict.fromkeys(rest, ())

    def _asked(self, name: str, partitions: dict[int, Sequence[Ack]]) -> dict[str, Any]:
        parts = [
            {
                "partition_index": number,
                "acknowledgement_batches": [
                    {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
                    for first, last, types in acks
                ],
            }
            for number, acks in partitions.items()
        ]
        return {"topic_id": self._id(name), "partitions": parts}

    def stored(self, step: str, group: str, topic: str, partition: int = 0) -> None:
        """What the coordinator knows: start offset and how many are done."""
        self.about(step, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, partition, group=group, leader_epoch=0,
                   topic_id=self.id_of(topic))  # fmt: skip


def of(topic: str, *acks: Ack, partition: int = 0) -> tuple[str, dict[int, Sequence[Ack]]]:
    """What is said of records of one partition."""
    return topic, {partition: acks}


# --- scenarios --------------------------------------------------------------------------------------------------------


def what_is_refused(talk: FetchTalk) -> None:
    talk.topic("refused", 10, group="refused")
    talk.topic("not-begun", 10)
    talk.fetch("refused: no group", None, "m", 0, "refused")
    talk.fetch("refused: an empty group", "", "m", 0)
    talk.fetch("refused: no member", "refused", None, 0, "refused")
    talk.fetch("refused: an empty member", "refused", "", 0, "refused")
    talk.fetch("refused: 37 characters", "refused", "m" * 37, 0, "refused")
    talk.fetch("refused: 36 characters", "refused", "m" * 36, 0)
    talk.fetch("refused: no session", "refused", "m", 1, "refused")
    talk.fetch("refused: close no session", "refused", "m", -1)
    talk.fetch("refused: acknowledge at first", "refused", "m", 0, of("refused", (0, 1, [ACCEPT])))
    talk.fetch("refused: an unknown id", "refused", "m", 0, "unknown", "refused", records=2, wait=5_000)
    talk.fetch("refused: an unknown id again", "refused", "m", 1, wait=100)
    talk.fetch("refused: an unknown partition", "refused", "m", 2, ("refused", 7), wait=100)
    talk.fetch("refused: not begun", "refused", "m", 3, "not-begun", forgotten=[("refused", 0, 7)], wait=2_000)
    talk.fetch("refused: an earlier epoch", "refused", "m", 3)
    talk.fetch("refused: a later epoch", "refused", "m", 9)
    talk.fetch("refused: begin again", "refused", "m", 0, "not-begun", wait=2_000)
    talk.fetch("refused: only a wrong partition", "refused", "m", 0, ("refused", -1))
    talk.fetch("refused: v1", "refused", "m", 0, ("refused", 7), version=1)
    talk.acknowledge("refused: no group acknowledges", None, "m", 1)
    talk.acknowledge("refused: no member acknowledges", "refused", "", 1)
    talk.acknowledge("refused: acknowledge in epoch 0", "refused", "m", 0)
    talk.acknowledge("refused: acknowledge without session", "refused", "n", 1)
    talk.acknowledge("refused: close without session", "refused", "n", -1)
    talk.acknowledge("refused: acknowledge in another epoch", "refused", "m", 5)
    talk.acknowledge("refused: nothing", "refused", "m", 1)
    talk.acknowledge(
        "refused: acknowledge what is unknown",
        "refused",
        "m",
        2,
        of("unknown", (0, 0, [1])),
        of("refused", (0, 0, [1]), partition=7),
        of("not-begun", (0, 0, [1])),
    )
    talk.acknowledge("refused: no batches", "refused", "m", 3, "refused", version=1)
    talk.fetch("refused: renew with other wishes", "refused", "m", 4, renew=True)
    talk.fetch("refused: renew", "refused", "m", 4, renew=True, wait=0, min_bytes=0, max_bytes=0, records=0)
    talk.fetch("refused: close with partitions", "refused", "m", -1, "refused")
    talk.fetch("refused: closed", "refused", "m", 6)


def a_life(talk: FetchTalk) -> None:
    talk.topic("life", 10, 10, 10, group="life")
    talk.fetch("life: begin", "life", "a", 0, "life")
    talk.fetch("life: nothing new", "life", "a", 1, wait=100)
    talk.fetch("life: another", "life", "b", 0, "life", wait=100)
    talk.acknowledge("life: accept a batch", "life", "a", 2, of("life", (0, 9, [ACCEPT])))
    talk.stored("life: state 1", "life", "life")
    talk.acknowledge("life: again", "life", "a", 3, of("life", (0, 9, [ACCEPT])))
    talk.acknowledge("life: of another", "life", "b", 1, of("life", (10, 12, [ACCEPT])))
    talk.acknowledge("life: too far", "life", "a", 4, of("life", (25, 30, [ACCEPT])))
    talk.acknowledge("life: behind all", "life", "a", 5, of("life", (30, 31, [ACCEPT])))
    kinds = [ACCEPT, RELEASE, REJECT, GAP, ACCEPT]
    talk.acknowledge("life: one type each", "life", "a", 6, of("life", (10, 14, kinds)))
    talk.stored("life: state 2", "life", "life")
    talk.acknowledge("life: one type each again", "life", "a", 7, of("life", (10, 14, kinds)))
    talk.acknowledge("life: two partly", "life", "a", 8, of("life", (14, 16, [ACCEPT])))
    talk.fetch("life: b has what was released", "life", "b", 2)
    talk.acknowledge("life: b's by a", "life", "a", 9, of("life", (11, 11, [ACCEPT])))
    talk.fetch("life: with a fetch", "life", "a", 10, of("life", (15, 19, [RELEASE]), (20, 21, [ACCEPT])))
    talk.fetch(
        "life: wrongly with a fetch", "life", "a", 11, of("life", (15, 15, [ACCEPT]), (11, 11, [ACCEPT])), wait=100
    )
    talk.fetch("life: all is well again", "life", "a", 12, of("life", (15, 16, [ACCEPT])), wait=100)
    talk.produce("life", 5)
    talk.fetch("life: new ones", "life", "b", 3, of("life", (11, 11, [ACCEPT])))
    talk.acknowledge("life: a closes with a word", "life", "a", -1, of("life", (17, 18, [ACCEPT])))
    talk.fetch("life: what a had", "life", "b", 4, wait=1000)
    talk.fetch("life: b closes with a word", "life", "b", -1, of("life", (17, 18, [ACCEPT]), (30, 34, [REJECT])))
    talk.stored("life: state 3", "life", "life")
    talk.fetch("life: what b had", "life", "c", 0, "life", wait=1000, version=1)
    talk.stored("life: state 4", "life", "life")


def wrong_batches(talk: FetchTalk) -> None:
    talk.topic("wrong", 10, group="wrong")
    talk.fetch("wrong: begin", "wrong", "a", 0, "wrong")
    cases: dict[str, Sequence[Ack]] = {
        "backwards": [(5, 4, [ACCEPT])],
        "overlapping": [(2, 3, [ACCEPT]), (1, 4, [ACCEPT])],
        "touching": [(0, 1, [RENEW]), (1, 1, [RENEW])],
        "no types": [(0, 1, [])],
        "too few types": [(0, 2, [ACCEPT, ACCEPT])],
        "too many types": [(0, 0, [ACCEPT, ACCEPT])],
        "type 5": [(0, 0, [5])],
        "type -1": [(0, 0, [-1])],
        "renew unannounced": [(0, 0, [RENEW])],
        "in part": [(0, 0, [ACCEPT]), (20, 20, [ACCEPT])],
        "negative": [(-5, -1, [ACCEPT])],
    }
    for at, (name, acks) in enumerate(cases.items(), 1):
        talk.acknowledge(f"wrong: {name}", "wrong", "a", at, of("wrong", *acks))
    talk.acknowledge("wrong: renew in v1", "wrong", "a", 12, of("wrong", (0, 0, [RENEW])), version=1)
    talk.acknowledge("wrong: all is still here", "wrong", "a", 13, of("wrong", (0, 9, [ACCEPT])))


def limits(talk: FetchTalk) -> None:
    talk.topic("limits", 10, 10, 10, 10, 10, group="limits")
    talk.begin("strict", "limits")
    talk.begin("pieces", "limits")
    talk.fetch("limits: 1 record", "limits", "a", 0, "limits", records=1)
    talk.fetch("limits: 15 records", "limits", "a", 1, records=15)
    talk.fetch("limits: none", "limits", "a", 2, records=0)
    talk.fetch("limits: negative", "limits", "a", 3, records=-1, wait=100)
    talk.fetch("limits: no bytes", "limits", "a", 4, max_bytes=0)
    talk.fetch("limits: 1 byte", "limits", "a", 5, max_bytes=1)
    talk.fetch("limits: more than there is", "limits", "a", 6, min_bytes=100_000, max_bytes=200_000, wait=100)
    talk.fetch("limits: the rest", "limits", "a", 7, wait=100)
    talk.fetch("strict: 4 records", "strict", "a", 0, "limits", records=4, mode=1)
    talk.fetch("strict: 12 records", "strict", "a", 1, records=12, mode=1)
    talk.acknowledge("strict: release", "strict", "a", 2, of("limits", (2, 12, [RELEASE])))
    talk.fetch("strict: 3 of these", "strict", "a", 3, records=3, mode=1)
    talk.fetch("strict: more of these", "strict", "b", 0, "limits", records=9, mode=1)
    talk.fetch("strict: softly", "strict", "b", 1, records=9)
    talk.stored("strict: state", "strict", "limits")
    talk.fetch("strict: mode 2", "strict", "b", 2, mode=2)
    talk.fetch("pieces: of 15", "pieces", "a", 0, "limits", batch=15)
    talk.acknowledge("pieces: release", "pieces", "a", 1, of("limits", (0, 49, [RELEASE])))
    talk.fetch("pieces: again", "pieces", "a", 2, batch=15)
    talk.acknowledge("pieces: release some", "pieces", "a", 3, of("limits", (5, 7, [RELEASE]), (8, 22, [RELEASE])))
    talk.fetch("pieces: only 5", "pieces", "a", 4, records=5)
    talk.fetch("pieces: the others", "pieces", "a", 5, batch=0)


def in_flight(talk: FetchTalk) -> None:
    talk.topic("flight", 90, 90, 10, group="flight")
    talk.configure("flight", share_partition_max_record_locks="100")
    talk.fetch("flight: begin", "flight", "a", 0, "flight")
    talk.fetch("flight: enough", "flight", "a", 1, wait=100)
    talk.acknowledge("flight: release some", "flight", "a", 2, of("flight", (50, 59, [RELEASE])))
    talk.fetch("flight: these again", "flight", "a", 3)
    talk.acknowledge("flight: accept in the middle", "flight", "a", 4, of("flight", (60, 149, [ACCEPT])))
    talk.fetch("flight: still enough", "flight", "a", 5, wait=100)
    talk.acknowledge("flight: accept the first", "flight", "a", 6, of("flight", (0, 59, [ACCEPT])))
    talk.fetch("flight: go on", "flight", "a", 7)


def deliveries(talk: FetchTalk) -> None:
    talk.topic("often", 20, group="often")
    talk.fetch("often: 0", "often", "a", 0, "often")
    epoch = 1
    for turn in range(1, 14):
        talk.acknowledge(f"often: release {turn}", "often", "a", epoch, of("often", (0, 19, [RELEASE])))
        talk.fetch(f"often: {turn}", "often", "a", epoch + 1)
        epoch += 2
    talk.stored("often: state", "often", "often")
    talk.topic("twice", 10, group="twice")
    talk.configure("twice", share_delivery_count_limit="2")
    talk.fetch("twice: 0", "twice", "a", 0, "twice")
    for turn in range(1, 4):
        talk.acknowledge(f"twice: release {turn}", "twice", "a", 2 * turn - 1, of("twice", (0, 9, [RELEASE])))
        talk.fetch(f"twice: {turn}", "twice", "a", 2 * turn, wait=5_000 if turn == 1 else 100)
    talk.stored("twice: state", "twice", "twice")


def locks(talk: FetchTalk) -> None:
    talk.topic("locks", 10, group="locks")
    talk.configure("locks", share_record_lock_duration_ms="1500")
    talk.fetch("locks: begin", "locks", "a", 0, "locks")
    talk.fetch("locks: at their end", "locks", "b", 0, "locks", wait=10_000)
    talk.acknowledge("locks: too late", "locks", "a", 1, of("locks", (0, 9, [ACCEPT])))
    talk.configure("locks", share_record_lock_duration_ms="20000")
    some = of("locks", (0, 0, [RENEW]), (1, 3, [ACCEPT]))
    talk.acknowledge("locks: renew", "locks", "b", 1, some, renew=True)
    time.sleep(1.8)  # until the locks of all others are over
    talk.fetch("locks: what was not renewed", "locks", "c", 0, "locks", wait=10_000)
    talk.fetch("locks: what was renewed", "locks", "c", 1, wait=10)
    talk.stored("locks: state", "locks", "locks")
    nothing = {"wait": 0, "min_bytes": 0, "max_bytes": 0, "records": 0}
    talk.fetch("locks: renew with a fetch", "locks", "c", 2, of("locks", (4, 5, [RENEW])), renew=True, **nothing)
    talk.configure("locks", share_renew_acknowledge_enable="false")
    talk.acknowledge("locks: not to be renewed", "locks", "c", 3, of("locks", (4, 4, [RENEW])), renew=True)


def transactions(talk: FetchTalk) -> None:
    talk.topic("tx", 3, group="tx")
    talk.begin("tx-all", "tx")
    talk.configure("tx", share_isolation_level="read_committed")
    wire = talk.wire
    wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["tx"])
    deadline = time.monotonic() + WAIT_S
    while True:
        made = wire.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="tx", transaction_timeout=60_000, producer_id=-1,
                         producer_epoch=-1)  # fmt: skip
        if made.error_code == 0:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    producer = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}

    def transact(sequence: int, count: int, *, committed: bool, end: bool = True) -> None:
        added = [{"name": "tx", "partitions": [0]}]
        while True:
            answer = wire.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **{f"v3_and_below_{name}": each for name, each in (
                ("transactional_id", "tx"), *producer.items(), ("topics", added))})  # fmt: skip
            if answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0:
                break
            time.sleep(0.02)  # the transaction before is still ending
        talk.produce("tx", count, base_sequence=sequence, is_transactional=True, **producer)
        if end:
            wire.call(ApiKey.END_TXN, 3, transactional_id="tx", committed=committed, **producer)
            time.sleep(0.2)  # until the marker is there

    transact(0, 4, committed=True)
    transact(4, 5, committed=False)
    talk.produce("tx", 2)
    transact(9, 6, committed=True, end=False)
    talk.produce("tx", 2)
    time.sleep(0.3)
    talk.fetch("tx: all", "tx-all", "a", 0, "tx")
    talk.fetch("tx: committed", "tx", "a", 0, "tx")
    talk.acknowledge("tx: accept", "tx", "a", 1, of("tx", (0, 7, [ACCEPT])))
    talk.stored("tx: state", "tx", "tx")
    wire.call(ApiKey.END_TXN, 3, transactional_id="tx", committed=True, **producer)
    time.sleep(0.2)
    talk.fetch("tx: what follows", "tx", "a", 2, wait=3_000)
    talk.acknowledge("tx: with gaps", "tx", "a", 3, of("tx", (16, 16, [ACCEPT])))
    talk.stored("tx: state at last", "tx", "tx")


def log_starts(talk: FetchTalk) -> None:
    talk.topic("start", 10, 10, 10, group="start")
    talk.begin("late", "start")
    talk.fetch("start: 10", "start", "a", 0, "start", records=10)
    deleted = {"name": "start", "partitions": [{"partition_index": 0, "offset": 15}]}
    talk.wire.call(ApiKey.DELETE_RECORDS, 2, topics=[deleted], timeout=10_000)
    talk.acknowledge("start: what is gone", "start", "a", 1, of("start", (0, 4, [ACCEPT])))
    talk.fetch("start: go on", "start", "a", 2, wait=100)
    talk.fetch("start: and on", "start", "a", 3)
    talk.acknowledge("start: what was gone", "start", "a", 4, of("start", (0, 9, [ACCEPT])))
    talk.acknowledge("start: all", "start", "a", 5, of("start", (10, 29, [ACCEPT])))
    talk.stored("start: state", "start", "start")
    talk.fetch("late: begin", "late", "a", 0, "start", wait=100)
    talk.fetch("late: go on", "late", "a", 1)
    talk.stored("late: state", "late", "start")


def resets(talk: FetchTalk) -> None:
    talk.topic("reset", 10)
    for group, reset in (("earliest", "earliest"), ("latest", "latest"), ("hour", "by_duration:PT1H"), ("default", "")):
        if reset:
            talk.configure(group, share_auto_offset_reset=reset)
        talk.begin(group, "reset", offset=-1)
        talk.fetch(f"reset: {group}", group, "a", 0, "reset", wait=5_000 if reset == "earliest" else 300)
    talk.begin("five", "reset", offset=5)
    talk.fetch("reset: five", "five", "a", 0, "reset")
    talk.begin("ahead", "reset", offset=50)
    talk.fetch("reset: ahead", "ahead", "a", 0, "reset", wait=100)
    talk.produce("reset", 2)
    for group in ("latest", "hour", "default"):
        talk.fetch(f"reset: {group} goes on", group, "a", 1, wait=2_000 if group != "hour" else 300)
        talk.stored(f"reset: {group} state", group, "reset")


def partitions(talk: FetchTalk) -> None:
    talk.topic("parts", 10, partitions=3, group="parts")
    talk.topic("other", 10, group="parts")
    talk.warm_up("parts", ("parts", 0, 1, 2), "other")
    talk.fetch("parts: one", "parts", "a", 0, ("parts", 1))
    talk.fetch("parts: one more", "parts", "a", 1, ("parts", 0))
    talk.fetch("parts: another for one", "parts", "a", 2, ("parts", 2), forgotten=[("parts", 1, 7)])
    talk.fetch("parts: one more topic", "parts", "a", 3, "other")
    talk.produce("parts", 2, partition=1)
    talk.produce("parts", 2, partition=2)
    talk.fetch("parts: only what is not forgotten", "parts", "a", 4)
    talk.acknowledge(
        "parts: of all", "parts", "a", 5, ("parts", {0: [(0, 9, [1])], 1: [(0, 9, [2])], 2: [(0, 3, [3])]}), "other"
    )
    talk.fetch("parts: with words for others", "parts", "a", 6, of("other", (0, 3, [ACCEPT])), ("parts", 2), wait=100)
    talk.fetch("parts: a new session", "parts", "a", 0, ("parts", 0, 1, 2), "other")
    talk.fetch("parts: without partitions", "parts", "b", 0)
    talk.fetch("parts: all forgotten", "parts", "a", 1, forgotten=[("parts", 0, 1, 2), ("other", 0)], wait=100)


def gone_topics(talk: FetchTalk) -> None:
    talk.topic("gone", 10, group="gone")
    talk.topic("stays", 10, group="gone")
    talk.warm_up("gone", "gone", "stays")
    talk.fetch("gone: begin", "gone", "a", 0, "gone", "stays", records=20)
    gone = talk.id_of("gone")
    talk.wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"topic_id": gone}], timeout=10_000)
    time.sleep(0.5)
    talk.fetch("gone: a fetch", "gone", "a", 1, wait=100)
    talk.acknowledge("gone: a word", "gone", "a", 2, of("gone", (0, 9, [ACCEPT])), of("stays", (0, 9, [ACCEPT])))
    talk.fetch("gone: still", "gone", "a", 3, wait=100)


def connections(talk: FetchTalk, connect: Callable[[], Wire]) -> None:
    """Who loses the connection by which it opened its session gives back what it has."""
    talk.topic("lines", 10, group="lines")
    with connect() as wire:
        other = FetchTalk(wire)
        other.fetch("begin", "lines", "a", 0, "lines")
        talk.fetch("lines: a has all", "lines", "b", 0, "lines", wait=10)
    time.sleep(0.3)
    talk.fetch("lines: what a had", "lines", "b", 1, wait=5_000)
    talk.acknowledge("lines: a is gone", "lines", "a", 1, of("lines", (0, 1, [ACCEPT])))
    with connect() as wire:
        other = FetchTalk(wire)
        other.fetch("begin", "lines", "c", 0, "lines", wait=10)
    time.sleep(0.3)
    talk.acknowledge("lines: b has them still", "lines", "b", 2, of("lines", (0, 1, [ACCEPT])))
    with connect() as wire:
        other = FetchTalk(wire)
        other.topic("alone", 10, group="alone")
        other.fetch("begin", "alone", "a", 0, "alone")
    time.sleep(0.5)
    talk.know_topics()
    talk.fetch("lines: an empty group begins again", "alone", "b", 0, "alone", wait=5_000)


def too_many(talk: FetchTalk) -> None:
    for turn in range(200):
        answer = talk.fetch(f"many: {turn}", "many", f"m{turn}", 0, wait=10)
        del talk.answers[f"many: {turn}"]
        if answer.error_code:
            assert answer.error_code == LIMIT_REACHED, answer
            assert turn > 5
            break
    talk.fetch("many: one too many", "many", "one more", 0, "life", wait=10)
    talk.fetch("many: one that has a session", "many", "m1", 0, wait=10)
    talk.fetch("many: one goes", "many", "m2", -1)
    talk.fetch("many: one comes", "many", "one more", 0, wait=10)


def run(bootstrap_servers: str) -> dict[str, Any]:
    with Wire(bootstrap_servers) as wire:
        first = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        wire.call(ApiKey.CREATE_TOPICS, 7, topics=[first], timeout=10_000, validate_only=False)
        await_coordinator(StateTalk(wire))
        talk = FetchTalk(wire)
        for scenario in (
            what_is_refused,
            a_life,
            wrong_batches,
            limits,
            in_flight,
            deliveries,
            locks,
            transactions,
            log_starts,
            resets,
            partitions,
            gone_topics,
        ):
            scenario(talk)
        connections(talk, lambda: Wire(bootstrap_servers))
        too_many(talk)
    return talk.answers
