"""Groups of all types on this broker: loads, finds and drops them by partition.

The code of the newer types of groups is loaded with the first group, or the first request, of one: it is a sixth of a
start, and many brokers never need it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from stratalog.broker.coordinator_loading import CoordinatorLoading, in_pieces
from stratalog.broker.coordinator_log import CoordinatorLog, KeyValue
from stratalog.broker.groups import consumer, share, streams
from stratalog.broker.groups.classic_coordinator import ClassicCoordinator
from stratalog.broker.groups.commits import GroupCommits
from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.offsets_log import offsets_log
from stratalog.broker.groups.stored import Stored, StoredChange, StoredGroup, decode_stored
from stratalog.broker.groups.values import Answer, GroupKind, GroupSettings
from stratalog.errors import GroupIdNotFoundError

if TYPE_CHECKING:
    from stratalog.broker.groups.consumer import ConsumerCoordinator, ConsumerGroup, GroupChange
    from stratalog.broker.groups.share import ShareGroup, ShareGroupChange, ShareGroupCoordinator
    from stratalog.broker.groups.streams import StreamsCoordinator, StreamsGroup, StreamsGroupChange
    from stratalog.broker.share import SharePersister
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers

logger = logging.getLogger(__name__)

#: A group of any protocol.
AnyGroup: TypeAlias = "ClassicGroup | ConsumerGroup | StreamsGroup | ShareGroup"
_GroupT = TypeVar("_GroupT", ClassicGroup, "ConsumerGroup", "StreamsGroup", "ShareGroup")


class _CoordinatorOfType(Protocol):
    """The common interface of the coordinators of all types. It only gets groups of its type."""

    def close(self) -> None: ...

    def get(self, group_id: str) -> AnyGroup | None: ...

    def groups(self) -> Sequence[AnyGroup]: ...

    def loaded(self, group: Any) -> None: ...

    def tombstones(self, group: Any) -> list[KeyValue]: ...

    def forget(self, group: Any) -> None: ...


class LoadedGroups:
    """The groups of the loaded partitions of `__consumer_offsets`. Belongs to the loop's thread."""

    def __init__(self, storage: BrokerStorage, workers: Workers, share_states: SharePersister) -> None:
        config = storage.config
        self._storage = storage
        self._workers = workers
        self._share_states = share_states
        self._settings = settings = GroupSettings(
            initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
            session_timeout_min_ms=config["group.min.session.timeout.ms"],
            session_timeout_max_ms=config["group.max.session.timeout.ms"],
            members_max=config["group.max.size"],
        )
        self.log: CoordinatorLog = offsets_log(storage, workers)
        self.classics = ClassicCoordinator(storage.clock, workers, self.log, settings)
        #: By the types of their groups, in the order of listings; None until one has something to do. A group is in
        #: exactly one.
        self._coordinators: dict[GroupKind, _CoordinatorOfType | None] = dict.fromkeys(GroupKind)
        self._coordinators[GroupKind.CLASSIC] = self.classics
        self.commits = GroupCommits(self.log, config)
        self.loading = CoordinatorLoading(
            storage, workers, self.log, decode=decode_stored, take=self._take, drop=self._drop, keeps=True
        )
        #: By partition: transactions (producer id, committed) whose marker was written while the partition was loading.
        self._ended_while_loading: dict[int, list[tuple[int, bool]]] = {}

    @cached_property
    def consumers(self) -> ConsumerCoordinator:
        made = consumer.ConsumerCoordinator(
            self._storage,
            self._workers,
            self.log,
            self._settings,
            on_upgraded=self._upgraded,
            on_downgraded=self._downgraded,
        )
        self._coordinators[GroupKind.CONSUMER] = made
        return made

    @cached_property
    def streams(self) -> StreamsCoordinator:
        made = streams.StreamsCoordinator(self._storage, self._workers, self.log)
        self._coordinators[GroupKind.STREAMS] = made
        return made

    @cached_property
    def shares(self) -> ShareGroupCoordinator:
        made = share.ShareGroupCoordinator(self._storage, self._workers, self.log, self._share_states)
        self._coordinators[GroupKind.SHARE] = made
        return made

    def _made(self) -> list[_CoordinatorOfType]:
        """Return the coordinators that have had something to do."""
        return [coordinator for coordinator in self._coordinators.values() if coordinator is not None]

    def close(self) -> None:
        """Stop the timers."""
        self.loading.close()
        for coordinator in self._made():
            coordinator.close()

    def _take(self, number: int, entries: Sequence[Stored]) -> Iterator[None]:
        """Load records of a partition, in pieces."""
        yield from in_pieces(entries, self._take_entry)
        groups = dict.fromkeys(entry.key.group_id for entry in entries)
        yield from in_pieces(groups, self._loaded)
        for producer_id, committed in self._ended_while_loading.pop(number, ()):
            self.commits.transaction_ended(producer_id, number, committed=committed)
        if groups:
            logger.info("Loaded %d groups of %s-%d", len(groups), self.log.topic, number)

    def _take_entry(self, entry: Stored) -> None:
        group_id = entry.key.group_id
        if isinstance(entry, StoredGroup):
            self.classics.load(group_id, entry.metadata)
        elif isinstance(entry, StoredChange):
            self._take_change(group_id, entry.change)
        else:
            self.commits.load(entry.key, entry.commit, entry.producer_id)
            if self._group(group_id) is None:
                self.classics.begin(group_id)

    def _take_change(self, group_id: str, change: GroupChange | StreamsGroupChange | ShareGroupChange) -> None:
        if isinstance(change, consumer.GroupChange):
            self.consumers.load(group_id, change)
        elif isinstance(change, streams.StreamsGroupChange):
            self.streams.load(group_id, change)
        else:
            self.shares.load(group_id, change)

    def _loaded(self, group_id: str) -> None:
        group = self._group(group_id)
        if group is not None:
            self._of(group).loaded(group)

    def _drop(self, number: int) -> None:
        """Drop the groups of a partition; waiting clients have to find the new coordinator."""

        def is_there(group_id: str) -> bool:
            return not self.log.exists or self.log.partition_number(group_id) == number

        for group in self.all_groups():
            if not is_there(group.group_id):
                continue
            if isinstance(group, ClassicGroup):
                self.classics.forget(group, Answer.NOT_COORDINATOR)
            else:
                self._of(group).forget(group)
        self.commits.drop(is_there)
        self._ended_while_loading.pop(number, None)

    async def _find(self, group_id: str) -> None:
        """Return when the group's partition is loaded; a single broker creates the topic for it."""
        if self.log.epochs is None:
            await self.log.ensure()
        self.loading.check(group_id)

    def _group(self, group_id: str) -> AnyGroup | None:
        for coordinator in self._made():
            group = coordinator.get(group_id)
            if group is not None:
                return group
        return None

    def _of(self, group: AnyGroup) -> _CoordinatorOfType:
        coordinator = self._coordinators[GroupKind(group.type_name)]
        assert coordinator is not None, "it has a group"
        return coordinator

    def transaction_ended(self, producer_id: int, number: int, *, committed: bool) -> None:
        """Call `GroupCommits.transaction_ended` now, or when the partition is loaded."""
        if self.loading.is_loading(number):
            self._ended_while_loading.setdefault(number, []).append((producer_id, committed))
        else:
            self.commits.transaction_ended(producer_id, number, committed=committed)

    def _upgraded(self, group: ClassicGroup) -> None:
        """Drop a classic group that was converted to the consumer protocol; waiting clients rejoin."""
        self.classics.forget(group, Answer.REBALANCE_IN_PROGRESS)

    def _downgraded(self, group: ClassicGroup, needs_rebalance: bool) -> None:
        """Add a group that was converted to the classic protocol."""
        self.classics.adopt(group, needs_rebalance=needs_rebalance)

    def known(self, group_id: str) -> AnyGroup:
        """Return the group, or raise GroupIdNotFoundError."""
        self.loading.check(group_id)
        group = self._group(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group

    def known_as(self, group_id: str, kind: type[_GroupT]) -> _GroupT:
        """Return the group of this type, or raise GroupIdNotFoundError."""
        group = self.known(group_id)
        if isinstance(group, kind):
            return group
        raise GroupIdNotFoundError(f"Group {group_id} is not a {kind.type_name} group.")

    def described_as(self, group_id: str, kind: type[_GroupT]) -> _GroupT:
        """Return the group of this type as requests see it that only read, or GroupIdNotFoundError."""
        group = self.known(group_id)
        if not self._is_seen(group):
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return self.known_as(group_id, kind)

    def listed_groups(self) -> list[AnyGroup]:
        """Return the groups that requests see which only read."""
        return [group for group in self.all_groups() if self._is_seen(group)]

    def _is_seen(self, group: AnyGroup) -> bool:
        """Return whether something was written since the group was made.

        Kafka reads from what is committed: a group that nothing was stored for becomes visible with the next record
        of its partition, whatever that is about.
        """
        made_at = self.classics.made_at(group) if isinstance(group, ClassicGroup) else None
        return made_at is None or self.log.end_offset(group.group_id) > made_at

    def all_groups(self) -> list[AnyGroup]:
        return [group for coordinator in self._made() for group in coordinator.groups()]

    def groups_of(self, kind: GroupKind) -> Sequence[AnyGroup]:
        coordinator = self._coordinators[kind]
        return () if coordinator is None else coordinator.groups()
