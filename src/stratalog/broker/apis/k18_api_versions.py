"""ApiVersions (18): the APIs of this broker, from the registry.

v0 to v5. v3: flexible (but never the response's header), the client's software name is checked, features are listed.
v5: the client names the cluster and the broker that it expects, and is asked to bootstrap again at another one
(KIP-1242). An unknown version is answered in v0 with UNSUPPORTED_VERSION and the range of this API, so that the client
can retry (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stratalog.broker.metadata import FinalizedFeatures
from stratalog.broker.server import REGISTRY, ApiKey, RequestContext, handles
from stratalog.config import CLIENT_METRICS_SINK, LEVEL_MAX, LEVEL_MIN, METADATA_VERSION, OTHER_FEATURES
from stratalog.errors import InvalidRequestError, RebootstrapRequiredError, UnsupportedVersionError

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_FROM = 3
_LEVEL_ZERO_FROM = 4
_EXPECTATION_FROM = 5
_NO_NODE = -1
#: Advertised only if pushed metrics are used.
_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


def _unsupported(ctx: RequestContext, _request: Any, error: BaseException) -> Any:
    api = REGISTRY[ApiKey.API_VERSIONS]
    own = ctx.make("ApiVersion", api_key=api.key, min_version=api.min_version, max_version=api.max_version)
    code = error.code if isinstance(error, (UnsupportedVersionError, InvalidRequestError)) else -1
    return ctx.respond(error_code=code, api_keys=[own])


@handles(ApiKey.API_VERSIONS, versions=(0, 5), on_error=_unsupported)
def api_versions(ctx: RequestContext, request: Any) -> Any:
    if ctx.version >= _SOFTWARE_FROM and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ctx.respond(error_code=InvalidRequestError.code)
    if ctx.version >= _EXPECTATION_FROM and (unexpected := _check_expectation(ctx, request)):
        return ctx.respond(error_code=unexpected)
    if ctx.version >= _SOFTWARE_FROM:
        ctx.peer.software = (request.client_software_name, request.client_software_version)
    hidden = _TELEMETRY if ctx.broker.config[CLIENT_METRICS_SINK] == "off" else ()
    features = ctx.broker.metadata.features
    served = REGISTRY if ctx.broker.cluster is None else ctx.broker.cluster.served
    return ctx.respond(
        api_keys=[
            ctx.make("ApiVersion", api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
            for _, api in sorted(served.items())
            if api.key not in hidden
        ],
        supported_features=_supported(ctx) if ctx.version >= _SOFTWARE_FROM else [],
        finalized_features_epoch=features.epoch,
        finalized_features=_finalized(ctx, features) if ctx.version >= _SOFTWARE_FROM else [],
    )


def _check_expectation(ctx: RequestContext, request: Any) -> int:
    """Return an error code unless the client expects this cluster and broker, or says nothing of either."""
    if (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return InvalidRequestError.code
    if request.cluster_id is None or (request.cluster_id, request.node_id) == (
        ctx.broker.cluster_id,
        ctx.broker.node_id,
    ):
        return 0
    return RebootstrapRequiredError.code


def _supported(ctx: RequestContext) -> list[Any]:
    """Return the supported features. Before v4 those with a minimum level of 0 are left out (KAFKA-17011)."""
    ranges: Mapping[str, tuple[int, int]] = {METADATA_VERSION: (LEVEL_MIN, LEVEL_MAX)} | {
        name: (0, highest) for name, highest in OTHER_FEATURES.items()
    }
    if ctx.broker.cluster is not None:
        ranges = ctx.broker.cluster.supported_features
    return [
        ctx.make("SupportedFeatureKey", name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in ranges.items()
        if lowest > 0 or ctx.version >= _LEVEL_ZERO_FROM
    ]


def _finalized(ctx: RequestContext, features: FinalizedFeatures) -> list[Any]:
    levels = {METADATA_VERSION: features.metadata_version, **features.others}
    return [
        ctx.make("FinalizedFeatureKey", name=name, min_version_level=level, max_version_level=level)
        for name, level in levels.items()
    ]
