"""Requests about transactions, one after the other on a fresh broker, whose answers have to be Apache Kafka's.

`tests/golden/transactions/answers.json` holds what Kafka 4.4.0 answered; `tests.golden.transactions.make` writes it.

Kafka writes markers after it has answered EndTxn, and says CONCURRENT_TRANSACTIONS until they are there: such an answer
is asked for again, unless it is the very point of a case.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.broker.record_cases import NOW, Asker

from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import parse_control_key
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

CONCURRENT = 51
TOPICS = {"one": 2, "two": 1}
#: Lists whose order says nothing.
_SETS = {
    "results_by_partition",
    "active_producers",
    "transaction_states",
    "partitions",
    "unknown_state_filters",
}


class Script:
    """Asks and keeps the answers by name. Producer ids are reported by the order in which they were first seen."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.asker = Asker(bootstrap_servers)
        self.answers: dict[str, Any] = {}
        self._producers: dict[int, str] = {}

    def ask(self, name: str, key: ApiKey, version: int, /, *, again: bool = True, **fields: Any) -> Any:
        """Ask, and keep the answer under `name`; with `again` for as long as it is CONCURRENT_TRANSACTIONS."""
        deadline = time.monotonic() + 60
        while True:
            answer = self.asker.ask(key, version, **fields)
            if not (again and CONCURRENT in error_codes(answer)) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        assert name not in self.answers, name
        self.answers[name] = self._reported(answer)
        return answer

    def _reported(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._reported(item, name) for name, item in value.items()}
        if isinstance(value, list):
            reported = [self._reported(item, field) for item in value]
            return sorted(reported, key=str) if field in _SETS else reported
        if field == "producer_id" and isinstance(value, int) and value >= 0:
            return self._producers.setdefault(value, f"producer {len(self._producers)}")
        if field == "last_timestamp" and isinstance(value, int) and value > 0:
            return "a time"
        return None if field in ("error_message", "coordinator_epoch") else value

    # --- requests ---------------------------------------------------------------------------------------------------

    def init(
        self,
        name: str,
        transactional_id: str | None,
        *,
        version: int = 5,
        timeout: int = 60_000,
        producer_id: int = -1,
        epoch: int = -1,
        again: bool = True,
    ) -> tuple[int, int]:
        fields: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout": timeout}
        if version >= 3:
            fields |= {"producer_id": producer_id, "producer_epoch": epoch}
        answer = self.ask(name, ApiKey.INIT_PRODUCER_ID, version, again=again, **fields)
        self.settle()
        return answer["producer_id"], answer["producer_epoch"]

    def add(
        self,
        name: str,
        transactional_id: str,
        producer: tuple[int, int],
        *partitions: tuple[str, int],
        version: int = 3,
        verify_only: bool = False,
    ) -> None:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        asked = [{"name": topic, "partitions": numbers} for topic, numbers in topics.items()]
        if version < 4:
            self.ask(
                name,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                version,
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=asked,
            )
            return
        transaction = {
            "transactional_id": transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "verify_only": verify_only,
            "topics": asked,
        }
        self.ask(name, ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[transaction])

    def add_offsets(
        self, name: str, transactional_id: str, producer: tuple[int, int], group: str, *, version: int = 4
    ) -> None:
        self.ask(
            name,
            ApiKey.ADD_OFFSETS_TO_TXN,
            version,
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=group,
        )

    def end(
        self,
        name: str,
        transactional_id: str,
        producer: tuple[int, int],
        committed: bool,
        *,
        version: int = 4,
    ) -> tuple[int, int]:
        answer = self.ask(
            name,
            ApiKey.END_TXN,
            version,
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )
        self.settle()
        return answer.get("producer_id", -1), answer.get("producer_epoch", -1)

    def settle(self) -> None:
        """Wait until all markers are written."""
        deadline = time.monotonic() + 60
        states = ["PrepareCommit", "PrepareAbort"]
        while self.asker.call(ApiKey.LIST_TRANSACTIONS, 0, state_filters=states).transaction_states:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def produce(
        self,
        name: str,
        transactional_id: str | None,
        producer: tuple[int, int],
        topic: str = "one",
        *,
        sequence: int = 0,
        partition: int = 0,
        version: int = 12,
        transactional: bool = True,
    ) -> None:
        records = build_batch(
            [Record(0, NOW, b"k", name.encode())],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            is_transactional=transactional,
        )
        topics = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        self.ask(
            name,
            ApiKey.PRODUCE,
            version,
            transactional_id=transactional_id,
            acks=-1,
            timeout=5000,
            topic_data=topics,
        )

    def commit_offsets(
        self,
        name: str,
        transactional_id: str,
        producer: tuple[int, int],
        group: str,
        *,
        offset: int = 5,
        topic: str = "one",
        version: int = 4,
        generation: int = -1,
        member: str = "",
    ) -> None:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        fields: dict[str, Any] = {"generation_id": generation, "member_id": member} if version >= 3 else {}
        self.ask(
            name,
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            transactional_id=transactional_id,
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[{"name": topic, "partitions": [partition]}],
            **fields,
        )

    def offsets(self, name: str, group: str, *, stable: bool) -> None:
        asked = [{"name": "one", "partition_indexes": [0, 1]}]
        self.ask(
            name,
            ApiKey.OFFSET_FETCH,
            9,
            groups=[{"group_id": group, "topics": asked, "member_id": None, "member_epoch": -1}],
            require_stable=stable,
        )

    def describe(self, name: str, *transactional_ids: str) -> None:
        self.ask(name, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=transactional_ids)

    def producers(self, name: str) -> None:
        topics = [{"name": "one", "partition_indexes": [0, 9]}, {"name": "nobody", "partition_indexes": [0]}]
        self.ask(name, ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)

    def mark(
        self,
        name: str,
        producer: tuple[int, int],
        committed: bool,
        *,
        coordinator_epoch: int = 0,
        version: int = 1,
        transaction_version: int = 0,
        topic: str = "one",
    ) -> None:
        marker = {
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "transaction_result": committed,
            "coordinator_epoch": coordinator_epoch,
            "topics": [{"name": topic, "partition_indexes": [0]}],
        }
        if version >= 2:
            marker["transaction_version"] = transaction_version
        self.ask(name, ApiKey.WRITE_TXN_MARKERS, version, markers=[marker])

    def contents(self, name: str, topic: str, partition: int, *, committed: bool) -> None:
        """Keep what a reader gets: values, and markers with their epochs; where aborted transactions begin."""
        wanted = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 10**6}
        answer = self.asker.call(
            ApiKey.FETCH,
            11,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=10**6,
            isolation_level=int(committed),
            session_epoch=-1,
            rack_id="",
            topics=[{"topic": topic, "partitions": [wanted]}],
        )
        (got,) = answer.responses[0].partitions
        reported: list[Any] = []
        for batch in iter_batches(got.records or b""):
            for record in batch.records():
                if batch.is_control:
                    reported.append([parse_control_key(record.key).name, batch.producer_epoch])
                else:
                    reported.append(bytes(record.value or b"").decode())
        aborted = [entry.first_offset for entry in got.aborted_transactions or ()]
        self.answers[name] = [reported, aborted, got.last_stable_offset]


def error_codes(answer: Any) -> set[int]:
    """All error codes of an answer."""
    if isinstance(answer, dict):
        own = {code for name, code in answer.items() if name.endswith("error_code") and isinstance(code, int)}
        return own.union(*(error_codes(item) for item in answer.values()))
    return set().union(*map(error_codes, answer)) if isinstance(answer, list) else set()


@contextmanager
def script(bootstrap_servers: str) -> Iterator[Script]:
    """A script on a fresh broker with its topics, and with both coordinators there."""
    made = Script(bootstrap_servers)
    try:
        topics = [{"name": name, "num_partitions": count, "replication_factor": 1} for name, count in TOPICS.items()]
        made.asker.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=30_000)
        for key_type in (0, 1):
            _await_coordinator(made, key_type)
        yield made
    finally:
        made.asker.close()


def _await_coordinator(made: Script, key_type: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        found = made.asker.call(ApiKey.FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=["k"])
        if found.coordinators[0].error_code == 0:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    while key_type:  # it is elected a moment after it was made
        answer = made.asker.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="first", transaction_timeout=60_000)
        if answer.error_code == 0:
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def run(bootstrap_servers: str) -> dict[str, Any]:
    """All answers by name."""
    with script(bootstrap_servers) as made:
        for part in (
            _init,
            _add,
            _verify,
            _end_of_old_clients,
            _end_of_new_clients,
            _fencing,
            _produce_of_old_clients,
            _produce_of_new_clients,
            _offsets_of_old_clients,
            _offsets_of_new_clients,
            _members,
            _telling,
            _markers,
        ):
            part(made)
        return made.answers


def _init(s: Script) -> None:
    for version in range(6):
        s.init(f"init v{version}", "init", version=version)
    s.init("init: no id", None)
    s.init("init: empty id", "")
    for timeout in (0, -1, 900_000, 900_001):
        s.init(f"init: timeout {timeout}", "timeout", timeout=timeout)
    s.init("init: producer id without epoch", "init", producer_id=5)
    s.init("init: epoch without producer id", "init", epoch=5)
    s.init("init: old producer, no id", None, producer_id=5, epoch=1)
    s.init("init: old producer of an unknown id", "unknown", producer_id=5, epoch=1)
    mine = s.init("init: first", "again")
    s.init("init: other producer id", "again", producer_id=mine[0] + 1000, epoch=0)
    s.init("init: goes on", "again", producer_id=mine[0], epoch=0)
    s.init("init: goes on, retry", "again", producer_id=mine[0], epoch=0)
    s.init("init: goes on from there", "again", producer_id=mine[0], epoch=1)
    s.init("init: goes on, too old", "again", producer_id=mine[0], epoch=0)
    s.init("init: goes on, too old, v3", "again", producer_id=mine[0], epoch=0, version=3)
    s.init("init: goes on, too new", "again", producer_id=mine[0], epoch=9)
    s.init("init: somebody else", "again")
    s.init("init: goes on after somebody else", "again", producer_id=mine[0], epoch=2)


def _add(s: Script) -> None:
    mine = s.init("add: init", "add")
    other = (mine[0], mine[1] + 1)
    one = ("one", 0)
    for version in (0, 1, 2, 3):
        s.add(f"add v{version}", "add", mine, one, ("one", 1), version=version)
        s.add(f"add v{version}: epoch", "add", other, one, version=version)
    s.add("add: producer id", "add", (mine[0] + 1000, mine[1]), one)
    s.add("add: unknown id", "nobody", mine, one)
    s.add("add: empty id", "", mine, one)
    s.add("add: unknown topic", "add", mine, one, ("nobody", 0))
    s.add("add: unknown partition", "add", mine, one, ("one", 7))
    s.add("add: internal topic", "add", mine, one, ("__consumer_offsets", 0))
    s.add("add: nothing", "add", mine)
    for version in (0, 1, 2, 3, 4):
        s.add_offsets(f"add offsets v{version}", "add", mine, "group", version=version)
        s.add_offsets(f"add offsets v{version}: epoch", "add", other, "group", version=version)
    s.add_offsets("add offsets: producer id", "add", (mine[0] + 1000, mine[1]), "group")
    s.add_offsets("add offsets: unknown id", "nobody", mine, "group")
    s.add_offsets("add offsets: empty id", "", mine, "group")
    s.add_offsets("add offsets: empty group", "add", mine, "")
    s.end("add: end", "add", mine, True)


def _verify(s: Script) -> None:
    mine = s.init("verify: init", "verify")
    for version in (4, 5):
        ask: dict[str, Any] = {"version": version, "verify_only": True}
        s.add(f"verify v{version}: nothing yet", "verify", mine, ("one", 0), **ask)
        s.add(f"add v{version}", "verify", mine, ("one", 0), version=version)
        s.add(f"verify v{version}", "verify", mine, ("one", 0), **ask)
        s.add(f"verify v{version}: one of two", "verify", mine, ("one", 0), ("two", 0), **ask)
        s.add(f"verify v{version}: unknown topic", "verify", mine, ("one", 0), ("nobody", 0), **ask)
        s.add(f"verify v{version}: epoch", "verify", (mine[0], 7), ("one", 0), **ask)
        s.add(f"verify v{version}: producer id", "verify", (mine[0] + 1000, 0), ("one", 0), **ask)
        s.add(f"verify v{version}: unknown id", "nobody", mine, ("one", 0), **ask)
        s.add(f"verify v{version}: empty id", "", mine, ("one", 0), **ask)
        s.add(f"add v{version}: epoch", "verify", (mine[0], 7), ("one", 1), version=version)
        s.add(f"add v{version}: internal", "verify", mine, ("__consumer_offsets", 0), version=version)
        s.end(f"verify v{version}: end", "verify", mine, True)


def _end_of_old_clients(s: Script) -> None:
    mine = s.init("end: init", "end")
    wrong = (mine[0], mine[1] + 1)
    s.end("end: unknown id", "nobody", mine, True)
    s.end("end: empty id", "", mine, True)
    s.end("end: commit nothing", "end", mine, True)
    s.end("end: abort nothing", "end", mine, False)
    for version in range(5):
        for committed, word in ((True, "commit"), (False, "abort")):
            label = f"end v{version}: {word}"
            s.add(f"{label}, add", "end", mine, ("one", 0))
            s.end(f"{label}, epoch", "end", wrong, committed, version=version)
            s.end(label, "end", mine, committed, version=version)
            s.end(f"{label}, again", "end", mine, committed, version=version)
            s.end(f"{label}, otherwise", "end", mine, not committed, version=version)
    s.end("end: producer id", "end", (mine[0] + 1000, mine[1]), True)


def _end_of_new_clients(s: Script) -> None:
    mine = s.init("end v5: init", "new")
    s.end("end v5: unknown id", "nobody", mine, True, version=5)
    s.end("end v5: empty id", "", mine, True, version=5)
    s.end("end v5: commit nothing", "new", mine, True, version=5)
    after = s.end("end v5: abort nothing", "new", mine, False, version=5)
    s.end("end v5: abort nothing, again", "new", mine, False, version=5)
    s.end("end v5: commit after abort of nothing", "new", mine, True, version=5)
    mine = s.end("end v5: abort nothing more", "new", after, False, version=5)
    for committed, word in ((True, "commit"), (False, "abort"), (True, "commit again")):
        label = f"end v5: {word}"
        s.produce(f"{label}, produce", "new", mine)
        s.end(f"{label}, epoch too old", "new", (mine[0], mine[1] - 1), committed, version=5)
        s.end(f"{label}, epoch too new", "new", (mine[0], mine[1] + 1), committed, version=5)
        s.end(f"{label}, producer id", "new", (mine[0] + 1000, mine[1]), committed, version=5)
        after = s.end(label, "new", mine, committed, version=5)
        s.end(f"{label}, retry", "new", mine, committed, version=5)
        s.end(f"{label}, retry, otherwise", "new", mine, not committed, version=5)
        s.end(f"{label}, retry v4", "new", mine, committed, version=4)
        s.end(f"{label}, v4", "new", after, committed, version=4)
        s.end(f"{label}, nothing to commit", "new", after, True, version=5)
        s.end(f"{label}, too old", "new", (mine[0], mine[1] - 1), committed, version=5)
        s.produce(f"{label}, late", "new", mine, sequence=1)
        mine = after
    s.init("end v5: init after", "new")
    s.end("end v5: fenced by init", "new", mine, True, version=5)


def _fencing(s: Script) -> None:
    old = s.init("fence: init", "fence")
    s.add("fence: add", "fence", old, ("two", 0))
    s.produce("fence: produce", "fence", old, "two", version=11)
    s.init("fence: init while open", "fence", again=False)
    new = s.init("fence: init again", "fence")
    s.produce("fence: produce, fenced", "fence", old, "two", sequence=1, version=11)
    s.produce("fence: produce, fenced, v12", "fence", old, "two", sequence=1)
    s.add("fence: add, fenced", "fence", old, ("two", 0))
    s.add("fence: add, fenced, v1", "fence", old, ("two", 0), version=1)
    s.end("fence: end, fenced", "fence", old, True)
    s.end("fence: end, fenced, v1", "fence", old, True, version=1)
    s.end("fence: end, fenced, v5", "fence", old, True, version=5)
    s.produce("fence: produce, new", "fence", new, "two")
    s.init("fence: old one goes on", "fence", producer_id=old[0], epoch=old[1], again=False)
    s.init("fence: new one goes on while open", "fence", producer_id=new[0], epoch=new[1], again=False)
    s.init("fence: new one goes on", "fence", producer_id=new[0], epoch=new[1])
    s.contents("fence: everything", "two", 0, committed=False)
    s.contents("fence: committed", "two", 0, committed=True)


def _produce_of_old_clients(s: Script) -> None:
    mine = s.init("produce: init", "produce")
    for version in (9, 10, 11):
        s.produce(f"produce v{version}: not added", "produce", mine, version=version)
    s.produce("produce: no transactional id", None, mine, version=11)
    s.produce("produce: unknown id", "nobody", mine, version=11)
    s.produce("produce: empty id", "", mine, version=11)
    s.produce("produce: producer id", "produce", (mine[0] + 1000, mine[1]), version=11)
    s.produce("produce: epoch", "produce", (mine[0], mine[1] + 1), version=11)
    s.add("produce: add", "produce", mine, ("one", 0))
    s.produce("produce: other partition", "produce", mine, partition=1, version=11)
    s.produce("produce: sequence 3", "produce", mine, sequence=3, version=11)
    s.produce("produce: plain", "produce", mine, transactional=False, version=11)
    s.produce("produce", "produce", mine, sequence=1, version=9)
    s.produce("produce: again", "produce", mine, sequence=1, version=9)
    s.produce("produce: gap", "produce", mine, sequence=5, version=9)
    s.produce("produce: plain in between", "produce", mine, sequence=2, transactional=False, version=11)
    s.end("produce: end", "produce", mine, True)
    s.produce("produce: late", "produce", mine, sequence=2, version=11)


def _produce_of_new_clients(s: Script) -> None:
    mine = s.init("produce v12: init", "produce-new")
    s.produce("produce v12: unknown id", "nobody", mine)
    s.produce("produce v12: empty id", "", mine)
    s.produce("produce v12: producer id", "produce-new", (mine[0] + 1000, mine[1]))
    s.produce("produce v12: epoch", "produce-new", (mine[0], mine[1] + 1))
    s.produce("produce v12: sequence 3", "produce-new", mine, sequence=3)
    s.produce("produce v12", "produce-new", mine)
    s.produce("produce v12: more", "produce-new", mine, sequence=1)
    s.produce("produce v12: other topic", "produce-new", mine, "two")
    s.produce("produce v12: unknown topic", "produce-new", mine, "nobody")
    s.describe("produce v12: described", "produce-new")
    after = s.end("produce v12: end", "produce-new", mine, True, version=5)
    s.produce("produce v12: late", "produce-new", mine, sequence=2)
    s.produce("produce v12: next, sequence 2", "produce-new", after, sequence=2)
    s.produce("produce v12: next", "produce-new", after)
    s.end("produce v12: abort", "produce-new", after, False, version=5)


def _offsets_of_old_clients(s: Script) -> None:
    mine = s.init("offsets: init", "offsets")
    for version in (0, 2, 3, 4):
        s.commit_offsets(f"offsets v{version}: not added", "offsets", mine, "g", version=version)
    s.add_offsets("offsets: add", "offsets", mine, "g")
    for version in range(5):
        s.commit_offsets(f"offsets v{version}", "offsets", mine, "g", version=version, offset=version)
    s.commit_offsets("offsets: producer id", "offsets", (mine[0] + 1000, 0), "g")
    s.commit_offsets("offsets: epoch", "offsets", (mine[0], mine[1] + 1), "g")
    s.commit_offsets("offsets: unknown id", "nobody", mine, "g")
    s.commit_offsets("offsets: unknown topic", "offsets", mine, "g", topic="nobody")
    s.commit_offsets("offsets: empty group", "offsets", mine, "")
    s.commit_offsets("offsets: generation", "offsets", mine, "unknown", generation=3, member="m")
    s.offsets("offsets: pending", "g", stable=False)
    s.offsets("offsets: pending, stable", "g", stable=True)
    s.end("offsets: commit", "offsets", mine, True)
    s.offsets("offsets: committed", "g", stable=True)
    s.add_offsets("offsets: add again", "offsets", mine, "g")
    s.commit_offsets("offsets: to abort", "offsets", mine, "g", offset=99)
    s.end("offsets: abort", "offsets", mine, False)
    s.offsets("offsets: aborted", "g", stable=True)


def _offsets_of_new_clients(s: Script) -> None:
    mine = s.init("offsets v5: init", "offsets-new")
    s.commit_offsets("offsets v5: unknown id", "nobody", mine, "g5", version=5)
    s.commit_offsets("offsets v5: producer id", "offsets-new", (mine[0] + 1000, 0), "g5", version=5)
    s.commit_offsets("offsets v5: epoch", "offsets-new", (mine[0], mine[1] + 1), "g5", version=5)
    s.commit_offsets("offsets v5", "offsets-new", mine, "g5", version=5, offset=7)
    s.offsets("offsets v5: pending", "g5", stable=True)
    after = s.end("offsets v5: commit", "offsets-new", mine, True, version=5)
    s.offsets("offsets v5: committed", "g5", stable=True)
    s.commit_offsets("offsets v5: late", "offsets-new", mine, "g5", version=5, offset=8)
    s.commit_offsets("offsets v5: to abort", "offsets-new", after, "g5", version=5, offset=9)
    s.end("offsets v5: abort", "offsets-new", after, False, version=5)
    s.offsets("offsets v5: aborted", "g5", stable=True)


def _members(s: Script) -> None:
    """A group with a member: who may commit for it."""
    protocols = [{"name": "range", "metadata": b""}]
    join: dict[str, Any] = {
        "group_id": "with-member",
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    member = s.asker.call(ApiKey.JOIN_GROUP, 5, **join, member_id="").member_id
    s.asker.call(ApiKey.JOIN_GROUP, 5, **join, member_id=member)
    mine = s.init("members: init", "members")
    s.add_offsets("members: add", "members", mine, "with-member")
    s.commit_offsets("members: not balanced", "members", mine, "with-member", generation=1, member=member)
    s.asker.call(
        ApiKey.SYNC_GROUP,
        3,
        group_id="with-member",
        generation_id=1,
        member_id=member,
        assignments=[{"member_id": member, "assignment": b""}],
    )
    s.commit_offsets("members: member", "members", mine, "with-member", generation=1, member=member)
    s.commit_offsets("members: generation", "members", mine, "with-member", generation=2, member=member)
    s.commit_offsets("members: other member", "members", mine, "with-member", generation=1, member="x")
    s.commit_offsets("members: nobody", "members", mine, "with-member")
    s.commit_offsets("members: nobody, v2", "members", mine, "with-member", version=2)
    s.end("members: end", "members", mine, False)


def _telling(s: Script) -> None:
    mine = s.init("tell: init", "tell")
    s.add("tell: add", "tell", mine, ("one", 1), ("one", 0))
    s.produce("tell: produce", "tell", mine, version=11)
    s.describe("describe", "tell", "nobody", "")
    s.producers("describe producers")
    s.ask("list: open", ApiKey.LIST_TRANSACTIONS, 0, state_filters=["Ongoing"])
    s.ask("list: producer", ApiKey.LIST_TRANSACTIONS, 0, producer_id_filters=[mine[0]])
    s.ask("list: unknown state", ApiKey.LIST_TRANSACTIONS, 0, state_filters=["Ongoing", "Wrong"])
    s.ask("list: open for long", ApiKey.LIST_TRANSACTIONS, 1, duration_filter=3_600_000)
    s.ask("list: pattern", ApiKey.LIST_TRANSACTIONS, 2, duration_filter=-1, transactional_id_pattern="t.*l")
    s.ask("list: part of", ApiKey.LIST_TRANSACTIONS, 2, duration_filter=-1, transactional_id_pattern="el")
    s.ask("list: no pattern", ApiKey.LIST_TRANSACTIONS, 2, duration_filter=-1, transactional_id_pattern="(")
    s.end("tell: end", "tell", mine, True)
    for version, key_type in ((0, 0), (1, 1), (3, 1), (4, 1), (6, 1)):
        asked: dict[str, Any] = {"coordinator_keys": ["tell"]} if version >= 4 else {"key": "tell"}
        if version:
            asked["key_type"] = key_type
        s.ask(f"find v{version}", ApiKey.FIND_COORDINATOR, version, **asked)


def _markers(s: Script) -> None:
    s.mark("markers: unknown topic", (9_999, 0), True, topic="nobody")
    s.mark("markers: nothing open", (9_999, 0), True)
    mine = s.init("markers: init", "markers")
    s.produce("markers: produce", "markers", mine)
    s.mark("markers: same epoch in v2", mine, False, version=2, transaction_version=2)
    s.mark("markers: abort", mine, False, coordinator_epoch=5)
    s.mark("markers: older coordinator", mine, False, coordinator_epoch=4)
    s.mark("markers: no coordinator", mine, False, coordinator_epoch=-1)
    s.mark("markers: no version", mine, False, coordinator_epoch=5, version=2, transaction_version=-1)
    s.mark("markers: no version, a later epoch", (mine[0], 9), False, version=2, transaction_version=-1)
    s.mark("markers: no version, nothing open", (9_999, 3), False, version=2, transaction_version=-1)
    s.mark("markers: a later epoch", (9_999, 3), False)
    s.mark("markers: no version, an older epoch", (9_999, 2), False, version=2, transaction_version=-1)
    s.mark("markers: a version of no sense", (9_999, 3), False, version=2, transaction_version=-2)
    s.contents("markers: everything", "one", 0, committed=False)
    s.contents("markers: committed", "one", 0, committed=True)
