"""ListConfigResources (74): resources with a configuration (KIP-1142).

v0 is for client metrics only; v1 for given types, or for all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from stratalog.broker.metadata import CLIENT_METRICS, GROUP
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.services import BrokerServices
from stratalog.errors import UnsupportedVersionError


def _topics(broker: BrokerServices) -> list[str]:
    return [topic.name for topic in broker.metadata.topics()]


def _this_broker(broker: BrokerServices) -> list[str]:
    return [str(broker.node_id)]


def _configured(resource_type: int, broker: BrokerServices) -> list[str]:
    return broker.metadata.configured_resources(resource_type)


#: By type: topics, brokers, loggers of brokers, client metrics, groups.
_NAMES: dict[int, Callable[[BrokerServices], list[str]]] = {
    2: _topics,
    4: _this_broker,
    8: _this_broker,
    CLIENT_METRICS: partial(_configured, CLIENT_METRICS),
    GROUP: partial(_configured, GROUP),
}


@handles(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1))
def list_config_resources(ctx: RequestContext, request: Any) -> Any:
    types = dict.fromkeys(request.resource_types or _NAMES) if ctx.version else {CLIENT_METRICS: None}
    if not types.keys() <= _NAMES.keys():
        return ctx.respond(error_code=UnsupportedVersionError.code, config_resources=[])
    return ctx.respond(
        error_code=0,
        config_resources=[
            ctx.make("ConfigResource", resource_name=name, resource_type=resource_type)
            for resource_type in types
            for name in _NAMES[resource_type](ctx.broker)
        ],
    )
