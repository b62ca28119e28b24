"""A classic group with hands: events with plain words, effects sorted into answers."""

from __future__ import annotations

import itertools
from typing import Any

from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.values import (
    Answer,
    Effects,
    GroupSettings,
    JoinReply,
    JoinRequest,
    LeavingMember,
    LeftMember,
    Moment,
    Protocol,
    Store,
    SyncReply,
    SyncRequest,
)

WALL_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (Protocol("range", b"r"),)


class Machine:
    """A group, its time, the answers by token, and what it stored. `hold_stores` leaves them for `finish_store`."""

    def __init__(self, group: ClassicGroup | None = None, **settings: int) -> None:
        self.now_ms = 1_000
        self.settings = GroupSettings(**{"initial_rebalance_delay_ms": 3_000, **settings})
        self.group = group or ClassicGroup("g", self.settings, self.now)
        self.answers: dict[Any, JoinReply | SyncReply] = {}
        self.stored: list[Store] = []
        self.held: list[Store] = []
        self.hold_stores = False
        self._ids = itertools.count(1)
        self._tokens = itertools.count(1)

    @property
    def now(self) -> Moment:
        return Moment(WALL_MS + self.now_ms, self.now_ms)

    @property
    def state(self) -> GroupState:
        return self.group.state

    def carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Store):
                self.held.append(effect)
                if not self.hold_stores:
                    self.finish_store()
            else:
                assert effect.token not in self.answers, f"{effect.token} is answered twice"
                self.answers[effect.token] = effect

    def finish_store(self, error: Answer | None = None) -> None:
        store = self.held.pop(0)
        if error is None:
            self.stored.append(store)
            self.carry_out(self.group.stored(store, self.now))
        else:
            self.carry_out(self.group.store_failed(store, error, self.now))

    # --- events ---

    def join(self, member_id: str = "", protocols: tuple[Protocol, ...] = RANGE, **fields: Any) -> str:
        """Send a join; its token."""
        token = f"join-{next(self._tokens)}"
        request = JoinRequest(
            **{
                "member_id": member_id,
                "new_member_id": f"m{next(self._ids)}" if not member_id else "unused",
                "protocol_type": "consumer",
                "protocols": protocols,
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                **fields,
            }
        )
        self.carry_out(self.group.join(request, token, self.now))
        return token

    def enter(self, protocols: tuple[Protocol, ...] = RANGE, **fields: Any) -> tuple[str, str]:
        """Join as a new dynamic member, in two steps; its id and the token of the second."""
        asked = self.joined(self.join(protocols=protocols, **fields))
        assert asked.error is Answer.MEMBER_ID_REQUIRED
        return asked.member_id, self.join(asked.member_id, protocols, **fields)

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None, **fields: Any) -> str:
        token = f"sync-{next(self._tokens)}"
        request = SyncRequest(
            **{
                "member_id": member_id,
                "generation": self.group.generation,
                "assignments": tuple((assignments or {}).items()),
                **fields,
            }
        )
        self.carry_out(self.group.sync(request, token))
        return token

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> None:
        asked = self.group.generation if generation is None else generation
        self.group.heartbeat(member_id, instance_id, asked, self.now)

    def leave(self, *members: LeavingMember) -> list[LeftMember]:
        left, effects = self.group.leave(members, self.now)
        self.carry_out(effects)
        return left

    def wait(self, ms: int) -> None:
        """Let time pass, doing what is due on the way exactly when it is due."""
        end_ms = self.now_ms + ms
        while (due_ms := self.group.next_deadline_ms) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.carry_out(self.group.on_time(self.now))
        self.now_ms = end_ms

    # --- answers ---

    def joined(self, token: str) -> JoinReply:
        answer = self.answers[token]
        assert isinstance(answer, JoinReply)
        return answer

    def synced(self, token: str) -> SyncReply:
        answer = self.answers[token]
        assert isinstance(answer, SyncReply)
        return answer

    # --- whole stories ---

    def stable(self, count: int, protocols: tuple[Protocol, ...] = RANGE) -> list[str]:
        """Bring `count` dynamic members into a stable group; their ids, the leader first."""
        ids = [self.enter(protocols)[0] for _ in range(count)]
        while self.state is GroupState.PREPARING_REBALANCE:
            due_ms = self.group.next_deadline_ms
            assert due_ms is not None
            self.wait(due_ms - self.now_ms)
        leader = self.group.members.leader
        assert leader is not None
        self.sync(leader, {member: member.encode() for member in ids})
        for member in ids:
            if member != leader:
                self.sync(member)
        assert self.state is GroupState.STABLE
        return sorted(ids, key=lambda member: member != leader)
