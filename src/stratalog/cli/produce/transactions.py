"""The transactions of `stratalog produce`: one for all records, or one for each N."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import KafkaError, ProducerFenced

from stratalog.cli.kafka_client import refusal
from stratalog.cli.out import counted
from stratalog.errors import StratalogError
from stratalog.wire.client import UnreachableError


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The transactional id, and how records are divided."""

    transactional_id: str
    #: Records of a transaction; None: all.
    records_max: int | None = None
    #: Time after which the broker aborts an open transaction.
    timeout_ms: int = 60_000


class ProducerTransactions:
    """Successive transactions of `records_max` records each.

    A transaction begins with its first record, so that no empty one is written.
    """

    def __init__(
        self, producer: Any, settings: TransactionSettings, settle: Callable[[], Awaitable[None]], timeout_s: float
    ) -> None:
        """`settle` waits until all records are acknowledged, or raises the error of one that is not.

        `timeout_s`: timeout of the end of a transaction.
        """
        self._producer = producer
        self._settings = settings
        self._settle = settle
        self._timeout_s = timeout_s
        self._is_open = False
        self._records = 0
        self._committed = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Commit the last transaction when the block ends; abort it if the block fails or is cancelled.

        Errors state what happened to the records.
        """
        try:
            yield
            await self._commit()
        except (StratalogError, KafkaError) as error:
            failure = self._failure(error)
            await self._abort()
            raise failure from error
        except BaseException:  # a signal, or a defect
            await self._abort()
            raise

    async def join(self) -> None:
        """Begin a transaction for the next record, unless one is open."""
        if not self._is_open:
            await self._producer.begin_transaction()
            self._is_open = True

    async def added(self) -> None:
        """Count a sent record, and commit at `records_max`."""
        self._records += 1
        if self._records == self._settings.records_max:
            await self._commit()

    async def _commit(self) -> None:
        if not self._is_open:
            return
        await self._settle()
        self._is_open = False  # no abort may follow a commit request
        name = self._settings.transactional_id
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._producer.commit_transaction()
        except TimeoutError:
            raise UnreachableError(
                f"no broker has answered the commit of a transaction of {name} for {self._timeout_s:g} s; its state is "
                f"shown by: stratalog transactions describe {name}"
            ) from None
        self._committed += self._records
        self._records = 0

    async def _abort(self) -> None:
        """Abort the open transaction, if any. If that fails, the broker aborts it after its timeout."""
        if not self._is_open or self._producer._txn_manager.is_fatal_error():
            return
        self._is_open = False
        with suppress(TimeoutError, KafkaError):
            async with asyncio.timeout(self._timeout_s):
                await self._producer.abort_transaction()

    def _failure(self, error: StratalogError | KafkaError) -> StratalogError:
        """Return an error that states what was committed; prefer the transaction's own to that of a later call."""
        ending = self._producer._txn_manager.wait_for_transaction_end()
        cause = ending.exception() if ending is not None and ending.done() and not ending.cancelled() else None
        if isinstance(error, KafkaError):
            error = refusal(cause or error, f"transactional id {self._settings.transactional_id}")
        elif cause is None:
            cause = error.__cause__
        why = ""
        if isinstance(cause, ProducerFenced):
            why = (
                "; another producer began with this id, or the transaction was open for more than "
                f"{self._settings.timeout_ms:,} ms (--transaction-timeout-ms)"
            )
        left = f"; committed before: {counted(self._committed, 'record')}"
        if self._is_open:
            left += ", and nothing of the open transaction will be visible"
        return type(error)(f"{error}{why}{left}")
