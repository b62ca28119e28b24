"""Check access before an API is handled, and filter its response.

A guard runs before an API's handler. It returns either the response, or the request without what the client may not
access and a function that completes the response. Handlers do not know about guards, and without an authorizer none
runs.

For a large request, the guard and the function that it returns run on a worker thread. They read only what is
thread-safe: the request, the authorizer, the topics, the settings.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from stratalog.broker.access.acls import CLUSTER_NAME, AclOperation, ResourceType
from stratalog.broker.access.control import AccessControl
from stratalog.broker.large_answers import has_many
from stratalog.errors import ClusterAuthorizationFailedError
from stratalog.wire import ApiKey, EncodedResponse, read_message, response_class

if TYPE_CHECKING:
    from stratalog.broker.server import Api, Registry, RequestContext

#: Longer encoded responses are completed on a worker thread, as those with many elements are.
_LONG_BYTES: Final = 16 * 1024

#: Response -> response.
Finish = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class GuardStep:
    """A guard's decision: `answer` at once, or `request` for the handler and `finish` for its response."""

    request: Any = None
    finish: Finish | None = None
    answer: Any = None


class Asker:
    """Checks the access of one request's client."""

    __slots__ = ("_access", "_key", "_peer", "ctx")

    def __init__(self, access: AccessControl, ctx: RequestContext) -> None:
        self._access = access
        self._peer = ctx.peer
        self._key = ctx.key
        self.ctx = ctx

    def may(
        self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME, *, log_denied: bool = True
    ) -> bool:
        return self._access.allows(self._peer, self._key, operation, resource_type, name, log_denied=log_denied)

    def may_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self._access.allows_any(self._peer, self._key, operation, resource_type)

    def may_cluster(self, operation: AclOperation, *, log_denied: bool = True) -> bool:
        return self.may(operation, ResourceType.CLUSTER, log_denied=log_denied)

    def names(
        self, operation: AclOperation, resource_type: ResourceType, names: Iterable[str], *, log_denied: bool = True
    ) -> set[str]:
        """Return the names on which the client may do this."""
        return {name for name in set(names) if self.may(operation, resource_type, name, log_denied=log_denied)}

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the client may do, one bit each."""
        return self._access.operations(self._peer, self._key, resource_type, name)


Guard = Callable[[Asker, Any], GuardStep]


def added(field: str, entries: Iterable[Any]) -> Finish:
    """Return a function that appends entries to an array of the response."""
    more = tuple(entries)
    return lambda response: replace(response, **{field: (*getattr(response, field), *more)})


def only(field: str, is_seen: Callable[[Any], bool]) -> Finish:
    """Return a function that removes entries of an array that the client may not see."""
    return lambda response: replace(
        response, **{field: tuple(each for each in getattr(response, field) if is_seen(each))}
    )


def with_each(field: str, change: Callable[[Any], Any]) -> Finish:
    """Return a function that changes each entry of an array of the response."""
    return lambda response: replace(response, **{field: tuple(map(change, getattr(response, field)))})


def both(first: Finish | None, second: Finish | None) -> Finish | None:
    if first is None or second is None:
        return first or second
    return lambda response: second(first(response))


def between_brokers(asker: Asker, request: Any) -> GuardStep:
    """Guard an inter-broker API, and every API without another guard."""
    if not asker.may_cluster(AclOperation.CLUSTER_ACTION):
        raise ClusterAuthorizationFailedError("Cluster authorization failed.")
    return GuardStep(request)


def guarded(apis: Registry, access: AccessControl, guards: Mapping[ApiKey, Guard | None]) -> Registry:
    """Return the APIs, each behind its guard. None means no check; APIs that answer frames check by themselves.

    So do those with `checks_access`.
    """
    found = type(apis)()
    for api in apis.values():
        guard = guards.get(api.key, between_brokers)
        found.add(api if guard is None or api.handler is None or api.checks_access else _guarded(api, guard, access))
    return found


def _guarded(api: Api, guard: Guard, access: AccessControl) -> Api:
    handler = api.handler
    assert handler is not None

    async def answer(ctx: RequestContext, request: Any) -> Any:
        step = await ctx.beside(guard, Asker(access, ctx), request)
        if step.answer is not None:
            return step.answer
        response = handler(ctx, step.request)
        if inspect.iscoroutine(response):
            response = await response
        if step.finish is None or response is None:
            return response
        if ctx.is_large or _is_long(response):
            return await ctx.broker.workers.run(_finished, ctx, step.finish, response)
        return _finished(ctx, step.finish, response)

    return replace(api, handler=answer)


def _is_long(response: Any) -> bool:
    return len(response.body) > _LONG_BYTES if isinstance(response, EncodedResponse) else has_many(response)


def _finished(ctx: RequestContext, finish: Finish, response: Any) -> Any:
    if isinstance(response, EncodedResponse):
        response, _ = read_message(response_class(ctx.key, ctx.version), response.body)
    return finish(response)
