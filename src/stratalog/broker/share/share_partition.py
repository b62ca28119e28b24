"""One partition as a share group sees it, in the leader: whose records are where, kept by the share coordinator.

    EMPTY -> OPENING -> ACTIVE -> FENCED      another leader, another state, the topic or the group is gone

A change counts when the coordinator has it. The times of locks are those of the loop's clock, in ms.

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

#: What ends the use of a partition by its group here: the next fetch begins again.
ENDS_IT = (NotLeaderOrFollowerError, FencedStateEpochError, GroupIdNotFoundError, UnknownTopicOrPartitionError)


class SharePartition:
    """Belongs to the loop's thread."""

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
        #: Whether a fetch that has to wait for the remote tier is about to hand out records.
        self.is_taken = False
        self.delivery = PartitionDelivery(0)
        #: Records whose locks were over before their members said anything.
        self.timeouts = 0

    # --- opening and closing ------------------------------------------------------------------------------------------

    async def open(self, start_at: Callable[[str], Awaitable[int]]) -> None:
        """Read what is known of the group; `start_at` tells where a strategy of `share.auto.offset.reset` begins.

        Raises what the coordinator says, in the leader's words.
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
            self._opening.exception()  # it is raised here too; others may not wait for it
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
            if run.state is RecordState.ARCHIVING  # the leader before did not get to it
        )

    def fence(self) -> None:
        """Stop handing out records: what members have of it is theirs no more."""
        self.is_active, self.is_fenced = False, True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake()

    def close(self) -> None:
        """Fence it and wait for no coordinator any more, as the broker stops."""
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
        """Call `waiter` whenever there may be more to hand out."""
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
        """Whether enough can be handed out between two offsets, or nothing behind the second one."""
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
        """Hand out records of what was read; those of aborted transactions are archived instead."""
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
        """Take in what a member says of records: all of it or, with an error, nothing."""
        await self._change(self.delivery.acknowledge(member_id, batches, self.limits, self._now_ms()))

    async def release(self, member_id: str) -> None:
        """Let others have what a member has."""
        await self._change(self.delivery.release(member_id, self.limits))

    def start_at(self, offset: int) -> None:
        """Forget what the log does not have any more."""
        self.delivery.start_at(offset)

    async def _change(self, plan: DeliveryPlan) -> None:
        """Have the coordinator keep a change, which counts then; a change that it refuses is undone."""
        if not plan.changed:
            self.delivery.carry_out(plan, moves_start=False)
            self._watch_locks()
            return
        self.delivery.begin(plan)
        # A client that goes away does not end this: the coordinator may have the change by then.
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
            task.exception()  # its client hears of it, if it is still there

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
            self._carry_out_at_once(plan, "the end of records that are dead")

    # --- locks --------------------------------------------------------------------------------------------------------

    def _watch_locks(self) -> None:
        due_ms = self.delivery.next_due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None and not self.is_fenced:
            self._timer = self._loop.call_at(due_ms / 1000 + 0.001, self._expire)

    def _expire(self) -> None:
        """Let others have the records whose locks are over, whether or not the coordinator hears of it."""
        self._timer = None
        plan = self.delivery.expire(self.limits, self._now_ms())
        if plan.changed:
            self.timeouts += sum(len(run) for run in plan.changed)
            self._carry_out_at_once(plan, "the end of locks")
        self._watch_locks()

    def _carry_out_at_once(self, plan: DeliveryPlan, what: str) -> None:
        """Let a change count, whether or not the coordinator hears of it. The start passes what is done once it has."""
        said = self._write_of(plan)
        self.delivery.carry_out(plan, moves_start=False)
        self.wake()
        self._in_the_background(self._keep_what_is_so(plan, said, what))

    async def _keep_what_is_so(self, plan: DeliveryPlan, said: ShareWrite, what: str) -> None:
        try:
            await self._keep(said)
        except KafkaError as error:
            logger.info("%s: %s could not be kept: %s", self.key, what, error)
        except Exception:  # no request waits for it: what members say next is kept with it
            logger.exception("%s: %s could not be kept", self.key, what)
        self.delivery.advance()
        self.wake()
        self._send_dead_letters(plan)


def _state(batch: StateBatch) -> RecordState:
    try:
        return RecordState(batch.state)
    except ValueError:
        raise UnknownServerError(f"Unknown record state id: {batch.state}") from None


def as_leader_error(error: KafkaError, what: str = "") -> KafkaError:
    """Return the error that members get for an error of the coordinator. Its message begins with `what`."""
    if isinstance(error, (NotCoordinatorError, CoordinatorNotAvailableError, CoordinatorLoadInProgressError)):
        return CoordinatorNotAvailableError(f"{what}{error}")
    if isinstance(error, (FencedLeaderEpochError, FencedStateEpochError)):
        return NotLeaderOrFollowerError(f"{what}{error}")
    if isinstance(error, (GroupIdNotFoundError, UnknownTopicOrPartitionError)):
        return type(error)(f"{what}{error}")
    return UnknownServerError(f"{what}{error}")
