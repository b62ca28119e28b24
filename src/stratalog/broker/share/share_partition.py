"""One partition in a share group, at its leader. The share coordinator stores its state.

    EMPTY -> OPENING -> ACTIVE -> FENCED      the leader or the state has changed, or the topic or group is deleted

A change takes effect when the coordinator has stored it. Lock times are those of the loop's clock, in ms.

Source: `SharePartition` of Kafka 4.4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from stratalog.broker.share.dead_letter_records import DELIVERED_TOO_OFTEN, REJECTED, DeadRecords
from stratalog.broker.share.delivery import DeliveryPlan, PartitionDelivery
from stratalog.broker.share.record_runs import (
    AckBatch,
    AcquireLimits,
    BatchOffsets,
    DeliveryLimits,
    RecordRun,
    RecordState,
)
from stratalog.broker.share.state_changes import ShareWrite
from stratalog.broker.share.state_records import NOT_KNOWN, ShareKey, StateBatch
from stratalog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedLeaderEpochError,
    FencedStateEpochError,
    GroupIdNotFoundError,
    KafkaError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from stratalog.broker.share.dead_letters import DeadLetters
    from stratalog.broker.share.log_records import ReadBatches
    from stratalog.broker.share.persister import SharePersister
    from stratalog.config import GroupConfig
    from stratalog.engine import Partition
    from stratalog.log.index import AbortedTransaction

logger = logging.getLogger(__name__)

#: Errors that close a share partition here: the next fetch opens it again.
ENDS_IT = (NotLeaderOrFollowerError, FencedStateEpochError, GroupIdNotFoundError, UnknownTopicOrPartitionError)


class SharePartition:
    """A share partition. Belongs to the loop's thread."""

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        states: SharePersister,
        dead_letters: DeadLetters,
        settings: Callable[[], GroupConfig],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._states = states
        self._dead_letters = dead_letters
        self._settings = settings
        self._loop = loop
        self._state_epoch = 0
        self._opening: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._keeping: set[asyncio.Task[None]] = set()
        self._waiters: dict[Callable[[], None], None] = {}
        self.is_active = False
        self.is_fenced = False
        #: Whether a fetch that reads the remote tier is about to acquire records.
        self.is_taken = False
        self.delivery = PartitionDelivery(0)
        #: Number of records whose locks have expired.
        self.timeouts = 0

    # --- opening and closing ------------------------------------------------------------------------------------------

    async def open(self, start_at: Callable[[str], Awaitable[int]]) -> None:
        """Read the group's state; `start_at` returns the offset for a strategy of `share.auto.offset.reset`.

        Raises the coordinator's errors, converted to those of a leader.
        """
        if self.is_active:
            return
        if self._opening is not None:
            await asyncio.shield(self._opening)
            return
        self._opening = self._loop.create_future()
        try:
            await self._read(start_at)
        except KafkaError as error:
            self._opening.set_exception(error)
            self._opening.exception()  # it is raised here too; there may be no other waiter
            raise
        except BaseException as error:
            if isinstance(error, Exception):
                logger.exception("%s: the share partition could not be opened", self.key)
            self._opening.set_exception(CoordinatorNotAvailableError("The share partition was not opened."))
            self._opening.exception()
            raise
        else:
            self._opening.set_result(None)
        finally:
            self._opening = None

    async def _read(self, start_at: Callable[[str], Awaitable[int]]) -> None:
        try:
            found = await self._states.read(self.key, self.leader_epoch)
        except KafkaError as error:
            raise as_leader_error(error) from error
        start_offset = found.start_offset
        if start_offset == NOT_KNOWN:
            start_offset = await start_at(self._settings()["share.auto.offset.reset"])
        self._state_epoch = found.state_epoch
        self.delivery = PartitionDelivery(
            start_offset,
            [RecordRun(batch.first, batch.last, _state(batch), batch.delivery_count) for batch in found.batches],
        )
        self.is_active = not self.is_fenced
        deliveries = self.limits.deliveries
        self._send_letters(
            (run, DELIVERED_TOO_OFTEN if run.delivery_count >= deliveries else REJECTED)
            for run in self.delivery.runs
            if run.state is RecordState.ARCHIVING  # left over from the previous leader
        )

    def fence(self) -> None:
        """Stop delivering records; members lose the ones that they have acquired."""
        self.is_active, self.is_fenced = False, True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake()

    def close(self) -> None:
        """Fence it and stop waiting for the coordinator: the broker stops."""
        self.fence()
        if not self._loop.is_closed():
            for task in self._keeping:
                task.cancel()

    # --- settings -----------------------------------------------------------------------------------------------------

    @property
    def limits(self) -> DeliveryLimits:
        settings = self._settings()
        return DeliveryLimits(
            locks=settings["share.partition.max.record.locks"],
            deliveries=settings["share.delivery.count.limit"],
            lock_ms=settings["share.record.lock.duration.ms"],
            may_renew=settings["share.renew.acknowledge.enable"],
            has_dead_letters=self._dead_letters.is_wanted(settings),
        )

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def watch(self, waiter: Callable[[], None]) -> None:
        """Call `waiter` whenever more records may be available."""
        self._waiters[waiter] = None

    def forget(self, waiter: Callable[[], None]) -> None:
        self._waiters.pop(waiter, None)

    def wake(self) -> None:
        for waiter in list(self._waiters):
            waiter()

    # --- records ------------------------------------------------------------------------------------------------------

    @property
    def can_acquire(self) -> bool:
        return self.is_active and not self.is_taken and self.delivery.can_acquire(self.limits.locks)

    def has_for(self, fetch_offset: int, last: int, wanted: int) -> bool:
        """Return whether enough records are available between two offsets, or none after the second one."""
        delivery = self.delivery
        is_full = delivery.end_offset - delivery.start_offset >= self.limits.locks
        return (is_full and last >= delivery.end_offset - 1) or delivery.available(fetch_offset, last) >= wanted

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        read: ReadBatches,
        aborted: Sequence[AbortedTransaction],
        limits: AcquireLimits,
    ) -> list[RecordRun]:
        """Acquire records that were read; those of aborted transactions are archived instead."""
        if not self.is_active or limits.records <= 0 or not read.pieces:
            return []
        acquired = self.delivery.acquire(member_id, fetch_offset, read.offsets, limits, self.limits, self._now_ms())
        if acquired and aborted:
            gone = read.aborted(aborted)
            if gone:
                self.delivery.carry_out(self.delivery.archive(gone), moves_start=False)
                acquired = [part for run in acquired for part in run.without(gone)]
        self._watch_locks()
        return acquired

    async def acknowledge(self, member_id: str, batches: Sequence[AckBatch]) -> None:
        """Apply a member's acknowledgements: all or, with an error, none."""
        await self._change(self.delivery.acknowledge(member_id, batches, self.limits, self._now_ms()))

    async def release(self, member_id: str) -> None:
        """Release the records that a member has acquired."""
        await self._change(self.delivery.release(member_id, self.limits))

    def start_at(self, offset: int) -> None:
        """Drop records that the log has deleted."""
        self.delivery.start_at(offset)

    async def _change(self, plan: DeliveryPlan) -> None:
        """Have the coordinator store a change, and then apply it; undo it if the coordinator refuses."""
        if not plan.changed:
            self.delivery.carry_out(plan, moves_start=False)
            self._watch_locks()
            return
        self.delivery.begin(plan)
        # A client that disconnects does not stop this: the coordinator may have stored the change.
        await asyncio.shield(self._in_the_background(self._finish(plan, self._write_of(plan))))

    async def _finish(self, plan: DeliveryPlan, said: ShareWrite) -> None:
        is_kept = False
        try:
            await self._keep(said)
            is_kept = True
        finally:
            if is_kept:
                self.delivery.finish(plan)
            else:
                self.delivery.take_back(plan, self.limits, self._now_ms())
            self._watch_locks()
            self.wake()
        self._send_dead_letters(plan)

    def _in_the_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._keeping.add(task)
        task.add_done_callback(self._background_ended)
        return task

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self._keeping.discard(task)
        if not task.cancelled():
            task.exception()  # reported to the client, if it is still connected

    def _write_of(self, plan: DeliveryPlan) -> ShareWrite:
        return ShareWrite(
            start_offset=self.delivery.start_offset,
            done_count=plan.done_count,
            batches=tuple([StateBatch(run.first, run.last, run.state, run.delivery_count) for run in plan.changed]),
        )

    async def _keep(self, said: ShareWrite) -> None:
        try:
            await self._states.write(self.key, self._state_epoch, self.leader_epoch, said)
        except KafkaError as error:
            raise as_leader_error(error, "Error in write state RPC. ") from error

    # --- dead letters -------------------------------------------------------------------------------------------------

    def _send_dead_letters(self, plan: DeliveryPlan) -> None:
        self._send_letters(
            (run, REJECTED if run.first in plan.rejected else DELIVERED_TOO_OFTEN)
            for run in plan.changed
            if run.state is RecordState.ARCHIVING
        )

    def _send_letters(self, dead: Iterable[tuple[RecordRun, str]]) -> None:
        topic = self.partition.topic
        self._dead_letters.submit([DeadRecords.of(self.key, topic, *each) for each in dead], self._archive_dead)

    def _archive_dead(self, dead: Sequence[DeadRecords]) -> None:
        plan = self.delivery.archive_dead([BatchOffsets(each.first, each.last) for each in dead])
        if plan.changed:
            self._carry_out_at_once(plan, "archiving dead records")

    # --- locks --------------------------------------------------------------------------------------------------------

    def _watch_locks(self) -> None:
        due_ms = self.delivery.next_due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None and not self.is_fenced:
            self._timer = self._loop.call_at(due_ms / 1000 + 0.001, self._expire)

    def _expire(self) -> None:
        """Release the records whose locks have expired, even if the coordinator cannot store that."""
        self._timer = None
        plan = self.delivery.expire(self.limits, self._now_ms())
        if plan.changed:
            self.timeouts += sum(len(run) for run in plan.changed)
            self._carry_out_at_once(plan, "expired locks")
        self._watch_locks()

    def _carry_out_at_once(self, plan: DeliveryPlan, what: str) -> None:
        """Apply a change even if the coordinator cannot store it. The start offset moves only when it is stored."""
        said = self._write_of(plan)
        self.delivery.carry_out(plan, moves_start=False)
        self.wake()
        self._in_the_background(self._keep_what_is_so(plan, said, what))

    async def _keep_what_is_so(self, plan: DeliveryPlan, said: ShareWrite, what: str) -> None:
        try:
            await self._keep(said)
        except KafkaError as error:
            logger.info("%s: %s could not be stored: %s", self.key, what, error)
        except Exception:  # no request waits for it: the next acknowledgement stores it
            logger.exception("%s: %s could not be stored", self.key, what)
        self.delivery.advance()
        self.wake()
        self._send_dead_letters(plan)


def _state(batch: StateBatch) -> RecordState:
    try:
        return RecordState(batch.state)
    except ValueError:
        raise UnknownServerError(f"Unknown record state id: {batch.state}") from None


def as_leader_error(error: KafkaError, what: str = "") -> KafkaError:
    """Return the error for members that corresponds to a coordinator's error; `what` is prepended to its message."""
    if isinstance(error, (NotCoordinatorError, CoordinatorNotAvailableError, CoordinatorLoadInProgressError)):
        return CoordinatorNotAvailableError(f"{what}{error}")
    if isinstance(error, (FencedLeaderEpochError, FencedStateEpochError)):
        return NotLeaderOrFollowerError(f"{what}{error}")
    if isinstance(error, (GroupIdNotFoundError, UnknownTopicOrPartitionError)):
        return type(error)(f"{what}{error}")
    return UnknownServerError(f"{what}{error}")
