"""The registry of API handlers, and the context that they get.

An API lives in `apis/kNN_name.py`:

    @handles(ApiKey.LIST_GROUPS, versions=(0, 5))
    async def list_groups(ctx: RequestContext, request: Any) -> Any:
        return ctx.make("ListGroupsResponse", groups=[ctx.make("ListedGroup", group_id=g) for g in ...])

`request` is kio's dataclass of the request's version. A handler may be a plain function or `async def`. It runs on the
event loop's thread, and a connection has one request in progress, so answers keep their order. An `async def` that
never waits costs no task: it runs up to its first suspension outside of any task, and becomes one only then. So
`asyncio.timeout` and `asyncio.current_task` do not work before the first suspension; a deadline belongs to the owner of
the awaited future (`loop.call_later`). Blocking work goes through `await ctx.broker.workers.run(function, ...)`.

A client that disconnects cancels nothing: a change that its request started is finished, as in Kafka. Only the task of
an API with `waits=True` is cancelled: its handler waits for other clients, or reads for a long time.

When a handler raises, `on_error` makes the answer. Without it, the answer is a response with that error code at its top
level, if it has such a field; otherwise the connection is closed. `None` sends no response at all.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from stratalog.broker.loop_turns import ELEMENTS_A_TURN
from stratalog.broker.quotas import MutationPermit, QuotaClient, QuotaThrottle
from stratalog.broker.security import Peer, Principal
from stratalog.errors import KafkaError, wire_code
from stratalog.log.format import FileSlice
from stratalog.wire import (
    ApiKey,
    EncodedResponse,
    make_message,
    message_module,
    response_class,
    with_parts,
    write_message,
)

if TYPE_CHECKING:
    from stratalog.broker.services import BrokerServices

__all__ = ["Api", "ApiKey", "Registry", "RequestContext", "handles", "handles_frames"]

logger = logging.getLogger(__name__)

#: (context, request) -> response, None, or a coroutine of either.
Handler = Callable[["RequestContext", Any], Any]
#: (context, request, error) -> response
ErrorHandler = Callable[["RequestContext", Any, BaseException], Any]

#: A piece of an answer: bytes, or a range of a file that the kernel sends.
Chunk = bytes | bytearray | memoryview | FileSlice

#: Requests between brokers that are exempt from the request quota.
_EXEMPT = frozenset({ApiKey.WRITE_TXN_MARKERS})

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])


class Deferred:
    """A request that is answered later, through `Caller.respond`."""

    __slots__ = ()

    def cancel(self) -> None:
        """Stop waiting: the connection is closed."""
        raise NotImplementedError


class Caller(Protocol):
    """A connection as seen by an API that answers frames."""

    broker: BrokerServices
    #: The client: its principal may change between two requests.
    peer: Peer

    def respond(self, chunks: Sequence[Chunk]) -> None:
        """Send the answer of a `Deferred`."""
        ...

    def defer(self, deferred: Deferred) -> None:
        """Replace the `Deferred` that was returned."""
        ...

    def reject(self, why: object) -> None:
        """Close the connection and log one line."""
        ...

    def throttle(self, throttle: QuotaThrottle) -> None:
        """Take no further request for the throttle time, once the answer to this one is sent."""
        ...


class Template(Protocol):
    """Answers requests that are like the last one, several at once. Keeps none of them."""

    def records_of(self, frame: memoryview) -> memoryview | None:
        """Return what `answer` needs of a matching request; None for any other. Never raises."""
        ...

    def answer(self, frames: Sequence[memoryview], records: Sequence[memoryview]) -> Sequence[bytes] | Deferred | None:
        """Return the answers in order; None if nothing was done and the normal path has to answer."""
        ...


class FrameApi(Protocol):
    """An API that parses and encodes by itself. Each connection has its own, made from its `Caller`."""

    @property
    def template(self) -> Template | None:
        """The fast path for requests that are like the last one, if there is one."""
        ...

    @property
    def second_name(self) -> str:
        """A second name under which the last request is counted; "" for none."""
        ...

    def answer(self, version: int, correlation_id: int, frame: memoryview, position: int) -> Sequence[Chunk] | Deferred:
        """Answer the request in `frame`, which has no size field and whose message begins at `position`.

        An empty sequence sends nothing.
        """
        ...


_C = TypeVar("_C", bound=Callable[[Caller], FrameApi])


@dataclass(frozen=True, slots=True)
class Api:
    """An API that the broker supports, from `min_version` to `max_version`.

    `advertised_min` is the minimum version in ApiVersions, when that differs. `frames` marks a handler that parses and
    encodes by itself; `flexible_from` is then the first version whose header has tagged fields. A handler with
    `checks_access` has no guard: it, or the controller, checks what the client may do.
    """

    key: ApiKey
    min_version: int
    max_version: int
    advertised_min: int
    handler: Handler | None = None
    on_error: ErrorHandler | None = None
    frames: Callable[[Caller], FrameApi] | None = None
    flexible_from: int = 0
    waits: bool = False
    checks_access: bool = False


class Registry(dict[int, Api]):
    def add(self, api: Api) -> None:
        if api.key in self:
            raise ValueError(f"{api.key.name} is handled twice")
        self[int(api.key)] = api


#: Filled by the modules of `stratalog.broker.apis` as they are imported.
REGISTRY = Registry()


def handles(
    key: ApiKey, *, versions: tuple[int, int], on_error: ErrorHandler | None = None, waits: bool = False
) -> Callable[[_F], _F]:
    """Register the decorated function for an API, from the first to the last of `versions`."""

    def register(handler: _F) -> _F:
        REGISTRY.add(Api(key, versions[0], versions[1], versions[0], handler=handler, on_error=on_error, waits=waits))
        return handler

    return register


def handles_frames(
    key: ApiKey, *, versions: tuple[int, int], flexible_from: int, advertised_min: int | None = None
) -> Callable[[_C], _C]:
    """Register a fast path: a class whose objects take a request's bytes and give the response's (see `FrameApi`)."""

    def register(make: _C) -> _C:
        advertised = versions[0] if advertised_min is None else advertised_min
        REGISTRY.add(Api(key, versions[0], versions[1], advertised, frames=make, flexible_from=flexible_from))
        return make

    return register


class RequestContext:
    """A request's header, client and services, for its handler."""

    __slots__ = (
        "_by_bytes",
        "_elements",
        "_order",
        "_permit",
        "_worked_s",
        "begun_s",
        "broker",
        "client_id",
        "correlation_id",
        "in_one_piece",
        "is_large",
        "key",
        "peer",
        "version",
    )

    def __init__(
        self,
        broker: BrokerServices,
        key: ApiKey,
        version: int,
        *,
        correlation_id: int = 0,
        client_id: str | None = None,
        peer: Peer | None = None,
    ) -> None:
        self.broker = broker
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        #: The client and its listener; without a connection, an anonymous one.
        self.peer = Peer(broker.listener) if peer is None else peer
        #: Whether the request may have so many elements that it must not be worked on in one piece.
        self.is_large = False
        #: Whether it is worked on without turns of others: there is no memory for several large requests.
        self.in_one_piece = False
        #: Elements processed since others had their turn, and the request's place in the order of those that wait.
        self._elements = 0
        self._order: int | None = None
        self._permit: MutationPermit | None = None
        #: When the work on it started; None while no client has a request quota.
        self.begun_s: float | None = None
        self._worked_s: float | None = None
        self._by_bytes: QuotaThrottle | None = None

    @property
    def quota_client(self) -> QuotaClient:
        return QuotaClient(self.peer.principal.name, self.client_id or "")

    def fetch_bytes_max(self, wanted: int) -> int:
        """Return how many of `wanted` bytes the client's quota lets it fetch at once."""
        pace = self.broker.quotas.pace
        return wanted if pace is None else int(min(wanted, pace.fetch_bytes_max(self.quota_client)))

    def count_fetched(self, size: int) -> bool:
        """Count an answer of `size` bytes; return whether it must not be sent because the client is throttled."""
        pace = self.broker.quotas.pace
        if pace is None:
            return False
        if self._worked_s is None:
            self.end_work()
        self._by_bytes = pace.after_fetch(self.quota_client, size, self._worked_s or 0.0)
        self.begun_s = None  # its time is counted with it
        return self._by_bytes is not None

    def take_mutations(self, partitions: int, *, strict_since: int) -> None:
        """Charge partitions to be created or deleted to the client's controller mutation quota.

        From version `strict_since` on, raises ThrottlingQuotaExceededError when the quota is exhausted.
        """
        if self._permit is None:
            self._permit = self.broker.quotas.permit(self.quota_client, is_strict=self.version >= strict_since)
        if self._permit is not None:
            self._permit.take(partitions)

    def end_work(self) -> None:
        """End the time that counts as work of this request."""
        pace = self.broker.quotas.pace
        if pace is not None and self.begun_s is not None:
            self._worked_s = pace.now_s() - self.begun_s

    def throttle(self) -> QuotaThrottle | None:
        """Count an answered request; return its throttling, if any."""
        by_time = self._by_bytes
        pace = self.broker.quotas.pace
        if pace is not None and self.begun_s is not None:
            if self._worked_s is None:
                self.end_work()
            worked_s = self._worked_s or 0.0
            if self.key in _EXEMPT:
                pace.after_exempt(worked_s)
            else:
                by_time = pace.after_request(self.quota_client, worked_s)
        return by_time if self._permit is None else self._permit.end(by_time)

    @property
    def principal(self) -> Principal:
        return self.peer.principal

    async def in_turns(self, elements: Iterable[_T], *, weight: int = 1) -> AsyncIterator[_T]:
        """Yield elements of the request. After each few hundred in all its arrays, others have their turn.

        `weight` is how many usual elements one of these is worth, each of which takes some microseconds.
        """
        for element in elements:
            yield element
            self._elements += weight
            if self._elements >= ELEMENTS_A_TURN and not self.in_one_piece:
                self._elements = 0
                self._order = await self.broker.turns.next(self._order)

    async def beside(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Return what a function makes of the request: on a worker thread if the request is large.

        The function may read only what may be read on any thread: the request, the settings, the topics.
        """
        if self.is_large:
            return await self.broker.workers.run(function, *arguments)
        return function(*arguments)

    def make(self, name: str, /, **fields: Any) -> Any:
        """Build the dataclass `name` of this API's response in this version.

        Fields that the version lacks are dropped. Missing fields get their default, or zero, empty or null. Lists
        become tuples; error codes may be ints, times and durations ints of milliseconds.
        """
        return make_message(getattr(message_module(self.key, self.version, "response"), name), fields)

    def respond(self, **fields: Any) -> Any:
        """`make` of this API's top-level response."""
        return make_message(response_class(self.key, self.version), fields)

    def parts(self, message: Any, parts: Sequence[bytes], *, behind: int = 0) -> bytes:
        """Return the bytes of a message of this response, with `parts` as its last array: see `with_parts`."""
        return with_parts(write_message(message), parts, flexible=type(message).__flexible__, behind=behind)

    def respond_encoded(self, body: bytes, errors: Mapping[int, int]) -> EncodedResponse:
        """Return the top-level response from its encoded body, with the number of each of its error codes."""
        return EncodedResponse(body, response_class(self.key, self.version).__flexible__, errors)

    def error_response(self, error: BaseException) -> Any | None:
        """Return a response with only `error`, or None when this API has no field for it at its top level."""
        cls = response_class(self.key, self.version)
        if "error_code" not in cls.__dataclass_fields__:
            return None
        return self.respond(error_code=wire_code(error), error_message=str(error))


def answer_error(api: Api, ctx: RequestContext, request: Any, error: BaseException) -> Any | None:
    """Return the response for a handler that raised; None means that the connection must be closed."""
    if not isinstance(error, KafkaError):
        logger.error("%s v%d from %s failed", api.key.message, ctx.version, ctx.peer.client_host, exc_info=error)
    if api.on_error is not None:
        return api.on_error(ctx, request, error)
    return ctx.error_response(error)
