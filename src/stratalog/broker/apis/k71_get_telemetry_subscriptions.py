"""GetTelemetrySubscriptions (71): the metrics that a client should push, and the interval (KIP-714).

Always answered, but advertised in ApiVersions only if `stratalog.client.metrics` enables a use of the metrics: as
Kafka without, and with, a telemetry plug-in.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import KafkaError
from stratalog.records import Codec

#: In order of preference.
_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)


@handles(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0))
def get_telemetry_subscriptions(ctx: RequestContext, request: Any) -> Any:
    telemetry = ctx.broker.telemetry
    try:
        found = telemetry.get(request.client_instance_id, ctx.client_id, ctx.peer)
    except KafkaError as error:
        return ctx.respond(error_code=error.code)
    return ctx.respond(
        client_instance_id=found.instance_id,
        subscription_id=found.subscription_id,
        accepted_compression_types=[int(codec) for codec in _CODECS],
        push_interval=found.interval_ms,
        telemetry_max_bytes=telemetry.size_max,
        delta_temporality=True,
        requested_metrics=found.metrics,
    )
