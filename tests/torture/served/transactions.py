"""A transactional producer of bare requests, of transactions of version 1 or 2: what it does after a lost answer is its
own choice, and what it may then know is exact.

It gets other errors than those that a client repeats from no broker that keeps its promises: they are violations.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from stratalog.records import Record, build_batch
from stratalog.wire import ApiKey
from tests.support.wire import Wire
from tests.torture.model import Violation
from tests.torture.served.actors import STEP_S, Actor, Deadline
from tests.torture.served.history import History, Outcome, Transaction, Where

#: Errors after which the same request is sent again: loading, moved, or the last transaction is being completed. 19 is
#: the answer to a Produce request, as in Kafka, while the coordinator of its transaction is loading.
AGAIN = {3, 5, 6, 14, 15, 16, 19, 51, 88}

LONG_MS = 600_000


class LostAnswerError(Exception):
    """The connection broke with a request under way; whether it was carried out is not known."""


class TransactionalRequests(Actor):
    """The requests of one transactional id."""

    def __init__(self, name: str, bootstrap_servers: str, version: int, history: History, seed: str) -> None:
        super().__init__(name)
        self.version = version
        self._address = bootstrap_servers
        self._history = history
        self._chance = random.Random(seed)
        self._wire: Wire | None = None
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[Where, int] = {}

    def _init(self) -> None:
        """A lost answer is asked for again: that only takes another epoch."""
        if self._wire is None:
            self._connect()
        answer = self._ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            lambda answer: [answer.error_code],
            again=True,
            transactional_id=self.name,
            transaction_timeout=LONG_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        self._producer = answer.producer_id, answer.producer_epoch
        self._sequences = {}

    def _produce(self, where: Where, values: list[bytes]) -> None:
        """Write one batch of the transaction that is open."""
        producer_id, epoch = self._named()
        if self.version == 1:
            self._add_partition(where)
        sequence = self._sequences.get(where, 0)
        batch = build_batch(
            [Record(i, int(time.time() * 1000), b"k", value) for i, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        self._ask(
            ApiKey.PRODUCE,
            12 if self.version == 2 else 11,
            lambda answer: [part.error_code for topic in answer.responses for part in topic.partition_responses],
            again=self._chance.random() < 0.5,
            transactional_id=self.name,
            acks=-1,
            timeout=30_000,
            topic_data=[{"name": where[0], "partition_data": [{"index": where[1], "records": batch}]}],
        )
        self._sequences[where] = sequence + len(values)

    def _add_partition(self, where: Where) -> None:
        producer_id, epoch = self._named()
        self._ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            lambda answer: [
                part.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            ],
            again=True,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": where[0], "partitions": [where[1]]}],
        )

    def _commit_offsets(self, group: str, offsets: dict[Where, int]) -> None:
        producer_id, epoch = self._named()
        who = {"transactional_id": self.name, "producer_id": producer_id, "producer_epoch": epoch}
        if self.version == 1:
            self._ask(
                ApiKey.ADD_OFFSETS_TO_TXN, 3, lambda answer: [answer.error_code], again=True, group_id=group, **who
            )
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), offset in offsets.items():
            partition = {"partition_index": number, "committed_offset": offset, "committed_metadata": ""}
            topics.setdefault(topic, []).append(partition)
        self._ask(
            ApiKey.TXN_OFFSET_COMMIT,
            5 if self.version == 2 else 4,
            lambda answer: [part.error_code for topic in answer.topics for part in topic.partitions],
            again=self._chance.random() < 0.5,
            group_id=group,
            generation_id=-1,
            member_id="",
            topics=[{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
            **who,
        )

    def _committed_offset(self, group: str, where: Where) -> int:
        """What a group has committed for a partition, -1 for nothing. A transaction that is ending is waited for."""
        asked = [{"name": where[0], "partition_indexes": [where[1]]}]
        answer = self._ask(
            ApiKey.OFFSET_FETCH,
            9,
            lambda answer: [
                answer.groups[0].error_code,
                *(part.error_code for topic in answer.groups[0].topics for part in topic.partitions),
            ],
            again=True,
            groups=[{"group_id": group, "topics": asked, "member_id": None, "member_epoch": -1}],
            require_stable=True,
        )
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    def _end(self, commits: bool) -> None:
        producer_id, epoch = self._named()
        answer = self._ask(
            ApiKey.END_TXN,
            5 if self.version == 2 else 4,
            lambda answer: [answer.error_code],
            again=self._chance.random() < 0.5,
            transactional_id=self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commits,
        )
        if self.version == 2:
            self._producer = answer.producer_id, answer.producer_epoch
            self._sequences = {}

    def _named(self) -> tuple[int, int]:
        assert self._producer is not None
        return self._producer

    def _ask(self, key: ApiKey, version: int, codes: Callable[[Any], list[Any]], *, again: bool, **fields: Any) -> Any:
        """Its answer without an error. `again`: a request without an answer is repeated as it is, else it is a
        LostAnswerError."""
        deadline = Deadline(STEP_S, f"{self.name}: {key.name}")
        while True:
            assert self._wire is not None
            try:
                answer = self._wire.call(key, version, **fields)
            except OSError as error:
                deadline.check(error)
                self._connect()
                if not again:
                    raise LostAnswerError(str(error)) from error
                self._history.count("requests sent again")
                continue
            wrong = {int(code) for code in codes(answer)} - {0}
            if not wrong:
                return answer
            if not wrong <= AGAIN:
                raise Violation(f"{self.name}: {key.name} is answered {sorted(wrong)}")
            deadline.check(sorted(wrong))
            time.sleep(0.02)

    def _connect(self) -> None:
        deadline = Deadline(STEP_S, f"{self.name}: connection")
        while True:
            if self._wire is not None:
                self._wire.close()
            try:
                self._wire = Wire(self._address, timeout_s=30)
                answer = self._wire.call(ApiKey.FIND_COORDINATOR, 1, key=self.name, key_type=1)
                if not int(answer.error_code):
                    return
                deadline.check(answer.error_code)
            except OSError as error:
                deadline.check(error)
                time.sleep(0.02)


class Transactions(TransactionalRequests):
    """Transactions under one transactional id over the partitions of a topic.

    Each also commits its own number as the offset of the first partition in the group of its name.
    """

    def __init__(
        self, name: str, bootstrap_servers: str, version: int, partitions: list[Where], history: History, seed: str
    ) -> None:
        super().__init__(name, bootstrap_servers, version, history, seed)
        self._offsets: list[Transaction] = []
        self._partitions = partitions
        self._number = 0

    def step(self) -> None:
        if self._producer is None:
            self._init()
        self._number += 1
        transaction = self._history.begin(self._number)
        commits = self._chance.random() < 0.6
        try:
            self._write(transaction)
        except LostAnswerError:
            transaction.outcome = Outcome.ABORTED  # by the next InitProducerId
            self._history.count("transactions given up")
            self._producer = None
            return
        try:
            self._end(commits)
        except LostAnswerError:
            transaction.outcome = Outcome.UNKNOWN if commits else Outcome.ABORTED
            self._history.count("transactions of unknown outcome", int(commits))
            self._producer = None
        else:
            transaction.outcome = Outcome.COMMITTED if commits else Outcome.ABORTED
            self._history.count(f"transactions {transaction.outcome.value}, version {self.version}")
        self.pause(self._chance.random() * 0.02)

    def end(self) -> None:
        """Leave no transaction open."""
        self._init()
        assert self._wire is not None
        self._wire.close()

    def _write(self, transaction: Transaction) -> None:
        for _ in range(self._chance.randint(1, 4)):
            where = self._chance.choice(self._partitions)
            count = self._chance.randint(1, 3)
            values = [
                f"{self.name}:{transaction.number}:{len(transaction.values)}:{self._chance.randrange(10**9)}".encode()
                for _ in range(count)
            ]
            transaction.values.setdefault(where, []).extend(values)
            self._produce(where, values)
        if self._chance.random() < 0.7:
            self._offsets.append(transaction)
            self._commit_offsets(self.name, {self._partitions[0]: transaction.number})

    def offsets_allowed(self) -> set[int]:
        """Which offset may be committed: that of the last transaction that was, or of one of unknown outcome since."""
        allowed: set[int] = set()
        for transaction in reversed(self._offsets):
            if transaction.outcome is not Outcome.ABORTED:
                allowed.add(transaction.number)
            if transaction.outcome is Outcome.COMMITTED:
                return allowed
        return allowed | {-1}
