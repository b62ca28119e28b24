"""Verify transactional batches in a cluster, where another broker may coordinate the transaction."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from stratalog.broker.groups import TopicPartition
from stratalog.broker.produce.producing import is_transactional
from stratalog.broker.server import Deferred
from stratalog.broker.transactions import ClientSupport, ProducerIdAndEpoch, ask_coordinator, begin_admission
from stratalog.errors import KafkaError, NotEnoughReplicasError, UnknownServerError
from stratalog.records import batch_format as fmt

if TYPE_CHECKING:
    from stratalog.broker.services import BrokerServices
    from stratalog.engine import Partition
    from stratalog.log.producers import VerificationGuard

#: Producer id, epoch and base sequence of a batch.
_PRODUCER: Final = struct.Struct(">qhi")

#: Partitions to ask the coordinator about, by producer.
Questions = Mapping[ProducerIdAndEpoch, list[TopicPartition]]


def producer_of(records: memoryview) -> tuple[ProducerIdAndEpoch, int]:
    """Return the producer of a batch, and its base sequence."""
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, fmt.PRODUCER_ID_AT)
    return ProducerIdAndEpoch(producer_id, epoch), sequence


class ClusterAdmission:
    """The `Admission` of one Produce request: `begin`, then `ask`, then the appends. Belongs to the loop's thread."""

    def __init__(self, state: BrokerServices, transactional_id: str, support: ClientSupport) -> None:
        self._state = state
        self._transactional_id = transactional_id
        self._support = support
        self._guards: dict[TopicPartition, VerificationGuard] = {}
        self._refused: dict[TopicPartition, KafkaError] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._state.loop

    def begin(self, entries: Iterable[tuple[Partition, memoryview]]) -> Questions:
        """Return what the coordinator has to be asked; empty if the logs know these transactions."""
        questions: dict[ProducerIdAndEpoch, list[TopicPartition]] = {}
        for partition, records in entries:
            if not is_transactional(records) or partition.leader_epoch < 0:
                continue
            at = TopicPartition(partition.topic, partition.partition)
            producer, sequence = producer_of(records)
            try:
                guard = begin_admission(self._state, partition, producer, sequence, self._support)
            except KafkaError as error:
                self._refused[at] = error
                continue
            if guard is not None:
                self._guards[at] = guard
                questions.setdefault(producer, []).append(at)
        return questions

    async def ask(self, questions: Questions) -> None:
        for producer, partitions in questions.items():
            self._refused |= await ask_coordinator(
                self._state, self._transactional_id, producer, partitions, self._support
            )

    def refuse(self, questions: Questions, error: KafkaError) -> None:
        """Record that the coordinator could not be asked."""
        self._refused |= dict.fromkeys((each for partitions in questions.values() for each in partitions), error)

    def __call__(self, partition: Partition, records: memoryview) -> VerificationGuard | None:
        at = TopicPartition(partition.topic, partition.partition)
        if at in self._refused:
            raise self._refused[at]
        if at in self._guards:
            return self._guards[at]
        producer, sequence = producer_of(records)
        if begin_admission(self._state, partition, producer, sequence, self._support) is not None:
            raise NotEnoughReplicasError("the transaction's coordinator has to be asked")  # the client retries
        return None


class PendingAdmission(Deferred):
    """A request that waits for its transaction's coordinator. Partitions that the coordinator adds stay added."""

    __slots__ = ("_go_on", "_over", "_task")

    def __init__(self, admission: ClusterAdmission, questions: Questions, go_on: Callable[[], object]) -> None:
        """`go_on` is called once, in a later turn of the loop, unless this is cancelled first."""
        self._go_on = go_on
        self._over = False
        self._task = admission.loop.create_task(self._run(admission, questions))

    def cancel(self) -> None:
        self._over = True

    async def _run(self, admission: ClusterAdmission, questions: Questions) -> None:
        try:
            await admission.ask(questions)
        except Exception as error:  # noqa: BLE001  # the client waits for a response after any error
            admission.refuse(questions, UnknownServerError(f"the coordinator could not be asked: {error}"))
        if not self._over:
            self._go_on()
