"""The coordinator of classic groups: connects their state machines with the log, timers and waiting clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from stratalog.broker.coordinator_log import CoordinatorLog, KeyValue
from stratalog.broker.groups.alarms import GroupAlarms
from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.records import GroupKey, encode_group_key, encode_group_value
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.values import (
    Answer,
    Effects,
    GroupMetadata,
    GroupSettings,
    JoinReply,
    JoinRequest,
    LeavingMember,
    LeftMember,
    Moment,
    Store,
    SyncReply,
    SyncRequest,
)
from stratalog.broker.loop_turns import LoopTurns
from stratalog.errors import InvalidSessionTimeoutError, KafkaError

if TYPE_CHECKING:
    from stratalog.broker.workers import Workers
    from stratalog.util import Clock

logger = logging.getLogger(__name__)

#: Pause before retrying a group's timer that failed.
_RETRY_MS = 1000


class ClassicCoordinator:
    """Runs classic groups. Belongs to the loop's thread. A group's metadata is in the log before it is answered."""

    def __init__(self, clock: Clock, workers: Workers, log: CoordinatorLog, settings: GroupSettings) -> None:
        self.settings = settings
        self._loop = workers.loop
        self._clock = clock
        self._log = log
        self._groups: dict[str, ClassicGroup] = {}
        #: Of groups without any record: where their partition of `__consumer_offsets` ended when they were made.
        self._made_at: dict[str, int] = {}
        self._alarms = GroupAlarms(clock, workers.loop, self._on_alarm)
        #: All members of a group are answered in the same turn of the loop.
        self._turns = LoopTurns(workers.loop)

    def close(self) -> None:
        self._alarms.close()

    def _now(self) -> Moment:
        return Moment.of_clock(self._clock)

    def get(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def groups(self) -> list[ClassicGroup]:
        return list(self._groups.values())

    def load(self, group_id: str, metadata: GroupMetadata) -> None:
        self._groups[group_id] = ClassicGroup.load(group_id, metadata, self.settings, self._now())

    def loaded(self, group: ClassicGroup) -> None:
        """Start a loaded group's timers; a group above the current member limit rebalances."""
        self._carry_out(group, group.shrink_to_limit(self._now()))

    def begin(self, group_id: str, *, made_at: int | None = None) -> None:
        """Add a group that has only commits; nothing is stored.

        `made_at` is the end of its partition of `__consumer_offsets` if none of the commits was stored either.
        """
        self._groups[group_id] = ClassicGroup(group_id, self.settings, self._now())
        if made_at is not None:
            self._made_at[group_id] = made_at

    def made_at(self, group: ClassicGroup) -> int | None:
        """Return where its partition of `__consumer_offsets` ended if the group was made without any record there."""
        return self._made_at.get(group.group_id)

    def create(self, group_id: str, before: Sequence[KeyValue]) -> ClassicGroup:
        """Return a new group, stored as empty, so that it exists even if its first rebalance never ends.

        `before` are records to append before its own.
        """
        group = ClassicGroup(group_id, self.settings, self._now())
        self._store(group_id, group.metadata(), before)
        self._groups[group_id] = group
        return group

    def adopt(self, group: ClassicGroup, *, needs_rebalance: bool) -> None:
        """Add a group that was converted to the classic protocol."""
        self._groups[group.group_id] = group
        self._carry_out(group, group.rebalance(self._now()) if needs_rebalance else [])

    def tombstones(self, group: ClassicGroup) -> list[KeyValue]:
        """Return the records that delete a group."""
        return [(encode_group_key(GroupKey(group.group_id)), None)]

    def forget(self, group: ClassicGroup, answer: Answer = Answer.COORDINATOR_NOT_AVAILABLE) -> None:
        """Drop a group that was deleted or moved to another broker; waiting clients get `answer`."""
        del self._groups[group.group_id]
        self._made_at.pop(group.group_id, None)
        self._carry_out(group, group.die(answer, self._now()))

    def check_session_timeout(self, timeout_ms: int) -> None:
        """Raise InvalidSessionTimeoutError for a timeout outside the allowed range."""
        low, high = self.settings.session_timeout_min_ms, self.settings.session_timeout_max_ms
        if not low <= timeout_ms <= high:
            raise InvalidSessionTimeoutError(
                f"session timeout {timeout_ms} ms is not between {low} and {high} ms (group.min/max.session.timeout.ms)"
            )

    async def join(self, group: ClassicGroup, request: JoinRequest) -> JoinReply:
        """Join a group; returns when the join phase is over, or at once with an error."""
        future: asyncio.Future[JoinReply] = self._loop.create_future()
        self._carry_out(group, group.join(request, future, self._now()))
        return await future if not future.done() else future.result()

    async def sync(self, group: ClassicGroup, request: SyncRequest) -> SyncReply:
        """Return a member's assignment once the leader's assignments are stored, or at once."""
        future: asyncio.Future[SyncReply] = self._loop.create_future()
        self._carry_out(group, group.sync(request, future))
        return await future if not future.done() else future.result()

    def leave(self, group: ClassicGroup, leaving: list[LeavingMember]) -> list[LeftMember]:
        left, effects = group.leave(leaving, self._now())
        self._carry_out(group, effects)
        return left

    def _carry_out(self, group: ClassicGroup, effects: Effects) -> None:
        before = group.state, group.generation
        try:
            self._apply(group, effects)
        finally:  # without a timer the group would wait forever
            self._arm(group)
        if (group.state, group.generation) != before:
            logger.info(
                "Group %s: %s, generation %d, %d members",
                group.group_id,
                group.state.value,
                group.generation,
                len(group.members),
            )

    def _apply(self, group: ClassicGroup, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Store):
                self._apply(group, self._store_effect(group, effect))
            else:
                future = effect.token
                assert isinstance(future, asyncio.Future)
                self._turns.run(partial(_answer, future, effect))

    def _store_effect(self, group: ClassicGroup, effect: Store) -> Effects:
        try:
            self._store(group.group_id, effect.metadata)
        except KafkaError as error:
            return group.store_failed(effect, Answer(error.code), self._now())
        except Exception:
            logger.exception("Group %s cannot be stored", group.group_id)
            return group.store_failed(effect, Answer.UNKNOWN_SERVER_ERROR, self._now())
        return group.stored(effect, self._now())

    def _store(self, group_id: str, metadata: GroupMetadata, before: Sequence[KeyValue] = ()) -> None:
        self._log.append(group_id, [*before, (encode_group_key(GroupKey(group_id)), encode_group_value(metadata))])

    def _arm(self, group: ClassicGroup) -> None:
        """Set the timer for the group's next deadline."""
        self._alarms.set(group.group_id, None if group.state is GroupState.DEAD else group.next_deadline_ms)

    def _on_alarm(self, group_id: str) -> None:
        group = self._groups[group_id]
        try:
            self._carry_out(group, group.on_time(self._now()))
        except Exception:
            logger.exception("Group %s: its timer failed and will be retried", group_id)
            self._alarms.cancel(group_id)
            self._alarms.set(group_id, self._now().monotonic_ms + _RETRY_MS)


def _answer(future: asyncio.Future[Any], effect: JoinReply | SyncReply) -> None:
    if not future.done():  # else the connection is closed
        future.set_result(effect)
