"""Sends records with aiokafka and counts what the broker acknowledged."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiokafka.errors
from aiokafka import AIOKafkaProducer

from stratalog.cli.kafka_client import client_errors, client_settings, refusal
from stratalog.cli.out import counted
from stratalog.cli.produce.input_records import OutgoingRecord, RecordReader
from stratalog.cli.produce.transactions import ProducerTransactions, TransactionSettings
from stratalog.cli.schema_registry import SchemaError
from stratalog.errors import StratalogError, UsageError
from stratalog.wire.client import ConnectionOptions, UnreachableError

#: Larger than any batch that a broker accepts: max.message.bytes of the topic is the limit.
_REQUEST_BYTES_MAX: Final = 1 << 30
#: Number of chunks to read ahead.
_CHUNKS_AHEAD: Final = 4
#: Number of sends between yields to other tasks.
_SENDS_AT_ONCE: Final = 500
#: Interval of checks for records that wait too long.
_LOOK_S: Final = 1.0
#: Timeout of a cancelled step.
_CANCEL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings for sending. `acks` is Kafka's number, -1 for all replicas."""

    codec: str | None = None
    acks: int = -1
    is_idempotent: bool = True
    batch_bytes: int = 1 << 18
    linger_ms: int = 5
    transactions: TransactionSettings | None = None


@dataclass(slots=True)
class PartitionSummary:
    """The acknowledged records of one partition; offsets are -1 with --acks 0."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(slots=True)
class SendSummary:
    """The acknowledged records, by partition."""

    partitions: dict[int, PartitionSummary] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions.values())

    def add(self, partition: int, offset: int) -> None:
        summary = self.partitions.setdefault(partition, PartitionSummary())
        summary.records += 1
        if offset >= 0:
            summary.first_offset = offset if summary.first_offset < 0 else min(offset, summary.first_offset)
            summary.last_offset = max(offset, summary.last_offset)


class RecordSender:
    """Sends to one topic with known partitions. Ends at the first failure."""

    def __init__(
        self,
        producer: Any,
        topic: str,
        partitions: Collection[int],
        timeout_s: float,
        transactions: TransactionSettings | None = None,
        records_max: int | None = None,
    ) -> None:
        """`timeout_s`: how long records may wait while none is acknowledged."""
        self._producer = producer
        self._timeout_s = timeout_s
        #: Time of the last acknowledgement, or of sending the first waiting record.
        self._moved_s = time.monotonic()
        self._topic = topic
        self._partitions = partitions
        self._sent = 0
        self._records_max = records_max
        self._open = set[Any]()
        self._failure: StratalogError | None = None
        self._transactions = (
            None if transactions is None else ProducerTransactions(producer, transactions, self.settled, timeout_s)
        )
        self.summary = SendSummary()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which records are sent: that of the transactions, if any."""
        return nullcontext() if self._transactions is None else self._transactions.running()

    @property
    def is_done(self) -> bool:
        """Whether as many records are sent as may be."""
        return self._sent == self._records_max

    async def settled(self) -> None:
        """Wait until every sent record is acknowledged. Raises the error of the first that is not."""
        while self._open:
            await asyncio.wait(self._open)
            self.raise_failure()

    async def send(self, records: Iterable[OutgoingRecord]) -> None:
        """Pass records to the producer, as many as may be. Raises the error of one of these or of an earlier record."""
        records = iter(records)
        while not self.is_done:
            number = self._sent + 1
            try:
                record = next(records, None)
            except UsageError as error:
                raise UsageError(f"record {number}: {error}") from None
            except SchemaError as error:
                raise SchemaError(f"record {number}: {error}") from error
            if record is None:
                return
            if record.partition is not None and record.partition not in self._partitions:
                raise UsageError(
                    f"record {number}: topic {self._topic} has no partition {record.partition}; "
                    f"it has {len(self._partitions)}"
                )
            if self._transactions is not None:
                await self._transactions.join()
            sending = await self._begin(record)
            self._sent = number
            if not self._open:
                self._moved_s = time.monotonic()
            self._open.add(sending)
            sending.add_done_callback(functools.partial(self._done, number))
            if number % _SENDS_AT_ONCE == 0:
                await asyncio.sleep(0)
            self.raise_failure()
            if self._transactions is not None:
                await self._transactions.added()

    async def _begin(self, record: OutgoingRecord) -> Any:
        """Return the future of a record. One without key and value gets its own batch, as `send` refuses it."""
        headers = list(record.headers)
        if record.key is None and record.value is None:
            batch = self._producer.create_batch()
            batch.append(key=None, value=None, timestamp=record.timestamp_ms, headers=headers)
            partition = min(self._partitions) if record.partition is None else record.partition
            return await self._producer.send_batch(batch, self._topic, partition=partition)
        return await self._producer.send(
            self._topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            headers=headers,
        )

    def _done(self, number: int, sending: Any) -> None:
        self._open.discard(sending)
        self._moved_s = time.monotonic()
        error = asyncio.CancelledError() if sending.cancelled() else sending.exception()
        if error is None:
            answer = sending.result()
            self.summary.add(-1 if answer is None else answer.partition, -1 if answer is None else answer.offset)
        elif self._failure is None:
            self._failure = refusal(error, f"record {number}")
            self._failure.__cause__ = error

    async def finished(self, sending: asyncio.Future[None]) -> None:
        """Wait for the task that sends; aiokafka would retry indefinitely.

        Raises UnreachableError once records have waited too long.
        """
        while not sending.done():
            if self._open and time.monotonic() - self._moved_s >= self._timeout_s:
                raise UnreachableError(
                    f"no broker has acknowledged a record for {self._timeout_s:g} s (delivery.timeout.ms): of "
                    f"{counted(self._sent, 'record')}, {self.summary.records:,} are acknowledged,"
                    f" and {len(self._open):,} may be lost"
                )
            await asyncio.wait([sending], timeout=min(_LOOK_S, self._timeout_s))

    def raise_failure(self) -> None:
        """Raise the error of the first record that was refused."""
        if self._failure is not None:
            raise self._failure


async def send_stream(
    options: ConnectionOptions,
    settings: ProducerSettings,
    *,
    topic: str,
    partitions: Collection[int],
    chunks: Iterable[bytes],
    reader: RecordReader,
    records_max: int | None = None,
    advance: Callable[[int], None],
) -> SendSummary:
    """Send the records of a stream, at most `records_max`, and wait until all are acknowledged.

    Records before an error are still sent, but not committed with transactions. Raises UsageError, RefusedError;
    UnreachableError also if records wait longer than `delivery_timeout_s` while none is acknowledged.
    """
    with client_errors():
        producer = AIOKafkaProducer(
            **client_settings(options),
            acks=settings.acks,
            enable_idempotence=settings.is_idempotent,
            compression_type=settings.codec,
            max_batch_size=settings.batch_bytes,
            max_request_size=_REQUEST_BYTES_MAX,
            linger_ms=settings.linger_ms,
            **_transactional(settings.transactions),
        )
        await _started(producer, settings.transactions, options.api_timeout_s)
        timeout_s = options.delivery_timeout_s
        sender = RecordSender(producer, topic, partitions, timeout_s, settings.transactions, records_max)
        sending = asyncio.ensure_future(_send_all(sender, producer, chunks, reader, advance))
        try:
            try:
                await sender.finished(sending)
            except (
                asyncio.CancelledError
            ):  # by Ctrl-C: records already read are still sent, or their transaction is aborted
                sending.cancel()
                await sender.finished(sending)
                raise
            sending.result()
        finally:
            await _ended(sending)
            await producer.client.close()
        await asyncio.sleep(0)  # count the last responses
        sender.raise_failure()
        return sender.summary


def _transactional(settings: TransactionSettings | None) -> dict[str, Any]:
    if settings is None:
        return {}
    return {"transactional_id": settings.transactional_id, "transaction_timeout_ms": settings.timeout_ms}


async def _started(producer: AIOKafkaProducer, transactions: TransactionSettings | None, timeout_s: float) -> None:
    """Start a producer. aiokafka would search for the coordinator of a transactional id indefinitely."""
    try:
        async with asyncio.timeout(timeout_s):
            await producer.start()
    except TimeoutError:
        await producer.stop()
        what = "the cluster" if transactions is None else f"the coordinator of {transactions.transactional_id}"
        raise UnreachableError(f"{what} has not answered for {timeout_s:g} s (default.api.timeout.ms)") from None
    except aiokafka.errors.KafkaError as error:
        await producer.stop()
        if transactions is None:
            raise
        what = f"transactional id {transactions.transactional_id}, timeout of {transactions.timeout_ms:,} ms"
        raise refusal(error, what) from error


async def _send_all(
    sender: RecordSender,
    producer: AIOKafkaProducer,
    chunks: Iterable[bytes],
    reader: RecordReader,
    advance: Callable[[int], None],
) -> None:
    """Send records as they arrive, and wait for their acknowledgement, also after an error."""
    try:
        async with sender.running():
            async with aclosing(_ahead(chunks)) as ahead:
                async for chunk in ahead:
                    await sender.send(reader.feed(chunk))
                    advance(len(chunk))
                    if sender.is_done:
                        return
            await sender.send(reader.finish())
    finally:
        await producer.stop()


async def _ended(task: asyncio.Future[None]) -> None:
    """Cancel a task until it ends: each cancelled wait may be followed by another."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_S)


async def _ahead(chunks: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield chunks read by a daemon thread, so that exit does not wait for it.

    If closed before the end of the input, the thread ends after its current read.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_AHEAD)
    is_closed = threading.Event()

    def read() -> None:
        following = iter(chunks)
        while not is_closed.is_set():
            item: bytes | Exception | None
            try:
                item = next(following, None)
            except Exception as error:  # noqa: BLE001 - it is raised where the chunk is awaited
                item = error
            room.acquire()
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(queue.put_nowait, item)
            if item is None or isinstance(item, Exception):
                return

    threading.Thread(target=read, name="produce-input", daemon=True).start()
    try:
        while (item := await queue.get()) is not None:
            room.release()
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        is_closed.set()
        room.release()
