"""GetTelemetrySubscriptions (71): which metrics a client is to push, and how often (KIP-714).

Answered always, told to clients by ApiVersions only where `stratalog.client.metrics` keeps what they push: as Kafka
without, and with, a plug-in for it.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import KafkaError
from stratalog.records import Codec

#: The best first.
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
