"""AlterConfigs and IncrementalAlterConfigs of a broker in a cluster.

The broker changes the levels of its own loggers, refuses what its settings do not allow, and forwards all else to the
controller in the client's name. Source: `ConfigAdminManager` and `KafkaApis` of Kafka 4.4.0.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from stratalog.broker.access import AclOperation, ResourceType
from stratalog.broker.cluster.failed_requests import TEXTS, failed_response
from stratalog.broker.cluster.forwarding import ForwardedClient, Forwarder
from stratalog.broker.metadata import (
    BROKER,
    BROKER_LOGGER,
    Operation,
    alter_loggers_of,
    broker_of,
    changed_broker_configs,
    check_broker_configs,
    check_names_and_values,
    check_resource_type,
    parse_changes,
)
from stratalog.errors import (
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    KafkaError,
    RequestTimedOutError,
    StratalogError,
    UnknownServerError,
    UnsupportedVersionError,
)
from stratalog.wire import ApiKey

if TYPE_CHECKING:
    from stratalog.broker.server import RequestContext

logger = logging.getLogger(__name__)

#: (name, operation, value)
_Parts = list[tuple[str, int, str | None]]


class ConfigRequests:
    """Answers requests that change configs. Belongs to the loop's thread; forwarded requests block on `threads`."""

    def __init__(self, forwarder: Forwarder, threads: Executor) -> None:
        self._forwarder = forwarder
        self._threads = threads

    async def answer(self, ctx: RequestContext, request: Any) -> Any:
        """Return the response, with the resources in the order of the request.

        Raises UnsupportedVersionError if the controller does not support the version.
        """
        times = Counter(map(_id, request.resources))
        results: dict[tuple[int, str], Any] = {}
        rest = []
        for resource in request.resources:
            try:
                if times[_id(resource)] > 1:
                    raise InvalidRequestError("Each resource must appear at most once.")
                await _preprocess(ctx, resource, request.validate_only)
            except KafkaError as error:
                results[_id(resource)] = _result(ctx, resource, error.code, str(error) or None)
            else:
                if resource.resource_type == BROKER_LOGGER:
                    results[_id(resource)] = _result(ctx, resource, 0, None)
                else:
                    rest.append(resource)
        if rest:
            results |= await self._forward(ctx, replace(request, resources=tuple(rest)))
        return ctx.respond(responses=[results[_id(resource)] for resource in request.resources])

    async def _forward(self, ctx: RequestContext, request: Any) -> Mapping[tuple[int, str], Any]:
        """Return the controller's result of each resource; an error for those without one."""
        try:
            response = await ctx.broker.loop.run_in_executor(
                self._threads,
                self._forwarder.forward_message,
                ForwardedClient.of(ctx),
                ctx.key,
                ctx.version,
                request,
            )
        except UnsupportedVersionError:  # another controller: the client has to query its versions
            raise
        except StratalogError as failure:
            logger.warning("A request for the controller was not answered: %s", failure)
            error = failure if isinstance(failure, RequestTimedOutError) else UnknownServerError(str(failure))
            response = failed_response(ctx.key, ctx.version, request, error)
        code = UnknownServerError.code
        missing = {_id(resource): _result(ctx, resource, code, TEXTS[code]) for resource in request.resources}
        return missing | {_id(each): each for each in response.responses}


async def _preprocess(ctx: RequestContext, resource: Any, validate_only: bool) -> None:
    """Change loggers, and check what the controller does not. Raises KafkaError for what is refused."""
    parts: _Parts = [
        (each.name, getattr(each, "config_operation", Operation.SET), each.value) for each in resource.configs
    ]
    check_names_and_values(parts)
    if resource.resource_type == BROKER_LOGGER and ctx.key is ApiKey.INCREMENTAL_ALTER_CONFIGS:
        if not _may_alter(ctx, log=True):
            raise ClusterAuthorizationFailedError
        alter_loggers_of(resource.resource_name, ctx.broker.node_id, parts, validate_only=validate_only)
        return
    check_resource_type(resource.resource_type)
    if resource.resource_type == BROKER:
        await ctx.broker.workers.run(_check_broker, ctx, resource.resource_name, parts, _may_alter(ctx, log=False))


def _may_alter(ctx: RequestContext, *, log: bool) -> bool:
    access, cluster = ctx.broker.access, ResourceType.CLUSTER
    return access is None or access.allows(
        ctx.peer, ctx.key, AclOperation.ALTER_CONFIGS, cluster, log_allowed=log, log_denied=log
    )


def _check_broker(ctx: RequestContext, name: str, parts: _Parts, may_alter: bool) -> None:
    """Raise KafkaError unless this broker, or all, may have these configs: the controller does not know their rules.

    Kafka opens the key stores of every client's request here. A client could choose the file, such as a pipe, which
    would hold a worker for ever. So those of clients without the right are left to the controller, which refuses them.
    """
    node_id = broker_of(name, ctx.broker.node_id)
    changes = parse_changes(parts)
    settings = ctx.broker.settings
    before = ctx.broker.metadata.broker_configs(node_id) if ctx.key is ApiKey.INCREMENTAL_ALTER_CONFIGS else {}
    after = changed_broker_configs(before, changes)
    resulting, for_all = partial(settings.resulting, node_id, after), node_id is None
    check_broker_configs(after, settings.static, current=ctx.broker.config, resulting=resulting, for_all=for_all)
    settings.check(node_id, after, stores=may_alter)


def _id(resource: Any) -> tuple[int, str]:
    return int(resource.resource_type), str(resource.resource_name)


def _result(ctx: RequestContext, resource: Any, code: int, message: str | None) -> Any:
    return ctx.make(
        "AlterConfigsResourceResponse",
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
