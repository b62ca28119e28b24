"""PushTelemetry (72): metrics of a client (KIP-714), kept or logged according to the settings."""

from __future__ import annotations

import logging
from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.telemetry import read_pushed
from stratalog.config import CLIENT_METRICS_SINK
from stratalog.errors import KafkaError
from stratalog.util import uuid_to_base64

logger = logging.getLogger(__name__)


@handles(ApiKey.PUSH_TELEMETRY, versions=(0, 0))
async def push_telemetry(ctx: RequestContext, request: Any) -> Any:
    broker, data = ctx.broker, request.metrics or b""
    try:
        broker.telemetry.check_push(
            request.client_instance_id,
            request.subscription_id,
            request.compression_type,
            len(data),
            is_terminating=request.terminating,
            client_id=ctx.client_id,
            peer=ctx.peer,
        )
        if data:
            values = await broker.workers.run(
                read_pushed, request.compression_type, bytes(data), broker.telemetry.size_max
            )
            _keep(ctx, request, values)
    except KafkaError as error:
        return ctx.respond(error_code=error.code)
    return ctx.respond()


def _keep(ctx: RequestContext, request: Any, values: list[Any]) -> None:
    sink = ctx.broker.config[CLIENT_METRICS_SINK]
    if sink == "off":
        return
    client_id, instance_id = ctx.client_id or "", request.client_instance_id
    if request.terminating:
        ctx.broker.telemetry.values.forget(instance_id)
    else:
        ctx.broker.telemetry.values.put(instance_id, client_id, values)
    if sink == "log":
        for value in values:
            logger.info(
                "Client %s (%s): %s{%s} = %s",
                client_id, uuid_to_base64(instance_id), value.name, value.attributes, value.value,
            )  # fmt: skip
