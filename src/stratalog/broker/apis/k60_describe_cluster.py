"""DescribeCluster: the cluster id and the single broker, which is also the controller.

Version 1 adds the requested type of endpoint (brokers, 1), 2 fenced brokers.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles

_BROKERS, _CONTROLLERS = 1, 2
_MISMATCHED_ENDPOINT_TYPE, _UNSUPPORTED_ENDPOINT_TYPE = 114, 115
_OPERATIONS_UNKNOWN = -(2**31)
#: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE; a bit for each.
_CLUSTER_OPERATIONS = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))


@handles(ApiKey.DESCRIBE_CLUSTER, versions=(0, 2))
def describe_cluster(ctx: RequestContext, request: Any) -> Any:
    endpoint_type = getattr(request, "endpoint_type", _BROKERS)
    if endpoint_type == _CONTROLLERS:
        return _refuse(
            ctx,
            _MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if endpoint_type != _BROKERS:
        return _refuse(ctx, _UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}")
    broker = ctx.broker
    asked = request.include_cluster_authorized_operations
    return ctx.respond(
        error_code=0,
        error_message=None,
        endpoint_type=_BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            ctx.make(
                "DescribeClusterBroker",
                broker_id=broker.node_id,
                host=ctx.peer.reached_host,
                port=ctx.peer.listener.port,
                rack=broker.config["broker.rack"],
                is_fenced=False,
            )
        ],
        cluster_authorized_operations=_CLUSTER_OPERATIONS if asked else _OPERATIONS_UNKNOWN,
    )


def _refuse(ctx: RequestContext, code: int, message: str) -> Any:
    return ctx.respond(
        error_code=code,
        error_message=message,
        endpoint_type=_BROKERS,
        controller_id=-1,
        cluster_authorized_operations=_OPERATIONS_UNKNOWN,
    )
