"""Client of the share coordinator, for leaders of partitions and the group coordinator.

A single broker coordinates all states. In a cluster, the leader of a state's partition of `__share_group_state` does;
requests to one broker about one group are batched. Requests are retried while the coordinator moves or loads.

Source: `DefaultStatePersister` and `PersisterStateManager` of Kafka 4.4.0, whose backoff is longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from stratalog.broker.batched_requests import BatchedRequests
from stratalog.broker.share.state_changes import ShareWrite
from stratalog.broker.share.state_records import NOT_KNOWN, ShareKey, ShareSnapshot, StateBatch
from stratalog.broker.share.wire import said_batches
from stratalog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    StratalogError,
    UnknownServerError,
    error_for_code,
)
from stratalog.wire import ApiKey

if TYPE_CHECKING:
    from stratalog.broker.cluster_membership import ClusterMembership
    from stratalog.broker.share.states import ShareStates

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
_Fields: TypeAlias = Mapping[str, Any]

#: Errors after which the coordinator may be elsewhere, or ready, at the next try.
_RETRIABLE: Final = (CoordinatorNotAvailableError, CoordinatorLoadInProgressError, NotCoordinatorError)
#: The first pause, the longest one (each is twice the one before), and the time limit of retries.
_BACKOFF_S, _BACKOFF_MAX_S, _TRY_S = 0.1, 2.0, 30.0
#: Start offset, state epoch and leader epoch in the summary of a state that does not exist.
_NO_STATE: Final = (-1, 0, 0)


class _Destination(NamedTuple):
    """The destination of a request, which is about one group."""

    broker: int
    group_id: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request for one partition."""

    key: ShareKey
    fields: _Fields

    @property
    def place(self) -> tuple[UUID, int]:
        return self.key.topic_id, self.key.partition


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the five requests, and its versions."""

    api: ApiKey
    versions: tuple[int, int]


_INITIALIZE: Final = _Kind(ApiKey.INITIALIZE_SHARE_GROUP_STATE, (0, 0))
_READ: Final = _Kind(ApiKey.READ_SHARE_GROUP_STATE, (0, 0))
_WRITE: Final = _Kind(ApiKey.WRITE_SHARE_GROUP_STATE, (1, 1))
_DELETE: Final = _Kind(ApiKey.DELETE_SHARE_GROUP_STATE, (0, 0))
_SUMMARY: Final = _Kind(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (1, 1))


class SharePersister:
    """Stores and reads share states. Belongs to the loop's thread. Raises the errors of `ShareStates`."""

    def __init__(self, states: ShareStates, cluster: ClusterMembership | None = None) -> None:
        self._states = states
        self._cluster = cluster
        self._requests: dict[ApiKey, BatchedRequests[_Destination, _Asked, Any]] = {}
        if cluster is not None:
            for kind in (_INITIALIZE, _READ, _WRITE, _DELETE, _SUMMARY):
                self._requests[kind.api] = self._batched(kind, cluster)

    def close(self) -> None:
        """Stop sending requests."""
        for requests in self._requests.values():
            requests.close()

    @property
    def is_loading(self) -> bool:
        """Whether a single broker is still loading states; in a cluster, the requests wait for the coordinator."""
        return self._cluster is None and not self._states.loading.is_over

    # --- states -------------------------------------------------------------------------------------------------------

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """`ShareStates.initialize` at the coordinator."""

        async def here() -> None:
            await self._states.initialize(key, state_epoch, start_offset)

        def fields() -> _Fields:
            return {"state_epoch": state_epoch, "start_offset": start_offset}

        await self._ask(_INITIALIZE, key, fields, here, _nothing)

    async def read(self, key: ShareKey, leader_epoch: int) -> ShareSnapshot:
        """`ShareStates.read` at the coordinator. The snapshot epochs are not returned."""

        async def here() -> ShareSnapshot:
            return await self._states.read(key, leader_epoch)

        def snapshot(found: Any) -> ShareSnapshot:
            return ShareSnapshot(
                snapshot_epoch=NOT_KNOWN,
                state_epoch=found.state_epoch,
                leader_epoch=leader_epoch,
                start_offset=found.start_offset,
                batches=said_batches(found.state_batches),
            )

        return await self._ask(_READ, key, lambda: {"leader_epoch": leader_epoch}, here, snapshot)

    async def write(self, key: ShareKey, state_epoch: int, leader_epoch: int, said: ShareWrite) -> None:
        """`ShareStates.write` at the coordinator."""

        async def here() -> None:
            await self._states.write(key, state_epoch, leader_epoch, said)

        def fields() -> _Fields:
            return {
                "state_epoch": state_epoch,
                "leader_epoch": leader_epoch,
                "start_offset": said.start_offset,
                "delivery_complete_count": said.done_count,
                "state_batches": [_state_batch(batch) for batch in said.batches],
            }

        await self._ask(_WRITE, key, fields, here, _nothing)

    async def summary(self, key: ShareKey) -> ShareSnapshot | None:
        """`ShareStates.summary` at the coordinator; only with the fields of the response."""

        async def here() -> ShareSnapshot | None:
            return await self._states.summary(key)

        def snapshot(found: Any) -> ShareSnapshot | None:
            if (found.start_offset, found.state_epoch, found.leader_epoch) == _NO_STATE:
                return None
            return ShareSnapshot(
                snapshot_epoch=NOT_KNOWN,
                state_epoch=found.state_epoch,
                leader_epoch=found.leader_epoch,
                start_offset=found.start_offset,
                done_count=found.delivery_complete_count,
            )

        return await self._ask(_SUMMARY, key, lambda: {"leader_epoch": 0}, here, snapshot)

    async def delete(self, key: ShareKey) -> None:
        """`ShareStates.delete` at the coordinator."""

        async def here() -> None:
            await self._states.delete(key)

        await self._ask(_DELETE, key, dict, here, _nothing)

    # --- the coordinator ----------------------------------------------------------------------------------------------

    async def _ask(
        self,
        kind: _Kind,
        key: ShareKey,
        fields: Callable[[], _Fields],
        here: Callable[[], Awaitable[_Answer]],
        read: Callable[[Any], _Answer],
    ) -> _Answer:
        """Call `here` if this broker coordinates a state, else send a request and `read` the response."""
        cluster = self._cluster
        if cluster is None:
            return await here()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _TRY_S
        pause_s = _BACKOFF_S
        while True:
            try:
                broker = await self._coordinator(cluster, key)
                if broker == cluster.node_id:
                    return await here()
                return read(await self._ask_broker(kind, broker, _Asked(key, fields())))
            except _RETRIABLE as error:
                if loop.time() + pause_s >= until_s:
                    raise
                logger.debug("%s: retrying %s: %s", key, kind.api.message, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _BACKOFF_MAX_S)

    async def _coordinator(self, cluster: ClusterMembership, key: ShareKey) -> int:
        """Return the broker that coordinates a state; creates the topic if needed."""
        log = self._states.log
        await log.ensure()
        leader = cluster.leader(log.topic, log.partition_number(str(key)))
        if leader is None or leader[0] < 0:
            raise CoordinatorNotAvailableError(f"no broker leads the partition of {log.topic} with {key}")
        return leader[0]

    async def _ask_broker(self, kind: _Kind, broker: int, asked: _Asked) -> Any:
        """Return another broker's response for a partition, or raise its error."""
        try:
            found = await self._requests[kind.api].ask(_Destination(broker, asked.key.group_id), asked)
        except (StratalogError, OSError) as error:
            raise CoordinatorNotAvailableError(f"broker {broker} does not respond: {error}") from error
        if found is None:
            raise UnknownServerError(f"the response of broker {broker} lacks {asked.key}")
        if int(found.error_code):
            error_class = error_for_code(int(found.error_code))
            raise error_class(found.error_message or f"broker {broker} returned {found.error_code!r} for {asked.key}")
        return found

    def _batched(self, kind: _Kind, cluster: ClusterMembership) -> BatchedRequests[_Destination, _Asked, Any]:
        async def send(to: _Destination, batch: Sequence[_Asked]) -> list[Any]:
            topics: dict[UUID, list[dict[str, Any]]] = {}
            for asked in batch:
                partition = {"partition": asked.key.partition, **asked.fields}
                topics.setdefault(asked.key.topic_id, []).append(partition)
            answer = await cluster.ask(
                to.broker,
                kind.api,
                kind.versions,
                group_id=to.group_id,
                topics=[{"topic_id": topic_id, "partitions": asked} for topic_id, asked in topics.items()],
            )
            found = {
                (result.topic_id, partition.partition): partition
                for result in answer.results
                for partition in result.partitions
            }
            return [found.get(asked.place) for asked in batch]

        return BatchedRequests(send, lambda asked: asked.place)


def _nothing(answer: Any) -> None:
    """Read a response without fields."""


def _state_batch(batch: StateBatch) -> _Fields:
    return {
        "first_offset": batch.first,
        "last_offset": batch.last,
        "delivery_state": batch.state,
        "delivery_count": batch.delivery_count,
    }
